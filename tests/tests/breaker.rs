//! The breaker: a session stops measuring if that takes more than `max_overhead` percent of the executor's
//! time for a minute. The clock's readings take a known time here. All times are those that this clock shows.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::burn;
use rowsource_tests::compiled::object;
use rowsource_tests::measured::display;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::waiting::until;

/// The limit is the default one.
const SETTINGS: [&str; 3] = [
    "max_parallel_workers_per_gather = 0",
    "jit = off",
    "pg_rowsource.max_overhead = 10",
];
/// Calls of a node below the load's aggregate, in a statement.
const ROWS: i32 = 500;
const STOPPED: &str = "SELECT sessions_stopped FROM rowsource_info()";
const LIMIT: &str = "pg_rowsource.max_overhead is 10";

/// A session in which each call of a node costs a known time.
struct Load {
    client: Client,
    /// What a reading costs, in microseconds.
    reading: f64,
    /// What a call of the scan does, in microseconds.
    burning: f64,
}

impl Load {
    /// Measuring takes this share of its time, or less if the session has to wait for a processor.
    fn new(server: &Server, share: f64) -> Load {
        let mut client = server.session();
        burn::create(&mut client);
        run_each(
            &mut client,
            &format!(
                "CREATE TABLE IF NOT EXISTS n AS SELECT i AS id FROM generate_series(1, {ROWS}) i; VACUUM ANALYZE n;
                 SET pg_rowsource.clock_source = system; SET pg_rowsource.sampfreq = 1;
                 SET pg_rowsource.statistics_level = typical"
            ),
        );
        let reading = "SELECT reading_ns / 1000 FROM rowsource_clocks(1000) WHERE clock_source = 'system'";
        let reading: f64 = value(&mut client, reading);
        // burn() reads the clock before it begins, and ends with the reading after its time.
        let burning = (2.0 * reading * (1.0 / share - 1.0) - 1.5 * reading).max(0.0);
        Load {
            client,
            reading,
            burning,
        }
    }

    /// Runs the load for `seconds` seconds. Returns after how many seconds the session has stopped to
    /// measure.
    fn run(&mut self, seconds: f64) -> Option<f64> {
        let load = format!("SELECT count(*) FROM n WHERE burn({:.1})", self.burning);
        let look = "SELECT extract(epoch FROM clock_timestamp())::float8";
        let began: f64 = value(&mut self.client, look);
        loop {
            for _ in 0..5 {
                assert_eq!(value::<i64>(&mut self.client, &load), i64::from(ROWS));
            }
            let lasted = value::<f64>(&mut self.client, look) - began;
            if value::<i64>(&mut self.client, STOPPED) > 0 {
                return Some(lasted);
            }
            if lasted > seconds {
                return None;
            }
        }
    }

    /// Runs the load until the session stops, or until its executions have taken so many seconds. Returns how
    /// many they have taken if it stops.
    fn run_for(&mut self, seconds: f64) -> Option<f64> {
        let load = format!("SELECT count(*) FROM n WHERE burn({:.1})", self.burning);
        let took = "SELECT coalesce(sum(total_time), 0) / 1000 FROM pg_stat_rowsource_plans WHERE query LIKE '%burn(%'";
        loop {
            for _ in 0..20 {
                assert_eq!(value::<i64>(&mut self.client, &load), i64::from(ROWS));
            }
            let took: f64 = value(&mut self.client, took);
            if value::<i64>(&mut self.client, STOPPED) > 0 {
                return Some(took);
            }
            if took > seconds {
                return None;
            }
        }
    }

    /// Returns which share of the recorded time the readings took.
    fn share(&mut self) -> f64 {
        let took = "SELECT (1000 * sum(total_time) / sum(calls))::float8 FROM pg_stat_rowsource_plans WHERE query LIKE '%burn(%'";
        let share = 2.0 * self.reading * f64::from(ROWS) / value::<f64>(&mut self.client, took);
        println!(
            "readings take {:.1} us, which is a share of {share:.3}",
            self.reading
        );
        share
    }
}

/// Runs a cheap and a dear load. Returns after how many seconds the dear one has stopped.
fn stops(name: &str, clock: &str, cheap_for: f64) -> f64 {
    let server = Server::overridden(name, &SETTINGS, &object(clock));
    let mut cheap = Load::new(&server, 0.08);
    assert_eq!(cheap.run(cheap_for), None);
    let share = cheap.share();
    // On a busy machine the load takes longer than the readings say.
    assert!((0.03..0.095).contains(&share), "{share}");
    run_each(&mut cheap.client, "SELECT rowsource_reset()");
    let mut dear = Load::new(&server, 0.8);
    let after = dear.run(600.0).expect("it stops");
    println!("stopped after {after:.1} s");
    dear.share();
    is_said(&server, &mut dear.client, &mut cheap.client);
    after
}

