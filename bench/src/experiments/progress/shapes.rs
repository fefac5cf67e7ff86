//! The progress of statements of one shape each.

use super::polls;
use crate::measure::context::ExperimentContext;
use rowsource_tests::Server;
use rowsource_tests::session::run_each;

/// The two tables, large enough for the statements, and a third one that few rows refer to.
const TABLES: &str = "
    CREATE TABLE customers (id int PRIMARY KEY, region int NOT NULL, name text);
    CREATE TABLE orders (id int PRIMARY KEY, customer int NOT NULL, amount numeric, state int NOT NULL, note text);
    INSERT INTO customers SELECT i, i % 50, 'customer ' || i FROM generate_series(1, ROWS / 40) i;
    INSERT INTO orders SELECT i, 1 + (i::bigint * 7919) % (ROWS / 40), i % 1000, i % 200, repeat('x', 40)
        FROM generate_series(1, ROWS) i;
    CREATE INDEX ON orders (customer);
    VACUUM (FREEZE, ANALYZE)";

/// The name of a statement, its settings, and its text. `REPEATED` is how often its rows are repeated, so
/// that it takes long.
struct Statement {
    name: &'static str,
    settings: &'static str,
    text: &'static str,
}

const STATEMENTS: [Statement; 7] = [
    Statement {
        name: "scan and group",
        settings: "",
        text: "SELECT state, sum(amount), avg(amount), stddev(amount), count(DISTINCT note)
               FROM orders, generate_series(1, REPEATED) r GROUP BY state",
    },
    Statement {
        name: "hash join, then sort",
        settings: "SET enable_nestloop = off; SET enable_mergejoin = off",
        text: "SELECT o.note, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer
               ORDER BY c.name, o.amount DESC, o.id OFFSET 1000000000",
    },
    Statement {
        name: "the same, planner 200 times too low",
        settings: "SET enable_nestloop = off; SET enable_mergejoin = off",
        text: "SELECT o.note, c.name, o.amount FROM orders o JOIN customers c ON c.id = o.customer
               WHERE (o.id + 0) % 1 = 0 ORDER BY c.name, o.amount DESC, o.id OFFSET 1000000000",
    },
    Statement {
        name: "lookups by an index",
        settings: "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off",
        text: "SELECT count(c.name), sum(sqrt(o.amount)) FROM orders o JOIN customers c ON c.id = o.customer",
    },
    Statement {
        name: "lookups, planner 200 times too low",
        settings: "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off",
        text: "SELECT count(o.note), sum(sqrt(o.amount)) FROM customers c JOIN orders o ON o.customer = c.id
               WHERE (c.region + 0) % 1 = 0",
    },
    Statement {
        name: "group by, planner 100 times too high",
        settings: "SET enable_sort = off",
        text: "SELECT count(*) FROM (SELECT o.customer % 100, o.state % 2, sum(o.amount) FROM orders o
               JOIN customers c ON c.id = o.customer GROUP BY 1, 2) x",
    },
    Statement {
        name: "function, planner 1,000 times too low",
        settings: "",
        text: "SELECT sum(sqrt(i)) FROM (SELECT i FROM many(ROWS * 4) i OFFSET 0) x",
    },
];

pub fn run(context: &mut ExperimentContext) {
    let rows = context.sizes.of(200_000, 6_000_000);
    let repeated = context.sizes.of(1, 2);
    context.setting("rows", rows);
    context.at(0.0, "loading");
    let server = Server::start("progress", &polls::SETTINGS);
    context.server(&server);
    let mut client = server.connect();
    run_each(
        &mut client,
        &format!(
            "CREATE EXTENSION pg_rowsource;{}",
            TABLES.replace("ROWS", &rows.to_string())
        ),
    );
    client
        .batch_execute(
            "CREATE FUNCTION many(n bigint) RETURNS SETOF bigint LANGUAGE sql STABLE ROWS 1000 SET work_mem = '16MB' AS
             'SELECT * FROM generate_series(1, n)'",
        )
        .expect("a function");
    let mut table = polls::table("rowsource_progress, polled 10 times a second");
    let chosen = if context.sizes.quick { 3 } else { STATEMENTS.len() };
    for (at, statement) in STATEMENTS.iter().take(chosen).enumerate() {
        context.at(0.2 + 0.8 * at as f64 / chosen as f64, statement.name);
        let text = statement
            .text
            .replace("REPEATED", &repeated.to_string())
            .replace("ROWS", &rows.to_string());
        let polled = polls::poll(|| server.connect(), statement.settings, &text);
        polls::report(context, &mut table, statement.name, &polled);
    }
    context.table(table);
}
