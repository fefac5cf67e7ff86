use super::query::FORGET_US;
use super::*;
use crate::regressions::Sums;

const A: i64 = 1;
const B: i64 = 2;
const C: i64 = 3;

pub(super) fn key(query: i64, plan: i64) -> PlanKey {
    PlanKey::new(10, 5, query, plan, true)
}

fn flips() -> Box<Flips> {
    Box::new(Flips {
        last_serial: 0,
        events: [Event::default(); EVENTS],
        queries: [Query::default(); QUERIES],
    })
}

/// Returns a batch of executions that take about `ms` each.
fn batch(calls: u64, ms: f64, first_at: i64, last_at: i64) -> Executions {
    let mut sums = Sums::default();
    for i in 0..calls {
        let ms = ms * if i % 2 == 0 { 0.99 } else { 1.01 };
        sums.add(ms, ms, false);
    }
    Executions {
        sample: Sample::of(sums),
        first_at,
        last_at,
    }
}

/// A query whose current plan is A, with ten executions until the time 100.
fn with_a() -> Box<Flips> {
    let mut flips = flips();
    flips.observe_query(&key(7, A), &batch(10, 1.0, 1, 100));
    flips
}

/// Returns the plans of the events, and how often each ran.
fn found(flips: &mut Flips) -> Vec<(i64, i64, u64, u64)> {
    flips.settle();
    let mut events: Vec<&Event> = flips.events().collect();
    events.sort_by_key(|event| event.serial);
    events
        .iter()
        .map(|event| {
            (
                event.from.planid,
                event.to().planid,
                event.before.calls(),
                event.after.calls(),
            )
        })
        .collect()
}

#[test]
fn a_plan_that_takes_over_is_an_event_and_so_is_the_way_back() {
    let mut flips = with_a();
    flips.add(&key(7, B), &batch(5, 4.0, 200, 300));
    assert_eq!(found(&mut flips), [(A, B, 10, 5)]);
    let event = *flips.events().next().expect("an event");
    assert_eq!((event.at, event.to()), (200, key(7, B)));
    let [before, after] = [event.before, event.after].map(|sample| sample.sums.mean_wall_ms());
    assert!((before - 1.0).abs() < 0.01 && (after - 4.0).abs() < 0.02);
    let verdicts = verdicts(&[(event.before, event.after, 0.0)], || {}).expect("memory");
    assert_eq!(verdicts[0].name(), "slower");
    // What follows belongs to the new plan until another one takes over.
    flips.add(&key(7, B), &batch(20, 4.0, 310, 400));
    assert_eq!(found(&mut flips), [(A, B, 10, 25)]);
    flips.add(&key(7, A), &batch(4, 1.0, 500, 600));
    assert_eq!(found(&mut flips), [(A, B, 10, 25), (B, A, 25, 4)]);
    flips.add(&key(7, A), &batch(6, 1.0, 610, 700));
    flips.add(&key(7, C), &batch(6, 1.0, 800, 900));
    assert_eq!(found(&mut flips), [(A, B, 10, 25), (B, A, 25, 10), (A, C, 10, 6)]);
}

/// All plans took four times as long while the plan before both ran, and still do.
#[test]
fn a_plan_from_before_is_compared_on_the_same_machine() {
    let slow = |ms, first_at, last_at| {
        let done = batch(20, ms, first_at, last_at);
        let sample = done.sample.among(2.0);
        Executions { sample, ..done }
    };
    let mut flips = flips();
    flips.observe_query(&key(7, A), &slow(4.0, 1, 100));
    flips.add(&key(7, B), &slow(40.0, 200, 300));
    flips.add(&key(7, C), &slow(5.0, 400, 500));
    flips.settle();
    let event = |to| *flips.events().find(|event| event.to == to).expect("an event");
    let (first, latest) = (event(B), event(C));
    // What a regression keeps of the executions before: their sums, and the pace.
    let kept = Sample::of(first.before.sums).among(first.before.pace().log2() as f32);
    let compared = latest
        .from_before(&key(7, A), kept, first.at)
        .expect("another plan");
    assert_eq!(
        (compared.from, compared.to(), compared.at),
        (key(7, A), key(7, C), 200)
    );
    let found =
        |event: &Event| verdicts(&[(event.before, event.after, 0.0)], || {}).expect("memory")[0].name();
    assert_eq!(found(&compared), "no difference that can be told");
    // A regression that was on a machine as slow is none because of it, and is not hidden by it.
    let mut slower = compared;
    slower.after = slow(12.0, 400, 500).sample;
    assert_eq!(found(&slower), "slower");
    assert_eq!(latest.from_before(&key(7, B), kept, 0), None);
}

