//! Plans that run each quarter of an hour.

use super::super::table::{Closing, Regression, Regressions, State};
use super::*;

const PLANS: i64 = 20;

/// Plans that run 20 times in each quarter of an hour, each time as long as the function says.
struct Server {
    steady: Steady,
    plans: Vec<PlanNow>,
    quarter: i64,
    regressions: Box<Regressions>,
    /// The time of all statements.
    database_ms: f64,
}

impl Server {
    fn new() -> Server {
        let plan = |i| PlanNow {
            key: PlanKey::new(10, 5, i, 1, true),
            sums: Sums::default(),
            first_seen_at: 1,
            kept: None,
        };
        Server {
            steady: Steady::default(),
            plans: (0..PLANS).map(plan).collect(),
            quarter: 1_000,
            regressions: Regressions::empty(),
            database_ms: 1.0,
        }
    }

    /// Runs a quarter of an hour, and returns the queries that are slower.
    fn run(&mut self, ms: impl Fn(i64) -> f64) -> Vec<i64> {
        self.run_each(|query| if ms(query) > 0.0 { 20 } else { 0 }, &ms)
    }

    /// Does so with a number of executions for each query.
    fn run_each(&mut self, executions: impl Fn(i64) -> i32, ms: impl Fn(i64) -> f64) -> Vec<i64> {
        for plan in &mut self.plans {
            for i in 0..executions(plan.key.queryid) {
                let busy = ms(plan.key.queryid) * (1.0 + 0.02 * f64::from(i % 5));
                plan.sums.add(busy, busy, false);
            }
        }
        self.quarter += 1;
        let now = self.quarter * INTERVAL_US;
        assert!(self.steady.is_due(now));
        let regressions = &self.regressions;
        let known = Known {
            now,
            plans: &self.plans,
            active: &|key| {
                let mut all = regressions.all().filter(|known| known.state != State::Over);
                all.find(|known| known.from == *key).map(Regression::active)
            },
            has_changed: &|key, _| key.queryid == 3,
            database_ms: &|_| self.database_ms,
        };
        self.steady.mark(&known, || {}).expect("memory");
        assert!(!self.steady.is_due(now + INTERVAL_US - 1));
        let looks = self.steady.looks();
        let all = looks.unwrap_or_default().iter().copied();
        self.regressions
            .update(all, looks.is_some(), now, |_| true, |_| {});
        let slower = looks.unwrap_or_default().iter();
        let slower = slower.filter(|look| matches!(look.found, Found::Slower(_)));
        let mut found: Vec<i64> = slower.map(|look| look.from.queryid).collect();
        found.sort_unstable();
        found
    }

    /// Returns the states of all regressions, and why they are over.
    fn states(&self) -> Vec<(&'static str, Option<&'static str>)> {
        let all = self.regressions.all();
        all.map(|known| (known.state.name(), known.closing().map(Closing::name)))
            .collect()
    }
}

#[test]
fn a_plan_that_is_slow_for_three_quarters_of_an_hour_is_found_and_stays() {
    let mut server = Server::new();
    for _ in 0..8 {
        assert_eq!(server.run(|_| 1.0), [] as [i64; 0]);
    }
    // Query 3 runs with another plan: that is judged elsewhere.
    let slower = |query| if query == 7 || query == 3 { 4.0 } else { 1.0 };
    assert_eq!(server.run(slower), [] as [i64; 0]);
    assert_eq!(server.run(slower), [] as [i64; 0]);
    for quarter in 0..20 {
        assert_eq!(server.run(slower), [7], "{quarter}");
    }
    let looks = server.steady.looks().expect("it is known");
    let before = looks[0].before.mean_busy_ms();
    assert!((before - 1.04).abs() < 0.01, "{before}");
    // It is compared with what it was.
    server.run(|_| 1.0);
    assert_eq!(server.run(|_| 1.0), [] as [i64; 0]);
}

/// Gives all plans the same executions to compare them with.
fn keep(server: &mut Server, reference: Reference, ms: f64) {
    let mut sums = Sums::default();
    (0..20).for_each(|i| sums.add(ms * (1.0 + 0.02 * f64::from(i % 5)), ms, false));
    server.plans.iter_mut().for_each(|plan| {
        plan.kept = Some(Against {
            sums,
            interval: [1, 2],
            reference,
        });
    });
}

