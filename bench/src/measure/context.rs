//! The context that an experiment runs in: how much work it does, where it reports progress, and the record
//! that it fills.

use super::machine;
use super::progress::Progress;
use crate::model::chart::BarChart;
use crate::model::check::{Check, Goal, Verdict};
use crate::model::record::{Measured, Record};
use crate::model::sizes::Sizes;
use crate::model::spread::Spread;
use crate::model::table::Table;
use rowsource_tests::Server;
use rowsource_tests::session::texts;
use std::fmt::Display;
use std::time::Instant;

pub struct ExperimentContext<'a> {
    pub sizes: Sizes,
    progress: &'a Progress,
    begun: Instant,
    part: (f64, f64),
    record: Record,
}

impl<'a> ExperimentContext<'a> {
    /// Makes the context of the experiment with this name and question.
    pub fn new(name: &str, question: &str, sizes: Sizes, progress: &'a Progress) -> Self {
        ExperimentContext {
            sizes,
            progress,
            begun: Instant::now(),
            part: (0.0, 1.0),
            record: Record {
                experiment: name.to_string(),
                question: question.to_string(),
                date: machine::now(),
                seconds: 0.0,
                sizes,
                machine: machine::machine(),
                versions: machine::versions(),
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

    /// Begins a part of the experiment. Its start and end are shares of the experiment's time, from 0 to 1.
    pub fn begin_part(&mut self, from: f64, to: f64) {
        self.part = (from, to);
    }

    /// Returns the start and the end of the current part.
    pub fn part(&self) -> (f64, f64) {
        self.part
    }

    /// Shows which share of the part is done, from 0 to 1, and what comes next.
    pub fn at(&self, done: f64, what: &str) {
        let (from, to) = self.part;
        self.progress.at(from + (to - from) * done, what);
    }

    /// Records a setting of the experiment.
    pub fn setting(&mut self, name: &str, value: impl Display) {
        self.record.settings.insert(name.to_string(), value.to_string());
    }

    /// Records the settings of the server's configuration file, except those that name folders of this
    /// machine.
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

    /// Records a sentence on what was found.
    pub fn finding(&mut self, sentence: impl Into<String>) {
        self.record.findings.push(sentence.into());
    }

    pub fn table(&mut self, table: Table) {
        self.record.tables.push(table);
    }

    pub fn plot(&mut self, chart: BarChart) {
        self.record.plots.push(chart);
    }

    /// Records raw values.
    pub fn measured(&mut self, of: impl Into<String>, variant: &str, unit: &str, values: &[f64]) {
        self.record.samples.push(Measured {
            of: of.into(),
            variant: variant.to_string(),
            unit: unit.to_string(),
            values: values.to_vec(),
        });
    }

    /// Records whether an exact value is right. A wrong one fails the run.
    pub fn assert_exact(
        &mut self,
        what: impl Into<String>,
        wanted: impl Display,
        found: impl Display,
        holds: bool,
    ) {
        self.record.checks.push(Check {
            what: what.into(),
            wanted: wanted.to_string(),
            found: found.to_string(),
            exact: true,
            verdict: if holds { Verdict::Met } else { Verdict::Missed },
        });
    }

    /// Records whether a value that depends on times reaches its goal. Quick runs do not judge it.
    pub fn goal(&mut self, what: impl Into<String>, goal: &Goal, found: &Spread) {
        self.record.checks.push(Check {
            what: what.into(),
            wanted: goal.to_string(),
            found: found.as_ratio(),
            exact: false,
            verdict: if self.sizes.quick {
                Verdict::NotJudged
            } else {
                goal.judge(found)
            },
        });
    }

    /// Completes the record and returns it.
    pub fn finish(mut self) -> Record {
        self.record.seconds = self.begun.elapsed().as_secs_f64();
        self.record
    }
}
