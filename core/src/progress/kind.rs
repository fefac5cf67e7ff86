//! What is known of each kind of operation: what it does with its inputs, and what a row costs.

use crate::plan::{PlanNode, Relationship};

/// How a join finds the rows that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    NestedLoop,
    Hash,
    Merge,
}

/// Which rows a join returns besides the pairs that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// None.
    Neither,
    /// Outer rows without a match.
    Outer,
    /// Inner rows without a match.
    Inner,
    Both,
    /// It returns outer rows only, each once: a semi-join or an anti-join.
    OuterOnly,
    /// It returns inner rows only, each once.
    InnerOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    SeqScan {
        is_shared: bool,
    },
    /// Another scan of a table, which returns each row at most once per start.
    TableScan {
        is_shared: bool,
    },
    BitmapHeapScan {
        is_shared: bool,
    },
    BitmapScan,
    /// A scan of something else.
    OtherScan,
    Result,
    Join {
        method: Method,
        kept: Kept,
    },
    Hash,
    Sort,
    Materialize,
    Memoize,
    /// One row per start.
    PlainAggregate,
    HashAggregate,
    GroupAggregate,
    /// It returns some or all of its input's rows while it reads them.
    Filter,
    Limit,
    Append {
        is_in_order: bool,
    },
    Gather,
    ModifyTable,
    RecursiveUnion,
    Other,
}

/// Returns whether an expression runs a node, or the node above it needs its result first.
pub(super) fn is_run_by_expression(plan: &PlanNode) -> bool {
    matches!(plan.relationship, Relationship::InitPlan | Relationship::SubPlan)
}

impl Kind {
    /// Returns the kind of an operation with this name.
    pub fn of(operation: &str) -> Kind {
        let (name, is_shared) = match operation.strip_prefix("Parallel ") {
            Some(name) => (name, true),
            None => (operation, false),
        };
        let (name, is_async) = match name.strip_prefix("Async ") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let name = name.strip_suffix(" Backward").unwrap_or(name);
        let name = ["Partial ", "Finalize "]
            .into_iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(name);
        match name {
            "Seq Scan" => Kind::SeqScan { is_shared },
            "Index Scan" | "Index Only Scan" | "Tid Scan" | "Tid Range Scan" | "Sample Scan" => {
                Kind::TableScan { is_shared }
            }
            "Bitmap Heap Scan" => Kind::BitmapHeapScan { is_shared },
            "Bitmap Index Scan" | "BitmapAnd" | "BitmapOr" => Kind::BitmapScan,
            "Function Scan"
            | "Table Function Scan"
            | "Values Scan"
            | "CTE Scan"
            | "WorkTable Scan"
            | "Named Tuplestore Scan"
            | "Foreign Scan" => Kind::OtherScan,
            "Result" => Kind::Result,
            "Hash" => Kind::Hash,
            "Sort" => Kind::Sort,
            "Materialize" => Kind::Materialize,
            "Memoize" => Kind::Memoize,
            "Aggregate" => Kind::PlainAggregate,
            "HashAggregate" | "HashSetOp" => Kind::HashAggregate,
            name if name.starts_with("HashSetOp") => Kind::HashAggregate,
            "GroupAggregate" | "MixedAggregate" => Kind::GroupAggregate,
            "Unique" | "Group" | "LockRows" | "WindowAgg" | "Incremental Sort" | "Subquery Scan" => {
                Kind::Filter
            }
            "Limit" => Kind::Limit,
            "Append" => Kind::Append {
                is_in_order: !is_shared && !is_async,
            },
            "Merge Append" => Kind::Append { is_in_order: false },
            "Gather" | "Gather Merge" => Kind::Gather,
            "Insert" | "Update" | "Delete" | "Merge" => Kind::ModifyTable,
            "Recursive Union" => Kind::RecursiveUnion,
            name => join(name).unwrap_or(Kind::Other),
        }
    }

    /// Returns whether a node returns its first row only after it has read all of its first input.
    pub fn is_blocking(self) -> bool {
        matches!(
            self,
            Kind::Sort
                | Kind::PlainAggregate
                | Kind::HashAggregate
                | Kind::Hash
                | Kind::BitmapHeapScan { .. }
        )
    }

    /// Returns whether the processes of a parallel scan share one scan.
    pub fn is_shared(self) -> bool {
        matches!(
            self,
            Kind::SeqScan { is_shared: true }
                | Kind::TableScan { is_shared: true }
                | Kind::BitmapHeapScan { is_shared: true }
        )
    }

    /// Returns whether a node scans a table.
    pub fn scans_table(self) -> bool {
        matches!(
            self,
            Kind::SeqScan { .. } | Kind::TableScan { .. } | Kind::BitmapHeapScan { .. }
        )
    }

    /// Returns about how many nanoseconds a node takes for a row that it scans.
    pub fn scan_weight(self) -> f64 {
        match self {
            Kind::SeqScan { .. } => 40.0,
            Kind::TableScan { .. } => 250.0,
            Kind::BitmapHeapScan { .. } => 80.0,
            _ => 0.0,
        }
    }

    /// Returns about how many nanoseconds a node takes for a row that it returns.
    pub fn output_weight(self) -> f64 {
        match self {
            Kind::OtherScan | Kind::Other => 100.0,
            Kind::BitmapScan | Kind::Result => 30.0,
            Kind::Sort | Kind::Materialize | Kind::Memoize | Kind::HashAggregate => 40.0,
            Kind::Join { .. } => 60.0,
            Kind::Gather => 100.0,
            _ => 20.0,
        }
    }

    /// Returns about how many nanoseconds a node takes for a row of an input.
    pub fn input_weight(self, is_inner: bool) -> f64 {
        match self {
            Kind::Sort => 250.0,
            Kind::Hash => 100.0,
            Kind::Join {
                method: Method::Hash, ..
            } if is_inner => 0.0,
            Kind::Join {
                method: Method::Hash, ..
            } => 80.0,
            Kind::Join { .. } => 40.0,
            Kind::HashAggregate => 120.0,
            Kind::PlainAggregate | Kind::GroupAggregate => 50.0,
            Kind::ModifyTable => 1_500.0,
            Kind::Filter => 60.0,
            Kind::Materialize | Kind::Memoize => 30.0,
            _ => 5.0,
        }
    }
}

/// Returns the kind of a join: `Hash Right Anti Join`, `Nested Loop`.
fn join(name: &str) -> Option<Kind> {
    let methods = [
        ("Nested Loop", Method::NestedLoop),
        ("Hash", Method::Hash),
        ("Merge", Method::Merge),
    ];
    let (rest, method) = methods
        .into_iter()
        .find_map(|(prefix, method)| Some((name.strip_prefix(prefix)?, method)))?;
    let kept = match rest.trim() {
        "" if method == Method::NestedLoop => Kept::Neither,
        "Join" => Kept::Neither,
        "Left Join" => Kept::Outer,
        "Right Join" => Kept::Inner,
        "Full Join" => Kept::Both,
        "Semi Join" | "Anti Join" => Kept::OuterOnly,
        "Right Semi Join" | "Right Anti Join" => Kept::InnerOnly,
        _ => return None,
    };
    Some(Kind::Join { method, kept })
}
