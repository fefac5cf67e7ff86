//! The hostile plans of the design, as nodes of a simulated backend. Node 0 is the root.

use super::{Body, Run, body};

/// A node that calls node `child` `calls` times in its only call, with `own` nanoseconds of its own for each.
pub fn aggregate(child: usize, calls: u64, own: f64) -> Body {
    body(move |run: &mut Run, _| {
        for _ in 0..calls {
            run.call(child);
            run.about(own, 0.3);
        }
    })
}

/// A scan at `ns` a row whose every `each`th row costs `long` more.
pub fn scan(ns: f64, each: u64, long: f64) -> Body {
    body(move |run, i| {
        run.about(ns, 0.5);
        if run.nodes[i].calls % each == each / 2 {
            run.about(long, 0.1);
        }
    })
}

/// A node that passes on what its child returns.
pub fn pass(child: usize, own: f64) -> Body {
    body(move |run, _| {
        run.about(own / 2.0, 0.5);
        run.call(child);
        run.about(own / 2.0, 0.5);
    })
}

/// 100 rows out of ten million.
pub fn few_long_calls() -> Vec<Body> {
    vec![aggregate(1, 100, 100.0), scan(5e6, u64::MAX, 0.0)]
}

/// Append over 20 hash joins: each starts with a build, then many cheap rows.
pub fn append_of_joins() -> Vec<Body> {
    vec![
        aggregate(1, 200_000, 30.0),
        pass(2, 20.0),
        body(|run, i| {
            if run.nodes[i].calls % 10_000 == 1 {
                for _ in 0..2000 {
                    run.call(4);
                    run.about(60.0, 0.5);
                }
            }
            // The second half of each partition has no matches: many outer rows for each result.
            let rows = if run.nodes[i].calls % 10_000 < 9_000 {
                1
            } else {
                20
            };
            for _ in 0..rows {
                run.call(3);
                run.about(50.0, 0.5);
            }
        }),
        scan(40.0, 100, 200.0),
        scan(40.0, 100, 200.0),
    ]
}

/// A hash join in 128 batches: long gaps, in which a batch is loaded, between bursts of cheap rows.
pub fn hash_join_in_batches() -> Vec<Body> {
    vec![
        aggregate(1, 256_000, 20.0),
        body(|run, i| {
            if run.nodes[i].calls % 2000 == 7 {
                run.read_block(600_000.0);
            }
            run.about(150.0, 0.6);
        }),
    ]
}

/// A filter at 0.3 us a row, but `long` nanoseconds more at each `each`th.
pub fn rare_long_calls(rows: u64, each: u64, long: f64) -> Vec<Body> {
    vec![aggregate(1, rows, 50.0), scan(300.0, each, long)]
}

/// Each row comes after many that the filter drops.
pub fn few_rows_of_a_costly_filter() -> Vec<Body> {
    vec![
        aggregate(1, 2000, 50.0),
        body(|run, _| {
            let ns = run.exponential(100_000.0);
            run.work(ns);
        }),
    ]
}

/// One call finds the row, the second the end.
pub fn inner_side_called_twice() -> Vec<Body> {
    vec![
        body(|run, _| {
            for _ in 0..200_000 {
                run.call(1);
                run.rescan(2);
                run.call(2);
                run.about(30.0, 0.2);
                run.call(2);
                run.about(30.0, 0.2);
            }
        }),
        scan(60.0, 100, 500.0),
        body(|run, i| {
            let ns = if run.nodes[i].running { 100.0 } else { 1500.0 };
            run.about(ns, 0.2);
        }),
    ]
}

/// Ten million times 30 ns, in small.
pub fn narrow_scan() -> Vec<Body> {
    vec![aggregate(1, 1_000_000, 15.0), scan(30.0, 200, 300.0)]
}

/// Seven nodes, each of which only passes on what is below it.
pub fn deep_pipeline(leaf: f64, own: f64) -> Vec<Body> {
    vec![
        aggregate(1, 150_000, 30.0),
        pass(2, own),
        pass(3, own),
        pass(4, own),
        pass(5, own),
        pass(6, own),
        scan(leaf, 100, 10.0 * leaf),
    ]
}
