//! Beats reach the sessions wherever PostgreSQL's dynamic shared memory lies, or the reader is told that they
//! do not.

use rowsource_tests::history::worker;
use rowsource_tests::measured::{display, measure};
use rowsource_tests::session::{run_each, value};
use rowsource_tests::{Server, burn};

/// Sessions share their page, or the system refuses that: then the library says so, and why.
fn reach_or_say(name: &str, settings: &[&str]) -> bool {
    let mut all = vec!["max_parallel_workers_per_gather = 0", "jit = off"];
    all.extend(settings);
    let server = Server::preloaded(name, &all);
    let mut client = server.session();
    worker(&mut client);
    burn::create(&mut client);
    run_each(
        &mut client,
        "CREATE TABLE n AS SELECT i AS id FROM generate_series(1, 20000) i; VACUUM (FREEZE, ANALYZE) n",
    );
    // Only a beat finds that call, unless it happens to be timed.
    let one_of_a_second = "SELECT count(*) FROM n WHERE burn(CASE WHEN id = 15000 THEN 1000000 ELSE 0.1 END)";
    let (nodes, burned_ms) = burn::during(&mut client, |client| measure(client, one_of_a_second));
    let found = nodes[1].total_ms.expect("it is timed") / burned_ms;
    let shown = display(&mut client, "ALLSTATS LAST");
    let is_noted = shown.contains("long calls without I/O may be missed");
    let without: i64 = value(&mut client, "SELECT sessions_without_beats FROM rowsource_info()");
    let why: Option<String> = value(&mut client, "SELECT without_beats_because FROM rowsource_info()");
    println!("{name}: {found:.2} of the time, {without} without beats: {why:?}");
    assert_eq!(is_noted, without > 0, "{shown}");
    assert_eq!(
        why.is_some_and(|why| why.contains("min_dynamic_shared_memory")),
        without > 0
    );
    assert!(without > 0 || (0.8..1.3).contains(&found), "{found}");
    without == 0
}

#[test]
fn beats_reach_sessions_with_memory_reserved_at_the_start() {
    assert!(reach_or_say(
        "beats-reserved",
        &["min_dynamic_shared_memory = 16MB", "huge_pages = off"]
    ));
}

/// PostgreSQL's dynamic shared memory is in files then, which have no huge pages.
#[test]
fn beats_reach_sessions_beside_huge_pages() {
    assert!(reach_or_say("beats-huge", &["huge_pages = try"]));
}

/// The memory may be in huge pages then, of which no part can be shared.
#[test]
fn beats_reach_sessions_with_memory_in_huge_pages_or_it_is_said() {
    reach_or_say(
        "beats-both",
        &["huge_pages = try", "min_dynamic_shared_memory = 16MB"],
    );
}
