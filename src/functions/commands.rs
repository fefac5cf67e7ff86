//! `rowsource()`: the commands to begin with.

use super::stored::{self, Stored};
use crate::pg::ash::memory::ring;
use crate::pg::live::each_running;
use crate::pg::server;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::{self, Rows};
use crate::pg::store::{self, Judged};
use rowsource_core::flips::extra_ms;
use rowsource_core::model::{Exemplar, PlanKey};

/// A question, and what answers it.
pub struct Command {
    question: &'static str,
    command: String,
}

/// Adds the rows of `rowsource()`. Ids are those of what the server has measured, as far as the user may see
/// it. Commands that need what the sessions do not share are left out.
pub fn rows(rows: &mut Rows) {
    let columns = columns();
    let prefix = prefix();
    let mut add = |question, command: &str| {
        let command = command.replace("{}", &prefix);
        columns.add(rows, &Command { question, command });
    };
    add(
        "Which statements cost the most time?",
        "SELECT calls, response_time, percent, query FROM {}rowsource_top_statements LIMIT 10",
    );
    if let Some(top) = top_plan() {
        let of_top = |format: &str| {
            let (queryid, planid) = (top.queryid, top.planid);
            format!("SELECT * FROM {{}}rowsource_display({queryid}, {planid}, format => '{format}')")
        };
        add(
            "What did each node do in the plan that cost the most?",
            &of_top("ALLSTATS"),
        );
        if top.has_slowest {
            add("Why was its slowest execution slow?", &of_top("ALLSTATS SLOWEST"));
        }
    }
    add(
        "Which nodes cost the most time, over all statements?",
        "SELECT self_time, percent, operation, object_name, queryid FROM {}rowsource_top_nodes LIMIT 10",
    );
    add(
        "Where did the planner expect other numbers of rows?",
        "SELECT max_factor, verdict, operation, object_name, queryid FROM {}rowsource_misestimates LIMIT 10",
    );
    if let Ok(longest) = longest_running() {
        add(
            "What runs now, and how far is it?",
            "SELECT pid, percent_done, time_left, operation, object_name, queryid FROM {}rowsource_progress",
        );
        if let Some(pid) = longest {
            add(
                "What did the plan do so far that runs longest?",
                &format!("SELECT * FROM {{}}rowsource_display(pid => {pid})"),
            );
        }
    }
    if ring().is_some() {
        add(
            "What did the sessions do in the last five minutes, and what did they wait for?",
            "SELECT * FROM {}rowsource_ash_report('5 min')",
        );
    }
    if store::shared_history().is_some() {
        add(
            "Which statements changed their plan, and are they slower now?",
            "SELECT * FROM {}rowsource_plan_flips LIMIT 10",
        );
        if let Some([from, to]) = worst_change() {
            let PlanKey { queryid, planid, .. } = to;
            let before = from.planid;
            add(
                "Why does the one take longer whose change cost the most?",
                &format!("SELECT * FROM {{}}rowsource_compare({queryid}, '{before}', '{planid}')"),
            );
        }
        add("Is all measured?", "SELECT * FROM {}rowsource_info()");
    }
}

/// Returns the schema of the extension with a dot, if the session does not look into it.
pub(super) fn prefix() -> String {
    srf::schema()
        .filter(|schema| !server::search_path().contains(schema))
        .map_or_else(String::new, |schema| {
            format!("{}.", server::quoted_identifier(&schema))
        })
}

/// Returns the two plans of the change that cost the most, of those that the user may see and that are kept.
fn worst_change() -> Option<[PlanKey; 2]> {
    let mut worst: Option<(f64, [PlanKey; 2])> = None;
    for Judged { event, .. } in store::flips()? {
        let plans = [event.from, event.to()];
        let cost = extra_ms(&event.before, &event.after).unwrap_or(0.0);
        if cost > worst.map_or(0.0, |(worst, _)| worst)
            && server::may_see(event.from.userid)
            && plans.iter().all(|key| store::plan(key).is_some())
        {
            worst = Some((cost, plans));
        }
    }
    worst.map(|(_, plans)| plans)
}

/// The plan that cost the most.
struct Top {
    ms: f64,
    queryid: i64,
    planid: i64,
    /// Whether its slowest execution is kept.
    has_slowest: bool,
}

/// Returns the plan with the most time of those that the user may see.
fn top_plan() -> Option<Top> {
    let mut top: Option<Top> = None;
    stored::each(|stored| {
        let Stored { plan, is_visible } = &**stored;
        let (key, ms) = (&plan.key, plan.statistics.times.total_ms);
        if *is_visible && key.toplevel() && top.as_ref().is_none_or(|top| ms > top.ms) {
            top = Some(Top {
                ms,
                queryid: key.queryid,
                planid: key.planid,
                has_slowest: matches!(plan.exemplars.get(Exemplar::Slowest), Some(Ok(_))),
            });
        }
    });
    top
}

/// Returns the process with the statement that runs longest, if there is one that the user may see. Fails if
/// the sessions share no memory.
fn longest_running() -> Result<Option<i32>, ()> {
    let mut longest: Option<(f64, i32)> = None;
    let are_shared = each_running(|running| {
        let is_candidate = running.leader.is_none()
            && running.state.is_running
            && server::may_see_running(running.pid, running.setup.key.userid);
        let ns = running.elapsed_ns();
        if is_candidate && longest.is_none_or(|(most, _)| ns > most) {
            longest = Some((ns, running.pid));
        }
    });
    are_shared.then(|| longest.map(|(_, pid)| pid)).ok_or(())
}

/// The columns of `rowsource()`.
pub fn columns() -> Columns<Command> {
    columns! { |row: &Command|
        /// What one may ask
        question: text = row.question;
        /// The command that answers it
        command: text = row.command.as_str();
    }
}
