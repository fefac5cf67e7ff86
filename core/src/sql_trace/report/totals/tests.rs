use super::super::super::reader::Reader;
use super::super::sort::parse as parse_sort;
use super::super::statement::Sums;
use super::*;

const FILE: &str = "\
TRACE #0:version=2,pid=42,uid=10,datid=5,part=1,unix=0,tim=1000,session=u@d psql
PARSING IN CURSOR #1:dep=0,uid=10,queryid=7,tim=1010,sql=call p()
WAIT #1:dep=0,ela=100,tim=1100,nam=Client ClientRead
PARSING IN CURSOR #2:dep=1,uid=10,queryid=8,tim=1010,sql=select 1\\nfrom t
EXEC #2:c=5,e=10,dep=1,tim=1150
WAIT #2:dep=2,ela=20,node=0,tim=1180,nam=IO DataFileRead
FETCH #2:c=5,e=30,p=1,cr=4,r=3,dep=1,tim=1185
NODE #2:plh=3,id=0,cost=150,card=10,op=Sort
STAT #2:dep=1,id=0,rows=3,cr=4,pr=1,time=25,starts=1
NODE #2:plh=3,id=1,pid=0,cost=100,card=10,op=Seq Scan on t
STAT #2:dep=1,id=1,rows=3,cr=4,pr=1,time=20,starts=1
CLOSE #2:c=1,e=2,dep=1,tim=1190
EXEC #2:c=5,e=10,dep=1,tim=1250
FETCH #2:c=5,e=30,p=1,cr=4,cu=2,r=5,dep=1,tim=1290
STAT #2:dep=1,id=0,rows=5,cr=6,pr=1,time=35,starts=1
CLOSE #2:c=1,e=2,dep=1,tim=1300
EXEC #1:c=50,e=200,p=2,cr=8,cu=2,util=1,tim=1310
XCTEND #1:rlbk=0,rd_only=1,tim=1320
WAIT #1:dep=0,ela=50,tim=1390,nam=Client ClientRead
PARSE #3:c=1,e=5,tim=1400
ERROR #3:err=42601,tim=1410
LOST #0:lines=4,reason=No space left on device
END #0:tim=1450";

/// Adds the lines of a file.
fn add(report: &mut Report, text: &str) {
    let mut reader = Reader::default();
    text.lines()
        .filter_map(|line| reader.read(format!("{line}\n").as_bytes()))
        .for_each(|event| report.add(event));
}

fn read(text: &str) -> Report {
    let mut report = Report::default();
    report.begin_file("a.trc".to_owned());
    add(&mut report, text);
    report.end_file(["the file is cut".to_owned()]);
    report
}

/// Returns how many executions took this many microseconds up to twice as many.
fn count_from(statement: &Statement, from_us: f64) -> u64 {
    let mut buckets = statement.executions.buckets();
    buckets
        .find(|bucket| bucket.from_us == from_us)
        .map_or(0, |bucket| bucket.count)
}

#[test]
fn calls_are_added_up_per_statement() {
    let report = read(FILE);
    let [call, nested, unknown] = report.statements() else {
        panic!("{:?}", report.statements());
    };
    assert_eq!(
        (nested.is_recursive, nested.dep, nested.queryid),
        (true, Some(1), Some(8))
    );
    assert_eq!((call.is_recursive, unknown.queryid), (false, Some(0)));
    let fetches = Sums {
        count: Some(2),
        cpu_us: Some(10),
        elapsed_us: Some(60),
        reads: Some(2),
        gets: Some(8),
        dirtied: Some(2),
        rows: Some(8),
        // 5 us before the first one, 10 us before the second one.
        before_us: Some(5 + 10),
        failed: 0,
    };
    assert_eq!(nested.calls[Phase::Fetch as usize], fetches);
    // Nothing is known of the time before the first statement in a call; 50 us are before the second one.
    assert_eq!(nested.calls[Phase::Exec as usize].before_us, Some(50));
    assert_eq!(nested.calls[Phase::Close as usize].before_us, Some(3 + 8));
    let root = &nested.plans[0].nodes[0];
    assert_eq!(
        (root.executions, root.rows, root.max_rows, root.single.rows),
        (2, 8, Some(5), 3)
    );
    assert_eq!(nested.plans[0].nodes[1].depth, 1);
    assert_eq!(nested.waits["IO DataFileRead"].total_us, 20);
    assert_eq!(call.waits["Client ClientRead"].times, 2);
    // 42 us each, and the call.
    assert_eq!((count_from(nested, 32.0), count_from(call, 128.0)), (2, 1));
}

