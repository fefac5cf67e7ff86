//! Writes the calls of statements into the session's SQL trace. The hooks call this only if the session is
//! traced.
//!
//! All functions that run a body are plain frames, because an error crosses them.

use super::listener::{Call, Listen, Utility};
use super::{nesting, unnamed};
use crate::pg::border::frames::PlainFrames;
use crate::pg::compat;
use crate::pg::handles::{NewPlan, PlannedStmtRef, QueryRef, ToPlan};
use crate::pg::server::SourceText;
use crate::pg::server::contained::{Unlocked, contained_with_others, guarded};
use crate::pg::server::pg_try::pg_try;
use crate::pg::server::{self, switch};
use crate::pg::sql_trace::lines::{self, Ended, Statement, Value};
use crate::pg::sql_trace::{level, nested, targets};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::pg_sys::{self, ParamExternData};
use rowsource_core::model::NodeStats;
use rowsource_core::plan::PlanNode;
use rowsource_core::sql_trace::event::Phase;
use std::cell::Cell;
use std::ffi::CStr;

pub struct Listener;

impl Listen for Listener {
    #[inline(always)]
    fn run(call: &Call, body: impl FnOnce()) {
        // What the switch ends while a statement runs has no end in the trace either.
        let is_written =
            call.is_traced && !call.only_explains() && (call.phase != Phase::Close || switch::is_on());
        if !is_written {
            return body();
        }
        match call.phase {
            Phase::Exec => start(call, body),
            _ => phase(call, body),
        }
    }

    #[inline(always)]
    fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
        if targets::begins() {
            self::utility(utility, body);
        } else {
            body(utility);
        }
    }

    #[inline(always)]
    fn execute(utility: &Utility, body: impl FnOnce(&Utility)) {
        Self::utility(utility, body);
    }

    fn begins_while_off() {
        if level::is_on() {
            lines::pause();
        }
    }
}

/// Runs a body as a call of a statement. `rows` says how many rows the call returned, after it has succeeded.
/// It must neither raise nor panic.
fn around(
    frames: PlainFrames,
    phase: Phase,
    statement: &Statement,
    is_utility: bool,
    body: impl FnOnce(),
    rows: impl FnOnce() -> u64,
) {
    let Some(began) = lines::begin(phase, Some(statement)) else {
        return body();
    };
    let ended = |rows, has_failed| {
        let ended = Ended {
            rows,
            is_utility,
            has_failed,
            ..Ended::default()
        };
        lines::end(&began, Some(statement), ended);
    };
    pg_try(frames, body, || ended(0, true), |_| ());
    ended(rows(), false);
}

/// Returns whether a query is nested, also if nothing is written of the statement that it is nested in.
/// `is_sent` says that the client has sent its text.
fn is_nested(is_sent: bool) -> bool {
    nesting::depth() > 0 || !(is_sent || server::portal_or_background())
}

/// Returns the statement of a plan, which has this text.
fn of_plan<'a>(plan: PlannedStmtRef, text: SourceText<'a>) -> Statement<'a> {
    let queryid = match compat::query_id(&plan) {
        0 => unnamed::queryid(plan),
        queryid => queryid,
    };
    match unnamed::utility_of(queryid).filter(|_| compat::query_id(&plan) == 0) {
        // SAFETY: PostgreSQL keeps the text of a running utility statement, which is that of the plan.
        Some(utility) => Statement::new(queryid, unsafe {
            SourceText::new(utility.source, utility.location, utility.length)
        }),
        None => Statement::new(queryid, text).with_made_text(unnamed::text),
    }
}

/// Returns whether a query's calls are written.
#[cold]
#[inline(never)]
pub fn is_written(query: QueryRef) -> bool {
    of_plan(query.plan(), SourceText::of(query)).is_written()
}

/// Plans a query with `planner`.
#[cold]
#[inline(never)]
pub fn plan<'t>(query: ToPlan<'t>, planner: impl FnOnce(ToPlan<'t>) -> NewPlan) -> NewPlan {
    let queryid = compat::parsed_query_id(&query.query());
    let text = SourceText::of_parsed(&query);
    let frames = query.frames;
    let planned = Cell::new(None);
    let body = || planned.set(Some(planner(query)));
    let began = (queryid == 0).then(|| lines::begin(Phase::Plan, None)).flatten();
    if queryid != 0 {
        let is_nested = is_nested(server::is_sent(text.source()));
        let statement = Statement::new(queryid, text).nested(is_nested);
        lines::bound(&statement);
        around(frames, Phase::Plan, &statement, false, body, || 0);
    } else if let Some(began) = &began {
        let failed = Ended {
            has_failed: true,
            ..Ended::default()
        };
        pg_try(frames, body, || lines::end(began, None, failed), |_| ());
    } else {
        body();
    }
    let planned = planned.into_inner().expect("the planner has returned a plan");
    if let Some(began) = &began {
        let plan = planned.plan();
        // SAFETY: the plan is of the same text, and has its place there.
        let text = unsafe { SourceText::new(text.source(), plan.stmt_location, plan.stmt_len) };
        lines::end_as(began, &of_plan(plan, text));
    }
    planned
}