/// The process has just started, and the plan has been slow for longer than it runs.
#[test]
fn what_the_history_has_is_a_reference_at_once() {
    let mut server = Server::new();
    keep(&mut server, Reference::Week, 1.0);
    let slower = |query| if query == 7 { 4.0 } else { 1.0 };
    for quarter in 0..3 {
        assert_eq!(server.run(slower), [] as [i64; 0], "{quarter}");
    }
    for quarter in 3..9 {
        assert_eq!(server.run(slower), [7], "{quarter}");
        let looks = server.steady.looks().expect("it is known");
        assert_eq!((looks.len(), looks[0].reference), (1, Reference::Week));
    }
    // It stays the reference of this one, if the history has another one meanwhile.
    keep(&mut server, Reference::Yesterday, 4.0);
    let looks = |server: &Server| server.steady.looks().expect("it is known")[0];
    assert_eq!(server.run(|query| slower(query) * 4.0), [7]);
    assert_eq!(looks(&server).reference, Reference::Week);
    // Without executions nothing new is found. Then it is as fast as it was.
    for quarter in 0..2 {
        assert_eq!(
            server.run(|query| if query == 7 { 0.0 } else { 4.0 }).len(),
            1 - quarter
        );
    }
    assert_eq!(looks(&server).found, Found::TooFew);
    for _ in 0..4 {
        assert_eq!(server.run(|_| 1.0), [] as [i64; 0]);
    }
    assert_eq!(server.steady.looks().map(<[Look]>::len), Some(0));
}

/// A week ago all took a quarter of it: that is no slow plan.
#[test]
fn plans_are_compared_with_others_of_the_same_reference() {
    let mut server = Server::new();
    keep(&mut server, Reference::Week, 1.0);
    (0..9).for_each(|_| assert_eq!(server.run(|_| 4.0), [] as [i64; 0]));
}

#[test]
fn a_machine_that_is_slow_is_no_slow_plan() {
    let mut server = Server::new();
    (0..8).for_each(|_| assert_eq!(server.run(|_| 1.0), [] as [i64; 0]));
    (0..8).for_each(|_| assert_eq!(server.run(|_| 5.0), [] as [i64; 0]));
}

#[test]
fn a_short_time_is_no_regression() {
    let mut server = Server::new();
    for i in 0..40 {
        let ms = if i % 8 == 0 { 9.0 } else { 1.0 };
        assert_eq!(
            server.run(|query| if query == 7 { ms } else { 1.0 }),
            [] as [i64; 0],
            "{i}"
        );
    }
}

/// A backup makes everything slow in the evening, and at night nothing runs. In the morning only query 7 is
/// slow still.
#[test]
fn what_changed_in_a_quiet_time_is_known_afterwards() {
    let mut server = slow_server();
    let slower = |query| if query == 7 { 4.0 } else { 1.0 };
    server.run(|query| 3.0 * slower(query));
    (0..20).for_each(|_| drop(server.run(|_| 0.0)));
    (0..6).for_each(|_| drop(server.run(slower)));
    assert_eq!(server.states().last().map(|(state, _)| *state), Some("confirmed"));
}

/// All plans together vary by a few per cent from one interval to the next: that does not add up.
#[test]
fn noise_of_all_plans_does_not_add_up() {
    let mut server = slow_server();
    for quarter in 0..400 {
        let noise = if quarter % 3 == 0 { 1.1 } else { 1.02 };
        server.run(|query| noise * if query == 7 { 4.0 } else { 1.0 });
        assert_eq!(server.states(), [("confirmed", None)], "{quarter}");
    }
}

/// Returns a server on which query 7 is a regression, compared with a week ago.
fn slow_server() -> Server {
    let mut server = Server::new();
    keep(&mut server, Reference::Week, 1.0);
    let slower = |query| if query == 7 { 4.0 } else { 1.0 };
    (0..6).for_each(|_| drop(server.run(slower)));
    assert_eq!(server.states(), [("confirmed", None)]);
    server
}

/// Then it runs once an hour only. So it never ran in three of four quarters again.
#[test]
fn a_statement_that_has_become_rare_is_over_when_it_is_fast_again() {
    let mut server = slow_server();
    let hours = |server: &mut Server, hours: i32, ms: f64| {
        for quarter in 0..4 * hours {
            let is_now = quarter % 4 == 0;
            server.run_each(
                |query| if query == 7 { i32::from(is_now) } else { 20 },
                |query| if query == 7 { ms } else { 1.0 },
            );
        }
        server.states()
    };
    assert_eq!(hours(&mut server, 9, 4.0), [("confirmed", None)]);
    assert_eq!(hours(&mut server, 2, 1.0), [("confirmed", None)]);
    assert_eq!(hours(&mut server, 4, 1.0), [("over", Some("no longer slower"))]);
}

