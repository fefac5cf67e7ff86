//! What a session waits and what it computes add up to its elapsed time.

use postgres::Client;
use rowsource_tests::compiled;
use rowsource_tests::pgbench::{fill, tpcb};
use rowsource_tests::session::run_each;
use rowsource_tests::waiting::pid;
use rowsource_tests::{Server, process};
use std::iter;
use std::sync::Barrier;

/// The largest part of the elapsed time by which it may differ from the sum.
const TOLERATED: f64 = 0.03;

/// Times of a session in milliseconds: since it began, or of a part of it.
#[derive(Clone, Copy, Debug)]
struct Times {
    elapsed: f64,
    waits: f64,
    /// The processor time outside of the calls in which it waited. What the kernel computes inside such a call, such as a copy of
    /// a block from its cache, is part of the wait.
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
                "SELECT extract(epoch FROM clock_timestamp())::float8 * 1e3, sum(total_time), cpu_of_process(), cpu_of_waits(),
                        split_part(pg_read_file('/proc/self/schedstat'), ' ', 2)::bigint
                 FROM rowsource_session_waits WHERE pid = pg_backend_pid()",
                &[],
            )
            .expect("the session's times");
        let ms = |column: usize| row.get::<_, i64>(column) as f64 / 1e6;
        Times {
            elapsed: row.get(0),
            waits: row.get(1),
            cpu: ms(2) - ms(3),
            cpu_of_waits: ms(3),
            queue: ms(4),
        }
    }

    fn since(self, before: Times) -> Times {
        Times {
            elapsed: self.elapsed - before.elapsed,
            waits: self.waits - before.waits,
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

/// Runs the script in so many sessions at once, and returns the times of each.
fn run(server: &Server, sessions: u32, count: u32) -> Vec<Times> {
    let begin = Barrier::new(sessions as usize);
    let session = |seed: u32| {
        let mut client = server.connect();
        if sessions == 1 {
            // It waits for no processor then, as on an idle machine. Where that is not allowed, it may.
            process::prefer(pid(&mut client) as u32);
        }
        // The first statements of a session differ from the others.
        transactions(&mut client, 2, seed);
        Times::read(&mut client);
        begin.wait();
        let before = Times::read(&mut client);
        transactions(&mut client, count, seed);
        Times::read(&mut client).since(before)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=sessions)
            .map(|seed| {
                let session = &session;
                scope.spawn(move || session(seed))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a session"))
            .collect()
    })
}

#[test]
fn elapsed_is_waits_and_processor_time_timing() {
    let object = compiled::object("cpu_of_waits/cpu_of_waits.c");
    let server = Server::overridden("wait-sums", &["fsync = on"], &object);
    fill(&server, 1);
    let mut observer = server.connect();
    run_each(&mut observer, "CREATE EXTENSION pg_rowsource");
    for name in ["cpu_of_waits", "cpu_of_process"] {
        let object = object.display();
        run_each(
            &mut observer,
            &format!("CREATE FUNCTION {name}() RETURNS bigint AS '{object}' LANGUAGE c VOLATILE"),
        );
    }
    for (sessions, count) in [(16, 60), (1, 600)] {
        for times in run(&server, sessions, count) {
            let sum = times.waits + times.cpu;
            let (least, most) = (sum / times.elapsed, (sum + times.queue) / times.elapsed);
            println!("{sessions} sessions: {times:.1?}: {least:.4} to {most:.4} of the elapsed time");
            assert!(times.waits > 0.3 * times.elapsed && times.cpu > 0.0, "{times:?}");
            assert!(least <= 1.0 + TOLERATED, "more than the elapsed time: {times:?}");
            assert!(most >= 1.0 - TOLERATED, "less than the elapsed time: {times:?}");
        }
    }
}
