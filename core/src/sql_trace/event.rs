//! The lines of a trace file as values.

/// What a call of a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The statement was parsed and analysed.
    Parse,
    /// Values were bound to the parameters of a prepared statement: all that the server did for its message
    /// before it planned the statement or started the executor.
    Bind,
    /// It was planned.
    Plan,
    /// The executor was started, or a utility statement ran.
    Exec,
    /// The executor ran until it had the rows that the client asked for, or to its end.
    Fetch,
    /// The executor finished: triggers that fire after the statement, and data-modifying CTEs.
    Finish,
    /// The executor ended.
    Close,
    /// The transaction ended: what was done since the call before.
    Commit,
}

impl Phase {
    /// All of them, in the order in which a statement goes through them.
    pub const ALL: [Phase; 8] = [
        Phase::Parse,
        Phase::Bind,
        Phase::Plan,
        Phase::Exec,
        Phase::Fetch,
        Phase::Finish,
        Phase::Close,
        Phase::Commit,
    ];

    /// Returns the word that a line begins with.
    pub const fn word(self) -> &'static str {
        match self {
            Phase::Parse => "PARSE",
            Phase::Bind => "BIND",
            Phase::Plan => "PLAN",
            Phase::Exec => "EXEC",
            Phase::Fetch => "FETCH",
            Phase::Finish => "FINISH",
            Phase::Close => "CLOSE",
            Phase::Commit => "XCTEND",
        }
    }
}

/// One call of a statement. Times are microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The number of the cursor in its file.
    pub cursor: u64,
    /// In how many other calls it ran.
    pub dep: u64,
    /// Processor time.
    pub cpu_us: u64,
    /// Elapsed time; `None` if it is not known when the call began.
    pub elapsed_us: Option<u64>,
    /// Blocks that were read.
    pub reads: u64,
    /// Blocks that were got from the buffers, whether they were there or had to be read.
    pub gets: u64,
    /// Blocks that were changed for the first time since they were last written.
    pub dirtied: u64,
    /// Rows that were returned or changed.
    pub rows: u64,
    /// The call ran a utility statement, which has no other call.
    pub is_utility: bool,
    /// An error ended it.
    pub has_failed: bool,
    /// The session may have done other work before it, of which nothing was written.
    pub follows_others: bool,
    /// When it ended, by the system's monotonic clock.
    pub tim: u64,
}

/// A node of a plan. It is described before the first line of what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedNode {
    /// The plan.
    pub plan: i64,
    /// The number of the node above it.
    pub parent: Option<u64>,
    /// The planner's cost, in hundredths.
    pub cost_cents: u64,
    /// The rows that the planner expected for one start.
    pub card: u64,
    /// What it does, as EXPLAIN calls it.
    pub operation: String,
}

/// What a node of a plan did in one execution. It contains what the nodes below it did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// The number of the cursor in its file.
    pub cursor: u64,
    /// In how many other calls the statement ran.
    pub dep: u64,
    /// The node's number in its plan.
    pub id: u64,
    /// The node.
    pub node: PlannedNode,
    /// Rows that it returned.
    pub rows: u64,
    /// Blocks that were got from the buffers; `None` if that was not measured.
    pub gets: Option<u64>,
    /// Blocks that were read.
    pub reads: Option<u64>,
    /// Blocks that were written.
    pub writes: Option<u64>,
    /// Elapsed microseconds; `None` if the node was not timed.
    pub time_us: Option<u64>,
    /// How often it was started.
    pub starts: Option<u64>,
}

/// What a wait was for, as far as the line tells it. Numbers are OIDs if they are not called otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitObject {
    /// The relation that the node that waited works on.
    pub node_relation: Option<u64>,
    /// The relation of a lock.
    pub relation: Option<u64>,
    /// The database of a lock or a file.
    pub database: Option<u64>,
    /// The tablespace of a file.
    pub tablespace: Option<u64>,
    /// The number of a relation's files.
    pub file: Option<u64>,
    /// The number of the file's fork.
    pub fork: Option<u64>,
    /// The first block.
    pub block: Option<u64>,
    /// How many blocks.
    pub blocks: Option<u64>,
    /// The number of a row in its block.
    pub tuple: Option<u64>,
    /// The number of a transaction.
    pub xid: Option<u64>,
    /// The number of the mode in which a lock was wanted.
    pub mode: Option<u64>,
}

/// A wait that has ended. Times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wait {
    /// The number of the cursor in its file: the statement that waited, or the last one before.
    pub cursor: u64,
    /// In how many calls the session was.
    pub dep: u64,
    /// How long it took.
    pub elapsed_us: u64,
    /// The number of the node that waited.
    pub node: Option<u64>,
    /// The line continues the wait before, which a signal interrupted.
    pub is_rest: bool,
    /// When it ended.
    pub tim: u64,
    /// The type and the name of the event.
    pub name: String,
    /// What it was for.
    pub object: WaitObject,
}

/// The first line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The version of the format.
    pub version: u64,
    /// The process.
    pub pid: u64,
    /// The OID of the session's user.
    pub uid: u64,
    /// The OID of the session's database.
    pub datid: u64,
    /// 1 for a session's first file, 2 for the file that continues it, and so on.
    pub part: u64,
    /// The time of day when the file began, in microseconds since 1970.
    pub unix_us: u64,
    /// The same time by the clock of all other lines.
    pub tim: u64,
    /// User, database and program.
    pub session: String,
}

/// A statement, before its first line of another kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Its number in this file.
    pub number: u64,
    /// In how many calls it ran when it was first seen.
    pub dep: u64,
    /// The OID of its user.
    pub uid: u64,
    /// Its queryid.
    pub queryid: i64,
    /// When it was first seen.
    pub tim: u64,
    /// Its text.
    pub sql: String,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A file begins.
    Header(Header),
    /// A statement is seen for the first time.
    Cursor(Cursor),
    /// A call has ended.
    Call(Phase, Call),
    /// The value of a parameter, which the next execution uses.
    Value {
        /// The number of the cursor in its file.
        cursor: u64,
        /// The number of the parameter.
        number: u64,
        /// The OID of its type.
        of: u64,
        /// Its value; `None` is NULL, or a value that was too large to be printed.
        value: Option<String>,
        /// The bytes of a value that was too large.
        size: Option<u64>,
    },
    /// A node of a plan.
    Node {
        /// The number of the cursor in its file.
        cursor: u64,
        /// The node's number in its plan.
        id: u64,
        /// The node.
        node: PlannedNode,
    },
    /// What a node did.
    Stat(Stat),
    /// A wait has ended.
    Wait(Wait),
    /// A transaction has ended.
    Transaction {
        /// Whether it was rolled back.
        rollback: bool,
        /// Whether it changed nothing.
        read_only: bool,
        /// The call that ended it. Its elapsed time is not known if it ended inside another call.
        call: Call,
    },
    /// An error was reported to the client.
    Error {
        /// The number of the last cursor.
        cursor: u64,
        /// Its SQLSTATE.
        code: String,
        /// When.
        tim: u64,
    },
    /// A statement of the client failed before its first call: while it was parsed and analysed, or while its
    /// values were bound.
    ParseError {
        /// The OID of its user.
        uid: u64,
        /// Its SQLSTATE.
        code: String,
        /// What the server did for it.
        call: Call,
        /// Its text.
        sql: String,
    },
    /// Lines that could not be written.
    Lost {
        /// How many.
        lines: u64,
        /// Why.
        reason: String,
    },
    /// The trace was stopped, or goes on in another file.
    End {
        /// When.
        tim: u64,
    },
}
