//! The lines of calls, statements, nodes and transactions.

use super::cursors;
use super::level::{self, Level};
use super::session::{self, LONGEST_LINE};
use super::used::{self, Used};
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::sql_trace as hot;
use crate::pg::server::SourceText;
use crate::pg::server::{self, MAX_SHOWN_TEXT, first_bytes, from_database, switch};
use rowsource_core::model::{Buffers, NodeStats};
use rowsource_core::plan::PlanNode;
use rowsource_core::sql_trace::event::Phase;
use rustc_hash::FxHasher;
use std::borrow::Cow;
use std::cell::Cell;
use std::ffi::CStr;
use std::hash::Hasher;
use std::rc::Rc;

/// Whether a call has failed since the buffer was last written.
static FAILED: BackendLocal<Cell<bool>> = BackendLocal::new(Cell::new(false));

/// The client's message whose Parse or Bind was last written, by its time.
static READ: BackendLocal<Cell<i64>> = BackendLocal::new(Cell::new(0));

/// A call in progress. An error may cross a frame that holds it.
#[derive(Clone, Copy)]
pub struct Began {
    phase: Phase,
    cursor: u64,
    outer: u64,
    depth: u64,
    /// How many calls are in progress around it.
    outer_depth: u64,
    /// See [`cursors::generation`].
    generation: u64,
    /// See [`level::enter`].
    outer_level: Level,
    /// What the switch said when it began.
    switch: switch::State,
    /// The session may have done other work before it, of which nothing is written.
    follows_others: bool,
    used: Used,
}

/// A statement.
#[derive(Clone, Copy)]
pub struct Statement<'a> {
    queryid: i64,
    text: SourceText<'a>,
    /// Returns the text that was made for a query that has none.
    made: fn(i64) -> Option<Rc<[u8]>>,
    /// The client has not sent it: if it runs inside no call, it is nested in the end of the transaction.
    is_nested: bool,
}

impl<'a> Statement<'a> {
    /// Returns the statement with this queryid. Its text is read only if the file does not have it.
    pub fn new(queryid: i64, text: SourceText<'a>) -> Self {
        Statement {
            queryid,
            text,
            made: |_| None,
            is_nested: false,
        }
    }

    /// Returns the statement, with a function that finds the text that was made for a queryid.
    pub fn with_made_text(self, made: fn(i64) -> Option<Rc<[u8]>>) -> Self {
        Statement { made, ..self }
    }

    /// Returns the statement, and whether the client has not sent it.
    pub fn nested(self, is_nested: bool) -> Self {
        Statement { is_nested, ..self }
    }

    /// Returns in how many calls it runs.
    fn depth(&self) -> u64 {
        hot::depth().max(u64::from(self.is_nested))
    }

    /// Returns whether anything is written of it.
    pub fn is_written(&self) -> bool {
        level::of(self.queryid).is_on && switch::is_on()
    }

    /// Returns its text in the database's encoding. The end of a long text may be missing.
    fn text(&self) -> Cow<'_, [u8]> {
        // One more byte than is shown tells that it is cut.
        let text = self.text.beginning(MAX_SHOWN_TEXT + 1);
        match (self.made)(self.queryid).filter(|_| text.is_empty()) {
            Some(made) => Cow::Owned(made.to_vec()),
            None => Cow::Borrowed(text),
        }
    }
}

/// Returns the number of a statement's cursor. Raises nothing: returns 0 if the cursor is new and cannot be
/// described.
#[inline(always)]
fn cursor_or_none(statement: &Statement) -> u64 {
    match cursors::recent(statement.queryid) {
        Some(cursor) => cursor,
        None => server::attempt("describe a cursor", || cursor(statement)).unwrap_or(0),
    }
}

/// Returns the number of a statement's cursor. Describes the cursor if it is new.
fn cursor(statement: &Statement) -> u64 {
    if statement.queryid == 0 {
        return 0;
    }
    let (cursor, is_new) = cursors::cursor(statement.queryid);
    if is_new {
        describe(cursor, statement);
    }
    cursor
}

#[cold]
#[inline(never)]
fn describe(cursor: u64, statement: &Statement) {
    if hot::with_buffer(|buffer| buffer.room()).is_some_and(|room| room < LONGEST_LINE) {
        hot::flush_within_limit();
    }
    let text = beginning(&statement.text(), MAX_SHOWN_TEXT);
    let now = hot::now_us();
    hot::with_buffer(|buffer| {
        buffer
            .line(b"PARSING IN CURSOR", cursor)
            .number(b"dep", statement.depth())
            .number(b"uid", u64::from(server::user_id()))
            .signed(b"queryid", statement.queryid)
            .number(b"tim", now)
            .text(b"sql", text.as_bytes())
            .end()
    });
}

