//! Instructions counted by callgrind. The counts are the same in each run, so a regression shows without noise.

use crate::measure::context::ExperimentContext;
use crate::model::number::{count, difference};
use crate::model::table::Table;
use rowsource_tests::callgrind::{CALLS, SHORT, create_tables, of_a_row, of_statements};
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

pub fn run(context: &mut ExperimentContext) {
    context.at(0.0, "tables");
    let mut server = Server::preloaded("instructions", &[SHIPPED]);
    context.server(&server);
    create_tables(&mut server.connect());
    server.stop();
    let data = server.data();
    let mut table = Table::new(
        "Calls of nodes, at sampfreq 128",
        "What measuring adds to a call, sampling included.",
        &["calls", "instructions"],
    );
    for (at, (node, statement, most)) in CALLS.into_iter().enumerate() {
        context.at(0.05 + 0.1 * at as f64, node);
        let found = of_a_row(&data, statement);
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
    let of_variants: Vec<Vec<f64>> = variants
        .iter()
        .enumerate()
        .map(|(which, variant)| {
            context.at(0.35 + 0.65 * which as f64 / variants.len() as f64, variant.name);
            let statements: Vec<_> = short
                .iter()
                .map(|(.., statements)| (variant.before, *statements))
                .collect();
            of_statements(&data, variant.settings, &statements)
        })
        .collect();
    for (at, (kind, ..)) in short.iter().enumerate() {
        let mut table = Table::new(
            &format!("A short statement: {kind}"),
            "",
            &["", "instructions a statement", "more than nothing loaded", ""],
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
                format!("a statement, {kind}"),
                variant.name,
                "instructions",
                &[found],
            );
        }
        context.table(table);
    }
}
