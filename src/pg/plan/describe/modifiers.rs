//! Finds the modifiers of types that PostgreSQL prints, for example the 10 in `varchar(10)`.

use super::types;
use crate::pg::compat::expression::json_returning;
use crate::pg::plan::tree::{list, tag};
use pgrx::pg_sys::{self, CoercionForm, Const, List, Node, NodeTag, Oid};

/// A modifier of a type that is not PostgreSQL's own.
pub struct Modifier {
    pub kind: Oid,
    pub place: Place,
}

/// Where a modifier is.
#[derive(Clone, Copy)]
pub enum Place {
    /// In a field of an expression, or in a list of columns.
    Field(*mut i32),
    /// In a null constant.
    Null(*mut Const),
    /// In the argument of a function that applies it.
    Argument(*mut Const),
}

impl Place {
    /// Returns the modifier.
    ///
    /// # Safety
    /// The place must be live. A constant must be one still: a symbol may have replaced it.
    unsafe fn modifier(self) -> i32 {
        // SAFETY: the place is live, and a constant is one, by the caller's promise.
        unsafe {
            match self {
                Place::Field(field) => *field,
                Place::Null(constant) => (*constant).consttypmod,
                Place::Argument(constant) => (*constant).constvalue.value() as i32,
            }
        }
    }

    /// Removes the modifier.
    ///
    /// # Safety
    /// As [`Place::modifier`]. Nothing else may use the place meanwhile.
    pub unsafe fn remove(self) {
        // SAFETY: the caller makes the same promises.
        unsafe {
            match self {
                Place::Field(field) => *field = types::NO_MODIFIER,
                Place::Null(constant) => (*constant).consttypmod = types::NO_MODIFIER,
                Place::Argument(constant) => {
                    (*constant).constvalue = pg_sys::Datum::from(types::NO_MODIFIER);
                }
            }
        }
    }
}

/// Adds the modifiers that are printed for a part of an expression or of a query, if their types are not
/// PostgreSQL's own. Returns false if there is no memory.
///
/// # Safety
/// `node` must point to a part of a live expression or query, whose tag tells its type.
#[inline(always)]
pub unsafe fn add(node: *mut Node, modifiers: &mut Vec<Modifier>) -> bool {
    // SAFETY: the node is live by the caller's promise, and each cast follows its tag.
    unsafe {
        match tag(node) {
            NodeTag::T_RangeTblFunction => {
                let function = &*node.cast::<pg_sys::RangeTblFunction>();
                add_columns(function.funccoltypes, function.funccoltypmods, modifiers)
            }
            NodeTag::T_TableFunc => {
                let table = &*node.cast::<pg_sys::TableFunc>();
                add_columns(table.coltypes, table.coltypmods, modifiers)
            }
            _ => of(node).is_none_or(|(kind, place)| push(kind, place, modifiers)),
        }
    }
}

/// Adds the modifiers of the columns that a function returns. Returns false if there is no memory.
///
/// # Safety
/// The lists must be null or live lists of numbers. Each type must have a modifier.
unsafe fn add_columns(kinds: *mut List, found: *mut List, modifiers: &mut Vec<Modifier>) -> bool {
    // SAFETY: both are live and of the same length by the caller's promise.
    unsafe {
        let count = kinds.as_ref().map_or(0, |kinds| kinds.length as usize);
        (0..count).all(|i| {
            let kind = (*(*kinds).elements.add(i)).oid_value;
            let field = &raw mut (*(*found).elements.add(i)).int_value;
            push(kind, Place::Field(field), modifiers)
        })
    }
}

/// Adds the modifier of a type, if there is one and the type is not PostgreSQL's own. Returns false if there
/// is no memory.
///
/// # Safety
/// As [`Place::modifier`].
unsafe fn push(kind: Oid, place: Place, modifiers: &mut Vec<Modifier>) -> bool {
    // SAFETY: the caller makes the same promise.
    if types::is_of_core(kind) || unsafe { place.modifier() } < 0 {
        return true;
    }
    let has_room = modifiers.try_reserve(1).is_ok();
    if has_room {
        modifiers.push(Modifier { kind, place });
    }
    has_room
}

/// Returns the type that is printed for a part of an expression, and where its modifier is.
///
/// # Safety
/// As [`add`].
#[inline(always)]
unsafe fn of(node: *mut Node) -> Option<(Oid, Place)> {
    /// The type and the modifier in these fields of this type of node.
    macro_rules! fields {
        ($node:ident, $kind:ident, $modifier:ident) => {{
            let typed = node.cast::<pg_sys::$node>();
            ((*typed).$kind, Place::Field(&raw mut (*typed).$modifier))
        }};
    }
    // SAFETY: the node is live by the caller's promise, and each cast follows its tag. The arguments are a
    // list of nodes.
    unsafe {
        Some(match tag(node) {
            // With its value, it becomes a symbol, or its type prints it.
            NodeTag::T_Const if (*node.cast::<Const>()).constisnull => {
                let null = node.cast::<Const>();
                ((*null).consttype, Place::Null(null))
            }
            NodeTag::T_RelabelType => fields!(RelabelType, resulttype, resulttypmod),
            NodeTag::T_ArrayCoerceExpr => fields!(ArrayCoerceExpr, resulttype, resulttypmod),
            NodeTag::T_CoerceToDomain => fields!(CoerceToDomain, resulttype, resulttypmod),
            NodeTag::T_XmlExpr => fields!(XmlExpr, type_, typmod),
            NodeTag::T_FuncExpr => {
                let function = &*node.cast::<pg_sys::FuncExpr>();
                // As core's exprIsLengthCoercion: any other function may have such an argument, too.
                if !matches!(
                    function.funcformat,
                    CoercionForm::COERCE_EXPLICIT_CAST | CoercionForm::COERCE_IMPLICIT_CAST
                ) || !matches!(list::<Const>(function.args).count(), 2 | 3)
                {
                    return None;
                }
                let argument = list::<Const>(function.args).nth(1)?;
                let is_modifier = tag(argument) == NodeTag::T_Const
                    && (*argument).consttype == pg_sys::INT4OID
                    && !(*argument).constisnull;
                if !is_modifier {
                    return None;
                }
                (function.funcresulttype, Place::Argument(argument))
            }
            _ => {
                let (kind, modifier) = json_returning(node)?;
                (kind, Place::Field(modifier))
            }
        })
    }
}
