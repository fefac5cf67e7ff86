//! `rowsource_advice()`: what could be done better, from what the stored plans did. Nothing of it is run.

use super::commands::prefix;
use super::samples::room_for_one;
use super::wait_names;
use crate::pg::server::columns::{Columns, columns};
use crate::pg::server::srf::Rows;
use crate::pg::server::{self, memory, query};
use crate::session;
use rowsource_core::advice::{self, Candidate, Finding, Server};
use rowsource_core::model::{Plan, PlanKey};
use serde_json::Value;
use std::collections::HashMap;

/// A finding is over when its statement has run this often with plans that came later.
const LATER_CALLS: u64 = 20;

/// The sources of settings that all sessions have. Others are those of this session, or of its user.
const OF_SERVER: &str =
    "'{default,environment variable,configuration file,command line,global}'::pg_catalog.text[]";
/// Selects the settings that bound the memory of nodes, as new sessions have them: a user, a database,
/// work_mem in kB and hash_mem_multiplier. 0 is any user or database. What cannot be known is NULL: a user
/// may set what is no plain number for himself.
const SETTINGS: &str = "
    SELECT pg_catalog.json_build_array(0, 0,
               (SELECT s.reset_val::pg_catalog.float8 FROM pg_catalog.pg_settings s
                 WHERE s.name OPERATOR(pg_catalog.=) 'work_mem' AND s.source OPERATOR(pg_catalog.=) ANY ([server])),
               (SELECT s.reset_val::pg_catalog.float8 FROM pg_catalog.pg_settings s
                 WHERE s.name OPERATOR(pg_catalog.=) 'hash_mem_multiplier' AND s.source OPERATOR(pg_catalog.=) ANY ([server])))
    UNION ALL
    SELECT pg_catalog.json_build_array(s.setrole::pg_catalog.int8, s.setdatabase::pg_catalog.int8,
               (SELECT CASE WHEN c.value OPERATOR(pg_catalog.~) '^ *[0-9]{1,10} *$' THEN c.value::pg_catalog.float8
                            WHEN c.value OPERATOR(pg_catalog.~) '^ *[0-9]{1,10}([.][0-9]{1,10})? *(B|kB|MB|GB|TB) *$'
                            THEN pg_catalog.pg_size_bytes(c.value)::pg_catalog.float8 OPERATOR(pg_catalog./) 1024::pg_catalog.float8 END
                  FROM (SELECT pg_catalog.substr(u, 10) AS value FROM pg_catalog.unnest(s.setconfig) u
                         WHERE pg_catalog.starts_with(u, 'work_mem=') LIMIT 1) c),
               (SELECT CASE WHEN c.value OPERATOR(pg_catalog.~) '^ *[0-9]{1,10}([.][0-9]{1,10})? *$' THEN c.value::pg_catalog.float8 END
                  FROM (SELECT pg_catalog.substr(u, 21) AS value FROM pg_catalog.unnest(s.setconfig) u
                         WHERE pg_catalog.starts_with(u, 'hash_mem_multiplier=') LIMIT 1) c))
      FROM pg_catalog.pg_db_role_setting s";
