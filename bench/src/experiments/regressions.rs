//! How often the library finds what is there, and how often what is not: planted causes, and executions that
//! nothing changed between.

use crate::measure::context::ExperimentContext;
use crate::model::check::Goal;
use crate::model::spread::spread;
use crate::model::table::Table;
use postgres::Client;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rowsource_core::flips::{Pace, Sample, Verdict, verdicts};
use rowsource_core::model::Times;
use rowsource_core::regressions::Sums;
use rowsource_tests::causes::{self, Judged, Planted};
use rowsource_tests::session::run_each;
use rowsource_tests::{SHIPPED, Server};
use std::time::{Duration, Instant};

/// Plants each cause a few times in tables of two sizes, and lets the library name it.
pub fn run_causes(context: &mut ExperimentContext) {
    let rows = context.sizes.of(12_000, 30_000) as usize;
    let other_rows = context.sizes.of(4_000, 12_000) as usize;
    let (rounds, other_rounds) = (context.sizes.rounds(1, 20), context.sizes.rounds(1, 5));
    context.setting("rows", rows);
    context.setting("runs of each", rounds);
    context.setting("rows of the other size", other_rows);
    context.setting("runs of each of the other size", other_rounds);
    let server = causes::server("bench-causes");
    context.server(&server);
    let what = "12 executions before and 12 after. Named: rowsource_compare() says this cause first. Nothing planted: the same \
         statement, while nothing changes; named is any cause. Regressions: how often rowsource_regressions() has the \
         statement, and with this cause. Those before are in a quarter of an hour, as the library sees it, those after in four. Without \
         another plan, a regression needs three times the busy time, and waits for locks are none.";
    plant_each(context, &server, (rows, rounds), ("Planted causes", what));
    let what = "The same with fewer rows.";
    plant_each(
        context,
        &server,
        (other_rows, other_rounds),
        ("Planted causes, another size", what),
    );
    run_pairs(context, &server, rows);
}

/// What came of the runs with a cause, and of as many without.
struct Outcome {
    of: Planted,
    with: Vec<Judged>,
    without: Vec<Judged>,
}

impl Outcome {
    fn is_named(&self, judged: &Judged) -> bool {
        judged.cause.as_deref() == Some(self.of.expected())
    }

    fn named(&self) -> usize {
        self.with.iter().filter(|judged| self.is_named(judged)).count()
    }

    /// Returns what was named instead.
    fn others(&self) -> String {
        let others = self.with.iter().filter(|judged| !self.is_named(judged));
        let cause = |judged: &Judged| judged.cause.clone().unwrap_or_else(|| "not known".to_owned());
        let mut others: Vec<String> = others.map(cause).collect();
        others.sort_unstable();
        others.dedup();
        others.join(", ")
    }

    /// Returns how often a cause was named where none was planted.
    fn invented(&self) -> usize {
        let is_named = |judged: &&Judged| judged.cause.is_some();
        self.without.iter().filter(is_named).count()
    }

    /// Returns how often a cause was named then that counters tell, and no times.
    fn disproved(&self) -> usize {
        let causes = self.without.iter().filter_map(|judged| judged.cause.as_deref());
        causes.filter(|cause| !self.of.may_be_true(cause)).count()
    }

    /// Returns how often a regression was found, and how often with the cause.
    fn regressions(&self) -> [usize; 2] {
        let found = || self.with.iter().filter_map(|judged| judged.regression.as_deref());
        let right = found().filter(|cause| cause.contains(self.of.words()));
        [found().count(), right.count()]
    }

    /// Returns how often one was found where nothing was planted.
    fn wrong(&self) -> usize {
        let is_found = |judged: &&Judged| judged.regression.is_some();
        self.without.iter().filter(is_found).count()
    }

    fn ratios(&self) -> Vec<f64> {
        self.with.iter().map(|judged| judged.ratio).collect()
    }

