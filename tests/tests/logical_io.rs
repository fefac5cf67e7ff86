//! How long it takes to get a block: `rowsource_logical_io()`.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::compiled::object;
use rowsource_tests::explain::explain_json;
use rowsource_tests::session::{must_fail, must_time_out, run_each, texts, value};
use rowsource_tests::verdict::{Limit, ROUNDS, Side, Trial, Verdicts};

/// A table of 1,000 blocks.
const TABLE: &str = "CREATE EXTENSION pg_rowsource; CREATE TABLE blocks (id int PRIMARY KEY, pad text);
     ALTER TABLE blocks ALTER pad SET STORAGE PLAIN;
     INSERT INTO blocks SELECT i, repeat('x', 7000) FROM generate_series(1, 1000) i;
     CREATE TABLE nothing (id int); VACUUM ANALYZE blocks; CHECKPOINT";

/// Returns a server with that table, none of whose blocks is in PostgreSQL's buffers.
fn server(name: &str) -> Server {
    let mut server = Server::preloaded(name, &["shared_buffers = '32MB'"]);
    run_each(&mut server.connect(), TABLE);
    server.stop();
    server.launch();
    server
}

/// Returns the gets that hit and those that read.
fn gets(client: &mut Client, arguments: &str) -> (i64, i64) {
    let sql = format!(
        "SELECT coalesce(sum(hits), 0)::bigint, coalesce(sum(reads), 0)::bigint FROM rowsource_logical_io({arguments})"
    );
    let row = client.query_one(&sql, &[]).expect(&sql);
    (row.get(0), row.get(1))
}

/// Returns core's counters of hits and reads of a relation, from the statements that this session has
/// finished.
fn counted_by_core(client: &mut Client, sql: &str) -> (i64, i64) {
    let plan = &explain_json(client, sql, "ANALYZE, BUFFERS, FORMAT JSON")[0]["Plan"];
    let of = |key: &str| plan[key].as_i64().expect("a counter");
    (of("Shared Hit Blocks"), of("Shared Read Blocks"))
}

#[test]
fn a_cold_relation_is_read_and_a_warm_one_is_hit() {
    let server = server("logical-io");
    let mut client = server.connect();
    assert_eq!(gets(&mut client, "'blocks'"), (0, 1000));
    assert_eq!(gets(&mut client, "'blocks'"), (1000, 0));
    assert_eq!(
        gets(
            &mut client,
            "'blocks', pattern => 'random', blocks => 5000, seed => 1"
        ),
        (5000, 0)
    );
    // More blocks than there are: it begins again. Fewer: only those.
    assert_eq!(gets(&mut client, "'blocks', blocks => 2500"), (2500, 0));
    assert_eq!(gets(&mut client, "'blocks', blocks => 10"), (10, 0));
    // Its index was read by nobody yet.
    let (hits, reads) = gets(&mut client, "'blocks_pkey'");
    let blocks: i64 = value(&mut client, "SELECT pg_relation_size('blocks_pkey') / 8192");
    assert_eq!((hits + reads, reads > 0), (blocks, true));
}

/// The gets of a random pattern are those that core counts for the statement, to the block.
#[test]
fn core_counts_the_same_gets() {
    let server = server("logical-io-core");
    let mut client = server.connect();
    // The first call reads catalogs too.
    gets(&mut client, "'blocks', blocks => 1");
    let call =
        "SELECT count(*) FROM rowsource_logical_io('blocks', pattern => 'random', blocks => 700, seed => 7)";
    let (hits, reads) = counted_by_core(&mut client, call);
    assert_eq!(hits + reads, 700);
    // Random numbers repeat: each block is read once.
    assert!((400..650).contains(&reads), "{reads}");
    assert_eq!(
        counted_by_core(&mut client, call),
        (700, 0),
        "the same seed gets the same blocks"
    );
}

