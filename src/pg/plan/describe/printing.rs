//! Limits what EXPLAIN prints of a plan. EXPLAIN itself prints every expression and every constant in full.
//!
//! Before EXPLAIN runs, the expressions are walked up to a limit. Long constants are shortened while EXPLAIN
//! prints (`constants`). If the plan is still too long, it is not printed at all.

use super::constants::Changed;
use super::modifiers::{self, Modifier};
use super::symbols::{Printed, Symbols};
use crate::pg::compat::expression::expression_tree_walker;
use crate::pg::plan::tree::{Found, list, tag};
use pgrx::pg_sys::{self, Const, List, Node, NodeTag, Plan, QueryDesc};
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

/// Shortens what EXPLAIN prints until the result is dropped, or replaces all constants by symbols. Returns
/// `None` if it would still be too long.
///
/// # Safety
/// `query` must be started, and `found` be the nodes of its plan. No other code may read the plan's constants
/// until the result is dropped. May raise.
pub unsafe fn bounded(query: *mut QueryDesc, found: &[Found], symbols: Option<Symbols>) -> Option<Changed> {
    // SAFETY: `query` is started and `found` are its nodes, by the caller's promise. So the plan and its
    // constants are live.
    unsafe {
        if found.len() > MAX_NODES || !columns_are_few((*(*query).plannedstmt).rtable) {
            return None;
        }
        let (constants, modifiers) = constants(found)?;
        let mut changed = match symbols {
            Some(symbols) => Changed::replaced(&constants, symbols)?,
            None => Changed::shortened(constants, parameters(query) + 1)?,
        };
        changed.remove_foreign(&modifiers)?;
        Some(changed)
    }
}

/// Returns the number of parameters of a query.
///
/// # Safety
/// `query` must be started.
unsafe fn parameters(query: *mut QueryDesc) -> usize {
    // SAFETY: the parameters of a started query are null or live.
    unsafe { (*query).params.as_ref() }.map_or(0, |parameters| parameters.numParams.max(0) as usize)
}

/// Returns whether EXPLAIN can make all column names unique in reasonable time.
///
/// # Safety
/// `table` must be null or the range table of a live planned statement.
unsafe fn columns_are_few(table: *mut List) -> bool {
    let (mut entries, mut squares) = (0, 0);
    // SAFETY: the range table is live by the caller's promise. It is a list of entries, and each entry has
    // its column names.
    unsafe {
        list::<pg_sys::RangeTblEntry>(table).all(|entry| {
            let names = (*(*entry).eref).colnames;
            let columns = if names.is_null() {
                0
            } else {
                (*names).length as u64
            };
            entries += 1;
            squares += columns * columns;
            entries <= 2 * MAX_NODES && squares <= MAX_SQUARED_COLUMNS
        })
    }
}

/// Walks all expressions. Returns the constants among them and the modifiers of types, or `None` if EXPLAIN
/// would print too much.
///
/// EXPLAIN prints a reference to a column of a lower node as that column's expression, recursively down to
/// the tables. So the walk goes from the bottom up.
///
/// # Safety
/// `found` must be the initialised nodes of a live plan. May raise.
unsafe fn constants(found: &[Found]) -> Option<(Vec<Printed>, Vec<Modifier>)> {
    let mut walk = Walk::default();
    // For each node, the parts of the longest column of the nodes directly below it.
    let mut below = vec![1u64; found.len()];
    // For each node, whether the child whose columns EXPLAIN prints for those of an Append has run.
    let mut has_first = vec![false; found.len()];
    let (mut printed, mut parameters, mut longest) = (0u64, 0u64, 1u64);
    for (i, place) in found.iter().enumerate().rev() {
        // SAFETY: the nodes are initialised by the caller's promise, so they have plan nodes of their types.
        unsafe {
            let plan = (*place.plan_state).plan;
            let first = first_child(plan);
            if !first.is_null() && !has_first[i] {
                below[i] = below[i].max(walk.longest_column(first)?);
            }
            // Columns of an index, or of a foreign or custom scan itself.
            for column in list::<Node>(own_columns(plan)) {
                below[i] = below[i].max(walk.count(column)?.parts);
            }
            let mut column_takes = 1;
            for column in list::<Node>((*plan).targetlist) {
                column_takes = column_takes.max(walk.count(column)?.takes(below[i]));
            }
            for expression in printed_expressions(plan) {
                let counted = walk.count(expression)?;
                printed = counted.takes(below[i]).saturating_add(printed);
                parameters += counted.parameters;
            }
            let keys = keys(plan).saturating_mul(column_takes.max(below[i]));
            printed = printed.saturating_add(keys);
            longest = longest.max(column_takes);
            if let Ok(parent) = usize::try_from(place.parent) {
                below[parent] = below[parent].max(column_takes);
                has_first[parent] |= first_child((*found[parent].plan_state).plan) == plan;
            }
        }
    }
    // A parameter is printed as the expression of another node that computes it.
    printed = printed.saturating_add(parameters.saturating_mul(longest));
    (printed <= MAX_PRINTED).then_some((walk.constants, walk.modifiers))
}

