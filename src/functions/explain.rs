//! `rowsource_explain()` prints a plan as EXPLAIN (ANALYZE, BUFFERS, WAL) does.

use super::export::{Exported, Which, add_document, chosen};
use super::triggers;
use super::words::{EXPLAIN_FORMATS, choose};
use crate::pg::compat;
use crate::pg::executor::statement;
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, memory};
use crate::session;
use rowsource_core::export::{ExplainFormat, Explained, Planned, Syntax, explain};
use rowsource_core::model::{Planning, StatementFacts};

/// Adds the rows of `rowsource_explain()`: a row per line of text, or one document.
pub fn rows(rows: &mut Rows, [queryid, planid]: [Option<i64>; 2], format: Option<&str>, which: Option<&str>) {
    // This comes first, so that the calling statement is excluded even if the call fails.
    statement::exclude_running_from_last();
    let format = choose("format", format, &EXPLAIN_FORMATS);
    let exported = chosen(queryid, planid, which);
    let is_own = queryid.is_none() && planid.is_none();
    let (planning, facts) = summary(&exported, is_own);
    let triggers = facts
        .as_ref()
        .map(|facts| triggers::named(exported.plan.key.datid, facts));
    let ending = exported.ending();
    let Exported { plan, stats, .. } = &exported;
    let times = &plan.statistics.times;
    // If only EXPLAIN (ANALYZE) ran the plan, its executions are not added up.
    let has_sums = times.calls > 0 || !matches!(exported.which, Which::Mean | Which::Total);
    let stats = if has_sums { stats.as_slice() } else { &[] };
    // A document is made in memory as a whole, and a node of a deep plan takes up to 20 kB of it.
    memory::ensure_headroom(4 * plan.description.nodes.len());
    let workers = session::last_workers().filter(|_| is_own && exported.which == Which::Last);
    let explained = Explained {
        nodes: &plan.description.nodes,
        stats,
        executions: exported.executions,
        major: compat::MAJOR_VERSION as i32,
        quote: &server::quoted_identifier,
        statement: &plan.description.text,
        queryid: plan.key.queryid,
        planid: plan.key.planid,
        planning,
        execution_ms: match exported.which {
            Which::Last | Which::Kept(_) => plan.statistics.last_ms,
            Which::Mean => times.mean_ms,
            Which::Total => times.total_ms,
        },
        triggers: triggers.as_deref(),
        jit: facts.map(|facts| facts.jit),
        ending: ending.as_ref().map(|(ended, outcome)| (ended.as_str(), *outcome)),
        workers: workers.as_ref(),
    };
    for line in explain(&explained, format) {
        match format {
            ExplainFormat::Text => rows.add_line(&line),
            ExplainFormat::Json => add_document(rows, &line, Syntax::Json),
            ExplainFormat::Yaml => add_document(rows, &line, Syntax::Yaml),
            ExplainFormat::Xml => add_document(rows, &line, Syntax::Markup),
        }
    }
}

/// Returns what the planner did, and the facts of the statement, as far as they are known. Those of the last
/// execution alone are known to the session that ran it, or if there was no other. Those of an execution that
/// was kept whole are known.
fn summary(exported: &Exported, is_own: bool) -> (Option<Planned>, Option<StatementFacts>) {
    let statistics = &exported.plan.statistics;
    let planned = |planning: &Planning, facts: &StatementFacts, plannings: f64| {
        (planning.plans > 0).then_some(Planned {
            ms: planning.total_ms,
            buffers: facts.planning,
            plannings,
        })
    };
    if let Some(kept) = &exported.kept {
        let facts = kept.outside.map(|outside| outside.facts).unwrap_or_default();
        return (planned(&kept.run.planning, &facts, 1.0), Some(facts));
    }
    let (planning, facts) = (&statistics.planning, statistics.outside.facts);
    match exported.which {
        Which::Total => (planned(planning, &facts, 1.0), Some(facts)),
        Which::Mean => (planned(planning, &facts, planning.plans as f64), Some(facts)),
        Which::Last | Which::Kept(_) => {
            if let Some((ms, facts)) = session::last_summary().filter(|_| is_own) {
                let planned = ms.map(|ms| Planned {
                    ms,
                    buffers: facts.planning,
                    plannings: 1.0,
                });
                return (planned, Some(facts));
            }
            let is_only = statistics.times.calls == 1;
            let planned = planned(planning, &facts, 1.0).filter(|_| is_only && planning.plans == 1);
            (planned, is_only.then_some(facts))
        }
    }
}
