//! The text of the report.

use super::super::event::Phase;
use super::objects::{Object, Objects};
use super::sort::{self, Key};
use super::statement::{Calls, PlanSums, RowSource, Statement, Sums, total};
use super::stored::StoredTotals;
use super::totals::Report;
use super::waits::Waits;
use crate::histogram::{Bucket, plot};

const RULE: &str = "********************************************************************************";
/// Nodes further down are not indented further.
const MAX_INDENT: usize = 40;
/// The most objects of a statement that are printed.
const MAX_OBJECTS: usize = 20;

/// Returns microseconds as seconds.
fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// Returns what TKPROF calls a phase.
const fn name(phase: Phase) -> &'static str {
    match phase {
        Phase::Parse => "Parse",
        Phase::Bind => "Bind",
        Phase::Plan => "Plan",
        Phase::Exec => "Execute",
        Phase::Fetch => "Fetch",
        Phase::Finish => "Finish",
        Phase::Close => "Close",
        Phase::Commit => "Commit",
    }
}

/// Returns a number, or a dash if it is not known.
fn number(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

/// Returns microseconds as seconds, or a dash if they are not known.
fn known_seconds(us: Option<u64>) -> String {
    us.map_or("-".to_owned(), seconds)
}

/// Where the sums come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Files,
    Store,
}

impl Report {
    /// Returns the lines of the report. `limit` is the most statements that are printed.
    pub fn lines(&self, keys: &[Key], limit: Option<usize>) -> Vec<String> {
        self.lines_with(keys, limit, || (), &|_| None)
    }

    /// Returns the lines of the report, and calls `check` before each statement. `name` returns the name of a
    /// relation, if it knows it.
    pub fn lines_with(
        &self,
        keys: &[Key],
        limit: Option<usize>,
        check: impl Fn(),
        name: &dyn Fn(&Object) -> Option<String>,
    ) -> Vec<String> {
        let title = format!("Trace file: {}", self.files.join(", "));
        let mut lines = head(title, keys, limit, "in the order of first use");
        let mut statements: Vec<&Statement> = self.statements.iter().collect();
        sort::sort(&mut statements, keys);
        for statement in statements.iter().take(limit.unwrap_or(usize::MAX)) {
            check();
            add_statement(&mut lines, statement, Origin::Files, name);
        }
        add_parse_errors(&mut lines, self);
        add_totals(&mut lines, &self.totals, &self.waits, Origin::Files);
        add_summary(&mut lines, self);
        lines
    }
}

/// Returns the first lines of a report of the store.
pub fn stored_head(title: String, keys: &[Key], limit: Option<usize>) -> Vec<String> {
    let mut lines = head(title, keys, limit, "the last run first");
    lines.extend(
        [
            "-          = not known, which is not zero. Each statement says what is not known of it.",
            "known      = the sum of what is known",
            "time       = mean over the executions that counted blocks. Those at sampfreq 0 have no times, and lower it.",
            "Fetch includes the triggers that fire after a statement. Executions that were not measured at all are not known.",
        ]
        .map(str::to_owned),
    );
    lines
}

impl Statement {
    /// Returns the lines of a statement of the store.
    pub fn stored_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        add_statement(&mut lines, self, Origin::Store, &|_| None);
        lines
    }
}

impl StoredTotals {
    /// Returns the last lines of a report of the store.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        add_totals(&mut lines, &self.calls, &self.waits, Origin::Store);
        lines.push(statement_counts(self.statements));
        lines
    }
}

/// Returns the first lines of a report. `unsorted` says how the statements are ordered without keys.
fn head(title: String, keys: &[Key], limit: Option<usize>, unsorted: &str) -> Vec<String> {
    let mut lines = vec![title];
    if !keys.is_empty() || limit.is_some() {
        let most = limit.map_or(String::new(), |limit| format!(", at most {limit}"));
        let order = if keys.is_empty() { unsorted } else { "sorted" };
        lines.push(format!("Statements: {order}{most}"));
    }
    lines.extend(legend());
    lines
}

