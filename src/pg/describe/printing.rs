//! Bounds what EXPLAIN prints of a plan: it prints every expression and every constant in full.
//!
//! The expressions are walked beforehand, until a limit is passed. Long constants are shortened in place while EXPLAIN
//! prints. What is too long even so is not printed at all.

use crate::pg::compat::expression::expression_tree_walker;
use crate::pg::server;
use crate::pg::store::MOST_NODES;
use crate::pg::tree::{Found, list, tag};
use pgrx::pg_sys::{self, Const, List, Node, NodeTag, Plan, QueryDesc};
use std::ffi::{CStr, CString, c_char, c_void};

/// Parts of expressions that EXPLAIN may print: some milliseconds.
const MOST_PRINTED: u64 = 20_000;
/// Parts of all expressions that are walked. Most are columns that nodes hand on, which are not printed.
const MOST_WALKED: u64 = 200_000;
/// The sum over all range table entries of the square of their columns: EXPLAIN compares the names of a table's columns
/// with each other.
const MOST_COLUMNS: u64 = 20_000_000;
/// Bytes of a constant that is printed in full.
const LONGEST_CONSTANT: usize = 1_024;
/// Bytes of all constants that are printed in full.
const MOST_CONSTANTS: usize = 64 * 1024;
/// Characters of a shortened constant, elements of a shortened array.
const SHORTENED: usize = 100;
/// Constants that are shortened at most.
const MOST_SHORTENED: usize = 1_000;

/// Makes what EXPLAIN would print short enough, until the answer is dropped. `None` where that cannot be done.
///
/// # Safety
/// `query` must be started, and `found` be the nodes of its plan. May raise. Nobody else may look at the plan's
/// constants until the answer is dropped.
pub unsafe fn bounded(query: *mut QueryDesc, found: &[Found]) -> Option<Shortened> {
    // SAFETY: `query` is started and `found` are its nodes, by the caller's promise: the plan and its constants are
    // live.
    unsafe {
        if found.len() > MOST_NODES || !columns_are_few((*(*query).plannedstmt).rtable) {
            return None;
        }
        let constants = constants(found)?;
        let mut shortened = Shortened::default();
        let mut left = MOST_CONSTANTS;
        for constant in constants {
            shortened.consider(constant, &mut left)?;
        }
        Some(shortened)
    }
}

/// Returns whether EXPLAIN can make the names of all columns differ in reasonable time.
///
/// # Safety
/// `table` must be null or the range table of a live planned statement.
unsafe fn columns_are_few(table: *mut List) -> bool {
    let (mut entries, mut squares) = (0, 0);
    // SAFETY: a range table; every entry has its column names.
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
            entries <= 2 * MOST_NODES && squares <= MOST_COLUMNS
        })
    }
}

/// Walks all expressions. Returns the constants among them that may be long; `None` where EXPLAIN would print too much.
///
/// EXPLAIN prints a reference to a column of a node below as that column's expression, and so on down to the tables;
/// hence what a column takes is known from the bottom up.
///
/// # Safety
/// `found` must be the initialised nodes of a live plan. May raise.
unsafe fn constants(found: &[Found]) -> Option<Vec<*mut Const>> {
    let mut walk = Walk::default();
    // What the longest column of the nodes directly below each node takes.
    let mut below = vec![1u64; found.len()];
    let (mut printed, mut parameters, mut longest) = (0u64, 0u64, 1u64);
    for (i, place) in found.iter().enumerate().rev() {
        // SAFETY: the nodes are initialised by the caller's promise, and so have plan nodes of their types.
        unsafe {
            let plan = (*place.plan_state).plan;
            // An index's or a foreign scan's own columns.
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
            }
        }
    }
    // A parameter is printed as the expression of another node that it stands for.
    printed = printed.saturating_add(parameters.saturating_mul(longest));
    (printed <= MOST_PRINTED).then_some(walk.constants)
}

/// The parts of one expression.
#[derive(Clone, Copy, Default)]
struct Counted {
    parts: u64,
    /// References to columns of nodes below.
    references: u64,
    parameters: u64,
}

impl Counted {
    /// Returns what it takes to print it, where a reference takes so much.
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
    constants: Vec<*mut Const>,
}

impl Walk {
    /// Counts the parts of an expression, and remembers its constants. `None` where there are too many.
    ///
    /// # Safety
    /// `expression` must be null or an expression (or a List of them) of a live plan. May raise.
    unsafe fn count(&mut self, expression: *mut Node) -> Option<Counted> {
        self.counted = Counted::default();
        let context: *mut Walk = self;
        // SAFETY: an expression of a plan. The walker's frames are plain, so an error may cross them.
        let stopped = unsafe { pg_sys::ffi::pg_guard_ffi_boundary(|| visit(expression, context.cast())) };
        (!stopped).then_some(self.counted)
    }
}

