//! The extension's cost for short statements, in instructions counted by callgrind, which other work does not disturb. The
//! cost of one statement is the difference of two runs, so start-up and work done once per plan do not count.

use rowsource_tests::callgrind::{
    SHORT, create_tables, instructions, of_statements, recorded, statement_above_recorded,
};
use rowsource_tests::session::{major, run_each};
use rowsource_tests::{SHIPPED, Server};

#[test]
fn short_statements_cost_few_instructions() {
    const MAX_INSTRUCTIONS: f64 = 3_700.0;
    let mut server = Server::preloaded("short", &[SHIPPED]);
    let mut client = server.connect();
    create_tables(&mut client);
    let major = major(&mut client);
    drop(client);
    server.stop();
    let variants: [(&str, &[&str]); 4] = [
        ("no library", &["shared_preload_libraries="]),
        ("pg_rowsource", &["shared_preload_libraries=pg_rowsource"]),
        (
            "pg_stat_statements",
            &["shared_preload_libraries=pg_stat_statements"],
        ),
        (
            "pg_stat_statements + auto_explain",
            &[
                "shared_preload_libraries=pg_stat_statements,auto_explain",
                "auto_explain.log_analyze=on",
                "auto_explain.log_buffers=on",
                "auto_explain.log_min_duration=1h",
            ],
        ),
    ];
    let counts = variants.map(|(name, settings)| {
        let before = SHORT.map(|(_, level, _)| match name {
            "pg_rowsource" => format!("SET pg_rowsource.statistics_level = {level}"),
            _ => "SET enable_sort = on".to_owned(),
        });
        let short: Vec<_> = SHORT
            .iter()
            .zip(&before)
            .map(|((.., statements), before)| (before.as_str(), *statements))
            .collect();
        of_statements(&server.data(), settings, &short)
    });
    let mut failures = Vec::new();
    for (which, (kind, level, _)) in SHORT.into_iter().enumerate() {
        let each = counts.each_ref().map(|counts| counts[which]);
        for ((name, _), each_of) in variants.iter().zip(each) {
            println!(
                "{kind}: {name:<36} {each_of:>8.0} instructions a statement, {:+.0}, {:+.1} %",
                each_of - each[0],
                (each_of / each[0] - 1.0) * 100.0
            );
        }
        let [added, _, peers] = [1, 2, 3].map(|variant| each[variant] - each[0]);
        let recorded = recorded(major).and_then(|recorded| Some(recorded.statements?[which]));
        failures.extend(statement_above_recorded(kind, added, recorded));
        // Must cost less than pg_stat_statements with auto_explain. From 18 on these are cheaper: there, it must cost at most
        // `MAX_INSTRUCTIONS`. A plan of three nodes and an insert cost more.
        let limit = match level {
            "typical" if which < 3 && major < 18 => peers,
            "typical" if which < 3 => peers.max(MAX_INSTRUCTIONS),
            _ => continue,
        };
        if added > limit {
            failures.push(format!(
                "{kind}: {added:.0} instructions a statement, the peers' {peers:.0}"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A procedure that fetches row by row runs the executor once for each row.
#[test]
fn rows_fetched_one_by_one_cost_few_instructions() {
    const ROWS: [usize; 2] = [1_000, 4_000];
    /// A row may take this many times the instructions.
    const MAX_RATIO: f64 = 1.10;
    let mut server = Server::preloaded("row-by-row", &[]);
    let mut client = server.connect();
    create_tables(&mut client);
    drop(client);
    server.stop();
    let of_a_row = |library: &str| {
        let settings = [
            &format!("shared_preload_libraries={library}"),
            "pg_rowsource.track=all",
            "enable_seqscan=off",
            "enable_bitmapscan=off",
        ];
        let counts = ROWS.map(|rows| {
            let script = format!(
                "DO 'DECLARE c refcursor; x int; s int := 0; BEGIN OPEN c FOR SELECT balance FROM accounts WHERE aid <= {rows}; \
                 LOOP FETCH c INTO x; EXIT WHEN NOT FOUND; s := s + x; END LOOP; END';\n\n"
            );
            instructions(&server.data(), &settings, &script) as f64
        });
        (counts[1] - counts[0]) / (ROWS[1] - ROWS[0]) as f64
    };
    let (without, with) = (of_a_row(""), of_a_row("pg_rowsource"));
    let ratio = with / without;
    println!(
        "instructions of a row: {without:.0} without, {with:.0} with the library, {ratio:.3} times as many"
    );
    assert!(ratio <= MAX_RATIO, "{ratio:.3}");
}

/// Each cursor is a suspended statement, and all of them continue in turn.
#[test]
fn open_cursors_cost_few_instructions() {
    const SIZES: [usize; 3] = [20, 120, 520];
    /// A cursor that is opened, read in three steps and closed may take this many times the instructions.
    const MAX_RATIO: f64 = 1.25;
    /// What the library adds to a cursor may be this many times as much if many cursors are open.
    const MAX_GROWTH: f64 = 1.1;
    let mut server = Server::preloaded("open-cursors", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 10) i; VACUUM (FREEZE, ANALYZE)",
    );
    drop(client);
    server.stop();
    // Returns the instructions of one cursor, among few and among many.
    let each = |library: &str| {
        let counts = SIZES.map(|cursors| {
            let every = |make: fn(usize) -> String| (0..cursors).map(make).collect::<String>();
            let declare = every(|i| {
                format!("DECLARE c{i} CURSOR FOR SELECT x.id FROM t x JOIN t y ON x.id < y.id;\n\n")
            });
            let fetch = every(|i| format!("FETCH 2 FROM c{i};\n\n"));
            let script = format!("BEGIN;\n\n{declare}{}COMMIT;\n\n", fetch.repeat(3));
            let setting = format!("shared_preload_libraries={library}");
            instructions(&server.data(), &[&setting], &script) as f64
        });
        [0, 1].map(|i| (counts[i + 1] - counts[i]) / (SIZES[i + 1] - SIZES[i]) as f64)
    };
    let (without, with) = (each(""), each("pg_rowsource"));
    let added = [0, 1].map(|i| with[i] - without[i]);
    println!(
        "instructions of a cursor among few and many: {without:.0?} without, {with:.0?} with the library"
    );
    for i in 0..2 {
        assert!(
            with[i] <= MAX_RATIO * without[i],
            "{with:.0?} instructions of a cursor, {without:.0?} without the library"
        );
    }
    assert!(
        added[1] <= MAX_GROWTH * added[0],
        "it adds {added:.0?} instructions to a cursor"
    );
}

/// A session that runs plans which others have run finds their descriptions in the store.
#[test]
fn plans_of_other_sessions_cost_few_instructions() {
    const PLANS: usize = 60;
    /// What the library adds to the first execution in a session may be this part of what it adds to the first of all. It
    /// includes that the server, which has just started, loads the store from its file.
    const MAX_SHARE: f64 = 0.26;
    let mut server = Server::preloaded("known-plans", &[SHIPPED]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id, i AS v FROM generate_series(1, 10) i; VACUUM (FREEZE, ANALYZE)",
    );
    drop(client);
    server.stop();
    let statements: Vec<String> = (1..=PLANS)
        .map(|i| format!("SELECT id FROM t WHERE v < 5{} LIMIT 1", " AND id > 0".repeat(i)))
        .collect();
    let script = statements.join(";\n\n") + ";\n\n";
    let run = |server: &Server, library: &str| {
        let setting = format!("shared_preload_libraries={library}");
        instructions(&server.data(), &[&setting], &script) as f64 / PLANS as f64
    };
    // Catalogs are read and hints are set first.
    run(&server, "");
    let (without, new) = (run(&server, ""), run(&server, "pg_rowsource"));
    // The server saves what it knows when it stops.
    server.launch();
    let mut client = server.connect();
    for statement in &statements {
        client.query(statement, &[]).expect(statement);
    }
    drop(client);
    server.stop();
    let known = run(&server, "pg_rowsource");
    println!(
        "instructions a statement: {without:.0} without, {new:.0} if the plan is new, {known:.0} if the store has it"
    );
    assert!(
        known - without <= MAX_SHARE * (new - without),
        "{:.0} instructions for a plan that the store has, {:.0} for a new one",
        known - without,
        new - without
    );
}