/// Selects of a table that can have an index of its own: how many rows were written and read, the method and
/// the columns of each index, and the columns of the type varchar. An expression is no column. Who may not
/// look into its schema may read the catalog.
const TABLE: &str = "
    SELECT pg_catalog.json_build_array(
               (SELECT s.n_tup_ins OPERATOR(pg_catalog.+) s.n_tup_upd OPERATOR(pg_catalog.+) s.n_tup_del
                  FROM pg_catalog.pg_stat_all_tables s WHERE s.relid OPERATOR(pg_catalog.=) c.oid),
               (SELECT coalesce(s.seq_tup_read, 0) OPERATOR(pg_catalog.+) coalesce(s.idx_tup_fetch, 0)
                  FROM pg_catalog.pg_stat_all_tables s WHERE s.relid OPERATOR(pg_catalog.=) c.oid),
               (SELECT pg_catalog.json_agg(pg_catalog.json_build_array(m.amname,
                           (SELECT pg_catalog.json_agg(a.attname ORDER BY k.n)
                              FROM pg_catalog.unnest(i.indkey) WITH ORDINALITY k (attnum, n)
                                   LEFT JOIN pg_catalog.pg_attribute a
                                   ON a.attrelid OPERATOR(pg_catalog.=) c.oid AND a.attnum OPERATOR(pg_catalog.=) k.attnum
                                      AND k.attnum OPERATOR(pg_catalog.<>) 0::pg_catalog.int2
                             WHERE k.n OPERATOR(pg_catalog.<=) i.indnkeyatts::pg_catalog.int8)))
                  FROM pg_catalog.pg_index i
                       JOIN pg_catalog.pg_class x ON x.oid OPERATOR(pg_catalog.=) i.indexrelid
                       JOIN pg_catalog.pg_am m ON m.oid OPERATOR(pg_catalog.=) x.relam
                 WHERE i.indrelid OPERATOR(pg_catalog.=) c.oid AND i.indisvalid AND i.indpred IS NULL),
               (SELECT pg_catalog.json_agg(a.attname) FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid
                       AND a.atttypid OPERATOR(pg_catalog.=) 'pg_catalog.varchar'::pg_catalog.regtype))
      FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
     WHERE n.nspname OPERATOR(pg_catalog.=) pg_catalog.convert_from(pg_catalog.decode('[schema]', 'hex'), 'UTF8')
           AND c.relname OPERATOR(pg_catalog.=) pg_catalog.convert_from(pg_catalog.decode('[table]', 'hex'), 'UTF8')
           AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,m}'::pg_catalog.\"char\"[])";

/// A finding, and its plan.
pub struct Advice {
    key: PlanKey,
    finding: Finding,
    operation: String,
    object: Option<String>,
    percent: f64,
    first_seen_at: i64,
    last_seen_at: i64,
    text: String,
}

impl Advice {
    fn of(plan: &Plan, finding: Finding) -> Advice {
        let node = &plan.description.nodes[finding.node];
        Advice {
            key: plan.key,
            operation: node.operation.clone(),
            object: node.object_name.clone(),
            percent: 0.0,
            first_seen_at: plan.statistics.first_seen_at,
            last_seen_at: plan.statistics.last_seen_at,
            text: plan.description.text.clone(),
            finding,
        }
    }

    /// Returns the statement without its plan.
    fn statement(&self) -> Statement {
        statement(&self.key)
    }

    /// Returns the command that shows the plan.
    pub fn command(&self, prefix: &str) -> String {
        format!(
            "SELECT * FROM {prefix}rowsource_display({}, {}, format => 'ALLSTATS')",
            self.key.queryid, self.key.planid
        )
    }

    /// Returns a sentence for a report.
    pub fn sentence(&self) -> String {
        let node = match &self.object {
            Some(object) => format!("{} on {object}", self.operation),
            None => self.operation.clone(),
        };
        format!(
            "{}: {node} (id {}) could save up to {:.1} s, {:.1} % of the database time: {}. Try: {}. It is in: {}",
            self.finding.rule,
            self.finding.node,
            self.finding.found.saves_ms / 1e3,
            self.percent,
            self.finding.found.figures,
            self.finding.found.try_sql,
            self.text
        )
    }

    /// Returns whether it belongs to a report: its plan ran in the interval, as far as its first and its last
    /// execution tell, and it is of the statement that the report is about, if it is about one.
    pub fn is_for(&self, (from, to): (i64, i64), queryid: Option<i64>) -> bool {
        let ran = self.first_seen_at <= to && self.last_seen_at >= from;
        ran && queryid.is_none_or(|queryid| queryid == self.key.queryid)
    }
}

/// A statement: its user, its database, its queryid, and whether a client sent it.
type Statement = (u32, u32, i64, bool);

fn statement(key: &PlanKey) -> Statement {
    (key.userid, key.datid, key.queryid, key.toplevel())
}

/// When a plan ran first, and how often it ran.
type Ran = (i64, u64);

/// What is found in all plans.
#[derive(Default)]
struct Search {
    found: Vec<Advice>,
    /// The plans of each statement.
    plans: HashMap<Statement, Vec<Ran>>,
    /// What all statements of clients took.
    all_ms: f64,
    hidden: usize,
}

