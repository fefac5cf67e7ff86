//! What beats cost: the worker that makes them, and the sessions that take them.

use crate::measure::context::ExperimentContext;
use crate::measure::cpu;
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::model::check::Goal;
use crate::model::spread::spread;
use crate::model::table::Table;
use postgres::Client;
use rowsource_tests::burn;
use rowsource_tests::busy::Busy;
use rowsource_tests::history::{SESSIONS, worker};
use rowsource_tests::pgbench::pgbench;
use rowsource_tests::process::send_signal;
use rowsource_tests::session::run_each;
use rowsource_tests::waiting::{pid, until};
use rowsource_tests::{SHIPPED, Server};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The worker only makes beats.
const SETTINGS: [&str; 7] = [
    SHIPPED,
    "shared_preload_libraries = 'pg_rowsource'",
    "pg_rowsource.history_frequency = 0",
    "max_connections = 120",
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "autovacuum = off",
];
/// Cheap calls without end, not all of which are timed.
const ENDLESS: &str = "SELECT count(*) FROM n a, n b WHERE burn(0.2)";
/// A statement of 20 ms.
const SHORT: &str = "SELECT count(*) FROM short WHERE burn(0.5)";
/// Work that is the same each time.
const SAME: &str = "SELECT count(*) FROM n a, generate_series(1, 10) WHERE a.id % 7 >= 0";

/// What the sessions do while the worker is measured.
#[derive(Clone, Copy)]
enum Doing {
    Nothing,
    /// One computes. A measurement begins with its statement.
    Long,
    /// All run short statements.
    Short,
}

const DOING: [(Doing, &str, f64); 4] = [
    (Doing::Nothing, "nothing runs", 0.1),
    (Doing::Nothing, "nothing runs, again", 0.1),
    (Doing::Long, "a statement of 10 s", 0.3),
    (Doing::Short, "100 sessions run statements of 20 ms", 1.5),
];

pub fn run(context: &mut ExperimentContext) {
    context.at(0.0, "loading");
    let server = Server::start("beats", &SETTINGS);
    context.server(&server);
    let mut client = server.session();
    burn::create(&mut client);
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 300000) i; VACUUM ANALYZE n;
         CREATE TABLE short AS SELECT i AS id FROM generate_series(1, 20000) i; VACUUM ANALYZE short",
    );
    context.begin_part(0.02, 0.7);
    of_worker(context, &server);
    context.begin_part(0.7, 1.0);
    of_session(context, &server);
}

/// Measures what the worker takes.
fn of_worker(context: &mut ExperimentContext, server: &Server) {
    let during = Duration::from_secs(context.sizes.of(1, 10));
    let rounds = context.sizes.rounds(1, 5);
    context.setting("a measurement of the worker", format!("{} s", during.as_secs()));
    let mut observer = server.connect();
    let worker = worker(&mut observer);
    let names = DOING.map(|(_, name, _)| name.to_string());
    let series = interleave(context, "the worker", &names, rounds, |at| {
        percent(server, &mut observer, worker, DOING[at].0, during)
    });
    let mut table = Table::new(
        "The worker that makes beats",
        "Percent of a processor. It takes no samples here.",
        &["sessions", "percent"],
    );
    for (line, (_, name, goal)) in series.iter().zip(DOING) {
        let percent = line.of(|percent| *percent);
        context.measured("worker", name, "percent of a processor", &percent);
        let found = spread(&percent);
        table.row([
            name.to_string(),
            format!("{:.2} ({:.2}-{:.2})", found.median, found.low, found.high),
        ]);
        context.goal(
            format!("worker, {name}"),
            &Goal::at_most(goal).with_note("percent of a processor"),
            &found,
        );
    }
    context.table(table);
}

/// Returns the percentage of a processor that the worker takes in this time.
fn percent(server: &Server, observer: &mut Client, worker: u32, doing: Doing, during: Duration) -> f64 {
    match doing {
        Doing::Nothing => taken(worker, during, || ()).0,
        Doing::Long => {
            let client = server.connect();
            let (percent, busy) = taken(worker, during, || Busy::run(client, ENDLESS));
            busy.cancel(observer);
            percent
        }
        Doing::Short => std::thread::scope(|scope| {
            let script = server.folder().join("short.sql");
            std::fs::write(&script, SHORT).expect("a script");
            let options = format!("-n -c {SESSIONS} -j 2 -T {} -f", during.as_secs() + 4);
            let runs = scope.spawn(move || {
                let script = script.to_string_lossy();
                pgbench(
                    server,
                    "",
                    &options.split(' ').chain([&*script]).collect::<Vec<_>>(),
                )
            });
            until(
                observer,
                &format!(
                    "SELECT count(*) >= {SESSIONS} AND bool_and(query LIKE '%burn%') FROM pg_stat_activity
                     WHERE application_name = 'pgbench'"
                ),
            );
            let (percent, ()) = taken(worker, during, || ());
            runs.join().expect("pgbench");
            percent
        }),
    }
}

/// Begins something. Returns the percentage of a processor that the worker then takes in this time.
fn taken<T>(worker: u32, during: Duration, begin: impl FnOnce() -> T) -> (f64, T) {
    let (began, before) = (Instant::now(), cpu::seconds_of(worker));
    let begun = begin();
    sleep(during.saturating_sub(began.elapsed()));
    let took = cpu::seconds_of(worker) - before;
    (100.0 * took / began.elapsed().as_secs_f64(), begun)
}

/// Compares the same work with beats and without: then the worker is stopped.
fn of_session(context: &mut ExperimentContext, server: &Server) {
    let rounds = context.sizes.rounds(2, 24);
    let names = ["no beats", "no beats, again", "beats"].map(str::to_string);
    let mut client = server.connect();
    let worker = worker(&mut client);
    let session = pid(&mut client) as u32;
    let series = interleave(context, "a session", &names, rounds, |at| {
        send_signal(worker, if at == 2 { "CONT" } else { "STOP" });
        let before = cpu::seconds_of(session);
        run_each(&mut client, SAME);
        cpu::seconds_of(session) - before
    });
    send_signal(worker, "CONT");
    let ratios = ratios_to_first(&series, |seconds| *seconds);
    let mut table = Table::new(
        "A session with beats and without",
        "CPU time of the same statement, as a ratio to none. Without beats, the worker is stopped.",
        &["", "ms", "ratio"],
    );
    for (line, ratio) in series.iter().zip(&ratios) {
        let ms = line.of(|seconds| 1000.0 * seconds);
        context.measured("a session", &line.name, "ms", &ms);
        table.row([
            line.name.clone(),
            format!("{:.1}", spread(&ms).median),
            ratio.as_ratio(),
        ]);
    }
    context.table(table);
}
