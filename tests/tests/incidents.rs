//! The seven incidents of the page "On call: it is slow", made on purpose on one server: the page's own
//! commands must name the statement, the table and the session that are to blame. They are read from the
//! page, and what they show is printed, which is where its outputs come from. A day later, and after a
//! restart, the commands of the chapter "What happened" must name them, too.

use postgres::{Client, SimpleQueryMessage};
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::documents::{blocks, read, statements};
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::waiting::until;

/// With this target, ANALYZE reads all rows of `orders`. A sample would give some customers twice their rows
/// and the lookup a wrong estimate.
const SHOP: &str = "
    SET default_statistics_target = 400;
    CREATE EXTENSION pg_rowsource;
    CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, (i % 100)::numeric AS amount, repeat(md5(i::text), 4) AS pad
      FROM generate_series(1, 100000) i;
    CREATE INDEX orders_customer ON orders (customer);
    CREATE TABLE fresh (id int, customer int);
    INSERT INTO fresh VALUES (0, 0);
    VACUUM (ANALYZE) orders;
    ANALYZE fresh";

const BATCH: &str = "
    CREATE PROCEDURE batch() LANGUAGE plpgsql AS $$
    BEGIN
      FOR i IN 1..30 LOOP
        PERFORM count(*) FROM orders WHERE pad LIKE '%' || i || 'abc%';
        UPDATE orders SET amount = amount + 1 WHERE customer = i;
        COMMIT;
      END LOOP;
    END $$";

/// The server of a shop, and who is on call.
struct Shop {
    server: Server,
    on_call: Client,
    /// The page's commands that nobody has run yet.
    commands: Vec<String>,
    /// When the incident began.
    since: String,
    /// When each began and ended.
    all: Vec<(String, String)>,
}

impl Shop {
    fn open() -> Shop {
        let settings = [
            "autovacuum = off",
            "max_parallel_workers_per_gather = 0",
            "jit = off",
            "pg_rowsource.keep_constants = off",
            "pg_rowsource.snapshot_interval = 0",
        ];
        let server = Server::preloaded("incidents", &settings);
        let mut on_call = server.connect();
        run_each(&mut on_call, "SET pg_rowsource.statistics_level = basic");
        run_each(&mut on_call, SHOP);
        on_call.batch_execute(BATCH).expect("a procedure");
        run_each(
            &mut on_call,
            "SELECT rowsource_reset(); SELECT rowsource_snapshot()",
        );
        let is_sql = |block: &rowsource_tests::documents::Block| block.info == "sql";
        let page = blocks(&read("docs/on-call.md"));
        Shop {
            server,
            on_call,
            commands: page.into_iter().filter(is_sql).map(|block| block.text).collect(),
            since: String::new(),
            all: Vec::new(),
        }
    }

    /// Begins an incident.
    fn begin(&mut self, what: &str) {
        println!("== {what}");
        self.since = value(&mut self.on_call, "SELECT clock_timestamp()::text");
    }

    /// Returns a session of an application.
    fn session(&self, application: &str) -> Client {
        let mut client = self.server.connect();
        run_each(&mut client, &format!("SET application_name = '{application}'"));
        client
    }

    fn until(&mut self, condition: &str) {
        until(&mut self.on_call, &format!("SELECT {condition}"));
    }

