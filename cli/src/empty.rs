//! What it means that a list has no rows, and what would fill it.

use crate::data::Data;
use crate::format::time;
use crate::screens::{Screen, View};

impl Screen {
    /// Says why it has no rows.
    pub fn empty(&self, data: &Data) -> String {
        let Self::List(view) = self else {
            return "nothing to show".to_owned();
        };
        let what = match view {
            _ if !data.server.has_extension() => {
                "no session but this one is at work; idle ones are not listed"
            }
            View::Statements => "no measured statement has ended in this interval",
            View::Nodes => "no statement with a plan has ended in this interval",
            View::Live => {
                return format!(
                    "no measured statement runs now; {} has the others",
                    View::Sessions.key()
                );
            }
            View::Activity => {
                "no session was active in the last minute, or none is sampled (pg_rowsource.history_frequency)"
            }
            View::Findings => return findings(data),
            View::Waits => "no wait has ended in this interval",
            View::Temp => {
                "no temporary file is there now; column temp of 1 statements has the blocks of those that have ended"
            }
            View::Locks => "no session waits for a lock that another one holds",
            View::Sessions => "no session but this one is at work; idle ones are not listed",
        };
        what.to_owned()
    }
}

/// Says for how long the server has looked for statements that became slower.
fn findings(data: &Data) -> String {
    let since = data.server.reset.map(|reset| data.at - reset);
    let since = since.filter(|seconds| *seconds >= 0.0);
    let since = since.map_or_else(String::new, |seconds| {
        format!(" in the {} since the statistics began", time(seconds * 1e3))
    });
    format!("no statement has become slower{since}; the server looks each minute")
}
