//! What a plan did, divided by node, relation or wait event: the parts of which the lists of an interval
//! consist. The sum of the parts is what the plan did.

use crate::details;
use crate::model::{NamedWaits, OwnIo, Plan, PlanStats, PlanTotals, StatementSums, own_io, own_wal};
use crate::plan::{ObjectKind, PlanNode};
use std::collections::BTreeMap;
use std::ops::{AddAssign, SubAssign};
use std::rc::Rc;

#[cfg(test)]
mod tests;

/// What the rows of a list are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Statements.
    Statement,
    /// Users.
    User,
    /// Databases.
    Database,
    /// Nodes of plans, and what their statements did outside of them.
    Node,
    /// Tables, with their indexes.
    Relation,
    /// Wait events.
    Wait,
}

impl By {
    /// The words for them.
    pub const ALL: [(&'static str, By); 6] = [
        ("statement", By::Statement),
        ("user", By::User),
        ("database", By::Database),
        ("node", By::Node),
        ("relation", By::Relation),
        ("wait", By::Wait),
    ];

    /// Returns whether a row is of whole statements.
    pub fn is_of_statements(self) -> bool {
        matches!(self, By::Statement | By::User | By::Database)
    }

    /// Returns the milliseconds by which rows are ordered.
    pub fn ms(self, figures: &Figures) -> f64 {
        match self {
            By::Statement | By::User | By::Database => figures.total_ms,
            By::Node | By::Relation => figures.self_ms,
            By::Wait => figures.wait_ms,
        }
    }
}

/// What was done. Blocks are those of tables, indexes and temporary tables.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Executions of the statement.
    pub calls: i64,
    /// Their milliseconds.
    pub total_ms: f64,
    /// Starts of nodes.
    pub starts: i64,
    /// Milliseconds in the nodes alone.
    pub self_ms: f64,
    /// Rows that were returned or changed.
    pub rows: i64,
    /// Rows that filters and rechecks removed.
    pub rows_removed: i64,
    /// Blocks found in buffers.
    pub hit: i64,
    /// Blocks read.
    pub read: i64,
    /// Blocks of work files read and written.
    pub temp: i64,
    /// Bytes of WAL.
    pub wal_bytes: i64,
    /// Waits.
    pub waits: i64,
    /// Their milliseconds.
    pub wait_ms: f64,
}

/// Does something with each pair of fields.
macro_rules! each_field {
    ($one:ident, $other:ident, $operator:tt) => {
        $one.calls $operator $other.calls;
        $one.total_ms $operator $other.total_ms;
        $one.starts $operator $other.starts;
        $one.self_ms $operator $other.self_ms;
        $one.rows $operator $other.rows;
        $one.rows_removed $operator $other.rows_removed;
        $one.hit $operator $other.hit;
        $one.read $operator $other.read;
        $one.temp $operator $other.temp;
        $one.wal_bytes $operator $other.wal_bytes;
        $one.waits $operator $other.waits;
        $one.wait_ms $operator $other.wait_ms;
    };
}

impl AddAssign<&Figures> for Figures {
    fn add_assign(&mut self, other: &Figures) {
        each_field!(self, other, +=);
    }
}

impl SubAssign<&Figures> for Figures {
    fn sub_assign(&mut self, other: &Figures) {
        each_field!(self, other, -=);
    }
}

impl Figures {
    /// Returns whether nothing was done, beside errors of rounding.
    pub fn is_none(&self) -> bool {
        let counts = [
            self.calls,
            self.starts,
            self.rows,
            self.rows_removed,
            self.hit,
            self.read,
            self.temp,
            self.wal_bytes,
            self.waits,
        ];
        let times = [self.total_ms, self.self_ms, self.wait_ms];
        counts.iter().all(|count| *count == 0) && times.iter().all(|ms| ms.abs() < 1e-6)
    }

    /// Returns whether there are less waits than none.
    fn has_less_waits(&self) -> bool {
        self.waits < 0 || self.wait_ms < -1e-6
    }

    /// Adds what nodes use.
    fn add_use(&mut self, io: &OwnIo, wal_bytes: u64) {
        self.hit += io.hit;
        self.read += io.read;
        self.temp += io.temp_read + io.temp_written;
        self.wal_bytes += wal_bytes as i64;
    }
}

