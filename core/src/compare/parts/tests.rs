use super::*;

fn node(depth: usize, parent: Option<usize>, name: &str) -> Node {
    let (operation, object) = match name.split_once(" on ") {
        Some((operation, object)) => (operation, Some(object.to_owned())),
        None => (name, None),
    };
    let (operation, index) = match operation.split_once(" using ") {
        Some((operation, index)) => (operation, Some(index.to_owned())),
        None => (operation, None),
    };
    Node {
        parent,
        depth,
        operation: operation.to_owned(),
        table: index.as_ref().and(object.clone()),
        object: index.or(object),
        starts: 10,
        processes: 1.0,
        ..Node::default()
    }
}

/// Returns ten executions of an aggregate over a scan.
fn side(scan: &str, self_ms: f64, rows: u64) -> Side {
    let mut side = Side {
        executions: 10,
        total_ms: self_ms + 10.0,
        nodes: vec![node(0, None, "Aggregate"), node(1, Some(0), scan)],
        ..Side::default()
    };
    side.nodes[0].self_ms = 10.0;
    side.nodes[0].handled_rows = 10;
    side.nodes[1].self_ms = self_ms;
    side.nodes[1].rows = rows;
    side.nodes[1].handled_rows = rows;
    side
}

/// Returns the cause and its part in per cent.
fn cause(first: &Side, second: &Side) -> Option<(Cause, f64)> {
    let found = difference(first, second);
    let whole = second.mean_ms() - first.mean_ms();
    assert!(
        (found.total.total() - whole).abs() < 1e-9 * whole.abs().max(1.0),
        "{found:?}"
    );
    found
        .cause()
        .map(|(cause, share)| (cause, (share * 100.0).round()))
}

fn scan() -> Side {
    side("Seq Scan on orders", 1_000.0, 10_000)
}

#[test]
fn each_part_is_named() {
    let with = |change: fn(&mut Side, &mut Node)| {
        let mut side = scan();
        let mut node = side.nodes[1].clone();
        change(&mut side, &mut node);
        side.total_ms += node.self_ms - 1_000.0;
        side.nodes[1] = node;
        cause(&scan(), &side)
    };
    assert_eq!(
        with(|_, node| {
            (node.rows, node.handled_rows, node.self_ms) = (100_000, 100_000, 10_000.0);
        }),
        Some((Cause::MoreData, 100.0))
    );
    assert_eq!(
        with(|_, node| {
            (node.starts, node.handled_rows, node.self_ms) = (100, 100_000, 10_000.0);
        }),
        Some((Cause::MoreCalls, 100.0))
    );
    assert_eq!(
        with(|_, node| node.self_ms = 9_000.0),
        Some((Cause::CpuPerRow, 100.0))
    );
    assert_eq!(
        with(|_, node| (node.self_ms, node.lock_ms) = (8_000.0, 7_000.0)),
        Some((Cause::Locks, 100.0))
    );
    assert_eq!(
        with(|_, node| (node.self_ms, node.wait_ms) = (8_000.0, 7_000.0)),
        Some((Cause::OtherWaits, 100.0))
    );
    assert_eq!(
        with(|_, node| (node.self_ms, node.temp_ms, node.temp_blocks) = (3_000.0, 1_200.0, 900)),
        Some((Cause::Spilling, 100.0))
    );
    assert_eq!(
        with(|_, node| node.expected_rows = 10_000.0 / 3.0),
        None,
        "there is no difference"
    );
    assert_eq!(
        with(|side, _| (side.total_ms, side.lock_ms) = (3_010.0, 1_900.0)),
        Some((Cause::Locks, 95.0))
    );
    assert_eq!(
        with(|side, _| side.total_ms = 3_010.0),
        Some((Cause::Outside, 100.0))
    );
    // Faster is the same, the other way round.
    assert_eq!(
        with(|_, node| node.self_ms = 100.0),
        Some((Cause::CpuPerRow, 100.0))
    );
}

