//! A throwaway server with its own data and socket. Dropping it stops and removes it.

use crate::crashes;
use crate::environment::{Environment, environment};
use crate::explain::describe;
use crate::mounts::Mounts;
use crate::own_figures;
use crate::process;
use postgres::{Client, NoTls};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Once, mpsc};
use std::time::{Duration, Instant};

/// How long a server may take to accept connections or to stop.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The number of the signal KILL.
const SIGKILL: i32 = 9;

/// Settings that make counters repeatable: no other process writes pages, WAL gets no page images by chance,
/// and neither plans nor scans depend on earlier statements. A session may time every call for minutes.
const REPEATABLE: &str = "
    listen_addresses = ''
    fsync = off
    full_page_writes = off
    autovacuum = off
    bgwriter_lru_maxpages = 0
    checkpoint_timeout = '1d'
    max_wal_size = '16GB'
    synchronize_seqscans = off
    max_connections = 40
    shared_buffers = '256MB'
    log_line_prefix = '%m [%p] '
    log_min_messages = 'warning'
    log_checkpoints = off
    timezone = 'UTC'
    max_worker_processes = 16
    max_parallel_workers = 16
    compute_query_id = on
    pg_rowsource.keep_constants = on
    pg_rowsource.max_overhead = 100
";

/// The shipped value of the setting that [`REPEATABLE`] changes so that tests see constants. Measurements use
/// this.
pub const SHIPPED: &str = "pg_rowsource.keep_constants = off";

/// A running server.
pub struct Server {
    folder: PathBuf,
    child: Option<Child>,
    settings: Vec<String>,
    /// A library that the server loads before all others (LD_PRELOAD).
    object: Option<PathBuf>,
    /// The server's program, if it is not the private tree's `postgres`.
    program: Option<PathBuf>,
    /// The command that runs the server, if it runs in another mount namespace than the test.
    inside: Vec<String>,
    /// The program that runs the server's program, with its arguments, if there is one.
    runner: Vec<String>,
}

impl Server {
    /// Starts a server that loads pg_rowsource by `shared_preload_libraries`.
    pub fn preloaded(name: &str, settings: &[&str]) -> Server {
        let mut all = vec!["shared_preload_libraries = 'pg_rowsource'"];
        all.extend(settings);
        Server::start(name, &all)
    }

    /// Starts a server with these lines in its configuration. It preloads only the libraries that they name.
    pub fn start(name: &str, settings: &[&str]) -> Server {
        let environment = environment();
        let mut server = Server::folder_for(name, settings);
        run(Command::new("cp")
            .arg("-a")
            .arg(template(environment))
            .arg(server.data()));
        server.launch();
        server
    }

    /// Starts a server with the configuration that initdb makes, as packages have it, and these lines at its
    /// end. ALTER SYSTEM changes it: [`Server::launch_as_configured`] starts it again with that.
    pub fn packaged(name: &str, configured: &str) -> Server {
        let environment = environment();
        let mut server = Server::folder_for(name, &[]);
        run(Command::new("cp")
            .arg("-a")
            .arg(template(environment))
            .arg(server.data()));
        let file = server.data().join("postgresql.conf");
        let mut lines = fs::read_to_string(&file).expect("initdb's configuration");
        lines += &format!(
            "\nlisten_addresses = ''\nunix_socket_directories = '{}'\n{configured}\n",
            server.folder.display()
        );
        fs::write(&file, lines).expect("the configuration can be written");
        server.launch_as_configured();
        server
    }

    /// Starts a server on a copy of a stopped server's data.
    pub fn copy_of(original: &Server, name: &str, settings: &[&str]) -> Server {
        assert!(
            original.child.is_none(),
            "the data of a running server cannot be copied"
        );
        let mut server = Server::folder_for(name, settings);
        run(Command::new("cp")
            .args(["-a", "--reflink=auto"])
            .arg(original.data())
            .arg(server.data()));
        server.launch();
        server
    }

    /// Starts a server with a shared object that overrides functions of libc.
    pub fn overridden(name: &str, settings: &[&str], object: &Path) -> Server {
        let mut server = Server::preloaded(name, settings);
        server.stop();
        server.object = Some(object.to_path_buf());
        server.launch();
        server
    }

    /// Makes the server run in a mount namespace from the next launch on. The namespace must outlive the
    /// server.
    pub fn run_inside(&mut self, mounts: &Mounts) {
        self.inside = mounts.enter();
    }

