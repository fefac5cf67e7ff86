//! Writes trace files as Trace Event JSON, which Perfetto, speedscope and Chrome's own viewer open.
//!
//! Each process has a track. On it, an execution contains its calls, the plan's nodes, its waits and the
//! statements that it called. A node's place inside its execution is not known, only how long it took: it
//! begins with the node above it, or when the node before it ends. An execution during which other statements
//! end, such as that of a cursor, has no slice of its own: it would cross theirs.

use super::event::{Call, Event, Phase, Stat};
use super::open::{Open, depth};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The most bytes of a statement's text in a name.
const MAX_NAME: usize = 80;
/// The most executions and nodes in progress.
const MAX_OPEN: usize = 10_000;
/// The most cursors of a file whose text is known.
const MAX_CURSORS: usize = 1_000_000;

/// The last calls of each nesting level, in the order in which they ended.
#[derive(Default)]
struct Ended {
    count: u64,
    /// The cursors of the last call, and of the last one of another cursor, with the number of each.
    levels: Vec<[(u64, u64); 2]>,
}

impl Ended {
    /// Notes that a call has ended.
    fn add(&mut self, call: &Call) {
        self.count += 1;
        let at = depth(call.dep);
        if self.levels.len() <= at {
            self.levels.resize(at + 1, [(0, 0); 2]);
        }
        let [last, other] = &mut self.levels[at];
        if last.0 != call.cursor {
            *other = *last;
        }
        *last = (call.cursor, self.count);
    }

    /// Returns whether a call of another cursor, nested at most as deeply, has ended since this many had.
    fn has_other_since(&self, count: u64, cursor: u64, dep: u64) -> bool {
        let levels = self.levels.iter().take(depth(dep) + 1);
        levels.flatten().any(|(of, at)| *of != cursor && *at > count)
    }
}

/// An execution in progress.
#[derive(Default)]
struct Execution {
    began: u64,
    /// How many calls had ended when it began.
    ended: u64,
    /// The longest call of the executor: its beginning and its end.
    run: Option<(u64, u64)>,
    stats: Vec<Stat>,
}

/// Writes events one after the other.
#[derive(Default)]
pub struct Chrome {
    out: String,
    pid: u64,
    names: HashMap<u64, String>,
    /// By their cursors and the nesting levels at which they began.
    executions: HashMap<(u64, u64), Execution>,
    levels: Open,
    ended: Ended,
    /// The bytes of the cursors, and of the nodes of executions in progress.
    open: usize,
}

impl Chrome {
    /// Begins a file.
    pub fn begin_file(&mut self) {
        self.names.clear();
        self.executions.clear();
        self.levels = Open::default();
        self.ended = Ended::default();
        self.open = 0;
        self.pid = 0;
    }

    /// Returns how many bytes there are so far.
    pub fn size(&self) -> usize {
        self.out.len().saturating_add(self.open)
    }