/// A machine that others use does the same work more slowly. That is no cause, unless it is twice as slow.
#[test]
fn the_load_of_the_machine_is_no_cause() {
    let verdict = |after: &Side| difference(&reading(50_000, 0.1), after).verdict;
    let of = |after: &Side| cause(&reading(50_000, 0.1), after).map(|(cause, _)| cause);
    // What a loaded machine did to reads of 0.1 ms: 6,000 ms became 8,950 ms.
    let loaded = reading(50_000, 0.159);
    assert_eq!((of(&loaded), verdict(&loaded)), (None, Verdict::Speed));
    let slow = reading(50_000, 0.3);
    assert_eq!(
        (of(&slow), verdict(&slow)),
        (Some(Cause::SlowerStorage), Verdict::Differs)
    );
    // It also has more to do, but less than two fifths of the difference.
    let mut more = reading(50_000, 0.16);
    more.nodes[1].wait_ms = 1_900.0;
    more.nodes[1].self_ms += 1_900.0;
    more.total_ms += 1_900.0;
    assert_eq!((of(&more), verdict(&more)), (None, Verdict::Differs));
    // Twice as much of it is the cause, although the machine is slower too.
    more.nodes[1].wait_ms *= 2.0;
    more.nodes[1].self_ms += 1_900.0;
    more.total_ms += 1_900.0;
    assert_eq!(of(&more), Some(Cause::OtherWaits));
    // Faster is the same, the other way round.
    let faster = difference(&loaded, &reading(50_000, 0.1));
    assert_eq!((faster.cause(), faster.verdict), (None, Verdict::Speed));
}

/// 100,000 gets, of which `reads` take `read_ms` each.
fn reading(reads: i64, read_ms: f64) -> Side {
    let mut side = scan();
    let node = &mut side.nodes[1];
    (node.hit, node.read) = (100_000 - reads, reads);
    node.read_ms = reads as f64 * read_ms;
    node.self_ms += node.read_ms;
    side.total_ms += node.read_ms;
    side
}

#[test]
fn reads_are_more_or_slower() {
    assert_eq!(
        cause(&reading(1_000, 0.1), &reading(90_000, 0.1)),
        Some((Cause::ColdCache, 100.0))
    );
    assert_eq!(
        cause(&reading(50_000, 0.1), &reading(50_000, 0.8)),
        Some((Cause::SlowerStorage, 100.0))
    );
    assert_eq!(
        cause(&reading(0, 0.0), &reading(90_000, 0.1)),
        Some((Cause::ColdCache, 100.0))
    );
    // The system's cache is cold too: a read takes longer, but few would have been made.
    assert_eq!(
        cause(&reading(1_000, 0.02), &reading(90_000, 0.5)).map(|(cause, _)| cause),
        Some(Cause::ColdCache)
    );
    // Without times of reads, they are in the time of the node.
    let [few, many] = [1_000, 90_000].map(|reads| {
        let mut untimed = reading(reads, 0.1);
        untimed.nodes[1].read_ms = 0.0;
        untimed
    });
    assert_eq!(cause(&few, &many), Some((Cause::ColdCache, 100.0)));
}

/// A wrong estimate brings 26 times as many starts, while a busy machine makes each read take 2.3 times as
/// long: a planted cause that was taken for slower storage.
#[test]
fn slower_reads_do_not_hide_that_there_are_more() {
    let with = |starts: u64, ms: f64| {
        let mut side = reading(2_000 * starts as i64, ms);
        let node = &mut side.nodes[1];
        node.hit = 0;
        (node.starts, node.handled_rows) = (10 * starts, 10_000 * starts);
        side
    };
    let found = cause(&with(1, 0.216), &with(26, 0.503));
    assert_eq!(found.map(|(cause, _)| cause), Some(Cause::MoreCalls), "{found:?}");
}

#[test]
fn fewer_processes_share_the_work() {
    let with = |processes: f64| {
        let mut side = scan();
        side.nodes.insert(1, node(1, Some(0), "Gather"));
        let scan = &mut side.nodes[2];
        (scan.parent, scan.depth) = (Some(1), 2);
        (scan.processes, scan.starts) = (processes, (10.0 * processes) as u64);
        side.total_ms = 10.0 + 1_000.0 / processes;
        side
    };
    assert_eq!(
        cause(&with(5.0), &with(1.0)),
        Some((Cause::LessParallelism, 100.0))
    );
    // The plan has no Gather any more.
    let (parallel, alone) = (with(5.0), scan());
    assert_eq!(cause(&parallel, &alone), Some((Cause::LessParallelism, 100.0)));
}

