//! The program `rowsource` beside sessions whose texts are not UTF-8: each database has an encoding of its
//! own, and a server shows what sessions of all databases run.

use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::run_each;
use rowsource_tests::terminal::{Terminal, VIEWS, run};
use rowsource_tests::waiting::until_waiting;

/// What a database of UTF-8 makes of `größer`, which another one has as LATIN1.
const LATIN: &str = "gr\u{fffd}\u{fffd}er";

/// Statements that run, and one that has ended, in a database of LATIN1. A role has a name from there, and
/// one text ends with a byte that begins a character of UTF-8.
fn server(name: &str) -> (Server, Vec<Busy>) {
    let server = Server::preloaded(name, &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    for (database, encoding) in [("latin", "LATIN1"), ("plain", "SQL_ASCII")] {
        run_each(
            &mut client,
            &format!(
                "CREATE DATABASE {database} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            ),
        );
        let mut client = server.try_connect_to("postgres", database).expect("a session");
        run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    }
    let connect = |user: &str| server.try_connect_to(user, "latin").expect("a session");
    let mut latin = connect("postgres");
    run_each(
        &mut latin,
        "CREATE TABLE größer (id int); CREATE ROLE grün LOGIN; SELECT count(*) FROM größer, pg_sleep(0.1) --ß",
    );
    run_each(&mut latin, "SET SESSION AUTHORIZATION grün");
    let busy = vec![
        Busy::run(connect("postgres"), "SELECT 'größer', pg_sleep(1000) --ß"),
        Busy::run(
            connect("postgres"),
            "BEGIN; LOCK TABLE größer; SELECT pg_sleep(1000)",
        ),
        Busy::run(latin, "SELECT count(*) AS grün FROM pg_class, pg_sleep(1000)"),
    ];
    busy.iter()
        .for_each(|busy| until_waiting(&mut client, busy.pid, "PgSleep"));
    let blocked = Busy::run(connect("postgres"), "SELECT count(*) FROM größer --ß");
    until_waiting(&mut client, blocked.pid, "relation");
    (server, busy)
}

fn folder(server: &Server) -> String {
    server.folder().display().to_string()
}

#[test]
fn texts_that_are_not_utf8_are_shown_needs_program() {
    let (server, _busy) = server("terminal-latin");
    let folder = folder(&server);
    for database in ["postgres", "plain", "latin"] {
        let own = if database == "latin" { "größer" } else { LATIN };
        let print = |arguments: &[&str]| {
            let output = run(
                &[&["-h", &folder, "-U", "postgres", "-d", database], arguments].concat(),
                &[],
            );
            assert!(output.status.success(), "{database}: {arguments:?}: {output:?}");
            String::from_utf8(output.stdout).expect("UTF-8")
        };
        for view in VIEWS {
            let arguments = ["top", "--interval", "0.2", "--view", view];
            for how in ["--once", "--json"] {
                let text = print(&[&arguments[..], &[how]].concat());
                assert!(!text.contains("not refreshed"), "{database}: {view}: {text}");
                assert!(!text.contains("\"answer\""), "{database}: {view}: {text}");
                // A narrow column cuts it in a printed list.
                let own = if how == "--json" { own } else { "gr" };
                if ["live", "locks", "sessions"].contains(&view) {
                    assert!(text.contains(own), "{database}: {view}: {text}");
                }
            }
        }
        assert!(print(&["report"]).contains("What is wrong"));
    }
    server.assert_no_crash();
}

#[test]
fn a_screen_beside_texts_that_are_not_utf8_goes_on_needs_terminal() {
    let (server, busy) = server("terminal-latin-screen");
    let folder = folder(&server);
    let terminal = Terminal::of_command(
        &folder,
        "",
        &format!("-h '{folder}' -U postgres -d postgres top --interval 0.2 --view sessions"),
    );
    for (key, has) in [("9", LATIN), ("3", LATIN), ("8", LATIN), ("1", "Statements")] {
        terminal.keys(&[key]);
        let screen = terminal.until(has);
        let clock = |screen: &str| screen.split(" UTC").next().unwrap_or_default().to_owned();
        let before = clock(&screen);
        let screen = terminal.until_it("a later refresh", |screen| clock(screen) != before);
        assert!(
            !screen.contains("not refreshed") && !screen.contains("no answer"),
            "{screen}"
        );
    }
    // The question before a signal has the statement, too.
    terminal.keys(&["9"]);
    terminal.until("Sessions that");
    terminal.keys(&["/", &busy[0].pid.to_string(), "Enter"]);
    terminal.until(&format!("filter: {}", busy[0].pid));
    terminal.keys(&["C"]);
    let screen = terminal.until(&format!("cancel the statement of process {}?", busy[0].pid));
    assert!(screen.contains(LATIN), "{screen}");
    terminal.keys(&["y"]);
    terminal.until(&format!("sent to process {}", busy[0].pid));
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    server.assert_no_crash();
}