    fn row(&self) -> [String; 10] {
        let rounds = self.with.len();
        let [found, right] = self.regressions();
        [
            format!("{:?}", self.of),
            self.of.expected().to_owned(),
            rounds.to_string(),
            self.named().to_string(),
            self.others(),
            format!("{:.1}", spread(&self.ratios()).median),
            format!("{found} of {rounds}"),
            format!("{right} of {found}"),
            format!("{} of {rounds}", self.invented()),
            format!("{} of {rounds}", self.wrong()),
        ]
    }

    /// Adds the goals.
    fn judge(&self, context: &mut ExperimentContext, name: &str) {
        let [found, right] = self.regressions();
        let mut goal = |what: &str, count: usize, all: usize| {
            context.goal(
                format!("{name}: {what}"),
                &Goal::at_least(0.95),
                &spread(&[count as f64 / all as f64]),
            );
        };
        let all = self.with.len();
        goal("named first", self.named(), all);
        goal("not planted, no regression", all - self.wrong(), all);
        goal("not planted, no cause named", all - self.invented(), all);
        // There may be none if only waits are longer, or if fewer processes share the work.
        let needed = if self.of.is_regression() { all } else { found };
        if needed > 0 {
            goal("regressions with the cause", right, needed);
        }
        let disproved = self.disproved();
        context.assert_exact(
            format!("{name}: not planted, causes that counters tell"),
            "at most 5 %",
            format!("{disproved} of {all}"),
            disproved as f64 <= 0.05 * all as f64,
        );
    }
}

/// Plants each cause so many times in tables with so many rows.
fn plant_each(
    context: &mut ExperimentContext,
    server: &Server,
    (rows, rounds): (usize, usize),
    (title, note): (&str, &str),
) {
    let mut table = Table::new(
        title,
        note,
        &[
            "planted",
            "expected",
            "runs",
            "named",
            "others",
            "ratio",
            "regressions",
            "with the cause",
            "nothing planted: named",
            "regressions then",
        ],
    );
    let (mut missed, mut wrong) = (0, 0);
    for (i, of) in Planted::ALL.into_iter().enumerate() {
        let run = |is_planted: bool, part: f64| -> Vec<Judged> {
            let one = |round: usize| {
                let done =
                    (i as f64 + (part + round as f64 / rounds as f64) / 2.0) / Planted::ALL.len() as f64;
                context.at(done, &format!("{of:?}"));
                causes::judged(server, of, is_planted, rows)
            };
            (0..rounds).map(one).collect()
        };
        let [with, without] = [run(true, 0.0), run(false, 1.0)];
        let outcome = Outcome { of, with, without };
        missed += rounds - outcome.named();
        wrong += outcome.wrong();
        let name = format!("{of:?}, {rows} rows");
        context.measured(name.clone(), "planted", "times as long", &outcome.ratios());
        table.row(outcome.row());
        outcome.judge(context, &name);
    }
    context.table(table);
    context.finding(format!(
        "With {rows} rows, {missed} of {} planted causes are not named first. Without a cause, {wrong} of as many runs have a \
         regression.",
        rounds * Planted::ALL.len()
    ));
}

/// Plants two causes at once, each in a statement of its own: the library must not take one for the other.
fn run_pairs(context: &mut ExperimentContext, server: &Server, rows: usize) {
    let rounds = context.sizes.rounds(1, 5);
    context.setting("runs of each pair", rounds);
    let mut table = Table::new(
        "Two planted causes at once",
        "Each in a statement of its own. Named: of how many of both statements rowsource_compare() says the right cause first.",
        &["planted", "named", "others"],
    );
    let (mut named, mut all) = (0, 0);
    for (i, first) in Planted::ALL.into_iter().enumerate() {
        let pair = [first, Planted::ALL[(i + 1) % Planted::ALL.len()]];
        let what = format!("{:?}, {:?}", pair[0], pair[1]);
        let (mut of_pair, mut others) = (0, Vec::new());
        for _ in 0..rounds {
            context.at(i as f64 / Planted::ALL.len() as f64, &what);
            let judged = causes::judged_each(server, &pair, true, rows);
            for (of, judged) in pair.iter().zip(judged) {
                let cause = judged.cause.unwrap_or_else(|| "not known".to_owned());
                match cause == of.expected() {
                    true => of_pair += 1,
                    false => others.push(format!("{of:?}: {cause}")),
                }
            }
        }
        others.sort_unstable();
        others.dedup();
        (named, all) = (named + of_pair, all + 2 * rounds);
        table.row([what, format!("{of_pair} of {}", 2 * rounds), others.join(", ")]);
    }
    context.table(table);
    context.goal(
        "of pairs: named first",
        &Goal::at_least(0.95),
        &spread(&[named as f64 / all as f64]),
    );
    context.finding(format!("Of pairs, {named} of {all} causes are named first."));
}