/// Returns the beginning of a text in the database's encoding as UTF-8: at most `max` bytes, and only whole
/// characters.
fn beginning(text: &[u8], max: usize) -> String {
    let mut shown = from_database(first_bytes(text, max));
    if text.len() > max {
        // Bytes without a known encoding may be cut within a character.
        shown.truncate(shown.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
    }
    // In UTF-8 the text may be longer.
    shown.truncate(shown.floor_char_boundary(max));
    shown
}

/// Notes that a call begins. Returns `None` if it is not to be written, or if there is no file. Raises
/// nothing.
pub fn begin(phase: Phase, statement: Option<&Statement>) -> Option<Began> {
    let queryid = statement.map_or(0, |statement| statement.queryid);
    let named = level::named(queryid);
    if !level::with(named).is_on || !switch::is_on() || !session::ready() {
        return None;
    }
    let (outer_depth, outer) = (hot::depth(), hot::cursor());
    let depth = statement.map_or(outer_depth, Statement::depth);
    flush_failed(outer_depth);
    let generation = cursors::generation();
    let cursor = match statement {
        Some(statement) => cursor_or_none(statement),
        None => outer,
    };
    hot::set_call(depth + 1, cursor);
    let outer_level = level::enter(named);
    let used = Used::now();
    let follows_others = level::is_selective() && outer_depth == 0 && {
        let came = used.message_came();
        outer != cursor || used::last().is_none_or(|last| last.at_us < came)
    };
    Some(Began {
        phase,
        cursor,
        outer,
        depth,
        outer_depth,
        generation,
        outer_level,
        switch: switch::state(),
        follows_others,
        used,
    })
}

/// Notes that statements follow of which nothing is written. So what they use is not that of the next call
/// that is written.
pub fn pause() {
    used::set_last(None);
    session::pause();
}

/// What a call returned.
#[derive(Clone, Copy, Default)]
pub struct Ended {
    pub rows: u64,
    pub is_utility: bool,
    pub has_failed: bool,
    /// See [`Began::follows_others`]. [`end`] sets it.
    pub follows_others: bool,
}

/// Writes the lines of a client's statement that has failed. Must be called before the next one begins.
pub fn flush_if_failed() {
    if hot::is_open() {
        flush_failed(hot::depth());
    }
}

/// Writes the lines of calls that have failed: that must wait until their transaction was rolled back.
fn flush_failed(depth: u64) {
    if FAILED.replace(false) {
        server::attempt("write the trace file", || session::flush(depth == 0));
    }
}

/// Writes the line of a call that has ended. If another file has begun meanwhile, the statement is described
/// there. Raises nothing. After an error, the transaction is not yet rolled back: then this only adds to the
/// buffer.
pub fn end(began: &Began, statement: Option<&Statement>, ended: Ended) {
    let used = Used::now();
    let depth = began.depth;
    let cursor = match statement {
        Some(statement)
            if !ended.has_failed
                && began.switch.is_still_on()
                && began.generation != cursors::generation()
                && hot::is_open() =>
        {
            hot::set_call(began.outer_depth, began.outer);
            server::attempt("describe a cursor", || cursor(statement)).unwrap_or(0)
        }
        _ => began.cursor,
    };
    // What comes next is that of the statement that closes a cursor, not that of the cursor's.
    let is_last = depth == 0 && (began.phase != Phase::Close || began.outer == 0);
    hot::set_call(began.outer_depth, if is_last { cursor } else { began.outer });
    level::leave(began.outer_level);
    if !began.switch.is_still_on() {
        return used::set_last(None);
    }
    if hot::is_open() {
        let follows_others = began.follows_others;
        let ended = Ended {
            follows_others,
            ..ended
        };
        line(began.phase, cursor, depth, Some(&began.used), &used, ended);
        if ended.has_failed {
            FAILED.set(true);
        } else {
            let ends_statement = began.phase == Phase::Close || ended.is_utility;
            flush_if_due(depth == 0 && ends_statement);
        }
    }
    // What is nested in a call, or in the end of a transaction, is a part of it.
    if depth == 0 {
        used::set_last(Some(used));
    }
}

/// Gives the line of a call that had no cursor when it began to a statement.
pub fn end_as(began: &Began, statement: &Statement) {
    // The statement is described at the level of the call.
    hot::set_call(began.outer_depth, began.outer);
    let cursor = match began.switch.is_still_on() {
        true => server::attempt("describe a cursor", || cursor(statement)).unwrap_or(0),
        false => 0,
    };
    end(&Began { cursor, ..*began }, None, Ended::default());
}

/// Writes the line of a call. Without what was used `before`, nothing is known of it but that it ended.
fn line(phase: Phase, cursor: u64, depth: u64, before: Option<&Used>, after: &Used, ended: Ended) {
    hot::with_buffer(|buffer| {
        let line = buffer.line_with(phase.word(), cursor);
        let mut line = after
            .add_to(line, before)
            .nonzero(b"r", ended.rows)
            .nonzero(b"dep", depth);
        if ended.is_utility {
            line = line.number(b"util", 1);
        }
        if ended.has_failed {
            line = line.number(b"fail", 1);
        }
        if ended.follows_others {
            line = line.number(b"alone", 1);
        }
        line.number(b"tim", after.at_us).end()
    });
}

/// Writes the buffer to the file if a statement of the client has ended or if the buffer fills. Only the
/// former may begin another file, so that the lines of a statement are in the file of its text.
fn flush_if_due(has_ended: bool) {
    if has_ended || hot::with_buffer(|buffer| buffer.room() < buffer.size() / 2) == Some(true) {
        server::attempt("write the trace file", || session::flush(has_ended));
    }
}

/// Writes the line of a statement that was parsed now. It is known only for a statement of the client when
/// that began.
pub fn parsed(statement: &Statement) {
    if !statement.is_written() || !session::ready() {
        return;
    }
    level::list_waits();
    let used = Used::now();
    let depth = statement.depth();
    flush_failed(hot::depth());
    let cursor = server::attempt("describe a cursor", || cursor(statement)).unwrap_or(0);
    // If only single statements are written, it is not known when the statement before has ended.
    let is_known = depth == 0 && !level::is_selective();
    let before = is_known.then(|| used.before(used.message_came())).flatten();
    line(
        Phase::Parse,
        cursor,
        depth,
        before.as_ref(),
        &used,
        Ended::default(),
    );
    if depth == 0 {
        hot::set_call(0, cursor);
        used::set_last(Some(used));
        READ.set(server::message_time());
    }
}

/// Writes the line of what the server has done for the client's message until now, before it plans a
/// statement or starts its query: it has bound values to the parameters of a prepared statement. Does nothing
/// if the statement's text was in the message, and was parsed. Another statement may have been closed
/// meanwhile: that of the client's last unnamed portal.
pub fn bound(statement: &Statement) {
    if statement.depth() > 0 || level::is_selective() || !statement.is_written() || !session::ready() {
        return;
    }
    if READ.replace(server::message_time()) == server::message_time() {
        return;
    }
    flush_failed(0);
    let used = Used::now();
    if let Some(before) = used.before(used.message_came()) {
        let cursor = cursor_or_none(statement);
        line(Phase::Bind, cursor, 0, Some(&before), &used, Ended::default());
        hot::set_call(0, cursor);
        used::set_last(Some(used));
    }
}

/// Returns whether the values of a statement's parameters are to be written, and can be now.
pub fn lists_binds(statement: &Statement) -> bool {
    level::of(statement.queryid).binds && switch::is_on() && session::ready() && hot::failure() == 0
}

/// The value of a parameter.
#[derive(Clone, Copy)]
pub enum Value<'a> {
    Null,
    /// What its type's output function returned.
    Text(&'a [u8]),
    /// It is too large to be printed. It has this many bytes in memory.
    Large(u64),
}

/// Writes the value of a parameter.
pub fn bind(statement: &Statement, number: usize, of: u32, value: Value) {
    /// The maximal bytes of a value.
    const MAX_VALUE: usize = 4_000;
    let cursor = cursor(statement);
    let text = match value {
        Value::Text(text) => beginning(text, MAX_VALUE),
        Value::Null | Value::Large(_) => String::new(),
    };
    hot::with_buffer(|buffer| {
        let line = buffer
            .line(b"VALUE", cursor)
            .number(b"n", number as u64)
            .number(b"type", u64::from(of));
        match value {
            Value::Text(_) => line.text(b"value", text.as_bytes()).end(),
            Value::Large(bytes) => line.number(b"size", bytes).end(),
            Value::Null => line.end(),
        }
    });
    flush_if_due(false);
}

/// Writes what the nodes of a plan did in an execution that has ended. If an error ended it, its transaction
/// may not be rolled back yet: then `statement` is `None`, and this only adds to the buffer.
pub fn stats(
    queryid: i64,
    statement: Option<&Statement>,
    planid: i64,
    nodes: &[PlanNode],
    stats: &[NodeStats],
) {
    if !hot::is_open() || !level::of(queryid).is_on {
        return;
    }
    let depth = statement.map_or_else(hot::depth, Statement::depth);
    let fingerprint = fingerprint(planid, nodes);
    let generation = cursors::generation();
    let is_described = cursors::has_nodes(queryid, fingerprint);
    let mut is_complete = true;
    for (node, stats) in nodes.iter().zip(stats) {
        // The lines before, and the descriptions among them, may have been lost because of a limit.
        let cursor = match statement {
            Some(statement) => cursor(statement),
            None => match cursors::known(queryid) {
                Some(cursor) => cursor,
                None => return,
            },
        };
        let is_known = is_described && generation == cursors::generation();
        if !is_known && !describe_node(cursor, planid, node) {
            // Without its node, the line would be that of another one.
            is_complete = false;
            continue;
        }
        stat(cursor, depth, node, stats);
        if statement.is_some() {
            flush_if_due(false);
        }
    }
    if !is_described && is_complete && generation == cursors::generation() {
        cursors::note_nodes(queryid, fingerprint);
    }
}

/// Returns a number that changes when the nodes must be described again: they are those of another plan, the
/// planner expects something else, or a table has another name.
fn fingerprint(planid: i64, nodes: &[PlanNode]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_i64(planid);
    for node in nodes {
        hasher.write_u64(node.total_cost.to_bits());
        hasher.write_u64(node.plan_rows.to_bits());
        // A table can get another name.
        hasher.write(node.object_name.as_deref().unwrap_or_default().as_bytes());
    }
    hasher.finish()
}

/// Describes a node. Returns whether the line fits into the buffer.
#[cold]
#[inline(never)]
fn describe_node(cursor: u64, planid: i64, node: &PlanNode) -> bool {
    let fits = hot::with_buffer(|buffer| {
        let line = buffer
            .line(b"NODE", cursor)
            .signed(b"plh", planid)
            .number(b"id", node.id as u64)
            .known(b"pid", node.parent.map(|parent| parent as u64))
            .number(b"cost", (node.total_cost * 100.0).round() as u64)
            .number(b"card", node.plan_rows.round() as u64);
        let (operation, object) = (node.operation.as_bytes(), node.object_name.as_deref());
        match object {
            Some(object) => line.words(b"op", [operation, b" on ", object.as_bytes()]).end(),
            None => line.words(b"op", [operation]).end(),
        }
    });
    fits == Some(true)
}

fn stat(cursor: u64, depth: u64, node: &PlanNode, stats: &NodeStats) {
    let buffers = stats.buffers.get();
    let blocks = |of: fn(&Buffers) -> i64| buffers.as_ref().map_or(0, |used| of(used).max(0) as u64);
    let us = stats.time.get().map(|time| (time.total_ms * 1e3 + 0.5) as u64);
    hot::with_buffer(|buffer| {
        buffer
            .line(b"STAT", cursor)
            .nonzero(b"dep", depth)
            .number(b"id", node.id as u64)
            .nonzero(b"rows", stats.rows)
            .known(b"cr", buffers.as_ref().map(|_| blocks(Buffers::gets)))
            .nonzero(
                b"pr",
                blocks(|used| used.shared_read + used.local_read + used.temp_read),
            )
            .nonzero(
                b"pw",
                blocks(|used| used.shared_written + used.local_written + used.temp_written),
            )
            .known(b"time", us)
            .known(b"starts", stats.starts.get())
            .end()
    });
}

/// Writes that an error goes to the client. `text` is what the client has sent. Allocates nothing, because
/// memory may be short.
pub fn error(sqlstate: i32, text: &CStr) {
    let mut code = [b'0'; 5];
    for (place, at) in code.iter_mut().zip(0..) {
        *place += ((sqlstate >> (6 * at)) & 0x3F) as u8;
    }
    // If only single statements are written, it may be the error of another one.
    let is_selective = level::is_selective();
    if !hot::is_open() || is_selective && !(FAILED.get() && hot::cursor() != 0) {
        return;
    }
    let used = Used::now();
    if hot::depth() == 0 && !is_selective {
        let came = used.message_came();
        if let Some(before) = used.before(came)
            && before.at_us == came
        {
            return parse_error(code, text, &before, &used);
        }
    }
    hot::with_buffer(|buffer| {
        let line = buffer.line(b"ERROR", hot::cursor());
        line.word(b"err", &code).number(b"tim", used.at_us).end()
    });
}

/// Writes that what the client has sent failed before its first call.
#[cold]
#[inline(never)]
fn parse_error(code: [u8; 5], text: &CStr, before: &Used, used: &Used) {
    let text = SourceText::whole(text).beginning(MAX_SHOWN_TEXT);
    let text = first_bytes(text, MAX_SHOWN_TEXT);
    // To convert it could fail.
    let text = std::str::from_utf8(text).unwrap_or("(the text is not in UTF-8)");
    hot::with_buffer(|buffer| {
        let line = buffer
            .line(b"PARSE ERROR", 0)
            .number(b"uid", u64::from(server::user_id()))
            .word(b"err", &code);
        used.add_to(line, Some(before))
            .number(b"tim", used.at_us)
            .text(b"sql", text.as_bytes())
            .end()
    });
    used::set_last(Some(*used));
    // The end of its transaction is not that of the statement before.
    hot::set_call(0, 0);
    // The transaction must be rolled back before the lines are written.
    FAILED.set(true);
}
