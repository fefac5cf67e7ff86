//! What the extension costs short statements, in instructions by callgrind: no other work disturbs these. A
//! statement's share is the difference of two runs, so start-up and what is done once per plan are left out.

use rowsource_tests::Server;
use rowsource_tests::callgrind::{SHORT, above_recorded, create_tables, of_a_statement, recorded};
use rowsource_tests::session::major;

#[test]
fn instructions_of_short_statements() {
    const MOST: f64 = 3_700.0;
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
        let (ours, theirs) = (counts[2] - counts[0], counts[3] - counts[0]);
        // Must cost less than pg_stat_statements with auto_explain; from 18 on, where those became cheaper, at most `MOST`.
        let most = if major < 18 { theirs } else { theirs.max(MOST) };
        if ours > most {
            failures.push(format!(
                "{kind}: {ours:.0} instructions a statement, the others' {theirs:.0}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
