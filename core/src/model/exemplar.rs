//! Executions that are kept whole: of each plan the slowest one, the last one that failed and the last one
//! that was cancelled.
//!
//! A kept execution has the same statistics of each node as the last execution. It is packed: a node takes
//! about a hundred bytes. Statements that are short and succeed keep nothing.

use super::execution::{Outcome, Run};
use super::node::NodeStats;
use super::packed::{PackError, append, take, with_zeros, without_zeros};
use super::parameters::Sent;
use super::statement_facts::{Outside, StatementSums};
use crate::waits::plan::PlanWaits;
use serde::{Deserialize, Serialize};

/// The slowest execution is kept if its client waited longer than this.
pub const MIN_SLOWEST_MS: f64 = 1.0;
/// An execution that took this many times as long as the kept one is kept in any case.
const MUCH_SLOWER: f64 = 1.1;
/// How many other executions a session keeps in [`PERIOD_US`].
const KEPT_IN_PERIOD: u32 = 10;
const PERIOD_US: i64 = 1_000_000;
/// The largest record. That of 1,000 nodes is less than half as large.
const MAX_RECORD: usize = 1 << 20;

/// Which executions of a plan are kept whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exemplar {
    /// The slowest one that completed.
    Slowest,
    /// The last one that failed.
    Failed,
    /// The last one that was cancelled.
    Cancelled,
}

impl Exemplar {
    /// All of them.
    pub const ALL: [Exemplar; 3] = [Exemplar::Slowest, Exemplar::Failed, Exemplar::Cancelled];

    /// Returns what an execution with this outcome may become.
    pub fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Exemplar::Slowest,
            Outcome::Failed => Exemplar::Failed,
            Outcome::Cancelled => Exemplar::Cancelled,
        }
    }

    /// Returns the word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Exemplar::Slowest => "slowest",
            Exemplar::Failed => "failed",
            Exemplar::Cancelled => "cancelled",
        }
    }
}

/// A packed execution.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Packed {
    response_ms: f64,
    /// When it ended, in microseconds since 2000-01-01 UTC.
    at: i64,
    sent: Sent,
    bytes: Vec<u8>,
}

/// What the bytes of a packed execution begin with. The statistics of its nodes follow.
#[derive(Serialize, Deserialize)]
struct Head {
    run: Run,
    outside: Option<StatementSums>,
    waits: Option<PlanWaits>,
    nodes: u32,
}

/// An execution that was kept whole.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptExecution {
    /// The execution as a whole.
    pub run: Run,
    /// What it did outside of its nodes, unless that is nothing.
    pub outside: Option<StatementSums>,
    /// Its waits, without those after its end.
    pub waits: PlanWaits,
    /// The statistics of the nodes, in EXPLAIN's order.
    pub nodes: Vec<NodeStats>,
    /// What its client sent, if that is kept.
    pub sent: Sent,
}

/// The executions of a plan that are kept whole.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Exemplars([Option<Packed>; Exemplar::ALL.len()]);

impl Exemplars {
    /// Returns the milliseconds that the client must have waited for an execution so that it becomes the
    /// slowest one.
    pub fn slowest_ms(&self) -> f64 {
        let kept = self.0[Exemplar::Slowest as usize].as_ref();
        kept.map_or(MIN_SLOWEST_MS, |kept| kept.response_ms)
    }

    /// Returns whether the execution would be kept.
    pub fn wants(&self, run: &Run) -> bool {
        run.outcome != Outcome::Completed || run.response_ms() > self.slowest_ms()
    }

    /// Keeps an execution, in the place of an earlier one.
    ///
    /// # Errors
    /// Returns an error if there is no memory.
    pub fn keep(
        &mut self,
        run: &Run,
        outside: Option<&Outside<'_>>,
        nodes: &[NodeStats],
        sent: Sent,
    ) -> Result<(), PackError> {
        let mut bytes = Vec::new();
        let head = Head {
            run: *run,
            outside: outside.map(|outside| outside.sums),
            waits: outside.and_then(|outside| outside.waits).map(PlanWaits::of),
            nodes: nodes.len() as u32,
        };
        append(&mut bytes, &head)?;
        for node in nodes {
            append(&mut bytes, node)?;
        }
        self.0[Exemplar::of(run.outcome) as usize] = Some(Packed {
            response_ms: run.response_ms(),
            at: run.at,
            sent,
            bytes: without_zeros(&bytes)?,
        });
        Ok(())
    }

