//! What an experiment works with: how much of everything it shall do, where it tells how far it is, and the record
//! that it fills.

use crate::experiments::Experiment;
use crate::machine::{self, Machine, Versions};
use crate::progress::Progress;
use crate::record::{Bars, Check, Measured, Record, Table, Verdict};
use rowsource_tests::Server;
use rowsource_tests::session::texts;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::Instant;

/// How much an experiment does.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    /// As little as shows that it works.
    pub quick: bool,
    /// So many times the rows.
    pub scale: f64,
    /// So many times the rounds.
    pub repeat: f64,
}

impl Sizes {
    /// A number of rows or loops.
    pub fn of(&self, quick: u64, full: u64) -> u64 {
        if self.quick {
            quick
        } else {
            ((full as f64 * self.scale).round() as u64).max(1)
        }
    }

    /// A number of rounds.
    pub fn rounds(&self, quick: usize, full: usize) -> usize {
        if self.quick {
            quick
        } else {
            ((full as f64 * self.repeat).round() as usize).max(1)
        }
    }

    /// About how long an experiment takes that takes so long at its full size.
    pub fn of_seconds(&self, full: f64) -> f64 {
        if self.quick {
            full / 8.0
        } else {
            full * self.scale.max(0.2) * self.repeat.max(0.2)
        }
    }
}

/// One experiment under way.
pub struct Lab<'a> {
    pub sizes: Sizes,
    progress: &'a Progress,
    begun: Instant,
    part: (f64, f64),
    record: Record,
}

impl<'a> Lab<'a> {
    pub fn new(experiment: &Experiment, sizes: Sizes, progress: &'a Progress) -> Self {
        Lab {
            sizes,
            progress,
            begun: Instant::now(),
            part: (0.0, 1.0),
            record: Record {
                experiment: experiment.name.to_string(),
                question: experiment.question.to_string(),
                date: machine::now(),
                seconds: 0.0,
                sizes,
                machine: Machine::this(),
                versions: Versions::these(),
                settings: Default::default(),
                server_settings: Default::default(),
                findings: Vec::new(),
                tables: Vec::new(),
                plots: Vec::new(),
                checks: Vec::new(),
                samples: Vec::new(),
            },
        }
    }

    /// What follows is this part of the experiment's time, from 0 to 1.
    pub fn part(&mut self, from: f64, to: f64) {
        self.part = (from, to);
    }

    /// The part under way.
    pub fn the_part(&self) -> (f64, f64) {
        self.part
    }

    /// So much of the part is done, and this comes now.
    pub fn at(&self, done: f64, what: &str) {
        let (from, to) = self.part;
        self.progress.at(from + (to - from) * done, what);
    }

    /// Remembers a setting that matters.
    pub fn setting(&mut self, name: &str, value: impl Display) {
        self.record.settings.insert(name.to_string(), value.to_string());
    }

    /// Remembers what the server's configuration file sets, but for what tells of this machine's folders.
    pub fn server(&mut self, server: &Server) {
        let rows = texts(
            &mut server.connect(),
            "SELECT name, current_setting(name) FROM pg_settings
             WHERE source = 'configuration file' AND category !~ '^(File Locations|Reporting|Client Connection|Connections)'
             ORDER BY name",
        );
        for row in rows {
            let mut cells = row.into_iter().map(Option::unwrap_or_default);
            if let (Some(name), Some(value)) = (cells.next(), cells.next()) {
                self.record.server_settings.insert(name, value);
            }
        }
    }

    /// A sentence on what was found.
    pub fn finding(&mut self, sentence: impl Into<String>) {
        self.record.findings.push(sentence.into());
    }

    pub fn table(&mut self, table: Table) {
        self.record.tables.push(table);
    }

    pub fn plot(&mut self, plot: Bars) {
        self.record.plots.push(plot);
    }

    /// Keeps raw values.
    pub fn measured(&mut self, of: impl Into<String>, variant: &str, unit: &str, values: &[f64]) {
        self.record.samples.push(Measured {
            of: of.into(),
            variant: variant.to_string(),
            unit: unit.to_string(),
            values: values.to_vec(),
        });
    }

    /// What must be so whatever else the machine does: if not, the run has failed.
    pub fn must(&mut self, what: impl Into<String>, wanted: impl Display, found: impl Display, so: bool) {
        self.check(what.into(), wanted, found, true, Some(so));
    }

    /// A goal that depends on times, which is not judged in a quick run.
    pub fn aim(&mut self, what: impl Into<String>, wanted: impl Display, found: impl Display, so: bool) {
        let judged = (!self.sizes.quick).then_some(so);
        self.check(what.into(), wanted, found, false, judged);
    }

    fn check(
        &mut self,
        what: String,
        wanted: impl Display,
        found: impl Display,
        must: bool,
        so: Option<bool>,
    ) {
        self.record.checks.push(Check {
            what,
            wanted: wanted.to_string(),
            found: found.to_string(),
            must,
            verdict: match so {
                Some(true) => Verdict::Met,
                Some(false) => Verdict::Missed,
                None => Verdict::NotJudged,
            },
        });
    }

    /// The record, complete.
    pub fn finish(mut self) -> Record {
        self.record.seconds = self.begun.elapsed().as_secs_f64();
        self.record
    }
}
