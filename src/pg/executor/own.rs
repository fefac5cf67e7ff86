//! Finds the statements that use this extension: its functions, its views or its tables, and those of its
//! script. They are not measured, because they say nothing of the database's load, and would change what they
//! show. `rowsource_logical_io()` is measured: it gets blocks as a query does, and pg_stat_rowsource_live
//! shows how many so far.
//!
//! A plan lists the relations that it reads and the functions that it depends on, also views and those in
//! views. These lists are compared with the extension's objects, only when the session sets up a plan for the
//! first time. The extension's objects are read again if a function was created or dropped. (The plan's list
//! of relations that it depends on is not used. It also has constants of the types oid and regclass, which a
//! statement that reads a catalog may take from anywhere.)

use crate::pg::border::backend_local::BackendLocal;
use crate::pg::border::frames::PlainFrames;
use crate::pg::border::globals::GLOBALS;
use crate::pg::border::guarded as functions;
use crate::pg::compat::FUNCTION_CACHE;
use crate::pg::handles::{Handle, PlannedStmtRef, name};
use crate::pg::server::catalog;
use crate::pg::server::contained::{Unlocked, contained_or_cancelled, guarded};
use pgrx::pg_sys::{self, Datum, Oid, PlanInvalItem, RangeTblEntry};
use rowsource_core::model::PlanKey;
use rustc_hash::{FxBuildHasher, FxHashSet};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::{CStr, c_int};

const NAME: &CStr = c"pg_rowsource";
/// The function that is measured.
const MEASURED: &CStr = c"rowsource_logical_io";

/// The extension's objects in this database.
struct Objects {
    /// The hashes of its functions in PostgreSQL's cache of functions.
    functions: Vec<u32>,
    relations: Vec<Oid>,
}

static OBJECTS: BackendLocal<RefCell<Objects>> = BackendLocal::new(RefCell::new(Objects {
    functions: Vec::new(),
    relations: Vec::new(),
}));
/// Whether the objects were read and no function has changed since.
static KNOWN: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
static HAS_CALLBACK: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// The plans that use the extension.
static PLANS: BackendLocal<RefCell<FxHashSet<PlanKey>>> =
    BackendLocal::new(RefCell::new(HashSet::with_hasher(FxBuildHasher)));
/// The maximal number of such plans that are remembered.
const MAX_PLANS: usize = 500;

/// The extension whose script ran last, and whether it was this one.
static SCRIPT: BackendLocal<Cell<(Oid, bool)>> = BackendLocal::new(Cell::new((pg_sys::InvalidOid, false)));

/// Returns whether the script of CREATE EXTENSION or ALTER EXTENSION UPDATE runs, and is that of this
/// extension.
#[inline(always)]
pub fn script_runs(frames: PlainFrames) -> bool {
    GLOBALS.creating_extension.get() && is_this(frames, GLOBALS.CurrentExtensionObject.get())
}

/// Returns whether an extension is this one.
#[cold]
#[inline(never)]
fn is_this(frames: PlainFrames, extension: Oid) -> bool {
    let (known, is_this) = SCRIPT.get();
    if known == extension {
        return is_this;
    }
    // SAFETY: a statement begins or ends, so the session holds no lock.
    let unlocked = &mut unsafe { Unlocked::promised() };
    let found = guarded(frames, || {
        contained_or_cancelled(unlocked, || Some(functions::get_extension_oid(NAME)))
    });
    let is_this = found == Some(extension);
    SCRIPT.set((extension, is_this));
    is_this
}

/// Returns whether a plan uses the extension.
pub fn uses_extension(key: &PlanKey, plan: PlannedStmtRef) -> bool {
    if PLANS.borrow().contains(key) {
        return true;
    }
    let uses = depends(plan);
    if uses && let Ok(mut plans) = PLANS.try_borrow_mut() {
        if plans.len() >= MAX_PLANS {
            plans.clear();
        }
        if plans.try_reserve(1).is_ok() {
            plans.insert(*key);
        }
    }
    uses
}