/// The server does not say when the analysis of a nested statement begins. So its Parse has a count, and no
/// other figures.
#[test]
fn a_call_without_a_time_has_no_figures() {
    let report = read(
        "TRACE #0:version=2,pid=7,uid=10,datid=5,part=1,unix=1,tim=1000,session=a@b c
PARSING IN CURSOR #1:dep=1,uid=10,queryid=8,tim=1010,sql=SELECT nested
PARSE #1:dep=1,tim=1020
PARSE #1:dep=1,tim=1030
PLAN #1:c=3,e=4,dep=1,tim=1040
END #0:tim=1450",
    );
    let calls = report.statements()[0].calls;
    let parsed = calls[Phase::Parse as usize];
    assert_eq!(
        (parsed.count, parsed.elapsed_us, parsed.cpu_us, parsed.gets),
        (Some(2), None, None, None)
    );
    let planned = calls[Phase::Plan as usize];
    assert_eq!(
        (planned.count, planned.elapsed_us, planned.reads),
        (Some(1), Some(4), Some(0))
    );
    let text = report.lines(&[], None).join("\n");
    let line =
        "\nParse          2            -            -          -          -          -          -     0.0000";
    // The totals have no figures either.
    assert_eq!(text.matches(line).count(), 2, "{text}");
}

/// A trace of single statements does not know what the session did in between.
#[test]
fn time_before_a_single_statement_is_not_its_own() {
    let report = read(
        "TRACE #0:version=2,pid=7,uid=10,datid=5,part=1,unix=1,tim=1000,session=a@b c
PARSING IN CURSOR #1:dep=0,uid=10,queryid=8,tim=2000,sql=SELECT wanted
PARSE #1:tim=2000
PLAN #1:c=3,e=4,tim=2010
EXEC #1:c=3,e=4,tim=2015
FETCH #1:c=3,e=4,alone=1,tim=9000
CLOSE #1:c=3,e=4,tim=9005
END #0:tim=9005",
    );
    let before = report.statements()[0].calls.map(|sums| sums.before_us);
    let of = |phase| before[phase as usize];
    assert_eq!(
        [Phase::Parse, Phase::Plan, Phase::Exec, Phase::Fetch, Phase::Close].map(of),
        [Some(0), Some(6), Some(1), Some(0), Some(1)]
    );
}

/// The elapsed time of a file is divided into calls, waits and a rest, and the phases have all of the rest
/// but the end.
#[test]
fn no_time_is_missing() {
    let report = read(FILE);
    assert_eq!(
        (report.elapsed_us, report.in_calls_us, report.between_us),
        (450, 205, 150)
    );
    let before: u64 = report.totals[0].iter().filter_map(|sums| sums.before_us).sum();
    // 10 us before the CALL, 35 us before the PARSE.
    assert_eq!(before, 10 + 35);
    let after_last_call = 1450 - 1400;
    assert_eq!(450 - 205 - 150, before + after_last_call);
}