/// How often recorded executions are split.
const SPLITS: usize = 1_000;
/// All statements run once in this time. So a disturbance lasts for as many executions on every machine.
const ROUND: Duration = Duration::from_millis(400);
/// An execution: when it ended, in microseconds, and its milliseconds.
type Execution = (i64, f64);

/// Records executions of unchanged plans on a server that others use, and splits them at random moments.
pub fn run_splits(context: &mut ExperimentContext) {
    let rounds = context.sizes.of(20, 400) as usize;
    context.setting("executions of each statement", rounds);
    context.setting("splits", SPLITS);
    let server = Server::preloaded(
        "bench-splits",
        &[SHIPPED, "max_wal_size = '64MB'", "checkpoint_timeout = '30s'"],
    );
    context.server(&server);
    let recorded = record(context, &server, rounds);
    let samples: Vec<Vec<Sample>> = (0..recorded.len()).map(|of| samples(&recorded, of)).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4_711);
    let mut wrong = [0; 2];
    for _ in 0..SPLITS {
        let of = random.random_range(0..recorded.len());
        // As long as that of the simulation: most are short.
        let length = (2.0 + random.random_range(0.0f64..8.0).exp2()).min(rounds as f64) as usize;
        let begin = random.random_range(0..=rounds - length);
        let middle = begin + random.random_range(1..length);
        let parts = |all: &[Sample]| [sum(&all[begin..middle]), sum(&all[middle..begin + length])];
        let alone: Vec<Sample> = recorded[of].iter().map(|one| sample(one, 0.0)).collect();
        for (wrong, all) in wrong.iter_mut().zip([&samples[of], &alone]) {
            let [before, after] = parts(all);
            let found = verdicts(&[(before, after, 0.0)], || ()).expect("memory");
            *wrong += usize::from(matches!(found[0], Verdict::Slower(_)));
        }
    }
    context.goal(
        "splits that are called a regression",
        &Goal::at_most(1.0),
        &spread(&[wrong[0] as f64]),
    );
    context.finding(format!(
        "Of {SPLITS} splits of recorded executions at a random moment, {} are called a regression; {} without looking at how fast other plans \
         are. Any cost counts as enough here, so that it excludes none.",
        wrong[0], wrong[1]
    ));
}

/// Returns an execution, while plans of other queries took this much longer.
fn sample((_, ms): &Execution, others: f32) -> Sample {
    let mut sums = Sums::default();
    sums.add(*ms, *ms, false);
    Sample::of(sums).among(others)
}

fn sum(samples: &[Sample]) -> Sample {
    let mut sum = Sample::default();
    samples.iter().for_each(|one| sum.merge(one));
    sum
}

/// Returns the executions of a statement, each with how fast all others were then: as the library sees it
/// when the plan of that statement changes.
fn samples(recorded: &[Vec<Execution>], of: usize) -> Vec<Sample> {
    let pace = Pace::default();
    let mut plans = vec![(Times::default(), 0); recorded.len()];
    let mut samples = Vec::new();
    for round in 0..recorded[of].len() {
        for (plan, executions) in recorded.iter().enumerate() {
            let (at, ms) = executions[round];
            if plan == of {
                samples.push(sample(&executions[round], pace.level(at)));
                continue;
            }
            let (times, last_at) = plans[plan];
            let mut after = times;
            after.add(ms);
            pace.add((&times, last_at), &after, at);
            plans[plan] = (after, at);
        }
    }
    samples
}

