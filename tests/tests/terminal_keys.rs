//! Each key and each view of the program, typed into a real terminal against a server under load. The program
//! lists its keys: a key without a case here fails.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::busy::Busy;
use rowsource_tests::session::{run_each, value};
use rowsource_tests::terminal::{Terminal, VIEWS, declared_keys};
use rowsource_tests::waiting::{until, until_waiting};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

const BEFORE: &str = "SELECT count(note) FROM orders WHERE customer = 42";

/// What lies on the screen of each view.
const TITLES: [&str; 9] = [
    "Statements: ",
    "Nodes of the statements",
    "Live: measured statements",
    "Activity of the last minute",
    "Findings: statements that became slower",
    "Waits that ended",
    "Temporary files that are there",
    "Locks: below each session",
    "Sessions that are not idle",
];

/// A server where everything happens that a view can show.
struct Stage {
    server: Server,
    observer: Client,
    /// Holds the lock that the next one waits for.
    blocker: i32,
    blocked: i32,
    /// Has a temporary file.
    sorter: i32,
    /// Runs a statement for hours.
    long: i32,
    _sessions: Vec<Client>,
}

fn stage(name: &str) -> Stage {
    let server = Server::preloaded(name, &["max_parallel_workers_per_gather = 0", "jit = off"]);
    let mut observer = server.connect();
    run_each(
        &mut observer,
        "CREATE EXTENSION pg_rowsource; CREATE TABLE items AS SELECT i AS id FROM generate_series(1, 100000) i;
         CREATE TABLE orders AS SELECT i AS id, i % 5000 AS customer, repeat('x', 50) AS note FROM generate_series(1, 60000) i;
         CREATE INDEX orders_customer_idx ON orders (customer); CREATE TABLE held (id int); VACUUM (FREEZE, ANALYZE)",
    );
    // A regression.
    (0..20).for_each(|_| run_each(&mut observer, BEFORE));
    run_each(
        &mut observer,
        "SELECT rowsource_judge(now()); DROP INDEX orders_customer_idx",
    );
    (0..20).for_each(|_| run_each(&mut observer, BEFORE));
    run_each(&mut observer, "SELECT rowsource_judge(now() + interval '1 min')");
    let session = |sql: &str| {
        let mut client = server.connect();
        let pid: i32 = value(&mut client, "SELECT pg_backend_pid()");
        run_each(&mut client, sql);
        (client, pid)
    };
    let (holding, blocker) = session("BEGIN; LOCK TABLE held");
    let (sorting, sorter) = session(
        "SET work_mem = '64kB'; BEGIN;
         DECLARE c CURSOR FOR SELECT i, repeat('x', 50) FROM generate_series(1, 50000) i ORDER BY 2, 1 DESC; FETCH 1 FROM c",
    );
    let blocked = Busy::run(server.connect(), "SELECT count(*) FROM held").pid;
    until_waiting(&mut observer, blocked, "relation");
    let long = long_statement(&server, &mut observer);
    Stage {
        server,
        observer,
        blocker,
        blocked,
        sorter,
        long,
        _sessions: vec![holding, sorting],
    }
}

/// Runs a statement that takes hours, and returns its process.
fn long_statement(server: &Server, observer: &mut Client) -> i32 {
    let sql = "SELECT count(*) FROM items a, items b WHERE a.id % 7 > b.id % 11";
    let pid = Busy::run(server.connect(), sql).pid;
    let runs = format!("SELECT count(*) > 0 FROM rowsource_progress WHERE pid = {pid}");
    until(observer, &runs);
    pid
}

/// Runs statements until this is true.
fn load(mut client: Client, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        run_each(&mut client, "SELECT count(*) FROM items WHERE id % 3 = 0");
        run_each(&mut client, BEFORE);
    }
}

impl Stage {
    /// Opens the program with a view, and waits for what the view must have.
    fn view(&self, number: usize, text: &str) -> Terminal {
        let terminal = Terminal::of(
            &self.server,
            &["top", "--interval", "0.5", "--view", VIEWS[number - 1]],
        );
        terminal.until(TITLES[number - 1]);
        terminal.until(text);
        terminal
    }

