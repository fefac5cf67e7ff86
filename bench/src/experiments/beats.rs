//! What beats cost: the worker that makes them, and the sessions that take them.

use crate::measure::context::ExperimentContext;
use crate::measure::cpu;
use crate::measure::rounds::{interleave, ratios_to_first};
use crate::model::check::Goal;
use crate::model::spread::spread;
use crate::model::table::Table;
use rowsource_tests::beats::{Doing, SETTINGS, create, percent};
use rowsource_tests::history::worker;
use rowsource_tests::process::send_signal;
use rowsource_tests::session::run_each;
use rowsource_tests::waiting::pid;
use rowsource_tests::{SHIPPED, Server};
use std::time::Duration;

/// Work that is the same each time.
const SAME: &str = "SELECT count(*) FROM n a, generate_series(1, 10) WHERE a.id % 7 >= 0";

const DOING: [(Doing, &str, f64); 4] = [
    (Doing::Nothing, "nothing runs", 0.1),
    (Doing::Nothing, "nothing runs, again", 0.1),
    (Doing::Long, "a statement of 10 s", 0.3),
    (Doing::Short, "100 sessions run statements of 20 ms", 1.5),
];

pub fn run(context: &mut ExperimentContext) {
    context.at(0.0, "loading");
    let library = [SHIPPED, "shared_preload_libraries = 'pg_rowsource'"];
    let server = Server::start("beats", &[&library[..], &SETTINGS].concat());
    context.server(&server);
    create(&mut server.session());
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
