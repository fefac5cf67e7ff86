//! What the program knows of the server: the last rows of each view, and what came in between.

use std::collections::{BTreeMap, BTreeSet};

use crate::last_run::LastRun;
use crate::model::{
    Activity, Finding, Lines, LiveNode, Lock, Node, Part, Plan, Running, Server, Session, Snapshot, Temp,
    Wait, Working,
};
use crate::queries::{PlanKey, Want};
use crate::series::Series;
use crate::texts::Texts;

/// The activity of the last minute is not shown after these seconds: it is asked for each second or two.
const OLD_ACTIVITY: f64 = 10.0;
/// At most this many events are kept.
const MAX_EVENTS: usize = 100;
/// Of at most this many statements the nodes are read.
const MAX_NODE_STATEMENTS: usize = 30;

/// At most this many plans and texts of a recording are kept.
const MAX_RECORDED: usize = 200;

/// Plans and texts that were open while something was recorded.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    plans: BTreeMap<PlanKey, Vec<Node>>,
    /// By the function that wrote them.
    pub lines: BTreeMap<String, Vec<String>>,
}

impl Recorded {
    fn keep_plan(&mut self, nodes: &[Node]) {
        if self.plans.len() >= MAX_RECORDED {
            self.plans.clear();
        }
        let key = nodes.first().and_then(PlanKey::of_node);
        self.plans.extend(key.map(|key| (key, nodes.to_vec())));
    }

    fn keep_lines(&mut self, Lines { call, lines }: Lines) {
        if self.lines.len() >= MAX_RECORDED {
            self.lines.clear();
        }
        self.lines.insert(call, lines);
    }
}

/// What came in between: a restart, a reset, an eviction.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// When it was seen, by the server's clock, in seconds since 1970.
    pub at: f64,
    /// One of these three words.
    pub kind: &'static str,
    pub text: String,
}

/// The name of the part that comes beside the refreshes.
pub const FINDINGS: &str = "Findings";

/// Returns whether a sentence says why a part did not come.
pub fn is_about(missing: &str, part: &str) -> bool {
    let rest = missing.strip_prefix(part);
    rest.is_some_and(|rest| rest.starts_with(':'))
}

