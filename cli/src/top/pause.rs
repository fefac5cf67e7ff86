//! A pause while something is recorded: the recording goes on, and only the screen stands still.

use super::Top;

impl Top {
    /// Begins or ends to keep apart what the screen shows and what has come, as the user pauses.
    pub fn follow_pause(&mut self) {
        let is_apart = self.app.paused && self.record.is_some();
        if !is_apart && let Some(newest) = self.newest.take() {
            self.app.data = *newest;
        } else if is_apart && self.newest.is_none() {
            self.newest = Some(Box::new(self.app.data.clone()));
        }
    }

    /// Does something with what has come last, while the screen shows something older. If the user has asked
    /// for the newest, the screen shows it then.
    pub fn with_newest<T>(&mut self, does: impl FnOnce(&mut Self) -> T) -> T {
        let Some(newest) = self.newest.take() else {
            return does(self);
        };
        let shown = std::mem::replace(&mut self.app.data, *newest);
        let done = does(self);
        let newest = Box::new(self.app.data.clone());
        if !self.is_for_key {
            self.app.data = shown;
        }
        self.newest = Some(newest);
        done
    }
}
