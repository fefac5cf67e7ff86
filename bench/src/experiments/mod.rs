//! The experiments, in the order in which they run.

mod accuracy;
mod beats;
mod clocks;
mod history;
mod instructions;
mod lookup;
mod peers;
mod progress;
mod regressions;
mod sampfreq;
mod trace_cost;
mod waits;
mod wal_volume;
mod workloads;

use crate::measure::context::ExperimentContext;

pub struct Experiment {
    pub name: &'static str,
    pub question: &'static str,
    /// About how many seconds it takes at full size on two cores of 2.3 GHz.
    pub seconds: f64,
    pub run: fn(&mut ExperimentContext),
}

pub const ALL: &[Experiment] = &[
    Experiment {
        name: "instructions",
        question: "How many instructions does measuring take, per call of a node and per statement?",
        seconds: 60.0,
        run: instructions::run,
    },
    Experiment {
        name: "sampfreq",
        question: "What does sampled timing cost two scans of narrow rows, and how often is the clock read?",
        seconds: 220.0,
        run: sampfreq::run,
    },
    Experiment {
        name: "clocks",
        question: "What does each clock source cost the same scans?",
        seconds: 180.0,
        run: clocks::run,
    },
    Experiment {
        name: "peers-analytical",
        question: "What does measuring cost TPC-H's queries over small tables, compared with EXPLAIN (ANALYZE) and other extensions?",
        seconds: 240.0,
        run: peers::analytical::run,
    },
    Experiment {
        name: "tpch",
        question: "What does measuring cost TPC-H's queries at scale factor 1, serial and parallel?",
        seconds: 1200.0,
        run: peers::analytical::run_large,
    },
    Experiment {
        name: "tpch-instructions",
        question: "How many instructions does measuring TPC-H's queries take?",
        seconds: 240.0,
        run: peers::counted::run,
    },
    Experiment {
        name: "peers-pgbench",
        question: "What does measuring cost short transactions, compared with other extensions?",
        seconds: 360.0,
        run: peers::pgbench::run,
    },
    Experiment {
        name: "many",
        question: "What does measuring cost sixteen sessions that run one statement, or statements of 10,000 shapes?",
        seconds: 180.0,
        run: peers::many::run,
    },
    Experiment {
        name: "workloads",
        question: "What does measuring cost procedures full of cursors, and where does that cost come from?",
        seconds: 240.0,
        run: workloads::run,
    },
    Experiment {
        name: "lookup",
        question: "What do a million lookups in a loop cost, and does the view show the time of a pgaudit that audits nothing?",
        seconds: 180.0,
        run: lookup::run,
    },
    Experiment {
        name: "accuracy",
        question: "How far is the estimated time from the true time, and how far would sampling at fixed intervals be?",
        seconds: 225.0,
        run: accuracy::run,
    },
    Experiment {
        name: "accuracy-narrow",
        question: "How far is the estimated time of narrow scans from the one that samples of the unmeasured statement's stack tell?",
        seconds: 90.0,
        run: accuracy::run_narrow,
    },
    Experiment {
        name: "wal-volume",
        question: "How much WAL does each way to insert rows write, and in which node?",
        seconds: 150.0,
        run: wal_volume::run,
    },
    Experiment {
        name: "waits",
        question: "What does counting waits cost, and does pg_wait_sampling see the same ones?",
        seconds: 330.0,
        run: waits::run,
    },
    Experiment {
        name: "progress",
        question: "How far is rowsource_progress from the truth, with the planner right and wrong?",
        seconds: 240.0,
        run: progress::shapes::run,
    },
    Experiment {
        name: "progress-tpch",
        question: "How far is it from the truth in analytical statements of ten seconds and more, with the planner right and 100 times wrong?",
        seconds: 1200.0,
        run: progress::tpch::run,
    },
    Experiment {
        name: "history",
        question: "What does the active session history cost: its worker with 100 sessions, and the sessions?",
        seconds: 400.0,
        run: history::run,
    },
    Experiment {
        name: "beats",
        question: "What do beats cost: the worker that makes them, and a session that takes them?",
        seconds: 360.0,
        run: beats::run,
    },
    Experiment {
        name: "causes",
        question: "Is the cause named that was planted, and none where nothing was?",
        seconds: 1500.0,
        run: regressions::run_causes,
    },
    Experiment {
        name: "regressions",
        question: "How often are executions of an unchanged plan called a regression, split at a random moment?",
        seconds: 300.0,
        run: regressions::run_splits,
    },
    Experiment {
        name: "trace-cost",
        question: "What does the SQL trace cost a procedure full of cursors?",
        seconds: 60.0,
        run: trace_cost::run,
    },
];

/// Returns the names of all experiments, in the order of the report.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|experiment| experiment.name)
}

/// Returns the experiments whose names begin with one of these words, or all of them if there are no words.
pub fn chosen(what: &[String]) -> Result<Vec<&'static Experiment>, String> {
    let words: Vec<&str> = what
        .iter()
        .flat_map(|words| words.split([',', ' ']))
        .filter(|word| !word.is_empty())
        .collect();
    let fits = |experiment: &Experiment, word: &str| experiment.name.starts_with(word);
    if let Some(word) = words.iter().find(|word| !ALL.iter().any(|one| fits(one, word))) {
        let names: Vec<&str> = names().collect();
        return Err(format!(
            "no experiment \"{word}\"; there are {}",
            names.join(", ")
        ));
    }
    let wanted = |one: &&Experiment| words.is_empty() || words.iter().any(|word| fits(one, word));
    Ok(ALL.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_names(what: &[&str]) -> Result<Vec<&'static str>, String> {
        let what: Vec<String> = what.iter().map(|word| word.to_string()).collect();
        chosen(&what).map(|chosen| chosen.iter().map(|one| one.name).collect())
    }

    #[test]
    fn chosen_by_name() {
        assert_eq!(chosen_names(&[]).unwrap().len(), ALL.len());
        assert_eq!(
            chosen_names(&["peers"]).unwrap(),
            ["peers-analytical", "peers-pgbench"]
        );
        assert_eq!(chosen_names(&["wal,clocks"]).unwrap(), ["clocks", "wal-volume"]);
        assert!(
            chosen_names(&["wal-volume", "speed"])
                .unwrap_err()
                .contains("accuracy")
        );
    }
}