#[test]
fn a_few_executions_of_another_plan_are_no_event_unless_they_are_long() {
    let mut flips = with_a();
    flips.add(&key(7, B), &batch(2, 4.0, 200, 300));
    assert_eq!(found(&mut flips), []);
    flips.add(&key(7, A), &batch(1, 1.0, 400, 400));
    flips.add(&key(7, B), &batch(2, 4.0, 500, 600));
    assert_eq!(found(&mut flips), []);
    let mut flips = with_a();
    flips.add(&key(7, B), &batch(1, 5_000.0, 200, 200));
    assert_eq!(found(&mut flips), [(A, B, 10, 1)]);
}

#[test]
fn plans_that_are_used_side_by_side_are_no_event() {
    let mut flips = with_a();
    // Batches of two sessions overlap.
    for second in 1..50 {
        let at = second * 1_000_000;
        flips.add(&key(7, B), &batch(300, 4.0, at, at + 900_000));
        flips.add(&key(7, A), &batch(300, 1.0, at + 5, at + 900_005));
        assert_eq!(found(&mut flips), []);
    }
}

#[test]
fn random_turns_make_few_events() {
    let mut flips = with_a();
    let mut random = random(17);
    for i in 0..20_000 {
        let plan = if random(2) == 0 { A } else { B };
        // Each execution is added alone, and read at once.
        flips.add(&key(7, plan), &batch(1, 1.0, 1_000 + i, 1_000 + i));
        flips.settle();
    }
    let events = found(&mut flips).len();
    assert!(events <= 10, "{events} events");
}

#[test]
fn executions_that_are_added_late_do_not_disturb() {
    let mut flips = with_a();
    flips.add(&key(7, B), &batch(5, 4.0, 200, 300));
    // Another session had these before B began.
    flips.add(&key(7, A), &batch(5, 1.0, 50, 150));
    assert_eq!(found(&mut flips), [(A, B, 15, 5)]);
    // These come after the event.
    flips.add(&key(7, A), &batch(5, 1.0, 50, 160));
    assert_eq!(found(&mut flips), [(A, B, 20, 5)]);
    flips.add(&key(7, B), &batch(2, 1.0, 250, 350));
    assert_eq!(found(&mut flips), [(A, B, 20, 7)]);
}

#[test]
fn a_change_that_is_undone_at_once_is_two_events() {
    // Without time, with a second, and with an hour between the turns, and then quiet.
    for pause in [1, 1_000_000, 3_600_000_000] {
        for reads_between in [false, true] {
            let mut flips = with_a();
            let mut at = 100;
            for (plan, calls) in [(B, 10), (A, 20)] {
                at += pause;
                flips.add(&key(7, plan), &batch(calls, 1.0, at, at + 50));
                at += 50;
                if reads_between {
                    flips.settle();
                }
            }
            let what = format!("{pause}, {reads_between}");
            assert_eq!(found(&mut flips), [(A, B, 10, 10), (B, A, 10, 20)], "{what}");
            // The plan that came back runs on.
            flips.add(&key(7, A), &batch(5, 1.0, at + 10_000_000, at + 10_000_050));
            assert_eq!(found(&mut flips), [(A, B, 10, 10), (B, A, 10, 25)], "{what}");
        }
    }
    // Nobody reads: executions three seconds later show that none are missing.
    let mut flips = with_a();
    flips.add(&key(7, B), &batch(10, 1.0, 200, 300));
    flips.add(&key(7, A), &batch(20, 1.0, 400, 500));
    assert_eq!(flips.events().count(), 0);
    flips.add(&key(7, A), &batch(1, 1.0, 3_100_500, 3_100_500));
    assert_eq!(flips.events().count(), 2);
}

/// A number generator that gives the same numbers each time.
pub(super) fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Phases of random lengths of one session, in batches.
#[test]
fn reading_changes_nothing() {
    for seed in 0..50 {
        let events = |reads_every: u64| {
            let mut random = random(seed);
            let mut flips = with_a();
            let (mut at, mut batches) = (100, 0);
            for phase in 0..40 {
                let plan = [A, B, C][(phase + random(2)) as usize % 3];
                for _ in 0..=random(3) {
                    at += 1 + random(2_000_000) as i64;
                    flips.add(&key(7, plan), &batch(1 + random(6), 1.0, at, at + 10));
                    at += 10;
                    batches += 1;
                    if reads_every > 0 && batches % reads_every == 0 {
                        flips.settle();
                    }
                }
            }
            found(&mut flips)
        };
        let unread = events(0);
        assert!(!unread.is_empty());
        for reads_every in [1, 2, 7] {
            assert_eq!(events(reads_every), unread, "seed {seed}, every {reads_every}");
        }
    }
}

