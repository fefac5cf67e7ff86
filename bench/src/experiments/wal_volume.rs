//! The WAL volume of bulk inserts: node by node from the view, and from the position of the WAL. The original
//! measures the redo of the same inserts.

use crate::measure::context::ExperimentContext;
use crate::model::number::count;
use crate::model::table::Table;
use postgres::Client;
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::{SHIPPED, Server};
use std::path::Path;

/// The sizes of a WAL page and of its header.
const WAL_PAGE: f64 = 8192.0;
const WAL_HEADER: f64 = 24.0;
/// The longest padding of a record. Records begin at multiples of eight bytes.
const PADDING: f64 = 7.0;
/// The position is that of the whole server: the background writer may log the running transactions
/// meanwhile.
const SLACK: f64 = 4096.0;

#[derive(Clone, Copy, PartialEq)]
enum How {
    Insert,
    Copy,
    CreateAs,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Logged,
    Unlogged,
    Temporary,
}

#[derive(Clone, Copy)]
struct Case {
    how: How,
    kind: Kind,
    /// The transaction creates the table first, so that its rows need no WAL at wal_level minimal.
    same_transaction: bool,
    /// The case in the original's article: its name, and the bytes for 60,000 and for 8 million rows.
    original: Option<(&'static str, Option<f64>, Option<f64>)>,
}

/// Makes a case that the original does not have.
const fn case(how: How, kind: Kind, same_transaction: bool) -> Case {
    Case {
        how,
        kind,
        same_transaction,
        original: None,
    }
}

/// Adds the original's numbers to a case.
const fn like(case: Case, words: &'static str, small: Option<f64>, large: Option<f64>) -> Case {
    Case {
        original: Some((words, small, large)),
        ..case
    }
}

const REPLICA: [Case; 10] = [
    like(
        case(How::Insert, Kind::Logged, false),
        "insert",
        Some(7_300_176.0),
        Some(928_535_948.0),
    ),
    like(
        case(How::Copy, Kind::Logged, false),
        "append",
        Some(7_365_808.0),
        None,
    ),
    like(
        case(How::CreateAs, Kind::Logged, true),
        "CTAS",
        Some(7_392_692.0),
        None,
    ),
    case(How::Insert, Kind::Logged, true),
    case(How::Insert, Kind::Unlogged, false),
    case(How::Copy, Kind::Unlogged, false),
    case(How::CreateAs, Kind::Unlogged, true),
    like(
        case(How::Insert, Kind::Temporary, false),
        "GTT",
        Some(385_780.0),
        Some(49_459_284.0),
    ),
    like(
        case(How::Copy, Kind::Temporary, false),
        "GTT, append",
        Some(140.0),
        Some(420.0),
    ),
    case(How::CreateAs, Kind::Temporary, true),
];
const MINIMAL: [Case; 5] = [
    case(How::Insert, Kind::Logged, false),
    case(How::Insert, Kind::Logged, true),
    case(How::Copy, Kind::Logged, false),
    like(
        case(How::Copy, Kind::Logged, true),
        "append, nologging",
        Some(48_684.0),
        Some(772_916.0),
    ),
    like(
        case(How::CreateAs, Kind::Logged, true),
        "CTAS, nologging",
        Some(82_848.0),
        Some(962_696.0),
    ),
];

/// The results of one case, in bytes unless named records.
struct Written {
    /// The operation, bytes and records of each node in the view. `None` if there is no plan.
    nodes: Option<Vec<(String, f64, f64)>>,
    statement: f64,
    with_commit: f64,
}

pub fn run(context: &mut ExperimentContext) {
    let small = context.sizes.of(6_000, 60_000);
    let large = context.sizes.of(20_000, 8_000_000);
    context.setting("rows", format!("{small} and {large}"));
    let mut all: Vec<(&str, u64, Case, Written)> = Vec::new();
    for (at, (level, cases)) in [("replica", &REPLICA[..]), ("minimal", &MINIMAL[..])]
        .into_iter()
        .enumerate()
    {
        let (from, to) = [(0.0, 0.65), (0.65, 1.0)][at];
        context.begin_part(from, to);
        let level_setting = format!("wal_level = {level}");
        let mut settings = vec![
            SHIPPED,
            level_setting.as_str(),
            "full_page_writes = on",
            "max_parallel_workers_per_gather = 0",
            "jit = off",
            "max_wal_size = '32GB'",
        ];
        if level == "minimal" {
            settings.push("max_wal_senders = 0");
        }
        let server = Server::preloaded(level, &settings);
        context.server(&server);
        let mut client = server.session();
        for (which, rows) in [small, large].into_iter().enumerate() {
            let file = server.folder().join("rows.csv");
            write_rows(&mut client, rows, &file);
            let mut table = Table::new(
                &format!("wal_level {level}, {} rows", count(rows as f64)),
                "WAL bytes. In nodes: the bytes of the plan's nodes in pg_stat_rowsource. COPY has no plan, and CREATE TABLE AS writes \
                 outside its plan. Position: how far the statement moved pg_current_wal_insert_lsn(); with commit: how far the \
                 statement and its commit moved it. Both include the padding of records and page headers. Original: redo bytes.",
                &[
                    "way",
                    "table",
                    "in nodes",
                    "node by node",
                    "position",
                    "with commit",
                    "a row",
                    "original",
                    "",
                ],
            );
            for (at, case) in cases.iter().enumerate() {
                let done = (which as f64 + at as f64 / cases.len() as f64) / 2.0;
                // The large cases take most of the time.
                let done = if which == 0 {
                    done * 0.1
                } else {
                    0.05 + (done - 0.5) * 1.9
                };
                context.at(done, &format!("{level}, {rows} rows: {}", case.name()));
                let written = case.run(&mut client, rows, &file);
                report(context, level, which, rows, case, &written, &mut table);
                all.push((level, rows, *case, written));
            }
            context.table(table);
        }
    }
    for rows in [small, large] {
        let of = |level: &str, how: How, same_transaction: bool| {
            let found = all.iter().find(|(at, of, case, _)| {
                (*at, *of, case.how, case.kind, case.same_transaction)
                    == (level, rows, how, Kind::Logged, same_transaction)
            });
            found.map_or(f64::NAN, |(.., written)| written.with_commit)
        };
        let (logged, minimal) = (of("replica", How::Insert, false), of("minimal", How::Copy, true));
        context.finding(format!(
            "{} rows: COPY into a table of the same transaction at wal_level minimal writes {} bytes of WAL. INSERT at replica \
             writes {}, which is {:.0} times as many. (The factor of the original's nologging is 140 for 60,000 rows and 1,200 for \
             8 million. Below wal_skip_threshold PostgreSQL logs the new pages at commit instead of syncing the file.)",
            count(rows as f64),
            count(minimal),
            count(logged),
            logged / minimal,
        ));
    }
}

/// Writes the file that COPY reads. A row has about 100 bytes; in the original a row takes about 120 bytes of
/// redo.
fn write_rows(client: &mut Client, rows: u64, file: &Path) {
    run_each(
        client,
        &format!("COPY ({}) TO '{}'", source(rows), file.display()),
    );
}

/// Returns the query for the rows.
fn source(rows: u64) -> String {
    format!("SELECT i AS id, repeat('x', 60) AS pad FROM generate_series(1, {rows}) i")
}

/// Returns the position at which the next WAL record will be written.
fn position(client: &mut Client) -> f64 {
    value(client, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8")
}

impl Case {
    fn name(&self) -> String {
        let how = match self.how {
            How::Insert => "INSERT ... SELECT",
            How::Copy => "COPY",
            How::CreateAs => return "CREATE TABLE AS".to_string(),
        };
        let same = if self.same_transaction {
            ", table of the same transaction"
        } else {
            ""
        };
        format!("{how}{same}")
    }

    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Logged => "logged",
            Kind::Unlogged => "unlogged",
            Kind::Temporary => "temporary",
        }
    }

