//! A model of another shape of a short statement: the nodes of a pooled statement keep counting from one
//! execution to the next. The start of an execution copies the counters, so the last execution is a
//! difference, and its end adds nothing of the nodes. Readers take the counters where they lie.
//!
//! Callgrind counts the instructions of both, without those that both need: hooks, clocks, texts, waits.
//! `bench/README.md` says what it gave.

#[allow(dead_code, reason = "other tests use the rest")]
mod pooled {
    pub mod common;
    pub mod model;
    pub mod today;
}

use pooled::common::{Call, Execution, Taken, run};
use pooled::{model, today};
use rand_core::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::process::Command;

/// Whatever executions do, and whenever somebody reads, also while one runs: each execution is read once, and
/// the last one is known.
#[test]
fn the_model_loses_nothing_and_counts_nothing_twice() {
    for nodes in 1..=8 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(nodes as u64);
        let mut model = model::Session::new(nodes);
        let mut expected = vec![Taken::default(); nodes];
        for at in 0..3_000 {
            let execution = Execution::random(&mut random, nodes);
            let of_each: Vec<Taken> = execution.nodes.iter().map(Taken::of).collect();
            model.begin();
            model.count(&execution);
            if random.next_u64() % 5 == 0 {
                assert_eq!(
                    model.take(),
                    expected,
                    "while execution {at} of {nodes} nodes runs"
                );
                expected.fill(Taken::default());
            }
            model.end(&run(at), execution.is_simple);
            if execution.is_simple {
                assert_eq!(model.last(), of_each, "execution {at} of {nodes} nodes");
                expected
                    .iter_mut()
                    .zip(&of_each)
                    .for_each(|(sum, more)| sum.add(more));
            }
        }
        assert_eq!(model.take(), expected);
        assert_eq!(model.take(), vec![Taken::default(); nodes]);
    }
}

/// What the counted runs execute, and how often: two numbers, so that what happens once does not count.
const RUNS: [u64; 2] = [1_000, 3_000];

/// Runs one shape, for callgrind.
#[test]
#[ignore = "callgrind counts it"]
fn counted() {
    let of = |name: &str| std::env::var(name).expect(name);
    let (shape, nodes): (String, usize) = (of("POOLED_SHAPE"), of("POOLED_NODES").parse().unwrap());
    let execution = Execution::lookup(
        nodes,
        &[
            Call {
                ns: 900.0,
                ticks: 2_000.0,
            },
            Call {
                ns: 150.0,
                ticks: 300.0,
            },
        ],
    );
    let times: u64 = of("POOLED_RUNS").parse().unwrap();
    let (mut library, mut model) = (today::Session::new(nodes), model::Session::new(nodes));
    for at in 0..times as i64 {
        match shape.as_str() {
            "library" => today::execute(&mut library, &execution, &run(at)),
            _ => model::execute(&mut model, &execution, &run(at)),
        }
    }
}

/// `cargo test -p rowsource-core --release --test pooled instructions -- --ignored --nocapture`
#[test]
#[ignore = "it needs valgrind"]
fn instructions() {
    let count = |shape: &str, nodes: usize, part: &str| {
        let of_runs = RUNS.map(|runs| {
            let output = std::env::temp_dir().join(format!("pooled-{}", std::process::id()));
            let ran = Command::new("valgrind")
                .args([
                    "--tool=callgrind",
                    "--error-exitcode=1",
                    &format!("--toggle-collect=*{part}*"),
                ])
                .arg(format!("--callgrind-out-file={}", output.display()))
                .arg(std::env::current_exe().expect("this program"))
                .args(["--exact", "counted", "--ignored", "--test-threads=1"])
                .env("POOLED_SHAPE", shape)
                .env("POOLED_NODES", nodes.to_string())
                .env("POOLED_RUNS", runs.to_string())
                .output()
                .expect("valgrind can be run");
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            let counts = std::fs::read_to_string(&output).expect("its counts");
            let _ = std::fs::remove_file(&output);
            let total = counts
                .lines()
                .find_map(|line| line.strip_prefix("totals: "))
                .expect("a total");
            total.trim().parse::<f64>().expect("a number")
        });
        (of_runs[1] - of_runs[0]) / (RUNS[1] - RUNS[0]) as f64
    };
    println!("| nodes | part | library | model |\n|---|---|---:|---:|");
    for nodes in [1, 3] {
        let mut sums = [0.0; 2];
        for part in ["start_nodes", "count_calls", "end_nodes"] {
            let counts = ["library", "model"].map(|shape| count(shape, nodes, &format!("{shape}_{part}")));
            assert!(counts.iter().all(|count| *count > 0.0), "{part}: {counts:?}");
            println!("| {nodes} | {part} | {:.0} | {:.0} |", counts[0], counts[1]);
            sums = [sums[0] + counts[0], sums[1] + counts[1]];
        }
        println!("| {nodes} | all | {:.0} | {:.0} |", sums[0], sums[1]);
    }
}
