//! The pages of `rowsource_report()` and `rowsource_html()` as readers see them: on a telephone, on a screen,
//! in the dark, and with what reads a screen aloud (axe-core judges that).

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::browser::{self, Look, judge};
use rowsource_tests::environment::readers;
use rowsource_tests::explain::first_column;
use rowsource_tests::session::{must_fail, run_each};
use std::time::Duration;

/// What a page must be like: what axe-core finds wrong, whether it scrolls sideways, and its background.
const SCRIPT: &str = "
    const found = await axe.run(document, {resultTypes: ['violations']});
    return {
        rules: found.passes.length,
        violations: found.violations.map(rule => rule.id + ': ' + rule.nodes.map(node => node.html).join(' ')),
        wide: document.documentElement.scrollWidth,
        back: getComputedStyle(document.body).backgroundColor,
        rows: document.querySelectorAll('tr').length,
    }";

/// Returns a session after statements of which a plan changed, one spilled, and one has a hostile text.
fn session_after(server: &Server) -> Client {
    let mut client = server.connect();
    run_each(
        &mut client,
        "CREATE EXTENSION pg_rowsource; SET jit = off; SET work_mem = '64kB';
         CREATE TABLE orders AS SELECT i AS id, i AS customer FROM generate_series(1, 100000) i;
         CREATE INDEX orders_customer ON orders (customer); VACUUM ANALYZE orders",
    );
    for _ in 0..20 {
        run_each(&mut client, "SELECT count(*) FROM orders WHERE customer = 7");
    }
    // Executions of a session within a second are one batch.
    std::thread::sleep(Duration::from_millis(1_200));
    run_each(&mut client, "DROP INDEX orders_customer");
    for _ in 0..20 {
        run_each(&mut client, "SELECT count(*) FROM orders WHERE customer = 7");
    }
    client
        .batch_execute(
            r#"SELECT count(*) AS "</td><script>document.title='x'</script><img src=x onerror=1>" FROM (SELECT * FROM orders ORDER BY id DESC OFFSET 0) s"#,
        )
        .expect("a sort");
    client
}

fn page(client: &mut Client, call: &str) -> String {
    first_column(client, &format!("SELECT {call}")).join("\n")
}

#[test]
fn pages_are_readable_at_three_widths_and_in_both_schemes_needs_readers() {
    let server = Server::preloaded("report-html", &[]);
    let mut client = session_after(&server);
    let axe = readers().join("npm/axe-core/axe.min.js");
    let pages = [
        ("plan", page(&mut client, "rowsource_html()")),
        (
            "report",
            page(&mut client, "rowsource_report('1 min', format => 'html')"),
        ),
    ];
    for (name, page) in &pages {
        for width in [360, 800, 1280] {
            for is_dark in [false, true] {
                let look = Look { width, is_dark };
                let seen = judge(
                    &format!("{name}-{width}-{is_dark}"),
                    page,
                    look,
                    std::slice::from_ref(&axe),
                    SCRIPT,
                );
                assert_eq!(
                    seen["violations"].as_array().map(Vec::len),
                    Some(0),
                    "{name} {look:?}: {seen:#}"
                );
                assert!(seen["rules"].as_u64() > Some(10), "{seen:#}");
                assert!(
                    seen["wide"].as_u64() <= Some(u64::from(width)),
                    "{name} {look:?}: {seen:#}"
                );
                assert_eq!(
                    seen["back"] == "rgb(255, 255, 255)",
                    !is_dark,
                    "{name} {look:?}: {seen:#}"
                );
            }
        }
    }
}

#[test]
fn the_page_says_what_the_text_says_and_runs_nothing_needs_browser() {
    let server = Server::preloaded("report-page", &["cluster_name = 'shop <1>'"]);
    let mut client = session_after(&server);
    let text = first_column(&mut client, "SELECT rowsource_report('1 min')");
    let page = page(&mut client, "rowsource_report('1 min', format => 'html')");
    let opened = browser::open("report", &page, true);
    assert!(opened.console.is_empty(), "{:?}", opened.console);
    assert!(
        opened
            .document
            .contains("<title>What happened, in the time zone UTC</title>")
    );
    assert!(
        opened.document.contains("shop &lt;1&gt;, port "),
        "{}",
        opened.document
    );
    assert!(
        !opened.document.contains("<img") && !page.contains("http"),
        "{page}"
    );
    let headings = text
        .iter()
        .zip(text.iter().skip(1))
        .filter(|(line, _)| line.is_empty());
    for (_, heading) in headings {
        let heading = heading.split(": ").next().expect("a heading");
        assert!(
            opened.document.contains(&format!("<h2>{heading}")),
            "{heading}: {}",
            opened.document
        );
    }
}

#[test]
fn a_report_of_one_statement_has_nothing_of_others() {
    let server = Server::preloaded("report-one", &[]);
    let mut client = session_after(&server);
    let sort = "SELECT queryid FROM pg_stat_rowsource_plans WHERE query LIKE '%OFFSET%'";
    let of = |queryid: &str| format!("SELECT rowsource_report(({queryid}), '1 min')");
    let report = first_column(&mut client, &of(sort)).join("\n");
    assert!(
        report.starts_with("What statement ") && report.contains("Sort"),
        "{report}"
    );
    assert!(!report.contains("WHERE customer"), "{report}");
    let flipped = "SELECT DISTINCT queryid FROM pg_stat_rowsource_plans WHERE query LIKE 'SELECT count(*) FROM orders WHERE customer = %'";
    let report = first_column(&mut client, &of(flipped)).join("\n");
    assert!(
        report.starts_with("What statement ")
            && report.contains("Seq Scan on orders")
            && !report.contains("OFFSET"),
        "{report}"
    );
    // Nobody has run such a statement.
    let report = first_column(&mut client, &of("SELECT 4711")).join("\n");
    assert!(
        report.contains("no plan of a statement with the queryid 4711 is stored that you may see"),
        "{report}"
    );
    let (_, message) = must_fail(&mut client, "SELECT rowsource_report(format => 'pdf')");
    assert!(
        message.starts_with("unknown word \"pdf\" for the argument \"format\""),
        "{message}"
    );
}
