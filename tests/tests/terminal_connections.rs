//! The program `rowsource` with other servers than an ordinary one: behind a pooler, with TLS, on
//! a standby, without the extension, as a role that may see little, while the server restarts, and in a
//! terminal whose size changes while somebody types at random.

use postgres::{Client, NoTls, SimpleQueryMessage};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::documents::checkout;
use rowsource_tests::environment::environment;
use rowsource_tests::session::run_each;
use rowsource_tests::terminal::{
    Terminal, VIEWS, certificates, declared_keys, has_negative, openssl, run, signed_by_itself,
};
use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Prints each view of a server once, as a role.
fn each_view(server: &Server, user: &str) -> Vec<String> {
    let folder = server.folder().display().to_string();
    VIEWS
        .iter()
        .map(|view| {
            let arguments = [
                "-h",
                &folder,
                "-U",
                user,
                "-d",
                "postgres",
                "top",
                "--once",
                "--interval",
                "0.2",
                "--view",
                view,
            ];
            let output = run(&arguments, &[]);
            assert!(output.status.success(), "{view}: {output:?}");
            text(&output)
        })
        .collect()
}

/// PgBouncer before a server: transactions share its connections, and clients have a password.
struct Pooler(Child, u16);

impl Pooler {
    /// Starts it with more settings. What it needs lies in a folder, whose name stands for `@` there.
    fn before(server: &Server, folder: &Path, settings: &str) -> Pooler {
        let port = TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("its address")
            .port();
        fs::write(folder.join("users"), "\"postgres\" \"secret\"\n").expect("a file");
        let at = folder.display();
        let settings = settings.replace('@', &at.to_string());
        let configuration = format!(
            "[databases]\n* = host={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = plain\nauth_file = {at}/users\npool_mode = transaction\nlogfile = {at}/log\n{settings}\n",
            server.folder().display()
        );
        fs::write(folder.join("ini"), configuration).expect("a file");
        if environment().is_root {
            let status = Command::new("chown")
                .args(["-R", "postgres:"])
                .arg(folder)
                .status();
            assert!(status.expect("chown runs").success());
        }
        let mut command = environment().as_server(Path::new("/usr/sbin/pgbouncer"));
        let child = command
            .arg("-q")
            .arg(folder.join("ini"))
            .spawn()
            .expect("pgbouncer runs");
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(20), "no pgbouncer");
            sleep(Duration::from_millis(20));
        }
        Pooler(child, port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Writes a password file and a service file, and returns the variables that name them.
fn service(folder: &Path, port: u16, authority: &str) -> [(&'static str, String); 3] {
    let passwords = folder.join("passwords");
    fs::write(
        &passwords,
        format!("localhost:{port}:*:postgres:secret\n127.0.0.1:{port}:*:*:secret\n"),
    )
    .expect("a file");
    fs::set_permissions(&passwords, fs::Permissions::from_mode(0o600)).expect("permissions");
    let services = folder.join("services");
    fs::write(&services, format!("[shop]\nhost=localhost\nport={port}\nuser=postgres\ndbname=postgres\nsslmode=verify-full\nsslrootcert={authority}\n"))
        .expect("a file");
    [
        ("PGPASSFILE", passwords.display().to_string()),
        ("PGSERVICE", "shop".to_owned()),
        ("PGSERVICEFILE", services.display().to_string()),
    ]
}

/// Gives a file to the user that runs the server.
fn owned_by_server(file: &Path) {
    if environment().is_root {
        let status = Command::new("chown").arg("postgres:").arg(file).status();
        assert!(status.expect("chown runs").success());
    }
}

/// PostgreSQL's manual makes such a certificate, and psql trusts it.
#[test]
fn a_certificate_that_signs_itself_is_trusted_needs_program() {
    // Other servers may have the same port.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{b}.{c}", a.saturating_add(1));
    let listens = format!("listen_addresses = '{address}'");
    let mut server = Server::preloaded("terminal-self-signed", &[&listens]);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server.stop();
    let data = server.data();
    let other = signed_by_itself(&data, "other", "");
    fs::write(
        data.join("pg_hba.conf"),
        "local all all trust\nhostssl all all all trust\n",
    )
    .expect("the rules");
    server.configure("ssl = on");
    // The manual's has no other name than the common one. An authority may have signed itself, or nobody.
    for (name, more) in [
        ("manual", ""),
        ("named", " -addext subjectAltName=DNS:localhost"),
        (
            "leaf",
            " -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE",
        ),
    ] {
        let own = signed_by_itself(&data, name, more);
        owned_by_server(&data.join(format!("{name}.key")));
        server.configure(&format!("ssl_cert_file = '{name}.crt'"));
        server.configure(&format!("ssl_key_file = '{name}.key'"));
        server.launch();
        for (host, mode, authority, passes) in [
            ("localhost", "verify-full", &own, true),
            ("elsewhere", "verify-full", &own, false),
            ("elsewhere", "verify-ca", &own, true),
            ("localhost", "verify-full", &other, false),
            ("localhost", "verify-ca", &other, false),
        ] {
            let options = format!(
                "host={host} hostaddr={address} user=postgres dbname=postgres sslmode={mode} sslrootcert={authority}"
            );
            let output = run(&["-d", &options, "top", "--once", "--interval", "0.2"], &[]);
            assert_eq!(output.status.success(), passes, "{name}: {options}: {output:?}");
            let says = if passes {
                "rowsource  PostgreSQL"
            } else {
                "certificate"
            };
            assert!(text(&output).contains(says), "{name}: {options}: {output:?}");
        }
        server.stop();
    }
}

/// A certificate of version 1 has no extensions. rustls verifies no signature with it, so there is no TLS. As
/// with psql, `prefer` does without then.
#[test]
fn a_failed_handshake_is_no_end_with_sslmode_prefer_needs_program() {
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{b}.{c}", a.saturating_add(2));
    let listens = format!("listen_addresses = '{address}'");
    let mut server = Server::preloaded("terminal-version-1", &[&listens]);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    server.stop();
    let data = server.data();
    openssl(
        &data,
        "req -newkey rsa:2048 -nodes -keyout one.key -out one.csr -subj /CN=localhost",
    );
    openssl(
        &data,
        "x509 -req -in one.csr -signkey one.key -out one.crt -days 2",
    );
    owned_by_server(&data.join("one.key"));
    fs::write(
        data.join("pg_hba.conf"),
        "local all all trust\nhost all all all trust\n",
    )
    .expect("the rules");
    for setting in [
        "ssl = on",
        "ssl_cert_file = 'one.crt'",
        "ssl_key_file = 'one.key'",
    ] {
        server.configure(setting);
    }
    server.launch();
    // OpenSSL makes one of version 3 from 3.2 on: then there is TLS.
    for mode in ["prefer", "allow"] {
        let options = format!("host={address} user=postgres dbname=postgres sslmode={mode}");
        let output = run(&["-d", &options, "--once", "--interval", "0.2"], &[]);
        assert!(output.status.success(), "{mode}: {output:?}");
    }
}

#[test]
fn a_pooler_of_transactions_and_tls_are_as_psql_has_them_needs_pgbouncer() {
    let server = Server::preloaded("terminal-pooler", &[]);
    run_each(&mut server.connect(), "CREATE EXTENSION pg_rowsource");
    let folder = server.folder().join("pooler");
    fs::create_dir(&folder).expect("a folder");
    let authority = certificates(&folder);
    let settings = "default_pool_size = 1\nclient_tls_sslmode = require\nclient_tls_key_file = @/it.key\nclient_tls_cert_file = @/it.crt";
    let pooler = Pooler::before(&server, &folder, settings);
    let port = pooler.1;
    let service = service(&folder, port, &authority);
    let file = &service[..1];
    for view in VIEWS {
        // One refresh after the other comes through the one connection that all clients share.
        let output = run(&["top", "--once", "--interval", "0.2", "--view", view], &service);
        assert!(
            output.status.success() && text(&output).starts_with("rowsource  PostgreSQL"),
            "{view}: {output:?}"
        );
    }
    let report = run(&["report", "5 min"], &service);
    assert!(text(&report).contains("What is wrong"), "{report:?}");
    let uri = |host: &str, more: &str| format!("postgresql://postgres@{host}:{port}/postgres?{more}");
    let verified = uri(
        "localhost",
        &format!("sslmode=verify-full&sslrootcert={authority}"),
    );
    let other = uri(
        "127.0.0.1",
        &format!("sslmode=verify-full&sslrootcert={authority}"),
    );
    let any = uri("127.0.0.1", "sslmode=require");
    let ca = uri("127.0.0.1", &format!("sslmode=verify-ca&sslrootcert={authority}"));
    let unknown = uri(
        "localhost",
        "sslmode=verify-full&sslrootcert=/etc/ssl/certs/ca-certificates.crt",
    );
    let without = uri("localhost", "sslmode=disable");
    for (uri, passes, says) in [
        (&verified, true, "rowsource  PostgreSQL"),
        (&any, true, "rowsource  PostgreSQL"),
        (&ca, true, "rowsource  PostgreSQL"),
        (&other, false, "certificate"),
        (&unknown, false, "certificate"),
        (&without, false, "SSL required"),
    ] {
        let output = run(&["-d", uri, "top", "--once", "--interval", "0.2"], file);
        assert_eq!(output.status.success(), passes, "{uri}: {output:?}");
        assert!(text(&output).contains(says), "{uri}: {output:?}");
    }
    // Without the file nobody knows the password, and there is nobody to ask.
    let output = run(
        &["-w", "-d", &verified, "top", "--once"],
        &[("PGPASSFILE", "/nowhere".to_owned())],
    );
    assert!(
        text(&output).contains("the server wants a password"),
        "{output:?}"
    );
}

/// Connects to a pooler, and begins a transaction, in which nobody else has its session.
fn begin(pooler: &Pooler) -> (Client, i32) {
    let address = format!("host=127.0.0.1 port={} user=postgres password=secret", pooler.1);
    let mut client = Client::connect(&address, NoTls).expect("a connection");
    client.batch_execute("BEGIN").expect("a transaction");
    // In one message: a prepared statement would be another session's by its next one.
    let answer = client.simple_query("SELECT pg_backend_pid()").expect("a row");
    let row = answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let pid = row.expect("a process").parse().expect("its number");
    (client, pid)
}

/// Three sessions that are asked in turn: each question comes from another one than the question before.
fn in_turn(name: &str) -> (Server, Pooler, Vec<i32>) {
    let server = Server::preloaded(name, &[]);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; CREATE TABLE held (id int)",
    );
    let folder = server.folder().join("pooler");
    fs::create_dir(&folder).expect("a folder");
    let pooler = Pooler::before(&server, &folder, "default_pool_size = 3\nserver_round_robin = 1");
    let clients: Vec<_> = (0..3).map(|_| begin(&pooler)).collect();
    let pids = clients.into_iter().map(|(mut client, pid)| {
        client.batch_execute("COMMIT").expect("it is over");
        pid
    });
    let pids = pids.collect();
    (server, pooler, pids)
}

/// Runs the program behind a pooler.
fn behind(pooler: &Pooler, server: &Server, arguments: &str) -> Terminal {
    let folder = server.folder().display().to_string();
    let to = format!("-h 127.0.0.1 -p {} -U postgres -d postgres", pooler.1);
    Terminal::of_command(&folder, "PGPASSWORD=secret", &format!("{to} {arguments}"))
}

/// All views, and a page, which another connection asks for. None has the program's own questions, whichever
/// session asks.
#[test]
fn a_screen_behind_a_pooler_leaves_out_its_own_questions_needs_pgbouncer() {
    let (server, pooler, _) = in_turn("terminal-pooled");
    let mut observer = server.connect();
    let other = Busy::run(server.connect(), "SELECT count(*) FROM pg_class, pg_sleep(1000)").pid;
    let terminal = behind(&pooler, &server, "top --interval 0.2");
    for (key, has) in [
        ("3", other.to_string()),
        ("9", other.to_string()),
        ("1", "FROM held".to_owned()),
        ("2", "Seq Scan | held".to_owned()),
        ("6", "Client".to_owned()),
    ] {
        terminal.keys(&[key]);
        let mut refreshes = BTreeSet::new();
        terminal.until_it(&format!("three refreshes with {has}"), |screen| {
            run_each(&mut observer, "SELECT count(*) FROM held");
            let is_own = screen.contains("SET LOCAL") || screen.contains("/* rowsource */");
            assert!(!is_own && !screen.contains("not refreshed"), "{screen}");
            let clock = screen.split(" UTC").next().unwrap_or_default();
            refreshes.extend(screen.contains(&has).then(|| clock.to_owned()));
            refreshes.len() == 3
        });
    }
    terminal.keys(&["w"]);
    terminal.until("written to rowsource-report.html");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    server.assert_no_crash();
}

/// A session that the pooler gives to the program is no target of a signal meanwhile, and shows no plan of
/// the program. One that an application has is a target.
#[test]
fn signals_behind_a_pooler_are_for_others_needs_pgbouncer() {
    let (server, pooler, pids) = in_turn("terminal-pooled-signals");
    let shared = pids[0];
    let terminal = behind(&pooler, &server, &format!("live {shared} --interval 0.2"));
    let own = format!("process {shared} works for rowsource now, behind a pooler");
    let title = format!("Plan that process {shared} runs");
    let screen = terminal.until(&own);
    assert!(screen.contains(&title), "{screen}");
    let question = format!("terminate the session of process {shared}?");
    // Another session may answer.
    let is_refused = (0..50).any(|_| {
        terminal.keys(&["T"]);
        let refused = format!("nothing was sent: {own}");
        let screen = terminal.until_it("an answer", |screen| {
            screen.contains(&question) || screen.contains(&refused)
        });
        terminal.keys(&["n"]);
        terminal.until_it("no question", |screen| !screen.contains(&question));
        screen.contains(&refused)
    });
    assert!(is_refused, "{}", terminal.screen());
    terminal.keys(&["q"]);
    terminal.until("left with 0");
    let (mut client, pid) = begin(&pooler);
    let sleeps = std::thread::spawn(move || {
        let is_cancelled = client.batch_execute("SELECT pg_sleep(1000)").is_err();
        // A session that is left in a transaction would be closed.
        client.batch_execute("ROLLBACK").expect("it is over");
        is_cancelled
    });
    let terminal = behind(&pooler, &server, "top --interval 0.2 --view sessions");
    terminal.until("pg_sleep(1000)");
    terminal.keys(&["/", &pid.to_string(), "Enter"]);
    terminal.until(&format!("filter: {pid}"));
    terminal.keys(&["C"]);
    terminal.until(&format!("cancel the statement of process {pid}?"));
    terminal.keys(&["y"]);
    terminal.until(&format!("sent to process {pid}"));
    assert!(sleeps.join().expect("the session"));
    // Nobody was terminated. The pooler itself closes a session whose client leaves while it works.
    assert!(!server.log().contains("due to administrator command"));
    server.assert_no_crash();
}

#[test]
fn a_standby_and_a_server_without_the_extension_have_all_views_needs_program() {
    let primary = Server::preloaded("terminal-primary", &[]);
    run_each(&mut primary.connect(), "CREATE EXTENSION pg_rowsource");
    let standby = Server::standby_of(&primary, "terminal-standby");
    let begin = Instant::now();
    while standby
        .connect()
        .query_one("SELECT rowsource_info()", &[])
        .is_err()
    {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "the extension does not arrive"
        );
        sleep(Duration::from_millis(50));
    }
    run_each(
        &mut standby.connect(),
        "SELECT count(*) FROM pg_class WHERE relname > 'a'",
    );
    let views = each_view(&standby, "postgres");
    // The folder has the word in its name.
    let is_standby = |view: &String| view.starts_with("rowsource  standby ");
    assert!(views.iter().all(is_standby), "{views:#?}");
    assert!(
        views.iter().all(|view| !view.contains("not refreshed")),
        "{views:#?}"
    );

    let plain = Server::start("terminal-plain", &[]);
    let views = each_view(&plain, "postgres");
    assert!(views[0].contains("shared_preload_libraries"), "{}", views[0]);
    assert!(views[8].contains("Sessions that are not idle"), "{}", views[8]);
}

