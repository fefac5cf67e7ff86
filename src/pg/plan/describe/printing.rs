//! Limits what EXPLAIN prints of a plan. EXPLAIN itself prints every expression and every constant in full.
//!
//! Before EXPLAIN runs, the expressions are walked up to a limit. Long constants are shortened while EXPLAIN
//! prints (`constants`). If the plan is still too long, it is not printed at all.

use super::constants::Changed;
use super::modifiers::{self, Modifier};
use super::symbols::{Printed, Symbols};
use crate::pg::compat::expression::expression_tree_walker;
use crate::pg::handles::{Handle, ListOf, PlanRef, StartedQuery};
use crate::pg::plan::pruned::first_input;
use crate::pg::plan::tree::Found;
use pgrx::pg_sys::{self, Const, Node, NodeTag};
use rowsource_core::model::MAX_NODES;
use std::ffi::c_void;

/// The maximal number of expression parts that EXPLAIN may print, which takes some milliseconds.
const MAX_PRINTED: u64 = 20_000;
/// The maximal number of expression parts that are walked. Most are columns that nodes only pass on, which
/// are not printed.
const MAX_WALKED: u64 = 200_000;
/// The maximal sum of the squared numbers of columns of all range table entries. EXPLAIN compares the names
/// of a table's columns with each other.
const MAX_SQUARED_COLUMNS: u64 = 20_000_000;

/// Shortens what EXPLAIN prints, or replaces all constants by symbols. Returns `None` if it would still be
/// too long. May raise.
pub fn bound<'q>(
    query: StartedQuery<'q>,
    found: &[Found<'q>],
    symbols: Option<Symbols>,
    changed: &mut Changed<'q>,
) -> Option<()> {
    if found.len() > MAX_NODES || !columns_are_few(query.plan().list(|plan| &plan.rtable)) {
        return None;
    }
    let (constants, modifiers) = constants(found)?;
    match symbols {
        Some(symbols) => changed.replace_all(&constants, symbols)?,
        None => changed.shorten(&constants, query.parameters() + 1)?,
    }
    changed.remove_foreign(&modifiers)
}

/// Returns whether EXPLAIN can make all column names unique in reasonable time.
fn columns_are_few(table: ListOf<pg_sys::RangeTblEntry>) -> bool {
    let (mut entries, mut squares) = (0, 0);
    table.iter().all(|entry| {
        let names = entry.follow(|entry| &entry.eref);
        let names = names.and_then(|names| names.follow(|names| &names.colnames));
        let columns = names.map_or(0, |names| names.length as u64);
        // What is not printed has none.
        entries += usize::from(columns > 0);
        squares += columns * columns;
        entries <= 2 * MAX_NODES && squares <= MAX_SQUARED_COLUMNS
    })
}

/// Walks all expressions. Returns the constants among them and the modifiers of types, or `None` if EXPLAIN
/// would print too much. May raise.
///
/// EXPLAIN prints a reference to a column of a lower node as that column's expression, recursively down to
/// the tables. So the walk goes from the bottom up.
fn constants<'q>(found: &[Found<'q>]) -> Option<(Vec<Printed<'q>>, Vec<Modifier<'q>>)> {
    let mut walk = Walk::default();
    // For each node, the parts of the longest column of the nodes directly below it.
    let mut below = vec![1u64; found.len()];
    // For each node, whether the child whose columns EXPLAIN prints for those of an Append has run.
    let mut has_first = vec![false; found.len()];
    let (mut printed, mut parameters, mut longest) = (0u64, 0u64, 1u64);
    for (i, place) in found.iter().enumerate().rev() {
        let plan = place.plan_state.plan();
        if let Some(first) = first_input(plan)
            && !has_first[i]
        {
            below[i] = below[i].max(walk.longest_column(first)?);
        }
        // Columns of an index, or of a foreign or custom scan itself.
        for column in own_columns(plan).iter() {
            below[i] = below[i].max(walk.count(column)?.parts);
        }
        let mut column_takes = 1;
        for column in plan.list(|plan| &plan.targetlist).iter() {
            column_takes = column_takes.max(walk.count(column)?.takes(below[i]));
        }
        for expression in printed_expressions(plan).into_iter().flatten() {
            let counted = walk.count(expression)?;
            printed = counted.takes(below[i]).saturating_add(printed);
            parameters += counted.parameters;
        }
        let keys = keys(plan).saturating_mul(column_takes.max(below[i]));
        printed = printed.saturating_add(keys);
        longest = longest.max(column_takes);
        if let Ok(parent) = usize::try_from(place.parent) {
            below[parent] = below[parent].max(column_takes);
            has_first[parent] |= first_input(found[parent].plan_state.plan()) == Some(plan);
        }
    }
    // A parameter is printed as the expression of another node that computes it.
    printed = printed.saturating_add(parameters.saturating_mul(longest));
    (printed <= MAX_PRINTED).then_some((walk.constants, walk.modifiers))
}