/// Visits a part of an expression; true stops the walk.
///
/// # Safety
/// * `node` must be null or a part of an expression of a live plan.
/// * `context` must point to a [`Walk`] to which nobody holds a reference.
/// * An error crosses the caller's frame, which must be plain.
unsafe extern "C-unwind" fn visit(node: *mut Node, context: *mut c_void) -> bool {
    if node.is_null() {
        return false;
    }
    // SAFETY: the context is the walk that called the walker; casts follow the tag.
    unsafe {
        let walk = context.cast::<Walk>();
        (*walk).walked += 1;
        (*walk).counted.parts += 1;
        if (*walk).walked > MOST_WALKED {
            return true;
        }
        match tag(node) {
            NodeTag::T_Var if (*node.cast::<pg_sys::Var>()).varno < 0 => (*walk).counted.references += 1,
            NodeTag::T_Param => (*walk).counted.parameters += 1,
            NodeTag::T_Const => {
                let constant = node.cast::<Const>();
                let constants = &mut (*walk).constants;
                if !(*constant).constisnull && !(*constant).constbyval {
                    if constants.len() as u64 >= MOST_PRINTED || constants.try_reserve(1).is_err() {
                        return true;
                    }
                    constants.push(constant);
                }
                return false;
            }
            _ => {}
        }
        expression_tree_walker(node, visit, context)
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

/// Returns the expressions of a node that EXPLAIN prints as they are.
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
            // Those that are sorted already are printed once more.
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
    // SAFETY: grouping sets are lists of numbers; a chain has further aggregations, with a sort below each.
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

/// Constants that are shorter than they are. They are put back when this is dropped.
#[derive(Default)]
pub struct Shortened(Vec<(*mut Const, Const)>);

impl Shortened {
    /// Returns how many constants are shortened.
    pub fn cut(&self) -> usize {
        self.0.len()
    }

    /// Shortens a constant if it is long, or if the others have used what is left. `None` where too many are.
    ///
    /// # Safety
    /// * `constant` must be a constant by reference, not null, of a live plan.
    /// * The plan must stay, and nobody else may look at the constant, until `self` is dropped. May raise.
    unsafe fn consider(&mut self, constant: *mut Const, left: &mut usize) -> Option<()> {
        // SAFETY: a constant of the plan, which has a value by reference.
        unsafe {
            let short = match size(&*constant) {
                size if size > LONGEST_CONSTANT => beginning(&*constant),
                _ if *left == 0 => CUT.to_owned(),
                size if is_text((*constant).consttype) => {
                    *left = left.saturating_sub(size);
                    return Some(());
                }
                // Few bytes may be a long text: the number 1e100000 is one.
                _ => {
                    let text = printed((*constant).consttype, (*constant).constvalue);
                    let length = text.count_bytes();
                    *left = left.saturating_sub(length);
                    if length <= LONGEST_CONSTANT {
                        return Some(());
                    }
                    clipped(text.to_bytes())
                }
            };
            self.replace(constant, &short)
        }
    }

    /// Puts a text of no type in a constant's place, which is what a literal is before it gets one.
    ///
    /// # Safety
    /// * `constant` must point to a constant of a live plan.
    /// * The plan and the current memory context must stay, and nobody else may look at the constant, until `self` is
    ///   dropped.
    unsafe fn replace(&mut self, constant: *mut Const, short: &CStr) -> Option<()> {
        if self.0.len() == MOST_SHORTENED {
            return None;
        }
        // SAFETY: the constant is written in place, for its plan may be shared with a plan cache, and copying a plan
        // would copy the long constants. Its memory is this process's own. The executor has compiled the values into
        // its expressions before, and reads constants no more; it runs no node and starts no worker until EXPLAIN is
        // through, and dropping `self` puts all back on every way out. What replaces the value lies in the current
        // memory context, which stays until after that.
        unsafe {
            self.0.push((constant, *constant));
            let text = pg_sys::pstrdup(short.as_ptr());
            (*constant).consttype = pg_sys::UNKNOWNOID;
            (*constant).consttypmod = -1;
            (*constant).constcollid = pg_sys::InvalidOid;
            (*constant).constlen = -2;
            (*constant).constvalue = pg_sys::Datum::from(text);
        }
        Some(())
    }
}

impl Drop for Shortened {
    fn drop(&mut self) {
        // The last ones first: a constant may be there twice.
        for (constant, original) in self.0.drain(..).rev() {
            // SAFETY: the caller of `consider` promised that the plan stays until now, and that nobody looks at its
            // constants.
            unsafe { constant.write(original) };
        }
    }
}

/// Returns the bytes of a constant's value.
///
/// # Safety
/// The value of `constant` must be a live one by reference, of the length that `constlen` says.
unsafe fn size(constant: &Const) -> usize {
    // SAFETY: the value is a pointer, to what its length says.
    unsafe {
        let value: *const c_char = constant.constvalue.cast_mut_ptr();
        match constant.constlen {
            // Whatever is compressed or stored elsewhere was long.
            -1 if is_stored_otherwise(constant) => usize::MAX,
            -1 => pgrx::varsize_any_exhdr(value.cast()),
            -2 => libc::strnlen(value, LONGEST_CONSTANT + 1),
            length => length.max(0) as usize,
        }
    }
}

/// Returns whether a value is compressed, or stored outside of the constant.
///
/// # Safety
/// The value of `constant` must be a live one with a varlena header.
unsafe fn is_stored_otherwise(constant: &Const) -> bool {
    let value: *const pg_sys::varlena = constant.constvalue.cast_mut_ptr();
    // SAFETY: the value has a header by the caller's promise.
    unsafe { pgrx::varatt_is_1b_e(value) || pgrx::varatt_is_4b_c(value) }
}

/// Returns whether a type's values are printed byte by byte.
fn is_text(kind: pg_sys::Oid) -> bool {
    let texts = [
        pg_sys::TEXTOID,
        pg_sys::VARCHAROID,
        pg_sys::BPCHAROID,
        pg_sys::JSONOID,
        pg_sys::XMLOID,
    ];
    texts.contains(&kind)
}

/// Returns what a value's type prints of it.
///
/// # Safety
/// * `value` must be a live value of type `kind`.
/// * The memory context that is current must outlive the answer. May raise.
unsafe fn printed<'a>(kind: pg_sys::Oid, value: pg_sys::Datum) -> &'a CStr {
    // SAFETY: a value of this type; the text lies in the current memory context.
    unsafe {
        let (mut function, mut is_varlena) = (pg_sys::InvalidOid, false);
        pg_sys::getTypeOutputInfo(kind, &mut function, &mut is_varlena);
        CStr::from_ptr(pg_sys::OidOutputFunctionCall(function, value))
    }
}

/// Returns the beginning of a long constant, as far as it can be had without looking at the rest.
///
/// # Safety
/// The value of `constant` must be a live one by reference, of its type. May raise.
unsafe fn beginning(constant: &Const) -> CString {
    // SAFETY: the value is of its type, and as long as its header says.
    unsafe {
        if constant.constlen != -1 || is_stored_otherwise(constant) {
            return CUT.to_owned();
        }
        let element = pg_sys::get_element_type(constant.consttype);
        if element != pg_sys::InvalidOid {
            return first_elements(constant.constvalue.cast_mut_ptr(), element);
        }
        if is_text(constant.consttype) {
            return clipped(varlena(constant.constvalue.cast_mut_ptr()));
        }
        CUT.to_owned()
    }
}

/// Returns the bytes of a value.
///
/// # Safety
/// * `value` must point to a value that is neither compressed nor stored elsewhere.
/// * The value must outlive the answer.
unsafe fn varlena<'a>(value: *const pg_sys::varlena) -> &'a [u8] {
    // SAFETY: the value is neither compressed nor stored elsewhere, by the caller's promise: its bytes follow its
    // header.
    unsafe { std::slice::from_raw_parts(pgrx::vardata_any(value).cast(), pgrx::varsize_any_exhdr(value)) }
}

/// Returns the first elements of a long array, if their type prints few bytes for few.
///
/// # Safety
/// `array` must point to a live array whose elements are of type `kind`, neither compressed nor stored elsewhere. May
/// raise.
unsafe fn first_elements(array: *mut pg_sys::ArrayType, kind: pg_sys::Oid) -> CString {
    let mut text = b"{".to_vec();
    // SAFETY: an array of this type. Elements that are no texts are values in themselves.
    unsafe {
        if !is_text(kind) && !pg_sys::get_typbyval(kind) {
            return CUT.to_owned();
        }
        let elements = pg_sys::array_create_iterator(array, 0, std::ptr::null_mut());
        let (mut value, mut is_null) = (pg_sys::Datum::null(), false);
        while text.len() < SHORTENED && pg_sys::array_iterate(elements, &mut value, &mut is_null) {
            if is_null {
                text.extend_from_slice(b"NULL");
            } else if is_text(kind) {
                let element: *const pg_sys::varlena = value.cast_mut_ptr();
                if pgrx::varatt_is_1b_e(element) || pgrx::varatt_is_4b_c(element) {
                    break;
                }
                text.extend_from_slice(clipped(varlena(element)).as_bytes());
            } else {
                text.extend_from_slice(printed(kind, value).to_bytes());
            }
            text.push(b',');
        }
    }
    text.extend_from_slice(b"...}");
    CString::new(text).unwrap_or_default()
}

/// Returns a text's first characters, and a mark if that is not all.
fn clipped(text: &[u8]) -> CString {
    let kept = server::first_characters(text, SHORTENED);
    let mark: &[u8] = if kept.len() < text.len() {
        CUT.to_bytes()
    } else {
        b""
    };
    CString::new([kept, mark].concat()).unwrap_or_default()
}

/// What stands where something was cut.
const CUT: &CStr = c"...";