#[test]
fn another_plan_has_a_reason() {
    let index = side("Index Scan using orders_customer_idx on orders", 10.0, 100);
    let mut seq = scan();
    assert_eq!(cause(&index, &seq), Some((Cause::AnotherPlan, 100.0)));
    seq.nodes[1].expected_rows = 100.0;
    seq.nodes[1].actual_rows = 10_000;
    assert_eq!(cause(&index, &seq), Some((Cause::WrongEstimate, 100.0)));
    seq.generic_plan_executions = 9;
    assert_eq!(cause(&index, &seq), Some((Cause::GenericPlan, 100.0)));
    seq.gone_indexes = vec!["public.customer_idx".to_owned()];
    assert_eq!(cause(&index, &seq), Some((Cause::GenericPlan, 100.0)));
    seq.gone_indexes.push("public.orders_customer_idx".to_owned());
    assert_eq!(cause(&index, &seq), Some((Cause::IndexGone, 100.0)));
    let found = difference(&index, &seq);
    assert_eq!(found.pairs.first, [Some(0), Some(1)]);
    assert_eq!(found.largest_node(Some(Cause::IndexGone)), Some(Ok(1)));
}

/// The estimate of what is above a wrong one is wrong, too. The table whose statistics are stale is below.
#[test]
fn the_lowest_wrong_estimate_is_the_one_that_is_named() {
    let named = |wrong: [bool; 2]| {
        let mut after = scan();
        for (node, _) in after.nodes.iter_mut().zip(wrong).filter(|(_, wrong)| *wrong) {
            (node.expected_rows, node.actual_rows) = (100.0, 10_000);
        }
        difference(&scan(), &after).misestimated_node
    };
    let all = [[false, false], [true, false], [true, true], [false, true]].map(named);
    assert_eq!(all, [None, Some(0), Some(1), Some(1)]);
}

#[test]
fn below_two_fifths_the_cause_is_not_known() {
    let mut slow = scan();
    let node = &mut slow.nodes[1];
    node.self_ms = 4_000.0;
    (node.lock_ms, node.wait_ms, node.temp_ms) = (800.0, 700.0, 800.0);
    node.temp_blocks = 5;
    slow.nodes[0].self_ms = 700.0;
    slow.total_ms = 4_700.0;
    let found = difference(&scan(), &slow);
    assert_eq!(
        found.total.largest(1.0).map(|(cause, _)| cause),
        Some(Cause::Spilling)
    );
    slow.nodes[1].temp_blocks = 0;
    assert_eq!(cause(&scan(), &slow), None);
}

#[test]
fn nodes_are_matched_by_object_and_then_by_path() {
    let plan = |names: &[(usize, &str)]| {
        let mut side = Side {
            executions: 1,
            ..Side::default()
        };
        for (depth, name) in names {
            let parent = side.nodes.iter().rposition(|above| above.depth + 1 == *depth);
            side.nodes.push(node(*depth, parent, name));
        }
        side
    };
    let hash = plan(&[
        (0, "Sort"),
        (1, "Hash Join"),
        (2, "Seq Scan on a"),
        (2, "Hash"),
        (3, "Seq Scan on b"),
        (1, "Sort"),
    ]);
    let loops = plan(&[
        (0, "Sort"),
        (1, "Nested Loop"),
        (2, "Index Scan using b_pkey on b"),
        (2, "Memoize"),
        (3, "Parallel Seq Scan on a"),
        (1, "Sort"),
    ]);
    let found = pairs(&hash, &loops);
    assert_eq!(found.first, [Some(0), None, Some(4), None, Some(2), Some(5)]);
    assert_eq!(found.second, [Some(0), None, Some(4), None, Some(2), Some(5)]);
    // What finishes an aggregate of all processes is no partner of what each of them does.
    let hashed = plan(&[
        (0, "Sort"),
        (1, "Finalize HashAggregate"),
        (2, "Gather"),
        (3, "Partial HashAggregate"),
    ]);
    let merged = plan(&[
        (0, "Sort"),
        (1, "Finalize GroupAggregate"),
        (2, "Gather Merge"),
        (3, "Sort"),
        (4, "Partial HashAggregate"),
    ]);
    let whole = plan(&[(0, "Sort"), (1, "HashAggregate")]);
    assert_eq!(pairs(&hashed, &merged).first, [Some(0), None, None, None, None]);
    assert_eq!(pairs(&hashed, &whole).first, [Some(0), Some(1)]);
    assert_eq!(pairs(&whole, &hashed).first, [Some(0), Some(1), None, None]);
    assert_eq!(
        pairs(&hashed, &hashed).first,
        [Some(0), Some(1), Some(2), Some(3)]
    );
    // Of a table that is scanned twice, the scan that does the same is the partner.
    let twice = plan(&[
        (0, "Append"),
        (1, "Seq Scan on a"),
        (1, "Index Scan using i on a"),
    ]);
    let turned = plan(&[
        (0, "Append"),
        (1, "Index Scan using i on a"),
        (1, "Seq Scan on a"),
    ]);
    assert_eq!(pairs(&twice, &turned).first, [Some(0), Some(2), Some(1)]);
    assert_eq!(pairs(&hash, &hash).first, (0..6).map(Some).collect::<Vec<_>>());
    assert_eq!(pairs(&Side::default(), &hash).first, [None; 6]);
}

