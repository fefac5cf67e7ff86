//! TPC-H's queries in instructions, which other work on the machine hardly disturbs: the sampler follows the
//! clock.

use crate::measure::context::ExperimentContext;
use crate::measure::tpch;
use crate::measure::tpch_queries::{QUERIES, Query};
use crate::model::check::Goal;
use crate::model::number::count;
use crate::model::spread::{self, Spread};
use crate::model::table::Table;
use rowsource_tests::callgrind::of_known_statements;
use rowsource_tests::{SHIPPED, Server};

struct Variant {
    name: &'static str,
    library: &'static str,
    /// A statement that sets the session up, and what comes before each query.
    before: &'static str,
    prefix: &'static str,
}

const NOTHING: &str = "SET enable_sort = on";
const VARIANTS: [Variant; 5] = [
    Variant {
        name: "nothing loaded",
        library: "",
        before: NOTHING,
        prefix: "",
    },
    Variant {
        name: "pg_rowsource, sampfreq 128",
        library: "pg_rowsource",
        before: "SET pg_rowsource.statistics_level = typical",
        prefix: "",
    },
    Variant {
        name: "EXPLAIN, TIMING ON, BUFFERS",
        library: "",
        before: NOTHING,
        prefix: "EXPLAIN (ANALYZE, TIMING ON, BUFFERS ON) ",
    },
    Variant {
        name: "pg_rowsource, basic",
        library: "pg_rowsource",
        before: "SET pg_rowsource.statistics_level = basic",
        prefix: "",
    },
    Variant {
        name: "pg_stat_statements",
        library: "pg_stat_statements",
        before: NOTHING,
        prefix: "",
    },
];
/// The variant that has a goal, and the one that it is compared with for each query.
const MEASURED: usize = 1;
const EXPLAIN: usize = 2;
/// The number of queries of a quick run.
const FEW: usize = 5;

pub fn run(context: &mut ExperimentContext) {
    // At smaller factors than 0.01, the generator repeats keys.
    let factor = context.sizes.of(10, 20) as f64 / 1000.0;
    let (variants, queries) = if context.sizes.quick {
        (&VARIANTS[..=EXPLAIN], &QUERIES[..FEW])
    } else {
        (&VARIANTS[..], &QUERIES[..])
    };
    context.setting("TPC-H scale factor", factor);
    context.at(0.0, "loading");
    let mut server = Server::preloaded("tpch-instructions", &[SHIPPED]);
    context.server(&server);
    tpch::load(&mut server.connect(), factor);
    server.stop();
    let counts: Vec<Vec<u64>> = variants
        .iter()
        .enumerate()
        .map(|(at, variant)| {
            context.at(0.05 + 0.95 * at as f64 / variants.len() as f64, variant.name);
            let library = format!("shared_preload_libraries={}", variant.library);
            let settings = [library.as_str(), "work_mem=16MB", "shared_buffers=256MB"];
            let statements: Vec<_> = queries
                .iter()
                .map(|query| format!("{}{}", variant.prefix, query.text))
                .collect();
            of_known_statements(&server.data(), &settings, variant.before, &statements)
        })
        .collect();
    report(context, variants, queries, &counts);
}

fn report(context: &mut ExperimentContext, variants: &[Variant], queries: &[Query], counts: &[Vec<u64>]) {
    let total = |at: usize| counts[at].iter().sum::<u64>() as f64;
    let ratio = |at: usize, query: usize| counts[at][query] as f64 / counts[0][query] as f64;
    let mut table = Table::new(
        "TPC-H's queries, in instructions",
        "All plans serial, and known to the session. Ratios to nothing loaded. Without the timer's signals. EXPLAIN does not return the rows. \
         Under callgrind, calls are slow, so other ones are timed than otherwise.",
        &["", "instructions", "ratio", "lowest of a query", "highest"],
    );
    for (at, variant) in variants.iter().enumerate() {
        let ratios: Vec<f64> = (0..queries.len()).map(|query| ratio(at, query)).collect();
        let Spread { low, high, .. } = spread::spread(&ratios);
        table.row([
            variant.name.to_string(),
            count(total(at)),
            format!("{:.4}", total(at) / total(0)),
            format!("{low:.3}"),
            format!("{high:.3}"),
        ]);
        context.measured("all queries", variant.name, "instructions", &[total(at)]);
        for (query, counted) in queries.iter().zip(&counts[at]) {
            context.measured(query.name, variant.name, "instructions", &[*counted as f64]);
        }
    }
    context.table(table);
    context.goal(
        format!(
            "instructions of TPC-H's queries, {}, as a ratio to nothing loaded",
            VARIANTS[MEASURED].name
        ),
        &Goal::at_most(1.02),
        &spread::ratio(&[total(MEASURED)], &[total(0)]),
    );
    let mut table = Table::new(
        "Each query, in instructions",
        "",
        &[
            "query",
            VARIANTS[0].name,
            VARIANTS[MEASURED].name,
            VARIANTS[EXPLAIN].name,
        ],
    );
    for (number, query) in queries.iter().enumerate() {
        table.row([
            query.name.to_string(),
            count(counts[0][number] as f64),
            format!("{:.3}", ratio(MEASURED, number)),
            format!("{:.3}", ratio(EXPLAIN, number)),
        ]);
    }
    context.table(table);
}
