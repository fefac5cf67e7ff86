//! Sessions that wait for each other.

use crate::session::{cancel_backend, must_fail, run_each, value};
use postgres::Client;
use postgres::error::SqlState;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The maximum time until a session waits.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Dropping this tells the threads to stop that look at the flag: also if what they wait for fails. A scope
/// of threads waits for them.
pub struct Ended<'a>(pub &'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

pub fn pid(client: &mut Client) -> i32 {
    value(client, "SELECT pg_backend_pid()")
}

/// Waits until a process waits for this event.
pub fn until_waiting(observer: &mut Client, pid: i32, event: &str) {
    let deadline = Instant::now() + TIMEOUT;
    let waiting =
        format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND wait_event = '{event}'");
    while value::<i64>(observer, &waiting) == 0 {
        assert!(Instant::now() < deadline, "{pid} does not wait for {event}");
    }
}

/// Waits until a query returns true, and neither false nor NULL, at most a minute.
pub fn until(observer: &mut Client, condition: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while value::<Option<bool>>(observer, condition) != Some(true) {
        assert!(Instant::now() < deadline, "never: {condition}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How long a wait lasted, as far as others know: at least for as long as something kept it waiting, and at
/// most as long as its statement took. Other work on the machine prolongs the second one only.
#[derive(Clone, Copy, Debug)]
pub struct Lasted {
    pub least: Duration,
    pub most: Duration,
}

impl Lasted {
    /// Runs what waits for a known time or longer.
    pub fn during(least: Duration, run: impl FnOnce()) -> Lasted {
        let start = Instant::now();
        run();
        Lasted {
            least,
            most: start.elapsed(),
        }
    }

    /// Runs statements one by one, in which a wait lasts this long or longer.
    pub fn running(client: &mut Client, least_ms: u64, sql: &str) -> Lasted {
        Lasted::during(Duration::from_millis(least_ms), || run_each(client, sql))
    }

    /// Returns whether a wait of these milliseconds lasted that long. The clocks may differ a little.
    pub fn contains(&self, ms: f64) -> bool {
        let [least, most] = [self.least, self.most].map(|time| time.as_secs_f64() * 1e3);
        (0.99 * least - 1.0..=1.01 * most + 1.0).contains(&ms)
    }
}

/// Holds a lock that another session needs, and returns for how long that waited.
pub fn hold(
    observer: &mut Client,
    mut client: Client,
    [lock, needs, event]: [&str; 3],
    held: Duration,
) -> (Client, Lasted) {
    run_each(observer, lock);
    let id = pid(&mut client);
    let needs = needs.to_owned();
    let sent = Instant::now();
    let session = std::thread::spawn(move || {
        run_each(&mut client, &needs);
        client
    });
    until_waiting(observer, id, event);
    let start = Instant::now();
    std::thread::sleep(held);
    // Not later: the wait ends before this thread runs again.
    let least = start.elapsed();
    run_each(observer, "COMMIT");
    let client = session.join().expect("the session");
    let most = sent.elapsed();
    (client, Lasted { least, most })
}

/// Cancels a statement of a session that needs the advisory lock 1, which the observer keeps. Returns for how
/// long that waited.
pub fn cancel(
    observer: &mut Client,
    mut client: Client,
    statement: &str,
    held: Duration,
) -> (Client, Lasted) {
    run_each(observer, "SELECT pg_advisory_lock(1)");
    let id = pid(&mut client);
    let statement = statement.to_owned();
    let sent = Instant::now();
    let session = std::thread::spawn(move || {
        let (code, _) = must_fail(&mut client, &statement);
        assert_eq!(code, SqlState::QUERY_CANCELED);
        client
    });
    until_waiting(observer, id, "advisory");
    let start = Instant::now();
    std::thread::sleep(held);
    let least = start.elapsed();
    cancel_backend(observer, id);
    let client = session.join().expect("the session");
    let most = sent.elapsed();
    (client, Lasted { least, most })
}
