//! The kinds of wrappers.

/// How the blocks that a node's calls use are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Accounting {
    /// They are not charged.
    None,
    /// For the scan below a [`Accounting::FusedAggregate`]: see [`scan`].
    FusedScan,
    /// As [`Accounting::Switch`], for a node that calls no other node, neither as an input nor in an
    /// expression.
    Leaf,
    /// For most nodes: each call makes the node's account the running one. At its end, the caller's account
    /// becomes the running one again.
    Switch,
    /// For the root of an InitPlan or subplan: what it used is also added to what the node called that calls
    /// it.
    SubplanRoot,
    /// For a plain aggregate that only counts or sums what the scan below it returns: it uses the scan's
    /// account.
    FusedAggregate,
}

/// Which calls of a node are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Timed {
    /// None.
    Never,
    /// The calls that the sampler chooses.
    Sampled,
    /// All calls, with the time stamp counter, which is read inline.
    EveryTsc,
    /// All calls, with any other clock.
    Every,
}

/// The enums as numbers, because const parameters of functions cannot be enums.
pub(super) mod mode {
    use super::{Accounting, Timed};

    pub const NONE: u8 = Accounting::None as u8;
    pub const FUSED_SCAN: u8 = Accounting::FusedScan as u8;
    pub const LEAF: u8 = Accounting::Leaf as u8;
    pub const SWITCH: u8 = Accounting::Switch as u8;
    pub const SUBPLAN_ROOT: u8 = Accounting::SubplanRoot as u8;
    pub const FUSED_AGGREGATE: u8 = Accounting::FusedAggregate as u8;

    pub const NEVER: u8 = Timed::Never as u8;
    pub const SAMPLED: u8 = Timed::Sampled as u8;
    pub const EVERY_TSC: u8 = Timed::EveryTsc as u8;
    pub const EVERY: u8 = Timed::Every as u8;
}

/// The counters that some code can move, and that must be checked after it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scope {
    /// All counters: in a statement that writes or uses temporary tables.
    All,
    /// Shared buffers and work files: in a statement that only reads, and reads no temporary table. There, a
    /// buffer is written only when another is read, and WAL (pruning, hint bits) is written only when a
    /// buffer is hit or dirtied.
    Reads,
    /// Shared buffers: for code of such a statement that uses no work files.
    Shared,
}

/// The scopes as numbers, because const parameters of functions cannot be enums.
pub mod scope {
    use super::Scope;

    /// [`Scope::All`]
    pub const ALL: u8 = Scope::All as u8;
    /// [`Scope::Reads`]
    pub const READS: u8 = Scope::Reads as u8;
    /// [`Scope::Shared`]
    pub const SHARED: u8 = Scope::Shared as u8;
}