    /// Runs the case once.
    fn run(&self, client: &mut Client, rows: u64, file: &Path) -> Written {
        let kind = if self.kind == Kind::Logged {
            ""
        } else {
            self.kind()
        };
        let create = format!("CREATE {kind} TABLE target (id int, pad text)");
        let statement = match self.how {
            How::Insert => format!("INSERT INTO target {}", source(rows)),
            How::Copy => format!("COPY target FROM '{}'", file.display()),
            How::CreateAs => format!("CREATE {kind} TABLE target AS {}", source(rows)),
        };
        run_each(client, "DROP TABLE IF EXISTS target");
        if self.how != How::CreateAs && !self.same_transaction {
            run_each(client, &create);
        }
        // Whoever plans a statement reads catalogs, and prunes their pages if there are dead rows. After a
        // checkpoint each of these pages goes into the WAL as a whole, and that is no node's.
        run_each(client, "VACUUM; CHECKPOINT; SELECT rowsource_reset(); BEGIN");
        if self.how != How::CreateAs && self.same_transaction {
            run_each(client, &create);
        }
        let before = position(client);
        run_each(
            client,
            "SET LOCAL pg_rowsource.sampfreq = 0; SET LOCAL pg_rowsource.statistics_level = typical",
        );
        run_each(client, &statement);
        run_each(client, "SET LOCAL pg_rowsource.statistics_level = basic");
        let after = position(client);
        run_each(client, "COMMIT");
        let committed = position(client);
        let nodes = texts(
            client,
            "SELECT operation, last_wal_bytes, last_wal_records, parent_id IS NULL FROM pg_stat_rowsource ORDER BY node_id",
        );
        let number =
            |cell: &Option<String>| cell.as_deref().and_then(|cell| cell.parse().ok()).unwrap_or(0.0);
        let per_node: Vec<(String, f64, f64)> = nodes
            .iter()
            .map(|row| {
                (
                    row[0].clone().unwrap_or_default(),
                    number(&row[1]),
                    number(&row[2]),
                )
            })
            .collect();
        Written {
            nodes: (!per_node.is_empty()).then_some(per_node),
            statement: after - before,
            with_commit: committed - before,
        }
    }
}

