//! Shortens long constants of a plan in place while EXPLAIN prints it, or replaces all constants by symbols,
//! and restores them afterwards. Constants and modifiers that a function of another extension would print are
//! never printed.

use super::modifiers::{Modifier, Place};
use super::symbols::{Printed, Symbols, replace_by_symbol};
use super::types;
use crate::pg::server;
use pgrx::pg_sys::{self, Const, NodeTag};
use rowsource_core::normalise::List;
use std::ffi::{CStr, CString, c_char};

/// The maximal bytes of a constant that is printed in full.
const MAX_BYTES: usize = 1_024;
/// The maximal bytes of all constants that are printed in full.
const MAX_TOTAL_BYTES: usize = 64 * 1024;
/// The characters that are kept of a constant or of an array element. No element is added to a shortened
/// array from this length on.
const KEPT_CHARACTERS: usize = 100;
/// The maximal number of shortened constants.
const MAX_SHORTENED: usize = 1_000;
/// Marks a place where text was cut.
const CUT: &CStr = c"...";

/// Constants that are changed now, with their originals. Dropping this restores them.
#[derive(Default)]
pub struct Changed {
    originals: Vec<(*mut Const, Const)>,
    /// The number of the next symbol, if symbols replace the constants.
    next_symbol: Option<u32>,
    /// The lists of constants that one symbol replaces.
    lists: Vec<List>,
    /// How many constants are shortened.
    cut: usize,
    /// How many constants are replaced by symbols, because only another extension could print them.
    foreign: usize,
    /// Modifiers of types that are changed now, with the original numbers.
    modifiers: Vec<(*mut i32, i32)>,
}

impl Changed {
    /// Shortens the long constants, and replaces those that only another extension could print by symbols,
    /// the first of which has this number. Returns `None` if there are too many.
    ///
    /// # Safety
    /// * The constants must belong to a live plan.
    /// * Until the result is dropped, the plan must stay live, and no other code may read its constants. May
    ///   raise.
    pub unsafe fn shortened(constants: Vec<Printed>, first_symbol: usize) -> Option<Changed> {
        let mut changed = Changed::default();
        let mut left = MAX_TOTAL_BYTES;
        for Printed { constant, .. } in constants {
            // SAFETY: the caller makes the same promises.
            unsafe {
                if (*constant).xpr.type_ != NodeTag::T_Const || (*constant).constisnull {
                    continue;
                }
                if !types::are_values_printed_by_core((*constant).consttype) {
                    changed.originals.try_reserve(1).ok()?;
                    changed.originals.push((constant, *constant));
                    replace_by_symbol(constant, (first_symbol + changed.foreign) as u32);
                    changed.foreign += 1;
                } else if !(*constant).constbyval {
                    changed.consider(constant, &mut left)?;
                }
            }
        }
        Some(changed)
    }

    /// Replaces all constants by symbols. Returns `None` if there is no memory.
    ///
    /// # Safety
    /// * The constants must belong to a live plan.
    /// * Until the result is dropped, the plan and the current memory context must stay live, and no other
    ///   code may read the plan's constants. May raise.
    pub unsafe fn replaced(constants: &[Printed], mut symbols: Symbols) -> Option<Changed> {
        let mut changed = Changed::default();
        changed.originals.try_reserve_exact(constants.len()).ok()?;
        for printed in constants {
            // SAFETY: the constant is live by the caller's promise, unless it was replaced before. Its memory
            // has room for a symbol. See `replace` for the reasons why it is changed in place.
            unsafe {
                let constant = printed.constant;
                if (*constant).xpr.type_ == NodeTag::T_Const && symbols.hide(&*constant) {
                    changed.originals.push((constant, *constant));
                    symbols.put(printed);
                }
            }
        }
        changed.next_symbol = Some(symbols.next);
        changed.lists = symbols.lists;
        Some(changed)
    }

