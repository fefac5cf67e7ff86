//! What a session takes more with the library: its private memory, and what it has in shared memory. Its
//! database has the extension, whose objects a session reads with its first measured statement.
//! docs/operation.md lists the figures with their reasons. If a figure falls, lower the limit here.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::process::own_pages;
use rowsource_tests::session::{run_each, value};

/// The most kilobytes that the library may add to a session.
struct Limits {
    private: f64,
    dynamic: f64,
}

const UNMEASURED: Limits = Limits {
    private: 64.0,
    dynamic: 0.0,
};
// Private memory differs by up to 8 kB from run to run, shared memory by up to 50 kB, because the system maps
// pages around one that is touched.
const ONE_PLAN: Limits = Limits {
    private: 200.0,
    dynamic: 80.0,
};
const EIGHT_PLANS: Limits = Limits {
    private: 226.0,
    dynamic: 170.0,
};

fn table(client: &mut Client) {
    run_each(
        client,
        "CREATE TABLE t AS SELECT i AS id, i % 10 AS v FROM generate_series(1, 1000) i; ALTER TABLE t ADD PRIMARY KEY (id);
         VACUUM (FREEZE, ANALYZE) t",
    );
}

/// Returns the kilobytes of new sessions: private and dynamic shared memory that they have touched, each
/// after it has run `plans` plans.
fn kilobytes(library: &str, level: &str, plans: usize) -> [f64; 2] {
    const SESSIONS: usize = 8;
    let settings = [
        format!("shared_preload_libraries = '{library}'"),
        format!("pg_rowsource.statistics_level = {level}"),
    ];
    let server = Server::start("session-memory", &settings.each_ref().map(String::as_str));
    table(&mut server.connect());
    if !library.is_empty() {
        run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    }
    let mut sums = [0.0; 2];
    let mut sessions: Vec<Client> = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = server.connect();
        for _ in 0..3 {
            for plan in 0..plans {
                run_each(
                    &mut client,
                    &format!("SELECT v + {plan}{} FROM t WHERE id = 7", " + 1".repeat(plan)),
                );
            }
        }
        sessions.push(client);
    }
    for client in &mut sessions {
        let pid: i32 = value(client, "SELECT pg_backend_pid()");
        let own = own_pages(pid as u32);
        for (sum, bytes) in sums.iter_mut().zip([own.private, own.dynamic]) {
            *sum += bytes as f64 / 1024.0 / SESSIONS as f64;
        }
    }
    sums
}

#[test]
fn a_session_and_its_plans_take_little() {
    let nothing = [1, 8].map(|plans| kilobytes("", "typical", plans));
    let mut failures = Vec::new();
    for (level, plans, nothing, limits) in [
        ("basic", 1, nothing[0], UNMEASURED),
        ("typical", 1, nothing[0], ONE_PLAN),
        ("typical", 8, nothing[1], EIGHT_PLANS),
    ] {
        let with = kilobytes("pg_rowsource", level, plans);
        let [private, dynamic] = [0, 1].map(|i| with[i] - nothing[i]);
        println!(
            "{level}, plans: {plans}: {private:.0} kB private and {dynamic:.0} kB of dynamic shared memory more"
        );
        if private > limits.private || dynamic > limits.dynamic {
            failures.push(format!(
                "{level}, plans: {plans}: {private:.0} kB and {dynamic:.0} kB"
            ));
        }
    }
    assert!(failures.is_empty(), "more than the limits: {failures:?}");
}
