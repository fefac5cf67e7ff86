//! The samples of the stack, which tell the bench the true time of scans: a scan that takes all of the time,
//! and one that takes little.

use rowsource_tests::Server;
use rowsource_tests::burn;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::stack_samples::samples;
use std::time::Duration;

#[test]
fn samples_tell_who_runs_before_pg18() {
    let server = Server::start(
        "stack-samples",
        &["max_parallel_workers_per_gather = 0", "jit = off"],
    );
    let mut client = server.connect();
    burn::create(&mut client);
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 1500) i; ANALYZE t",
    );
    let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
    let mut share = |statement: &str| {
        let found = samples(pid as u32, "ExecScan", Duration::from_millis(2), || {
            run_each(&mut client, statement)
        });
        let found = found.expect("the server has the function");
        println!("{statement}: {found:?}");
        assert!(found.all > 50, "{found:?}");
        (found.inside as f64 / found.all as f64, found.all as f64)
    };
    let (in_scan, _) = share("SELECT count(*) FROM t WHERE burn(1000) IS NOT NULL");
    let (above, _) = share("SELECT count(burn(1000)) FROM t");
    let (both, count) = share("SELECT count(burn(500)) FROM t WHERE burn(1500) IS NOT NULL");
    // A busy machine takes fewer samples, and these scatter more.
    let tolerated = 0.03 + 4.0 * (0.75 * 0.25 / count).sqrt();
    // It reads no table, and so has no scan of the kind.
    let none = samples(pid as u32, "ExecScan", Duration::from_millis(2), || {
        run_each(&mut client, "SELECT burn(100)")
    });
    assert!(none.is_none(), "{none:?}");
    assert!(
        in_scan > 0.97 && above < 0.03 && (both - 0.75).abs() < tolerated,
        "{in_scan} {above} {both}"
    );
}
