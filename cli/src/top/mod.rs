//! The loop of `rowsource top`: keys and answers go into the state, and the state onto the terminal.

use std::fs::File;
use std::io::{self, Write, stdout};
use std::path::Path;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};

use crossterm::event::{self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyEventKind};
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use crossterm::{execute, queue};
use ratatui::DefaultTerminal;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;

use crate::app::{App, Effect, Mode};
use crate::data::Data;
use crate::draw::{Theme, draw};
use crate::ending::Ending;
use crate::model::Snapshot;
use crate::queries::Want;
use crate::record::{self, Recording};
use crate::worker::{Reply, Request, THREAD_ENDED, Worker};

mod once;
mod pause;
#[cfg(test)]
mod tests;

/// Where refreshes come from.
pub enum Source {
    /// A server.
    Server(Worker),
    /// A recording.
    Recording(Recording),
}

/// How often keys are looked for while nothing comes.
const TICK: Duration = Duration::from_millis(50);
/// The same while an answer is awaited.
const SHORT_TICK: Duration = Duration::from_millis(5);
/// How the status begins while there is no answer, or none yet because the server works for the user.
const SILENT: &str = "the server has not answered for";
const WORKS: &str = "the server works on it:";
/// How long to wait at least before a list that may take seconds is asked for again, and how many times as
/// long as it took.
const SLOW_PACE: Duration = Duration::from_secs(10);
const SLOW_SHARE: u32 = 10;
/// After a refresh, how many times as long as it took to wait at least.
const PACE_SHARE: u32 = 4;
/// How long the question before a signal waits for its answer.
const QUESTION: Duration = Duration::from_secs(10);
/// How long a frame waits for the texts of what is new in it.
const TEXTS: Duration = Duration::from_millis(200);
/// How long to wait before the next attempt to connect.
const RETRY: Duration = Duration::from_secs(2);

/// A program that runs.
pub struct Top {
    pub app: App,
    pub source: Source,
    pub record: Option<File>,
    pub theme: Theme,
    asked_at: Option<Instant>,
    /// When a refresh was asked for before, if nothing came in between.
    last_asked_at: Option<Instant>,
    /// Since when a frame waits for texts.
    texts_asked_at: Option<Instant>,
    due: Instant,
    /// The same for the list that may take seconds.
    slow_asked_at: Option<Instant>,
    slow_due: Instant,
    /// Whether a refresh is due although the screen is paused, and whether a key asked for the last one.
    is_wanted: bool,
    is_for_key: bool,
    /// What has come while the screen is paused, and something is recorded.
    newest: Option<Box<Data>>,
    /// When the user was asked whether a signal is to be sent.
    question_at: Instant,
    /// Since when the server works on a text or a page for the user.
    called_at: Option<Instant>,
}

impl Top {
    /// Makes one.
    pub fn new(mut app: App, source: Source, record: Option<File>, theme: Theme) -> Self {
        app.data.is_replay = matches!(source, Source::Recording(_));
        Self {
            app,
            source,
            record,
            theme,
            asked_at: None,
            last_asked_at: None,
            texts_asked_at: None,
            due: Instant::now(),
            slow_asked_at: None,
            slow_due: Instant::now(),
            is_wanted: false,
            is_for_key: false,
            newest: None,
            question_at: Instant::now(),
            called_at: None,
        }
    }

    /// Shows it on the terminal until the user leaves, or a signal ends the program.
    pub fn run(mut self) -> io::Result<()> {
        let ending = Ending::watch(true)?;
        let mut terminal = ratatui::try_init()?;
        execute!(terminal.backend_mut(), EnableBracketedPaste)?;
        let result = self.run_in(&mut terminal, &ending);
        let unpasted = execute!(terminal.backend_mut(), DisableBracketedPaste);
        let restored = ratatui::try_restore().and(unpasted);
        // It shows the cursor.
        drop(terminal);
        if let Some(status) = ending.status() {
            std::process::exit(status);
        }
        restored?;
        result
    }

