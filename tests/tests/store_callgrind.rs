//! The extension's cost for short statements, in instructions counted by callgrind, which other work does not disturb. The
//! cost of one statement is the difference of two runs, so start-up and work done once per plan do not count.

use rowsource_tests::Server;
use rowsource_tests::callgrind::{SHORT, above_recorded, create_tables, of_a_statement, recorded};
use rowsource_tests::session::major;

#[test]
fn short_statements_cost_few_instructions() {
    const MAX_INSTRUCTIONS: f64 = 3_700.0;
    let mut server = Server::preloaded("short", &[]);
    let mut client = server.connect();
    create_tables(&mut client);
    let major = major(&mut client);
    drop(client);
    server.stop();
    let variants: [(&str, &[&str], &str); 4] = [
        (
            "no library",
            &["shared_preload_libraries="],
            "SET enable_sort = on",
        ),
        (
            "pg_rowsource, basic",
            &["shared_preload_libraries=pg_rowsource"],
            "SET pg_rowsource.statistics_level = basic",
        ),
        (
            "pg_rowsource, typical",
            &["shared_preload_libraries=pg_rowsource"],
            "SET pg_rowsource.statistics_level = typical",
        ),
        (
            "pg_stat_statements + auto_explain",
            &[
                "shared_preload_libraries=pg_stat_statements,auto_explain",
                "auto_explain.log_analyze=on",
                "auto_explain.log_buffers=on",
                "auto_explain.log_min_duration=1h",
            ],
            "SET enable_sort = on",
        ),
    ];
    let mut failures = Vec::new();
    for (which, (kind, statements)) in SHORT.into_iter().enumerate() {
        let mut counts = Vec::new();
        for (name, settings, level) in variants {
            let each = of_a_statement(&server.data(), settings, level, statements);
            counts.push(each);
            println!(
                "{kind}: {name:<36} {each:>8.0} instructions a statement, {:+.1} %",
                (each / counts[0] - 1.0) * 100.0
            );
        }
        let recorded = recorded(major).map(|recorded| recorded.statements[which]);
        failures.extend(above_recorded(kind, counts[2] - counts[0], recorded));
        let (added, peers) = (counts[2] - counts[0], counts[3] - counts[0]);
        // Must cost less than pg_stat_statements with auto_explain. From 18 on these are cheaper: there, it must cost at most
        // `MAX_INSTRUCTIONS`.
        let limit = if major < 18 {
            peers
        } else {
            peers.max(MAX_INSTRUCTIONS)
        };
        if added > limit {
            failures.push(format!(
                "{kind}: {added:.0} instructions a statement, the peers' {peers:.0}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