/// Phases that are longer than the time after which nothing is missing, at a high rate.
#[test]
fn plans_that_alternate_make_few_events() {
    for (seconds, calls) in [(1, 10), (1, 1_000), (5, 50), (5, 5_000), (60, 60_000)] {
        let mut flips = with_a();
        let mut at = 1_000;
        for phase in 0..1_000 {
            let plan = if phase % 2 == 0 { B } else { A };
            for second in 0..seconds.min(5) {
                let from = at + second * 1_000_000;
                flips.add(
                    &key(7, plan),
                    &batch(calls / seconds as u64 + 1, 1.0, from, from + 900_000),
                );
            }
            at += seconds * 1_000_000;
            flips.settle();
        }
        let events = found(&mut flips).len() as i64;
        // Each hour, one more is possible.
        let hours = 1_000 * seconds / 3_600;
        assert!(
            (2..=17 + hours).contains(&events),
            "{seconds} s, {calls} calls: {events} events"
        );
    }
}

#[test]
fn a_change_after_alternation_is_an_event() {
    let mut flips = with_a();
    for phase in 0..100 {
        let plan = if phase % 2 == 0 { B } else { A };
        let at = 1_000 + phase * 1_000;
        flips.add(&key(7, plan), &batch(20, 1.0, at, at + 500));
    }
    let before = found(&mut flips);
    let current = before.last().expect("the first changes").1;
    let other = if current == A { B } else { A };
    // It must be longer than those before, and is not missed for ever.
    let mut at = 1_000_000;
    let needed = (1..200).find(|_| {
        at += 1_000_000;
        flips.add(&key(7, other), &batch(20, 1.0, at, at + 500));
        found(&mut flips).len() > before.len()
    });
    assert!(
        (1..=100).contains(&needed.expect("an event")),
        "{needed:?} times 20"
    );
    // After hours, a short run is an event again.
    for _ in 0..9 {
        at += FORGET_US;
        flips.add(&key(7, other), &batch(20, 1.0, at, at + 500));
    }
    let events = found(&mut flips).len();
    flips.add(&key(7, current), &batch(3, 1.0, at + 1_000, at + 2_000));
    assert_eq!(found(&mut flips).len(), events + 1);
}

/// One execution in ten, and one in a hundred, has the other plan.
#[test]
fn a_plan_that_is_used_sometimes_makes_few_events() {
    for (one_in, limit) in [(3, 10), (10, 10), (100, 10)] {
        let mut flips = with_a();
        let mut random = random(one_in);
        for i in 0..50_000 {
            let plan = if random(one_in) == 0 { B } else { A };
            flips.add(&key(7, plan), &batch(1, 1.0, 1_000 + i * 100, 1_000 + i * 100));
        }
        let events = found(&mut flips).len();
        assert!(events <= limit, "one in {one_in}: {events} events");
    }
}

/// Sessions add their executions once a second, at different times. They change their plan at the same
/// moment, apart from executions that are still running.
#[test]
fn sessions_that_change_together_make_one_event() {
    const CHANGE: i64 = 20_000_000;
    let mut flips = with_a();
    for second in 1..40i64 {
        for session in 0..8 {
            let from = second * 1_000_000 + session * 120_000;
            let to = from + 990_000;
            let change = CHANGE + session * 500;
            let share = |part: i64| (part * 100 / 990_000) as u64;
            if from < change {
                let last = to.min(change);
                flips.add(&key(7, A), &batch(share(last - from), 1.0, from, last));
            }
            if to > change {
                let first = from.max(change + 1);
                flips.add(&key(7, B), &batch(share(to - first), 9.0, first, to));
            }
        }
        if second % 5 == 0 {
            flips.settle();
        }
    }
    let events = found(&mut flips);
    assert!(
        matches!(events[..], [(A, B, before, after)] if before > 14_000 && after > 13_000),
        "{events:?}"
    );
}

#[test]
fn without_a_reader_a_plan_takes_over_when_the_other_was_quiet() {
    let mut flips = with_a();
    flips.add(&key(7, B), &batch(50, 4.0, 200, 1_000_000));
    assert_eq!(flips.events().count(), 0);
    flips.add(&key(7, B), &batch(50, 4.0, 1_000_001, 4_000_000));
    assert_eq!(flips.events().count(), 1);
}