    fn run_in(&mut self, terminal: &mut DefaultTerminal, ending: &Ending) -> io::Result<()> {
        let mut is_dirty = true;
        let mut shows_question = false;
        while ending.status().is_none() {
            is_dirty |= self.refresh()?;
            if self.is_asked() && self.question_at.elapsed() > QUESTION {
                self.app
                    .drop_question(&format!(": no answer for {} s", QUESTION.as_secs()));
                is_dirty = true;
            }
            if is_dirty && self.may_draw() {
                show(terminal, &mut self.app, self.theme)?;
                is_dirty = false;
                let showed_it = std::mem::replace(&mut shows_question, self.is_asked());
                // Whoever typed these had not seen the question.
                while shows_question && !showed_it && event::poll(Duration::ZERO)? {
                    drop(event::read()?);
                    is_dirty = true;
                }
            }
            let wait = if self.asked_at.is_some() { SHORT_TICK } else { TICK };
            if !event::poll(wait)? {
                continue;
            }
            // All keys that wait are taken before the next frame.
            while event::poll(Duration::ZERO)? {
                is_dirty = true;
                let key = match event::read()? {
                    Event::Key(key) => key,
                    Event::Paste(text) => {
                        self.app.paste(&text);
                        continue;
                    }
                    _ => continue,
                };
                if key.kind != KeyEventKind::Press {
                    continue;
                }
                for effect in self.app.key(key) {
                    if effect == Effect::Quit {
                        return Ok(());
                    }
                    self.take_effect(effect)?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether a frame may be drawn: it waits a little for the texts of what is new in it. The
    /// question before a signal does not wait, because keys would answer it before it is seen.
    fn may_draw(&self) -> bool {
        self.is_asked() || self.texts_asked_at.is_none_or(|asked| asked.elapsed() >= TEXTS)
    }

    /// Returns whether the user is asked whether a signal is to be sent.
    fn is_asked(&self) -> bool {
        matches!(self.app.mode, Mode::Confirm(..))
    }

    fn take_effect(&mut self, effect: Effect) -> io::Result<()> {
        match (effect, &self.source) {
            (effect @ (Effect::Refresh | Effect::Reload), Source::Server(_)) => {
                self.due = Instant::now();
                if effect == Effect::Reload {
                    self.slow_due = self.due;
                }
                self.is_wanted = true;
            }
            (Effect::Copy(text), _) => {
                // The clipboard of the terminal (OSC 52), also through ssh.
                write!(stdout(), "\x1b]52;c;{}\x07", base64(text.as_bytes()))?;
                stdout().flush()?;
            }
            (Effect::LookUp(signal, pid), Source::Server(worker)) => {
                worker.ask(Request::LookUp(signal, pid));
            }
            (Effect::Signal(signal, session), Source::Server(worker)) => {
                worker.ask(Request::Signal(signal, session));
            }
            (Effect::Call(call, file), Source::Server(worker)) => {
                worker.ask(Request::Call(call, file));
                self.app.is_calling = true;
                self.called_at = Some(Instant::now());
            }
            (Effect::Call(_, None), Source::Recording(_)) => self.app.take_recorded_lines(),
            (Effect::Call(..) | Effect::LookUp(..) | Effect::Signal(..), Source::Recording(_)) => {
                self.app.status = "a recording has no server, which would do it".to_owned();
            }
            (Effect::Refresh | Effect::Reload | Effect::Quit, _) => {}
        }
        Ok(())
    }

    /// Takes what has come, and asks if it is time. Returns whether anything changed.
    fn refresh(&mut self) -> io::Result<bool> {
        if matches!(self.source, Source::Recording(_)) {
            return self.replay();
        }
        let mut changed = false;
        self.follow_pause();
        while let Source::Server(worker) = &self.source {
            match worker.replies.try_recv() {
                Ok(Reply::Ended(text)) => return Err(io::Error::other(text)),
                Ok(reply @ (Reply::Snapshot(_) | Reply::Slow(_))) => self.with_newest(|top| top.take(reply)),
                Ok(reply) => self.take(reply),
                Err(TryRecvError::Disconnected) => return Err(io::Error::other(THREAD_ENDED)),
                Err(TryRecvError::Empty) => break,
            }
            changed = true;
        }
        match self.asked_at {
            Some(asked) if asked.elapsed() > Duration::from_secs(1) => {
                changed |= self.say(format!("{SILENT} {} s", asked.elapsed().as_secs()));
            }
            None if Instant::now() >= self.due && self.may_ask() => self.with_newest(Self::ask),
            None if self.app.paused => self.last_asked_at = None,
            _ => {}
        }
        // What a key asks for last is said, and not covered.
        let is_free = self.app.status.is_empty() || self.app.status.starts_with(WORKS);
        match self.called_at {
            Some(called) if is_free && called.elapsed() > Duration::from_secs(1) => {
                changed |= self.say(format!("{WORKS} {} s", called.elapsed().as_secs()));
            }
            _ => {}
        }
        Ok(changed)
    }

    /// Returns whether a refresh is wanted: a pause stops the screen, and not the recording.
    fn may_ask(&self) -> bool {
        !self.app.paused || self.is_wanted || self.record.is_some()
    }

    /// Says something in the last line. Returns whether it is new.
    fn say(&mut self, status: String) -> bool {
        let is_new = self.app.status != status;
        self.app.status = status;
        is_new
    }

    fn ask(&mut self) {
        self.is_for_key = std::mem::take(&mut self.is_wanted);
        // The first frame does not wait for what only the recording needs.
        let mut wants = if self.record.is_some() && self.app.data.at > 0.0 {
            self.app.all_wants()
        } else {
            self.app.wants()
        };
        self.ask_slow(&mut wants);
        if let Source::Server(worker) = &self.source {
            worker.ask(Request::Snapshot(wants));
            let (now, pace) = (Instant::now(), self.app.pace());
            let last = self.last_asked_at.replace(now);
            self.app.real_pace = last.and_then(|last| slower(now - last, pace));
            self.asked_at = Some(now);
            self.due = now + pace;
        }
    }

    /// Asks for the texts of what has just come, so that the program's own statements are known before they
    /// are shown.
    fn ask_texts(&mut self) {
        let has_extension = self.app.data.server.has_extension();
        let texts = self.app.data.wanted_texts().filter(|_| has_extension);
        if let (Some(texts), Source::Server(worker)) = (texts, &self.source) {
            worker.ask(Request::Snapshot(vec![texts]));
            self.asked_at = Some(Instant::now());
            self.texts_asked_at = self.asked_at;
        }
    }

    /// Takes out of what is wanted the list that may take seconds, and asks for it if it is time.
    fn ask_slow(&mut self, wants: &mut Vec<Want>) {
        let all = wants.len();
        wants.retain(|want| *want != Want::Findings);
        let is_due = self.slow_asked_at.is_none() && Instant::now() >= self.slow_due;
        if wants.len() == all || !is_due || !self.app.data.server.has_extension() {
            return;
        }
        if let Source::Server(worker) = &self.source {
            worker.ask(Request::Slow(Want::Findings));
            self.slow_asked_at = Some(Instant::now());
        }
    }

    fn take_slow(&mut self, answer: Result<Box<Snapshot>, String>) -> io::Result<()> {
        let took = self
            .slow_asked_at
            .take()
            .map_or(Duration::ZERO, |asked| asked.elapsed());
        self.slow_due = Instant::now() + SLOW_PACE.max(took * SLOW_SHARE);
        let written = answer.as_ref().map_or(Ok(()), |snapshot| self.write(snapshot));
        self.app.apply_slow(answer.map(|snapshot| *snapshot));
        written
    }

    /// Adds a refresh to the recording, if there is one.
    fn write(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        match &mut self.record {
            Some(file) => record::write(file, snapshot),
            None => Ok(()),
        }
    }

    /// Goes on without the recording if it cannot be written, and says so: the screen is needed most while
    /// disks are full.
    fn check(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.record = None;
            self.app.status = format!("the recording has ended: {error}");
        }
    }

    fn take(&mut self, reply: Reply) {
        if matches!(reply, Reply::Snapshot(_) | Reply::Refused(_) | Reply::Down(_)) {
            self.texts_asked_at = None;
        }
        match reply {
            Reply::Slow(answer) => {
                let written = self.take_slow(answer);
                self.check(written);
            }
            Reply::Snapshot(snapshot) => {
                if self.app.status.starts_with(SILENT) {
                    self.app.status.clear();
                }
                let is_first = self.app.data.at == 0.0;
                let is_addition = snapshot.is_addition();
                let rest = snapshot.took * PACE_SHARE;
                self.asked_at = None;
                let written = self.write(&snapshot);
                self.app.apply(*snapshot);
                self.check(written);
                let event = self.app.data.event.as_ref();
                if event.is_some_and(|event| event.kind == "restart") {
                    self.slow_due = Instant::now();
                }
                if is_first {
                    // There is no interval yet.
                    self.due = self.due.min(Instant::now() + Duration::from_millis(500));
                }
                if !is_addition {
                    self.ask_texts();
                }
                // A server that takes long, or to its limit, is not asked at the pace. A key asks at once.
                if !self.is_wanted {
                    self.due = self.due.max(Instant::now() + rest);
                }
            }
            Reply::Lines(call, file, answer) => {
                self.app.is_calling = false;
                self.called_at = None;
                self.app.status = match (answer, file) {
                    (Ok(lines), None) => {
                        self.app.answer(&call, lines.clone());
                        self.app.status.clear();
                        let written = self.write(&self.app.data.snapshot_of_lines(call, lines));
                        self.check(written);
                        std::mem::take(&mut self.app.status)
                    }
                    (Ok(lines), Some(name)) => match write_new(&name, &lines) {
                        Ok(file) => format!("written to {file}{}", self.app.page_note),
                        Err(error) => format!("{name}.html: {error}"),
                    },
                    (Err(text), file) => {
                        if file.is_none() {
                            self.app.answer(&call, vec![text.clone()]);
                        }
                        text
                    }
                };
            }
            Reply::Found(signal, pid, found) => {
                self.app.ask_about(signal, pid, found);
                self.question_at = Instant::now();
            }
            Reply::Said(text) | Reply::Ended(text) => self.app.status = text,
            Reply::Refused(text) => {
                self.asked_at = None;
                self.due = self.due.max(Instant::now() + RETRY);
                self.app.status = text;
            }
            Reply::Down(text) => {
                self.asked_at = None;
                self.last_asked_at = None;
                self.due = Instant::now() + RETRY;
                self.app.trouble = Some(text);
            }
        }
    }

    /// Shows the next refresh of a recording when its time has come.
    fn replay(&mut self) -> io::Result<bool> {
        if self.app.paused || self.app.ended || Instant::now() < self.due {
            return Ok(false);
        }
        let Source::Recording(recording) = &mut self.source else {
            return Ok(false);
        };
        let before = self.app.data.at;
        match recording.next()? {
            Some(snapshot) => {
                let pace = if before == 0.0 {
                    0.2
                } else {
                    (snapshot.at - before).clamp(0.1, 5.0)
                };
                self.app.apply(snapshot);
                self.due = Instant::now() + Duration::from_secs_f64(pace);
            }
            None => self.app.ended = true,
        }
        Ok(true)
    }
}

/// Returns how long lies between refreshes, if that is clearly longer than it is to be.
fn slower(real: Duration, pace: Duration) -> Option<Duration> {
    (real > pace + pace / 5 + TICK).then_some(real)
}

/// Draws a frame as a whole: a terminal that can shows none of it before it is complete, so that it does not
/// flicker through ssh. A terminal without synchronized updates ignores the marks.
pub fn show<W: Write>(
    terminal: &mut Terminal<CrosstermBackend<W>>,
    app: &mut App,
    theme: Theme,
) -> io::Result<()> {
    queue!(terminal.backend_mut(), BeginSynchronizedUpdate)?;
    let drawn = terminal.draw(|frame| draw(frame, app, theme)).map(drop);
    execute!(terminal.backend_mut(), EndSynchronizedUpdate)?;
    drawn
}

/// Writes lines to a file that is not there yet: `NAME.html`, `NAME-2.html` and so on.
fn write_new(name: &str, lines: &[String]) -> io::Result<String> {
    let mut number = 1;
    loop {
        let file = match number {
            1 => format!("{name}.html"),
            _ => format!("{name}-{number}.html"),
        };
        match record::create_new(Path::new(&file)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1_000 => number += 1,
            Err(error) => return Err(error),
            Ok(mut new) => {
                let mut lines = lines.iter();
                let written = lines.try_for_each(|line| writeln!(new, "{line}"));
                // A part of a page is none.
                return match written {
                    Ok(()) => Ok(file),
                    Err(error) => std::fs::remove_file(&file).and(Err(error)),
                };
            }
        }
    }
}

/// Returns a text as base64.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let [a, b, c] = [chunk[0], *chunk.get(1).unwrap_or(&0), *chunk.get(2).unwrap_or(&0)].map(u32::from);
        let bits = a << 16 | b << 8 | c;
        for position in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * position)) as usize & 63];
            text.push(if position > chunk.len() {
                '='
            } else {
                char::from(letter)
            });
        }
    }
    text
}