/// Checks what the session, the views of others and the log say, and that the session goes on if it is
/// allowed to.
fn is_said(server: &Server, stopped: &mut Client, other: &mut Client) {
    const CALLS: &str =
        "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_rowsource_plans WHERE query LIKE '%n WHERE id%'";
    let measured = "SELECT count(*) FROM n WHERE id > 3";
    run_each(stopped, measured);
    assert_eq!(value::<i64>(other, CALLS), 0);
    let shown = display(stopped, "ALLSTATS LAST");
    // Long lines are wrapped.
    let text = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("measures no more, because measuring took") && text.contains(LIMIT),
        "{shown}"
    );
    let last: String = value(other, "SELECT last_stop FROM rowsource_info()");
    println!("{last}");
    assert!(last.contains("% of the executor's time for a minute"), "{last}");
    assert_eq!(value::<i64>(other, STOPPED), 1);
    let log = server.log();
    assert_eq!(
        log.matches("measures no more statements, because").count(),
        1,
        "{log}"
    );
    // A statement that asks for it is measured as at level basic.
    run_each(stopped, &format!("/*+ gather_plan_statistics */ {measured}"));
    assert_eq!(value::<i64>(other, CALLS), 1);
    run_each(stopped, "SET pg_rowsource.statistics_level = 'all'");
    run_each(stopped, measured);
    assert_eq!(value::<i64>(other, CALLS), 1);
    run_each(other, measured);
    assert_eq!(value::<i64>(other, CALLS), 2);
    // The same value changes nothing, but another one does.
    run_each(stopped, "SET pg_rowsource.max_overhead = 10");
    assert_eq!(value::<i64>(other, STOPPED), 1);
    run_each(stopped, "SET pg_rowsource.max_overhead = 100");
    run_each(stopped, measured);
    assert_eq!(value::<i64>(other, CALLS), 3);
    assert_eq!(value::<i64>(other, STOPPED), 0);
}

/// A minute takes three seconds here.
#[test]
fn a_session_stops_if_measuring_takes_too_much_for_a_minute() {
    let after = stops("breaker-fast", "costly_clock/fast_costly_clock.c", 200.0);
    assert!(after >= 60.0, "{after}");
}

#[test]
fn a_session_stops_after_60_to_75_seconds_long() {
    let after = stops("breaker", "costly_clock/costly_clock.c", 150.0);
    assert!((60.0..75.0).contains(&after), "{after}");
}

/// A reading of this clock takes exactly as long on a busy machine, and waiting for a processor takes no
/// time. So measuring takes the same share of the load.
#[test]
fn a_session_stops_slightly_above_the_limit_and_not_below_it() {
    let server = Server::overridden(
        "breaker-near",
        &SETTINGS,
        &object("costly_clock/costly_clock_of_readings.c"),
    );
    let mut cheap = Load::new(&server, 0.08);
    assert_eq!(cheap.run_for(300.0), None);
    let share = cheap.share();
    assert!((0.07..0.09).contains(&share), "{share}");
    run_each(&mut cheap.client, "SELECT rowsource_reset()");
    let mut dear = Load::new(&server, 0.12);
    let after = dear.run_for(300.0);
    let share = dear.share();
    assert!((0.11..0.13).contains(&share), "{share}");
    // The minute also has what passes between executions.
    assert!(
        after.is_some_and(|after| (59.0..75.0).contains(&after)),
        "{after:?}"
    );
}

/// A session that has ended is not counted.
#[test]
fn a_session_that_ends_is_not_counted() {
    let server = Server::overridden(
        "breaker-end",
        &SETTINGS,
        &object("costly_clock/fast_costly_clock.c"),
    );
    let mut observer = server.session();
    let mut load = Load::new(&server, 0.8);
    load.run(600.0).expect("it stops");
    assert_eq!(value::<i64>(&mut observer, STOPPED), 1);
    drop(load);
    until(
        &mut observer,
        "SELECT sessions_stopped = 0 AND last_stop IS NOT NULL FROM rowsource_info()",
    );
}

/// A function that runs statements for more than a minute stops measuring them before it ends.
#[test]
fn nested_statements_are_no_longer_measured() {
    let server = Server::overridden(
        "breaker-nested",
        &SETTINGS,
        &object("costly_clock/fast_costly_clock.c"),
    );
    let mut load = Load::new(&server, 0.8);
    let client = &mut load.client;
    run_each(client, "SET pg_rowsource.track = 'all'");
    let runs = format!(
        "DO $$
         DECLARE ends timestamptz := clock_timestamp() + interval '100 s';
         BEGIN
             WHILE clock_timestamp() < ends LOOP PERFORM count(*) FROM n WHERE burn({:.1}); END LOOP;
             PERFORM count(*) FROM n WHERE id > 3;
         END $$",
        load.burning
    );
    client.batch_execute(&runs).expect("the statements run");
    assert_eq!(value::<i64>(client, STOPPED), 1);
    let recorded = "SELECT count(*) FROM pg_stat_rowsource_plans WHERE NOT toplevel AND query LIKE '%id >%'";
    assert_eq!(value::<i64>(client, recorded), 0);
}
