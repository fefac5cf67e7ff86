//! Names the events of a plan's waits.

use crate::pg::waits::lasting;
use rowsource_core::model::{NamedWaits, Plan};
use rowsource_core::waits::Event;
use rowsource_core::waits::plan::{EventWaits, PlanWaits};
use std::collections::BTreeMap;

/// The names of an event's type and of the event; `None` for the events that have no counters of their own.
pub type Name = Option<(String, String)>;

const NS_PER_MS: f64 = 1e6;

/// Returns the names of an event and of its type. The event 0 has none.
pub fn name(event: Event) -> Name {
    Some(event)
        .filter(|event| *event != 0)
        .and_then(lasting::event_names)
}

/// Returns the waits of a plan by their nodes and the names of their events. Locks that another extension has
/// not named in this session share a name.
pub fn by_node(waits: &PlanWaits) -> BTreeMap<(Option<usize>, Name), EventWaits> {
    let mut sums: BTreeMap<(Option<usize>, Name), EventWaits> = BTreeMap::new();
    for waits in waits.events() {
        let sum = sums.entry((waits.node(), name(waits.event))).or_default();
        sum.waits += waits.waits;
        sum.ns += waits.ns;
        sum.max_ns = sum.max_ns.max(waits.max_ns);
    }
    sums
}

/// The waits for blocks that are read. On 18 and newer, other processes may read them.
const READS: [&str; 3] = ["DataFileRead", "AioIoCompletion", "AioIoUringExecution"];

/// Returns the waits for reads of the nodes of a plan.
pub fn reads(waits: &PlanWaits) -> BTreeMap<usize, EventWaits> {
    let mut sums: BTreeMap<usize, EventWaits> = BTreeMap::new();
    for ((node, name), waits) in by_node(waits) {
        let is_read = name.is_some_and(|(_, event)| READS.contains(&event.as_str()));
        if let Some(node) = node.filter(|_| is_read) {
            let sum = sums.entry(node).or_default();
            sum.waits += waits.waits;
            sum.ns += waits.ns;
            sum.max_ns = sum.max_ns.max(waits.max_ns);
        }
    }
    sums
}

/// Returns the waits of a plan to be shown: of its last execution, or of all. Those of a node that took the
/// longest come first. The waits of the last of several executions are known only to the session that ran it:
/// else there are none.
pub fn shown(plan: &Plan, is_last: bool) -> Vec<NamedWaits> {
    let all = &plan.statistics.waits;
    let is_one_of_many = is_last && plan.statistics.times.calls > 1;
    let Some(waits) = plan
        .last_waits
        .as_ref()
        .filter(|_| is_last)
        .or((!is_one_of_many).then_some(all))
    else {
        return Vec::new();
    };
    let mut named: Vec<NamedWaits> = by_node(waits)
        .into_iter()
        .map(|((node, name), waits)| {
            let (event_type, event) = name.unzip();
            NamedWaits {
                node,
                event_type,
                event: event.unwrap_or_else(|| "other".to_owned()),
                waits: waits.waits,
                ms: waits.ns as f64 / NS_PER_MS,
                max_ms: waits.max_ns as f64 / NS_PER_MS,
            }
        })
        .collect();
    // The sort is stable, and those outside of the nodes come last.
    named.sort_by(|a, b| {
        let place = |waits: &NamedWaits| waits.node.unwrap_or(usize::MAX);
        place(a).cmp(&place(b)).then(b.ms.total_cmp(&a.ms))
    });
    named
}