/// Writes what the nodes of a query did into the session's SQL trace. The query ends now.
pub fn stats(query: Option<QueryRef>, queryid: i64, planid: i64, nodes: &[PlanNode], stats: &[NodeStats]) {
    let statement = query.map(|query| {
        Statement::new(queryid, SourceText::of(query))
            .with_made_text(unnamed::text)
            .nested(nested::is(query.as_ptr()))
    });
    lines::stats(queryid, statement.as_ref(), planid, nodes, stats);
}

/// Starts a query with `body`.
#[cold]
#[inline(never)]
fn start(call: &Call, body: impl FnOnce()) {
    let query = call.query();
    let is_nested = is_nested(false);
    if is_nested {
        nested::begin(query.as_ptr());
    }
    let statement = of_plan(query.plan(), SourceText::of(query)).nested(is_nested);
    lines::bound(&statement);
    if lines::lists_binds(&statement) {
        // SAFETY: a query starts, so the session holds no lock.
        let unlocked = &mut unsafe { Unlocked::promised() };
        guarded(call.frames, || {
            contained_with_others(unlocked, true, || {
                binds(&statement, query);
                Some(())
            })
        });
    }
    around(call.frames, Phase::Exec, &statement, false, body, || 0);
}

/// Runs a started query with `body`, in one of the executor's phases.
#[cold]
#[inline(never)]
fn phase(call: &Call, body: impl FnOnce()) {
    let (query, phase) = (call.query(), call.phase);
    let is_nested = nested::is(query.as_ptr());
    let statement = of_plan(query.plan(), SourceText::of(query)).nested(is_nested);
    if phase == Phase::Close {
        nested::end(query.as_ptr());
    }
    let rows = || match phase {
        Phase::Fetch => query.started().map_or(0, |query| query.estate().es_processed),
        _ => 0,
    };
    around(call.frames, phase, &statement, false, body, rows);
}

/// Runs a utility statement with `body`.
#[cold]
#[inline(never)]
fn utility(utility: &Utility, body: impl FnOnce(&Utility)) {
    let queryid = unnamed::utility_queryid(utility);
    let statement = Statement::new(queryid, utility.text()).nested(!server::portal_or_background());
    let rows = || utility.completion().map_or(0, |done| done.nprocessed);
    around(
        utility.frames,
        Phase::Exec,
        &statement,
        true,
        || body(utility),
        rows,
    );
}

/// The most parameters whose values are listed.
const MAX_PARAMETERS: i32 = 1_000;

/// Values of an execution that have more bytes together are not printed. A type's output function prints a
/// value as a whole.
const MAX_PRINTED: u64 = 1 << 20;

/// Writes the values of a query's parameters. Runs the output functions of their types, which may raise.
#[allow(ffi_unwind_calls, reason = "it is inside of a boundary")]
fn binds(statement: &Statement, query: QueryRef) {
    let parameters = query.params;
    // SAFETY: the parameters of a query are null, or as live as it. Without a function that fetches them,
    // they are an array. An output function returns a C string in the current memory context.
    unsafe {
        let Some(list) = parameters.as_ref() else {
            return;
        };
        let mut room = MAX_PRINTED;
        for number in 1..=list.numParams.min(MAX_PARAMETERS) {
            let mut place = ParamExternData::default();
            let parameter = match list.paramFetch {
                Some(fetch) => *pg_guard_ffi_boundary(|| fetch(parameters, number, true, &raw mut place)),
                None => *list.params.as_ptr().add(number as usize - 1),
            };
            if parameter.ptype == pg_sys::InvalidOid {
                continue;
            }
            let write = |value| lines::bind(statement, number as usize, parameter.ptype.to_u32(), value);
            if parameter.isnull {
                write(Value::Null);
                continue;
            }
            let size = size(&parameter);
            if size > room {
                write(Value::Large(size));
                continue;
            }
            room -= size;
            let (mut output, mut is_varlena) = (pg_sys::InvalidOid, false);
            pg_sys::getTypeOutputInfo(parameter.ptype, &raw mut output, &raw mut is_varlena);
            let text = pg_sys::OidOutputFunctionCall(output, parameter.value);
            write(Value::Text(CStr::from_ptr(text).to_bytes()));
            pg_sys::pfree(text.cast());
        }
    }
}

/// Returns how many bytes a value has when it is neither compressed nor stored elsewhere, without reading it.
///
/// # Safety
/// The parameter must be live, and not NULL.
unsafe fn size(parameter: &ParamExternData) -> u64 {
    // SAFETY: a value of a type with a variable length is a varlena or a C string, which is live by the
    // caller's promise.
    unsafe {
        match pg_sys::get_typlen(parameter.ptype) {
            -1 => pg_sys::toast_raw_datum_size(parameter.value) as u64,
            -2 => libc::strlen(parameter.value.cast_mut_ptr()) as u64,
            length => length.max(0) as u64,
        }
    }
}
