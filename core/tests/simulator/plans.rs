//! The adversarial plans of the design, as nodes of a simulated backend. Node 0 is the root.

use super::{Body, Run, body};

/// Returns a node that calls node `child` `calls` times in its only call, with `own` nanoseconds of its own
/// for each.
pub fn aggregate(child: usize, calls: u64, own: f64) -> Body {
    body(move |run: &mut Run, _| {
        for _ in 0..calls {
            run.call(child);
            run.about(own, 0.3);
        }
    })
}

/// Returns a scan of `ns` a row, whose every `each`th row takes `long` more.
pub fn scan(ns: f64, each: u64, long: f64) -> Body {
    body(move |run, i| {
        run.about(ns, 0.5);
        if run.nodes[i].calls % each == each / 2 {
            run.about(long, 0.1);
        }
    })
}

/// Returns a node that passes on the rows of its child.
pub fn pass(child: usize, own: f64) -> Body {
    body(move |run, _| {
        run.about(own / 2.0, 0.5);
        run.call(child);
        run.about(own / 2.0, 0.5);
    })
}

/// Returns a scan of 100 out of ten million rows.
pub fn few_long_calls() -> Vec<Body> {
    vec![aggregate(1, 100, 100.0), scan(5e6, u64::MAX, 0.0)]
}

/// Returns an Append over 20 hash joins: each starts with a build, followed by many cheap rows.
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

/// Returns a hash join in 128 batches: bursts of cheap rows, and long gaps to load a batch between them.
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

/// Returns a filter of 0.3 us a row, and `long` nanoseconds more at each `each`th row.
pub fn rare_long_calls(rows: u64, each: u64, long: f64) -> Vec<Body> {
    vec![aggregate(1, rows, 50.0), scan(300.0, each, long)]
}

/// Returns a scan whose filter removes many rows before each returned row.
pub fn few_rows_of_a_costly_filter() -> Vec<Body> {
    vec![
        aggregate(1, 2000, 50.0),
        body(|run, _| {
            let ns = run.exponential(100_000.0);
            run.work(ns);
        }),
    ]
}

/// Returns a loop whose inner side is called twice: the first call finds the row, the second the end.
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

/// Returns a scan of 30 ns a row: ten million rows, scaled down.
pub fn narrow_scan() -> Vec<Body> {
    vec![aggregate(1, 1_000_000, 15.0), scan(30.0, 200, 300.0)]
}

/// Returns seven nodes, each of which only passes on the rows of the node below it.
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