fn add_totals(lines: &mut Vec<String>, totals: &[Calls; 2], waits: &[Waits; 2], origin: Origin) {
    lines.push(RULE.to_owned());
    lines.push(String::new());
    let titles = [
        "OVERALL TOTALS FOR ALL NON-RECURSIVE STATEMENTS",
        "OVERALL TOTALS FOR ALL RECURSIVE STATEMENTS",
    ];
    for ((title, calls), waits) in titles.iter().zip(totals).zip(waits) {
        lines.push((*title).to_owned());
        lines.push(String::new());
        add_calls(lines, calls, origin);
        lines.push(String::new());
        add_waits(lines, waits);
    }
}

/// Returns a line with the numbers of statements that clients sent, and that others called.
fn statement_counts([sent, recursive]: [usize; 2]) -> String {
    format!("{sent:>8}  statements of clients, {recursive} recursive statements")
}

fn legend() -> Vec<String> {
    let mut lines = vec![RULE.to_owned()];
    lines.extend(
        [
            "count      = number of times that the phase ran",
            "cpu        = processor time in seconds",
            "elapsed    = elapsed time in seconds",
            "disk       = blocks read",
            "query      = blocks got from the buffers, those that were read included",
            "current    = blocks dirtied",
            "rows       = rows returned or changed",
            "not in any = time before these calls, in seconds, that neither a call nor a wait accounts for",
        ]
        .map(str::to_owned),
    );
    lines
}

fn add_statement(
    lines: &mut Vec<String>,
    statement: &Statement,
    origin: Origin,
    name: &dyn Fn(&Object) -> Option<String>,
) {
    let id = |id: Option<i64>| id.map_or("-".to_owned(), |id| id.to_string());
    lines.push(RULE.to_owned());
    lines.push(String::new());
    lines.push(format!("QUERY ID: {}", id(statement.queryid)));
    lines.push(String::new());
    lines.extend(statement.sql.lines().map(str::to_owned));
    lines.push(String::new());
    add_calls(lines, &statement.calls, origin);
    lines.push(String::new());
    let database = statement
        .datid
        .map_or(String::new(), |oid| format!(", database id: {oid}"));
    let depth = match (statement.is_recursive, statement.dep) {
        (false, _) => String::new(),
        (true, None) => "  (recursive)".to_owned(),
        (true, Some(dep)) => format!("  (recursive depth: {dep})"),
    };
    let uid = number(statement.uid);
    lines.push(format!("Parsing user id: {uid}{database}{depth}"));
    let failed = statement.total().failed;
    if failed > 0 {
        lines.push(format!("Calls that ended with an error: {failed}"));
    }
    if origin == Origin::Store {
        add_unknown(lines, statement);
    }
    lines.push(String::new());
    for plan in &statement.plans {
        lines.push(format!(
            "Plan id: {}, executions: {}",
            id(plan.id),
            plan.executions
        ));
        add_nodes(lines, &plan.nodes, origin);
    }
    if statement.more_plans > 0 {
        lines.push(format!("({} more plans)", statement.more_plans));
        lines.push(String::new());
    }
    add_waits(lines, &statement.waits);
    add_objects(lines, &statement.objects, name);
    add_executions(lines, statement, origin);
}

/// Adds what the store does not know of a statement.
fn add_unknown(lines: &mut Vec<String>, statement: &Statement) {
    let calls = &statement.calls;
    let is_sum = statement.plans.is_empty();
    let is_utility = !is_sum && calls[Phase::Fetch as usize].elapsed_us.is_none();
    let mut unknown = vec!["how often it was parsed", "processor times"];
    if !is_utility {
        unknown.push("how long the executor took to start and to end");
    }
    if calls[Phase::Plan as usize].count.is_none() && !is_utility {
        unknown.push("whether it was planned");
    }
    let ran = if is_utility { Phase::Exec } else { Phase::Fetch };
    // Those of the planner may be known.
    if calls[ran as usize].gets.is_none() {
        unknown.push("blocks of the executions");
    }
    unknown.push("in which call it waited");
    if is_sum {
        unknown.push("texts, plans and row sources");
    }
    lines.push(format!("Not known: {}.", unknown.join(", ")));
    if is_sum {
        lines.push("Fetch includes utility statements, whose call is Execute elsewhere.".to_owned());
    }
    if statement.waits.is_empty() {
        lines.push("No waits were counted. If pg_rowsource.wait_timing is off, none are.".to_owned());
    }
    let sum = |of: fn(&PlanSums) -> u64| statement.plans.iter().map(of).fold(0, u64::saturating_add);
    let (executions, counted) = (sum(|plan| plan.executions), sum(PlanSums::counted));
    if (1..executions).contains(&counted) {
        lines.push(format!(
            "Blocks, starts and times of row sources are those of {counted} of {executions} executions. The others counted rows only, or \
             were never fetched from."
        ));
    }
    let explained = sum(|plan| plan.explained);
    if explained > 0 {
        lines.push(format!(
            "Executions by EXPLAIN (ANALYZE), which are not included: {explained}"
        ));
    }
}

