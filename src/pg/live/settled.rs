//! Whether the copy of a statement's nodes is of one moment.
//!
//! A reader can be interrupted between two words of a node. If the call in progress ends meanwhile, the copy
//! has its time twice, or not at all: the time that the node had before, and the beginning of the next call.
//! So the words that say so are read once more, after the copy was made.

use super::nodes::Nodes;
use crate::pg::compat::{self, NodeInstrumentation};
use crate::pg::hot::node::Node;
use rowsource_core::model::Buffers;

/// Returns whether the calls in progress are still those of the copy, and no other call of their nodes has
/// been timed. The running account was the same before and after the copy. `is_same_reading` says that so was
/// the session's last reading of the clock before that call.
pub fn are_calls_settled(nodes: Nodes, copied: &[Node], account: usize, is_same_reading: bool) -> bool {
    let mut next = nodes.of_account(account);
    let innermost = next.and_then(|i| copied.get(i));
    if innermost.is_some_and(|node| node.notes_no_reading) && !is_same_reading {
        return false;
    }
    // There are at most as many callers as nodes.
    for _ in copied {
        let Some((node, copied)) = next.and_then(|i| nodes.get(i).zip(copied.get(i))) else {
            break;
        };
        let now = (node.before(), node.calls(), node.timed_calls());
        if now != (copied.before, copied.every_call.calls, copied.timer.timed_calls) {
            return false;
        }
        next = nodes.of_account(copied.caller.usage().addr());
    }
    true
}

/// Returns whether core has measured nothing since the nodes were copied.
pub fn is_core_settled(nodes: Nodes, copied: &[Node]) -> bool {
    let by_core = copied.iter().enumerate();
    let mut by_core = by_core.filter(|(_, node)| node.by_core || node.under_gather);
    by_core.all(|(i, copied)| {
        let now = nodes.get(i).map(|node| measured(node.instrumentation()));
        now.is_none_or(|now| now == measured(copied.instr))
    })
}

/// Returns whether core is timing a call, and the blocks of the calls that have ended.
fn measured(mut instr: NodeInstrumentation) -> (bool, Buffers) {
    let is_timing = compat::is_timing(&instr);
    let core = compat::common_instrumentation(&mut instr);
    (is_timing, compat::buffers(&core.bufusage))
}