/// Returns the subplans that the expressions of a node call. May raise.
pub fn subplans(plan: PlanRef<'_>) -> Vec<Handle<'_, pg_sys::SubPlan>> {
    let mut walk = Walk::default();
    let columns = plan.expressions(|plan| &plan.targetlist);
    for expression in [columns].into_iter().chain(printed_expressions(plan)).flatten() {
        if walk.count(expression).is_none() {
            break;
        }
    }
    walk.subplans
}

#[derive(Clone, Copy, Default)]
struct Counted {
    parts: u64,
    /// References to columns of lower nodes.
    references: u64,
    parameters: u64,
}

impl Counted {
    /// Returns how many parts are printed for it, if each reference is printed as `reference` parts.
    fn takes(self, reference: u64) -> u64 {
        self.references
            .saturating_mul(reference)
            .saturating_add(self.parts)
    }
}

#[derive(Default)]
struct Walk<'q> {
    walked: u64,
    counted: Counted,
    constants: Vec<Printed<'q>>,
    /// Those of types that are not PostgreSQL's own.
    modifiers: Vec<Modifier<'q>>,
    subplans: Vec<Handle<'q, pg_sys::SubPlan>>,
}

impl<'q> Walk<'q> {
    /// Counts the parts of an expression or of a List of them, and collects its constants. Returns `None` if
    /// there are too many. May raise.
    fn count(&mut self, expression: Handle<'q, Node>) -> Option<Counted> {
        self.counted = Counted::default();
        let context: *mut Walk = self;
        // SAFETY: nothing else uses the walk meanwhile. The walker's frames are plain, so an error may cross
        // them.
        let stopped =
            unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| visit(expression.as_ptr(), context.cast())) };
        (!stopped).then_some(self.counted)
    }

    /// Counts the columns of a plan that was pruned when the executor started, so that it has no states.
    /// EXPLAIN prints the columns of an Append as those of its first child all the same. Returns the parts of
    /// the longest one. May raise.
    fn longest_column(&mut self, plan: PlanRef<'q>) -> Option<u64> {
        // SAFETY: the function has no preconditions.
        unsafe { pg_sys::check_stack_depth() };
        let input = match plan.tag() {
            NodeTag::T_SubqueryScan => plan.cast::<pg_sys::SubqueryScan>().follow(|scan| &scan.subplan),
            _ => first_input(plan),
        };
        let outer = plan.follow(|plan| &plan.lefttree);
        let mut below = 1;
        let inputs = [outer, plan.follow(|plan| &plan.righttree), input];
        for input in inputs.into_iter().flatten() {
            below = below.max(self.longest_column(input)?);
        }
        for column in own_columns(plan).iter() {
            below = below.max(self.count(column)?.parts);
        }
        let mut longest = 1;
        for column in plan.list(|plan| &plan.targetlist).iter() {
            longest = longest.max(self.count(column)?.takes(below));
        }
        Some(longest)
    }

    /// Adds a constant. Returns false if there is no memory.
    fn add(&mut self, printed: Printed<'q>) -> bool {
        let has_room = self.constants.try_reserve(1).is_ok();
        if has_room {
            self.constants.push(printed);
        }
        has_room
    }
}