#[test]
fn hits_and_reads_are_summed_up_apart() {
    let server = server("logical-io-summary");
    let mut client = server.connect();
    let sql = "SELECT hit_min_us, hit_mean_us, hit_p50_us, hit_p99_us, hit_max_us,
                      read_min_us, read_mean_us, read_p50_us, read_p99_us, read_max_us, timer_us
                 FROM rowsource_logical_io('blocks', blocks => 3000) LIMIT 1";
    let row = client.query_one(sql, &[]).expect(sql);
    let column = |i: usize| row.get::<_, f64>(i);
    for first in [0, 5] {
        let (min, mean, p50, p99, max) = (
            column(first),
            column(first + 1),
            column(first + 2),
            column(first + 3),
            column(first + 4),
        );
        assert!(
            0.0 <= min && min <= p50 && p50 <= p99 && p99 <= max && min <= mean && mean <= max,
            "{row:?}"
        );
    }
    assert!(
        column(7) > 2.0 * column(2),
        "a read takes longer than a hit: {} and {} us",
        column(7),
        column(2)
    );
    assert!(
        (0.0..10.0).contains(&column(10)),
        "reading the clock takes {} us",
        column(10)
    );
    let sql = "SELECT bool_and(from_us < coalesce(to_us, 'infinity')), bool_and(hits + reads > 0) FROM rowsource_logical_io('blocks')";
    let row = client.query_one(sql, &[]).expect(sql);
    assert_eq!((row.get(0), row.get(1)), (true, true));
}

#[test]
fn everything_with_blocks_can_be_read() {
    let server = server("logical-io-kinds");
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE toasted (id int, pad text); ALTER TABLE toasted ALTER pad SET STORAGE EXTERNAL;
         INSERT INTO toasted SELECT i, repeat('y', 9000) FROM generate_series(1, 20) i; VACUUM toasted;
         CREATE SEQUENCE numbers; CREATE MATERIALIZED VIEW viewed AS SELECT * FROM blocks LIMIT 100;
         CREATE TEMP TABLE mine AS SELECT * FROM blocks LIMIT 50; CREATE TABLE parted (id int) PARTITION BY RANGE (id);
         CREATE VIEW seen AS SELECT 1 AS one; SELECT nextval('numbers')",
    );
    for relation in [
        "'numbers'",
        "'viewed'",
        "'mine'",
        "'toasted'",
        "'toasted', 'vm'",
        "'toasted', 'fsm'",
    ] {
        let (hits, reads) = gets(&mut client, relation);
        let blocks: i64 = value(
            &mut client,
            &format!("SELECT pg_relation_size({relation}) / 8192"),
        );
        assert_eq!(hits + reads, blocks, "{relation}");
        assert!(blocks > 0, "{relation}");
    }
    let toast: String = value(
        &mut client,
        "SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = 'toasted'",
    );
    assert!(gets(&mut client, &format!("'{toast}'")).0 > 20);
    // A relation without blocks, a fork that does not exist, and no relation give no row.
    for arguments in ["'nothing'", "'nothing', 'vm'", "'blocks', 'init'", "NULL"] {
        let sql = format!("SELECT * FROM rowsource_logical_io({arguments})");
        assert!(texts(&mut client, &sql).is_empty(), "{arguments}");
    }
    // NULL is the default.
    for arguments in ["'blocks', NULL", "'blocks', pattern => NULL"] {
        let (hits, reads) = gets(&mut client, arguments);
        assert!(hits + reads > 0, "{arguments}");
    }
    for (arguments, expected) in [
        ("'seen'", "\"seen\" has no blocks"),
        ("'parted'", "\"parted\" has no blocks"),
        ("'blocks', 'tail'", "invalid fork name"),
        ("'blocks', blocks => 0", "must be positive"),
        ("'blocks', blocks => -1", "must be positive"),
        (
            "'blocks', pattern => 'backwards'",
            "unknown word \"backwards\" for the argument \"pattern\"",
        ),
        ("0", "could not open relation"),
    ] {
        let (_, message) = must_fail(&mut client, &format!("SELECT rowsource_logical_io({arguments})"));
        assert!(message.contains(expected), "{arguments}: {message}");
    }
    let mut other = server.connect();
    let schema: String = value(&mut client, "SELECT pg_my_temp_schema()::regnamespace::text");
    let (_, message) = must_fail(
        &mut other,
        &format!("SELECT rowsource_logical_io('{schema}.mine')"),
    );
    assert!(
        message.contains("temporary relation of another session"),
        "{message}"
    );
}

