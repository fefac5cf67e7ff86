//! Handles to what PostgreSQL has of a started query: its plan, the states of its nodes, its expressions.
//!
//! A hook makes one handle, and promises there what holds while its lifetime lasts. From it, safe code
//! reaches everything else: it follows a pointer in a field, walks a list, or takes a node for what its tag
//! says.
//!
//! What a handle refers to is read as it is. Who must write to it takes the pointer ([`Handle::as_ptr`]), as
//! PostgreSQL does, and says why no reference to it is in use.

mod handle;
pub(in crate::pg) mod part;
mod planner;
mod query;

pub use handle::{Bare, Handle, ListOf, name, tag};
pub use part::Counted;
pub(in crate::pg) use part::counted;
pub use planner::{NewPlan, ToPlan};
pub use query::{PlanRef, PlanStateRef, PlannedStmtRef, QueryRef, RelationRef, StartedQuery};