    /// Opens the locks: first who holds one, then who waits for it.
    fn locks(&self) -> Terminal {
        self.view(8, &self.blocked.to_string())
    }

    /// Opens the plan of the statement that reads `items`. The list is paused, so that its row stays.
    fn plan(&self) -> Terminal {
        let terminal = self.view(1, "FROM items");
        terminal.keys(&["/", "from items", "Enter"]);
        terminal.until("filter: from items");
        loop {
            terminal.until("SELECT count(*) FROM items");
            terminal.keys(&["Space"]);
            if terminal.until("PAUSED").contains("SELECT count(*) FROM items") {
                break;
            }
            terminal.keys(&["Space"]);
        }
        terminal.keys(&["Enter"]);
        let screen = terminal.until("Seq Scan | items");
        assert!(
            screen.contains("Aggregate") && screen.contains("Plan "),
            "{screen}"
        );
        terminal
    }

    /// Fails unless Enter acts on the selected row of the locks, which is the first or the last.
    fn enter_leads_to(&self, terminal: &Terminal, is_last: bool) {
        terminal.keys(&["Enter"]);
        terminal.until(&if is_last {
            format!("Process {} waits for", self.blocked)
        } else {
            format!("Plan that process {} runs", self.blocker)
        });
        // Who blocks is idle: its last statement is shown, however it is reached.
        terminal.until("LOCK TABLE held");
    }
}

fn view_by_its_number(stage: &mut Stage, key: &str) {
    let number: usize = key.parse().expect("a number");
    let pids = [stage.long, stage.sorter, stage.blocked].map(|pid| pid.to_string());
    let has = [
        "FROM items",
        "Seq Scan | items",
        &pids[0],
        "CPU",
        "orders_customer_idx",
        "Client",
        &pids[1],
        "LOCK TABLE held",
        &pids[2],
    ];
    let terminal = stage.view(number % 9 + 1, "");
    terminal.keys(&[key]);
    terminal.until(TITLES[number - 1]);
    let screen = terminal.until(has[number - 1]);
    assert!(!screen.contains("not refreshed"), "{screen}");
}

fn to_the_last_row(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&[key]);
    stage.enter_leads_to(&terminal, true);
}

fn to_the_first_row(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&["Down", key]);
    stage.enter_leads_to(&terminal, false);
}

fn down(stage: &mut Stage, key: &str) {
    let terminal = stage.plan();
    terminal.keys(&[key]);
    // The node that takes the most time is selected.
    let screen = terminal.until("of plan");
    assert!(screen.contains("Seq Scan"), "{screen}");
}

fn up(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&["b"]);
    terminal.until("waits for no other session");
    terminal.keys(&[key]);
    terminal.until(TITLES[7]);
}

fn filter(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&[key, "COUNT"]);
    terminal.until("/COUNT_");
    terminal.keys(&["Enter"]);
    let screen = terminal.until("filter: COUNT");
    assert!(
        screen.contains("FROM held") && !screen.contains("LOCK TABLE"),
        "{screen}"
    );
    terminal.keys(&["Escape"]);
    terminal.until("LOCK TABLE held");
}

fn command(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&[key]);
    terminal.until(":_  statements nodes");
    terminal.keys(&["wai", "Tab"]);
    terminal.until(":waits_");
    terminal.keys(&["Enter"]);
    terminal.until(TITLES[5]);
    terminal.keys(&[key, "nothing", "Enter"]);
    terminal.until("there is no view nothing");
}

fn sort(stage: &mut Stage, key: &str) {
    let terminal = stage.view(6, "Client");
    let (first, second) = if key == ">" {
        ("waits", "mean")
    } else {
        ("processes", "event")
    };
    terminal.keys(&[key]);
    terminal.until(&format!("sorted by {first}"));
    terminal.keys(&[key]);
    terminal.until(&format!("sorted by {second}"));
}

/// Returns the server's clock, which the first line shows.
fn clock(terminal: &Terminal) -> String {
    let screen = terminal.until(" UTC ");
    let end = screen.find(" UTC ").expect("a clock");
    screen[..end].to_owned()
}

