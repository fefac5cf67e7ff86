//! The program `rowsource` asks for a password, and waits for servers that do not answer.

use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::process::send_signal;
use rowsource_tests::proxy::far_away;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::terminal::{Terminal, run};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const PASSWORD: &str = "hush-hush-42";

/// Starts a server where the role `asked` needs a password, and others do not.
fn server(name: &str) -> Server {
    let server = Server::preloaded(name, &["password_encryption = 'scram-sha-256'"]);
    let mut client = server.connect();
    run_each(
        &mut client,
        &format!("CREATE EXTENSION pg_rowsource; CREATE ROLE asked LOGIN PASSWORD '{PASSWORD}'"),
    );
    fs::write(
        server.data().join("pg_hba.conf"),
        "local all asked scram-sha-256\nlocal all all trust\n",
    )
    .expect("the file of rules");
    run_each(&mut client, "SELECT pg_reload_conf()");
    let begin = Instant::now();
    while server.try_connect("asked").is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(20), "no password is needed");
    }
    server
}

/// Runs the program as a role, with no password file.
fn as_role(server: &Server, user: &str, variables: &str, arguments: &str) -> Terminal {
    let folder = server.folder().display().to_string();
    Terminal::of_command(
        &folder,
        &format!("PGPASSFILE=/nowhere {variables}"),
        &format!("-h '{folder}' -U {user} -d postgres {arguments}"),
    )
}

/// Leaves the screen, and fails if the password stands in the terminal.
fn leave(terminal: &Terminal) {
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    let all = terminal.history();
    assert!(all.contains("Password for user"), "{all}");
    assert!(!all.contains(PASSWORD), "{all}");
}

/// The password is kept for connections that follow.
#[test]
fn a_password_is_asked_for_once_and_never_shown_needs_terminal() {
    let mut server = server("terminal-password");
    let terminal = as_role(&server, "asked", "", "top --interval 0.3");
    terminal.until("Password for user asked:");
    terminal.keys(&[PASSWORD]);
    terminal.keys(&["Enter"]);
    terminal.until("Statements");
    server.stop();
    terminal.until("connect");
    server.launch();
    let screen = terminal.until("the server was restarted");
    assert!(!screen.contains("Password for user"), "{screen}");
    leave(&terminal);
}

#[test]
fn a_wrong_password_is_an_error_needs_terminal() {
    let server = server("terminal-guess");
    for (variables, arguments) in [("", "top"), ("", "-W top"), ("", "report"), ("", "-W report")] {
        let terminal = as_role(&server, "asked", variables, arguments);
        terminal.until("Password for user asked:");
        terminal.keys(&["not-this", "Enter"]);
        let screen = terminal.until("left with 1");
        assert!(screen.contains("password authentication failed"), "{screen}");
        assert!(!screen.contains("not-this"), "{screen}");
    }
    // A password that is known is not asked for, even if it is wrong.
    let terminal = as_role(&server, "asked", "PGPASSWORD=not-this", "top");
    let screen = terminal.until("left with 1");
    assert!(screen.contains("password authentication failed"), "{screen}");
}

/// `-W` asks before it connects, `-w` never does, and nobody is asked without a terminal.
#[test]
fn the_options_of_passwords_are_psqls_needs_terminal() {
    let server = server("terminal-w");
    let terminal = as_role(&server, "postgres", "", "-W top");
    terminal.until("Password for user postgres:");
    terminal.keys(&[PASSWORD, "Enter"]);
    terminal.until("Statements");
    leave(&terminal);
    let terminal = as_role(&server, "asked", &format!("PGPASSWORD={PASSWORD}"), "-w top");
    terminal.until("Statements");
    let terminal = as_role(&server, "asked", "", "-w top");
    let screen = terminal.until("left with 1");
    assert!(screen.contains("the server wants a password"), "{screen}");
    assert!(!screen.contains("Password for user"), "{screen}");
    let folder = server.folder().display().to_string();
    let arguments = ["-h", &folder, "-U", "asked", "-d", "postgres", "report"];
    let output = run(&arguments, &[("PGPASSFILE", "/nowhere".to_owned())]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("the server wants a password"),
        "{text}"
    );
    // Ctrl-C at the question leaves.
    let terminal = as_role(&server, "asked", "", "top");
    terminal.until("Password for user asked:");
    terminal.keys(&["C-c"]);
    terminal.until("left with 130");
    // The terminal shows again what is typed.
    terminal.keys(&["is-shown"]);
    terminal.until("is-shown");
}