    /// Makes a program run the server's from the next launch on, for example one that counts instructions.
    pub fn run_by(&mut self, runner: &[&str]) {
        self.runner = runner.iter().map(|argument| argument.to_string()).collect();
    }

    /// Starts a server from another program.
    pub fn of_program(name: &str, settings: &[&str], program: &Path) -> Server {
        let mut server = Server::preloaded(name, settings);
        server.stop();
        server.program = Some(program.to_path_buf());
        server.launch();
        server
    }

    /// Starts a hot standby of a running server, with the same settings.
    pub fn standby_of(primary: &Server, name: &str) -> Server {
        let conninfo = format!(
            "primary_conninfo = 'host={} user=postgres'",
            primary.folder.display()
        );
        let mut settings: Vec<&str> = primary.settings.iter().map(String::as_str).collect();
        settings.push(&conninfo);
        let mut server = Server::folder_for(name, &settings);
        let environment = environment();
        run(environment
            .as_server(&environment.pgbin.join("pg_basebackup"))
            .args(["-U", "postgres", "-c", "fast", "-R", "-h"])
            .arg(&primary.folder)
            .arg("-D")
            .arg(server.data()));
        server.launch();
        server
    }

    /// Creates a server's folder, still empty.
    fn folder_for(name: &str, settings: &[&str]) -> Server {
        let environment = environment();
        remove_stale(environment);
        let folder = environment.servers.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the server's folder can be made");
        if environment.is_root {
            run(Command::new("chown").arg("postgres:").arg(&folder));
        }
        Server {
            folder,
            child: None,
            object: None,
            program: None,
            inside: Vec::new(),
            runner: Vec::new(),
            settings: settings.iter().map(|s| s.to_string()).collect(),
        }
    }

    /// Adds a line to the configuration, which applies from the next launch on.
    pub fn configure(&mut self, setting: &str) {
        self.settings.push(setting.to_string());
    }

    /// Returns the folder of the socket, the data and the log.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the postmaster's process id.
    pub fn postmaster(&self) -> u32 {
        self.child.as_ref().expect("a running server").id()
    }

