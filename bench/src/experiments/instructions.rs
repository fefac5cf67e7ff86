//! Instructions counted by callgrind. The counts are the same in each run, so a regression shows without
//! noise.

use crate::measure::context::ExperimentContext;
use crate::model::number::{count, difference};
use crate::model::table::Table;
use rowsource_tests::callgrind::{CALLS, SHORT, create_tables, of_calls, of_statements};
use rowsource_tests::pgbench::{fill, tpcb};
use rowsource_tests::{SHIPPED, Server};

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

/// What is counted for each variant.
struct Counted<'a> {
    title: &'a str,
    kind: &'a str,
    unit: &'a str,
    /// What follows the statement that sets a variant up.
    set_up: &'a str,
    statements: &'a [&'a str],
}

/// Fills pgbench's tables as at scale 1, but with a hundredth of the accounts, and prepares the statements of
/// its transaction. They use indexes, as they do in large tables.
fn tpcb_set_up() -> String {
    let mut set_up =
        ";\n\nTRUNCATE pgbench_branches, pgbench_tellers, pgbench_accounts, pgbench_history;\n\n\
         INSERT INTO pgbench_branches VALUES (1, 0);\n\n\
         INSERT INTO pgbench_tellers SELECT i, 1, 0 FROM generate_series(1, 10) i;\n\n\
         INSERT INTO pgbench_accounts SELECT i, 1, 0, '' FROM generate_series(1, 1000) i;\n\n\
         SET enable_seqscan = off"
            .to_owned();
    for (i, statement) in tpcb("$1", "$2", "$3").iter().enumerate() {
        set_up += &format!(";\n\nPREPARE tpcb{i}(int, int, int) AS {statement}");
    }
    set_up
}

/// Returns a transaction of pgbench's TPC-B.
fn tpcb_transaction(which: usize) -> String {
    let (aid, tid) = (1 + which * 97, 1 + which % 10);
    let executes: String = (0..5)
        .map(|i| format!("EXECUTE tpcb{i}({aid}, {tid}, 7);\n\n"))
        .collect();
    format!("BEGIN;\n\n{executes}END")
}

pub fn run(context: &mut ExperimentContext) {
    context.at(0.0, "tables");
    let mut server = Server::preloaded("instructions", &[SHIPPED]);
    context.server(&server);
    create_tables(&mut server.connect());
    fill(&server, 1);
    server.stop();
    let data = server.data();
    let mut table = Table::new(
        "Calls of nodes, at sampfreq 128",
        "What measuring adds to a call, sampling included.",
        &["calls", "instructions"],
    );
    context.at(0.05, "calls");
    for ((node, _, most), found) in CALLS.into_iter().zip(of_calls(&data).measured) {
        table.row([node.to_string(), format!("{found:.1}")]);
        context.measured("a call", node, "instructions", &[found]);
        context.assert_exact(
            format!("instructions of {node}"),
            format!("at most {most}"),
            format!("{found:.1}"),
            // tests/tests/callgrind.rs applies the same rule.
            (0.5..=most).contains(&found.round()),
        );
    }
    context.table(table);
    // A quick run measures the prepared statement and pg_rowsource only.
    let short = if context.sizes.quick {
        &SHORT[..1]
    } else {
        &SHORT[..]
    };
    // The levels are those of the variants.
    let short: Vec<_> = short.iter().filter(|(_, level, _)| *level == "typical").collect();
    let variants = if context.sizes.quick {
        &VARIANTS[..3]
    } else {
        &VARIANTS[..]
    };
    let transactions: Vec<String> = (0..10).map(tpcb_transaction).collect();
    let transactions: Vec<_> = transactions.iter().map(String::as_str).collect();
    let tpcb_set_up = tpcb_set_up();
    let mut counted: Vec<Counted> = short
        .iter()
        .map(|(kind, _, statements)| Counted {
            title: "A short statement",
            kind,
            unit: "statement",
            set_up: "",
            statements,
        })
        .collect();
    if !context.sizes.quick {
        counted.push(Counted {
            title: "A transaction",
            kind: "TPC-B, prepared",
            unit: "transaction",
            set_up: &tpcb_set_up,
            statements: &transactions,
        });
    }
    let of_variants: Vec<Vec<f64>> = variants
        .iter()
        .enumerate()
        .map(|(which, variant)| {
            context.at(0.2 + 0.8 * which as f64 / variants.len() as f64, variant.name);
            let before: Vec<String> = counted
                .iter()
                .map(|counted| format!("{}{}", variant.before, counted.set_up))
                .collect();
            let statements: Vec<_> = counted
                .iter()
                .zip(&before)
                .map(|(counted, before)| (before.as_str(), counted.statements))
                .collect();
            of_statements(&data, variant.settings, &statements)
        })
        .collect();
    for (
        at,
        Counted {
            title, kind, unit, ..
        },
    ) in counted.iter().enumerate()
    {
        let mut table = Table::new(
            &format!("{title}: {kind}"),
            "",
            &[
                "",
                &format!("instructions a {unit}"),
                "more than nothing loaded",
                "",
            ],
        );
        let base = of_variants[0][at];
        for (variant, found) in variants.iter().zip(&of_variants) {
            let found = found[at];
            table.row([
                variant.name.to_string(),
                count(found),
                difference(found - base),
                format!("{:+.1} %", (found / base - 1.0) * 100.0),
            ]);
            context.measured(
                format!("a {unit}, {kind}"),
                variant.name,
                "instructions",
                &[found],
            );
        }
        context.table(table);
    }
}
