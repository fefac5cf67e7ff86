//! The symbols that replace constants in the conditions of a plan: `$1`.
//!
//! A constant of the statement's text gets the number that it has there. Constants that the planner made get
//! the numbers that follow.

use crate::pg::compat::jumble;
use crate::pg::handles::Handle;
use pgrx::pg_sys::{self, Const, NodeTag, Param};
use rowsource_core::normalise::{List, Place, Text, constants_of_list};

/// A constant of a plan.
pub struct Printed<'q> {
    pub constant: Handle<'q, Const>,
    /// EXPLAIN reads its value as a text, so only another text may replace it.
    pub as_text: bool,
    /// Where the operator is whose array this is; -1 if it is no array of an operator, or if that is not
    /// known.
    pub operator_at: i32,
}

/// Numbers the constants of a plan.
pub struct Symbols<'a> {
    /// Where the statement's text begins in the query string. `None` if the statement was not made from that.
    pub location: Option<usize>,
    /// The constants in the text.
    pub places: &'a [Place],
    /// The text.
    pub text: &'a [u8],
    /// The number of the next constant that is not in the text.
    pub next: u32,
    /// The lists of constants that the planner made one constant of.
    pub lists: Vec<List>,
}

// A symbol is written into the memory of a constant.
const _: () = assert!(size_of::<Param>() <= size_of::<Const>() && align_of::<Param>() <= align_of::<Const>());

impl Symbols<'_> {
    /// Returns whether a constant is replaced. The truth values and nulls that the planner made tell nothing
    /// of the statement's literals, but a reader wants to see them.
    pub fn hide(&self, constant: &Const) -> bool {
        let is_word = constant.constisnull || constant.consttype == pg_sys::BOOLOID;
        !is_word || self.of_text(constant.location).is_some()
    }

    /// Replaces a constant by a symbol. If EXPLAIN reads it as a text, it stays a text. May raise.
    ///
    /// # Safety
    /// * No reference to the constant is in use, and it is restored before other code reads it.
    /// * The current memory context must outlive that.
    pub unsafe fn put(&mut self, printed: &Printed) {
        let number = self.number(printed.constant.location, printed.operator_at);
        // SAFETY: the caller promises the same. The text is allocated in the current memory context.
        unsafe {
            if printed.as_text {
                let symbol = std::ffi::CString::new(format!("${number}")).unwrap_or_default();
                let text = pg_sys::cstring_to_text(symbol.as_ptr());
                (*printed.constant.as_ptr()).constvalue = pg_sys::Datum::from(text);
                return;
            }
            replace_by_symbol(printed.constant, number);
        }
    }

    /// Returns the number of a constant.
    fn number(&mut self, location: i32, operator_at: i32) -> u32 {
        if let Some(number) = self.of_text(location) {
            return number;
        }
        let list = self.list_of_text(operator_at);
        if let Some(
            &[
                Place {
                    number,
                    is_list: true,
                    ..
                },
            ],
        ) = list.as_ref().map(|list| &list[..])
        {
            return number;
        }
        let list = list.and_then(|list| Some((list.first()?.number, list.last()?.number)));
        let known = list.and_then(|(first, _)| self.lists.iter().find(|known| known.first == first));
        if let Some(known) = known {
            return known.number;
        }
        let number = self.next;
        self.next = number.saturating_add(1);
        if let Some((first, last)) = list
            && self.lists.try_reserve(1).is_ok()
        {
            self.lists.push(List { number, first, last });
        }
        number
    }

    /// Returns the constants of the text that are in the list of an operator. The planner makes one constant
    /// of them, which has no place in the text, but the operator has.
    fn list_of_text(&self, operator_at: i32) -> Option<Vec<Place>> {
        let at = usize::try_from(operator_at).ok()?.checked_sub(self.location?)?;
        let text = Text {
            bytes: self.text,
            backslashes: jumble::backslashes_escape(),
        };
        constants_of_list(text, self.places, at).map(<[Place]>::to_vec)
    }

    /// Returns the number that a constant has in the statement's text. In a custom plan, the value of a
    /// parameter is a constant with the parameter's place.
    fn of_text(&self, location: i32) -> Option<u32> {
        let at = usize::try_from(location).ok()?.checked_sub(self.location?)?;
        let following = self.places.partition_point(|place| place.range.start <= at);
        let place = following.checked_sub(1).and_then(|last| self.places.get(last));
        place
            .filter(|place| place.range.start == at || (place.is_list && place.range.contains(&at)))
            .map(|place| place.number)
            .or_else(|| parameter(self.text.get(at..)?))
    }
}

/// Replaces a constant by the symbol with this number.
///
/// # Safety
/// No reference to the constant is in use, and it is restored before other code reads it as one.
pub unsafe fn replace_by_symbol(constant: Handle<Const>, number: u32) {
    let symbol = Param {
        paramkind: pg_sys::ParamKind::PARAM_EXTERN,
        paramid: number as i32,
        paramtype: constant.consttype,
        paramtypmod: constant.consttypmod,
        paramcollid: constant.constcollid,
        location: constant.location,
        xpr: pg_sys::Expr {
            type_: NodeTag::T_Param,
        },
    };
    // SAFETY: the memory of a constant has room for a symbol, and nobody uses it now.
    unsafe { constant.as_ptr().cast::<Param>().write(symbol) };
}

/// Returns the number of the parameter with which a text begins, as in `$1`.
fn parameter(text: &[u8]) -> Option<u32> {
    const MAX_DIGITS: usize = 5;
    let digits = text.strip_prefix(b"$")?.iter().take(MAX_DIGITS);
    let digits: String = digits
        .take_while(|byte| byte.is_ascii_digit())
        .map(|byte| char::from(*byte))
        .collect();
    digits.parse().ok()
}
