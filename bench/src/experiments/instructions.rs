//! Counts by callgrind: the same at each run, so that a regression shows without noise.

use crate::lab::Lab;
use crate::record::Table;
use crate::statistics::{count, difference};
use rowsource_tests::Server;
use rowsource_tests::callgrind::{SHORT, create_tables, of_a_call, of_a_statement};

/// Design 3.2.
const MOST_A_CALL: f64 = 40.0;

const CALLS: [(&str, &str); 2] = [
    ("a scan that an aggregate only drains", "SELECT count(pad)"),
    ("any other node", "SELECT max(pad)"),
];

struct Variant {
    name: &'static str,
    settings: &'static [&'static str],
    before: &'static str,
}

const NOTHING: &str = "SET enable_sort = on";
const VARIANTS: [Variant; 5] = [
    Variant {
        name: "nothing loaded",
        settings: &["shared_preload_libraries="],
        before: NOTHING,
    },
    Variant {
        name: "pg_rowsource, basic",
        settings: &["shared_preload_libraries=pg_rowsource"],
        before: "SET pg_rowsource.statistics_level = basic",
    },
    Variant {
        name: "pg_rowsource, typical",
        settings: &["shared_preload_libraries=pg_rowsource"],
        before: "SET pg_rowsource.statistics_level = typical",
    },
    Variant {
        name: "pg_stat_statements",
        settings: &["shared_preload_libraries=pg_stat_statements"],
        before: NOTHING,
    },
    Variant {
        name: "auto_explain, log_analyze",
        settings: &[
            "shared_preload_libraries=auto_explain",
            "auto_explain.log_analyze=on",
            "auto_explain.log_buffers=on",
            "auto_explain.log_min_duration=1h",
        ],
        before: NOTHING,
    },
];

pub fn run(lab: &mut Lab) {
    lab.at(0.0, "tables");
    let mut server = Server::preloaded("instructions", &[]);
    lab.server(&server);
    create_tables(&mut server.connect());
    server.stop();
    let data = server.data();
    let mut table = Table::new(
        "A call of a node, at sampfreq 128",
        "Over a bare call, sampling included.",
        &["node", "instructions"],
    );
    for (at, (node, select)) in CALLS.into_iter().enumerate() {
        lab.at(0.05 + 0.15 * at as f64, node);
        let found = of_a_call(&data, select);
        table.row([node.to_string(), format!("{found:.1}")]);
        lab.measured("a call", node, "instructions", &[found]);
        lab.must(
            format!("instructions a call of {node}"),
            format!("at most {MOST_A_CALL}"),
            format!("{found:.1}"),
            // As tests/tests/callgrind.rs judges it.
            (0.5..=MOST_A_CALL).contains(&found.round()),
        );
    }
    lab.table(table);
    // The prepared statement, and ourselves, are enough to see that it works.
    let short = if lab.sizes.quick { &SHORT[..1] } else { &SHORT[..] };
    let variants = if lab.sizes.quick {
        &VARIANTS[..3]
    } else {
        &VARIANTS[..]
    };
    for (at, &(kind, statement)) in short.iter().enumerate() {
        let mut table = Table::new(
            &format!("A lookup by primary key, {kind}"),
            "",
            &["", "instructions a statement", "more than nothing loaded", ""],
        );
        let mut base = 0.0;
        for (which, variant) in variants.iter().enumerate() {
            let done = (at * variants.len() + which) as f64 / (short.len() * variants.len()) as f64;
            lab.at(0.35 + 0.65 * done, variant.name);
            let found = of_a_statement(&data, variant.settings, variant.before, statement);
            if which == 0 {
                base = found;
            }
            table.row([
                variant.name.to_string(),
                count(found),
                difference(found - base),
                format!("{:+.1} %", (found / base - 1.0) * 100.0),
            ]);
            lab.measured(
                format!("a statement, {kind}"),
                variant.name,
                "instructions",
                &[found],
            );
        }
        lab.table(table);
    }
}