/// What others run stays hidden, which the screen says once.
#[test]
fn who_may_see_little_sees_that_needs_program() {
    let server = Server::preloaded("terminal-role", &[]);
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; CREATE ROLE little LOGIN; CREATE TABLE secrets AS SELECT i FROM generate_series(1, 100) i;
         SELECT count(*) FROM secrets",
    );
    let views = each_view(&server, "little");
    assert!(views.iter().all(|view| !view.contains("secrets")), "{views:#?}");
    let says = "pg_read_all_stats";
    assert!(
        views.iter().all(|view| view.matches(says).count() == 1),
        "{views:#?}"
    );
}

#[test]
fn a_restart_is_said_and_survived_needs_terminal() {
    let mut server = Server::preloaded("terminal-restart", &[]);
    run_each(
        &mut server.connect(),
        "CREATE EXTENSION pg_rowsource; SELECT count(*) FROM pg_class",
    );
    let terminal = Terminal::of(&server, &["top", "--interval", "0.3"]);
    terminal.until("Statements");
    server.stop();
    terminal.until("connect");
    server.launch();
    let screen = terminal.until("the server was restarted");
    assert!(!has_negative(&screen), "{screen}");
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}

const READS: [&str; 4] = ["top", "--read-only", "--interval", "0.2"];

