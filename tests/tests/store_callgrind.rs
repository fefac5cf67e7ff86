//! The extension's cost for short statements, in instructions counted by callgrind, which other work does not
//! disturb. The cost of one statement is the difference of two parts of a run, so start-up and work done once
//! per plan do not count.

use rowsource_tests::callgrind::{
    SHORT, create_tables, instructions, of_parts, of_parts_by_even_clock, of_statements, recorded,
    statement_above_recorded,
};
use rowsource_tests::session::{major, run_each};
use rowsource_tests::{SHIPPED, Server};

#[test]
fn short_statements_cost_few_instructions_release() {
    /// The recorded instructions of a statement that finds a row by a bitmap, whose index scan is measured by
    /// core. It is summed up as counts all the same. From 19 on it also has how the scan reads ahead, which
    /// has no counts.
    const BY_BITMAP: [f64; 2] = [4_090.0, 5_540.0];
    /// The most instructions that a lookup by primary key may cost on any major.
    const MAX_OF_LOOKUP: f64 = 3_700.0;
    let mut server = Server::preloaded("short", &[SHIPPED]);
    let mut client = server.connect();
    create_tables(&mut client);
    let major = major(&mut client);
    drop(client);
    server.stop();
    let [without, with] = [false, true].map(|is_loaded| {
        let library = if is_loaded { "pg_rowsource" } else { "" };
        let level = |level: &str| match is_loaded {
            true => format!("SET pg_rowsource.statistics_level = {level}"),
            false => "SET enable_sort = on".to_owned(),
        };
        let by_bitmap = "SET enable_indexscan = off;\n\nSET enable_seqscan = off;\n\n\
             PREPARE b(int) AS SELECT balance FROM accounts WHERE aid = $1";
        let mut before = SHORT.map(|(_, name, _)| level(name)).to_vec();
        before.push(format!("{};\n\n{by_bitmap}", level("typical")));
        let statements = SHORT.map(|(.., statements)| statements);
        let statements = statements.into_iter().chain([&["EXECUTE b(1)"][..]]);
        let short: Vec<_> = before.iter().map(String::as_str).zip(statements).collect();
        let library = format!("shared_preload_libraries={library}");
        of_statements(&server.data(), &[&library], &short)
    });
    let mut recorded: Vec<_> = match recorded(major).and_then(|recorded| recorded.statements) {
        Some(recorded) => recorded.map(Some).to_vec(),
        None => vec![None; SHORT.len()],
    };
    recorded.push(Some(BY_BITMAP[usize::from(major >= 19)]));
    let kinds = SHORT.map(|(kind, ..)| kind).into_iter().chain(["by a bitmap"]);
    let mut failures = Vec::new();
    for (which, (kind, (with, without))) in kinds.zip(with.into_iter().zip(without)).enumerate() {
        let added = with - without;
        println!(
            "{kind}: {without:.0} instructions a statement without the library, {with:.0} with it, {added:+.0}"
        );
        failures.extend(statement_above_recorded(kind, added, recorded[which]));
        if which < 3 && added > MAX_OF_LOOKUP {
            failures.push(format!(
                "{kind}: {added:.0} instructions, {MAX_OF_LOOKUP} at most"
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A procedure that fetches row by row runs the executor once for each row.
#[test]
fn rows_fetched_one_by_one_cost_few_instructions_release() {
    const ROWS: [usize; 2] = [500, 2_500];
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
        let [few, many] = ROWS;
        // The first time, it reads system tables and the table's blocks. What happens now and then only adds
        // to a count: the least counts.
        let parts = [many, few, many, few, many].map(|rows| {
            format!(
                "DO 'DECLARE c refcursor; x int; s int := 0; BEGIN OPEN c FOR SELECT balance FROM accounts WHERE aid <= {rows}; \
                 LOOP FETCH c INTO x; EXIT WHEN NOT FOUND; s := s + x; END LOOP; END';\n\n"
            )
        });
        let counts = of_parts_by_even_clock(&server.data(), &settings, &parts);
        (counts[2].min(counts[4]) as f64 - counts[1].min(counts[3]) as f64) / (many - few) as f64
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
fn open_cursors_cost_few_instructions_release() {
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
        let [smallest, ..] = SIZES;
        // The first cursors describe the plan, and read system tables.
        let parts = [smallest].into_iter().chain(SIZES).map(|cursors| {
            let every = |make: fn(usize) -> String| (0..cursors).map(make).collect::<String>();
            let declare = every(|i| {
                format!("DECLARE c{i} CURSOR FOR SELECT x.id FROM t x JOIN t y ON x.id < y.id;\n\n")
            });
            let fetch = every(|i| format!("FETCH 2 FROM c{i};\n\n"));
            format!("BEGIN;\n\n{declare}{}COMMIT;\n\n", fetch.repeat(3))
        });
        let setting = format!("shared_preload_libraries={library}");
        let counts = of_parts(&server.data(), &[&setting], &parts.collect::<Vec<_>>());
        [0, 1].map(|i| (counts[i + 2] as f64 - counts[i + 1] as f64) / (SIZES[i + 1] - SIZES[i]) as f64)
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
fn plans_of_other_sessions_cost_few_instructions_release() {
    const PLANS: usize = 60;
    /// What the library adds to the first execution in a session may be this part of what it adds to the
    /// first of all. It includes that the server, which has just started, loads the store from its file.
    const MAX_SHARE: f64 = 0.26;
    let mut server = Server::preloaded("known-plans", &[SHIPPED]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE TABLE t AS SELECT i AS id, i AS v FROM generate_series(1, 10) i; VACUUM (FREEZE, ANALYZE)",
    );
    let statements: Vec<String> = (1..=PLANS)
        .map(|i| format!("SELECT id FROM t WHERE v < 5{} LIMIT 1", " AND id > 0".repeat(i)))
        .collect();
    // The first ones set hints.
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    for statement in &statements {
        client.query(statement, &[]).expect(statement);
    }
    drop(client);
    server.stop();
    let script = statements.join(";\n\n") + ";\n\n";
    let run = |server: &Server, library: &str| {
        let setting = format!("shared_preload_libraries={library}");
        instructions(&server.data(), &[&setting], &script) as f64 / PLANS as f64
    };
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