    /// Adds executions that were kept elsewhere. Of two, it keeps the slower one, or the one that ended last.
    /// If both are the same execution, whose commit is known now, what its client sent is that which was kept
    /// at its end.
    pub fn merge(&mut self, other: Exemplars) {
        for ((kept, mut other), which) in self.0.iter_mut().zip(other.0).zip(Exemplar::ALL) {
            let is_better = match (&kept, &other) {
                (_, None) => false,
                (None, _) => true,
                (Some(kept), Some(other)) if which == Exemplar::Slowest => {
                    other.response_ms > kept.response_ms
                }
                (Some(kept), Some(other)) => other.at > kept.at,
            };
            if let (Some(kept), Some(other)) = (&kept, &mut other)
                && kept.at == other.at
                && other.sent == Sent::default()
            {
                other.sent.clone_from(&kept.sent);
            }
            if is_better {
                *kept = other;
            }
        }
    }

    /// Returns those that ended at this time or later, or all if there is none, without what clients sent.
    pub fn since(&self, time: Option<i64>) -> Exemplars {
        let is_later = |kept: &&Packed| time.is_none_or(|time| kept.at >= time);
        let without_sent = |kept: &Packed| Packed {
            sent: Sent::default(),
            ..kept.clone()
        };
        Exemplars(
            self.0
                .each_ref()
                .map(|kept| kept.as_ref().filter(is_later).map(without_sent)),
        )
    }

    /// Returns a kept execution; `None` if there is none.
    pub fn get(&self, which: Exemplar) -> Option<Result<KeptExecution, PackError>> {
        let kept = self.0[which as usize].as_ref()?;
        Some(unpacked(&kept.bytes).map(|execution| KeptExecution {
            sent: kept.sent.clone(),
            ..execution
        }))
    }

    /// Returns whether no execution is kept.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Returns the bytes that they take in a session's memory, beside the plan.
    pub fn size(&self) -> usize {
        let kept = self.0.iter().flatten();
        kept.map(|kept| kept.bytes.capacity() + kept.sent.size()).sum()
    }

    /// Returns the bytes that a store keeps of them.
    ///
    /// # Errors
    /// Returns an error if there is no memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>, PackError> {
        let mut bytes = Vec::new();
        append(&mut bytes, self)?;
        Ok(bytes)
    }

    /// Reads what [`Exemplars::to_bytes`] returned. No bytes are no executions.
    ///
    /// # Errors
    /// Returns an error if the bytes are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PackError> {
        if bytes.is_empty() {
            return Ok(Exemplars::default());
        }
        take(bytes).map(|(exemplars, _)| exemplars)
    }
}

/// Unpacks an execution. The bytes may be anything.
fn unpacked(bytes: &[u8]) -> Result<KeptExecution, PackError> {
    let record = with_zeros(bytes, MAX_RECORD)?;
    let (head, mut rest): (Head, _) = take(&record)?;
    let count = head.nodes as usize;
    // A node takes more than one byte.
    if count > rest.len() {
        return Err(PackError::Damaged);
    }
    let mut nodes = Vec::new();
    nodes.try_reserve_exact(count).map_err(|_| PackError::Memory)?;
    for _ in 0..count {
        let (node, after) = take(rest)?;
        nodes.push(node);
        rest = after;
    }
    Ok(KeptExecution {
        run: head.run,
        outside: head.outside,
        waits: head.waits.unwrap_or_default(),
        nodes,
        sent: Sent::default(),
    })
}

/// Limits how often a session keeps executions. Without it, a function that catches an error in a loop, or a
/// statement that is a little slower each time, would keep each execution.
#[derive(Clone, Copy, Debug)]
pub struct KeepLimit {
    /// When the period ends.
    until: i64,
    /// How many were kept in it.
    kept: u32,
}

impl KeepLimit {
    /// The limit of a session that has kept nothing.
    pub const UNUSED: KeepLimit = KeepLimit { until: 0, kept: 0 };

