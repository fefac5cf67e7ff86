use super::super::stored_head;
use super::*;
use crate::model::sample;

fn name(event: Event) -> String {
    format!("event {event}")
}

fn text(statement: &Statement) -> String {
    statement.stored_lines().join("\n")
}

#[test]
fn what_is_not_known_is_a_dash() {
    let plan = sample::plan(2);
    let mut statement = Statement::of_plan(&plan, None);
    statement.add_plan(&plan, None, name);
    let text = text(&statement);
    for part in [
        "QUERY ID: 4711\n\nSELECT 1\n",
        "\nParse          -            -            -          -          -          -          -            -\n",
        "\nPlan           -            -            -          -          -          -          -            -\n",
        "\nExecute        1            -            -          -          -          -          -            -\n",
        "\nFetch          -            -     0.001500          0       1000          0          3            -\n",
        "\nClose          -            -            -          -          -          -          -            -\n",
        "\nknown          1            -     0.001500          0       1000          0          3            -\n",
        "\nParsing user id: 10, database id: 5\n",
        "\nCalls that ended with an error: 1\nNot known: how often it was parsed, processor times, how long the executor took to start and to \
         end, whether it was planned, in which call it waited.\nNo waits were counted. ",
        "\nPlan id: 815, executions: 1\nRows(last) Rows (avg) Rows (max)  Row Source Operation\n",
        "         3          3          -  Append (cr=1000 pr=0 pw=0 time=1250 us starts=2 cost=0.00 card=3)\n",
        "         3          3          -   Seq Scan on t (cr=1000 ",
        // The octave begins at 2^-10 ms, times 1024.
        "\n       1ms |@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@ 1\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains("Finish"), "{text}");
}

#[test]
fn hidden_statements_show_no_names() {
    let plan = sample::plan(2);
    let mut statement = Statement::of_plan(&plan, Some("<hidden>"));
    statement.add_plan(&plan, Some("<hidden>"), name);
    let text = text(&statement);
    assert!(text.contains("QUERY ID: -\n\n<hidden>\n"), "{text}");
    assert!(text.contains("\nPlan id: -, executions: 1\n"), "{text}");
    assert!(text.contains("  -  <hidden> (cr=1000 "), "{text}");
    for hidden in ["SELECT", "4711", "815", "Append", "Scan"] {
        assert!(!text.contains(hidden), "{hidden}\n{text}");
    }
}

#[test]
fn plans_of_a_statement_add_up() {
    let mut plan = sample::plan(1);
    plan.statistics.planning = crate::model::Planning {
        plans: 2,
        total_ms: 0.25,
        ..Default::default()
    };
    let mut waits = PlanWaits::none();
    for node in 0..2 {
        waits.add(crate::waits::plan::EventWaits {
            node,
            event: 7,
            waits: 3,
            ns: 4_000,
            max_ns: 2_000,
        });
    }
    plan.statistics.waits = waits;
    let mut statement = Statement::of_plan(&plan, None);
    let mut totals = StoredTotals::default();
    for _ in 0..MAX_PLANS + 2 {
        statement.add_plan(&plan, None, name);
        let calls = calls(&plan);
        totals.add(true, &calls, &plan.statistics.waits, name);
    }
    let text = text(&statement);
    let lines = [
        "Plan          44            -     0.005500          0          0          0          0            -\n",
        "Execute       22            -            -          -          -          -          -            -\n",
        "Fetch          -            -     0.033000          0      22000          0         66            -\n",
        "  event 7                                        132     0.000002      0.000176\n",
    ];
    let sums = totals.lines().join("\n");
    for line in lines {
        assert!(text.contains(line), "{line}\n{text}");
        assert!(sums.contains(line), "{line}\n{sums}");
    }
    assert!(text.contains("\n(2 more plans)\n"), "{text}");
    let head = stored_head("Store".to_owned(), &[], Some(5)).join("\n");
    assert!(
        head.starts_with("Store\nStatements: the last run first, at most 5\n****"),
        "{head}"
    );
}

/// Means are those of the executions that counted, and the report says how many these are.
#[test]
fn executions_that_counted_rows_only_lower_no_mean() {
    let mut plan = sample::plan(2);
    plan.statistics.times.calls = 4;
    plan.statistics.explain_calls = 7;
    for node in &mut plan.nodes {
        node.total.rows = 12;
    }
    plan.nodes[0].total.starts = Some(1).into();
    let mut statement = Statement::of_plan(&plan, None);
    statement.add_plan(&plan, None, name);
    let shown = text(&statement);
    for part in [
        "\nBlocks, starts and times of row sources are those of 1 of 4 executions. The others counted rows only, or \
         were never fetched from.\n",
        "\nExecutions by EXPLAIN (ANALYZE), which are not included: 7\n",
        "         3          3          -  Append (cr=1000 pr=0 pw=0 time=1250 us starts=1 ",
        "         3          3          -   Seq Scan on t (cr=1000 ",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    // If none counted, there are dashes.
    for node in &mut plan.nodes {
        node.total.starts = None.into();
        node.total.buffers = None.into();
        node.total.time = None.into();
    }
    let mut statement = Statement::of_plan(&plan, None);
    statement.add_plan(&plan, None, name);
    let shown = text(&statement);
    assert!(
        shown.contains("Append (cr=- pr=- pw=- time=- us starts=- "),
        "{shown}"
    );
    assert!(
        shown.contains(", blocks of the executions, in which call it waited.\n"),
        "{shown}"
    );
    assert!(!shown.contains("counted rows only"), "{shown}");
    // Also if the blocks of the planner are known.
    plan.statistics.planning.plans = 1;
    let mut statement = Statement::of_plan(&plan, None);
    statement.add_plan(&plan, None, name);
    assert_eq!(statement.total().gets, Some(0));
    let shown = text(&statement);
    assert!(
        shown.contains(", blocks of the executions, in which call it waited.\n"),
        "{shown}"
    );
    assert!(!shown.contains("counted rows only"), "{shown}");
}

#[test]
fn a_sum_says_what_it_lacks() {
    let plan = sample::plan(1);
    let mut sum = DatabaseSum::default();
    sum.totals.plan = plan.statistics;
    let shown = text(&Statement::of_others(&sum, name));
    for part in [
        "in which call it waited, texts, plans and row sources.\n",
        "\nFetch includes utility statements, whose call is Execute elsewhere.\n",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
}

#[test]
fn a_utility_statement_is_executed_only() {
    let mut plan = sample::plan(1);
    let description = std::rc::Rc::get_mut(&mut plan.description).expect("the only user");
    description.nodes[0].operation = "CALL".to_owned();
    let calls = calls(&plan);
    assert_eq!(calls[Phase::Fetch as usize], Sums::UNKNOWN);
    let mut statement = Statement::of_plan(&plan, None);
    statement.add_plan(&plan, None, name);
    let shown = text(&statement);
    assert!(
        shown.contains("\nNot known: how often it was parsed, processor times, in which call it waited.\n"),
        "{shown}"
    );
    let executed = calls[Phase::Exec as usize];
    assert_eq!((executed.count, executed.elapsed_us), (Some(1), Some(1_500)));
}

/// What the store never knows is no order.
#[test]
fn words_that_are_never_known_are_found() {
    let never = |words| {
        let keys = super::super::sort::parse(words).expect("TKPROF's words");
        never_stored(words, &keys)
    };
    for word in [
        "prscnt", "PRSELA", "clsrow", "execpu", "fchcpu", "totcpu", "plncpu", "fchcnt",
    ] {
        assert_eq!(never(word), Some(word));
        let second = format!("totela,{word} userid");
        let keys = super::super::sort::parse(&second).expect("TKPROF's words");
        assert_eq!(never_stored(&second, &keys), Some(word));
    }
    assert_eq!(
        never("exeela execnt exedsk fchela,fchdsk fchrow plnela plncnt totela totqry totcu userid"),
        None
    );
}