    /// Removes the modifiers that only another extension could print. Returns `None` if there is no memory.
    ///
    /// # Safety
    /// The same as for [`Changed::replaced`].
    pub unsafe fn remove_foreign(&mut self, modifiers: &[Modifier]) -> Option<()> {
        for Modifier { kind, place } in modifiers {
            if types::are_modifiers_printed_by_core(*kind) {
                continue;
            }
            self.originals.try_reserve(1).ok()?;
            self.modifiers.try_reserve(1).ok()?;
            // SAFETY: the place is part of a live plan by the caller's promise. See `replace` for the reasons
            // why it is changed in place. A constant that is none any more has been replaced by a symbol, for
            // which EXPLAIN prints no modifier.
            unsafe {
                match *place {
                    Place::Field(field) => self.modifiers.push((field, *field)),
                    Place::Null(constant) | Place::Argument(constant) => {
                        if (*constant).xpr.type_ != NodeTag::T_Const {
                            continue;
                        }
                        self.originals.push((constant, *constant));
                    }
                }
                place.remove();
            }
        }
        Some(())
    }

    /// Returns the number of the next symbol, if symbols replace the constants.
    pub fn next_symbol(&self) -> Option<u32> {
        self.next_symbol
    }

    /// Takes the lists of constants that one symbol replaces.
    pub fn take_lists(&mut self) -> Vec<List> {
        std::mem::take(&mut self.lists)
    }

    /// Returns how many constants are shortened.
    pub fn cut(&self) -> usize {
        match self.next_symbol {
            Some(_) => 0,
            None => self.cut,
        }
    }

    /// Shortens a constant if it is long, or if no bytes are `left`. Returns `None` if too many are
    /// shortened.
    ///
    /// # Safety
    /// * `constant` must point to a constant of a live plan, which is not null and passed by reference.
    /// * Until `self` is dropped, the plan must stay live, and no other code may read the constant. May
    ///   raise.
    unsafe fn consider(&mut self, constant: *mut Const, left: &mut usize) -> Option<()> {
        // SAFETY: the constant is live, and its value is not null and passed by reference, by the caller's
        // promise.
        unsafe {
            let short = match size(&*constant) {
                size if size > MAX_BYTES => beginning(&*constant),
                _ if *left == 0 => CUT.to_owned(),
                size if is_text((*constant).consttype) => {
                    *left = left.saturating_sub(size);
                    return Some(());
                }
                // A value of few bytes may be printed as a long text, for example the number 1e100000.
                _ => {
                    let text = printed((*constant).consttype, (*constant).constvalue);
                    let length = text.count_bytes();
                    *left = left.saturating_sub(length);
                    if length <= MAX_BYTES {
                        return Some(());
                    }
                    clipped(text.to_bytes())
                }
            };
            self.replace(constant, &short)
        }
    }