/// The numbers of parts of one expression.
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
struct Walk {
    walked: u64,
    counted: Counted,
    constants: Vec<Printed>,
    /// Those of types that are not PostgreSQL's own.
    modifiers: Vec<Modifier>,
}

impl Walk {
    /// Counts the parts of an expression, and collects its constants. Returns `None` if there are too many.
    ///
    /// # Safety
    /// `expression` must be null or an expression (or a List of them) of a live plan. May raise.
    unsafe fn count(&mut self, expression: *mut Node) -> Option<Counted> {
        self.counted = Counted::default();
        let context: *mut Walk = self;
        // SAFETY: the expression is of a live plan by the caller's promise. The walker's frames are plain, so
        // an error may cross them.
        let stopped = unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| visit(expression, context.cast())) };
        (!stopped).then_some(self.counted)
    }

    /// Counts the columns of a plan that was pruned when the executor started, so that it has no states.
    /// EXPLAIN prints the columns of an Append as those of its first child all the same. Returns the parts of
    /// the longest one.
    ///
    /// # Safety
    /// `plan` must be null or point to a live plan. May raise.
    unsafe fn longest_column(&mut self, plan: *mut Plan) -> Option<u64> {
        if plan.is_null() {
            return Some(1);
        }
        // SAFETY: the plan and those below it are live by the caller's promise, and of the types that their
        // tags say.
        unsafe {
            pg_sys::check_stack_depth();
            let input = match tag(plan) {
                NodeTag::T_SubqueryScan => (*plan.cast::<pg_sys::SubqueryScan>()).subplan,
                _ => first_child(plan),
            };
            let mut below = 1;
            for input in [(*plan).lefttree, (*plan).righttree, input] {
                below = below.max(self.longest_column(input)?);
            }
            for column in list::<Node>(own_columns(plan)) {
                below = below.max(self.count(column)?.parts);
            }
            let mut longest = 1;
            for column in list::<Node>((*plan).targetlist) {
                longest = longest.max(self.count(column)?.takes(below));
            }
            Some(longest)
        }
    }

    /// Adds a constant. Returns false if there is no memory.
    fn add(&mut self, printed: Printed) -> bool {
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
    // SAFETY: the context is a walk by the caller's promise. Each node is of the type that its tag says.
    unsafe {
        let walk = context.cast::<Walk>();
        (*walk).walked += 1;
        (*walk).counted.parts += 1;
        if (*walk).walked > MAX_WALKED {
            return true;
        }
        if !modifiers::add(node, &mut (*walk).modifiers) {
            return true;
        }
        match tag(node) {
            NodeTag::T_Var if (*node.cast::<pg_sys::Var>()).varno < 0 => (*walk).counted.references += 1,
            NodeTag::T_Param => (*walk).counted.parameters += 1,
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
                    (*xml).op,
                    pg_sys::XmlExprOp::IS_XMLPARSE | pg_sys::XmlExprOp::IS_XMLROOT
                );
                let skipped = usize::from(has_option);
                let arguments = list::<Node>((*xml).args);
                let count = arguments.size_hint().0.saturating_sub(skipped);
                let mut named = list::<Node>((*xml).named_args);
                return named.any(|argument| visit(argument, context))
                    || list::<Node>((*xml).args)
                        .take(count)
                        .any(|argument| visit(argument, context));
            }
            _ => {}
        }
        expression_tree_walker(node, visit, context)
    }
}