/// Adds the statements that failed before their first call.
fn add_parse_errors(lines: &mut Vec<String>, report: &Report) {
    for ((sql, code), (times, elapsed_us)) in &report.parse_errors {
        lines.push(RULE.to_owned());
        lines.push(String::new());
        lines.push(format!(
            "The following statement failed while it was parsed, or while its values were bound: {code}, {times} times, {} seconds",
            seconds(*elapsed_us)
        ));
        lines.push(String::new());
        lines.extend(sql.lines().map(str::to_owned));
        lines.push(String::new());
    }
}

fn add_calls(lines: &mut Vec<String>, calls: &Calls, origin: Origin) {
    let rule =
        "------- -------- ------------ ------------ ---------- ---------- ---------- ---------- ------------";
    lines.push(format!(
        "{:<7} {:>8} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "call", "count", "cpu", "elapsed", "disk", "query", "current", "rows", "not in any"
    ));
    lines.push(rule.to_owned());
    for phase in Phase::ALL {
        let sums = &calls[phase as usize];
        // Only prepared statements, statements with triggers, and the last statements of transactions have
        // them.
        let is_rare = matches!(phase, Phase::Bind | Phase::Finish | Phase::Commit);
        if !is_rare || sums.count > Some(0) {
            lines.push(call_line(name(phase), sums));
        }
    }
    lines.push(rule.to_owned());
    let sum = match origin {
        Origin::Files => "total",
        Origin::Store => "known",
    };
    lines.push(call_line(sum, &total(calls)));
}

fn call_line(name: &str, sums: &Sums) -> String {
    format!(
        "{name:<7} {:>8} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10} {:>12}",
        number(sums.count),
        known_seconds(sums.cpu_us),
        known_seconds(sums.elapsed_us),
        number(sums.reads),
        number(sums.gets),
        number(sums.dirtied),
        number(sums.rows),
        known_seconds(sums.before_us)
    )
}

fn add_nodes(lines: &mut Vec<String>, nodes: &[RowSource], origin: Origin) {
    let single = match origin {
        Origin::Files => "Rows (1st)",
        Origin::Store => "Rows(last)",
    };
    lines.push(format!("{single} Rows (avg) Rows (max)  Row Source Operation"));
    lines.push(
        "---------- ---------- ----------  ---------------------------------------------------".to_owned(),
    );
    for node in nodes {
        let mean = |sum: Option<u64>, of: u64| number(sum.map(|sum| sum / of.max(1)));
        let single = &node.single;
        lines.push(format!(
            "{:>10} {:>10} {:>10}  {:indent$}{} (cr={} pr={} pw={} time={} us starts={} cost={}.{:02} card={})",
            single.rows,
            node.rows / node.executions.max(1),
            number(node.max_rows),
            "",
            single.node.operation,
            mean(node.gets, node.counted),
            mean(node.reads, node.counted),
            mean(node.writes, node.counted),
            mean(node.time_us, node.timed),
            mean(node.starts, node.counted),
            single.node.cost_cents / 100,
            single.node.cost_cents % 100,
            single.node.card,
            indent = node.depth.min(MAX_INDENT),
        ));
    }
    lines.push(String::new());
}

