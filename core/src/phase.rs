//! The phases of a measured statement.

/// The phase of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is set up, and has not run.
    SetUp,
    /// It has run, but is not running now: a cursor between two fetches, or a statement that is about to end.
    Suspended,
    /// A run of it is on the stack.
    Running,
    /// Its statistics are recorded.
    Recorded,
    /// It is not used any more.
    Closed,
}

/// What happens to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A run begins.
    Enter,
    /// The run ends, also after an error.
    Leave,
    /// Its statistics are recorded.
    Record,
    /// It ends, or an error has ended it.
    Close,
    /// Another execution of the same plan begins.
    Reuse,
}

impl Phase {
    /// Returns the phase after an event. Returns `None` if the event is not allowed in this phase. Then the
    /// caller must do nothing.
    #[inline(always)]
    pub fn after(self, event: Event) -> Option<Phase> {
        match (self, event) {
            (Phase::SetUp | Phase::Suspended, Event::Enter) => Some(Phase::Running),
            (Phase::Running, Event::Leave) => Some(Phase::Suspended),
            (Phase::SetUp | Phase::Suspended, Event::Record) => Some(Phase::Recorded),
            (Phase::SetUp | Phase::Suspended | Phase::Recorded, Event::Close) => Some(Phase::Closed),
            (Phase::Closed, Event::Reuse) => Some(Phase::SetUp),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 5] = [
        Event::Enter,
        Event::Leave,
        Event::Record,
        Event::Close,
        Event::Reuse,
    ];

    fn after(events: &[Event]) -> Option<Phase> {
        events
            .iter()
            .try_fold(Phase::SetUp, |phase, event| phase.after(*event))
    }

    #[test]
    fn a_cursor_may_run_more_than_once() {
        use Event::*;
        assert_eq!(after(&[]), Some(Phase::SetUp));
        assert_eq!(after(&[Enter, Leave, Enter]), Some(Phase::Running));
        assert_eq!(after(&[Enter, Leave, Enter, Leave]), Some(Phase::Suspended));
        assert_eq!(after(&[Enter, Leave, Record, Close]), Some(Phase::Closed));
        assert_eq!(after(&[Enter, Leave, Record, Close, Reuse]), Some(Phase::SetUp));
        // A cursor that was never fetched from is recorded too.
        assert_eq!(after(&[Record]), Some(Phase::Recorded));
    }

    #[test]
    fn no_event_may_happen_twice() {
        use Event::*;
        assert_eq!(after(&[Enter, Enter]), None);
        assert_eq!(after(&[Enter, Leave, Leave]), None);
        assert_eq!(after(&[Record, Record]), None);
        assert_eq!(after(&[Close, Close]), None);
        assert_eq!(after(&[Reuse]), None);
    }

    #[test]
    fn a_running_statement_accepts_only_leave() {
        let running = EVENTS.map(|event| Phase::Running.after(event));
        assert_eq!(running, [None, Some(Phase::Suspended), None, None, None]);
    }

    #[test]
    fn a_recorded_statement_can_only_be_closed_and_reused() {
        let recorded = EVENTS.map(|event| Phase::Recorded.after(event));
        assert_eq!(recorded, [None, None, None, Some(Phase::Closed), None]);
        let closed = EVENTS.map(|event| Phase::Closed.after(event));
        assert_eq!(closed, [None, None, None, None, Some(Phase::SetUp)]);
    }
}