    /// Runs the next command of the page, which must read from `source`. For each of the expected rows, one
    /// must have all its texts, and the first row must have those of the first.
    fn told(&mut self, source: &str, expected: &[&[&str]]) {
        let command = self.commands.remove(0);
        assert!(command.contains(source), "not from {source}: {command}");
        let mut rows = Vec::new();
        for message in self.on_call.simple_query(&command).expect("the page's command") {
            match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
                    println!("{command}\n{}", names.join(" | "));
                }
                SimpleQueryMessage::Row(row) => {
                    let cells: Vec<&str> = (0..row.len()).map(|i| row.get(i).unwrap_or("")).collect();
                    println!("{}", cells.join(" | "));
                    rows.push(cells.join(" | "));
                }
                _ => {}
            }
        }
        for (i, texts) in expected.iter().enumerate() {
            let has_all = |row: &String| texts.iter().all(|text| row.contains(text));
            let place = rows.iter().position(has_all);
            let place =
                place.unwrap_or_else(|| panic!("no row has {texts:?}: {command}\n{}", rows.join("\n")));
            let is_report = rows.len() > 20;
            assert!(
                i > 0 || place == 0 || is_report,
                "{texts:?} is not the first: {command}"
            );
        }
    }

    /// Ends an incident: of the samples since it began, all but a few have a statement, or what kind of
    /// command ran. Then a snapshot is taken, which the server does each quarter of an hour.
    fn end(&mut self) {
        let until = value(&mut self.on_call, "SELECT clock_timestamp()::text");
        self.all.push((self.since.clone(), until));
        run_each(&mut self.on_call, "SELECT rowsource_snapshot()");
        let lines = texts(
            &mut self.on_call,
            &format!("SELECT rowsource_ash_report('{}')", self.since),
        );
        let lines: Vec<String> = lines.into_iter().flatten().flatten().collect();
        let statements = lines
            .iter()
            .skip_while(|line| *line != "Top statements")
            .skip(1)
            .take_while(|line| !line.starts_with("Top "));
        let (mut all, mut unnamed) = (0, 0);
        for line in statements {
            let cells: Vec<&str> = line
                .split(" | ")
                .map(|cell| cell.trim_matches(['|', ' ']))
                .collect();
            // A text may have a bar.
            if let [_, _, statement @ .., samples, _, _, _] = cells.as_slice()
                && let Ok(samples) = samples.parse::<u64>()
            {
                all += samples;
                unnamed += if statement.concat().is_empty() { samples } else { 0 };
            }
        }
        println!("without a name: {unnamed} of {all} samples");
        assert!(
            all > 0 && unnamed * 10 <= all,
            "{unnamed} of {all} samples have no name:\n{}",
            lines.join("\n")
        );
    }
}

/// A migration waits behind a transaction that somebody forgot to end, and the shop waits behind the
/// migration.
fn pile_up(shop: &mut Shop) {
    shop.begin("A pile-up of locks behind an idle transaction");
    let mut report = shop.session("report");
    run_each(&mut report, "BEGIN; SELECT count(*) FROM orders");
    let migration = Busy::run(
        shop.session("migration"),
        "ALTER TABLE orders ADD COLUMN extra int",
    );
    shop.until("count(*) = 1 FROM rowsource_blockers WHERE depth = 1");
    let customers = [(); 2].map(|()| {
        Busy::run(
            shop.session("shop"),
            "SELECT sum(amount) FROM orders WHERE customer = 7",
        )
    });
    shop.until("count(*) = 2 FROM rowsource_blockers WHERE depth = 2");
    shop.until("count(*) = 3 FROM rowsource_blockers('10 min') WHERE depth > 0 AND wait_time > 100");
    shop.told(
        "rowsource_report('1 min')",
        &[
            &["What happened"],
            &["(client backend postgres report) kept 1 session waiting"],
            &["(client backend postgres migration) kept 2 sessions waiting"],
        ],
    );
    shop.told("FROM rowsource_health()", &[&["switch | ok"]]);
    shop.told(
        "FROM rowsource_blockers;",
        &[
            &["0 | ", "report | idle in transaction", "SELECT count(*) FROM orders"],
            &["1 | ", "migration | active | AccessExclusiveLock | orders | ALTER TABLE orders ADD"],
            &["2 | ", "shop | active | AccessShareLock | orders | SELECT sum(amount) FROM orders WHERE customer = 7"],
        ],
    );
    shop.until("count(*) = 3 FROM rowsource_blockers('10 min') WHERE depth > 0 AND wait_time > 300");
    run_each(&mut report, "COMMIT");
    migration.join();
    for customer in customers {
        customer.join();
    }
    shop.told(
        "rowsource_blockers('10 min')",
        &[
            &["0 | ", "report", "SELECT count(*) FROM orders"],
            &[
                "1 | ",
                "migration | AccessExclusiveLock | orders",
                "ALTER TABLE on orders",
            ],
            &["2 | ", "shop | AccessShareLock | orders", "SELECT on orders"],
        ],
    );
    shop.end();
}