/// Types at random, and changes the size of the terminal, for so many seconds.
fn storm(name: &str, arguments: &[&str], seconds: u64) {
    // All keys that mean something but those that leave, and some that mean nothing.
    let leaving = ["q", "C-c"];
    let mut names: Vec<String> = declared_keys().into_iter().map(|(name, _)| name).collect();
    names.retain(|name| !leaving.contains(&name.as_str()));
    names.extend(["0", "F5", "Tab", "ä", "日", "C-z", "M-x"].map(str::to_owned));
    let server = Server::preloaded(name, &[]);
    let mut client = server.connect();
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    // Sessions that may be cancelled and terminated, and a plan that runs.
    let busy: Vec<i32> = (0..3)
        .map(|_| {
            let sql = "SELECT count(*) FROM pg_class a, pg_class b, pg_class c, pg_class d";
            Busy::run(server.connect(), sql).pid
        })
        .collect();
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| argument.replace("PID", &busy[0].to_string()))
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let terminal = Terminal::of(&server, &arguments);
    terminal.until("rowsource  ");
    let mut random = StdRng::seed_from_u64(46);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(seconds) {
        let keys: Vec<&str> = (0..random.random_range(1..12))
            .map(|_| names[random.random_range(0..names.len())].as_str())
            .collect();
        terminal.keys(&keys);
        if random.random_bool(0.3) {
            terminal.resize(random.random_range(1..240), random.random_range(1..70));
        }
        // A signal may have ended its session.
        drop(client.batch_execute("SELECT count(*) FROM pg_class WHERE relname > 'm'"));
        let screen = terminal.screen();
        assert!(
            !screen.contains("left with") && !screen.contains("panicked"),
            "{keys:?}: {screen}"
        );
    }
    terminal.resize(120, 40);
    // Out of a filter and of the help, and up.
    terminal.keys(&["Escape", "Escape", "Escape", "Escape"]);
    sleep(Duration::from_millis(500));
    terminal.keys(&["q"]);
    terminal.until("left with 0");
}

#[test]
fn garbage_keys_and_resizes_do_no_harm_needs_terminal() {
    storm("terminal-storm", &READS, 5);
}

/// With signals, which end sessions of this test; a running plan; and a replay.
#[test]
fn garbage_keys_with_signals_do_no_harm_needs_terminal() {
    storm("terminal-signal-storm", &["top", "--interval", "0.2"], 8);
}

#[test]
fn garbage_keys_in_a_running_plan_do_no_harm_needs_terminal() {
    storm("terminal-live-storm", &["live", "PID", "--interval", "0.2"], 5);
}

#[test]
fn garbage_keys_in_a_replay_do_no_harm_needs_terminal() {
    let recording = checkout().join("cli/src/tests/recording.jsonl");
    let recording = format!("'{}'", recording.display());
    storm("terminal-replay-storm", &["top", "--replay", &recording], 5);
}

#[test]
fn ten_minutes_of_garbage_in_a_terminal_do_no_harm_long() {
    storm("terminal-storms", &READS, 600);
}
