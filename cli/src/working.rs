//! What works now, said on the lists of what has ended: a statement that runs or waits for long is on none of
//! them before it ends.

use crate::data::Data;
use crate::format::time;
use crate::model::Working;
use crate::queries::Want;

/// The keys of the views that show more, with their names.
pub const LIVE: &str = "3 live";
pub const LOCKS: &str = "8 locks";
pub const SESSIONS: &str = "9 sessions";
/// How many seconds at least lie between two questions for the same, however often the screen is refreshed.
const BESIDE_SECONDS: f64 = 2.0;

impl Data {
    /// Returns whether so many seconds will nearly have gone since a part came, when the next refresh comes.
    /// After the server's clock was set back, it is not known how many have gone.
    fn is_due(&self, came: f64, seconds: f64) -> bool {
        came == 0.0 || self.at < came || self.at + self.step - came > seconds - 0.1
    }

    /// Returns what processes do now, if it is time to ask. The first frame is not to wait for that.
    pub fn wanted_working(&self) -> Option<Want> {
        (self.at > 0.0 && self.is_due(self.working.0, BESIDE_SECONDS)).then_some(Want::Working)
    }

    /// Returns the activity, if it is time to ask.
    pub fn wanted_activity(&self) -> Option<Want> {
        self.is_due(self.activity_at, BESIDE_SECONDS)
            .then_some(Want::Activity)
    }

    /// Returns what processes do now, if that is known.
    pub fn working(&self) -> Option<&[Working]> {
        (self.at - self.working.0 < BESIDE_SECONDS + 0.1).then_some(&self.working.1[..])
    }
}

/// Says how many statements still run that have run for a second, and where they are shown.
pub fn statements(data: &Data) -> Option<String> {
    let working = data.working()?;
    let count = |is_it: fn(&str) -> bool| -> f64 {
        let rows = working.iter();
        let rows = rows.filter(|row| is_it(row.class.as_deref().unwrap_or_default()));
        rows.map(|row| row.statements).sum()
    };
    let (all, blocked) = (count(|_| true), count(|class| class == "Lock"));
    let longest = working.iter().filter_map(|row| row.longest).fold(0.0, f64::max);
    let still = match all {
        0.0 => return None,
        1.0 => format!("1 statement still runs, for {}", time(longest)),
        _ => format!("{all:.0} statements still run, the longest for {}", time(longest)),
    };
    let keys = [LIVE, SESSIONS].join(", ");
    let locks = LOCKS;
    let blocked = match blocked {
        0.0 => String::new(),
        1.0 if all == 1.0 => format!("; it waits for a lock: {locks}"),
        1.0 => format!("; one waits for a lock: {locks}"),
        _ if blocked == all => format!("; all wait for a lock: {locks}"),
        _ => format!("; {blocked:.0} wait for a lock: {locks}"),
    };
    Some(format!("{still}: {keys}{blocked}"))
}

/// Says what processes wait for now, first what the longest statement waits for.
pub fn waits(data: &Data) -> Option<String> {
    const MOST: usize = 6;
    let mut rows: Vec<_> = { data.working()?.iter() }
        .filter(|row| row.class.is_some())
        .collect();
    let longest = |row: &Working| row.longest.unwrap_or(0.0);
    rows.sort_by(|a, b| longest(b).total_cmp(&longest(a)));
    let more = rows.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("{more} more events"));
    let says = rows.iter().take(MOST).map(|row| {
        let names = [row.class.as_deref(), row.event.as_deref()];
        let name = names.into_iter().flatten().collect::<Vec<_>>().join(" ");
        let runs = row.longest.map_or_else(String::new, |longest| {
            format!(" (statement of {})", time(longest))
        });
        format!("{:.0} {name}{runs}", row.processes)
    });
    let says: Vec<_> = says.chain(more).collect();
    Some(if says.is_empty() {
        "no process waits now".to_owned()
    } else {
        format!(
            "waiting now, in no figure above: {}; see {}",
            says.join(", "),
            SESSIONS
        )
    })
}

/// Says how many statements have run for a second and have no plan among those that run.
pub fn without_plans(data: &Data) -> Option<String> {
    let more: f64 = data.working()?.iter().map(|row| row.planless).sum();
    let keys = [LOCKS, SESSIONS].join(", ");
    let runs = if more == 1.0 {
        "statement runs"
    } else {
        "statements run"
    };
    let why = "not measured, or waiting for a lock before the start";
    (more > 0.0).then(|| format!("{more:.0} more {runs} without a plan ({why}): {keys}"))
}
