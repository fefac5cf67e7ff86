//! Puts the replacing functions into the server's import table.

use super::got::{self, Memory, Slot};
use super::{clock, functions, waiting};
use crate::pg::server;
use crate::pg::server::backend_local::BackendLocal;
use std::cell::Cell;
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

/// Installs all functions in the server's import table, or none of them. Does nothing if they were installed before: if
/// another library had replaced them since, the two would call each other endlessly. The postmaster installs them for all its
/// children; otherwise a session installs them for itself.
pub fn install() -> Result<(), String> {
    static INSTALLED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));
    if INSTALLED.get() {
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
    for slot in &slots {
        let original = slot.function(names[slot.name], &memory)?;
        if ![0, original].contains(&originals[slot.name]) {
            return Err(format!("{:?} is imported from two places", names[slot.name]));
        }
        originals[slot.name] = original;
    }
    for (function, original) in all.iter().zip(&originals) {
        function.original.set(*original);
    }
    clock::choose();
    let replaced = replace(&all, &slots, &memory);
    if replaced.is_err() {
        for slot in &slots {
            let _ = slot.replace(originals[slot.name], &memory);
        }
        return replaced;
    }
    INSTALLED.set(true);
    Ok(())
}

/// Writes to all slots, and checks that they hold what was written. `memory` is how it was before.
fn replace(all: &[Replaced], slots: &[Slot], memory: &Memory) -> Result<(), String> {
    for slot in slots {
        slot.replace(all[slot.name].replacement, memory)?;
    }
    let after = Memory::read()?;
    let is_replaced = |slot: &Slot| slot.is_replaced(all[slot.name].replacement, memory, &after);
    if slots.iter().all(is_replaced) {
        Ok(())
    } else {
        Err("a slot does not hold what was written to it".into())
    }
}
