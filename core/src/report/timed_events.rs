//! Formats the "Top timed events" of an interval, as in Oracle's AWR report.

use super::iostat::Unreadable;
use super::table::{self, Align, Column};
use serde::Deserialize;

/// How many events a table shows.
const SHOWN: usize = 10;

/// The waits of a type of processes for an event in the interval.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct EventWaits {
    /// The type of the processes.
    pub backend_type: String,
    /// The type of the event; `None` if it has no counters of its own.
    pub wait_event_type: Option<String>,
    /// The event.
    pub wait_event: String,
    /// The number of waits.
    pub waits: u64,
    /// Their total time in milliseconds.
    pub wait_time: f64,
}

impl EventWaits {
    /// Returns whether a session waits because nobody wants anything from it.
    fn is_idle(&self) -> bool {
        match self.wait_event_type.as_deref() {
            Some("Activity") => true,
            Some("Client") => self.wait_event == "ClientRead",
            // So do background workers of extensions in their main loops.
            Some("Extension") => self.wait_event == "Extension" && self.backend_type == "background worker",
            _ => false,
        }
    }

    /// Returns whether the wait is part of the database time, which is that of sessions of clients.
    fn is_foreground(&self) -> bool {
        self.backend_type == "client backend"
    }
}

/// A row of a table.
struct Row {
    event: String,
    of: String,
    waits: Option<u64>,
    ms: f64,
}

impl Row {
    fn of(event: &EventWaits) -> Row {
        Row {
            event: event.wait_event.clone(),
            of: event.wait_event_type.clone().unwrap_or_default(),
            waits: Some(event.waits),
            ms: event.wait_time,
        }
    }
}

/// Returns the lines of a table of the rows that took the most time. Percentages are of `whole` milliseconds.
fn lines(mut rows: Vec<Row>, name: &'static str, whole: Option<f64>) -> Vec<String> {
    rows.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    if rows.len() > SHOWN + 1 {
        let others = rows.split_off(SHOWN);
        rows.push(Row {
            event: format!("{} others", others.len()),
            of: String::new(),
            waits: Some(others.iter().filter_map(|row| row.waits).sum()),
            ms: others.iter().map(|row| row.ms).sum(),
        });
    }
    let column = |heading, align, cell: &dyn Fn(&Row) -> String| {
        Column::new(heading, align, 0, rows.iter().map(cell).collect())
    };
    let mut columns = vec![
        column(name, Align::Left, &|row| row.event.clone()),
        column("Type", Align::Left, &|row| row.of.clone()),
        column("Waits", Align::Right, &|row| {
            row.waits.map(|waits| waits.to_string()).unwrap_or_default()
        }),
        column("Total time", Align::Right, &|row| {
            format!("{:.3} s", row.ms / 1e3)
        }),
        column("Mean time", Align::Right, &|row| match row.waits {
            Some(waits) if waits > 0 => format!("{:.3} ms", row.ms / waits as f64),
            _ => String::new(),
        }),
    ];
    if let Some(whole) = whole {
        columns.push(column("% of database time", Align::Right, &|row| {
            format!("{:.1}", 100.0 * row.ms / whole)
        }));
    }
    table::lines(&columns, 1)
}

/// Returns the report of an interval. `json` is an array of [`EventWaits`]. `active_ms` is how long the
/// statements took that ended in it.
///
/// # Errors
/// `json` is not an array of this type.
pub fn report(active_ms: Option<f64>, json: &str) -> Result<Vec<String>, Unreadable> {
    let events: Vec<EventWaits> =
        serde_json::from_str(json).map_err(|error| Unreadable::new(error.to_string()))?;
    let events: Vec<EventWaits> = events.into_iter().filter(|event| !event.is_idle()).collect();
    let (foreground, background): (Vec<_>, Vec<_>) = events.iter().partition(|event| event.is_foreground());
    let waited: f64 = foreground.iter().map(|event| event.wait_time).sum();
    // The waits of statements that go on are counted, but these statements' times are not.
    let whole = active_ms.map(|active| active.max(waited)).filter(|&ms| ms > 0.0);
    let mut rows: Vec<Row> = foreground.into_iter().map(Row::of).collect();
    if let Some(whole) = whole {
        rows.push(Row {
            event: "busy".to_owned(),
            of: String::new(),
            waits: None,
            ms: whole - waited,
        });
    }
    let mut report = match whole {
        Some(whole) => vec![format!("database time: {:.3} s", whole / 1e3)],
        None => Vec::new(),
    };
    report.extend(lines(rows, "Event", whole));
    report.extend(lines(
        background.into_iter().map(Row::of).collect(),
        "Event of other processes",
        None,
    ));
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(events: &[(&str, Option<&str>, &str, u64, f64)]) -> String {
        let events: Vec<String> = events
            .iter()
            .map(|(of, kind, event, waits, ms)| {
                let kind = kind.map_or("null".to_owned(), |kind| format!("{kind:?}"));
                format!(
                    "{{\"backend_type\": {of:?}, \"wait_event_type\": {kind}, \"wait_event\": {event:?},
                       \"waits\": {waits}, \"wait_time\": {ms}}}"
                )
            })
            .collect();
        format!("[{}]", events.join(","))
    }

    #[test]
    fn shares_are_of_the_database_time() {
        let events = json(&[
            ("client backend", Some("Lock"), "transactionid", 10, 600.0),
            ("client backend", Some("Client"), "ClientRead", 1000, 90_000.0),
            ("client backend", None, "other", 1, 150.0),
            ("checkpointer", Some("IO"), "DataFileSync", 2, 30.0),
            ("checkpointer", Some("Activity"), "CheckpointerMain", 2, 99_000.0),
            ("background worker", Some("Extension"), "Extension", 2, 99_000.0),
        ]);
        let lines = report(Some(1000.0), &events).expect("a report");
        assert_eq!(
            lines,
            [
                "database time: 1.000 s",
                "-------------------------------------------------------------------------------",
                "| Event         | Type | Waits | Total time |  Mean time | % of database time |",
                "-------------------------------------------------------------------------------",
                "| transactionid | Lock |    10 |    0.600 s |  60.000 ms |               60.0 |",
                "| busy          |      |       |    0.250 s |            |               25.0 |",
                "| other         |      |     1 |    0.150 s | 150.000 ms |               15.0 |",
                "-------------------------------------------------------------------------------",
                "--------------------------------------------------------------------",
                "| Event of other processes | Type | Waits | Total time | Mean time |",
                "--------------------------------------------------------------------",
                "| DataFileSync             | IO   |     2 |    0.030 s | 15.000 ms |",
                "--------------------------------------------------------------------",
            ]
        );
        // A statement that goes on has waited for longer than all statements took that have ended.
        let lines = report(Some(100.0), &events).expect("a report");
        assert_eq!(lines[0], "database time: 0.750 s");
        assert!(report(None, "[]").is_ok_and(|lines| !lines.concat().contains("NaN")));
        assert!(report(None, "nonsense").is_err());
    }

    #[test]
    fn rare_events_add_up() {
        let names: Vec<String> = (0..30).map(|i| format!("event{i:02}")).collect();
        let events: Vec<_> = (1u32..)
            .zip(&names)
            .map(|(ms, name)| ("client backend", Some("IPC"), name.as_str(), 1, f64::from(ms)))
            .collect();
        let lines = report(Some(465.0), &json(&events)).expect("a report");
        let shown = &lines[4..lines.len() - 5];
        assert_eq!(shown.len(), SHOWN + 1);
        assert!(
            shown[0].contains("event29") && shown[SHOWN].contains("21 others"),
            "{shown:#?}"
        );
    }
}