impl Search {
    fn add(&mut self, plan: &Plan, server: &Server<'_>) {
        let statistics = &plan.statistics;
        if plan.key.toplevel() {
            self.all_ms += statistics.times.total_ms;
        }
        room_for_one(&mut self.plans);
        let plans = self.plans.entry(statement(&plan.key)).or_default();
        plans.push((statistics.first_seen_at, statistics.times.calls));
        memory::ensure_headroom(plan.nodes.len());
        let findings = advice::of_plan(plan, &wait_names::shown(plan, false), server);
        let mut findings: Vec<Finding> = findings
            .into_iter()
            .filter(|finding| advice::is_shown(finding.found.saves_ms, self.all_ms))
            .collect();
        if !findings.is_empty() && !server::may_see(plan.key.userid) {
            self.hidden += 1;
            findings.clear();
        }
        self.found
            .extend(findings.into_iter().map(|finding| Advice::of(plan, finding)));
    }

    /// Sorts the plans of each statement, the last first, and counts how often the statement ran with each
    /// and those that came later.
    fn count_later(&mut self) {
        for plans in self.plans.values_mut() {
            server::check_for_interrupts();
            plans.sort_unstable_by_key(|(first_seen_at, _)| std::cmp::Reverse(*first_seen_at));
            let mut sum = 0_u64;
            for (_, calls) in plans {
                sum = sum.saturating_add(*calls);
                *calls = sum;
            }
        }
    }

    /// Returns whether the statement of a finding has other plans since.
    fn is_over(&self, advice: &Advice) -> bool {
        let Some(plans) = self.plans.get(&advice.statement()) else {
            return false;
        };
        let later = plans.partition_point(|(first_seen_at, _)| *first_seen_at > advice.last_seen_at);
        later > 0 && plans[later - 1].1 >= LATER_CALLS
    }
}

/// The settings of users in databases that differ from the server's, by user and database.
type Memory = HashMap<(u32, u32), [Option<f64>; 2]>;

/// Returns the settings of those sessions that a user opens in a database, as PostgreSQL finds them.
fn settings_of(memory: &Memory, userid: u32, datid: u32) -> [Option<f64>; 2] {
    let places = [(userid, datid), (userid, 0), (0, datid), (0, 0)];
    [0, 1].map(|which| {
        let mut found = places
            .iter()
            .filter_map(|place| memory.get(place).and_then(|settings| settings[which]));
        found.next()
    })
}

/// Returns the findings, those that can save the most first, and how many plans of other users have some.
pub fn all() -> (Vec<Advice>, usize) {
    let quote = |name: &str| server::quoted_identifier(name);
    let mut memory_settings = Memory::new();
    query::each(&SETTINGS.replace("[server]", OF_SERVER), (0, 0), |row| {
        let id = |at: usize| row[at].as_u64().unwrap_or(0) as u32;
        room_for_one(&mut memory_settings);
        // The server's own come first.
        let known = memory_settings.entry((id(0), id(1))).or_default();
        *known = [2, 3].map(|at| row[at].as_f64().or(known[at - 2]));
    });
    let mut search = Search::default();
    session::each_plan(|plan| {
        server::check_for_interrupts();
        memory::ensure();
        let [work_mem_kb, hash_mem_multiplier] =
            settings_of(&memory_settings, plan.key.userid, plan.key.datid);
        let server = Server {
            work_mem_kb,
            hash_mem_multiplier: hash_mem_multiplier.unwrap_or(1.0),
            quote: &quote,
        };
        search.add(&plan, &server);
    });
    search.count_later();
    let others = session::others();
    let of_clients = others.iter().filter(|sum| sum.toplevel);
    search.all_ms += of_clients.map(|sum| sum.totals.plan.times.total_ms).sum::<f64>();
    let mut found = std::mem::take(&mut search.found);
    found.retain(|advice| {
        server::check_for_interrupts();
        advice::is_shown(advice.finding.found.saves_ms, search.all_ms) && !search.is_over(advice)
    });
    found.retain_mut(|advice| {
        server::check_for_interrupts();
        advice.percent = 100.0 * advice.finding.found.saves_ms / search.all_ms.max(f64::MIN_POSITIVE);
        is_index_right(advice)
    });
    found.sort_unstable_by(|one, other| {
        let [one_ms, other_ms] = [one, other].map(|advice| advice.finding.found.saves_ms);
        other_ms.total_cmp(&one_ms)
    });
    (found, search.hidden)
}