#[test]
fn the_last_plan_of_an_observed_query_is_the_one_that_ran_last() {
    let mut flips = flips();
    assert_eq!(flips.last_plan(&key(7, C)), None);
    flips.observe_query(&key(7, A), &batch(1, 1.0, 1, 1));
    assert!(flips.observes(&key(7, C)) && !flips.observes(&key(8, C)));
    assert_eq!(flips.last_plan(&key(7, C)), Some(key(7, A)));
    flips.add(&key(7, B), &batch(1, 1.0, 2, 2));
    assert_eq!(flips.last_plan(&key(7, C)), Some(key(7, B)));
    // Statements without a queryid are not the same query.
    assert_eq!(flips.last_plan(&key(0, B)), None);
}

#[test]
fn many_queries_and_events_are_bounded() {
    let mut flips = flips();
    for query in 1..=10_000 {
        flips.observe_query(&key(query, A), &batch(5, 1.0, query * 10, query * 10 + 1));
        flips.add(&key(query, B), &batch(5, 1.0, query * 10 + 2, query * 10 + 3));
        flips.settle();
    }
    let mut queries: Vec<i64> = flips.events().map(|event| event.from.queryid).collect();
    queries.sort_unstable();
    assert_eq!(queries.len(), EVENTS);
    assert!(queries[0] > 10_000 - 2 * EVENTS as i64, "{queries:?}");
    assert!(flips.find(&key(10_000, A)).is_some());
    assert!(flips.find(&key(1, A)).is_none());
    // A query whose events are forgotten, too, begins with the plan that runs next.
    flips.add(&key(1, B), &batch(5, 1.0, 200_000, 200_001));
    flips.add(&key(1, A), &batch(5, 1.0, 200_002, 200_003));
    flips.settle();
    assert!(
        flips
            .events()
            .any(|event| (event.from, event.to()) == (key(1, B), key(1, A)))
    );
}

/// Returns the key of a plan of another role.
fn key_of(userid: u32, query: i64, plan: i64) -> PlanKey {
    let mut key = key(query, plan);
    key.userid = userid;
    key
}

#[test]
fn a_role_pushes_out_its_own_changes() {
    const OTHER: u32 = 77;
    let mut flips = flips();
    let change = |flips: &mut Flips, userid, query, ms| {
        let at = flips.last_serial as i64 * 10_000 + query * 10;
        flips.observe_query(&key_of(userid, query, A), &batch(5, 1.0, at, at + 1));
        flips.add(&key_of(userid, query, B), &batch(5, ms, at + 2, at + 3));
        flips.settle();
    };
    let of = |flips: &Flips, userid| {
        let mut found: Vec<i64> = flips
            .events()
            .filter(|event| event.from.userid == userid)
            .map(|event| event.from.queryid)
            .collect();
        found.sort_unstable();
        found
    };
    for query in 1..=20 {
        change(&mut flips, 10, query, 2.0);
    }
    // One costly change, then 2,000 cheap ones.
    change(&mut flips, OTHER, 1, 500.0);
    for query in 2..=2_000 {
        change(&mut flips, OTHER, query, 1.5);
    }
    assert_eq!(of(&flips, 10), (1..=20).collect::<Vec<_>>());
    let mut expected = vec![1];
    let others = EVENTS as i64 - 20;
    // Half of them stay for as long as they are new.
    let newest = of(&flips, OTHER);
    assert_eq!((newest.len(), newest[0]), (others as usize, 1));
    expected.extend(2_000 - others / 2 + 1..=2_000);
    assert!(expected.iter().all(|query| newest.contains(query)), "{newest:?}");
    // A role with few changes still has room, and is observed.
    for query in 1..=100 {
        change(&mut flips, 10, 1_000 + query, 2.0);
    }
    assert_eq!(of(&flips, 10).len(), 120);
    let observed = |flips: &Flips, userid| {
        flips
            .queries
            .iter()
            .filter(|query| query.key.userid == userid)
            .count()
    };
    assert_eq!(observed(&flips, 10) + observed(&flips, OTHER), QUERIES);
    assert!(observed(&flips, 10) >= 100);
}

/// Returns how often the new plan ran since the only change of a query.
fn ran_since(flips: &mut Flips, query: i64) -> Vec<u64> {
    flips.settle();
    let of_query = flips.events().filter(|event| event.from.queryid == query);
    of_query.map(|event| event.after.calls()).collect()
}