    /// Returns the document.
    pub fn document(self) -> String {
        format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[{}\n]}}", self.out)
    }

    fn push(&mut self, event: &Value) {
        self.out.push_str(if self.out.is_empty() { "\n" } else { ",\n" });
        self.out.push_str(&event.to_string());
    }

    /// Adds a slice: what took from one time to another.
    fn slice(&mut self, name: &str, category: &str, (from, to): (u64, u64), arguments: &Value) {
        let pid = self.pid;
        self.push(&json!({
            "name": name, "cat": category, "ph": "X", "ts": from, "dur": to.saturating_sub(from),
            "pid": pid, "tid": pid, "args": arguments,
        }));
    }

    /// Adds a line.
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Header(header) => {
                self.pid = header.pid;
                let name = format!("{} {}", header.pid, header.session);
                let pid = self.pid;
                self.push(&json!({
                    "name": "process_name", "ph": "M", "pid": pid, "tid": pid, "args": {"name": name},
                }));
            }
            Event::Cursor(cursor) if self.names.len() < MAX_CURSORS => {
                let name = name(&cursor.sql);
                self.open = self.open.saturating_add(size_of::<(u64, String)>() + name.len());
                self.names.insert(cursor.number, name);
            }
            Event::Call(phase, call) => self.add_call(phase, &call),
            Event::Stat(stat) => {
                let key = (stat.cursor, self.levels.level(stat.cursor, stat.dep));
                if let Some(execution) = self.executions.get_mut(&key)
                    && execution.stats.len() < MAX_OPEN
                {
                    self.open = self.open.saturating_add(bytes(&stat));
                    execution.stats.push(stat);
                }
            }
            Event::Wait(wait) => {
                let from = wait.tim.saturating_sub(wait.elapsed_us);
                let object = &wait.object;
                let arguments = json!({
                    "cursor": wait.cursor, "node": wait.node, "node_relation": object.node_relation,
                    "relation": object.relation, "database": object.database, "tablespace": object.tablespace,
                    "file": object.file, "fork": object.fork, "block": object.block, "blocks": object.blocks,
                    "tuple": object.tuple, "xid": object.xid, "mode": object.mode,
                });
                let arguments = without_nulls(arguments);
                self.slice(&wait.name, "wait", (from, wait.tim), &arguments);
            }
            Event::Transaction { rollback, call, .. } => {
                let (pid, name) = (self.pid, if rollback { "ROLLBACK" } else { "COMMIT" });
                if let Some(elapsed) = call.elapsed_us {
                    let from = call.tim.saturating_sub(elapsed);
                    return self.slice(name, "transaction", (from, call.tim), &arguments(&call));
                }
                self.push(&json!({
                    "name": name, "cat": "transaction", "ph": "i", "s": "t", "ts": call.tim, "pid": pid, "tid": pid,
                }));
            }
            Event::ParseError { code, call, sql, .. } => {
                let from = call.tim.saturating_sub(call.elapsed_us.unwrap_or(0));
                let arguments = json!({"statement": name(&sql)});
                self.slice(&format!("ERROR {code}"), "error", (from, call.tim), &arguments);
            }
            Event::Error { code, tim, .. } => {
                let (pid, name) = (self.pid, format!("ERROR {code}"));
                self.push(&json!({
                    "name": name, "cat": "error", "ph": "i", "s": "t", "ts": tim, "pid": pid, "tid": pid,
                }));
            }
            Event::Cursor(_)
            | Event::Node { .. }
            | Event::Value { .. }
            | Event::Lost { .. }
            | Event::End { .. } => {}
        }
    }

    fn add_call(&mut self, phase: Phase, call: &Call) {
        let from = call.tim.saturating_sub(call.elapsed_us.unwrap_or(0));
        let began_at = self.levels.level_of(phase, call);
        let key = (call.cursor, began_at);
        let name = self.names.get(&call.cursor).cloned();
        let statement = name.unwrap_or_else(|| format!("(cursor {})", call.cursor));
        let mut arguments = arguments(call);
        arguments["statement"] = json!(statement);
        self.levels.add(phase, call);
        if call.is_utility {
            self.ended.add(call);
            return self.slice(&statement, "statement", (from, call.tim), &arguments);
        }
        match phase {
            Phase::Exec if self.executions.len() < MAX_OPEN => {
                let execution = Execution {
                    began: from,
                    ended: self.ended.count,
                    ..Execution::default()
                };
                self.executions.insert(key, execution);
            }
            Phase::Fetch => {
                if let Some(execution) = self.executions.get_mut(&key) {
                    let longest = execution.run.map_or(0, |(from, to)| to - from);
                    if call.tim.saturating_sub(from) >= longest {
                        execution.run = Some((from, call.tim));
                    }
                }
            }
            _ => {}
        }
        self.slice(phase.word(), "call", (from, call.tim), &arguments);
        if (phase == Phase::Close || call.has_failed)
            && let Some(execution) = self.executions.remove(&key)
        {
            if !self.ended.has_other_since(execution.ended, call.cursor, began_at) {
                let arguments = json!({"cursor": call.cursor});
                self.slice(&statement, "statement", (execution.began, call.tim), &arguments);
            }
            self.nodes(&execution);
            let closed: usize = execution.stats.iter().map(bytes).sum();
            self.open = self.open.saturating_sub(closed);
        }
        self.ended.add(call);
    }

    /// Adds the nodes of an execution, in the longest call of its executor.
    fn nodes(&mut self, execution: &Execution) {
        let Some(run) = execution.run else {
            return;
        };
        // Where each node begins and ends, and where its next input begins.
        let mut places: HashMap<u64, (u64, u64)> = HashMap::new();
        for stat in &execution.stats {
            let Some(time) = stat.time_us else {
                continue;
            };
            let above = stat.node.parent.and_then(|parent| places.get_mut(&parent));
            let (from, end) = above.as_deref().copied().unwrap_or(run);
            let to = from.saturating_add(time).min(end);
            if let Some(above) = above {
                above.0 = to;
            }
            places.insert(stat.id, (from, to));
            let arguments = json!({
                "rows": stat.rows, "starts": stat.starts, "cr": stat.gets, "pr": stat.reads, "pw": stat.writes,
                "time_us": time,
            });
            self.slice(&stat.node.operation, "node", (from, to), &arguments);
        }
    }
}