#[test]
fn the_report_is_printed() {
    let report = read(FILE);
    let text = report.lines(&[], None).join("\n");
    for part in [
        "select 1\nfrom t\n",
        "Execute        2     0.000010     0.000020          0          0          0          0     0.000050\n",
        "Fetch          2     0.000010     0.000060          2          8          2          8     0.000015\n",
        "         3          4          5  Sort (cr=5 pr=1 pw=0 time=30 us starts=1 cost=1.50 card=10)\n",
        "         3          3          3   Seq Scan on t (cr=4 pr=1 pw=0 time=20 us starts=1 cost=1.00 card=10)\n",
        "  Client ClientRead                                2     0.000100      0.000150\n",
        "  (recursive depth: 1)",
        "      0.000450  in all\n",
        "4 lines were lost: No space left on device\n",
        "the file is cut",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let sorted = report
        .lines(&parse_sort("FCHELA").expect("a word"), Some(1))
        .join("\n");
    assert!(
        sorted.contains("select 1") && !sorted.contains("call p()"),
        "{sorted}"
    );
    assert_eq!(
        parse_sort("exeela, prscnt fchdsk").map(|keys| keys.len()).ok(),
        Some(3)
    );
    assert_eq!(parse_sort("exeela,exe").err(), Some("exe".to_owned()));
    let by_user = report.lines(&parse_sort("UserID").expect("a word"), Some(1));
    // Statements that are not known have the user 0.
    assert!(by_user.contains(&"call p()".to_owned()), "{by_user:#?}");
}

/// Several files add up: the same statement of two sessions is one.
#[test]
fn files_add_up() {
    let mut report = read(FILE);
    report.begin_file("b.trc".to_owned());
    add(&mut report, FILE);
    report.end_file([]);
    assert_eq!(report.statements().len(), 3);
    assert_eq!(report.statements()[1].calls[Phase::Fetch as usize].count, Some(4));
    assert_eq!(report.elapsed_us, 900);
}

/// Whatever a file contains, there is no overflow.
#[test]
fn large_numbers_do_no_harm() {
    let most = u64::MAX;
    let line = format!(
        "EXEC #1:c={most},e={most},p={most},cr={most},cu={most},r={most},dep={most},tim={most}\nEXEC #1:c=1,e=1,p=1,cr=1,cu=1,r=1,dep=0,util=1,tim=1\nWAIT #1:dep={most},ela={most},tim={most},nam=x\nEXEC #{most}:c={most},e={most},p={most},cr={most},cu={most},r={most},dep={most},tim={most}\nCLOSE #1:c={most},e={most},p={most},cr={most},cu={most},r={most},dep={most},tim={most}"
    );
    let report = read(&line);
    assert!(report.lines(&[], None).len() > 20);
}

/// Returns a file in which cursors with these numbers and queryids fetch a row each, and wait once.
fn fetches(cursors: impl Iterator<Item = (usize, usize)>) -> String {
    let lines = cursors.map(|(number, queryid)| {
        format!(
            "PARSING IN CURSOR #{number}:dep=0,uid=10,queryid={queryid},tim=1,sql=select {queryid}\n\
             WAIT #{number}:dep=1,ela=1,tim=2,nam=IO DataFileRead\n\
             FETCH #{number}:c=1,e=1,cr=1,r=1,tim=2\n\
             NODE #{number}:plh={queryid},id=0,cost=1,card=1,op=Result\n\
             STAT #{number}:id=0,rows=1\n"
        )
    });
    lines.collect()
}

/// A session that uses more statements than it remembers gives them new numbers.
#[test]
fn many_cursors_are_few_statements() {
    let report = read(&fetches((1..=25_000).map(|number| (number, 1 + number % 5_000))));
    assert_eq!(report.statements().len(), 5_000);
    for statement in report.statements() {
        let queryid = statement.queryid.expect("a queryid");
        assert_eq!(statement.sql, format!("select {queryid}"));
        assert_eq!(statement.calls[Phase::Fetch as usize].count, Some(5));
        let plan = &statement.plans[0];
        assert_eq!(
            (plan.id, plan.executions, plan.nodes[0].rows),
            (Some(queryid), 5, 5)
        );
        assert_eq!(statement.waits["IO DataFileRead"].times, 5);
    }
}

#[test]
fn too_many_statements_are_added_up_as_others() {
    let mut report = read(&fetches((1..=12_000).map(|number| (number, number))));
    report.begin_file("b.trc".to_owned());
    // Of the first one, it is known already; the second one is one of the others.
    let more = fetches([(1, 7), (2, 11_000)].into_iter());
    add(&mut report, &more);
    assert_eq!(report.statements().len(), MAX_STATEMENTS + 1);
    let others = report.statements().last().expect("the others");
    assert_eq!((others.sql.as_str(), others.queryid), (OTHERS, Some(0)));
    assert!(others.sql.contains(&MAX_STATEMENTS.to_string()));
    assert_eq!(others.calls[Phase::Fetch as usize].count, Some(2_001));
    assert_eq!(others.waits["IO DataFileRead"].times, 2_001);
    assert!(others.plans.is_empty());
    assert_eq!(report.statements()[6].calls[Phase::Fetch as usize].count, Some(2));
    assert_eq!(report.totals[0][Phase::Fetch as usize].count, Some(12_002));
}

/// A wait between two calls is that of the statement before until its transaction ends and the client's next
/// message comes, and after that it is the next one's. Those inside a call are no time between calls.
#[test]
fn waits_between_calls_are_those_of_the_statement_that_waits() {
    let report = read(
        "TRACE #0:version=2,pid=7,uid=10,datid=5,part=1,unix=1,tim=1000,session=a@b c
PARSING IN CURSOR #1:dep=0,uid=10,queryid=8,tim=1000,sql=before
EXEC #1:e=10,util=1,tim=1010
WAIT #1:dep=0,ela=20,tim=1035,nam=IO WALSync
XCTEND #1:rlbk=0,rd_only=0,c=5,e=30,cr=7,tim=1040
WAIT #1:dep=0,ela=5,tim=1046,nam=LWLock X
WAIT #1:dep=0,ela=50,tim=1100,nam=Client ClientRead
WAIT #1:dep=0,ela=60,tim=1170,nam=Lock relation
WAIT #1:dep=0,ela=30,rest=1,tim=1200,nam=Lock relation
PARSING IN CURSOR #2:dep=0,uid=10,queryid=9,tim=1210,sql=waiting
PARSE #2:c=3,e=110,tim=1210
WAIT #2:dep=0,ela=4,tim=1220,nam=IO DSMFillZeroWrite
EXEC #2:e=5,tim=1230
WAIT #2:dep=1,ela=100,tim=1350,nam=Timeout PgSleep",
    );
    let [before, waiting] = report.statements() else {
        panic!("{:?}", report.statements());
    };
    let waits = |statement: &Statement| -> Vec<String> { statement.waits.keys().cloned().collect() };
    assert_eq!(waits(before), ["Client ClientRead", "IO WALSync", "LWLock X"]);
    assert_eq!(
        waits(waiting),
        ["IO DSMFillZeroWrite", "Lock relation", "Timeout PgSleep"]
    );
    let locked = waiting.waits["Lock relation"];
    assert_eq!((locked.times, locked.max_us, locked.total_us), (1, 90, 90));
    assert_eq!(
        report.waits[0]["Lock relation"], locked,
        "the totals have the whole wait"
    );
    let committed = before.calls[Phase::Commit as usize];
    assert_eq!((committed.elapsed_us, committed.gets), (Some(30), Some(7)));
    // The file ends in a call: 120 us after the last one that has ended. 5 + 50 + 4 us were waits between
    // calls.
    assert_eq!(
        (
            report.elapsed_us,
            report.in_calls_us,
            report.between_us,
            report.unended_us
        ),
        (350, 10 + 30 + 110 + 5, 5 + 50 + 4, 120)
    );
    let rest: u64 = report.totals[0].iter().filter_map(|sums| sums.before_us).sum();
    assert_eq!(rest, 350 - 155 - 59 - 120);
}

/// A cursor is read and closed at other levels than the one at which it was opened.
#[test]
fn an_execution_is_in_one_place() {
    let report = read(
        "TRACE #0:version=2,pid=7,uid=10,datid=5,part=1,unix=1,tim=1000,session=a@b c
PARSING IN CURSOR #1:dep=0,uid=10,queryid=8,tim=1000,sql=declare
PARSING IN CURSOR #2:dep=1,uid=10,queryid=9,tim=1000,sql=query
EXEC #2:e=1,dep=1,tim=1010
EXEC #1:e=5,util=1,tim=1020
FETCH #2:e=2,r=3,dep=2,tim=1030
NODE #2:plh=3,id=0,cost=1,card=1,op=Seq Scan on t
STAT #2:id=0,rows=3
CLOSE #2:e=4,tim=1050",
    );
    let [query, declared] = report.statements() else {
        panic!("{:?}", report.statements());
    };
    assert!(!declared.is_recursive && query.is_recursive);
    let counts = Phase::ALL.map(|phase| query.calls[phase as usize].count);
    assert_eq!(counts, [0, 0, 0, 1, 1, 0, 1, 0].map(Some));
    assert_eq!(query.plans[0].nodes[0].rows, 3);
    // 1 + 2 + 4 us.
    assert_eq!(count_from(query, 4.0), 1);
}

/// What is missing of a trace, and what failed before its first call, is said.
#[test]
fn missing_parts_and_failed_statements_are_listed() {
    let header = |part: u32| {
        format!("TRACE #0:version=2,pid=7,uid=10,datid=5,part={part},unix=1,tim=1000,session=a@b c\n")
    };
    let mut report = Report::default();
    for (name, part) in [("2.trc", 2), ("3.trc", 3)] {
        report.begin_file(name.to_owned());
        let failed = "PARSE ERROR #0:uid=10,err=42P01,e=7,tim=1100,sql=select missing";
        add(&mut report, &format!("{}{failed}", header(part)));
        report.end_file([]);
    }
    let text = report.lines(&[], None).join("\n");
    assert_eq!(
        text.matches("2.trc: this is part 2 of the trace").count(),
        1,
        "{text}"
    );
    assert!(!text.contains("3.trc: this is part"), "{text}");
    assert!(
        text.contains("42P01, 2 times, 0.000014 seconds\n\nselect missing"),
        "{text}"
    );
    assert_eq!((report.errors, report.in_calls_us), (2, 14));
}
