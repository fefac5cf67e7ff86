//! Finds the modifiers of types that PostgreSQL prints, for example the 10 in `varchar(10)`.

use super::types;
use crate::pg::compat::expression::json_returning;
use crate::pg::handles::Handle;
use pgrx::pg_sys::{self, CoercionForm, Const, Node, NodeTag, Oid};

/// A modifier of a type that is not PostgreSQL's own.
pub struct Modifier<'q> {
    pub kind: Oid,
    pub place: Place<'q>,
}

/// Where a modifier is.
#[derive(Clone, Copy)]
pub enum Place<'q> {
    /// In a field of an expression, or in a list of columns.
    Field(Handle<'q, i32>),
    /// In a null constant.
    Null(Handle<'q, Const>),
    /// In the argument of a function that applies it.
    Argument(Handle<'q, Const>),
}

impl Place<'_> {
    /// Returns the modifier.
    fn modifier(self) -> i32 {
        match self {
            Place::Field(field) => *field,
            Place::Null(constant) => constant.consttypmod,
            Place::Argument(constant) => constant.constvalue.value() as i32,
        }
    }

    /// Removes the modifier.
    ///
    /// # Safety
    /// No reference to the place is in use. A constant must be one still: a symbol may have replaced it.
    pub unsafe fn remove(self) {
        // SAFETY: the place is live, and nobody uses it now, by the caller's promise.
        unsafe {
            match self {
                Place::Field(field) => *field.as_ptr() = types::NO_MODIFIER,
                Place::Null(constant) => (*constant.as_ptr()).consttypmod = types::NO_MODIFIER,
                Place::Argument(constant) => {
                    (*constant.as_ptr()).constvalue = pg_sys::Datum::from(types::NO_MODIFIER);
                }
            }
        }
    }
}

/// Adds the modifiers that are printed for a part of an expression or of a query, if their types are not
/// PostgreSQL's own. Returns false if there is no memory.
#[inline(always)]
pub fn add<'q>(node: Handle<'q, Node>, modifiers: &mut Vec<Modifier<'q>>) -> bool {
    match node.tag() {
        NodeTag::T_RangeTblFunction => {
            let function = node.cast::<pg_sys::RangeTblFunction>();
            let kinds = function.oids(|function| &function.funccoltypes);
            let found = function.integers(|function| &function.funccoltypmods);
            kinds
                .zip(found)
                .all(|(kind, field)| push(*kind, Place::Field(field), modifiers))
        }
        NodeTag::T_TableFunc => {
            let table = node.cast::<pg_sys::TableFunc>();
            let (kinds, found) = (
                table.oids(|table| &table.coltypes),
                table.integers(|table| &table.coltypmods),
            );
            kinds
                .zip(found)
                .all(|(kind, field)| push(*kind, Place::Field(field), modifiers))
        }
        _ => of(node).is_none_or(|(kind, place)| push(kind, place, modifiers)),
    }
}

/// Adds the modifier of a type, if there is one and the type is not PostgreSQL's own. Returns false if there
/// is no memory.
fn push<'q>(kind: Oid, place: Place<'q>, modifiers: &mut Vec<Modifier<'q>>) -> bool {
    if types::is_of_core(kind) || place.modifier() < 0 {
        return true;
    }
    let has_room = modifiers.try_reserve(1).is_ok();
    if has_room {
        modifiers.push(Modifier { kind, place });
    }
    has_room
}

/// Returns the type that is printed for a part of an expression, and where its modifier is.
#[inline(always)]
fn of(node: Handle<'_, Node>) -> Option<(Oid, Place<'_>)> {
    /// The type and the modifier in these fields of this type of node.
    macro_rules! fields {
        ($node:ident, $kind:ident, $modifier:ident) => {{
            let typed = node.cast::<pg_sys::$node>();
            (typed.$kind, Place::Field(typed.part(|typed| &typed.$modifier)))
        }};
    }
    Some(match node.tag() {
        // With its value, it becomes a symbol, or its type prints it.
        NodeTag::T_Const => {
            let null = node.cast::<Const>();
            if !null.constisnull {
                return None;
            }
            (null.consttype, Place::Null(null))
        }
        NodeTag::T_RelabelType => fields!(RelabelType, resulttype, resulttypmod),
        NodeTag::T_ArrayCoerceExpr => fields!(ArrayCoerceExpr, resulttype, resulttypmod),
        NodeTag::T_CoerceToDomain => fields!(CoerceToDomain, resulttype, resulttypmod),
        NodeTag::T_XmlExpr => fields!(XmlExpr, type_, typmod),
        NodeTag::T_FuncExpr => {
            let function = node.cast::<pg_sys::FuncExpr>();
            let arguments = function.list::<Node>(|function| &function.args);
            // As core's exprIsLengthCoercion: any other function may have such an argument, too.
            if !matches!(
                function.funcformat,
                CoercionForm::COERCE_EXPLICIT_CAST | CoercionForm::COERCE_IMPLICIT_CAST
            ) || !matches!(arguments.len(), 2 | 3)
            {
                return None;
            }
            let argument = arguments.get(1)?.downcast::<Const>()?;
            if argument.consttype != pg_sys::INT4OID || argument.constisnull {
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
