//! Whether planted causes are named: plans of a model of a server, with noise, are compared by a judge that
//! does not know what was planted.

use super::*;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const RUNS: u64 = 20;
const NAMED: usize = 19;
const EXECUTIONS: u64 = 40;

/// What the statement meets.
#[derive(Clone, Copy)]
struct World {
    /// The rows of `orders`.
    rows: f64,
    /// Whether the index of the condition exists.
    has_index: bool,
    /// How many rows come for each that the planner expects.
    wrong: f64,
    is_generic: bool,
    /// The part of the gets that are reads, and the milliseconds of one.
    miss: f64,
    read_ms: f64,
    lock_ms: f64,
    spills: bool,
    processes: f64,
    cpu: f64,
}

const USUAL: World = World {
    rows: 100_000.0,
    has_index: true,
    wrong: 1.2,
    is_generic: false,
    miss: 0.1,
    read_ms: 0.05,
    lock_ms: 0.3,
    spills: false,
    processes: 1.0,
    cpu: 1.0,
};

struct Noise(Xoshiro256PlusPlus);

impl Noise {
    /// Returns about 1.
    fn around(&mut self, spread: f64) -> f64 {
        let normal = (0..12).map(|_| self.0.random::<f64>()).sum::<f64>() - 6.0;
        (normal * spread).exp2()
    }
}

/// Adds up executions of a node.
fn node(
    side: &mut Side,
    noise: &mut Noise,
    world: &World,
    at: (Option<usize>, &str),
    work: [f64; 3],
) -> usize {
    let (parent, name) = at;
    let [starts, rows, blocks] = work;
    let (operation, object) = name
        .split_once(" on ")
        .map_or((name, None), |(o, t)| (o, Some(t)));
    let (operation, index) = operation
        .split_once(" using ")
        .map_or((operation, None), |(o, i)| (o, Some(i)));
    let mut node = Node {
        parent,
        depth: parent.map_or(0, |parent| side.nodes[parent].depth + 1),
        operation: operation.to_owned(),
        object: index.or(object).map(str::to_owned),
        table: index.and(object).map(str::to_owned),
        processes: 1.0,
        ..Node::default()
    };
    for _ in 0..EXECUTIONS {
        let rows = rows * noise.around(0.1);
        let miss = (world.miss * noise.around(0.4)).min(1.0);
        let read = (blocks * miss).round();
        let read_ms = read * world.read_ms * noise.around(0.3);
        let cpu = (rows * 1e-4 + starts * 2e-4 + blocks * 1e-4) * world.cpu * noise.around(0.3);
        node.starts += starts as u64;
        node.rows += rows as u64;
        node.handled_rows += 2 * rows as u64;
        node.read += read as i64;
        node.hit += (blocks - read) as i64;
        node.read_ms += read_ms;
        node.self_ms += cpu + read_ms;
    }
    node.expected_rows = node.rows as f64 / world.wrong;
    node.actual_rows = node.rows;
    side.nodes.push(node);
    side.nodes.len() - 1
}