/// Visits a part of an expression. Returns true to stop the walk.
///
/// # Safety
/// * `node` must be null or a part of an expression of a live plan.
/// * `context` must point to a [`Walk`], and no other code may use a reference to it.
/// * The caller's frame must be plain, because an error may cross it.
unsafe extern "C-unwind" fn visit(node: *mut Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: the node is live, and the context is a walk, by the caller's promise.
    unsafe {
        let node = Handle::new(node);
        let walk = context.cast::<Walk>();
        (*walk).walked += 1;
        (*walk).counted.parts += 1;
        if (*walk).walked > MAX_WALKED || !modifiers::add(node, &mut (*walk).modifiers) {
            return true;
        }
        match node.tag() {
            NodeTag::T_Var if node.cast::<pg_sys::Var>().varno < 0 => (*walk).counted.references += 1,
            NodeTag::T_Param => (*walk).counted.parameters += 1,
            NodeTag::T_SubPlan => {
                if (*walk).subplans.try_reserve(1).is_err() {
                    return true;
                }
                (*walk).subplans.push(node.cast());
            }
            NodeTag::T_Const => {
                return !(*walk).add(Printed {
                    constant: node.cast(),
                    as_text: false,
                    operator_at: -1,
                });
            }
            NodeTag::T_ScalarArrayOpExpr => return visit_array_operator(node.cast(), context),
            NodeTag::T_FuncExpr => return visit_function(node.cast(), context),
            // EXPLAIN reads the value of the last argument, which is an option.
            NodeTag::T_XmlExpr => {
                let xml = node.cast::<pg_sys::XmlExpr>();
                let has_option = matches!(
                    xml.op,
                    pg_sys::XmlExprOp::IS_XMLPARSE | pg_sys::XmlExprOp::IS_XMLROOT
                );
                let arguments = xml.list::<Node>(|xml| &xml.args);
                let count = arguments.len().saturating_sub(usize::from(has_option));
                let named = xml.list::<Node>(|xml| &xml.named_args);
                let mut visited = named.iter().chain(arguments.iter().take(count));
                return visited.any(|argument| visit(argument.as_ptr(), context));
            }
            _ => {}
        }
        expression_tree_walker(node.as_ptr(), visit, context)
    }
}

/// Visits an operator with an array: `IN`, for example. Returns true to stop the walk.
///
/// # Safety
/// As [`visit`].
unsafe fn visit_array_operator(operator: Handle<pg_sys::ScalarArrayOpExpr>, context: *mut c_void) -> bool {
    // SAFETY: the caller makes the same promises. The second argument is the array.
    unsafe {
        let walk = context.cast::<Walk>();
        let arguments = operator.list::<Node>(|operator| &operator.args);
        arguments.iter().enumerate().any(|(i, argument)| {
            if i == 1
                && let Some(constant) = argument.downcast::<Const>()
            {
                (*walk).counted.parts += 1;
                return !(*walk).add(Printed {
                    constant,
                    as_text: false,
                    operator_at: operator.location,
                });
            }
            visit(argument.as_ptr(), context)
        })
    }
}

/// Visits a call of a function. Returns true to stop the walk.
///
/// # Safety
/// As [`visit`].
unsafe fn visit_function(function: Handle<pg_sys::FuncExpr>, context: *mut c_void) -> bool {
    use pg_sys::CoercionForm::*;
    // SAFETY: the caller makes the same promises.
    unsafe {
        let walk = context.cast::<Walk>();
        let form = function.funcformat;
        let is_cast = matches!(form, COERCE_EXPLICIT_CAST | COERCE_IMPLICIT_CAST);
        // The further arguments of a cast are the type's modifier, which EXPLAIN reads.
        let count = if is_cast { 1 } else { usize::MAX };
        let arguments = function.list::<Node>(|function| &function.args);
        arguments.iter().take(count).any(|argument| {
            // EXPLAIN reads some arguments of SQL's own syntax, for example the field of EXTRACT.
            let read = argument.downcast::<Const>().filter(|constant| {
                form == COERCE_SQL_SYNTAX && constant.consttype == pg_sys::TEXTOID && !constant.constisnull
            });
            match read {
                Some(constant) => !(*walk).add(Printed {
                    constant,
                    as_text: true,
                    operator_at: -1,
                }),
                None => visit(argument.as_ptr(), context),
            }
        })
    }
}

