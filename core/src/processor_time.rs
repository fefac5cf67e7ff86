//! The processor time of a test: other work on the machine does not count.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the processor time that `body` takes in this thread.
pub(crate) fn of(body: impl FnOnce()) -> Duration {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    };
    let start = now();
    body();
    now() - start
}

/// Returns the smallest processor time of five runs.
pub(crate) fn smallest(mut body: impl FnMut()) -> Duration {
    (0..5).map(|_| of(&mut body)).min().unwrap_or_default()
}