/// A client does not read what it asked for, and two sessions compute.
fn slow_client_and_hogs(shop: &mut Shop) {
    shop.begin("A slow client, and two hogs");
    let mut export = shop.session("export");
    let unread = export
        .copy_out("COPY (SELECT * FROM orders) TO STDOUT")
        .expect("a copy");
    let hogs = [
        "SELECT max(md5(id::text || pad)) FROM orders, generate_series(1, 1000)",
        "SELECT count(md5(i::text)) FROM (SELECT generate_series(1, 1000000000) AS i) s",
    ]
    .map(|sql| Busy::run(shop.session("hog"), sql));
    for seen in [
        "application_name = 'export' AND wait_event = 'ClientWrite'".to_owned(),
        format!("pid = {} AND wait_event IS NULL", hogs[0].pid),
        format!("pid = {} AND wait_event IS NULL", hogs[1].pid),
    ] {
        shop.until(&format!("count(*) >= 200 FROM rowsource_ash WHERE {seen}"));
    }
    drop(unread);
    for hog in hogs {
        hog.cancel(&mut shop.on_call);
    }
    let hog = |text| [text, " | "];
    shop.told(
        "rowsource_ash_report('5 min')",
        &[
            &hog("SELECT max(md5(id"),
            &hog("SELECT count(md5(i"),
            &hog("COPY (SELECT * FROM orders) TO STDOUT"),
        ],
    );
    shop.told(
        "wait_event = 'ClientWrite'",
        &[&["export | Client | ClientWrite"]],
    );
    drop(export);
    shop.end();
}

fn look_up(shop: &Shop) {
    let mut client = shop.session("shop");
    for customer in 1..=40 {
        run_each(
            &mut client,
            &format!("SELECT sum(amount) FROM orders WHERE customer = {customer}"),
        );
    }
}

/// Somebody drops an index, and the shop's lookups read the whole table.
fn dropped_index(shop: &mut Shop) {
    shop.begin("A dropped index");
    look_up(shop);
    run_each(&mut shop.on_call, "DROP INDEX orders_customer");
    look_up(shop);
    let lookup = "SELECT sum(amount) FROM orders WHERE customer = $1";
    shop.told("rowsource_plan_flips", &[&["slower", lookup]]);
    shop.end();
    run_each(
        &mut shop.on_call,
        "CREATE INDEX orders_customer ON orders (customer)",
    );
}

/// A table has grown since it was analysed, and a sort has too little memory.
fn stale_statistics_and_spill(shop: &mut Shop) {
    shop.begin("Stale statistics, and a spill");
    run_each(
        &mut shop.session("load"),
        "INSERT INTO fresh SELECT i, i % 5000 FROM generate_series(1, 50000) i",
    );
    run_each(
        &mut shop.session("shop"),
        "SELECT count(*) FROM fresh f JOIN orders o USING (id) WHERE f.customer >= 0;
         SET work_mem = '1MB';
         SELECT count(*) FROM (SELECT * FROM orders ORDER BY pad, id OFFSET 0) s",
    );
    shop.told(
        "rowsource_top_statements",
        &[
            &[],
            &["SELECT max(md5(id"],
            &["SELECT count(md5(i"],
            &["COPY (SELECT * FROM orders) TO STDOUT"],
            &["FROM orders WHERE customer = $1"],
        ],
    );
    shop.told(
        "rowsource_misestimates",
        &[
            &["underestimated"],
            &["fresh", "underestimated"],
            &["Hash Join", "underestimated"],
        ],
    );
    shop.told("rowsource_top_temp", &[&["Sort"]]);
    shop.end();
}

/// A procedure is slow, and one of its statements is the reason.
fn batch(shop: &mut Shop) {
    shop.begin("A batch in a procedure");
    run_each(
        &mut shop.session("batch"),
        "SET pg_rowsource.track = nested; CALL batch()",
    );
    shop.told(
        "AS total_time, n.query",
        &[&["30 | ", "pad LIKE"], &["30 | ", "UPDATE orders SET amount"]],
    );
    shop.told(
        "SELECT d.*",
        &[&["executions 30"], &["pad LIKE"], &["Seq Scan", "orders"]],
    );
    shop.end();
}

#[test]
fn the_commands_of_the_page_name_the_cause_of_each_incident() {
    let mut shop = Shop::open();
    pile_up(&mut shop);
    slow_client_and_hogs(&mut shop);
    dropped_index(&mut shop);
    stale_statistics_and_spill(&mut shop);
    batch(&mut shop);
    // What the page says when nothing was found.
    assert!(shop.commands.is_empty(), "nobody ran {:?}", shop.commands);
    a_day_later(shop);
}

/// The interval in the commands of the chapter.
const YESTERDAY: &str = "'2026-11-27 14:00', '2026-11-27 14:30'";

