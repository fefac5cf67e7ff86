//! What the session writes into its trace: what its own setting says, and what targets say that other
//! sessions have set.

use crate::guc::Trace;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::{sql_trace as hot, waits};
use rowsource_core::sql_trace::target::MAX_TARGETS;
use std::cell::Cell;

/// What is written of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Whether anything is.
    pub is_on: bool,
    pub waits: bool,
    pub binds: bool,
}

impl Level {
    pub const OFF: Level = Level {
        is_on: false,
        waits: false,
        binds: false,
    };

    /// Returns what a value of the setting means.
    pub fn of(trace: Trace) -> Level {
        Level {
            is_on: trace != Trace::Off,
            waits: trace.lists_waits(),
            binds: trace.lists_binds(),
        }
    }

    /// Returns what one of both writes.
    pub fn or(self, other: Level) -> Level {
        Level {
            is_on: self.is_on || other.is_on,
            waits: self.waits || other.waits,
            binds: self.binds || other.binds,
        }
    }
}

/// What is written of a statement and of what it calls.
pub type OfStatement = (i64, Level);

/// What targets say.
#[derive(Clone, Copy)]
pub struct OfTargets {
    /// What is written of all statements.
    pub all: Level,
    /// What is written of single statements.
    pub statements: [OfStatement; MAX_TARGETS],
    /// How many these are.
    pub count: usize,
}

impl OfTargets {
    pub const NONE: OfTargets = OfTargets {
        all: Level::OFF,
        statements: [(0, Level::OFF); MAX_TARGETS],
        count: 0,
    };

    /// Adds a target: of all statements if the queryid is 0, else of one.
    pub fn add(&mut self, queryid: i64, level: Level) {
        if queryid == 0 {
            self.all = self.all.or(level);
        } else if let Some(place) = self.statements.get_mut(self.count) {
            *place = (queryid, level);
            self.count += 1;
        }
    }
}

struct State {
    /// What the setting says.
    own: Cell<Level>,
    /// What targets say of all statements, and of single ones.
    of_all: Cell<Level>,
    of_statements: [Cell<OfStatement>; MAX_TARGETS],
    /// How many the latter are.
    count: Cell<usize>,
    /// What is written of all statements.
    all: Cell<Level>,
    /// What targets of single statements say of the call in progress: such a target means what the statement
    /// calls, too.
    inherited: Cell<Level>,
}

static STATE: BackendLocal<State> = BackendLocal::new(State {
    own: Cell::new(Level::OFF),
    of_all: Cell::new(Level::OFF),
    of_statements: [const { Cell::new((0, Level::OFF)) }; MAX_TARGETS],
    count: Cell::new(0),
    all: Cell::new(Level::OFF),
    inherited: Cell::new(Level::OFF),
});

/// Whether anything may be written: 1 or 0. A hook of an untraced statement compares it, and does nothing
/// else for the trace.
#[cfg_attr(target_os = "linux", unsafe(link_section = "rowsource_state"))]
static ON: BackendLocal<Cell<u32>> = BackendLocal::new(Cell::new(0));

/// Returns whether statements of this session may have to be written. This runs in plain frames, so it cannot
/// panic.
#[inline(always)]
pub fn is_on() -> bool {
    ON.get() != 0
}

/// Returns whether only single statements are written, and not all.
pub fn is_selective() -> bool {
    !STATE.all.get().is_on
}

/// Returns whether the session has set a trace itself.
pub fn is_own() -> bool {
    STATE.own.get().is_on
}

/// Stores what the setting says.
pub fn set_own(level: Level) {
    STATE.own.set(level);
    update();
}

/// Stores what the targets say.
pub fn set_of_targets(targets: OfTargets) {
    STATE.of_all.set(targets.all);
    STATE.count.set(targets.count);
    for (place, target) in STATE.inner().of_statements.iter().zip(targets.statements) {
        place.set(target);
    }
    update();
}

/// Settings and targets count at once, also inside a call.
fn update() {
    STATE.all.set(STATE.own.get().or(STATE.of_all.get()));
    ON.set(u32::from(STATE.all.get().is_on || names_statements()));
    list_waits();
}

/// Returns what is written of the call in progress, or between calls.
fn current() -> Level {
    STATE.all.get().or(inherited())
}

/// Returns whether targets are of single statements.
#[inline(always)]
fn names_statements() -> bool {
    STATE.count.get() > 0
}

fn inherited() -> Level {
    match hot::depth() > 0 && names_statements() {
        true => STATE.inherited.get(),
        false => Level::OFF,
    }
}

/// Returns what is written of a statement that begins now. What a statement calls is written with it.
pub fn of(queryid: i64) -> Level {
    with(named(queryid))
}

/// Returns what is written of a statement of which [`named`] has returned this.
pub fn with(named: Level) -> Level {
    STATE.all.get().or(named)
}

/// Returns what targets of single statements say of a statement that begins now.
pub fn named(queryid: i64) -> Level {
    match names_statements() {
        true => find(queryid),
        false => Level::OFF,
    }
}

/// Looks for it.
#[cold]
#[inline(never)]
fn find(queryid: i64) -> Level {
    let statements = STATE.inner().of_statements.iter().take(STATE.count.get());
    statements
        .map(Cell::get)
        .filter(|(of, _)| *of == queryid)
        .fold(inherited(), |level, (_, more)| level.or(more))
}

/// Begins with a call, of which [`named`] has returned this. Returns what [`leave`] needs. The depth must be
/// the call's already.
pub fn enter(named: Level) -> Level {
    let outer = STATE.inherited.replace(named);
    list_waits();
    outer
}

/// Ends a call. The depth must be that of the call around it.
pub fn leave(outer: Level) {
    STATE.inherited.set(outer);
    list_waits();
}

/// Lists waits from now on if they are written of the call in progress, or of all statements between calls.
/// Must also be called when a file was opened.
pub fn list_waits() {
    let wanted = current().waits && hot::is_open();
    if wanted != hot::lists_waits() {
        hot::list_waits(wanted);
        waits::forget_recent();
    }
}