/// Visits an operator with an array: `IN`, for example. Returns true to stop the walk.
///
/// # Safety
/// As [`visit`], for such an operator.
unsafe fn visit_array_operator(operator: *mut pg_sys::ScalarArrayOpExpr, context: *mut c_void) -> bool {
    // SAFETY: the caller makes the same promises. The arguments are a list of nodes, and the second is the
    // array.
    unsafe {
        let walk = context.cast::<Walk>();
        let mut arguments = list::<Node>((*operator).args).enumerate();
        arguments.any(|(i, argument)| {
            if i == 1 && tag(argument) == NodeTag::T_Const {
                (*walk).counted.parts += 1;
                return !(*walk).add(Printed {
                    constant: argument.cast(),
                    as_text: false,
                    operator_at: (*operator).location,
                });
            }
            visit(argument, context)
        })
    }
}

/// Visits a call of a function. Returns true to stop the walk.
///
/// # Safety
/// As [`visit`], for a function call.
unsafe fn visit_function(function: *mut pg_sys::FuncExpr, context: *mut c_void) -> bool {
    use pg_sys::CoercionForm::*;
    // SAFETY: the caller makes the same promises. The arguments are a list of nodes.
    unsafe {
        let walk = context.cast::<Walk>();
        let form = (*function).funcformat;
        let is_cast = matches!(form, COERCE_EXPLICIT_CAST | COERCE_IMPLICIT_CAST);
        // The further arguments of a cast are the type's modifier, which EXPLAIN reads.
        let count = if is_cast { 1 } else { usize::MAX };
        list::<Node>((*function).args).take(count).any(|argument| {
            let constant = argument.cast::<Const>();
            // EXPLAIN reads some arguments of SQL's own syntax, for example the field of EXTRACT.
            let as_text = form == COERCE_SQL_SYNTAX
                && tag(argument) == NodeTag::T_Const
                && (*constant).consttype == pg_sys::TEXTOID
                && !(*constant).constisnull;
            if as_text {
                return !(*walk).add(Printed {
                    constant,
                    as_text,
                    operator_at: -1,
                });
            }
            visit(argument, context)
        })
    }
}

/// Returns the columns that only this node refers to.
///
/// # Safety
/// `plan` must point to a live plan node, whose tag tells its type.
unsafe fn own_columns(plan: *mut Plan) -> *mut List {
    // SAFETY: the plan node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        match tag(plan) {
            NodeTag::T_IndexOnlyScan => (*plan.cast::<pg_sys::IndexOnlyScan>()).indextlist,
            NodeTag::T_ForeignScan => (*plan.cast::<pg_sys::ForeignScan>()).fdw_scan_tlist,
            NodeTag::T_CustomScan => (*plan.cast::<pg_sys::CustomScan>()).custom_scan_tlist,
            _ => std::ptr::null_mut(),
        }
    }
}

/// Returns the first child of an Append or MergeAppend, else null. EXPLAIN prints its columns for those of
/// the node.
///
/// # Safety
/// `plan` must point to a live plan node, whose tag tells its type.
unsafe fn first_child(plan: *mut Plan) -> *mut Plan {
    // SAFETY: the plan node is live by the caller's promise, and of the type that its tag says. Its children
    // are a list of plans.
    unsafe {
        let children = match tag(plan) {
            NodeTag::T_Append => (*plan.cast::<pg_sys::Append>()).appendplans,
            NodeTag::T_MergeAppend => (*plan.cast::<pg_sys::MergeAppend>()).mergeplans,
            _ => std::ptr::null_mut(),
        };
        list::<Plan>(children).next().unwrap_or(std::ptr::null_mut())
    }
}