/// Returns executions of a join of `orders` and `customer` in this world.
fn executions(world: &World, seed: u64) -> Side {
    let mut noise = Noise(Xoshiro256PlusPlus::seed_from_u64(seed));
    // What all executions have in common: the load of the time.
    let world = &World {
        cpu: world.cpu * noise.around(0.3),
        ..*world
    };
    let mut side = Side {
        executions: EXECUTIONS,
        ..Side::default()
    };
    let wanted = world.rows / 50.0;
    let add = |side: &mut Side, noise: &mut Noise, at, work| node(side, noise, world, at, work);
    let sort = add(&mut side, &mut noise, (None, "Sort"), [1.0, wanted, 0.0]);
    // Who expects few rows, or does not know the parameter, joins by a nested loop.
    let is_loop = world.wrong >= MISESTIMATE || world.is_generic;
    let join = if is_loop { "Nested Loop" } else { "Hash Join" };
    let join = add(&mut side, &mut noise, (Some(sort), join), [1.0, wanted, 0.0]);
    let mut above = join;
    if world.processes > 1.0 {
        above = add(&mut side, &mut noise, (Some(join), "Gather"), [1.0, wanted, 0.0]);
    }
    let scan = if world.has_index {
        let name = "Index Scan using orders_customer_idx on orders";
        add(
            &mut side,
            &mut noise,
            (Some(above), name),
            [1.0, wanted, wanted / 10.0],
        )
    } else {
        let work = [1.0, world.rows * 20.0, world.rows / 5.0];
        add(&mut side, &mut noise, (Some(above), "Seq Scan on orders"), work)
    };
    side.nodes[scan].processes = world.processes;
    side.nodes[scan].starts = (world.processes * EXECUTIONS as f64) as u64;
    if is_loop {
        let work = [wanted, wanted, wanted * 3.0];
        let name = "Index Scan using customer_pkey on customer";
        add(&mut side, &mut noise, (Some(join), name), work);
    } else {
        let hash = add(&mut side, &mut noise, (Some(join), "Hash"), [1.0, 500.0, 0.0]);
        add(
            &mut side,
            &mut noise,
            (Some(hash), "Seq Scan on customer"),
            [1.0, 500.0, 20.0],
        );
    }
    if world.spills {
        let sort = &mut side.nodes[sort];
        sort.temp_blocks = (EXECUTIONS as f64 * wanted / 50.0) as i64;
        sort.temp_ms = sort.temp_blocks as f64 * 0.4 * noise.around(0.3);
        sort.self_ms += sort.temp_ms * 1.5;
    }
    let waited = EXECUTIONS as f64 * world.lock_ms * noise.around(1.0);
    side.nodes[scan].lock_ms += waited;
    side.nodes[scan].self_ms += waited;
    let elapsed = side
        .nodes
        .iter()
        .map(|node| node.self_ms / node.processes)
        .sum::<f64>();
    side.total_ms = elapsed * 1.02;
    side.generic_plan_executions = if world.is_generic { EXECUTIONS } else { 0 };
    side
}

fn causes(before: &World, after: &World) -> Vec<Option<Cause>> {
    let run = |seed| {
        let (before, mut after) = (executions(before, seed), executions(after, seed + 1_000));
        if !after
            .nodes
            .iter()
            .any(|node| node.object.as_deref() == Some("orders_customer_idx"))
        {
            after.gone_indexes.push("public.orders_customer_idx".to_owned());
        }
        let found = difference(&before, &after);
        let whole = after.mean_ms() - before.mean_ms();
        assert!((found.total.total() / whole - 1.0).abs() < 1e-9);
        found.cause().map(|(cause, _)| cause)
    };
    (0..RUNS).map(run).collect()
}

/// Returns causes, each with the world before and the one in which it was planted.
fn planted() -> Vec<(Cause, World, World)> {
    let seq = World {
        has_index: false,
        ..USUAL
    };
    let parallel = World {
        processes: 5.0,
        ..seq
    };
    let warm = World { miss: 0.5, ..USUAL };
    vec![
        (Cause::IndexGone, USUAL, seq),
        (
            Cause::WrongEstimate,
            USUAL,
            World {
                wrong: 40.0,
                rows: 300_000.0,
                ..USUAL
            },
        ),
        (
            Cause::GenericPlan,
            USUAL,
            World {
                is_generic: true,
                wrong: 40.0,
                rows: 300_000.0,
                ..USUAL
            },
        ),
        (Cause::MoreData, USUAL, World { rows: 1e6, ..USUAL }),
        (
            Cause::ColdCache,
            USUAL,
            World {
                miss: 0.95,
                read_ms: 0.15,
                ..USUAL
            },
        ),
        (Cause::SlowerStorage, warm, World { read_ms: 0.5, ..warm }),
        (
            Cause::Locks,
            USUAL,
            World {
                lock_ms: 30.0,
                ..USUAL
            },
        ),
        (
            Cause::Spilling,
            USUAL,
            World {
                spills: true,
                ..USUAL
            },
        ),
        (
            Cause::LessParallelism,
            parallel,
            World {
                processes: 1.0,
                ..parallel
            },
        ),
        (
            Cause::LessParallelism,
            parallel,
            World {
                processes: 2.0,
                ..parallel
            },
        ),
        (Cause::CpuPerRow, USUAL, World { cpu: 5.0, ..USUAL }),
    ]
}

#[test]
fn planted_causes_are_named_first() {
    for (planted, before, after) in planted() {
        let found = causes(&before, &after);
        let named = found.iter().filter(|cause| **cause == Some(planted)).count();
        println!("{}: {named} of {RUNS}", planted.name());
        assert!(named >= NAMED, "{planted:?}: {found:?}");
    }
}
