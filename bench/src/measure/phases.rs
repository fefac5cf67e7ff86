//! Counts a statement's instructions by phase with callgrind. The phases are the executor's four entry
//! functions, which call the hooks of every extension, and everything else. The statement runs in a PL/pgSQL
//! loop.

use rowsource_tests::callgrind::profile;
use std::path::Path;

/// Two numbers of loops. The difference of their counts gives the cost of one loop.
const LOOPS: [u32; 2] = [100, 400];
const ENTRIES: [&str; 4] = ["ExecutorStart", "ExecutorRun", "ExecutorFinish", "ExecutorEnd"];

/// The names of the phases, as columns of a table.
pub const NAMES: [&str; 6] = ["start", "run", "finish", "end", "elsewhere", "in all"];

/// The instructions of one statement, in the order of [`NAMES`].
#[derive(Clone, Copy)]
pub struct Phases(pub [f64; NAMES.len()]);

impl Phases {
    /// Returns how many instructions more than the base this has.
    pub fn over(&self, base: &Phases) -> Phases {
        Phases(std::array::from_fn(|i| self.0[i] - base.0[i]))
    }

    pub fn total(&self) -> f64 {
        self.0[NAMES.len() - 1]
    }

    pub fn run(&self) -> f64 {
        self.0[1]
    }
}

/// Counts the instructions of one loop of `body`, in a backend over this data with these settings.
///
/// `body` is a PL/pgSQL statement that may use `i` and the variables of `declare`. `before` holds statements
/// that run first; an empty line ends each. PL/pgSQL fetches the rows of a cursor by tens after a BEGIN in
/// `before`, and one by one without it, since the loop itself could then COMMIT.
pub fn of_one(data: &Path, settings: &[&str], before: &str, declare: &str, body: &str) -> Phases {
    let count = |loops: u32| {
        let script = format!(
            "SET plan_cache_mode = force_generic_plan;\n\n{before}\
             DO $$DECLARE {declare} BEGIN FOR i IN 1..{loops} LOOP {body} END LOOP; END$$;\n\n"
        );
        profile(data, settings, &script)
    };
    let [few, many] = LOOPS.map(count);
    let a_loop = |few: u64, many: u64| (many as f64 - few as f64) / f64::from(LOOPS[1] - LOOPS[0]);
    let entries = ENTRIES.map(|entry| a_loop(few.within(entry), many.within(entry)));
    let all = a_loop(few.total, many.total);
    assert!(
        entries.iter().all(|&instructions| instructions > 0.0),
        "callgrind's output lacks an entry of the executor: {entries:?}"
    );
    let [start, run, finish, end] = entries;
    Phases([start, run, finish, end, all - entries.iter().sum::<f64>(), all])
}