/// It goes on to take four times as long. Other statements take so much time meanwhile that it is not worth
/// to look at.
#[test]
fn a_statement_that_costs_little_now_is_not_called_faster() {
    let mut server = slow_server();
    let slower = |query| if query == 7 { 4.0 } else { 1.0 };
    server.database_ms = 1e6;
    assert_eq!(server.run(slower), [] as [i64; 0]);
    assert_eq!(server.states(), [("over", Some("costs little"))]);
    server.database_ms = 1.0;
    assert_eq!(server.run(slower), [7]);
    assert_eq!(server.states(), [("open", None)]);
    (0..4).for_each(|_| drop(server.run(|_| 1.0)));
    assert_eq!(server.states(), [("over", Some("no longer slower"))]);
}

/// It runs once in each quarter of an hour from now on: in enough of them, and too seldom for the test of
/// chance.
#[test]
fn a_statement_that_runs_four_times_an_hour_is_over_when_it_is_fast() {
    let mut server = slow_server();
    let mut hours = |hours: i32, ms: f64| {
        for _ in 0..4 * hours {
            server.run_each(
                |query| if query == 7 { 1 } else { 20 },
                |query| if query == 7 { ms } else { 1.0 },
            );
        }
        server.states()
    };
    assert_eq!(hours(9, 4.0), [("confirmed", None)]);
    assert_eq!(hours(2, 1.0), [("over", Some("no longer slower"))]);
}

/// It does not run at all any more.
#[test]
fn a_regression_that_does_not_run_is_over_after_a_day() {
    let mut server = slow_server();
    let mut quarters = |quarters: i32| {
        for _ in 0..quarters {
            server.run_each(|query| if query == 7 { 0 } else { 20 }, |_| 1.0);
        }
        server.states()
    };
    assert_eq!(quarters(4 * 24 - 1), [("confirmed", None)]);
    assert_eq!(quarters(2), [("over", Some("not run"))]);
}

/// A regression goes on being compared with a week ago, which the history does not have any more. Then the
/// machine becomes slow, and the plan as fast as all others.
#[test]
fn a_slow_machine_does_not_keep_a_regression_whose_reference_is_gone() {
    let mut server = slow_server();
    server.plans.iter_mut().for_each(|plan| plan.kept = None);
    let mut slower = |ms: f64| {
        (0..8).for_each(|_| drop(server.run(|query| if query == 7 { ms } else { 5.0 })));
        server.states()
    };
    // It is still four times as slow as all others.
    assert_eq!(slower(20.0), [("confirmed", None)]);
    assert_eq!(slower(5.0), [("over", Some("no longer slower"))]);
}

/// The first of the four quarters was not slow.
#[test]
fn a_regression_begins_with_the_first_slow_interval() {
    let mut server = Server::new();
    (0..8).for_each(|_| drop(server.run(|_| 1.0)));
    let begin = server.quarter * INTERVAL_US;
    let slower = |query| if query == 7 { 4.0 } else { 1.0 };
    (0..3).for_each(|_| drop(server.run(slower)));
    let found = server.regressions.all().next().expect("a regression");
    assert_eq!(found.since, begin);
    assert_eq!(found.interval, [begin - 2 * INTERVAL_US, begin - INTERVAL_US]);
}

/// One execution took five seconds before the hour that it is compared with. What comes since is a little
/// slower, and rare.
#[test]
fn a_long_execution_of_before_is_none_of_now() {
    let mut server = Server::new();
    server.run(|query| if query == 7 { 5_000.0 } else { 1.0 });
    for _ in 0..6 {
        server.run(|query| if query == 7 { 0.0 } else { 1.0 });
    }
    keep(&mut server, Reference::Week, 1.0);
    for quarter in 0..4 {
        let executions = |query| if query == 7 { 1 } else { 20 };
        let found = server.run_each(executions, |query| if query == 7 { 4.0 } else { 1.0 });
        assert_eq!(found, [] as [i64; 0], "{quarter}");
    }
    // One of now is.
    let found = server.run_each(
        |query| if query == 7 { 1 } else { 20 },
        |query| if query == 7 { 6_000.0 } else { 1.0 },
    );
    assert_eq!(found, [7]);
}

