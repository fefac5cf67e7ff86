use super::*;

const MINUTE: i64 = 60_000_000;
/// The number of a plan that the store does not have.
const NOT_STORED: i64 = -1;

fn table() -> Box<Regressions> {
    Regressions::empty()
}

/// Returns executions that took so many milliseconds each.
fn done(executions: u64, ms: f64) -> Done {
    let ms = executions as f64 * ms;
    Done {
        executions,
        busy_ms: ms,
        wall_ms: ms,
    }
}

fn look(userid: u32, query: i64, executions: u64, extra_ms: f64) -> Look {
    Look {
        from: PlanKey::new(userid, 5, query, 1, true),
        to: 2,
        since: 100 * MINUTE,
        before: Sums::default(),
        all: done(executions, 1.0),
        began: Done::default(),
        period_us: 0,
        reference: Reference::Plan,
        interval: [0; 2],
        machine: 1.0,
        control: 1.0,
        found: match extra_ms > 0.0 {
            true => Found::Slower(Finding {
                ratio: 3.0,
                extra_ms,
                basis: Basis::Tested(0.001),
            }),
            false => Found::Nothing,
        },
    }
}

/// Returns the numbers and states that have changed.
fn update(table: &mut Regressions, looks: &[Look], minute: i64) -> Vec<(u64, &'static str)> {
    let mut changes = Vec::new();
    let changed = |known: &Regression| changes.push((known.id, known.state.name()));
    table.update(
        looks.iter().copied(),
        true,
        100 * MINUTE + minute * MINUTE,
        |key| key.planid != NOT_STORED,
        changed,
    );
    changes
}

#[test]
fn a_regression_is_confirmed_after_five_minutes_and_ten_executions() {
    let mut table = table();
    let mut at =
        |minute, executions, extra_ms| update(&mut table, &[look(10, 7, executions, extra_ms)], minute);
    assert_eq!(at(0, 20, 9.0), [(1, "open")]);
    assert_eq!(at(4, 90, 9.0), []);
    assert_eq!(at(5, 29, 9.0), []);
    assert_eq!(at(6, 30, 9.0), [(1, "confirmed")]);
    assert_eq!(at(7, 40, 9.0), []);
    assert_eq!(at(8, 50, 0.0), [(1, "over")]);
    assert_eq!(at(9, 60, 0.0), []);
    // It comes back.
    assert_eq!(at(10, 70, 9.0), [(1, "open")]);
    // Somebody else's statement is not among what is looked at any more.
    assert_eq!(update(&mut table, &[], 11), [(1, "over")]);
}

#[test]
fn a_statement_that_comes_seldom_is_confirmed_after_three_periods() {
    let mut table = table();
    let hours = 60;
    let nightly = |executions| Look {
        period_us: 24 * hours * MINUTE,
        ..look(10, 7, executions, 9.0)
    };
    assert_eq!(update(&mut table, &[nightly(1)], 0), [(1, "open")]);
    assert_eq!(update(&mut table, &[nightly(3)], 48 * hours), []);
    assert_eq!(update(&mut table, &[nightly(4)], 72 * hours), [(1, "confirmed")]);
}

/// Returns why all are over that are.
fn closings(table: &Regressions) -> Vec<&'static str> {
    let closings = table.all().filter_map(Regression::closing);
    closings.map(Closing::name).collect()
}

#[test]
fn what_does_not_run_for_a_day_is_over_until_it_runs_again() {
    let mut table = table();
    let mut at = |hour: i64, executions| {
        let changes = update(&mut table, &[look(10, 7, executions, 9.0)], 60 * hour);
        (changes, closings(&table))
    };
    assert_eq!(at(0, 20).0, [(1, "open")]);
    assert_eq!(at(1, 40).0, [(1, "confirmed")]);
    for hour in 2..25 {
        assert_eq!(at(hour, 40).0, [], "{hour}");
    }
    assert_eq!(at(25, 40), (vec![(1, "over")], vec!["not run"]));
    // As long as it does not run, it stays over, and no time is too long.
    for day in 2..40 {
        assert_eq!(at(24 * day, 40), (vec![], vec!["not run"]), "{day}");
    }
    assert_eq!(at(24 * 40, 41), (vec![(1, "open")], vec![]));
}

#[test]
fn time_in_which_nobody_looked_does_not_count() {
    let mut table = table();
    let mut at = |hour: i64| update(&mut table, &[look(10, 7, 20, 9.0)], 60 * hour);
    assert_eq!(at(0), [(1, "open")]);
    // The server was down for two days.
    assert_eq!(at(48), []);
    assert_eq!(at(49), []);
    for hour in 50..71 {
        assert_eq!(at(hour), [], "{hour}");
    }
    assert_eq!(at(71), [(1, "over")]);
}