/// A plan of a thousand nodes, each below the other.
#[test]
fn deep_plans_take_little_time() {
    let deep = |name: &str| {
        let mut side = Side {
            executions: 1,
            ..Side::default()
        };
        side.nodes = (0..1_000)
            .map(|i: usize| node(i, i.checked_sub(1), name))
            .collect();
        side
    };
    let start = std::time::Instant::now();
    assert_eq!(
        difference(&deep("Limit"), &deep("Sort")).pairs.first,
        [None; 1_000]
    );
    assert_eq!(
        difference(&deep("Limit"), &deep("Limit")).pairs.first[999],
        Some(999)
    );
    assert!(start.elapsed().as_secs() < 5);
}

/// Each execution takes 200 times as long, and the first one, on a cold cache, longer than all others
/// together. That is no chance.
#[test]
fn one_very_long_execution_does_not_hide_a_difference() {
    let of = |times: &[f64]| {
        let log = |ms: &f64| ms.log2();
        Side {
            executions: times.len() as u64,
            total_ms: times.iter().sum(),
            squares: times.iter().map(|ms| ms * ms).sum(),
            logs: times.iter().map(log).sum(),
            log_squares: times.iter().map(|ms| log(ms) * log(ms)).sum(),
            ..Side::default()
        }
    };
    let times = |ms: f64, first: f64| {
        let mut times: Vec<f64> = (0..12).map(|i| ms * (1.0 + 0.01 * f64::from(i % 5))).collect();
        times[0] = first;
        of(&times)
    };
    let verdict = |first, second| super::difference(&first, &second).verdict;
    assert_eq!(verdict(times(0.01, 0.01), times(2.0, 60.0)), Verdict::Differs);
    assert_eq!(verdict(times(2.0, 60.0), times(0.01, 0.01)), Verdict::Differs);
    // All others take as long as before, or hardly longer.
    assert_eq!(verdict(times(2.0, 2.0), times(2.0, 60.0)), Verdict::Chance);
    assert_eq!(verdict(times(2.0, 2.0), times(2.1, 60.0)), Verdict::Chance);
    // The typical one takes longer, the mean one less long.
    assert_eq!(verdict(times(2.0, 200.0), times(4.0, 4.0)), Verdict::Chance);
}

/// Ten executions by three processes, and later ten by one: the counters of both moments are subtracted.
#[test]
fn the_processes_of_an_interval_are_its_own() {
    let of = |executions: u64, starts: u64, processes: f64, self_ms: f64| {
        let mut side = side("Parallel Seq Scan on orders", self_ms, 10_000 * executions / 10);
        (side.executions, side.total_ms) = (executions, self_ms);
        (side.nodes[1].starts, side.nodes[1].processes) = (starts, processes);
        side.nodes[1].parent = Some(0);
        side
    };
    let earlier = of(10, 30, 3.0, 3_000.0);
    let mut later = of(20, 40, 2.0, 6_000.0);
    later.subtract(&earlier);
    assert_eq!((later.executions, later.nodes[1].starts), (10, 10));
    assert_eq!(later.nodes[1].processes, 1.0);
    // As if nothing came before.
    let mut first = of(10, 30, 3.0, 3_000.0);
    first.subtract(&of(0, 0, 1.0, 0.0));
    assert_eq!(first.nodes[1].processes, 3.0);
    // A node that did not run keeps what it had.
    let mut none = of(10, 30, 3.0, 3_000.0);
    none.subtract(&earlier);
    assert_eq!(none.nodes[1].processes, 3.0);
}
