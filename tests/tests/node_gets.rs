//! How long hits and reads of blocks take inside the nodes of plans: `pg_stat_rowsource_logical_io`.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::session::{major, run_each, texts, value};

const SCAN: &str = "SELECT count(*) FROM (SELECT id FROM blocks OFFSET 0) s";

/// Returns a server with a table of 20 rows a block.
fn server(name: &str) -> Server {
    let server = Server::preloaded(
        name,
        &["shared_buffers = '128MB'", "max_parallel_workers_per_gather = 0"],
    );
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE blocks AS SELECT i AS id, repeat('x', 350) AS pad FROM generate_series(1, 60000) i;
         VACUUM (FREEZE, ANALYZE) blocks; CHECKPOINT",
    );
    server
}

/// What the view shows of a node.
#[derive(Debug)]
struct Gets {
    hits: i64,
    hit_us: Option<f64>,
    hit_error_us: Option<f64>,
    blks_read: i64,
    reads: Option<i64>,
    read_us: Option<f64>,
    read_max_us: Option<f64>,
}

/// Returns the gets of the only scan of the table.
fn gets(client: &mut Client) -> Gets {
    let sql = "SELECT hits, hit_us, hit_error_us, self_blks_read, reads, read_us, read_max_us
                 FROM pg_stat_rowsource_logical_io WHERE object_name = 'blocks'";
    let row = client.query_one(sql, &[]).expect("a scan");
    Gets {
        hits: row.get(0),
        hit_us: row.get(1),
        hit_error_us: row.get(2),
        blks_read: row.get(3),
        reads: row.get(4),
        read_us: row.get(5),
        read_max_us: row.get(6),
    }
}

fn blocks(client: &mut Client) -> i64 {
    value(client, "SELECT pg_relation_size('blocks') / 8192")
}

/// One call in twenty gets a block, which takes longer than the other calls.
#[test]
fn the_time_of_a_hit_is_told_with_its_error() {
    let server = server("node-gets-hits");
    let mut client = server.connect();
    run_each(&mut client, SCAN);
    run_each(&mut client, "SELECT rowsource_reset()");
    for _ in 0..5 {
        run_each(&mut client, SCAN);
    }
    let found = gets(&mut client);
    assert_eq!((found.hits, found.blks_read), (5 * blocks(&mut client), 0));
    let (hit, error) = (
        found.hit_us.expect("a time"),
        found.hit_error_us.expect("an error"),
    );
    assert!(hit > 0.0 && error > 0.0 && error < hit, "{found:?}");
    // The scan also looks at the block's rows, but does not read it.
    let alone: f64 = value(
        &mut client,
        "SELECT hit_p50_us FROM rowsource_logical_io('blocks') LIMIT 1",
    );
    assert!(
        hit > alone / 5.0 && hit < alone * 50.0,
        "{hit} us in the scan, {alone} us alone"
    );
    let plot = texts(
        &mut client,
        "SELECT rowsource_histogram_plot(queryid, planid, node_id) FROM pg_stat_rowsource_logical_io WHERE object_name = 'blocks'",
    );
    let first = plot[0][0].clone().unwrap_or_default();
    assert!(
        first.starts_with("one hit: ") && first.contains(" us (+/- "),
        "{plot:?}"
    );
}

/// Nothing is said if calls that get blocks differ from the others otherwise, or if there are too few.
#[test]
fn nothing_is_said_where_it_cannot_be_told() {
    let server = server("node-gets-unknown");
    let mut client = server.connect();
    run_each(&mut client, SCAN);
    for (setting, statement) in [
        ("", "SELECT id FROM blocks WHERE id % 10 = 0"),
        ("", "SELECT id FROM blocks LIMIT 10"),
        ("SET pg_rowsource.sampfreq = 0", SCAN),
    ] {
        run_each(&mut client, "SELECT rowsource_reset()");
        run_each(&mut client, setting);
        run_each(&mut client, statement);
        let found = gets(&mut client);
        assert!(found.hits > 0, "{statement}: {found:?}");
        assert_eq!(
            (found.hit_us, found.hit_error_us),
            (None, None),
            "{setting} {statement}"
        );
    }
}

/// The reads are the waits for them, and the sums agree.
#[test]
fn the_time_of_a_read_is_that_of_its_waits() {
    let mut server = server("node-gets-reads");
    server.stop();
    server.launch();
    let mut client = server.connect();
    run_each(&mut client, SCAN);
    let found = gets(&mut client);
    let blocks = blocks(&mut client);
    assert_eq!((found.hits, found.blks_read), (0, blocks));
    let reads = found.reads.expect("waits");
    let major = major(&mut client);
    let expected = if major < 17 { blocks..=blocks } else { 1..=blocks };
    assert!(expected.contains(&reads), "{found:?}");
    let sum = "SELECT sum(w.wait_time) * 1000, max(w.max_time) * 1000 FROM pg_stat_rowsource_waits w JOIN pg_stat_rowsource_logical_io l USING (queryid, planid, node_id)
                WHERE object_name = 'blocks' AND wait_event IN ('DataFileRead', 'AioIoCompletion', 'AioIoUringExecution')";
    let row = client.query_one(sum, &[]).expect("waits");
    let (total, max): (f64, f64) = (row.get(0), row.get(1));
    let mean = found.read_us.expect("a mean");
    assert!(
        (mean * reads as f64 / total - 1.0).abs() < 1e-6,
        "{found:?}, {total}"
    );
    assert!(
        (found.read_max_us.expect("a maximum") / max - 1.0).abs() < 1e-6,
        "{found:?}, {max}"
    );
    // That is known without track_io_timing.
    let of_node: f64 = value(
        &mut client,
        "SELECT self_blk_read_time FROM rowsource_top_reads WHERE object_name = 'blocks'",
    );
    assert!((of_node * 1e3 / total - 1.0).abs() < 1e-2, "{of_node}, {total}");
    // Calls that read are a hump of their own, beside the others.
    if major < 17 {
        let plot = texts(&mut client, "SELECT rowsource_histogram_plot(queryid, planid, node_id) FROM pg_stat_rowsource_logical_io WHERE object_name = 'blocks'").concat();
        let headings: Vec<&str> = plot
            .iter()
            .flatten()
            .filter(|line| line.starts_with("calls"))
            .map(String::as_str)
            .collect();
        assert_eq!(headings, ["calls that read no block", "calls that read blocks"]);
        assert!(
            plot[0].as_ref().is_some_and(|line| line.contains("one read: ")),
            "{plot:?}"
        );
    }
    // Other users see no names.
    run_each(&mut client, "CREATE ROLE other; SET ROLE other");
    let shown = texts(
        &mut client,
        "SELECT operation, object_name FROM pg_stat_rowsource_logical_io WHERE self_blks_read > 1000",
    );
    assert_eq!(shown, [[Some("<insufficient privilege>".to_owned()), None]]);
}