/// Pauses, and returns the clock of the screen, which stands still now.
fn pause(terminal: &Terminal) -> String {
    terminal.keys(&["Space"]);
    terminal.until("PAUSED");
    // A refresh may have been under way, of several questions that take half a second each at most.
    let mut before = clock(terminal);
    let stands_still = (0..20).any(|_| {
        sleep(Duration::from_millis(1_500));
        clock(terminal) == std::mem::replace(&mut before, clock(terminal))
    });
    assert!(stands_still, "{before}");
    before
}

fn pauses(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    let before = pause(&terminal);
    terminal.keys(&[key]);
    terminal.until_it("the clock goes on", |screen| !screen.starts_with(&before));
}

fn refresh(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    let before = pause(&terminal);
    terminal.keys(&[key]);
    terminal.until_it("one refresh", |screen| !screen.starts_with(&before));
    // Another view has its rows, although the screen is paused.
    terminal.keys(&["9"]);
    terminal.until(&stage.blocked.to_string());
}

fn interval(stage: &mut Stage, key: &str) {
    let terminal = stage.view(1, "every 0.5 s");
    let keys: &[&str] = if key == "+" { &["+"] } else { &["+", "+", "-"] };
    terminal.keys(keys);
    terminal.until("every 1.0 s  ");
}

fn explain(stage: &mut Stage, key: &str) {
    let terminal = stage.plan();
    terminal.keys(&[key]);
    terminal.until("Filter: ");
}

fn flame(stage: &mut Stage, key: &str) {
    let terminal = stage.plan();
    terminal.keys(&[key]);
    terminal.until("# the node itself");
    terminal.until("###");
}

fn compare(stage: &mut Stage, key: &str) {
    let terminal = stage.plan();
    terminal.keys(&[key]);
    terminal.until("marked: ");
    terminal.keys(&[key]);
    terminal.until("its mean and its slowest execution");
    terminal.until_it("a comparison", |screen| {
        !screen.contains("works on it") && screen.contains("Seq Scan")
    });
}

/// From a blocked session to its blocker's statement: one key, from each view that has the session.
fn blocker(stage: &mut Stage, key: &str) {
    for (view, select) in [(8, key), (8, "Enter"), (9, key)] {
        let blocked = stage.blocked.to_string();
        let terminal = stage.view(view, &blocked);
        terminal.keys(&["/", &blocked, "Enter"]);
        terminal.until(&format!("filter: {blocked}"));
        terminal.keys(&[select]);
        terminal.until(&format!("Process {blocked} waits for"));
        let screen = terminal.until("LOCK TABLE held");
        assert!(screen.contains(&format!("process {}", stage.blocker)), "{screen}");
        assert!(screen.contains("idle in transaction"), "{screen}");
    }
}

fn page(stage: &mut Stage, key: &str) {
    let terminal = stage.view(6, "Client");
    terminal.keys(&[key]);
    terminal.until("written to rowsource-report.html");
    let file = stage.server.folder().join("rowsource-report.html");
    let page = std::fs::read_to_string(file).expect("the page");
    assert!(page.contains("</html>"), "{page}");
}

fn copy(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&[key]);
    terminal.until("copied");
    assert_eq!(terminal.clipboard(), "LOCK TABLE held");
}

/// Selects the row of a process, refuses once to send what a key asks for, and sends it.
fn signal(terminal: &Terminal, pid: i32, key: &str, asks: &str) {
    let pid = pid.to_string();
    terminal.keys(&["/", &pid, "Enter"]);
    terminal.until(&format!("filter: {pid}"));
    terminal.keys(&[key]);
    terminal.until(&format!("{asks} of process {pid}?"));
    terminal.keys(&["n"]);
    terminal.until("nothing was sent");
    terminal.keys(&[key]);
    terminal.until(&format!("{asks} of process {pid}?"));
    terminal.keys(&["y"]);
    terminal.until_it("it is sent", |screen| {
        screen.contains(&format!("sent to process {pid}")) && !screen.contains("nothing was sent")
    });
}

fn cancel(stage: &mut Stage, key: &str) {
    let terminal = stage.view(3, &stage.long.to_string());
    signal(&terminal, stage.long, key, "cancel the statement");
    let is_over = format!(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND pid = {}",
        stage.long
    );
    until(&mut stage.observer, &is_over);
    stage.long = long_statement(&stage.server, &mut stage.observer);
}

