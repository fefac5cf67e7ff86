//! The executions in progress.

use super::event::{Call, Phase};
use rustc_hash::FxHashMap;

/// The most executions in progress that are known, and those of one cursor.
const MAX_OPEN: usize = 10_000;
const MAX_OPEN_OF_CURSOR: usize = 16;

/// Calls that are nested more deeply are taken as nested as deeply as this.
const MAX_DEPTH: usize = 200;

/// Returns a nesting level as an index.
pub fn depth(dep: u64) -> usize {
    usize::try_from(dep).unwrap_or(MAX_DEPTH).min(MAX_DEPTH)
}

/// An execution in progress.
#[derive(Clone, Copy, Debug)]
struct Execution {
    /// In how many calls it began.
    dep: u64,
    /// Its calls so far, in microseconds.
    elapsed_us: u64,
}

/// The executions in progress, by their cursors. The calls of a cursor that one statement opens and another
/// one reads or closes are nested in different numbers of calls. All of them belong to the execution.
#[derive(Debug, Default)]
pub struct Open {
    of: FxHashMap<u64, Vec<Execution>>,
    count: usize,
}

impl Open {
    /// Returns in how many calls the cursor's execution began of which a line in `dep` calls tells. Without
    /// one, that is `dep`.
    pub fn level(&self, cursor: u64, dep: u64) -> u64 {
        let open = self.of.get(&cursor).map_or(&[][..], |open| open);
        self.place(cursor, dep).map_or(dep, |at| open[at].dep)
    }

    /// Returns in how many calls the execution of a call began. What comes before an execution has its own
    /// level.
    pub fn level_of(&self, phase: Phase, call: &Call) -> u64 {
        match phase {
            Phase::Fetch | Phase::Finish | Phase::Close => self.level(call.cursor, call.dep),
            _ => call.dep,
        }
    }

    /// Returns the place of that execution.
    fn place(&self, cursor: u64, dep: u64) -> Option<usize> {
        let open = self.of.get(&cursor)?;
        let same = open.iter().rposition(|execution| execution.dep == dep);
        same.or_else(|| open.len().checked_sub(1))
    }

    fn remove(&mut self, cursor: u64, at: usize) -> Option<u64> {
        let open = self.of.get_mut(&cursor)?;
        let removed = open.remove(at);
        self.count -= 1;
        if open.is_empty() {
            self.of.remove(&cursor);
        }
        Some(removed.elapsed_us)
    }

    /// Adds a call to its execution. Returns the elapsed time of the execution that ends with it.
    pub fn add(&mut self, phase: Phase, call: &Call) -> Option<u64> {
        let elapsed_us = call.elapsed_us.unwrap_or(0);
        let (cursor, dep) = (call.cursor, call.dep);
        match phase {
            Phase::Parse | Phase::Bind | Phase::Plan | Phase::Commit => None,
            Phase::Exec if call.is_utility || call.has_failed => Some(elapsed_us),
            Phase::Exec => {
                // Two cursors of one statement may be open at once. Then the first one counts as it is.
                let same = self.place(cursor, dep).filter(|_| self.level(cursor, dep) == dep);
                let ended = same.and_then(|at| self.remove(cursor, at));
                let is_room = self.count < MAX_OPEN && self.of.try_reserve(1).is_ok();
                if is_room
                    && self
                        .of
                        .get(&cursor)
                        .is_none_or(|open| open.len() < MAX_OPEN_OF_CURSOR)
                {
                    let open = self.of.entry(cursor).or_default();
                    open.push(Execution { dep, elapsed_us });
                    self.count += 1;
                }
                ended
            }
            Phase::Fetch | Phase::Finish | Phase::Close => {
                let at = self.place(cursor, dep)?;
                let execution = self.of.get_mut(&cursor)?.get_mut(at)?;
                execution.elapsed_us = execution.elapsed_us.saturating_add(elapsed_us);
                // A failed execution is never closed.
                let has_ended = phase == Phase::Close || call.has_failed;
                has_ended.then(|| self.remove(cursor, at)).flatten()
            }
        }
    }
}
