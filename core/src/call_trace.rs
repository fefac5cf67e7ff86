//! The calls of a statement's plan nodes, one by one, and the waits inside them, in a list whose length is
//! bounded.
//!
//! [`CallList::enter`], [`CallList::leave`] and [`CallList::wait`] run inside the executor and inside system
//! calls: they do not allocate or panic.

/// What a line of the list says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A call of a node began.
    #[default]
    Enter,
    /// A call of a node ended.
    Leave,
    /// A wait ended.
    Wait,
}

/// A line of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The clock's reading, in ticks.
    pub at: u64,
    /// How long the call took, in ticks; how long the wait took, in nanoseconds; 0 if a call begins.
    pub elapsed: u64,
    /// The event of a wait; 0 for calls.
    pub event: u32,
    /// The number of the node; [`NO_NODE`] for a wait outside of all calls.
    pub node: u32,
    /// The number of calls in which this one is, or this wait.
    pub depth: u32,
    /// What the line says.
    pub kind: Kind,
    /// Whether the call that ended returned a row.
    pub has_row: bool,
}

/// Stands for no node.
pub const NO_NODE: u32 = u32::MAX;

/// A call that is in progress and in the list.
#[derive(Clone, Copy, Debug)]
pub struct Entered {
    /// Its first line.
    at: usize,
    /// The node whose call was the innermost one.
    outer: u32,
}

/// The list of calls, with room for the begin and the end of a number of calls, and for as many waits.
#[derive(Debug, Default)]
pub struct CallList {
    entries: Vec<Entry>,
    used: usize,
    max_calls: usize,
    calls: usize,
    waits: usize,
    depth: u32,
    /// The node whose call is the innermost one in the list.
    innermost: u32,
    omitted_calls: u64,
    omitted_waits: u64,
}

impl CallList {
    /// Returns a list for at most this many calls; `None` if there is no memory.
    pub fn new(max_calls: usize) -> Option<CallList> {
        let length = max_calls.checked_mul(3)?;
        let mut entries = Vec::new();
        entries.try_reserve_exact(length).ok()?;
        entries.resize(length, Entry::default());
        Some(CallList {
            entries,
            max_calls,
            innermost: NO_NODE,
            ..CallList::default()
        })
    }

    /// Notes that a call of a node begins. Returns `None` if the list is full.
    #[inline]
    pub fn enter(&mut self, node: u32, now: u64) -> Option<Entered> {
        if self.calls >= self.max_calls {
            self.omitted_calls += 1;
            return None;
        }
        let entered = Entered {
            at: self.used,
            outer: self.innermost,
        };
        self.calls += 1;
        self.add(Entry {
            at: now,
            node,
            depth: self.depth,
            ..Entry::default()
        });
        self.depth = self.depth.wrapping_add(1);
        self.innermost = node;
        Some(entered)
    }

    /// Notes that a call has ended.
    #[inline]
    pub fn leave(&mut self, entered: Entered, now: u64, has_row: bool) {
        let Some(&Entry { at, node, depth, .. }) = self.entries.get(entered.at) else {
            return;
        };
        self.depth = depth;
        self.innermost = entered.outer;
        self.add(Entry {
            at: now,
            elapsed: now.saturating_sub(at),
            node,
            depth,
            kind: Kind::Leave,
            has_row,
            ..Entry::default()
        });
    }

    /// Notes that a wait has ended after this long. `is_rest`: it is the rest of the wait before. Once a call
    /// was left out, waits are left out too, because the list no longer knows where they belong.
    #[inline]
    pub fn wait(&mut self, event: u32, now: u64, ns: u64, is_rest: bool) {
        let last = self
            .used
            .checked_sub(1)
            .and_then(|last| self.entries.get_mut(last));
        if is_rest
            && let Some(last) = last
            && (last.kind, last.event) == (Kind::Wait, event)
        {
            last.elapsed = last.elapsed.saturating_add(ns);
            last.at = now;
        } else if self.waits >= self.max_calls || self.omitted_calls > 0 {
            self.omitted_waits += u64::from(!is_rest);
        } else {
            self.waits += 1;
            self.add(Entry {
                at: now,
                elapsed: ns,
                event,
                node: self.innermost,
                depth: self.depth,
                kind: Kind::Wait,
                has_row: false,
            });
        }
    }

