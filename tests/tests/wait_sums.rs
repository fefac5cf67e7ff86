//! What a session waits and what it computes add up to its elapsed time.

use postgres::Client;
use rowsource_tests::pgbench::{fill, tpcb};
use rowsource_tests::session::run_each;
use rowsource_tests::verdict::{Limit, ROUNDS, Trial, Verdicts};
use rowsource_tests::waiting::pid;
use rowsource_tests::{Server, compiled, process};
use std::iter;
use std::sync::Barrier;

/// The largest part of the elapsed time by which the sum may exceed it: of each call in which it waits, a
/// little is counted both as processor time and as a wait.
const TOLERATED: f64 = 0.03;

/// Times of a session in milliseconds: since it began, or of a part of it.
#[derive(Clone, Copy, Debug)]
struct Times {
    elapsed: f64,
    waits: f64,
    /// The time that the calls in which it waited took, which a library around them has measured.
    calls: f64,
    /// The processor time outside of the calls in which it waited. What the kernel computes inside such a
    /// call, such as a copy of a block from its cache, is part of the wait.
    cpu: f64,
    /// The processor time inside of these calls.
    cpu_of_waits: f64,
    /// How long it waited for a processor, inside and outside of these calls.
    queue: f64,
}

impl Times {
    /// Reads the times of a session in the session itself. So no wait is in progress.
    fn read(client: &mut Client) -> Times {
        let row = client
            .query_one(
                "SELECT extract(epoch FROM clock_timestamp())::float8 * 1e3, sum(wait_time), cpu_of_process(), cpu_of_waits(),
                        split_part(pg_read_file('/proc/self/schedstat'), ' ', 2)::bigint, time_of_waits()
                 FROM pg_stat_rowsource_session_waits WHERE pid = pg_backend_pid()",
                &[],
            )
            .expect("the session's times");
        let ms = |column: usize| row.get::<_, i64>(column) as f64 / 1e6;
        Times {
            elapsed: row.get(0),
            waits: row.get(1),
            calls: ms(5),
            cpu: ms(2) - ms(3),
            cpu_of_waits: ms(3),
            queue: ms(4),
        }
    }

    fn since(self, before: Times) -> Times {
        Times {
            elapsed: self.elapsed - before.elapsed,
            waits: self.waits - before.waits,
            calls: self.calls - before.calls,
            cpu: self.cpu - before.cpu,
            cpu_of_waits: self.cpu_of_waits - before.cpu_of_waits,
            queue: self.queue - before.queue,
        }
    }
}

/// Runs pgbench's TPC-B script so often. The random numbers depend on `seed`.
fn transactions(client: &mut Client, count: u32, mut seed: u32) {
    let mut random = |below: u32| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        1 + (seed >> 8) % below
    };
    for _ in 0..count {
        let statements = tpcb(random(100_000), random(10), random(5_000));
        let statements = statements.iter().map(String::as_str);
        for statement in iter::once("BEGIN").chain(statements).chain(["END"]) {
            client
                .batch_execute(statement)
                .expect("a statement of the script");
        }
    }
}

/// Starts a server whose sessions know their times.
fn server(name: &str) -> Server {
    let object = compiled::object("cpu_of_waits/cpu_of_waits.c");
    let server = Server::overridden(name, &["fsync = on", "jit = off"], &object);
    fill(&server, 1);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    for name in ["cpu_of_waits", "time_of_waits", "cpu_of_process"] {
        let object = object.display();
        run_each(
            &mut observer,
            &format!("CREATE FUNCTION {name}() RETURNS bigint AS '{object}' LANGUAGE c VOLATILE"),
        );
    }
    server
}

/// Opens a session for the script. Its first statements differ from the others.
fn session(server: &Server, seed: u32) -> Client {
    let mut client = server.connect();
    transactions(&mut client, 2, seed);
    Times::read(&mut client);
    client
}

/// Returns the times of what a session does.
fn during(client: &mut Client, run: impl FnOnce(&mut Client)) -> Times {
    let before = Times::read(client);
    run(client);
    Times::read(client).since(before)
}

/// The library reads its clock around the calls. So a wait is at least as long as its calls, and all waits
/// and the processor time outside of them fit into the elapsed time: also where a session waits for a
/// processor.
#[test]
fn waits_are_between_their_calls_and_the_rest_of_the_elapsed_time() {
    const SESSIONS: u32 = 16;
    let server = server("wait-sums");
    let begin = Barrier::new(SESSIONS as usize);
    std::thread::scope(|scope| {
        for seed in 1..=SESSIONS {
            let (server, begin) = (&server, &begin);
            scope.spawn(move || {
                let mut client = session(server, seed);
                begin.wait();
                let times = during(&mut client, |client| transactions(client, 60, seed));
                let most = (times.waits + times.cpu) / times.elapsed;
                println!("{times:.1?}: {most:.4} of the elapsed time");
                assert!(times.waits > 0.0 && times.cpu > 0.0, "{times:?}");
                // The clocks may differ a little.
                assert!(times.waits > 0.99 * times.calls, "less than the calls: {times:?}");
                assert!(most <= 1.0 + TOLERATED, "more than the elapsed time: {times:?}");
            });
        }
    });
}

/// Nothing is missing: what a session waits, what it computes and what it waits for a processor add up to the
/// elapsed time. The control is a session that only computes: then the system's figures alone add up to it. A
/// class of waits that is not counted is a tenth or more.
#[test]
fn elapsed_is_waits_and_processor_time_timing() {
    const LEAST: f64 = 0.93;
    const COMPUTING: &str = "SELECT count(*) FROM generate_series(1, 100000) i WHERE i % 7 = 0";
    let server = server("wait-sums-elapsed");
    let mut client = session(&server, 1);
    // It waits for no processor then, as on an idle machine. Where that is not allowed, it may, also inside
    // of a wait, which counts twice.
    process::prefer(pid(&mut client) as u32);
    let sum = Trial::of_ratios("what is known of the elapsed time", Limit::AtLeast(LEAST));
    let sum = sum.run(ROUNDS, |round| {
        let of_script = during(&mut client, |client| transactions(client, 40, round as u32));
        let of_computing = during(&mut client, |client| run_each(client, COMPUTING));
        let known = |times: Times| (times.waits + times.cpu + times.queue) / times.elapsed;
        println!("{of_script:.1?}, computing {of_computing:.1?}");
        (known(of_script), known(of_computing))
    });
    let mut verdicts = Verdicts::default();
    verdicts.add(&sum);
    verdicts.finish();
}