#[test]
fn a_statement_that_comes_once_a_week_may_be_idle_for_longer() {
    let mut table = table();
    let mut over = Vec::new();
    for hour in 0..1_000 {
        let weekly = Look {
            period_us: 7 * 24 * 60 * MINUTE,
            ..look(10, 7, 1 + (hour / 168).min(2), 9.0)
        };
        let changes = update(&mut table, &[weekly], 60 * hour as i64);
        over.extend(changes.iter().filter(|(_, state)| *state == "over").map(|_| hour));
    }
    // It ran last in hour 336.
    assert_eq!(over, [336 + 8 * 24]);
}

#[test]
fn what_is_over_says_why() {
    let mut table = table();
    update(&mut table, &[look(10, 7, 20, 9.0), look(10, 8, 20, 9.0)], 0);
    update(&mut table, &[look(10, 7, 30, 0.0)], 1);
    assert_eq!(closings(&table), ["no longer slower", "another plan"]);
    // With too few executions to judge, it stays as it is.
    update(&mut table, &[look(10, 7, 40, 9.0)], 2);
    let few = Look {
        found: Found::TooFew,
        ..look(10, 7, 41, 9.0)
    };
    assert_eq!(update(&mut table, &[few], 3), []);
    assert_eq!(closings(&table), ["another plan"]);
    // And what was not found is not opened.
    let few = Look {
        found: Found::TooFew,
        ..look(10, 9, 41, 9.0)
    };
    assert_eq!(update(&mut table, &[few, look(10, 7, 42, 9.0)], 4), []);
}

#[test]
fn what_costs_little_is_over_and_not_called_faster() {
    let mut table = table();
    let cheap = |executions| Look {
        found: Found::Cheap,
        ..look(10, 7, executions, 9.0)
    };
    // It does not open for that.
    assert_eq!(update(&mut table, &[cheap(10)], 0), []);
    assert_eq!(update(&mut table, &[look(10, 7, 20, 9.0)], 1), [(1, "open")]);
    assert_eq!(update(&mut table, &[cheap(30)], 2), [(1, "over")]);
    assert_eq!(closings(&table), ["costs little"]);
    // The reason stays that of the moment at which it ended.
    assert_eq!(update(&mut table, &[look(10, 7, 40, 0.0)], 3), []);
    assert_eq!(closings(&table), ["costs little"]);
    assert_eq!(update(&mut table, &[look(10, 7, 50, 9.0)], 4), [(1, "open")]);
}

/// Its cost is about that of a regression: it does not come and go with each look.
#[test]
fn what_costs_a_little_less_stays_open() {
    let mut table = table();
    let small = |executions| match look(10, 7, executions, 9.0).found {
        Found::Slower(finding) => Look {
            found: Found::Small(finding),
            ..look(10, 7, executions, 9.0)
        },
        found => panic!("{found:?}"),
    };
    assert_eq!(update(&mut table, &[small(10)], 0), []);
    assert_eq!(update(&mut table, &[look(10, 7, 20, 9.0)], 1), [(1, "open")]);
    for at in 2..9 {
        let next = if at % 2 == 0 {
            small(20 + at as u64)
        } else {
            look(10, 7, 20 + at as u64, 9.0)
        };
        assert_eq!(update(&mut table, &[next], at), []);
    }
    assert_eq!(update(&mut table, &[look(10, 7, 40, 0.0)], 9), [(1, "over")]);
    // It does not open again for that.
    assert_eq!(update(&mut table, &[small(50)], 10), []);
}

#[test]
fn who_has_the_most_makes_room() {
    let mut table = table();
    let many: Vec<Look> = (0..REGRESSIONS as i64)
        .map(|i| look(10, i, 9, 100.0 + i as f64))
        .collect();
    assert_eq!(update(&mut table, &many, 0).len(), REGRESSIONS);
    // A cheaper one of the same role finds no room, one of another role does.
    let mut more = many.clone();
    more.push(look(10, 999, 9, 50.0));
    assert_eq!(update(&mut table, &more, 1), []);
    more[REGRESSIONS] = look(11, 999, 9, 50.0);
    assert_eq!(update(&mut table, &more, 2).len(), 1);
    assert_eq!(table.all().filter(|known| known.from.userid == 11).count(), 1);
    // What is over makes room first.
    assert_eq!(update(&mut table, &more[1..], 3), []);
    assert_eq!(update(&mut table, &more[5..], 4).len(), 4);
    assert_eq!(
        update(&mut table, &[look(10, 1_000, 9, 1.0)], 5).first(),
        Some(&(130, "open"))
    );
}