    /// Returns whether this execution may be kept. `slowest_ms` is the time of the one that is kept as the
    /// slowest.
    pub fn allows(&mut self, run: &Run, slowest_ms: f64) -> bool {
        let is_much_slower =
            run.outcome == Outcome::Completed && run.response_ms() > MUCH_SLOWER * slowest_ms;
        is_much_slower || self.is_below(run.at)
    }

    fn is_below(&mut self, now: i64) -> bool {
        // The clock may have been set back.
        if now >= self.until || self.until - now > PERIOD_US {
            *self = KeepLimit {
                until: now.saturating_add(PERIOD_US),
                kept: 0,
            };
        }
        self.kept += 1;
        self.kept <= KEPT_IN_PERIOD
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::parameters::{Bytes, Parameters};
    use crate::model::{MAX_NODES, sample};
    use crate::waits::plan::{EventWaits, RunWaits};

    fn run(outcome: Outcome, elapsed_ms: f64, at: i64) -> Run {
        let plan = sample::plan(1);
        let sampled = plan.exemplars.get(Exemplar::Cancelled).expect("an execution");
        Run {
            outcome,
            elapsed_ms,
            at,
            ..sampled.expect("a record").run
        }
    }

    fn nodes(count: usize) -> Vec<NodeStats> {
        sample::plan(count).nodes.iter().map(|node| node.last).collect()
    }

    fn sent() -> Sent {
        let parameters = Parameters::keep([(25, Some(Bytes::Text(b"a")))].into_iter());
        Sent {
            text: None,
            parameters,
        }
        .with_text(b"SELECT $1".to_vec())
    }

    #[test]
    fn what_was_sent_stays_when_the_commit_is_known() {
        let (mut exemplars, mut late) = (Exemplars::default(), Exemplars::default());
        let run = run(Outcome::Completed, 12.5, 7);
        exemplars.keep(&run, None, &nodes(1), sent()).expect("memory");
        let committed = Run {
            commit_ms: 2.5,
            ..run
        };
        late.keep(&committed, None, &nodes(1), Sent::default())
            .expect("memory");
        exemplars.merge(late.clone());
        let kept = exemplars
            .get(Exemplar::Slowest)
            .expect("an execution")
            .expect("a record");
        assert_eq!((kept.run.commit_ms, kept.sent), (2.5, sent()));
        // Those of another execution are none of this one.
        let slower = Run {
            commit_ms: 3.5,
            at: 8,
            ..run
        };
        late.keep(&slower, None, &nodes(1), Sent::default())
            .expect("memory");
        exemplars.merge(late);
        let kept = exemplars
            .get(Exemplar::Slowest)
            .expect("an execution")
            .expect("a record");
        assert_eq!((kept.run.commit_ms, kept.sent), (3.5, Sent::default()));
    }

    fn times(exemplars: &Exemplars) -> [Option<(f64, i64)>; 3] {
        Exemplar::ALL.map(|which| {
            let kept = exemplars.get(which)?.expect("a record");
            assert_eq!(Exemplar::of(kept.run.outcome), which);
            Some((kept.run.elapsed_ms, kept.run.at))
        })
    }

    #[test]
    fn an_execution_comes_back_as_it_was() {
        let mut waits = RunWaits::default();
        waits.add(EventWaits {
            node: 2,
            event: 7,
            waits: 1,
            ns: 10,
            max_ns: 10,
        });
        let outside = Outside {
            sums: StatementSums {
                rows: 5,
                ..StatementSums::default()
            },
            waits: Some(&waits),
            called: &[],
        };
        let (run, nodes, sent) = (run(Outcome::Completed, 12.5, 7), nodes(3), sent());
        let mut exemplars = Exemplars::default();
        assert!(exemplars.is_empty() && exemplars.wants(&run));
        exemplars
            .keep(&run, Some(&outside), &nodes, sent.clone())
            .expect("memory");
        let bytes = exemplars.to_bytes().expect("memory");
        let read = Exemplars::from_bytes(&bytes).expect("executions");
        let kept = read.get(Exemplar::Slowest).expect("an execution");
        assert_eq!(
            kept,
            Ok(KeptExecution {
                run,
                outside: Some(outside.sums),
                waits: PlanWaits::of(&waits),
                nodes,
                sent,
            })
        );
        let archived = read.since(None).get(Exemplar::Slowest).expect("an execution");
        assert_eq!(archived.map(|kept| kept.sent), Ok(Sent::default()));
        assert!(read.get(Exemplar::Failed).is_none());
        assert!(Exemplars::from_bytes(&[]).is_ok_and(|none| none.is_empty()));
        assert!(Exemplars::from_bytes(&[7]).is_err());
    }

    #[test]
    fn the_largest_plan_can_be_kept_in_little_memory() {
        let mut exemplars = Exemplars::default();
        exemplars
            .keep(
                &run(Outcome::Completed, 9.0, 7),
                None,
                &nodes(MAX_NODES),
                Sent::default(),
            )
            .expect("memory");
        assert!(
            exemplars.size() < 80 * MAX_NODES,
            "{} bytes a node",
            exemplars.size() / MAX_NODES
        );
        let kept = exemplars.get(Exemplar::Slowest).expect("an execution");
        assert_eq!(kept.map(|kept| kept.nodes.len()), Ok(MAX_NODES));
    }

    #[test]
    fn the_slowest_and_the_last_ones_are_kept() {
        use Outcome::{Cancelled, Completed, Failed};
        let mut exemplars = Exemplars::default();
        let keep = |exemplars: &mut Exemplars, outcome, ms, at| {
            let run = run(outcome, ms, at);
            let wanted = exemplars.wants(&run);
            if wanted {
                exemplars
                    .keep(&run, None, &nodes(1), Sent::default())
                    .expect("memory");
            }
            wanted
        };
        assert!(!keep(&mut exemplars, Completed, MIN_SLOWEST_MS, 1), "too short");
        assert!(keep(&mut exemplars, Completed, 4.0, 2));
        assert!(!keep(&mut exemplars, Completed, 3.0, 3));
        assert!(keep(&mut exemplars, Failed, 0.01, 4));
        assert!(keep(&mut exemplars, Failed, 0.005, 5));
        assert_eq!(times(&exemplars), [Some((4.0, 2)), Some((0.005, 5)), None]);
        let mut other = Exemplars::default();
        keep(&mut other, Completed, 3.5, 9);
        keep(&mut other, Failed, 0.004, 6);
        keep(&mut other, Cancelled, 8.0, 7);
        let mut merged = exemplars.clone();
        merged.merge(other.clone());
        let expected = [Some((4.0, 2)), Some((0.004, 6)), Some((8.0, 7))];
        assert_eq!(times(&merged), expected);
        other.merge(exemplars);
        assert_eq!(times(&other), expected);
        assert_eq!(times(&other.since(Some(6)))[0], None);
        assert_eq!(times(&other.since(Some(6)))[1..], expected[1..]);
        assert_eq!(times(&other.since(None)), expected);
    }

    #[test]
    fn a_session_keeps_few_executions_of_a_second() {
        let mut limit = KeepLimit::UNUSED;
        let mut allowed = |outcome, ms, slowest_ms, at| limit.allows(&run(outcome, ms, at), slowest_ms);
        let now = 1_000_000_000;
        for i in 0..100 {
            let expected = i < i64::from(KEPT_IN_PERIOD);
            assert_eq!(allowed(Outcome::Failed, 0.1, 1.0, now + i), expected, "{i}");
        }
        assert!(!allowed(Outcome::Completed, 10.5, 10.0, now + 200));
        assert!(allowed(Outcome::Completed, 11.5, 10.0, now + 300), "much slower");
        assert!(!allowed(Outcome::Failed, 99.0, 1.0, now + 400));
        assert!(allowed(Outcome::Failed, 0.1, 1.0, now + PERIOD_US));
        assert!(allowed(Outcome::Failed, 0.1, 1.0, 5), "the clock was set back");
    }

    #[test]
    fn damaged_bytes_give_an_error() {
        let mut exemplars = Exemplars::default();
        exemplars
            .keep(&run(Outcome::Failed, 9.0, 7), None, &nodes(2), Sent::default())
            .expect("memory");
        let good = exemplars.0[Exemplar::Failed as usize]
            .clone()
            .expect("a record")
            .bytes;
        for length in 0..good.len() {
            assert!(unpacked(&good[..length]).is_err(), "{length}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0xff;
            // Whatever comes of it takes little memory.
            let _ = unpacked(&bad);
        }
    }
}