    /// Returns the data directory.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Opens a session as the superuser. Waits for a server that is recovering from a crash.
    pub fn connect(&self) -> Client {
        let deadline = Instant::now() + Duration::from_secs(15);
        loop {
            match self.try_connect("postgres") {
                Ok(client) => return client,
                Err(error) if Instant::now() > deadline => {
                    panic!("cannot connect: {}\n{}", describe(&error), self.log_extract())
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// Opens a session at level basic, with the extension created and loaded.
    pub fn session(&self) -> Client {
        let mut client = self.connect();
        client
            .batch_execute(
                "SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS pg_rowsource;
                 LOAD 'pg_rowsource'; SET pg_rowsource.statistics_level = basic; RESET client_min_messages",
            )
            .expect("the extension can be created");
        client
    }

    /// Opens a session as `user`, or returns the error.
    pub fn try_connect(&self, user: &str) -> Result<Client, postgres::Error> {
        self.try_connect_to(user, "postgres")
    }

    /// Opens a session as `user` in another database, or returns the error.
    pub fn try_connect_to(&self, user: &str, database: &str) -> Result<Client, postgres::Error> {
        postgres::Config::new()
            .host_path(&self.folder)
            .user(user)
            .dbname(database)
            .application_name("rowsource-tests")
            .connect(NoTls)
    }

    /// Stops the server as an administrator would (`fast`), and keeps its data.
    pub fn stop(&mut self) {
        self.stopped();
    }

    /// Stops the server in the same way, and returns the postmaster's exit status; `None` if it had to be
    /// killed.
    pub fn stopped(&mut self) -> Option<ExitStatus> {
        self.stopped_by("INT")
    }

    /// Stops the server with this signal: TERM (smart), INT (fast) or QUIT (immediate). Returns what
    /// [`Server::stopped`] does.
    pub fn stopped_by(&mut self, signal: &str) -> Option<ExitStatus> {
        self.signal(signal);
        self.wait(None)
    }

    /// Kills the postmaster, as in a failure of the machine, and waits until its backends have ended.
    pub fn kill(&mut self) {
        let backends: Vec<i32> = self
            .connect()
            .query("SELECT pid FROM pg_stat_activity", &[])
            .expect("pg_stat_activity")
            .iter()
            .map(|row| row.get(0))
            .collect();
        self.signal("KILL");
        self.wait(Some(SIGKILL));
        let deadline = Instant::now() + TIMEOUT;
        let lives = |pid: &i32| Path::new("/proc").join(pid.to_string()).exists();
        while backends.iter().any(lives) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills a backend, as in a crash, and waits until the postmaster has reinitialized: until then, a client
    /// may still connect to the old state.
    pub fn crash_a_backend(&self) {
        let mut victim = self.connect();
        let pid: i32 = crate::session::value(&mut victim, "SELECT pg_backend_pid()");
        let before = self.restarts();
        self.kill_process(pid as u32);
        let deadline = Instant::now() + TIMEOUT;
        while self.restarts() == before {
            assert!(Instant::now() < deadline, "no restart:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills a process of the server. Its end does not count as a crash.
    pub fn kill_process(&self, pid: u32) {
        crashes::expect_kill(&self.folder, pid);
        process::send_signal(pid, "KILL");
    }

    /// Returns how often the log says that the postmaster has reinitialized after a crash.
    pub fn restarts(&self) -> usize {
        let log = self.log();
        log.matches("all server processes terminated; reinitializing")
            .count()
    }

    /// Starts a stopped server again, with its settings.
    pub fn launch(&mut self) {
        let mut lines = format!(
            "{REPEATABLE}\nunix_socket_directories = '{}'\n",
            self.folder.display()
        );
        for setting in &self.settings {
            lines.push_str(setting);
            lines.push('\n');
        }
        fs::write(self.data().join("postgresql.auto.conf"), lines).expect("the configuration can be written");
        self.launch_as_configured();
    }

    /// Starts a stopped server again with the configuration that it has.
    pub fn launch_as_configured(&mut self) {
        let environment = environment();
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))
            .expect("the log");
        let usual = environment.pgbin.join("postgres");
        let program = self.program.as_ref().unwrap_or(&usual);
        let mut command = match self.runner.split_first() {
            None => environment.as_server(program),
            Some((runner, arguments)) => {
                let mut command = environment.as_server(Path::new(runner));
                command.args(arguments).arg(program);
                command
            }
        };
        command.arg("-D").arg(self.data()).stdin(Stdio::null());
        if let Some((program, arguments)) = self.inside.split_first() {
            command = wrapped(program, arguments, &command);
        }
        if let Some(object) = &self.object {
            command.env("LD_PRELOAD", object);
        }
        command.stdout(log.try_clone().expect("the log")).stderr(log);
        self.child = Some(spawn_from_lasting_thread(command));
        self.wait_until_ready();
    }

    /// Fails if a signal killed a process of the server, except those that the test killed, or the log
    /// contains a PANIC.
    pub fn assert_no_crash(&self) {
        assert_none(&crashes::crashes(&self.folder), &self.log());
    }

    /// Sends a signal to the postmaster.
    pub fn signal(&self, signal: &str) {
        if let Some(child) = &self.child {
            let _ = Command::new("kill")
                .arg(format!("-{signal}"))
                .arg(child.id().to_string())
                .status();
        }
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while self.try_connect("postgres").is_err() {
            let ended = self
                .child
                .as_mut()
                .is_some_and(|child| matches!(child.try_wait(), Ok(Some(_))));
            assert!(!ended, "the server did not start:\n{}", self.log());
            assert!(
                Instant::now() < deadline,
                "the server is not ready after {TIMEOUT:?}:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the postmaster has ended, and returns its exit status. If it does not end, kills it and
    /// returns `None`. Both that and a signal other than `expected` are crashes. The log does not show them.
    fn wait(&mut self, expected: Option<i32>) -> Option<ExitStatus> {
        let mut child = self.child.take()?;
        let deadline = Instant::now() + TIMEOUT;
        let status = loop {
            match child.try_wait() {
                Ok(None) if Instant::now() > deadline => break None,
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                ended => break ended.ok().flatten(),
            }
        };
        match status {
            Some(status) if status.signal().is_none_or(|signal| Some(signal) == expected) => {}
            Some(status) => crashes::note(&self.folder, &[format!("the postmaster ended: {status}")]),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                crashes::note(
                    &self.folder,
                    &[format!("the postmaster did not end within {TIMEOUT:?}")],
                );
            }
        }
        status
    }
}

impl Server {
    /// Returns the plans in the store whose nodes' own figures do not add up. There are none if the server
    /// does not answer, or has no such views.
    fn wrong_own_figures(&mut self) -> Vec<own_figures::Figure> {
        let is_running = matches!(self.child.as_mut().map(Child::try_wait), Some(Ok(None)));
        if !is_running || std::thread::panicking() || !self.runner.is_empty() {
            return Vec::new();
        }
        let figures = self.try_connect("postgres").ok().and_then(|mut client| {
            let settings = "SET statement_timeout = '10s'; SET pg_rowsource.statistics_level = basic";
            client.batch_execute(settings).ok()?;
            own_figures::figures(&mut client).ok()
        });
        own_figures::wrong(figures.unwrap_or_default())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let wrong = self.wrong_own_figures();
        self.signal("QUIT");
        self.wait(None);
        let log = self.log();
        let crashes = crashes::record(&self.folder);
        let _ = fs::remove_dir_all(&self.folder);
        if !std::thread::panicking() {
            assert_none(&crashes, &log);
            assert!(wrong.is_empty(), "own figures do not add up: {wrong:#?}");
        } else if std::env::var_os("ROWSOURCE_SHOW_LOG").is_some() {
            eprintln!("--- server log\n{log}");
        }
    }
}

/// Fails if there are crashes. The log belongs to the message.
fn assert_none(crashes: &[String], log: &str) {
    assert!(
        crashes.is_empty(),
        "the server crashed:\n{}\n--- log\n{log}",
        crashes.join("\n")
    );
}

/// Returns the same command, run by another program.
fn wrapped(program: &str, arguments: &[String], command: &Command) -> Command {
    let mut outer = Command::new(program);
    outer
        .args(arguments)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer.stdin(Stdio::null());
    outer
}

/// Spawns from a thread that never ends. The death signal comes when the spawning thread ends, and a test's
/// thread ends before the tests that share its server do.
fn spawn_from_lasting_thread(mut command: Command) -> Child {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(command.spawn());
        loop {
            std::thread::park();
        }
    });
    receiver
        .recv()
        .expect("the spawning thread answers")
        .expect("the server can be started")
}

/// Returns the data directory that initdb creates once per version of the server; each server copies it.
fn template(environment: &Environment) -> PathBuf {
    static MADE: Once = Once::new();
    let template = environment.run.join("template");
    MADE.call_once(|| {
        let lock = fs::File::create(environment.run.join("template.lock")).expect("template.lock");
        lock.lock().expect("template.lock can be locked");
        let done = environment.run.join("template.done");
        let version = output(Command::new(environment.pgbin.join("postgres")).arg("--version"));
        if fs::read_to_string(&done).is_ok_and(|made| made == version) {
            return;
        }
        let _ = fs::remove_file(&done);
        let _ = fs::remove_dir_all(&template);
        let mut initdb = environment.as_server(&environment.pgbin.join("initdb"));
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        output(initdb.args(["--username=postgres", "-D"]).arg(&template));
        fs::write(&done, version).expect("template.done can be written");
    });
    template
}

/// Removes folders of servers whose test process has ended, and stops the servers that still run.
fn remove_stale(environment: &Environment) {
    let Ok(entries) = fs::read_dir(&environment.servers) else {
        return;
    };
    for folder in entries.flatten().map(|entry| entry.path()) {
        let owner = folder
            .to_string_lossy()
            .rsplit('-')
            .next()
            .map(|pid| PathBuf::from("/proc").join(pid));
        if owner.is_some_and(|process| process.exists()) {
            continue;
        }
        crashes::record(&folder);
        if let Ok(pid) = fs::read_to_string(folder.join("data/postmaster.pid")) {
            end_stale_postmaster(pid.lines().next().unwrap_or_default(), &folder);
        }
        let _ = fs::remove_dir_all(&folder);
    }
}

/// Stops the postmaster `pid` if it belongs to this folder, because the system reuses process ids.
fn end_stale_postmaster(pid: &str, folder: &Path) {
    let command_line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if !String::from_utf8_lossy(&command_line).contains(&*folder.to_string_lossy()) {
        return;
    }
    let _ = Command::new("kill").args(["-QUIT", pid]).status();
    let deadline = Instant::now() + TIMEOUT;
    while Path::new("/proc").join(pid).exists() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn run(command: &mut Command) {
    output(command);
}

/// Returns the output of a command. Fails unless it succeeds.
fn output(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}
