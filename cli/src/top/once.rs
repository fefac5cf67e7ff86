//! What is printed once, without a screen.

use std::io::{self, Write, stdout};

use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::{Source, Top};
use crate::draw::{Theme, draw, lines_of};
use crate::queries::Want;
use crate::worker::{Reply, Request, THREAD_ENDED};

/// At most this many rows are printed, and there is room for the head and as many lines of notes.
const MOST_ROWS: usize = 2_000;
const NOTES: usize = 40;

impl Top {
    /// Prints the screen once: after one interval of a server, or at the end of a recording.
    pub fn print(mut self, as_json: bool) -> Result<(), String> {
        match &mut self.source {
            Source::Recording(recording) => {
                while let Some(snapshot) = recording.next().map_err(|error| error.to_string())? {
                    self.app.apply(snapshot);
                }
            }
            Source::Server(_) => {
                // Three times: the nodes that are read follow from the first, and an interval lies between
                // the others.
                self.fetch()?;
                self.fetch()?;
                std::thread::sleep(self.app.interval);
                self.fetch()?;
                self.fetch_texts()?;
            }
        }
        let (table, ..) = self.app.table();
        let text = if as_json {
            format!(
                "{}\n",
                serde_json::to_string_pretty(&crate::json::of(&self.app))
                    .map_err(|error| error.to_string())?
            )
        } else {
            self.screen_text(table.rows.len())?
        };
        match stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    fn fetch(&mut self) -> Result<(), String> {
        let wants = self.app.wants();
        self.fetch_these(wants)
    }

    /// Asks for the texts of what the last interval had.
    fn fetch_texts(&mut self) -> Result<(), String> {
        let texts = self.app.data.wanted_texts().into_iter().collect::<Vec<_>>();
        if !texts.is_empty() && self.app.data.server.has_extension() {
            self.fetch_these(texts)?;
        }
        Ok(())
    }

    fn fetch_these(&mut self, mut wants: Vec<Want>) -> Result<(), String> {
        self.ask_slow(&mut wants);
        if let Source::Server(worker) = &self.source {
            worker.ask(Request::Snapshot(wants));
        }
        let mut is_here = false;
        while !is_here || self.slow_asked_at.is_some() {
            let Source::Server(worker) = &self.source else {
                break;
            };
            match worker.replies.recv() {
                Ok(Reply::Snapshot(snapshot)) => {
                    self.write(&snapshot).map_err(|error| error.to_string())?;
                    self.app.apply(*snapshot);
                    is_here = true;
                }
                Ok(Reply::Slow(answer)) => self.take_slow(answer).map_err(|error| error.to_string())?,
                Ok(Reply::Down(text) | Reply::Said(text) | Reply::Refused(text) | Reply::Ended(text)) => {
                    return Err(text);
                }
                Ok(Reply::Lines(..) | Reply::Found(..)) | Err(_) => return Err(THREAD_ENDED.to_owned()),
            }
        }
        Ok(())
    }

    /// Draws a screen that is as high as it must be.
    fn screen_text(&mut self, rows: usize) -> Result<String, String> {
        let width = crossterm::terminal::size()
            .map_or(120, |(width, _)| width)
            .max(80);
        let height = (rows.min(MOST_ROWS) + NOTES) as u16;
        let mut terminal =
            Terminal::new(TestBackend::new(width, height)).map_err(|error| error.to_string())?;
        let plain = Theme { has_colour: false };
        terminal
            .draw(|frame| draw(frame, &mut self.app, plain))
            .map_err(|error| error.to_string())?;
        let lines = lines_of(terminal.backend().buffer());
        // The last line is for keys. Empty ones stand between the rows and the notes.
        let lines = lines[..lines.len() - 1].iter().filter(|line| !line.is_empty());
        let events = self.app.data.events.iter().map(|event| &event.text);
        let cut = format!("{MOST_ROWS} of {rows} rows: --json prints all of them");
        let cut = (rows > MOST_ROWS).then_some(&cut);
        let lines = lines.chain(cut).chain(events);
        Ok(lines.map(|line| format!("{line}\n")).collect())
    }
}