/// Fails unless a signal ends the program, and the terminal shows what is typed then.
fn ends(terminal: &Terminal, signal: &str, status: u32) {
    send_signal(terminal.process(), signal);
    let screen = terminal.until(&format!("left with {status}"));
    for gone in ["Statements", "? help", "panicked"] {
        assert!(!screen.contains(gone), "{screen}");
    }
    terminal.keys(&["is-shown"]);
    terminal.until("is-shown");
}

/// Whoever kills the program, or closes the terminal, leaves no terminal behind that shows nothing.
#[test]
fn signals_leave_the_terminal_as_it_was_needs_terminal() {
    let server = server("terminal-ended");
    for (signal, status) in [("TERM", 143), ("HUP", 129), ("INT", 130), ("QUIT", 131)] {
        let terminal = as_role(&server, "postgres", "", "top --interval 0.3");
        terminal.until("Statements");
        ends(&terminal, signal, status);
    }
    // Also at the question for a password, and after it.
    for (signal, status) in [("TERM", 143), ("HUP", 129)] {
        let terminal = as_role(&server, "asked", "", "top");
        terminal.until("Password for user asked:");
        ends(&terminal, signal, status);
    }
    let terminal = as_role(&server, "asked", "", "top");
    terminal.until("Password for user asked:");
    terminal.keys(&[PASSWORD, "Enter"]);
    terminal.until("Statements");
    ends(&terminal, "TERM", 143);
    server.assert_no_crash();
}

/// The time without an answer at which a connection is given up.
#[test]
fn a_server_that_never_answers_is_given_up_in_time_needs_terminal() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("its address").port().to_string();
    for (arguments, variables) in [
        (
            format!("host=127.0.0.1 port={port} dbname=x user=x connect_timeout=2"),
            "10",
        ),
        (format!("postgresql://x@127.0.0.1:{port}/x"), "2"),
        // Each host has that time.
        (format!("postgresql://x@127.0.0.1:{port},127.0.0.1:{port}/x"), "2"),
    ] {
        let begin = Instant::now();
        let variables = [("PGCONNECT_TIMEOUT", variables.to_owned())];
        let output = run(&["-d", &arguments, "top", "--once"], &variables);
        let (text, hosts) = (
            String::from_utf8_lossy(&output.stderr),
            arguments.matches("127.0.0.1").count(),
        );
        assert!(!output.status.success(), "{text}");
        let count = text.matches("127.0.0.1: no answer within 2 s").count();
        assert_eq!(count, hosts, "{text}");
        assert!(begin.elapsed() >= Duration::from_secs(2 * hosts as u64), "{text}");
    }
    // Ctrl-C leaves at once while it waits.
    while silent.set_nonblocking(true).is_ok() && silent.accept().is_ok() {}
    silent.set_nonblocking(false).expect("a listener that waits");
    let terminal = Terminal::of_command("/tmp", "", &format!("-h 127.0.0.1 -p {port} -U x -d x top"));
    let _waits: (TcpStream, _) = silent.accept().expect("a connection");
    terminal.keys(&["C-c"]);
    terminal.until("left with 130");
}

/// Processes that are stopped, until it goes.
struct Stopped(Vec<u32>);

impl Stopped {
    fn new(pids: &[u32]) -> Self {
        pids.iter().for_each(|pid| send_signal(*pid, "STOP"));
        Self(pids.to_vec())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.iter().for_each(|pid| send_signal(*pid, "CONT"));
    }
}

