//! Where a statement's instructions go: to the executor's four entries, through which every extension's hooks are
//! called, or elsewhere. Counted by callgrind for a statement in a PL/pgSQL loop.

use rowsource_tests::callgrind::profile;
use std::path::Path;

/// The two numbers of loops between which one is counted.
const LOOPS: [u32; 2] = [100, 400];
const ENTRIES: [&str; 4] = ["ExecutorStart", "ExecutorRun", "ExecutorFinish", "ExecutorEnd"];

/// The columns of a table of phases.
pub const NAMES: [&str; 6] = ["start", "run", "finish", "end", "elsewhere", "in all"];

/// Instructions of one statement, in the order of [`NAMES`].
#[derive(Clone, Copy, Debug)]
pub struct Phases(pub [f64; NAMES.len()]);

impl Phases {
    /// What this has more than another.
    pub fn over(&self, base: &Phases) -> Phases {
        Phases(std::array::from_fn(|i| self.0[i] - base.0[i]))
    }

    pub fn in_all(&self) -> f64 {
        self.0[NAMES.len() - 1]
    }

    pub fn run(&self) -> f64 {
        self.0[1]
    }
}

/// What one loop of `body` costs, a PL/pgSQL statement that may use `i` and the variables of `declare`, in a backend
/// over this data with these settings, after the statements `before` (each ended by an empty line). After BEGIN the
/// rows of its cursors are fetched by tens; where the loop itself could COMMIT, one by one.
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
        "the executor's entries are not to be found in callgrind's output: {entries:?}"
    );
    let [start, run, finish, end] = entries;
    Phases([start, run, finish, end, all - entries.iter().sum::<f64>(), all])
}
