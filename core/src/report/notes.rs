//! The notes below the table.

use super::format::{Format, Part};
use super::header::{Header, duration};
use crate::model::{NamedWaits, NodeStats, processes};
use crate::plan::PlanNode;

/// The share of the elapsed time from which on a wait for the client is noted.
const LEAST_SHARE_OF_CLIENT: f64 = 0.1;

/// Returns what the reader must know to understand the table.
pub(super) fn notes(
    header: &Header,
    nodes: &[PlanNode],
    stats: &[NodeStats],
    format: &Format,
    left_out: &[&str],
) -> Vec<String> {
    let mut notes = Vec::new();
    if !format.has(Part::Notes) {
        return notes;
    }
    if format.has(Part::Time) {
        notes.extend(summed_over_processes(header, nodes, stats));
        notes.extend(waited_for_client(header));
        notes.extend(header.triggers.iter().cloned());
        if header.beats_missing && stats.iter().any(is_estimated) {
            notes.push(
                "long calls without I/O may be missed: there are sessions without beats now (see rowsource_info())"
                    .to_owned(),
            );
        }
    }
    if !left_out.is_empty() {
        notes.push(format!("COMPACT left out: {}", left_out.join(", ")));
    }
    notes
}

/// Returns a note if the statement waited for its client so long that the operations do not explain its time.
fn waited_for_client(header: &Header) -> Option<String> {
    let of_client = |waits: &&NamedWaits| waits.node.is_none() && waits.event == "ClientWrite";
    let ms: f64 = header.waits.iter().filter(of_client).map(|waits| waits.ms).sum();
    let is_much = header.now.is_none() && ms >= LEAST_SHARE_OF_CLIENT * header.elapsed_ms && ms > 0.0;
    is_much.then(|| {
        let (ms, elapsed) = (duration(ms), duration(header.elapsed_ms));
        format!("the statement waited {ms} of the elapsed {elapsed} for its client to take rows, outside of the operations")
    })
}

/// Returns whether a node's time is an estimate.
fn is_estimated(stats: &NodeStats) -> bool {
    stats.time.get().is_some_and(|time| time.error_ms > 0.0)
}

/// Returns a note if more than one process ran a node below a Gather: its time may exceed the Gather's then,
/// and even the statement's.
fn summed_over_processes(header: &Header, nodes: &[PlanNode], stats: &[NodeStats]) -> Option<String> {
    let processes = processes(nodes, |i| stats.get(i)?.starts.get());
    let processes = processes.into_iter().flatten().filter(|number| *number > 1.0);
    let processes = processes.reduce(f64::max)?;
    let longest = stats.iter().filter_map(|stats| stats.time.get());
    let longest = longest.map(|time| time.total_ms).fold(0.0, f64::max);
    let number = match processes {
        whole if whole.fract() == 0.0 => format!("{whole:.0}"),
        mean => format!("{mean:.1}"),
    };
    let mut note = format!("below a Gather, Starts and A-Time are summed over its processes ({number})");
    if longest > header.elapsed_ms && header.elapsed_ms > 0.0 {
        let elapsed = duration(header.elapsed_ms);
        note += &format!("; so A-Time may exceed the elapsed time of {elapsed}");
    }
    Some(note)
}