fn terminate(stage: &mut Stage, key: &str) {
    let terminal = stage.view(9, &stage.long.to_string());
    signal(&terminal, stage.long, key, "terminate the session");
    let is_gone = format!(
        "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = {}",
        stage.long
    );
    until(&mut stage.observer, &is_gone);
    stage.long = long_statement(&stage.server, &mut stage.observer);
}

fn help(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&[key]);
    let screen = terminal.until("this help");
    for (name, does) in declared_keys() {
        assert!(screen.contains(&does), "{name}: {does}\n{screen}");
    }
    terminal.keys(&["x"]);
    terminal.until_it("the help is gone", |screen| !screen.contains("this help"));
}

fn leave(stage: &mut Stage, key: &str) {
    let terminal = stage.locks();
    terminal.keys(&[key]);
    terminal.until("left with 0");
}

type Case = fn(&mut Stage, &str);

/// Each key.
const CASES: &[(&[&str], Case)] = &[
    (&["1", "2", "3", "4", "5", "6", "7", "8", "9"], view_by_its_number),
    (&["Down", "j", "NPage", "End", "G"], to_the_last_row),
    (&["Up", "k", "PPage", "Home", "g"], to_the_first_row),
    (&["Enter", "Right"], down),
    (&["Escape", "Left", "BSpace"], up),
    (&["/"], filter),
    (&[":"], command),
    (&["<", ">"], sort),
    (&["Space"], pauses),
    (&["+", "-"], interval),
    (&["r", "C-l"], refresh),
    (&["e"], explain),
    (&["f"], flame),
    (&["c"], compare),
    (&["b"], blocker),
    (&["w"], page),
    (&["y"], copy),
    (&["C"], cancel),
    (&["T"], terminate),
    (&["?", "F1"], help),
    (&["q", "C-c"], leave),
];

#[test]
fn each_key_and_view_has_a_case_needs_program() {
    let declared: BTreeSet<String> = declared_keys().into_iter().map(|(name, _)| name).collect();
    let cases: BTreeSet<String> = CASES
        .iter()
        .flat_map(|(keys, _)| keys.iter().map(|key| key.to_string()))
        .collect();
    assert_eq!(declared, cases);
    let views = declared_keys().into_iter().take(9).map(|(_, does)| does);
    assert_eq!(views.collect::<Vec<_>>(), VIEWS);
}

/// Runs cases while the server is under load.
fn play(name: &str, is_chosen: fn(&str) -> bool) {
    let mut stage = stage(name);
    let is_over = AtomicBool::new(false);
    let client = stage.server.connect();
    std::thread::scope(|scope| {
        scope.spawn(|| load(client, &is_over));
        let cases = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (keys, case) in CASES {
                for key in keys.iter().filter(|key| is_chosen(key)) {
                    println!("{key}");
                    case(&mut stage, key);
                }
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = cases {
            std::panic::resume_unwind(panic);
        }
    });
    stage.server.assert_no_crash();
}

fn is_number(key: &str) -> bool {
    key.chars().all(|letter| letter.is_ascii_digit())
}

#[test]
fn each_view_has_what_happens_needs_terminal() {
    play("terminal-views", is_number);
}

#[test]
fn each_key_does_what_the_help_says_needs_terminal() {
    play("terminal-all-keys", |key| !is_number(key));
}

/// A statement that is slow now, from the first screen to the node that takes its time: two keys. A
/// regression to the comparison of before and after: two keys.
#[test]
fn few_keys_lead_to_the_cause_needs_terminal() {
    let stage = stage("terminal-causes");
    let terminal = stage.view(1, "");
    terminal.keys(&["3"]);
    terminal.until(&stage.long.to_string());
    terminal.keys(&["Enter"]);
    let screen = terminal.until("-> ");
    assert!(
        screen.contains("items") && screen.contains("Nested Loop"),
        "{screen}"
    );
    terminal.keys(&["5"]);
    terminal.until("orders_customer_idx");
    terminal.keys(&["Enter"]);
    terminal.until("before and after");
    // The sentence above the table may be wrapped within these words.
    terminal.until("index gone");
}