#[test]
fn regressions_are_dismissed_and_cleared() {
    let mut table = table();
    update(&mut table, &[look(10, 7, 9, 9.0), look(11, 8, 9, 9.0)], 0);
    assert!(table.dismiss(2, 500) && !table.dismiss(3, 500) && !table.dismiss(0, 500));
    let dismissed: Vec<_> = table.all().map(|known| known.is_dismissed(499)).collect();
    assert_eq!(dismissed, [false, true]);
    let first = table.all().next().expect("a regression");
    assert_eq!(
        (first.to().planid, first.chance(), first.ratio),
        (2, Some(0.001), 3.0)
    );
    let saved = table.saved().expect("memory");
    let mut restored = self::table();
    restored.restore(&saved);
    assert!(restored.all().eq(table.all()));
    table.clear(10, 0, 0);
    assert_eq!(table.all().map(|known| known.id).collect::<Vec<_>>(), [2]);
    table.clear(0, 0, 0);
    assert_eq!(table.all().count(), 0);
}

/// The last mark of a plan that did not change says how many executions there are in all. A batch ran each
/// night.
#[test]
fn a_nightly_batch_without_another_plan_may_be_idle_for_three_nights() {
    let mut table = table();
    let mut over = Vec::new();
    for hour in 0..24 * 30 {
        let nights = (hour / 24).min(9);
        let nightly = Look {
            since: 100 * MINUTE - 45 * MINUTE,
            ..look(10, 7, 1_000 + 20 * nights, 9.0)
        };
        let changes = update(&mut table, &[nightly], 60 * hour as i64);
        over.extend(changes.iter().filter(|(_, state)| *state == "over").map(|_| hour));
    }
    // After so few minutes, nobody knows yet that it comes each night. It ran last in hour 216: 180 times in
    // ten nights, so it has not run for a day.
    assert_eq!(over, [240]);
    assert_eq!(closings(&table), ["not run"]);
}

/// The new plan was slow for a thousand executions. Then it is as fast as the one before.
#[test]
fn a_new_plan_that_is_fast_again_is_no_longer_slower() {
    let mut table = table();
    let mut before = Sums::default();
    (0..20).for_each(|_| before.add(1.0, 1.0, false));
    let mut all = done(1_000, 1_000.0);
    let mut at = |minute: i64, ms: f64| {
        let more = done(10, ms);
        all.executions += more.executions;
        all.busy_ms += more.busy_ms;
        all.wall_ms += more.wall_ms;
        // All executions together are slow for long.
        let look = Look {
            before,
            all,
            ..look(10, 7, 0, 9.0)
        };
        update(&mut table, &[look], minute)
    };
    assert_eq!(at(0, 1_000.0), [(1, "open")]);
    assert_eq!(at(10, 1_000.0), [(1, "confirmed")]);
    // No more than an hour's quarter is looked at, after it has passed.
    for minute in 11..26 {
        assert_eq!(at(minute, 1.0), [], "{minute}");
    }
    let ends: Vec<i64> = (26..60).filter(|minute| !at(*minute, 1.0).is_empty()).collect();
    assert_eq!(ends, [30]);
    // It stays over, also if it becomes a little slower, and comes back if it is as slow as a regression.
    for minute in 60..120 {
        assert_eq!(at(minute, 1.8), [], "{minute}");
    }
    let opens: Vec<i64> = (120..180).filter(|minute| !at(*minute, 3.0).is_empty()).collect();
    assert_eq!(opens.len(), 2, "{opens:?}");
    assert_eq!(closings(&table), [] as [&str; 0]);
}

/// Lately, plans of other queries take twice as long, too.
#[test]
fn a_new_plan_is_no_longer_slower_than_what_the_machine_explains() {
    let mut before = Sums::default();
    (0..20).for_each(|_| before.add(1.0, 1.0, false));
    for (control, state) in [(1.0, "confirmed"), (2.0, "over")] {
        let mut table = table();
        for quarter in 0..9 {
            let executions = 100 * (quarter as u64 + 1);
            let mut all = done(executions, 2.5);
            all.busy_ms += 1e6;
            let look = Look {
                before,
                control,
                all,
                ..look(10, 7, 0, 9.0)
            };
            update(&mut table, &[look], 15 * quarter);
        }
        let states: Vec<_> = table.all().map(|known| known.state.name()).collect();
        assert_eq!(states, [state], "{control}");
    }
}

#[test]
fn a_plan_that_was_evicted_is_not_another_plan() {
    let mut table = table();
    let gone = Look {
        to: NOT_STORED,
        ..look(10, 7, 20, 9.0)
    };
    update(&mut table, &[gone, look(10, 8, 20, 9.0)], 0);
    assert_eq!(update(&mut table, &[], 1).len(), 2);
    assert_eq!(closings(&table), ["plan not stored", "another plan"]);
}