    #[inline]
    fn add(&mut self, entry: Entry) {
        if let Some(place) = self.entries.get_mut(self.used) {
            *place = entry;
            self.used += 1;
        }
    }

    /// Returns the lines, in the order of time.
    pub fn entries(&self) -> &[Entry] {
        self.entries.get(..self.used).unwrap_or_default()
    }

    /// Returns how many calls and how many waits are not in the list.
    pub fn omitted(&self) -> (u64, u64) {
        (self.omitted_calls, self.omitted_waits)
    }
}

/// A line as people read it: the microseconds since the statement began, indented by the depth, what
/// happened, and how long it took.
pub fn line(at_us: f64, depth: u32, what: &str, elapsed_us: Option<f64>) -> String {
    /// Deeper calls are not indented further.
    const MAX_DEPTH: u32 = 60;
    let indent = 2 * depth.min(MAX_DEPTH) as usize;
    let what: String = what
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let elapsed = elapsed_us.map_or(String::new(), |us| format!("  {us:.3} us"));
    format!("{at_us:>14.3} {:indent$}{what}{elapsed}", "")
}

/// Returns what the last line says if the list was too short.
pub fn omitted_line(max_calls: i32, calls: u64, waits: u64) -> String {
    format!("{calls} more calls and {waits} more waits are not listed, because max_calls is {max_calls}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(list: &CallList) -> Vec<(Kind, u32, u32, u64)> {
        list.entries()
            .iter()
            .map(|entry| (entry.kind, entry.node, entry.depth, entry.elapsed))
            .collect()
    }

    #[test]
    fn calls_and_waits_are_nested() {
        let mut list = CallList::new(10).expect("memory");
        list.wait(7, 1, 1, false);
        let outer = list.enter(0, 10).expect("room");
        let inner = list.enter(1, 12).expect("room");
        list.wait(7, 20, 5, false);
        list.wait(7, 22, 2, true);
        list.leave(inner, 25, true);
        list.wait(8, 26, 1, false);
        list.leave(outer, 30, false);
        list.wait(9, 40, 3, false);
        assert_eq!(
            kinds(&list),
            [
                (Kind::Wait, NO_NODE, 0, 1),
                (Kind::Enter, 0, 0, 0),
                (Kind::Enter, 1, 1, 0),
                (Kind::Wait, 1, 2, 7),
                (Kind::Leave, 1, 1, 13),
                (Kind::Wait, 0, 1, 1),
                (Kind::Leave, 0, 0, 20),
                (Kind::Wait, NO_NODE, 0, 3),
            ]
        );
        assert_eq!((list.entries()[3].at, list.entries()[4].has_row), (22, true));
        assert_eq!(list.omitted(), (0, 0));
    }

    /// Each call in the list has an end, however many calls and waits follow.
    #[test]
    fn the_list_is_bounded() {
        let mut list = CallList::new(3).expect("memory");
        let root = list.enter(0, 0).expect("room");
        for i in 0..5 {
            let call = list.enter(1, i);
            list.wait(7, i, 1, false);
            if let Some(call) = call {
                list.leave(call, i, true);
            }
        }
        list.leave(root, 9, false);
        let found = kinds(&list);
        let count = |kind| found.iter().filter(|line| line.0 == kind).count();
        assert_eq!([Kind::Enter, Kind::Leave, Kind::Wait].map(count), [3, 3, 2]);
        assert_eq!(found.last(), Some(&(Kind::Leave, 0, 0, 9)));
        assert_eq!(list.omitted(), (3, 3));
        let mut waits = CallList::new(2).expect("memory");
        (0..9).for_each(|i| waits.wait(7, i, 1, false));
        assert_eq!((waits.entries().len(), waits.omitted()), (2, (0, 7)));
        assert!(CallList::new(usize::MAX).is_none());
    }

    #[test]
    fn lines_are_indented() {
        assert_eq!(line(1.5, 0, "-> Limit", None), "         1.500 -> Limit");
        assert_eq!(
            line(12.25, 2, "<- Seq Scan on a\nb  row", Some(3.5)),
            "        12.250     <- Seq Scan on a b  row  3.500 us"
        );
        assert!(line(0.0, u32::MAX, "-> Limit", None).len() < 150);
    }
}