/// All figures of a regression are of the same executions: those since it became slower.
#[test]
fn the_figures_are_those_since_it_became_slower() {
    let mut server = Server::new();
    for _ in 0..8 {
        server.run(|_| 1.0);
    }
    let slower = |query| if query == 7 { 4.0 } else { 1.0 };
    for quarter in 1..=12 {
        server.run(slower);
        let Some(known) = server.regressions.all().next().copied() else {
            assert!(quarter < 3, "{quarter}");
            continue;
        };
        assert_eq!(known.after.executions, 20 * quarter, "{known:?}");
        let extra_ms = known.after.busy_ms - 20.0 * quarter as f64 * known.before.mean_busy_ms();
        assert!((known.after.mean_busy_ms() - 4.16).abs() < 0.01, "{known:?}");
        assert!((known.ratio - 4.0).abs() < 0.05, "{known:?}");
        assert!((known.extra_ms - extra_ms).abs() < 1.0, "{known:?}");
    }
}

/// A plan that is reset is another one, even if it ran more often since than before.
#[test]
fn a_plan_that_was_reset_has_no_executions_of_before() {
    let mut server = Server::new();
    for _ in 0..8 {
        server.run(|_| 1.0);
    }
    let slower = |query| if query == 7 { 4.0 } else { 1.0 };
    for _ in 0..3 {
        server.run(slower);
    }
    assert_eq!(server.steady.looks().map(<[Look]>::len), Some(1));
    // Nobody else is forgotten.
    server.steady.forget(&server.plans).expect("memory");
    assert_eq!(server.steady.looks().map(<[Look]>::len), Some(1));
    server.regressions.clear(0, 0, 0);
    let plan = &mut server.plans[7];
    plan.first_seen_at = 2;
    plan.sums = Sums::default();
    (0..1_000).for_each(|_| plan.sums.add(4.0, 4.0, false));
    server.steady.forget(&server.plans).expect("memory");
    assert_eq!(server.steady.looks().map(<[Look]>::len), Some(0));
    // What it did before the reset is not subtracted from what it did since, and nothing is known of before.
    for quarter in 0..4 {
        assert_eq!(server.run(slower), [] as [i64; 0], "{quarter}");
    }
}

#[test]
fn a_plan_that_was_evicted_is_forgotten() {
    let mut server = Server::new();
    for _ in 0..8 {
        server.run(|_| 1.0);
    }
    for _ in 0..3 {
        server.run(|query| if query == 7 { 4.0 } else { 1.0 });
    }
    server.plans.remove(7);
    server.steady.forget(&server.plans).expect("memory");
    assert_eq!(server.steady.looks().map(<[Look]>::len), Some(0));
}

/// A job runs once a night, and each other statement all the time. Returns what is slower after a night in
/// which the job takes `ms`, and as many others.
fn night(server: &mut Server, ms: f64) -> Vec<i64> {
    let others = |query| if query == 7 { 0 } else { 20 };
    for _ in 0..4 * 24 - 1 {
        assert_eq!(server.run_each(others, |_| 1.0), [] as [i64; 0]);
    }
    server.run_each(
        |query| if query == 7 { 1 } else { 20 },
        |query| if query == 7 { ms } else { 1.0 },
    )
}

#[test]
fn a_nightly_job_is_found_after_one_slow_run() {
    let nights = || {
        let mut server = Server::new();
        for ms in [1_000.0, 1_050.0, 980.0, 1_010.0, 1_020.0, 990.0] {
            assert_eq!(night(&mut server, ms), [] as [i64; 0]);
        }
        server
    };
    // It does not take four times as long.
    assert_eq!(night(&mut nights(), 3_500.0), [] as [i64; 0]);
    for (ms, states) in [
        (1_000.0, ("over", Some("no longer slower"))),
        (6_000.0, ("confirmed", None)),
    ] {
        let mut server = nights();
        assert_eq!(night(&mut server, 6_000.0), [7]);
        let found = server.regressions.all().next().expect("a regression");
        assert_eq!(
            (found.reference, found.before.executions),
            (Reference::Earlier, 6)
        );
        assert_eq!(found.since, (server.quarter - 1) * INTERVAL_US);
        assert_eq!(found.after.executions, 1);
        assert!((found.ratio - 5.95).abs() < 0.1, "{}", found.ratio);
        for _ in 0..2 {
            night(&mut server, ms);
            assert_eq!(server.states(), [("open", None)], "{ms}");
        }
        night(&mut server, ms);
        assert_eq!(server.states(), [states], "{ms}");
    }
}

/// One of the executions of a statement that runs all the time takes long: with other parameters, it does.
#[test]
fn one_slow_run_of_a_statement_that_runs_often_is_none() {
    let mut server = Server::new();
    (0..200).for_each(|_| drop(server.run(|_| 1.0)));
    server.plans[7].sums.add(6_000.0, 6_000.0, false);
    let seldom = |query| if query == 7 { 0 } else { 20 };
    assert_eq!(server.run_each(seldom, |_| 1.0), [] as [i64; 0]);
}