/// Returns whether the statistics were reset. Without the extension, which may come and go while the program
/// runs, it is not known when they were last.
fn was_reset(before: &Server, now: &Server) -> bool {
    let (Some(before), Some(now)) = (before.reset, now.reset) else {
        return false;
    };
    before != now
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct Data {
    pub server: Server,
    pub at: f64,
    pub plans: Series<Plan>,
    pub nodes: Series<Node>,
    pub waits: Series<Wait>,
    texts: Texts,
    pub plan: Vec<Node>,
    pub live: Vec<Running>,
    pub live_plan: Vec<LiveNode>,
    pub last_run: LastRun,
    pub activity: Vec<Activity>,
    pub findings: Vec<Finding>,
    /// When these came, in seconds since 1970: less often than the others.
    pub findings_at: Option<f64>,
    pub temp: Vec<Temp>,
    pub locks: Vec<Lock>,
    /// A session, and whom it waits for, up to who waits for nobody.
    pub blockers: Option<Vec<Lock>>,
    /// Whether all of it comes from a recording, which has the lists and what was open.
    pub is_replay: bool,
    /// What of a recording is kept although something else was open later.
    pub recorded: Recorded,
    /// What processes do now, and when that was, by the server's clock.
    pub working: (f64, Vec<Working>),
    /// When the activity came, and how long before a refresh the last one was.
    pub activity_at: f64,
    pub step: f64,
    pub sessions: Vec<Session>,
    /// When these came, by the server's clock.
    sessions_at: Option<f64>,
    /// How many rows there are of parts of which only the first ones came.
    pub totals: BTreeMap<String, u64>,
    /// What did not come in the last refresh.
    pub missing: Vec<String>,
    /// What interrupted the last interval.
    pub event: Option<Happened>,
    /// All that came in between since the beginning, the newest last.
    pub events: Vec<Happened>,
    node_statements: Vec<i64>,
    /// Whether all nodes began anew since they were read.
    nodes_were_reset: bool,
    /// How many plans were evicted before the plans were read, at least, and after that.
    evictions_of_plans: (f64, f64),
}

impl Data {
    /// Takes over a refresh.
    pub fn apply(&mut self, mut snapshot: Snapshot) {
        if snapshot.is_addition() {
            self.add(snapshot);
            return;
        }
        self.event = None;
        let known = self.at > 0.0;
        if known && (snapshot.server.started - self.server.started).abs() > 0.5 {
            *self = Self {
                texts: std::mem::take(&mut self.texts).of_next_run(),
                events: std::mem::take(&mut self.events),
                is_replay: self.is_replay,
                recorded: std::mem::take(&mut self.recorded),
                ..Self::default()
            };
            // What ran since the refresh before is no beginning: the next refresh reads all rows.
            let is_whole = |part: &Part| !matches!(part, Part::ChangedPlans(_) | Part::ChangedNodes(_));
            snapshot.parts.retain(is_whole);
            let text = "the server was restarted: the interval begins anew".to_owned();
            self.happens(snapshot.at, "restart", text);
        } else if known && was_reset(&self.server, &snapshot.server) {
            self.plans.reset();
            self.nodes.reset();
            self.nodes_were_reset = true;
            let text = "the statistics were reset: figures are since then".to_owned();
            self.happens(snapshot.at, "reset", text);
        }
        let evicted = if snapshot.server.reset.is_some() && self.server.reset.is_some() {
            snapshot.server.evictions - self.server.evictions
        } else {
            0.0
        };
        // A recording may be older than this.
        self.evictions_of_plans.1 = snapshot.evictions_after.unwrap_or(snapshot.server.evictions);
        let has_findings = snapshot.lists(FINDINGS);
        self.step = snapshot.at - self.at;
        self.at = snapshot.at;
        self.server = snapshot.server;
        self.missing
            .retain(|missing| !has_findings && is_about(missing, FINDINGS));
        self.missing.append(&mut snapshot.missing);
        self.totals.retain(|part, _| !has_findings && part == FINDINGS);
        self.totals.append(&mut snapshot.totals);
        if self.lacks("Plans") {
            self.plans.begin_without(self.at);
        }
        if self.lacks("Nodes") {
            self.nodes.begin_without(self.at);
        }
        let has_nodes = |part: &Part| matches!(part, Part::Nodes(_) | Part::ChangedNodes(_));
        if self.is_replay && snapshot.parts.iter().any(has_nodes) {
            // A recording does not say of which statements the nodes were read. That follows from the plans.
            self.wanted_nodes();
        }
        let has_live_plan = snapshot
            .parts
            .iter()
            .any(|part| matches!(part, Part::LivePlan(_)));
        self.forget_what_was(&snapshot.parts);
        for part in snapshot.parts {
            self.apply_part(part);
        }
        if has_live_plan {
            self.last_run.see(self.at, &self.live_plan, &self.live);
        }
        if known && evicted > 0.0 && self.event.is_none() {
            let text = format!(
                "{evicted:.0} plans were evicted: what they did is in the sum of others now (pg_rowsource.max_plans)"
            );
            self.happens(self.at, "eviction", text);
        }
    }

    fn happens(&mut self, at: f64, kind: &'static str, text: String) {
        let event = Happened { at, kind, text };
        if self.events.len() >= MAX_EVENTS {
            self.events.remove(0);
        }
        self.events.push(event.clone());
        self.event = Some(event);
    }

    /// Takes over what belongs to the refresh before, or comes beside the refreshes.
    fn add(&mut self, mut snapshot: Snapshot) {
        self.event = None;
        self.missing.retain(|missing| {
            let part = missing.split(':').next().unwrap_or_default();
            !snapshot.lists(part)
        });
        self.totals.retain(|part, _| !snapshot.lists(part));
        self.missing.append(&mut snapshot.missing);
        self.totals.append(&mut snapshot.totals);
        for part in snapshot.parts {
            if matches!(part, Part::Findings(_)) {
                self.findings_at = Some(snapshot.at);
            }
            self.apply_part(part);
        }
    }

    /// Returns what is recorded of lines that a function wrote.
    pub fn snapshot_of_lines(&self, call: String, lines: Vec<String>) -> Snapshot {
        Snapshot {
            at: self.at,
            server: self.server.clone(),
            parts: vec![Part::Lines(Lines { call, lines })],
            ..Snapshot::default()
        }
    }

    /// Notes why the findings did not come.
    pub fn lack_findings(&mut self, why: String) {
        self.missing.retain(|missing| !is_about(missing, FINDINGS));
        self.missing.push(format!("{FINDINGS}: {why}"));
    }

    /// Forgets the lists of what was there before, unless they have come again: when their view is opened
    /// again, they would look as if they were of now.
    fn forget_what_was(&mut self, parts: &[Part]) {
        let is_old = |name: &str| !self.lacks(name) && !parts.iter().any(|part| part.name() == name);
        let parts = ["Live", "LivePlan", "Temp", "Locks", "Blockers", "Sessions"].map(is_old);
        let [live, plan, temp, locks, blockers, sessions] = parts;
        self.live.retain(|_| !live);
        self.live_plan.retain(|_| !plan);
        self.temp.retain(|_| !temp);
        self.locks.retain(|_| !locks);
        self.blockers.take_if(|_| blockers);
        self.sessions.retain(|_| !sessions);
        if self.at - self.activity_at > OLD_ACTIVITY {
            self.activity.clear();
        }
    }

    fn apply_part(&mut self, part: Part) {
        match part {
            Part::Plans(rows) => self.apply_plans(|plans, at| plans.update(at, rows)),
            Part::ChangedPlans(rows) => self.apply_plans(|plans, at| plans.update_some(at, rows)),
            Part::Texts(rows) => self.texts.add(rows, &self.server),
            Part::Nodes(rows) => self.apply_nodes(rows, true),
            Part::ChangedNodes(rows) => self.apply_nodes(rows, false),
            Part::Plan(rows) => {
                if self.is_replay {
                    self.recorded.keep_plan(&rows);
                }
                self.plan = rows;
            }
            Part::Lines(answer) => self.recorded.keep_lines(answer),
            Part::Live(rows) => self.live = rows,
            Part::LivePlan(rows) => self.live_plan = rows,
            Part::Working(rows) => self.working = (self.at, rows),
            Part::Activity(rows) => (self.activity_at, self.activity) = (self.at, rows),
            Part::Findings(rows) => self.findings = rows,
            Part::Waits(rows) => self.waits.update(self.at, rows),
            Part::Temp(rows) => self.temp = rows,
            Part::Locks(rows) => self.locks = rows,
            Part::Blockers(rows) => self.blockers = Some(rows),
            Part::Sessions(rows) => {
                self.sessions = rows;
                self.sessions_at = Some(self.at);
            }
        }
    }

    /// The sum of what is not stored has no difference if plans were evicted since it was read: it has their
    /// whole lives.
    fn apply_plans(&mut self, update: impl FnOnce(&mut Series<Plan>, f64)) {
        update(&mut self.plans, self.at);
        let (before, after) = &mut self.evictions_of_plans;
        let were_evicted = after != before;
        *before = self.server.evictions;
        if were_evicted && self.plans.seconds.is_some() {
            self.plans.added.rows.retain(|plan| plan.queryid.is_some());
        }
    }

    /// A plan whose nodes were not read in the last refresh has no difference.
    fn apply_nodes(&mut self, rows: Vec<Node>, is_all: bool) {
        if self.is_replay || self.node_statements.is_empty() {
            let ids: BTreeSet<_> = rows.iter().filter_map(|row| row.queryid).collect();
            let is_new = |id: &i64| !self.node_statements.contains(id);
            let new: Vec<_> = ids.into_iter().filter(is_new).collect();
            self.node_statements.extend(new);
        }
        let asked: BTreeSet<i64> = self.node_statements.iter().copied().collect();
        self.nodes
            .keep(|row| row.queryid.is_some_and(|queryid| asked.contains(&queryid)));
        let is_known = self.nodes.is_begun() && !self.nodes_were_reset;
        let known = is_known.then(|| self.nodes.last().map(PlanKey::of_node).collect::<BTreeSet<_>>());
        self.nodes_were_reset = false;
        if is_all {
            self.nodes.update(self.at, rows);
        } else {
            self.nodes.update_some(self.at, rows);
        }
        if let Some(known) = known {
            let added = &mut self.nodes.added.rows;
            added.retain(|row| known.contains(&PlanKey::of_node(row)));
        }
    }

    /// Returns the plans that ran since the last refresh, or now and then all of them.
    pub fn wanted_plans(&self) -> Want {
        Want::Plans(self.plans.since())
    }

    /// Returns the texts that are needed, not known, and not asked for just now: first those of the lists
    /// that are short.
    pub fn wanted_texts(&mut self) -> Option<Want> {
        let mut plans: Vec<_> = self.plans.added.rows.iter().collect();
        plans.sort_by(|a, b| b.time.total_cmp(&a.time));
        let temp = self.temp.iter().map(|row| row.queryid);
        let activity = self.activity.iter().map(|row| row.queryid);
        let all = temp
            .chain(activity)
            .chain(plans.into_iter().map(|plan| plan.queryid));
        let ids = self.texts.wanted(all.flatten(), self.at);
        (!ids.is_empty()).then_some(Want::Texts(ids))
    }

    /// Returns the nodes of the statements that took the most time.
    pub fn wanted_nodes(&mut self) -> Option<Want> {
        let mut plans: Vec<_> = self
            .plans
            .added
            .rows
            .iter()
            .filter(|plan| plan.queryid.is_some())
            .collect();
        plans.sort_by(|a, b| b.time.total_cmp(&a.time));
        let mut ids: Vec<i64> = Vec::new();
        for id in plans
            .into_iter()
            .filter_map(|plan| plan.queryid)
            .chain(self.node_statements.iter().copied())
        {
            if !ids.contains(&id) && ids.len() < MAX_NODE_STATEMENTS {
                ids.push(id);
            }
        }
        self.node_statements = ids.clone();
        (!ids.is_empty()).then(|| Want::Nodes(ids, self.nodes.since()))
    }

    /// Returns the plans of the statement that has a plan with this key, with what was added.
    pub fn plans_of(&self, key: &PlanKey) -> impl Iterator<Item = &Plan> {
        let plans = self.plans.added.rows.iter();
        plans.filter(|plan| {
            plan.queryid == Some(key.queryid)
                && plan.toplevel == key.toplevel
                && (plan.userid, plan.datid) == (key.userid, key.datid)
        })
    }

    /// Returns the nodes of a plan, if they have come.
    pub fn nodes_of(&self, key: &PlanKey) -> Vec<&Node> {
        let is_meant = |node: &&Node| PlanKey::of_node(node).as_ref() == Some(key);
        let mut nodes: Vec<&Node> = self.plan.iter().filter(is_meant).collect();
        if nodes.is_empty() && self.is_replay {
            nodes = self.recorded.plans.get(key).into_iter().flatten().collect();
        }
        if nodes.is_empty() && self.is_replay {
            // The view of nodes, which is always recorded, has them without their details.
            nodes = self.nodes.last().filter(is_meant).collect();
            nodes.sort_by_key(|node| node.node_id);
        }
        nodes
    }

    /// Returns the place of the session that a process waits for, in the tree of those that wait for locks.
    pub fn blocker_of(&self, pid: i64) -> Option<usize> {
        let at = self.locks.iter().position(|row| row.pid == pid)?;
        let depth = self.locks[at].depth;
        self.locks[..at].iter().rposition(|row| row.depth < depth)
    }

    /// Returns a session that waits for another one.
    pub fn waiter(&self, pid: i64) -> Option<&Lock> {
        let rows = self.blockers.as_ref().filter(|rows| rows.len() > 1);
        let asked = rows.and_then(|rows| rows.first()).filter(|row| row.pid == pid);
        asked.or_else(|| {
            let listed = self.locks.iter().find(|row| row.pid == pid && row.depth > 0);
            listed.filter(|_| self.blockers.is_none() || self.is_replay)
        })
    }

    /// Returns whom a process waits for, up to who waits for nobody.
    pub fn blockers_of(&self, pid: i64) -> Vec<&Lock> {
        let mut chain = Vec::new();
        match &self.blockers {
            Some(rows) if rows.first().is_some_and(|row| row.pid == pid) => {
                return rows.iter().skip(1).collect();
            }
            Some(_) if !self.is_replay => return chain,
            // Not come yet, or not recorded: the list may have them.
            _ => {}
        }
        let mut at = pid;
        while let Some(place) = self.blocker_of(at).filter(|_| chain.len() < self.locks.len()) {
            let row = &self.locks[place];
            at = row.pid;
            chain.push(row);
        }
        chain
    }

    /// Returns whether a part did not come in the last refresh, so that nothing follows from its rows.
    pub fn lacks(&self, part: &str) -> bool {
        self.missing.iter().any(|missing| is_about(missing, part))
    }

    /// Returns whether it is known which sessions there are now.
    pub fn knows_sessions(&self) -> bool {
        self.sessions_at == Some(self.at)
    }

    /// Returns how many statements the nodes are read of, and how many there are.
    pub fn node_statements(&self) -> (usize, usize) {
        let all: BTreeSet<_> = self
            .plans
            .added
            .rows
            .iter()
            .filter_map(|plan| plan.queryid)
            .collect();
        let read = all.iter().filter(|id| self.node_statements.contains(id));
        (read.count(), all.len())
    }

    /// Returns whether a statement is one of this program's.
    pub fn is_own(&self, queryid: Option<i64>) -> bool {
        queryid.is_some_and(|queryid| self.texts.is_own(queryid))
    }

    /// Returns the text of a statement in one line; nothing if it is not known.
    pub fn text(&self, queryid: Option<i64>) -> Option<&str> {
        self.texts.get(queryid?)
    }
}