/// Returns what is known of a call.
fn arguments(call: &Call) -> Value {
    json!({
        "cpu_us": call.cpu_us, "disk": call.reads, "query": call.gets, "current": call.dirtied,
        "rows": call.rows, "failed": call.has_failed,
    })
}

/// Removes what is not known.
fn without_nulls(mut arguments: Value) -> Value {
    if let Value::Object(fields) = &mut arguments {
        fields.retain(|_, value| !value.is_null());
    }
    arguments
}

/// Returns how many bytes a node takes.
fn bytes(stat: &Stat) -> usize {
    size_of::<Stat>() + stat.node.operation.len()
}

/// Returns the beginning of a statement's text in one line.
fn name(sql: &str) -> String {
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::super::reader::Reader;
    use super::*;

    #[test]
    fn slices_are_nested() {
        let file = "\
TRACE #0:version=2,pid=42,uid=10,datid=5,part=1,unix=0,tim=0,session=u@d psql
PARSING IN CURSOR #1:dep=0,uid=10,queryid=7,tim=10,sql=select  1\\n, \"x\"
EXEC #1:c=5,e=10,tim=20
WAIT #1:dep=1,ela=5,tim=40,nam=IO DataFileRead
FETCH #1:c=5,e=30,r=1,tim=60
NODE #1:plh=3,id=0,cost=1,card=1,op=Sort
STAT #1:id=0,rows=1,time=25
NODE #1:plh=3,id=1,pid=0,cost=1,card=1,op=Seq Scan on t
STAT #1:id=1,rows=1,time=20
NODE #1:plh=3,id=2,pid=0,cost=1,card=1,op=Seq Scan on u
STAT #1:id=2,rows=1,time=20
CLOSE #1:c=1,e=2,tim=70
XCTEND #1:rlbk=0,rd_only=1,tim=75
";
        let mut chrome = Chrome::default();
        chrome.begin_file();
        let mut reader = Reader::default();
        file.split_inclusive('\n')
            .filter_map(|line| reader.read(line.as_bytes()))
            .for_each(|event| chrome.add(event));
        assert_eq!(reader.unreadable, 0);
        let document: Value = serde_json::from_str(&chrome.document()).expect("JSON");
        let events = document["traceEvents"].as_array().expect("events");
        let slices: Vec<(String, u64, u64)> = events
            .iter()
            .filter(|event| event["ph"] == "X")
            .map(|event| {
                let number = |key: &str| event[key].as_u64().expect("a number");
                (
                    event["name"].as_str().unwrap_or_default().to_owned(),
                    number("ts"),
                    number("dur"),
                )
            })
            .collect();
        let expected = [
            ("EXEC", 10, 10),
            ("IO DataFileRead", 35, 5),
            ("FETCH", 30, 30),
            ("CLOSE", 68, 2),
            ("select 1 , \"x\"", 10, 60),
            ("Sort", 30, 25),
            ("Seq Scan on t", 30, 20),
            ("Seq Scan on u", 50, 5),
        ];
        assert_eq!(
            slices,
            expected.map(|(name, from, took)| (name.to_owned(), from, took))
        );
        assert!(events.iter().all(|event| event["pid"] == 42));
    }
}