/// The process of the server that the screen talks with.
fn backend(server: &Server) -> u32 {
    let mut client = server.connect();
    // One that it has given up may still be there.
    let newest = "SELECT max(backend_start) FROM pg_stat_activity WHERE application_name = 'rowsource'";
    let sql = format!("SELECT pid FROM pg_stat_activity WHERE backend_start = ({newest})");
    value::<i32>(&mut client, &sql) as u32
}

/// Views change, and the help comes and goes.
fn keys_work(terminal: &Terminal) {
    terminal.keys(&["6"]);
    terminal.until("Waits that ended");
    terminal.keys(&["?"]);
    terminal.until("this help");
    terminal.keys(&["x", "1"]);
    terminal.until_it("no help", |screen| {
        !screen.contains("this help") && screen.contains("Statements")
    });
}

/// Returns when the figures of the screen were made.
fn clock(screen: &str) -> &str {
    let end = screen
        .find(" UTC ")
        .unwrap_or_else(|| panic!("no clock: {screen}"));
    &screen[end - 8..end]
}

#[test]
fn a_server_that_stops_leaves_the_screen_with_its_age_and_keys_needs_terminal() {
    let server = server("terminal-stopped");
    let folder = server.folder().display().to_string();
    let terminal = Terminal::of_command(
        &folder,
        "PGCONNECT_TIMEOUT=2",
        &format!("-h '{folder}' -U postgres -d postgres top --interval 0.3"),
    );
    terminal.until("what was added");
    // One process is stopped: the next connection has another one, and the screen goes on by itself.
    let stopped = Stopped::new(&[backend(&server)]);
    let screen = terminal.until("the server has not answered for");
    let before = clock(&screen).to_owned();
    keys_work(&terminal);
    let screen = terminal.until_it("it goes on", |screen| {
        clock(screen) != before && !screen.contains("has not answered")
    });
    assert!(!screen.contains("no connection"), "{screen}");
    drop(stopped);
    // The whole server is stopped.
    let stopped = Stopped::new(&[server.postmaster(), backend(&server)]);
    let screen = terminal.until("the server has not answered for 3 s");
    let before = clock(&screen).to_owned();
    keys_work(&terminal);
    terminal.until("no answer within 2 s");
    keys_work(&terminal);
    assert_eq!(clock(&terminal.screen()), before);
    drop(stopped);
    terminal.until_it("it goes on", |screen| {
        clock(screen) != before && !screen.contains("no answer")
    });
    // It can be left while the server is silent.
    let stopped = Stopped::new(&[server.postmaster(), backend(&server)]);
    terminal.until("the server has not answered for");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    drop(stopped);
    server.assert_no_crash();
}

/// The way there and back is no load of the server, so a plan that runs moves as fast as that way lets it.
/// The first line says how fast that is.
#[test]
fn a_server_far_away_is_asked_at_the_pace_needs_terminal() {
    let server = Server::preloaded("terminal-far", &["log_statement = 'all'"]);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let busy = Busy::run(
        server.connect(),
        "SELECT count(*) FROM pg_class a, pg_class b, pg_class c, pg_class d",
    );
    let live = |round_trip: u64| {
        let port = far_away(&server, Duration::from_millis(round_trip));
        let arguments = format!("-h 127.0.0.1 -p {port} -U postgres -d postgres live {}", busy.pid);
        let terminal = Terminal::of_command("/tmp", "PGSSLMODE=disable", &arguments);
        terminal.until("Nested Loop");
        terminal
    };
    let terminal = live(60);
    let refreshes = || server.log().matches("pg_postmaster_start_time").count();
    let (before, begin) = (refreshes(), Instant::now());
    std::thread::sleep(Duration::from_secs(10));
    let (made, seconds) = (refreshes() - before, begin.elapsed().as_secs_f64());
    // Four times the whole time made it one in 1.2 s and more.
    assert!(made as f64 >= seconds / 0.9, "{made} in {seconds:.1} s");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    let terminal = live(500);
    terminal.until_it("a pace of more than a second", |screen| {
        let pace = screen
            .split_once(" UTC  every ")
            .and_then(|(_, rest)| rest.split_once(" s "));
        pace.is_some_and(|(pace, _)| pace.parse().is_ok_and(|pace: f64| pace > 1.0))
    });
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}