/// Returns whether the index that is proposed is right by the catalog, if one is. Says so if nobody knows.
fn is_index_right(advice: &mut Advice) -> bool {
    let found = &mut advice.finding.found;
    let Some(candidate) = found.index.clone() else {
        return true;
    };
    if advice.key.datid != server::database_id() {
        let name = server::database_name(advice.key.datid).unwrap_or_default();
        found.figures.push_str(&format!(
            "; which indexes the table has, and how much it is written, only the database \"{name}\" knows: connect to it"
        ));
        return true;
    }
    let sql = TABLE
        .replace("[schema]", &query::hex(&candidate.schema))
        .replace("[table]", &query::hex(&candidate.table));
    let mut is_right = false;
    query::each(&sql, (0, 0), |row| {
        is_right = is_right_for(&candidate, row);
    });
    is_right
}

/// Returns whether an index is right for a table that [`TABLE`] selects: it is not written more than it is
/// read, no index has these columns, and those that are compared as texts are texts.
fn is_right_for(candidate: &Candidate, row: &Value) -> bool {
    let number = |at: usize| row[at].as_i64().unwrap_or(0);
    let names = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.map(|name| name.as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let is_written = number(0) > number(1);
    let varchars = names(&row[3]);
    let are_texts = candidate.varchars.iter().all(|column| varchars.contains(column));
    let is_there = |index: &Value| {
        let columns = names(&index[1]);
        let first = &columns[..columns.len().min(candidate.columns.len())];
        let serves = match index[0].as_str() {
            Some("btree") => true,
            Some("hash") => candidate.is_equal,
            _ => false,
        };
        serves && candidate.columns.iter().all(|column| first.contains(column))
    };
    !is_written && are_texts && !row[2].as_array().into_iter().flatten().any(is_there)
}

/// Adds the rows of `rowsource_advice()`.
pub fn rows(rows: &mut Rows) {
    let columns = columns();
    let (found, hidden) = all();
    if hidden > 0 {
        server::notify(
            &format!("{hidden} plans of other users have findings that you may not see"),
            "Roles with the privileges of pg_read_all_stats see them.",
        );
    }
    for advice in found {
        memory::ensure();
        columns.add(rows, &advice);
    }
}

/// The columns of `rowsource_advice()`.
pub fn columns() -> Columns<Advice> {
    columns! { |row: &Advice|
        /// What was found: index for a filter, index for an order with a limit, nested loop after a low
        /// estimate, estimate, cache of a Memoize, heap fetches, lossy bitmap, spill to disk, workers not
        /// launched or JIT compilation
        rule: text = row.finding.rule;
        /// Milliseconds of all executions that the change can save at most
        max_saved_time: float8 = row.finding.found.saves_ms;
        /// The same in percent of the time of all client statements
        percent: float8 = row.percent;
        /// The database in which the statement ran; NULL if it was dropped
        datname: name = server::database_name(row.key.datid);
        /// The OID of that database
        datid: oid = row.key.datid;
        /// The user who ran the statement; NULL if the user was dropped
        usename: name = server::user_name(row.key.userid);
        /// The OID of that user
        userid: oid = row.key.userid;
        /// Identifies the statement, as in pg_stat_statements and pg_stat_activity
        queryid: bigint = row.key.queryid;
        /// Identifies the plan by its nodes, objects and strategies
        planid: bigint = row.key.planid;
        /// Whether a client sent the statement; false if another statement ran it
        toplevel: boolean = row.key.toplevel();
        /// The number of the node in the plan
        node_id: int = row.finding.node;
        /// What the node does, as EXPLAIN calls it
        operation: text = row.operation.as_str();
        /// The table, index or other object that the node works on
        object_name: text = row.object.as_deref();
        /// The figures that show it, of all executions
        figures: text = row.finding.found.figures.as_str();
        /// What to try. The library never runs it
        try_query: text = row.finding.found.try_sql.as_str();
        /// What would prove the finding wrong
        disproved_by: text = row.finding.disproved_by;
        /// When the first execution of the plan ended
        first_seen_at: timestamptz = row.first_seen_at;
        /// When the last one ended
        last_seen_at: timestamptz = row.last_seen_at;
        /// The command that shows the plan
        command: text = row.command(&prefix());
        /// The text of the statement
        query: text = row.text.as_str();
    }
}