fn add_waits(lines: &mut Vec<String>, waits: &Waits) {
    if waits.is_empty() {
        return;
    }
    lines.push("Elapsed times include waiting on following events:".to_owned());
    lines.push(format!(
        "  {:<40} {:>9} {:>12} {:>13}",
        "Event waited on", "Times", "Max. Wait", "Total Waited"
    ));
    lines.push(format!("  {:-<40} {:->9} {:->12} {:->13}", "", "", "", ""));
    let mut sorted: Vec<_> = waits.iter().collect();
    sorted.sort_by_key(|(_, waited)| std::cmp::Reverse(waited.total_us));
    for (name, waited) in sorted {
        lines.push(format!(
            "  {name:<40} {:>9} {:>12} {:>13}",
            waited.times,
            seconds(waited.max_us),
            seconds(waited.total_us)
        ));
    }
    lines.push(String::new());
}

fn add_objects(lines: &mut Vec<String>, objects: &Objects, name: &dyn Fn(&Object) -> Option<String>) {
    let sorted = objects.sorted();
    if sorted.is_empty() {
        return;
    }
    lines.push("Objects waited on:".to_owned());
    lines.push(format!(
        "  {:<30} {:<40} {:>9} {:>12} {:>13}",
        "Event waited on", "Object", "Times", "Max. Wait", "Total Waited"
    ));
    lines.push(format!(
        "  {:-<30} {:-<40} {:->9} {:->12} {:->13}",
        "", "", "", "", ""
    ));
    for (event, object, waited) in sorted.iter().take(MAX_OBJECTS) {
        lines.push(format!(
            "  {event:<30} {:<40} {:>9} {:>12} {:>13}",
            object.text(name(object)),
            waited.times,
            seconds(waited.max_us),
            seconds(waited.total_us)
        ));
    }
    let rest = sorted.iter().skip(MAX_OBJECTS);
    let rest = rest.fold(objects.others(), |sum, (_, _, waited)| {
        sum.saturating_add(waited.times)
    });
    if rest > 0 {
        lines.push(format!("  ({rest} more waits, on other objects)"));
    }
    lines.push(String::new());
}

fn add_executions(lines: &mut Vec<String>, statement: &Statement, origin: Origin) {
    let buckets: Vec<Bucket> = statement.executions.buckets().collect();
    let plotted = plot(&buckets);
    if !plotted.is_empty() {
        // The store's counts of very many executions are a part of them.
        let counted: u64 = buckets.iter().map(|bucket| bucket.count).sum();
        let part = match statement.calls[Phase::Exec as usize].count {
            Some(all) if origin == Origin::Store && counted < all => format!(", {counted} of {all}"),
            _ => String::new(),
        };
        lines.push(format!("Executions by elapsed time{part}:"));
        lines.extend(plotted);
        lines.push(String::new());
    }
}

fn add_summary(lines: &mut Vec<String>, report: &Report) {
    let count = report
        .statements
        .iter()
        .filter(|statement| statement.is_recursive)
        .count();
    lines.push(statement_counts([report.statements.len() - count, count]));
    lines.push(format!(
        "{:>8}  commits, {} rollbacks, {} errors",
        report.commits, report.rollbacks, report.errors
    ));
    let rest = report
        .elapsed_us
        .saturating_sub(report.in_calls_us)
        .saturating_sub(report.unended_us)
        .saturating_sub(report.between_us);
    lines.push(String::new());
    lines.push("Elapsed time of the trace, in seconds:".to_owned());
    let mut times = vec![
        (report.elapsed_us, "in all"),
        (report.in_calls_us, "in calls of statements that clients sent"),
    ];
    // Most files end between two calls.
    if report.unended_us > 0 {
        times.push((
            report.unended_us,
            "in a call that had not ended when the file ended",
        ));
    }
    times.push((
        report.between_us,
        "in waits between these calls, for example for the client",
    ));
    times.push((rest, "between these calls, that no line accounts for"));
    for (us, what) in times {
        lines.push(format!("{:>14}  {what}", seconds(us)));
    }
    for (lost, reason) in &report.lost {
        lines.push(format!("{lost} lines were lost: {reason}"));
    }
    lines.extend(report.notes.iter().cloned());
}