/// What they must show of each incident: for each command, texts that one row has.
type Told<'a> = &'a [(&'a str, &'a [&'a [&'a str]])];
const TOLD: [Told<'_>; 5] = [
    &[(
        "rowsource_blockers(",
        &[
            &["0 | ", "report", "SELECT count(*) FROM orders"],
            &[
                "1 | ",
                "migration | AccessExclusiveLock | orders",
                "ALTER TABLE on orders",
            ],
            &["2 | ", "shop | AccessShareLock | orders", "SELECT on orders"],
        ],
    )],
    &[(
        "rowsource_ash_report(",
        &[
            &["SELECT max(md5(id", " | "],
            &["SELECT count(md5(i", " | "],
            &["COPY (SELECT * FROM orders) TO STDOUT", " | "],
            &["| Client | ClientWrite"],
            &["client backend postgres export"],
        ],
    )],
    &[
        (
            "FROM rowsource_interval_plans(",
            &[&["| 40 |", "SELECT sum(amount) FROM orders WHERE customer = $1"]],
        ),
        ("rowsource_display_snapshot(", &[&["Seq Scan", "orders"]]),
    ],
    &[
        (
            "FROM rowsource_interval_plans(",
            &[
                &["| 1 |", "FROM fresh f JOIN orders"],
                &["| 1 |", "ORDER BY pad, id"],
            ],
        ),
        (
            "rowsource_display_snapshot(",
            &[&["Seq Scan", "fresh", "50001"], &["Sort", "100K"]],
        ),
        ("rowsource_tempfile_report(", &[&["| work file ", "M |"]]),
    ],
    &[
        (
            "FROM rowsource_interval_plans(",
            &[&["| 30 |", "pad LIKE"], &["| 30 |", "UPDATE orders SET amount"]],
        ),
        ("rowsource_display_snapshot(", &[&["pad LIKE"]]),
    ],
];

/// The incidents of seconds become some of minutes, of a day ago: their samples are as far from each other,
/// and stand for as many moments, as the server leaves of older ones. Then the server starts anew.
fn a_day_later(mut shop: Shop) {
    let now: String = value(&mut shop.on_call, "SELECT clock_timestamp()::text");
    let aged =
        |at: &str| format!("'{now}'::timestamptz - interval '1 day' - ('{now}'::timestamptz - {at}) * 100");
    let [taken, first, last, sample] =
        ["taken_at", "first_sample_at", "last_sample_at", "sample_time"].map(aged);
    run_each(
        &mut shop.on_call,
        &format!(
            "UPDATE rowsource_snapshots SET taken_at = {taken}, first_sample_at = {first}, last_sample_at = {last},
                    sampled_moments = sampled_moments * 100;
             UPDATE rowsource_snapshot_ash SET sample_time = {sample}, moments = moments * 100"
        ),
    );
    shop.server.stop();
    shop.server.launch();
    let mut client = shop.server.connect();
    run_each(
        &mut client,
        "SELECT rowsource_reset(); SELECT rowsource_snapshot(); SELECT rowsource_snapshot()",
    );
    let commands = commands_of_yesterday();
    assert_eq!(shop.all.len(), TOLD.len());
    for ((since, until), told) in shop.all.iter().zip(TOLD) {
        let ends = [since, until].map(|at| aged(&format!("'{at}'::timestamptz")));
        let ends: String = value(
            &mut client,
            &format!("SELECT format('%L, %L', {}, {})", ends[0], ends[1]),
        );
        println!("== a day later: {ends}");
        for (source, expected) in told {
            let command = commands.iter().find(|command| command.contains(source));
            let command = command.unwrap_or_else(|| panic!("no command of {source}"));
            shows(&mut client, &command.replace(YESTERDAY, &ends), expected);
        }
    }
    shop.server.assert_no_crash();
}

/// Returns the commands of the chapter that ask of an interval of yesterday.
fn commands_of_yesterday() -> Vec<String> {
    let page = blocks(&read("docs/history.md"));
    let commands: Vec<String> = page
        .iter()
        .filter(|block| block.info == "sql")
        .flat_map(|block| statements(&block.text))
        .filter(|command| command.contains(YESTERDAY))
        .collect();
    assert_eq!(commands.len(), 6, "{commands:?}");
    commands
}

/// Asserts that for each of the expected ones, a row has all its texts.
fn shows(client: &mut Client, command: &str, expected: &[&[&str]]) {
    let rows = texts(client, command).into_iter().map(|row| {
        let cells = row.into_iter().map(Option::unwrap_or_default);
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    });
    let rows: Vec<String> = rows.collect();
    println!("{command}\n{}", rows.join("\n"));
    for parts in expected {
        let has_all = |row: &String| parts.iter().all(|part| row.contains(part));
        assert!(
            rows.iter().any(has_all),
            "no row has {parts:?}: {command}\n{}",
            rows.join("\n")
        );
    }
}