/// Returns the expressions of a node that EXPLAIN prints.
///
/// # Safety
/// `plan` must point to a live plan node, whose tag tells its type.
unsafe fn printed_expressions(plan: *mut Plan) -> [*mut Node; 5] {
    // SAFETY: the plan node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        let none: *mut List = std::ptr::null_mut();
        let join = |more: *mut List| [(*plan.cast::<pg_sys::Join>()).joinqual, more, none, none];
        let others = match tag(plan) {
            NodeTag::T_IndexScan => {
                let scan = plan.cast::<pg_sys::IndexScan>();
                [(*scan).indexqualorig, (*scan).indexorderbyorig, none, none]
            }
            NodeTag::T_IndexOnlyScan => {
                let scan = plan.cast::<pg_sys::IndexOnlyScan>();
                [(*scan).indexqual, (*scan).indexorderby, (*scan).recheckqual, none]
            }
            NodeTag::T_BitmapIndexScan => [
                (*plan.cast::<pg_sys::BitmapIndexScan>()).indexqualorig,
                none,
                none,
                none,
            ],
            NodeTag::T_BitmapHeapScan => [
                (*plan.cast::<pg_sys::BitmapHeapScan>()).bitmapqualorig,
                none,
                none,
                none,
            ],
            NodeTag::T_SampleScan => [
                (*plan.cast::<pg_sys::SampleScan>()).tablesample.cast(),
                none,
                none,
                none,
            ],
            NodeTag::T_TidScan => [(*plan.cast::<pg_sys::TidScan>()).tidquals, none, none, none],
            NodeTag::T_TidRangeScan => [
                (*plan.cast::<pg_sys::TidRangeScan>()).tidrangequals,
                none,
                none,
                none,
            ],
            NodeTag::T_ForeignScan => [(*plan.cast::<pg_sys::ForeignScan>()).fdw_exprs, none, none, none],
            NodeTag::T_CustomScan => [
                (*plan.cast::<pg_sys::CustomScan>()).custom_exprs,
                none,
                none,
                none,
            ],
            NodeTag::T_NestLoop => join(none),
            NodeTag::T_MergeJoin => join((*plan.cast::<pg_sys::MergeJoin>()).mergeclauses),
            NodeTag::T_HashJoin => join((*plan.cast::<pg_sys::HashJoin>()).hashclauses),
            NodeTag::T_Result => [
                (*plan.cast::<pg_sys::Result>()).resconstantqual.cast(),
                none,
                none,
                none,
            ],
            NodeTag::T_ModifyTable => [
                (*plan.cast::<pg_sys::ModifyTable>()).onConflictWhere.cast(),
                none,
                none,
                none,
            ],
            NodeTag::T_Memoize => [(*plan.cast::<pg_sys::Memoize>()).param_exprs, none, none, none],
            NodeTag::T_WindowAgg => {
                let window = plan.cast::<pg_sys::WindowAgg>();
                [
                    (*window).runCondition,
                    (*window).runConditionOrig,
                    (*window).startOffset.cast(),
                    (*window).endOffset.cast(),
                ]
            }
            _ => [none; 4],
        };
        let [a, b, c, d] = others;
        [(*plan).qual, a, b, c, d].map(|list| list.cast())
    }
}

/// Returns how many columns EXPLAIN prints as the keys of a node.
///
/// # Safety
/// `plan` must point to a live plan node, whose tag tells its type.
unsafe fn keys(plan: *mut Plan) -> u64 {
    // SAFETY: the plan node is live by the caller's promise, and of the type that its tag says.
    unsafe {
        let columns = match tag(plan) {
            NodeTag::T_Sort => (*plan.cast::<pg_sys::Sort>()).numCols,
            // Columns that are sorted already are printed once more.
            NodeTag::T_IncrementalSort => 2 * (*plan.cast::<pg_sys::Sort>()).numCols,
            NodeTag::T_MergeAppend => (*plan.cast::<pg_sys::MergeAppend>()).numCols,
            NodeTag::T_Group => (*plan.cast::<pg_sys::Group>()).numCols,
            NodeTag::T_WindowAgg => {
                let window = plan.cast::<pg_sys::WindowAgg>();
                (*window).partNumCols + (*window).ordNumCols
            }
            NodeTag::T_Agg => return grouping_keys(plan.cast()),
            _ => 0,
        };
        columns.max(0) as u64
    }
}

/// Returns the keys of an aggregation and of all its grouping sets.
///
/// # Safety
/// `agg` must point to a live aggregation's plan node.
unsafe fn grouping_keys(agg: *mut pg_sys::Agg) -> u64 {
    // SAFETY: the aggregation is live by the caller's promise. Grouping sets are lists of numbers. Further
    // aggregations are in the chain, each with a sort or null below it.
    unsafe {
        let sets: u64 = list::<List>((*agg).groupingSets)
            .map(|set| if set.is_null() { 1 } else { (*set).length as u64 })
            .sum();
        let chain: u64 = list::<pg_sys::Agg>((*agg).chain)
            .map(|agg| {
                let sort = (*agg).plan.lefttree;
                grouping_keys(agg) + if sort.is_null() { 0 } else { keys(sort) }
            })
            .sum();
        (*agg).numCols.max(0) as u64 + sets + chain
    }
}
