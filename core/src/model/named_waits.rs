//! The waits of a plan, as they are shown.

/// The waits of a node for an event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedWaits {
    /// The node's index in the plan; `None` for what the statement waited outside of its nodes.
    pub node: Option<usize>,
    /// The type of the event; `None` for the sum of several events.
    pub event_type: Option<String>,
    /// The event.
    pub event: String,
    /// The number of waits.
    pub waits: u64,
    /// Their milliseconds.
    pub ms: f64,
    /// The milliseconds of the longest one.
    pub max_ms: f64,
}

/// What a process waits for, as far as nodes are told apart by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// A table or an index.
    Blocks,
    /// A temporary file.
    TemporaryFile,
    /// Anything else: a lock, another process, a time.
    Other,
}

impl NamedWaits {
    /// Returns the name of the event behind that of its type: `Lock:transactionid`.
    pub fn name(&self) -> String {
        match &self.event_type {
            Some(of) => format!("{of}:{}", self.event),
            None => self.event.clone(),
        }
    }

    /// Returns what the event is a wait for.
    pub fn waits_for(&self) -> WaitsFor {
        match self.event_type.as_deref() {
            Some("IO") if self.event.starts_with("Buf") => WaitsFor::TemporaryFile,
            Some("IO") => WaitsFor::Blocks,
            _ => WaitsFor::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_type() {
        let waits = |of: Option<&str>, event: &str| NamedWaits {
            event_type: of.map(str::to_owned),
            event: event.to_owned(),
            ..NamedWaits::default()
        };
        assert_eq!(waits(Some("Lock"), "tuple").name(), "Lock:tuple");
        assert_eq!(waits(None, "other").name(), "other");
        for (of, event, expected) in [
            ("IO", "DataFileRead", WaitsFor::Blocks),
            ("IO", "BufFileWrite", WaitsFor::TemporaryFile),
            ("IO", "BuffileRead", WaitsFor::TemporaryFile),
            ("BufferPin", "BufferPin", WaitsFor::Other),
        ] {
            assert_eq!(waits(Some(of), event).waits_for(), expected, "{event}");
        }
    }
}