/// What a part of a plan is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Of {
    /// The whole statement.
    Statement,
    /// A node, or what the statement did outside of its nodes.
    Node(Option<usize>),
    /// A relation; `None` for nodes that work on none, and outside of the nodes.
    Relation(Option<Rc<str>>),
    /// A wait event and its type, which the sum of several events does not have.
    Wait(Option<Rc<str>>, Rc<str>),
}

impl Of {
    /// Returns the part that has what belongs to no other one of its kind.
    fn rest(&self) -> Of {
        match self {
            Of::Statement => Of::Statement,
            Of::Node(_) => Of::Node(None),
            Of::Relation(_) => Of::Relation(None),
            Of::Wait(..) => Of::Wait(None, "other".into()),
        }
    }
}

/// A part of a plan, and what it did.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What it is.
    pub of: Of,
    /// What it did.
    pub figures: Figures,
}

/// Returns the parts of a plan: what each did in all executions.
pub fn parts(plan: &Plan, waits: &[NamedWaits], by: By) -> Vec<Part> {
    match by {
        By::Wait => waits.iter().map(wait).collect(),
        By::Node | By::Relation => nodes(plan, waits, by),
        By::Statement | By::User | By::Database => vec![Part {
            of: Of::Statement,
            figures: statement(plan, waits),
        }],
    }
}

fn wait(waits: &NamedWaits) -> Part {
    let mut figures = Figures::default();
    figures.add_waits(waits);
    Part {
        of: Of::Wait(
            waits.event_type.as_deref().map(Rc::from),
            waits.event.as_str().into(),
        ),
        figures,
    }
}

impl Figures {
    fn add_waits(&mut self, waits: &NamedWaits) {
        self.waits += waits.waits as i64;
        self.wait_ms += waits.ms;
    }
}

/// Returns what a statement did in all executions.
fn statement(plan: &Plan, waits: &[NamedWaits]) -> Figures {
    let mut figures = of_statements(&plan.statistics, &plan.statement_sums());
    waits.iter().for_each(|waits| figures.add_waits(waits));
    figures
}

fn of_statements(plan: &PlanStats, sums: &StatementSums) -> Figures {
    let buffers = sums.buffers.get_or_zero();
    Figures {
        calls: plan.times.calls as i64,
        total_ms: plan.times.total_ms,
        rows: sums.rows as i64,
        hit: buffers.shared_hit + buffers.local_hit,
        read: buffers.shared_read + buffers.local_read,
        temp: buffers.temp_read + buffers.temp_written,
        wal_bytes: sums.wal.get_or_zero().bytes as i64,
        ..Figures::default()
    }
}

/// Returns what plans did that are not stored. `waits` has the number of their waits, and the nanoseconds.
pub fn of_totals(totals: &PlanTotals, [waits, ns]: [u64; 2]) -> Figures {
    Figures {
        waits: waits as i64,
        wait_ms: ns as f64 / 1e6,
        ..of_statements(&totals.plan, &totals.statement)
    }
}

/// Returns the parts of a plan whose nodes are not known.
pub fn unknown_parts(figures: &Figures, by: By) -> Vec<Part> {
    let of = match by {
        By::Statement | By::User | By::Database => Of::Statement,
        By::Wait => Of::Wait(None, "other".into()),
        By::Node => Of::Node(None),
        By::Relation => Of::Relation(None),
    };
    let mut figures = *figures;
    if by == By::Wait {
        figures = Figures {
            waits: figures.waits,
            wait_ms: figures.wait_ms,
            ..Figures::default()
        };
    } else if !by.is_of_statements() {
        figures.self_ms = figures.total_ms;
        // These are not of nodes.
        (figures.calls, figures.total_ms, figures.rows) = (0, 0.0, 0);
    }
    vec![Part { of, figures }]
}

/// Subtracts what the parts of a plan did until an earlier moment.
pub fn subtract(parts: &mut Vec<Part>, earlier: &[Part]) {
    for (i, before) in earlier.iter().enumerate() {
        // Almost always it has the same index.
        let index = match parts.get(i) {
            Some(part) if part.of == before.of => Some(i),
            _ => parts.iter().position(|part| part.of == before.of),
        };
        match index {
            Some(index) => parts[index].figures -= &before.figures,
            None => {
                let mut part = Part {
                    of: before.of.clone(),
                    figures: Figures::default(),
                };
                part.figures -= &before.figures;
                parts.push(part);
            }
        }
    }
    if parts.iter().any(|part| part.figures.has_less_waits()) {
        move_lost_waits(parts);
    }
}

