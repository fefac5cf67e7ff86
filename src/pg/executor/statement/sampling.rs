//! Configures the sampler: the clock, its costs, and the cost of a sample.

use super::state::Statement;
use crate::instrumentation::InstrumentationLevel;
use crate::pg::border::backend_local::BackendLocal;
use crate::pg::hot::wrapper::Timed;
use crate::pg::plan::tree;
use rand_core::SeedableRng;
use rand_xoshiro::Xoroshiro128PlusPlus;
use rowsource_core::clock::{self, Source, measure_costs, measure_costs_in_order};
use rowsource_core::sampler::{Config, measure_bookkeeping};
use std::cell::Cell;

impl Statement {
    /// Returns which calls are timed with these settings.
    pub(super) fn timed(level: InstrumentationLevel, sampfreq: i32, clock: Source) -> Timed {
        match (level, sampfreq, clock) {
            (InstrumentationLevel::Timed, 1, Source::Tsc) => Timed::EveryTsc,
            (InstrumentationLevel::Timed, 1, _) => Timed::Every,
            (InstrumentationLevel::Timed, ..) => Timed::Sampled,
            _ => Timed::Never,
        }
    }
}

/// A plan may make calls that are not timed if the planner expects so many rows of a node, or so much work.
const MANY_ROWS: f64 = 16.0;
const MUCH_WORK: f64 = 100.0;

impl Statement {
    /// Returns whether a statement with these plan states, of which the first is the root, may need beats, as
    /// far as the planner knows.
    pub(super) fn may_need_beats(found: &[tree::Found]) -> bool {
        let mut plans = found.iter().map(|found| found.plan_state.plan());
        found
            .first()
            .is_some_and(|root| root.plan_state.plan().total_cost > MUCH_WORK)
            || plans.any(|plan| plan.plan_rows > MANY_ROWS)
    }
}

/// Returns the sampler's configuration. The last one is kept, because it seldom changes.
pub(super) fn config(source: Source, sampfreq: i32) -> Config {
    static LAST: BackendLocal<Cell<Option<(Source, i32, Config)>>> = BackendLocal::new(Cell::new(None));
    match LAST.get() {
        Some((last, frequency, config)) if last == source && frequency == sampfreq => config,
        _ => {
            let config = new_config(source, sampfreq);
            LAST.set(Some((source, sampfreq, config)));
            config
        }
    }
}

/// Creates a configuration. The costs of the clock and of a sample are measured once per backend and clock.
fn new_config(source: Source, sampfreq: i32) -> Config {
    type Costs = Cell<Option<[f64; 4]>>;
    static COSTS: BackendLocal<[Costs; Source::ALL.len()]> =
        BackendLocal::new([const { Cell::new(None) }; Source::ALL.len()]);
    let known = &COSTS[source as usize];
    let costs = known.get().unwrap_or_else(|| {
        let cost = measure_costs(source);
        [
            cost.empty_interval_ticks as f64,
            measure_costs_in_order(source).empty_interval_ticks as f64,
            cost.reading_ns,
            measure_bookkeeping(
                &mut Xoroshiro128PlusPlus::seed_from_u64(1),
                clock::system::monotonic,
            ),
        ]
    });
    known.set(Some(costs));
    let [empty, empty_in_order, reading_ns, bookkeeping_ns] = costs;
    let config = Config::new(
        sampfreq.max(1) as u32,
        source.scale().ns_per_tick(),
        empty,
        reading_ns,
        bookkeeping_ns,
        source.resolution_ns(),
    );
    Config {
        empty_in_order,
        ..config
    }
}
