//! Puts the replacing functions into the server's import table, and the original ones back.

use super::got::{self, Memory, Slot};
use super::{clock, functions, waiting};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::server::{self, switch};
use crate::pg::tempfile::requests;
use crate::pg::waits::counting;
use libc::c_int;
use std::cell::{Cell, OnceCell};
use std::ffi::CStr;

/// A function that is replaced.
struct Replaced {
    name: &'static CStr,
    /// Where the address of the original is stored.
    original: &'static Cell<usize>,
    replacement: usize,
}

/// Returns all functions that are replaced.
fn all() -> Vec<Replaced> {
    let files = (0..functions::NAMES.len()).map(|i| Replaced {
        name: functions::NAMES[i],
        original: &functions::ORIGINALS.inner()[i],
        replacement: functions::replacement(i),
    });
    let waiting = (0..waiting::NAMES.len()).map(|i| Replaced {
        name: waiting::NAMES[i],
        original: &waiting::ORIGINALS.inner()[i],
        replacement: waiting::replacement(i),
    });
    files.chain(waiting).collect()
}

/// A slot of the table that was replaced.
struct Taken {
    slot: Slot,
    /// That of its page.
    protection: c_int,
    original: usize,
    replacement: usize,
}

/// All of them, once the functions are installed.
static TAKEN: BackendLocal<OnceCell<Vec<Taken>>> = BackendLocal::new(OnceCell::new());
/// Whether the slots have our functions, as far as no other library has changed that.
static HAVE_OURS: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// Installs all functions in the server's import table, or none of them. Does nothing if they were installed
/// before: if another library had replaced them since, the two would call each other endlessly. The
/// postmaster installs them for all its children; otherwise a session installs them for itself.
pub fn install() -> Result<(), String> {
    if TAKEN.get().is_some() {
        return Ok(());
    }
    if server::is_parallel_worker() {
        return Err("a parallel worker does not live long enough".into());
    }
    let all = all();
    let names: Vec<&CStr> = all.iter().map(|function| function.name).collect();
    let slots = got::find(&names)?;
    let imported = |name: &CStr| slots.iter().any(|slot| names[slot.name] == name);
    if !(imported(c"pread") || imported(c"pread64"))
        || !(imported(c"pwrite") || imported(c"pwrite64"))
        || !imported(c"close")
    {
        return Err("the server does not import pread, pwrite and close".into());
    }
    let memory = Memory::read()?;
    let mut originals = vec![0; all.len()];
    let mut taken = Vec::with_capacity(slots.len());
    for &slot in &slots {
        let original = slot.function(names[slot.name], &memory)?;
        if ![0, original].contains(&originals[slot.name]) {
            return Err(format!("{:?} is imported from two places", names[slot.name]));
        }
        originals[slot.name] = original;
        taken.push(Taken {
            slot,
            protection: slot.protection(&memory)?,
            original,
            replacement: all[slot.name].replacement,
        });
    }
    for (function, original) in all.iter().zip(&originals) {
        function.original.set(*original);
    }
    clock::choose();
    let replaced = replace(&taken, &memory);
    HAVE_OURS.set(replaced.is_ok() && switch::is_on());
    if !HAVE_OURS.get() {
        put_back(&taken);
    }
    replaced?;
    let _ = TAKEN.set(taken);
    Ok(())
}

/// Writes to all slots, and checks that they hold what was written. `memory` is how it was before.
fn replace(taken: &[Taken], memory: &Memory) -> Result<(), String> {
    for taken in taken {
        taken.slot.replace(taken.replacement, taken.protection)?;
    }
    let after = Memory::read()?;
    let is_replaced = |taken: &Taken| taken.slot.is_replaced(taken.replacement, memory, &after);
    if taken.iter().all(is_replaced) {
        Ok(())
    } else {
        Err("a slot does not hold what was written to it".into())
    }
}

/// Writes the original functions to the slots that have ours.
fn put_back(taken: &[Taken]) {
    for taken in taken {
        taken.exchange(taken.replacement, taken.original);
    }
}

/// Takes the functions again, or puts the original ones back, if they were installed before. Allocates
/// nothing and raises nothing: this runs when a process reads its settings. If another library has put a
/// function of its own into a slot meanwhile, that stays.
pub fn set_enabled(is_on: bool) {
    let Some(taken) = TAKEN.get() else { return };
    if HAVE_OURS.replace(is_on) == is_on {
        return;
    }
    if !is_on {
        put_back(taken);
        return counting::pause();
    }
    // Descriptors were closed without notice.
    requests::forget_all();
    counting::forget_all();
    for taken in taken {
        taken.exchange(taken.original, taken.replacement);
    }
}

impl Taken {
    /// Replaces one function by another. Does nothing if the slot has a third one. If its page cannot be
    /// written, the slot stays as it is: the replacing functions look at the switch, too.
    fn exchange(&self, from: usize, to: usize) {
        if self.slot.value() == from {
            let _ = self.slot.replace(to, self.protection);
        }
    }
}