/// A plan counts few events apart. The waits of an event that lost its place are among the other events from
/// then on: what the event has less now, these have more.
fn move_lost_waits(parts: &mut Vec<Part>) {
    // The nodes of a plan may have parts of the same name.
    let mut sums: BTreeMap<Of, Figures> = BTreeMap::new();
    for part in parts.drain(..) {
        *sums.entry(part.of).or_default() += &part.figures;
    }
    let lost: Vec<Of> = sums
        .iter()
        .filter(|(_, figures)| figures.has_less_waits())
        .map(|(of, _)| of.clone())
        .collect();
    for of in lost {
        let rest = of.rest();
        if rest == of {
            continue;
        }
        let mut less = Figures::default();
        if let Some(figures) = sums.get_mut(&of) {
            (less.waits, less.wait_ms) = (figures.waits, figures.wait_ms);
            *figures -= &less;
        }
        *sums.entry(rest).or_default() += &less;
    }
    parts.extend(sums.into_iter().map(|(of, figures)| Part { of, figures }));
}

/// Returns what each node did itself, and the rest of the statement.
fn nodes(plan: &Plan, waits: &[NamedWaits], by: By) -> Vec<Part> {
    let described = &plan.description.nodes;
    let (io, wal) = (own_io(described, &plan.nodes), own_wal(described, &plan.nodes));
    let mut parts = Vec::with_capacity(described.len() + 1);
    for (i, node) in described.iter().enumerate() {
        let mut figures = Figures::default();
        if let Some(totals) = plan.nodes.get(i) {
            let stats = &totals.total;
            figures.starts = stats.starts.get_or_zero() as i64;
            figures.self_ms = stats.time.get_or_zero().self_ms;
            figures.rows = stats.rows as i64;
            figures.rows_removed = details::rows_removed(node, &stats.facts).unwrap_or(0) as i64;
        }
        let io = io.get(i).copied().flatten().unwrap_or_default();
        let wal_bytes = wal.get(i).copied().flatten().unwrap_or_default().bytes;
        figures.add_use(&io, wal_bytes);
        parts.push(Part {
            of: match by {
                By::Relation => Of::Relation(relation(described, i)),
                _ => Of::Node(Some(i)),
            },
            figures,
        });
    }
    let mut rest = statement(plan, &[]);
    for part in &parts {
        let of = &part.figures;
        rest.hit -= of.hit;
        rest.read -= of.read;
        rest.temp -= of.temp;
        rest.wal_bytes -= of.wal_bytes;
    }
    for waits in waits {
        let part = waits.node.and_then(|i| parts.get_mut(i));
        part.map_or(&mut rest, |part| &mut part.figures).add_waits(waits);
    }
    let root_ms = plan
        .nodes
        .first()
        .map_or(0.0, |root| root.total.time.get_or_zero().total_ms);
    rest.self_ms = (rest.total_ms - root_ms).max(0.0);
    // These are not of nodes.
    (rest.calls, rest.total_ms, rest.rows) = (0, 0.0, 0);
    parts.push(Part {
        of: match by {
            By::Relation => Of::Relation(None),
            _ => Of::Node(None),
        },
        figures: rest,
    });
    parts
}

/// Returns the table that a node works on, or whose index it searches.
pub fn relation(nodes: &[PlanNode], i: usize) -> Option<Rc<str>> {
    let mut node = nodes.get(i)?;
    // The table of these is that of the node above.
    while node.operation.starts_with("Bitmap") && !node.operation.contains("Heap Scan") {
        node = nodes.get(node.parent?)?;
    }
    let table = node.table.as_deref().or(match node.object_kind {
        ObjectKind::Relation => node.object_name.as_deref(),
        _ => None,
    })?;
    Some(match node.schema.as_deref() {
        Some(schema) => format!("{schema}.{table}").into(),
        None => table.into(),
    })
}