#[test]
fn many_queries_with_several_plans_run_in_turn() {
    let mut flips = flips();
    let mut at = 0;
    // Each has two plans, the second of which took over. All of them run on.
    for query in 1..=200 {
        flips.observe_query(&key(query, A), &batch(5, 1.0, at, at + 1));
        flips.add(&key(query, B), &batch(5, 2.0, at + 2, at + 3));
        at += 10;
    }
    for round in 1..=20 {
        for query in 1..=200 {
            flips.add(&key(query, B), &batch(5, 2.0, at, at + 1));
            at += 10;
        }
        for query in 1..=200 {
            assert_eq!(ran_since(&mut flips, query), [5 + 5 * round], "{query}");
        }
    }
}

#[test]
fn a_query_that_was_forgotten_goes_on_with_its_last_event() {
    let mut flips = flips();
    flips.observe_query(&key(1, A), &batch(5, 1.0, 1, 2));
    flips.add(&key(1, B), &batch(5, 2.0, 3, 4));
    flips.settle();
    // Others that have no events take its place.
    let forget = |flips: &mut Flips, at| {
        for query in 2..=10_000 {
            flips.observe_query(&key(query, A), &batch(5, 1.0, at, at + query));
        }
        assert!(flips.find(&key(1, A)).is_none());
    };
    forget(&mut flips, 10);
    flips.add(&key(1, B), &batch(7, 2.0, 20_000, 20_001));
    assert_eq!(ran_since(&mut flips, 1), [12]);
    // Another plan runs next.
    forget(&mut flips, 30_000);
    flips.add(&key(1, C), &batch(5, 2.0, 50_000, 50_001));
    assert_eq!(ran_since(&mut flips, 1), [12, 5]);
    let mut plans: Vec<_> = flips.events().filter(|event| event.from.queryid == 1).collect();
    plans.sort_by_key(|event| event.serial);
    let plans: Vec<_> = plans
        .iter()
        .map(|event| (event.from.planid, event.to().planid))
        .collect();
    assert_eq!(plans, [(A, B), (B, C)]);
}

#[test]
fn what_ran_last_is_observed_after_a_restart() {
    let mut first = flips();
    for query in 1..=2_000 {
        first.observe_query(&key(query, A), &batch(5, 1.0, query * 10, query * 10 + 1));
    }
    let saved = first.saved().expect("there is memory");
    let mut second = flips();
    second.restore(&saved);
    let observed = |flips: &Flips| {
        let mut observed: Vec<i64> = flips.queries.iter().map(|query| query.key.queryid).collect();
        observed.sort_unstable();
        observed
    };
    assert_eq!(observed(&second), observed(&first));
    for query in 2_001..=4_000 {
        second.observe_loaded(&key(query, A), &batch(5, 1.0, 1, 2));
    }
    assert_eq!(observed(&second), observed(&first), "these ran before");
    second.observe_loaded(&key(4_001, A), &batch(5, 1.0, 1, 1_000_000));
    assert!(second.find(&key(4_001, A)).is_some());
}

#[test]
fn a_reset_deletes_what_it_names() {
    let mut flips = with_a();
    flips.observe_query(&key(8, A), &batch(10, 1.0, 1, 100));
    for query in [7, 8] {
        flips.add(&key(query, B), &batch(5, 4.0, 200, 300));
    }
    assert_eq!(found(&mut flips).len(), 2);
    flips.clear(0, 0, 7);
    let queries: Vec<i64> = flips.events().map(|event| event.from.queryid).collect();
    assert_eq!(queries, [8]);
    assert!(flips.find(&key(7, A)).is_none());
    flips.clear(11, 0, 0);
    assert_eq!(flips.events().count(), 1);
    flips.clear(0, 0, 0);
    assert_eq!(flips.events().count(), 0);
    assert!(flips.find(&key(8, A)).is_none());
}

#[test]
fn a_file_keeps_events_and_queries() {
    let mut first = with_a();
    first.add(&key(7, B), &batch(5, 4.0, 200, 300));
    first.settle();
    let saved = first.saved().expect("memory");
    let bytes = postcard::to_stdvec(&saved).expect("bytes");
    let read: SavedFlips = postcard::from_bytes(&bytes).expect("the same");
    let mut second = flips();
    second.restore(&read);
    second.add(&key(7, B), &batch(5, 4.0, 400, 500));
    assert_eq!(found(&mut second), [(A, B, 10, 10)]);
    // A table in use stays.
    second.restore(&SavedFlips::default());
    assert_eq!(found(&mut second).len(), 1);
}
