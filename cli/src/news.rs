//! What came in between, as the last line says it: a restart, a reset, an eviction. It is said for some
//! seconds.

use crate::data::Happened;

/// For so many seconds an event is said.
const SECONDS: f64 = 5.0;
/// Plans that are evicted are said only so many seconds after others were: a store that is too small evicts
/// some at each refresh.
const BETWEEN_EVICTIONS: f64 = 30.0;

/// What is said.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Since when, by the server's clock, and what.
    said: Option<(f64, String)>,
    /// When it was last said that plans were evicted.
    evictions_said: f64,
}

impl News {
    /// Takes an event over.
    pub fn hear(&mut self, event: &Happened) {
        if event.kind == "eviction" {
            if (0.0..BETWEEN_EVICTIONS).contains(&(event.at - self.evictions_said)) {
                return;
            }
            self.evictions_said = event.at;
        }
        self.said = Some((event.at, event.text.clone()));
    }

    /// Returns what is said at a time.
    pub fn now(&self, at: f64) -> Option<&str> {
        let (since, text) = self.said.as_ref()?;
        (0.0..SECONDS).contains(&(at - since)).then_some(text.as_str())
    }

    /// Says it no more.
    pub fn clear(&mut self) {
        self.said = None;
    }
}
