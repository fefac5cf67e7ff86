//! The progress of queries of TPC-H that take seconds and more, with the planner right, and with the
//! sizes of all tables 100 times too low in its statistics.

use super::polls;
use crate::measure::context::ExperimentContext;
use crate::measure::tpch;
use crate::measure::tpch_queries::query;
use rowsource_tests::Server;
use rowsource_tests::session::run_each;

/// The numbers of the queries.
const NUMBERS: [usize; 7] = [1, 3, 5, 9, 13, 18, 21];

/// By what the rows of the tables are multiplied in the planner's statistics, and what that is called.
const PLANNERS: [(&str, &str); 2] = [("1", ""), ("0.01", ", planner 100 times too low")];

/// A statement with a wrong plan may take hours.
const TIMEOUT: &str = "SET statement_timeout = '90s'";

pub fn run(context: &mut ExperimentContext) {
    let factor = context.sizes.of(10, 3000) as f64 / 1000.0;
    context.setting("TPC-H scale factor", factor);
    context.at(0.0, "loading");
    let server = Server::start("progress-tpch", &polls::SETTINGS);
    context.server(&server);
    let mut client = server.connect();
    tpch::load(&mut client, factor);
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE truth AS SELECT oid, reltuples FROM pg_class WHERE reltuples > 0",
    );
    let mut table = polls::table("rowsource_progress of TPC-H's queries");
    let count = (NUMBERS.len() * PLANNERS.len()) as f64;
    let mut done = 0.0;
    for (factor, wrong) in PLANNERS {
        // Rows per page are what the planner takes from here: it looks itself how many pages there are.
        run_each(
            &mut client,
            &format!(
                "UPDATE pg_class c SET reltuples = t.reltuples * {factor} FROM truth t
                 WHERE t.oid = c.oid AND c.relnamespace = 'public'::regnamespace"
            ),
        );
        for query in NUMBERS.map(query) {
            let name = format!("{}{wrong}", query.name);
            context.at(0.3 + 0.7 * done / count, &name);
            let polled = polls::poll(|| server.connect(), TIMEOUT, query.text);
            polls::report(context, &mut table, &name, &polled);
            done += 1.0;
        }
    }
    context.table(table);
}
