//! What PostgreSQL knows of a statement as a whole: its triggers, and what it compiled.

use super::ending::Ending;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::compat;
use crate::pg::handles::Handle;
use crate::pg::plan::tree;
use crate::pg::results::workers;
use pgrx::pg_sys::{self, EState, NodeTag, ResultRelInfo};
use rowsource_core::model::{JIT_OPTIONS, Jit, StatementFacts, TriggerSum, Workers};

/// Has core count the calls of a statement's triggers, and time them if its nodes are timed. Only statements
/// that change rows have triggers. Returns whether this one may have some.
///
/// # Safety
/// No reference to a part of the query may be in use. Raises "out of memory".
#[inline(never)]
pub(super) unsafe fn count_triggers(estate: Handle<EState>, level: InstrumentationLevel) -> bool {
    let options = trigger_options(level);
    // SAFETY: no reference is in use by the caller's promise. What is allocated belongs to the state's
    // context, and so lives as long as its relations. Their triggers are null or live.
    unsafe {
        let (mut has_parts, mut has_triggers) = (false, false);
        let context = pg_sys::MemoryContextSwitchTo(estate.es_query_cxt);
        let relations = estate.list::<ResultRelInfo>(|estate| &estate.es_opened_result_relations);
        for relation in relations.iter() {
            let triggers = relation.reach(|relation| &relation.ri_TrigDesc);
            has_triggers |= triggers.is_some();
            if relation.ri_TrigInstrument.is_null()
                && let Some(triggers) = triggers
                && triggers.numtriggers > 0
            {
                (*relation.as_ptr()).ri_TrigInstrument =
                    compat::alloc_trigger_instrumentation(triggers.numtriggers, options);
            }
            let described = relation.relation(|relation| &relation.ri_RelationDesc);
            has_parts |= !relation.ri_RootResultRelInfo.is_null()
                || described.is_some_and(|described| {
                    described.class().relkind as u8 == pg_sys::RELKIND_PARTITIONED_TABLE
                });
        }
        pg_sys::MemoryContextSwitchTo(context);
        // Core opens partitions when it routes rows to them, and other tables when it fires their triggers:
        // those of partitions and inheritance children, which it opens again, and those that refer to a row.
        let may_fire = has_parts || has_triggers;
        if may_fire {
            (*estate.as_ptr()).es_instrument |= options;
        }
        may_fire
    }
}

/// Returns what core counts of triggers.
fn trigger_options(level: InstrumentationLevel) -> i32 {
    let option = match level {
        InstrumentationLevel::Timed => pg_sys::InstrumentOption::INSTRUMENT_TIMER,
        _ => pg_sys::InstrumentOption::INSTRUMENT_ROWS,
    };
    option as i32
}

/// Returns whether core can count how any of these nodes reads ahead.
pub(super) fn read_ahead(found: &[tree::Found]) -> bool {
    compat::COUNT_SCAN_IO.is_some()
        && found.iter().any(|found| {
            matches!(
                found.plan_state.tag(),
                NodeTag::T_SeqScanState | NodeTag::T_TidRangeScanState | NodeTag::T_BitmapHeapScanState
            )
        })
}

/// Has core count how the scans of a statement read ahead.
///
/// # Safety
/// No reference to the executor's state may be in use.
#[inline(always)]
pub(super) unsafe fn count_scan_io(estate: Handle<EState>, level: InstrumentationLevel) {
    if let Some(option) = compat::COUNT_SCAN_IO {
        // With any option, core also counts the triggers of tables that it opens later.
        // SAFETY: no reference is in use by the caller's promise.
        unsafe { (*estate.as_ptr()).es_instrument |= option | trigger_options(level) };
    }
}

/// Adds what PostgreSQL knows of a statement that has run.
#[cold]
#[inline(never)]
pub(super) fn read(estate: Handle<EState>, facts: &mut StatementFacts) {
    if let Some(jit) = estate.reach(|estate| &estate.es_jit) {
        facts.jit += read_jit(&jit.instr, estate.es_jit_flags);
    }
    if let Some(workers) = estate.reach(|estate| &estate.es_jit_worker_instr) {
        facts.jit += read_jit(&workers, estate.es_jit_flags);
    }
    for list in [
        estate.list::<ResultRelInfo>(|estate| &estate.es_opened_result_relations),
        estate.list(|estate| &estate.es_tuple_routing_result_relations),
        estate.list(|estate| &estate.es_trig_target_relations),
    ] {
        for relation in list.iter() {
            let instr = relation.ri_TrigInstrument;
            let triggers = relation.reach(|relation| &relation.ri_TrigDesc);
            let Some(triggers) = triggers.filter(|_| !instr.is_null()) else {
                continue;
            };
            for (i, trigger) in triggers.triggers().iter().enumerate() {
                // SAFETY: each trigger of a relation has an entry in its instrumentation, which is as live.
                let (calls, ns) = compat::trigger_calls(unsafe { &mut *instr.add(i) });
                facts.add_trigger(TriggerSum {
                    oid: trigger.tgoid.to_u32(),
                    calls,
                    ms: ns / 1e6,
                });
            }
        }
    }
}

pub(super) fn read_jit(instr: &pg_sys::JitInstrumentation, flags: i32) -> Jit {
    let ms = |time| compat::instr_time_ns(time) / 1e6;
    Jit {
        functions: instr.created_functions as u64,
        options: jit_options(flags),
        generation_ms: ms(instr.generation_counter),
        deform_ms: compat::jit_deform_ns(instr) / 1e6,
        inlining_ms: ms(instr.inlining_counter),
        optimization_ms: ms(instr.optimization_counter),
        emission_ms: ms(instr.emission_counter),
    }
}

/// Returns what each process of a parallel plan did; `None` if there were no workers.
#[cold]
#[inline(never)]
pub(super) fn workers(statement: Ending) -> Option<Box<Workers>> {
    let flags = statement.estate()?.es_jit_flags;
    workers::read(statement.shown()?, |instr| read_jit(instr, flags))
}

/// Returns the bits of [`JIT_OPTIONS`] that are set in PostgreSQL's flags.
fn jit_options(flags: i32) -> u8 {
    const FLAGS: [u32; JIT_OPTIONS.len()] = [
        pg_sys::PGJIT_INLINE,
        pg_sys::PGJIT_OPT3,
        pg_sys::PGJIT_EXPR,
        pg_sys::PGJIT_DEFORM,
    ];
    let bits = FLAGS.into_iter().enumerate();
    bits.filter(|(_, flag)| flags as u32 & flag != 0)
        .map(|(bit, _)| 1 << bit)
        .sum()
}
