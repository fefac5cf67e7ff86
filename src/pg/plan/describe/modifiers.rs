//! Finds the modifiers of types that EXPLAIN prints, for example the 10 in `varchar(10)`.

use super::types;
use crate::pg::plan::tree::{list, tag};
use pgrx::pg_sys::{self, CoercionForm, Const, Node, NodeTag, Oid};

/// A modifier of a type that is not PostgreSQL's own.
pub struct Modifier {
    pub kind: Oid,
    pub place: Place,
}

/// Where a modifier is.
#[derive(Clone, Copy)]
pub enum Place {
    /// In a field of an expression.
    Field(*mut i32),
    /// In the argument of a function that applies it.
    Argument(*mut Const),
}

/// Returns the modifier that is printed for a part of an expression, if its type is not PostgreSQL's own.
///
/// # Safety
/// `node` must point to a part of a live expression, whose tag tells its type.
#[inline(always)]
pub unsafe fn of(node: *mut Node) -> Option<Modifier> {
    // SAFETY: the node is live by the caller's promise, and each cast follows its tag. The arguments are a
    // list of nodes.
    let (kind, modifier, place) = unsafe {
        match tag(node) {
            // With its value, it becomes a symbol, or its type prints it.
            NodeTag::T_Const if (*node.cast::<Const>()).constisnull => {
                let null = &mut *node.cast::<Const>();
                (
                    null.consttype,
                    null.consttypmod,
                    Place::Field(&raw mut null.consttypmod),
                )
            }
            NodeTag::T_RelabelType => {
                let cast = &mut *node.cast::<pg_sys::RelabelType>();
                (
                    cast.resulttype,
                    cast.resulttypmod,
                    Place::Field(&raw mut cast.resulttypmod),
                )
            }
            NodeTag::T_ArrayCoerceExpr => {
                let cast = &mut *node.cast::<pg_sys::ArrayCoerceExpr>();
                (
                    cast.resulttype,
                    cast.resulttypmod,
                    Place::Field(&raw mut cast.resulttypmod),
                )
            }
            NodeTag::T_CoerceToDomain => {
                let cast = &mut *node.cast::<pg_sys::CoerceToDomain>();
                (
                    cast.resulttype,
                    cast.resulttypmod,
                    Place::Field(&raw mut cast.resulttypmod),
                )
            }
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
                let modifier = (*argument).constvalue.value() as i32;
                (function.funcresulttype, modifier, Place::Argument(argument))
            }
            _ => return None,
        }
    };
    (modifier >= 0 && !types::is_of_core(kind)).then_some(Modifier { kind, place })
}
