//! What the extension costs short statements, in instructions by callgrind: no other work disturbs these. A
//! statement's share is the difference of two runs, so start-up and what is done once per plan are left out.

use rowsource_tests::Server;
use rowsource_tests::callgrind::instructions;
use rowsource_tests::session::run_each;

#[test]
fn instructions_of_short_statements() {
    const FEW: usize = 200;
    const MANY: usize = 800;
    const MOST: f64 = 4_500.0;
    let mut server = Server::preloaded("short", &[]);
    run_each(
        &mut server.connect(),
        "CREATE TABLE accounts AS SELECT i AS aid, i AS balance FROM generate_series(1, 10000) i;
         ALTER TABLE accounts ADD PRIMARY KEY (aid); VACUUM (FREEZE, ANALYZE) accounts; CREATE EXTENSION pg_rowsource",
    );
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
    for (kind, statements) in [
        ("prepared", &["EXECUTE p(1)"][..]),
        ("prepared, in turns", &["EXECUTE p(1)", "EXECUTE q(1)"]),
        ("simple", &["SELECT balance FROM accounts WHERE aid = 1"]),
    ] {
        let mut counts = Vec::new();
        for (name, settings, level) in variants {
            let count = |number: usize| {
                let prepare = "PREPARE p(int) AS SELECT balance FROM accounts WHERE aid = $1;\n\n\
                     PREPARE q(int) AS SELECT balance, aid FROM accounts WHERE aid = $1";
                let generic = "SET plan_cache_mode = force_generic_plan";
                let script = format!(
                    "{generic};\n\n{level};\n\n{prepare};\n\n{}",
                    format!("{};\n\n", statements.join(";\n\n")).repeat(number / statements.len())
                );
                instructions(&server.data(), settings, &script)
            };
            let each = (count(MANY) as f64 - count(FEW) as f64) / (MANY - FEW) as f64;
            counts.push(each);
            println!(
                "{kind}: {name:<36} {each:>8.0} instructions a statement, {:+.1} %",
                (each / counts[0] - 1.0) * 100.0
            );
        }
        // The aim is to stay below the neighbours, who do less for a statement; not reached yet. This holds the line.
        let ours = counts[2] - counts[0];
        if ours > MOST {
            failures.push(format!(
                "{kind}: {ours:.0} instructions a statement, more than {MOST}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
