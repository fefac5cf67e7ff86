//! The folders of each crate from the bottom up: what is in them, and which folders they import. `imports.rs`
//! holds it, and `ARCHITECTURE.md` shows it. A file beside the folders is one of them.

/// A folder, or a file beside the folders.
pub struct Layer {
    pub folder: &'static str,
    pub contains: &'static str,
    /// The folders that it may import. They stand above it in the list.
    pub imports: &'static [&'static str],
}

const fn layer(folder: &'static str, imports: &'static [&'static str], contains: &'static str) -> Layer {
    Layer {
        folder,
        contains,
        imports,
    }
}

/// The crates whose folders have an order.
pub const CRATES: [(&str, &[Layer]); 4] = [
    ("core/src", CORE),
    ("src", EXTENSION),
    ("bench/src", BENCH),
    ("cli/src", CLI),
];

/// What deals with PostgreSQL itself. All folders above these may import them.
pub const FOUNDATION: [&str; 4] = ["pg::border", "pg::handles", "pg::compat", "pg::server"];

const EXTENSION: &[Layer] = &[
    layer(
        "pg::border",
        &[],
        "functions of PostgreSQL without pgrx's guard, and the state of a backend",
    ),
    layer(
        "pg::handles",
        &[],
        "what PostgreSQL has of a started query, for safe code to read",
    ),
    layer(
        "pg::compat",
        &["pg::border", "pg::handles"],
        "every difference between PostgreSQL's majors",
    ),
    layer(
        "pg::server",
        &["pg::border", "pg::handles", "pg::compat"],
        "PostgreSQL's services: errors, memory, processes, settings, rows",
    ),
    layer("guc", &[], "the settings"),
    layer(
        "instrumentation",
        &["guc"],
        "how a statement is measured, by the settings",
    ),
    layer("pg::buffers", &[], "gets blocks of a relation, and times each"),
    layer("pg::plan", &["guc"], "reads plans: nodes, identity, description"),
    layer("pg::hot", &[], "runs once per call of a node: plain frames only"),
    layer(
        "pg::tempfile",
        &["guc", "pg::hot"],
        "counts and times requests to temporary files",
    ),
    layer("pg::waits", &["guc", "pg::hot"], "counts and times waits"),
    layer(
        "pg::interpose",
        &["guc", "pg::tempfile", "pg::waits"],
        "replaces functions of the C library in the server's import table",
    ),
    layer(
        "pg::store",
        &["guc", "pg::tempfile", "pg::waits"],
        "the plans of all sessions, in shared memory and in a file",
    ),
    layer(
        "pg::sql_trace",
        &["guc", "pg::hot", "pg::store", "pg::waits"],
        "writes the session's SQL trace",
    ),
    layer(
        "session",
        &["guc", "pg::store"],
        "the session's plans and its last statement",
    ),
    layer(
        "pg::live",
        &["pg::hot", "pg::store"],
        "shows running statements to other sessions",
    ),
    layer(
        "pg::ash",
        &["guc", "pg::live", "pg::store", "pg::waits"],
        "the background worker: samples all sessions, and makes beats",
    ),
    layer(
        "pg::results",
        &["guc", "pg::hot", "pg::live", "pg::plan"],
        "collects what nodes counted, and has core compute the statistics",
    ),
    layer(
        "pg::executor",
        &[
            "guc",
            "instrumentation",
            "session",
            "pg::hot",
            "pg::live",
            "pg::plan",
            "pg::results",
            "pg::sql_trace",
            "pg::store",
            "pg::tempfile",
            "pg::waits",
        ],
        "the hooks, the listeners, and the state of a running statement",
    ),
    layer(
        "functions",
        &[
            "guc",
            "instrumentation",
            "session",
            "pg::ash",
            "pg::buffers",
            "pg::executor",
            "pg::live",
            "pg::sql_trace",
            "pg::store",
            "pg::tempfile",
            "pg::waits",
        ],
        "the SQL functions and views",
    ),
];

const CORE: &[Layer] = &[
    layer("float", &[], "arithmetic in a few instructions"),
    layer("stable_hash", &[], "a hash whose results never change"),
    layer("zeroed", &[], "memory that is zero when it is allocated"),
    layer("processor_time", &[], "the processor time of a test"),
    layer("phase", &[], "the phases of a measured statement"),
    layer("clock", &[], "clocks: readings, costs, reliability"),
    layer("gate", &[], "who counts what a parallel worker did"),
    layer("room", &[], "who makes room in a full table"),
    layer("eviction", &[], "selects the plans to evict"),
    layer("call_trace", &[], "the calls of a statement's nodes, one by one"),
    layer(
        "pending",
        &[],
        "the protocol of the sessions' buffers in shared memory",
    ),
    layer(
        "blocks",
        &["pending"],
        "the protocol of the memory of running statements",
    ),
    layer("histogram", &["float"], "the times of a node's calls"),
    layer(
        "sampler",
        &["float"],
        "estimates a node's time from a few clock readings",
    ),
    layer("wrapper", &["sampler"], "the logic around each call of a node"),
    layer(
        "beat",
        &["pending", "wrapper"],
        "how the background worker tells sessions that time has passed",
    ),
    layer(
        "reconcile",
        &["sampler"],
        "makes the estimates of a plan's nodes consistent",
    ),
    layer(
        "normalise",
        &["stable_hash"],
        "replaces the constants of a statement's text",
    ),
    layer(
        "definition",
        &["stable_hash"],
        "what an index's expressions are, independent of OIDs",
    ),
    layer(
        "explain_text",
        &["normalise"],
        "finds the statement in the text of an EXPLAIN",
    ),
    layer("hint", &["normalise"], "the hint gather_plan_statistics"),
    layer(
        "plan",
        &["normalise"],
        "describes a plan, from the output of EXPLAIN",
    ),
    layer("progress", &["plan"], "how far a statement is"),
    layer("logical_io", &["histogram"], "the times of gets of blocks"),
    layer("tempfile", &["histogram"], "the counters of temporary files"),
    layer("waits", &["histogram"], "the counters of waits"),
    layer(
        "model",
        &[
            "clock",
            "float",
            "histogram",
            "normalise",
            "plan",
            "stable_hash",
            "tempfile",
            "waits",
        ],
        "plans, executions and nodes: the types of all that follows",
    ),
    layer(
        "planids",
        &["model", "stable_hash"],
        "the planids of described plans",
    ),
    layer("breaker", &["model"], "says when measuring costs too much"),
    layer(
        "ash",
        &["model", "room", "waits"],
        "samples of the running sessions, in a ring",
    ),
    layer(
        "regressions",
        &["model", "processor_time", "room"],
        "what has become slower, and is no chance",
    ),
    layer(
        "flips",
        &["model", "regressions", "room", "stable_hash"],
        "changes of plans",
    ),
    layer(
        "results",
        &["float", "histogram", "model", "reconcile", "sampler", "waits"],
        "computes the statistics of a statement's nodes",
    ),
    layer(
        "details",
        &["model", "plan"],
        "a node's facts under the keys of EXPLAIN",
    ),
    layer(
        "advice",
        &["model", "plan"],
        "what nodes show that could be done better",
    ),
    layer(
        "lists",
        &["details", "model", "plan"],
        "what plans did, by node, relation or wait",
    ),
    layer(
        "compare",
        &["model", "plan", "regressions"],
        "why a plan is slower than another one",
    ),
    layer(
        "page",
        &[],
        "an HTML page that can be mailed: its head and its style",
    ),
    layer(
        "report",
        &["ash", "compare", "model", "page", "plan"],
        "the table of a measured plan",
    ),
    layer(
        "export",
        &["histogram", "model", "page", "plan"],
        "plans in the formats of other tools",
    ),
    // The report is also made of the stored plans.
    layer(
        "sql_trace",
        &["histogram", "model", "plan", "waits"],
        "the format of trace files, and their report",
    ),
];

const BENCH: &[Layer] = &[
    layer("model", &[], "tables, plots and checks of an experiment"),
    layer(
        "report",
        &["model"],
        "writes the results, and the figures in the book",
    ),
    layer("measure", &["model"], "runs and measures statements"),
    layer("experiments", &["model", "measure"], "the experiments"),
];

const CLI: &[Layer] = &[
    layer(
        "model",
        &[],
        "what a refresh brings, as it is shown, recorded and replayed",
    ),
    layer(
        "record",
        &["model"],
        "recordings: a line of JSON for each refresh",
    ),
    layer("raw", &[], "asks for the bytes of texts that are not UTF-8"),
    layer("queries", &["model", "raw"], "the queries of the program"),
    layer("delta", &["model"], "what happened between two refreshes"),
    layer(
        "title",
        &[],
        "titles, whose names become shorter before figures go",
    ),
    layer(
        "series",
        &["delta", "model", "title"],
        "rows of counters from refresh to refresh",
    ),
    layer(
        "format",
        &[],
        "how figures, times and texts of the server are written",
    ),
    layer(
        "table",
        &["format", "queries", "title"],
        "tables, which each screen consists of",
    ),
    layer(
        "signals",
        &["format", "queries"],
        "whom a signal is for, and what sends it",
    ),
    layer("connect", &[], "connects to a server as psql does"),
    layer(
        "server",
        &["connect", "model", "queries", "raw", "signals"],
        "asks a server: each question is one message",
    ),
    layer(
        "own",
        &["model", "queries", "raw", "server", "signals"],
        "which statements are the program's own",
    ),
    layer(
        "texts",
        &["model", "own", "queries", "raw", "server"],
        "the texts of statements",
    ),
    layer(
        "last_run",
        &["model"],
        "a running plan, as it was when it was last seen",
    ),
    layer(
        "data",
        &["last_run", "model", "queries", "series", "texts"],
        "what the program knows of the server",
    ),
    layer(
        "news",
        &["data"],
        "what came in between, as the last line says it",
    ),
    layer("terminal", &[], "what the terminal can show: a screen, colours"),
    layer("ending", &[], "signals that end the program"),
    layer("password", &["ending"], "the question for a password"),
    layer(
        "screens_live",
        &["data", "delta", "format", "table", "title"],
        "the lists of what runs and waits now",
    ),
    layer(
        "live_plan",
        &["data", "format", "last_run", "model", "table", "title"],
        "the table of a running plan",
    ),
    layer(
        "screens_plan",
        &["data", "format", "model", "queries", "table", "title"],
        "the tables of a plan and of a node",
    ),
    layer(
        "flame",
        &["data", "format", "model", "queries", "screens_plan", "table"],
        "where the time of a plan goes, as bars",
    ),
    layer(
        "working",
        &["data", "format", "model", "queries"],
        "what works now, beside the lists of what has ended",
    ),
    layer(
        "screens",
        &[
            "data",
            "delta",
            "flame",
            "format",
            "live_plan",
            "model",
            "queries",
            "screens_live",
            "screens_plan",
            "server",
            "table",
            "working",
        ],
        "the screens: what each needs, and its table",
    ),
    layer(
        "empty",
        &["data", "format", "screens"],
        "what an empty list means",
    ),
    layer(
        "keys",
        &["format", "screens"],
        "the keys: the help, their part of the man page, and what each does",
    ),
    layer(
        "app",
        &[
            "data", "keys", "last_run", "model", "news", "queries", "screens", "signals", "table",
        ],
        "the state: what keys do",
    ),
    layer(
        "actions",
        &[
            "app",
            "format",
            "keys",
            "model",
            "queries",
            "screens",
            "screens_plan",
            "server",
            "signals",
            "table",
        ],
        "keys that ask the server for something about a row",
    ),
    layer(
        "hints",
        &["app", "screens", "table"],
        "the keys that the last line offers",
    ),
    layer(
        "draw",
        &["app", "data", "format", "hints", "keys", "screens", "table"],
        "draws the state",
    ),
    layer(
        "json",
        &["app", "data", "format", "screens", "server"],
        "the screen as JSON, and what is missing in it",
    ),
    layer(
        "worker",
        &["connect", "model", "queries", "server", "signals"],
        "the threads that talk with the server",
    ),
    layer(
        "top",
        &[
            "app", "data", "draw", "ending", "json", "model", "queries", "record", "screens", "signals",
            "worker",
        ],
        "the loop, and what is printed once",
    ),
    layer("args", &["screens"], "the options of the command line"),
    layer(
        "man",
        &["args", "keys"],
        "the man page, of the declared options and keys",
    ),
    layer(
        "tests",
        &[
            "actions",
            "app",
            "args",
            "data",
            "delta",
            "draw",
            "format",
            "hints",
            "json",
            "keys",
            "model",
            "queries",
            "raw",
            "record",
            "screens",
            "screens_plan",
            "server",
            "signals",
            "table",
            "top",
            "working",
        ],
        "each screen as text, with what was recorded",
    ),
];
