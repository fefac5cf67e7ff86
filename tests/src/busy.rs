//! Sessions that run statements while others watch them.

use crate::session::value;
use crate::waiting::pid;
use postgres::Client;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The maximum time until a cancelled statement ends.
pub const CANCEL_TIMEOUT: Duration = Duration::from_secs(60);

/// A session that runs statements in a thread.
pub struct Busy {
    pub pid: i32,
    thread: JoinHandle<Client>,
}

impl Busy {
    /// Runs statements at level typical. Another session may end them: their errors do not matter.
    pub fn run(mut client: Client, sql: &str) -> Busy {
        let pid = pid(&mut client);
        let sql = sql.to_owned();
        let thread = std::thread::spawn(move || {
            let _ = client.batch_execute("SET pg_rowsource.statistics_level = typical");
            let _ = client.batch_execute(&sql);
            client
        });
        Busy { pid, thread }
    }

    /// Waits until the statements end, and returns the session.
    pub fn join(self) -> Client {
        self.thread.join().expect("the session")
    }

    /// Cancels the statement, and returns the session.
    pub fn cancel(self, observer: &mut Client) -> Client {
        let deadline = Instant::now() + CANCEL_TIMEOUT;
        while !self.thread.is_finished() {
            assert!(Instant::now() < deadline, "{} is not cancelled", self.pid);
            value::<bool>(observer, &format!("SELECT pg_cancel_backend({})", self.pid));
            std::thread::sleep(Duration::from_millis(20));
        }
        self.join()
    }
}
