//! The causes of a difference.

use serde::Serialize;

/// The part of the difference that the cause must explain. Unmeasured.
pub const LEAST_SHARE: f64 = 0.4;

/// How many standard errors the difference must have. The executions of a side differ, so the means of two
/// halves of the same executions do. Unmeasured.
pub const LEAST_ERRORS: f64 = 3.0;

/// With fewer executions on a side, their spread says little, and a single one that waited is what is asked
/// about: then chance is not considered. Unmeasured.
pub const LEAST_EXECUTIONS: u64 = 10;

/// Whether two sides differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// They do.
    Differs,
    /// The mean time changed by less than [`LEAST_RATIO`](super::LEAST_RATIO).
    Alike,
    /// The difference has less than [`LEAST_ERRORS`] of its standard error, which chance explains.
    Chance,
    /// The same work was done at another speed, less than [`SIZE`](crate::regressions::SIZE) times as slow or
    /// fast: a machine that others use explains that.
    Speed,
    /// The mean times do not differ, which says nothing: those of the second side include executions from
    /// before its plan took over ([`Side::returned_at`](super::Side::returned_at)).
    Mixed,
}

/// Why a node takes longer, or less long. The names are for the case that it takes longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The plan is another one, because an index of the plan before is gone.
    IndexGone,
    /// The plan was made for all parameters, and that before was not.
    GenericPlan,
    /// The planner expected ten times fewer or more rows than came, and did not before.
    WrongEstimate,
    /// The plan is another one, for another reason.
    AnotherPlan,
    /// A start handles more rows and blocks.
    MoreData,
    /// The node is started more often.
    MoreCalls,
    /// A larger part of the blocks was read instead of found in shared buffers.
    ColdCache,
    /// A read takes longer.
    SlowerStorage,
    /// It waits for locks, LWLocks and pins of buffers.
    Locks,
    /// It waits for something else.
    OtherWaits,
    /// It writes temporary files.
    Spilling,
    /// Fewer processes share the work.
    LessParallelism,
    /// A row or block takes more processor time.
    CpuPerRow,
    /// What is done outside of the nodes takes longer: triggers, the start and the end of the executor.
    Outside,
}

impl Cause {
    /// All causes. Of two parts of the same size, the cause that comes first here is named.
    pub const ALL: [Cause; 14] = [
        Cause::IndexGone,
        Cause::GenericPlan,
        Cause::WrongEstimate,
        Cause::AnotherPlan,
        Cause::MoreData,
        Cause::MoreCalls,
        Cause::ColdCache,
        Cause::SlowerStorage,
        Cause::Locks,
        Cause::OtherWaits,
        Cause::Spilling,
        Cause::LessParallelism,
        Cause::CpuPerRow,
        Cause::Outside,
    ];

    /// Returns whether only times tell it: the same work takes longer. All others are counted, or are waits.
    pub fn is_speed(self) -> bool {
        matches!(self, Cause::SlowerStorage | Cause::CpuPerRow | Cause::Outside)
    }

    /// Returns the name that views show.
    pub fn name(self) -> &'static str {
        match self {
            Cause::IndexGone => "index gone",
            Cause::GenericPlan => "generic plan",
            Cause::WrongEstimate => "wrong estimate",
            Cause::AnotherPlan => "another plan",
            Cause::MoreData => "more data",
            Cause::MoreCalls => "more calls",
            Cause::ColdCache => "cold cache",
            Cause::SlowerStorage => "slower storage",
            Cause::Locks => "locks",
            Cause::OtherWaits => "other waits",
            Cause::Spilling => "spilling",
            Cause::LessParallelism => "less parallelism",
            Cause::CpuPerRow => "more CPU per row",
            Cause::Outside => "outside of the nodes",
        }
    }
}