#[test]
fn only_who_may_read_the_rows_may_read_the_blocks() {
    let server = server("logical-io-rights");
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE ROLE reader; GRANT SELECT ON nothing TO reader; SET ROLE reader",
    );
    assert_eq!(gets(&mut client, "'nothing'"), (0, 0));
    for relation in ["blocks", "blocks_pkey"] {
        let (_, message) = must_fail(&mut client, &format!("SELECT rowsource_logical_io('{relation}')"));
        assert!(message.contains("permission denied"), "{message}");
    }
    run_each(
        &mut client,
        "RESET ROLE; GRANT SELECT ON blocks TO reader; SET ROLE reader",
    );
    for (relation, blocks) in [("blocks", 5), ("blocks_pkey", 2)] {
        let (hits, reads) = gets(&mut client, &format!("'{relation}', blocks => {blocks}"));
        assert_eq!(hits + reads, blocks, "{relation}");
    }
}

#[test]
fn it_can_be_cancelled() {
    let server = server("logical-io-cancel");
    let mut client = server.connect();
    must_time_out(
        &mut client,
        200,
        "SELECT rowsource_logical_io('blocks', blocks => 1000000000000)",
    );
    assert_eq!(
        gets(&mut client, "'blocks', blocks => 3"),
        (3, 0),
        "no buffer is left pinned"
    );
}

#[test]
fn any_histogram_can_be_plotted() {
    let server = server("logical-io-plot");
    let mut client = server.connect();
    let sql = "SELECT rowsource_plot_buckets(array_agg(from_us), array_agg(hits + reads)) FROM rowsource_logical_io('blocks')";
    let lines = texts(&mut client, sql);
    assert!(
        lines.len() > 2
            && lines[0][0]
                .as_ref()
                .is_some_and(|line| line.contains("Distribution")),
        "{lines:?}"
    );
    let plot = "SELECT rowsource_plot_buckets('{2,NULL,1}'::float8[], '{5,6,NULL}')";
    assert_eq!(texts(&mut client, plot).len(), 2);
    let (_, message) = must_fail(
        &mut client,
        "SELECT rowsource_plot_buckets('{1,2}'::float8[], '{5}')",
    );
    assert!(message.contains("2 bounds and 1 counts"), "{message}");
    let (_, message) = must_fail(
        &mut client,
        "SELECT rowsource_plot_buckets(array_agg(i::float8), array_agg(i)) FROM generate_series(1::bigint, 10001) i",
    );
    assert!(message.contains("array is too long"), "{message}");
}

/// The cost of reading the clock is subtracted. With this clock it is a microsecond, twenty times a get that
/// hits.
#[test]
fn the_time_of_the_clock_is_subtracted() {
    let clock = object("tired_clock/tired_clock.c");
    let server = Server::overridden("logical-io-clock", &["shared_buffers = '32MB'"], &clock);
    let mut client = server.connect();
    run_each(&mut client, TABLE);
    run_each(&mut client, "SET pg_rowsource.clock_source = system");
    let sql = "SELECT hit_p50_us, timer_us FROM rowsource_logical_io('blocks', blocks => 20000) LIMIT 1";
    let row = client.query_one(sql, &[]).expect("the gets");
    let (hit, clock): (f64, f64) = (row.get(0), row.get(1));
    println!("a hit takes {hit:.3} us, and the clock {clock:.3} us");
    assert!(clock >= 1.0 && hit < 0.5 * clock, "{hit} us, {clock} us");
}

/// The median of the gets that hit is the time that a loop in C needs for one. Both leave out the release of
/// the buffer.
#[test]
fn a_hit_takes_as_long_as_in_a_loop_timing() {
    const BLOCKS: i32 = 200;
    let server = server("logical-io-loop");
    let mut client = server.connect();
    gets(&mut client, "'blocks'");
    let library = object("gets/gets.c");
    run_each(
        &mut client,
        &format!(
            "CREATE FUNCTION gets(regclass, int) RETURNS float8 AS '{}' LANGUAGE c STRICT",
            library.display()
        ),
    );
    let ratio = Trial::of_ratios("a hit, over one in a loop", Limit::Within(0.5, 2.0));
    let ratio = ratio.compare(ROUNDS, |side| match side {
        Side::Base => value(&mut client, &format!("SELECT gets('blocks', {BLOCKS})")),
        Side::Other => {
            let sql = "SELECT hit_p50_us FROM rowsource_logical_io('blocks', blocks => 20000) LIMIT 1";
            value(&mut client, sql)
        }
    });
    let mut verdicts = Verdicts::default();
    verdicts.add(&ratio);
    verdicts.finish();
}