fn report(
    context: &mut ExperimentContext,
    level: &str,
    which: usize,
    rows: u64,
    case: &Case,
    written: &Written,
    table: &mut Table,
) {
    let what = format!(
        "{level}, {} rows, {} table: {}",
        count(rows as f64),
        case.kind(),
        case.name()
    );
    // A node's WAL includes that of its children, so the root's WAL is that of the plan.
    let root = written.nodes.as_ref().and_then(|nodes| nodes.first());
    let original = case
        .original
        .and_then(|(words, small, large)| [small, large][which].map(|bytes| (words, bytes)));
    let each = written
        .nodes
        .iter()
        .flatten()
        .map(|(operation, bytes, _)| format!("{operation} {}", count(*bytes)));
    let each = each.collect::<Vec<_>>().join(", ");
    table.row([
        case.name(),
        case.kind().to_string(),
        root.map_or("no plan".to_string(), |(_, bytes, _)| count(*bytes)),
        each,
        count(written.statement),
        count(written.with_commit),
        format!("{:.1}", written.with_commit / rows as f64),
        original.map_or(String::new(), |(_, bytes)| count(bytes)),
        original.map_or(String::new(), |(words, _)| words.to_string()),
    ]);
    context.measured(&what, "position, statement", "bytes", &[written.statement]);
    context.measured(&what, "position, with commit", "bytes", &[written.with_commit]);
    let (bytes, records) = root.map_or((0.0, 0.0), |(_, bytes, records)| (*bytes, *records));
    if root.is_some() {
        context.measured(&what, "in nodes", "bytes", &[bytes]);
    }
    if case.how == How::Insert {
        // The INSERT's node writes all of its WAL. The rest of the distance is padding and page headers.
        let most = (bytes + PADDING * records) * (WAL_PAGE / (WAL_PAGE - WAL_HEADER)) + SLACK;
        context.assert_exact(
            format!("{what}: position minus nodes"),
            format!("0 to {} (padding and headers)", count(most - bytes)),
            count(written.statement - bytes),
            (bytes..=most).contains(&written.statement),
        );
    }
}