/// Returns whether a plan depends on one of the extension's objects.
fn depends(plan: PlannedStmtRef) -> bool {
    let functions = plan.list::<PlanInvalItem>(|plan| &plan.invalItems);
    // An entry that is no relation has no OID.
    let entries = plan.list::<RangeTblEntry>(|plan| &plan.rtable).iter();
    let mut relations = entries.map(|entry| entry.relid);
    // PostgreSQL lists none of its own functions, and its catalogs have low numbers.
    let is_of_user = |oid: &Oid| oid.to_u32() >= pg_sys::FirstNormalObjectId;
    let first = relations.find(is_of_user);
    if functions.len() == 0 && first.is_none() {
        return false;
    }
    if !KNOWN.get() {
        // SAFETY: a statement is set up, so the session holds no lock.
        let unlocked = &mut unsafe { Unlocked::promised() };
        let read = contained_or_cancelled(unlocked, || {
            read();
            Some(())
        });
        if read.is_none() {
            KNOWN.set(false);
        }
    }
    let objects = OBJECTS.borrow();
    if objects.functions.is_empty() {
        return false;
    }
    let is_own = |item: Handle<PlanInvalItem>| {
        item.cacheId == FUNCTION_CACHE && objects.functions.contains(&item.hashValue)
    };
    (first.into_iter().chain(relations)).any(|oid| objects.relations.contains(&oid))
        || functions.iter().any(is_own)
}

/// Reads the extension's objects from the catalog. May raise.
fn read() {
    let null = Datum::null();
    // SAFETY: the function has the type that PostgreSQL calls.
    unsafe {
        if !HAS_CALLBACK.replace(true) {
            pg_sys::CacheRegisterSyscacheCallback(FUNCTION_CACHE, Some(forget), null);
        }
    }
    // This comes first, because reading the catalog may report changes.
    KNOWN.set(true);
    let mut objects = Objects {
        functions: Vec::new(),
        relations: Vec::new(),
    };
    let extension = functions::get_extension_oid(NAME);
    if extension != pg_sys::InvalidOid {
        each_member(extension, |class, object| {
            if class == pg_sys::RelationRelationId {
                objects.relations.push(object);
            } else if class == pg_sys::ProcedureRelationId && !is_measured(object) {
                let key = Datum::from(object);
                // SAFETY: the key of this cache is an OID.
                let hash = unsafe { pg_sys::GetSysCacheHashValue(FUNCTION_CACHE, key, null, null, null) };
                objects.functions.push(hash);
            }
        });
    }
    OBJECTS.replace(objects);
}

/// Returns whether statements with a function of the extension are measured. May raise. The session would
/// keep in its caches what it reads by them: 3 kB for each of a hundred functions.
fn is_measured(function: Oid) -> bool {
    let column = (pg_sys::Anum_pg_proc_oid, function);
    catalog::find(&[column], |row: &pg_sys::FormData_pg_proc| {
        Some(name(&row.proname) == MEASURED)
    })
    .unwrap_or(false)
}

/// Passes the catalog and the OID of each of an extension's objects to `visit`. May raise.
fn each_member(extension: Oid, mut visit: impl FnMut(Oid, Oid)) {
    let columns = [
        (pg_sys::Anum_pg_depend_refclassid, pg_sys::ExtensionRelationId),
        (pg_sys::Anum_pg_depend_refobjid, extension),
    ];
    catalog::find(&columns, |member: &pg_sys::FormData_pg_depend| {
        if member.deptype == b'e' as std::ffi::c_char {
            visit(member.classid, member.objid);
        }
        None::<()>
    });
}

/// Notes that a function may have been created or dropped.
///
/// # Safety
/// Only PostgreSQL may call this, as the callback of a cache.
unsafe extern "C-unwind" fn forget(_argument: Datum, _cache: c_int, _hash: u32) {
    KNOWN.set(false);
}
