//! Shortens long constants of a plan in place while EXPLAIN prints it, or replaces all constants by symbols,
//! and restores them afterwards. Constants and modifiers that a function of another extension would print are
//! never printed.

use super::modifiers::{Modifier, Place};
use super::symbols::{Printed, Symbols, replace_by_symbol};
use super::types;
use crate::pg::handles::Handle;
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
pub struct Changed<'q> {
    originals: Vec<(Handle<'q, Const>, Const)>,
    /// The number of the next symbol, if symbols replace the constants.
    next_symbol: Option<u32>,
    /// The lists of constants that one symbol replaces.
    lists: Vec<List>,
    /// How many constants are shortened.
    cut: usize,
    /// How many constants are replaced by symbols, because only another extension could print them.
    foreign: usize,
    /// Modifiers of types that are changed now, with the original numbers.
    modifiers: Vec<(Handle<'q, i32>, i32)>,
}

impl<'q> Changed<'q> {
    /// Begins with nothing changed.
    ///
    /// # Safety
    /// Until the result is dropped, which must happen, no reference to a constant or a type's modifier of the
    /// plan may be in use, and the current memory context must stay live.
    pub unsafe fn nothing() -> Changed<'q> {
        Changed {
            originals: Vec::new(),
            next_symbol: None,
            lists: Vec::new(),
            cut: 0,
            foreign: 0,
            modifiers: Vec::new(),
        }
    }

    /// Shortens the long constants, and replaces those that only another extension could print by symbols,
    /// the first of which has this number. Returns `None` if there are too many. May raise.
    pub fn shorten(&mut self, constants: &[Printed<'q>], first_symbol: usize) -> Option<()> {
        let mut left = MAX_TOTAL_BYTES;
        for &Printed { constant, .. } in constants {
            if constant.xpr.type_ != NodeTag::T_Const || constant.constisnull {
                continue;
            }
            if !types::are_values_printed_by_core(constant.consttype) {
                self.originals.try_reserve(1).ok()?;
                self.originals.push((constant, *constant));
                // SAFETY: dropping `self` restores it, and no reference is in use: see `nothing`.
                unsafe { replace_by_symbol(constant, (first_symbol + self.foreign) as u32) };
                self.foreign += 1;
            } else if !constant.constbyval {
                self.consider(constant, &mut left)?;
            }
        }
        Some(())
    }

    /// Replaces all constants by symbols. Returns `None` if there is no memory. May raise.
    pub fn replace_all(&mut self, constants: &[Printed<'q>], mut symbols: Symbols) -> Option<()> {
        self.originals.try_reserve_exact(constants.len()).ok()?;
        for printed in constants {
            let constant = printed.constant;
            // What is none any more was replaced before.
            if constant.xpr.type_ == NodeTag::T_Const && symbols.hide(&constant) {
                self.originals.push((constant, *constant));
                // SAFETY: dropping `self` restores it, no reference is in use, and the memory context stays:
                // see `nothing`. See `replace` for the reasons why it is changed in place.
                unsafe { symbols.put(printed) };
            }
        }
        self.next_symbol = Some(symbols.next);
        self.lists = symbols.lists;
        Some(())
    }

    /// Removes the modifiers that only another extension could print. Returns `None` if there is no memory.
    pub fn remove_foreign(&mut self, modifiers: &[Modifier<'q>]) -> Option<()> {
        for Modifier { kind, place } in modifiers {
            if types::are_modifiers_printed_by_core(*kind) {
                continue;
            }
            self.originals.try_reserve(1).ok()?;
            self.modifiers.try_reserve(1).ok()?;
            match *place {
                Place::Field(field) => self.modifiers.push((field, *field)),
                Place::Null(constant) | Place::Argument(constant) => {
                    // It has been replaced by a symbol, for which EXPLAIN prints no modifier.
                    if constant.xpr.type_ != NodeTag::T_Const {
                        continue;
                    }
                    self.originals.push((constant, *constant));
                }
            }
            // SAFETY: dropping `self` restores it, and no reference is in use: see `nothing`. See `replace`
            // for the reasons why it is changed in place.
            unsafe { place.remove() };
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

    /// Shortens a constant, whose value is not null and passed by reference, if it is long, or if no bytes
    /// are `left`. Returns `None` if too many are shortened. May raise.
    fn consider(&mut self, constant: Handle<'q, Const>, left: &mut usize) -> Option<()> {
        let short = match size(constant) {
            size if size > MAX_BYTES => beginning(constant),
            _ if *left == 0 => CUT.to_owned(),
            size if is_text(constant.consttype) => {
                *left = left.saturating_sub(size);
                return Some(());
            }
            // A value of few bytes may be printed as a long text, for example the number 1e100000.
            _ => {
                // SAFETY: the value of a constant is of its type. The context stays: see `nothing`.
                let text = unsafe { printed(constant.consttype, constant.constvalue) };
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

    /// Replaces a constant by a text of type "unknown", as a literal has before it gets its type.
    fn replace(&mut self, constant: Handle<'q, Const>, short: &CStr) -> Option<()> {
        if self.cut == MAX_SHORTENED {
            return None;
        }
        self.cut += 1;
        self.originals.push((constant, *constant));
        // SAFETY: the constant is written in place, because copying the plan would copy the long constants.
        // Its memory belongs to this process, although a plan cache may share it. The executor has already
        // compiled the values into its expressions, and does not read the constants any more. It runs no node
        // and starts no worker until EXPLAIN has finished. Dropping `self` restores everything, also after an
        // error. The new value is in the current memory context, which outlives `self`, and no reference is
        // in use: see `nothing`.
        unsafe {
            let constant = constant.as_ptr();
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

impl Drop for Changed<'_> {
    fn drop(&mut self) {
        // SAFETY: the places are live, and no reference to them is in use: see `nothing`. The order is
        // reversed, because a constant may be in the list twice.
        unsafe {
            for (field, original) in self.modifiers.drain(..).rev() {
                field.as_ptr().write(original);
            }
            for (constant, original) in self.originals.drain(..).rev() {
                constant.as_ptr().write(original);
            }
        }
    }
}

/// Returns how many bytes the value of a constant has, which is passed by reference.
fn size(constant: Handle<Const>) -> usize {
    if constant.constisnull {
        return 0;
    }
    let value: *const c_char = constant.constvalue.cast_mut_ptr();
    // SAFETY: the value points to as many bytes as the length says.
    unsafe {
        match constant.constlen {
            // A value is only compressed or stored elsewhere if it is long.
            -1 if is_stored_otherwise(value.cast()) => usize::MAX,
            -1 => pgrx::varsize_any_exhdr(value.cast()),
            -2 => libc::strnlen(value, MAX_BYTES + 1),
            length => length.max(0) as usize,
        }
    }
}

/// Returns whether a value is compressed or stored elsewhere.
///
/// # Safety
/// The value must be live and have a varlena header.
unsafe fn is_stored_otherwise(value: *const pg_sys::varlena) -> bool {
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

/// Returns the beginning of a long constant, if it can be read without the rest. May raise.
fn beginning(constant: Handle<Const>) -> CString {
    // SAFETY: the value of a constant is of its type, so its header tells its length.
    unsafe {
        let is_varlena = constant.constlen == -1 && !constant.constisnull;
        if !is_varlena || is_stored_otherwise(constant.constvalue.cast_mut_ptr()) {
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
                if is_stored_otherwise(element) {
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