/// Runs lookups, joins and aggregates one after the other, and notes how long each execution took. Between
/// rounds, something disturbs them now and then.
fn record(context: &mut ExperimentContext, server: &Server, rounds: usize) -> Vec<Vec<Execution>> {
    let mut client = server.session();
    run_each(
        &mut client,
        "CREATE TABLE orders AS SELECT i AS id, i % 2000 AS customer, i % 25 AS region, random() * 1000 AS price FROM generate_series(1, 60000) i;
         CREATE TABLE items AS SELECT i % 60000 + 1 AS id, i % 50 AS quantity, random() * 100 AS price FROM generate_series(1, 120000) i;
         CREATE INDEX ON orders (id); CREATE INDEX ON orders (customer); CREATE INDEX ON items (id); VACUUM ANALYZE",
    );
    let mut random = Xoshiro256PlusPlus::seed_from_u64(815);
    let mut recorded = vec![Vec::new(); STATEMENTS.len()];
    let start = Instant::now();
    let mut disturber: Option<std::thread::JoinHandle<Client>> = None;
    let mut idle = Some(server.session());
    for round in 0..rounds {
        context.at(round as f64 / rounds as f64, "recording");
        std::thread::sleep((ROUND * round as u32).saturating_sub(start.elapsed()));
        if let Some(handle) = disturber.take_if(|handle| handle.is_finished()) {
            idle = handle.join().ok();
        }
        if random.random_bool(0.1)
            && let Some(mut other) = idle.take()
        {
            let sql = DISTURBANCES[random.random_range(0..DISTURBANCES.len())];
            disturber = Some(std::thread::spawn(move || {
                run_each(&mut other, sql);
                other
            }));
        }
        for (times, sql) in recorded.iter_mut().zip(STATEMENTS) {
            let parameter = random.random_range(1..2_000).to_string();
            let sql = sql.replace('$', &parameter);
            let begun = Instant::now();
            run_each(&mut client, &sql);
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            times.push((start.elapsed().as_micros() as i64, ms));
        }
    }
    drop(disturber.map(|handle| handle.join()));
    recorded
}

/// `$` is a parameter.
const STATEMENTS: [&str; 16] = [
    "SELECT price FROM orders WHERE id = $",
    "SELECT sum(price) FROM orders WHERE customer = $",
    "SELECT count(*) FROM orders",
    "SELECT region, sum(price) FROM orders GROUP BY region",
    "SELECT count(*) FROM orders WHERE price < $",
    "SELECT sum(i.price) FROM orders o JOIN items i USING (id) WHERE o.customer = $",
    "SELECT region, count(*) FROM orders o JOIN items i USING (id) WHERE o.price < $ GROUP BY region",
    "SELECT * FROM orders ORDER BY price LIMIT 10",
    "SELECT sum(quantity) FROM items WHERE price < $ / 20.0",
    "UPDATE orders SET price = price + 1 WHERE id = $",
    "UPDATE orders SET price = price WHERE customer = $",
    "SELECT quantity, avg(price) FROM items GROUP BY quantity ORDER BY 2",
    "SELECT count(DISTINCT customer) FROM orders WHERE region = $ % 25",
    "SELECT max(price) FROM items WHERE id BETWEEN $ AND $ + 500",
    "SELECT o.id FROM orders o WHERE o.customer = $ AND EXISTS (SELECT FROM items i WHERE i.id = o.id AND i.quantity > 25)",
    "INSERT INTO items SELECT $, 1, 1.0",
];

const DISTURBANCES: [&str; 4] = [
    "CHECKPOINT",
    "VACUUM ANALYZE",
    "SELECT sum(sqrt(i)) FROM generate_series(1, 6000000) i",
    "CREATE TABLE IF NOT EXISTS copies AS SELECT * FROM items WITH NO DATA; INSERT INTO copies SELECT * FROM items; TRUNCATE copies",
];