/// Returns the columns that only this node refers to.
fn own_columns(plan: PlanRef<'_>) -> ListOf<'_, Node> {
    match plan.tag() {
        NodeTag::T_IndexOnlyScan => plan.cast::<pg_sys::IndexOnlyScan>().list(|scan| &scan.indextlist),
        NodeTag::T_ForeignScan => plan
            .cast::<pg_sys::ForeignScan>()
            .list(|scan| &scan.fdw_scan_tlist),
        NodeTag::T_CustomScan => plan
            .cast::<pg_sys::CustomScan>()
            .list(|scan| &scan.custom_scan_tlist),
        _ => ListOf::empty(),
    }
}

/// Returns the expressions of a node that EXPLAIN prints.
fn printed_expressions(plan: PlanRef<'_>) -> [Option<Handle<'_, Node>>; 5] {
    let one = |expression| [expression, None, None, None];
    let joined = || plan.cast::<pg_sys::Join>().expressions(|join| &join.joinqual);
    let [a, b, c, d] = match plan.tag() {
        NodeTag::T_IndexScan => {
            let scan = plan.cast::<pg_sys::IndexScan>();
            let order = scan.expressions(|scan| &scan.indexorderbyorig);
            [scan.expressions(|scan| &scan.indexqualorig), order, None, None]
        }
        NodeTag::T_IndexOnlyScan => {
            let scan = plan.cast::<pg_sys::IndexOnlyScan>();
            let (order, recheck) = (
                scan.expressions(|scan| &scan.indexorderby),
                scan.expressions(|scan| &scan.recheckqual),
            );
            [scan.expressions(|scan| &scan.indexqual), order, recheck, None]
        }
        NodeTag::T_BitmapIndexScan => {
            let scan = plan.cast::<pg_sys::BitmapIndexScan>();
            one(scan.expressions(|scan| &scan.indexqualorig))
        }
        NodeTag::T_BitmapHeapScan => {
            let scan = plan.cast::<pg_sys::BitmapHeapScan>();
            one(scan.expressions(|scan| &scan.bitmapqualorig))
        }
        NodeTag::T_SampleScan => {
            let sample = plan.cast::<pg_sys::SampleScan>().follow(|scan| &scan.tablesample);
            one(sample.map(Handle::node))
        }
        NodeTag::T_TidScan => {
            let scan = plan.cast::<pg_sys::TidScan>();
            one(scan.expressions(|scan| &scan.tidquals))
        }
        NodeTag::T_TidRangeScan => {
            let scan = plan.cast::<pg_sys::TidRangeScan>();
            one(scan.expressions(|scan| &scan.tidrangequals))
        }
        NodeTag::T_ForeignScan => {
            let scan = plan.cast::<pg_sys::ForeignScan>();
            one(scan.expressions(|scan| &scan.fdw_exprs))
        }
        NodeTag::T_CustomScan => {
            let scan = plan.cast::<pg_sys::CustomScan>();
            one(scan.expressions(|scan| &scan.custom_exprs))
        }
        NodeTag::T_NestLoop => one(joined()),
        NodeTag::T_MergeJoin => {
            let join = plan.cast::<pg_sys::MergeJoin>();
            [joined(), join.expressions(|join| &join.mergeclauses), None, None]
        }
        NodeTag::T_HashJoin => {
            let join = plan.cast::<pg_sys::HashJoin>();
            [joined(), join.expressions(|join| &join.hashclauses), None, None]
        }
        NodeTag::T_Result => {
            let result = plan.cast::<pg_sys::Result>();
            one(result.follow(|result| &result.resconstantqual))
        }
        NodeTag::T_ModifyTable => {
            let modify = plan.cast::<pg_sys::ModifyTable>();
            one(modify.follow(|modify| &modify.onConflictWhere))
        }
        NodeTag::T_Memoize => {
            let memoize = plan.cast::<pg_sys::Memoize>();
            one(memoize.expressions(|memoize| &memoize.param_exprs))
        }
        NodeTag::T_WindowAgg => {
            let window = plan.cast::<pg_sys::WindowAgg>();
            [
                window.expressions(|window| &window.runCondition),
                window.expressions(|window| &window.runConditionOrig),
                window.follow(|window| &window.startOffset),
                window.follow(|window| &window.endOffset),
            ]
        }
        _ => [None; 4],
    };
    [plan.expressions(|plan| &plan.qual), a, b, c, d]
}

/// Returns how many columns EXPLAIN prints as the keys of a node.
fn keys(plan: PlanRef) -> u64 {
    let columns = match plan.tag() {
        NodeTag::T_Sort => plan.cast::<pg_sys::Sort>().numCols,
        // Columns that are sorted already are printed once more.
        NodeTag::T_IncrementalSort => 2 * plan.cast::<pg_sys::Sort>().numCols,
        NodeTag::T_MergeAppend => plan.cast::<pg_sys::MergeAppend>().numCols,
        NodeTag::T_Group => plan.cast::<pg_sys::Group>().numCols,
        NodeTag::T_WindowAgg => {
            let window = plan.cast::<pg_sys::WindowAgg>();
            window.partNumCols + window.ordNumCols
        }
        NodeTag::T_Agg => return grouping_keys(plan.cast()),
        _ => 0,
    };
    columns.max(0) as u64
}

/// Returns the keys of an aggregation and of all its grouping sets.
fn grouping_keys(agg: Handle<pg_sys::Agg>) -> u64 {
    // `()` counts too.
    let sets = agg.lengths(|agg| &agg.groupingSets).map(|set| set.max(1) as u64);
    // Further aggregations are in the chain, each with a sort or nothing below it.
    let chain = agg.list::<pg_sys::Agg>(|agg| &agg.chain).iter().map(|agg| {
        let sort = agg.follow(|agg| &agg.plan.lefttree);
        grouping_keys(agg) + sort.map_or(0, keys)
    });
    agg.numCols.max(0) as u64 + sets.sum::<u64>() + chain.sum::<u64>()
}