    /// Replaces a constant by a text of type "unknown", as a literal has before it gets its type.
    ///
    /// # Safety
    /// * `constant` must point to a constant of a live plan.
    /// * Until `self` is dropped, the plan and the current memory context must stay live, and no other code
    ///   may read the constant.
    unsafe fn replace(&mut self, constant: *mut Const, short: &CStr) -> Option<()> {
        if self.cut == MAX_SHORTENED {
            return None;
        }
        self.cut += 1;
        // SAFETY: the constant is written in place, because copying the plan would copy the long constants.
        // Its memory belongs to this process, although a plan cache may share it. The executor has already
        // compiled the values into its expressions, and does not read the constants any more. It runs no node
        // and starts no worker until EXPLAIN has finished. Dropping `self` restores everything, also after an
        // error. The new value is in the current memory context, which outlives `self`.
        unsafe {
            self.originals.push((constant, *constant));
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

impl Drop for Changed {
    fn drop(&mut self) {
        for (field, original) in self.modifiers.drain(..).rev() {
            // SAFETY: the caller of `remove_foreign` promised that the plan is still live.
            unsafe { field.write(original) };
        }
        // The order is reversed, because a constant may be in the list twice.
        for (constant, original) in self.originals.drain(..).rev() {
            // SAFETY: the caller of `shortened` or `replaced` promised that the plan is still live, and that
            // no other code reads its constants.
            unsafe { constant.write(original) };
        }
    }
}

/// Returns how many bytes a constant's value has.
///
/// # Safety
/// The value of `constant` must be live, passed by reference, and of the length that `constlen` says.
unsafe fn size(constant: &Const) -> usize {
    // SAFETY: the value points to as many bytes as the length says, by the caller's promise.
    unsafe {
        let value: *const c_char = constant.constvalue.cast_mut_ptr();
        match constant.constlen {
            // A value is only compressed or stored elsewhere if it is long.
            -1 if is_stored_otherwise(constant) => usize::MAX,
            -1 => pgrx::varsize_any_exhdr(value.cast()),
            -2 => libc::strnlen(value, MAX_BYTES + 1),
            length => length.max(0) as usize,
        }
    }
}

/// Returns whether a value is compressed or stored outside the constant.
///
/// # Safety
/// The value of `constant` must be live and have a varlena header.
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

/// Returns a value as its type prints it.
///
/// # Safety
/// * `value` must be a live value of type `kind`.
/// * The current memory context must outlive the result. May raise.
unsafe fn printed<'a>(kind: pg_sys::Oid, value: pg_sys::Datum) -> &'a CStr {
    // SAFETY: the value is of this type by the caller's promise. The text is allocated in the current memory
    // context.
    unsafe {
        let (mut function, mut is_varlena) = (pg_sys::InvalidOid, false);
        pg_sys::getTypeOutputInfo(kind, &mut function, &mut is_varlena);
        CStr::from_ptr(pg_sys::OidOutputFunctionCall(function, value))
    }
}

/// Returns the beginning of a long constant, if it can be read without the rest.
///
/// # Safety
/// The value of `constant` must be live, of its type, and passed by reference. May raise.
unsafe fn beginning(constant: &Const) -> CString {
    // SAFETY: the value is live and of its type by the caller's promise, so its header tells its length.
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

/// Returns the bytes of a varlena value.
///
/// # Safety
/// * `value` must point to a value that is neither compressed nor stored elsewhere.
/// * The value must outlive the result.
unsafe fn varlena<'a>(value: *const pg_sys::varlena) -> &'a [u8] {
    // SAFETY: the value is neither compressed nor stored elsewhere, by the caller's promise. So its bytes
    // follow its header.
    unsafe { std::slice::from_raw_parts(pgrx::vardata_any(value).cast(), pgrx::varsize_any_exhdr(value)) }
}

/// Returns the first elements of a long array, if a short element of their type prints few bytes.
///
/// # Safety
/// `array` must point to a live array that is neither compressed nor stored elsewhere. Its elements must be
/// of type `kind`. May raise.
unsafe fn first_elements(array: *mut pg_sys::ArrayType, kind: pg_sys::Oid) -> CString {
    let mut text = b"{".to_vec();
    // SAFETY: the array has elements of this type by the caller's promise. Those that are not texts are
    // passed by value.
    unsafe {
        if !is_text(kind) && !pg_sys::get_typbyval(kind) {
            return CUT.to_owned();
        }
        let elements = pg_sys::array_create_iterator(array, 0, std::ptr::null_mut());
        let (mut value, mut is_null) = (pg_sys::Datum::null(), false);
        while text.len() < KEPT_CHARACTERS && pg_sys::array_iterate(elements, &mut value, &mut is_null) {
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

/// Returns a text's first characters, and a mark if it was cut.
fn clipped(text: &[u8]) -> CString {
    let kept = server::first_characters(text, KEPT_CHARACTERS);
    let mark: &[u8] = if kept.len() < text.len() {
        CUT.to_bytes()
    } else {
        b""
    };
    CString::new([kept, mark].concat()).unwrap_or_default()
}
