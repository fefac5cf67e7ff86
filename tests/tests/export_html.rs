//! `rowsource_html()` opened in a browser.

use postgres::Client;
use rowsource_tests::session::{must_fail, run_each, texts};
use rowsource_tests::{Server, browser};

/// Returns the page of the session's last statement.
fn page(client: &mut Client) -> String {
    let mut rows = texts(client, "SELECT rowsource_html()");
    rows.remove(0).remove(0).expect("a page")
}

/// Returns a session that has run these statements. All are measured.
fn measured_session(server: &Server, statements: &[&str]) -> Client {
    let mut client = server.session();
    run_each(
        &mut client,
        "SET pg_rowsource.sampfreq = 1; SET pg_rowsource.statistics_level = typical; SET enable_partitionwise_join = on",
    );
    for statement in statements {
        client.batch_execute(statement).expect(statement);
    }
    run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
    client
}

/// The title and the number of boxes are the same with scripts and without, and nothing is fetched. Nodes
/// without a time have no box.
fn assert_opens(name: &str, page: &str, title: &str, nodes: usize) {
    for scripts in [true, false] {
        let opened = browser::open(&format!("{name}-{scripts}"), page, scripts);
        let found = opened.document.matches("<rect").count();
        assert!((1..=nodes).contains(&found), "{found} boxes of {nodes} nodes");
        assert!(
            opened.document.contains(&format!("<title>{title}</title>")),
            "{}",
            opened.document
        );
        assert!(opened.console.is_empty(), "{:?}", opened.console);
        // A blank window of this size makes about 5 kB.
        assert!(opened.picture.len() > 15_000, "{} bytes", opened.picture.len());
    }
}

/// Returns the title that the page of the last statement must have.
fn title(client: &mut Client) -> String {
    let rows = texts(
        client,
        "SELECT format('queryid %s, planid %s', queryid, planid) FROM rowsource_last()",
    );
    rows[0][0].clone().expect("a title")
}

#[test]
fn hostile_texts_stay_texts_needs_browser() {
    let server = Server::preloaded("html-hostile", &[]);
    let create = r#"CREATE TABLE "</pre><script>document.title='table'</script>" AS SELECT i FROM generate_series(1, 1000) i"#;
    let hostile = r#"SELECT count(*), '"''</title></pre><script>document.title=''text''</script><img src=x onerror="document.title=1">'
          FROM "</pre><script>document.title='table'</script>" WHERE i::text <> '<svg onload="document.title=2">&amp;'"#;
    let mut client = measured_session(&server, &[create, hostile]);
    let (page, title) = (page(&mut client), title(&mut client));
    assert_opens("hostile", &page, &title, 2);
    assert!(page.contains("&lt;script&gt;"), "{page}");
}

/// Returns a session that has run a statement over `partitions` partitions, whose text ends with `text`.
fn session_after_partitions(server: &Server, partitions: usize, text: &str) -> Client {
    let create = format!(
        "DO $$ BEGIN
            CREATE TABLE p (i int) PARTITION BY RANGE (i);
            FOR n IN 1 .. {partitions} LOOP
                EXECUTE format('CREATE TABLE p%s PARTITION OF p FOR VALUES FROM (%s) TO (%s)', n, n * 10 - 10, n * 10);
            END LOOP;
         END $$"
    );
    let insert = format!("INSERT INTO p SELECT i FROM generate_series(0, {partitions} * 10 - 1) i");
    let select = format!("SELECT count(*) FROM p WHERE i % 7 <> 8 {text}");
    let statements = [
        &create,
        &insert,
        "SET max_parallel_workers_per_gather = 0",
        &select,
    ];
    measured_session(server, &statements)
}

#[test]
fn a_plan_of_300_nodes_is_a_page_needs_browser() {
    let server = Server::preloaded("html-large", &[]);
    let hostile = r#"AND i::text <> '"''</title></pre></td><script>document.title=''text''</script><img src=x onerror="document.title=1">&quot;'"#;
    let mut client = session_after_partitions(&server, 299, hostile);
    let (page, title) = (page(&mut client), title(&mut client));
    assert!(page.len() < 600_000, "{} bytes", page.len());
    assert_opens("large", &page, &title, 301);
    assert!(page.contains("&lt;/title&gt;&lt;/pre&gt;"), "{page}");
    let lines = page
        .lines()
        .filter(|line| line.contains("Seq Scan") && line.starts_with('|'));
    assert_eq!(lines.count(), 299, "{page}");
}

#[test]
fn a_page_of_100_nodes_is_small() {
    let server = Server::preloaded("html-size", &[]);
    let mut client = session_after_partitions(&server, 98, "");
    let page = page(&mut client);
    let is_scan = |line: &&str| line.contains("Seq Scan") && line.starts_with('|');
    assert_eq!(page.lines().filter(is_scan).count(), 98, "{page}");
    println!("{} bytes", page.len());
    assert!(page.len() < 200_000, "{} bytes", page.len());
}

#[test]
fn a_page_shows_one_execution_or_all() {
    let server = Server::preloaded("html-which", &[]);
    let mut client = measured_session(&server, &["SELECT pg_sleep(0.01)"; 2]);
    let ids = "(SELECT queryid FROM rowsource_last()), (SELECT planid FROM rowsource_last())";
    for (which, expected) in [
        ("slowest", "the slowest execution"),
        ("last", "the last execution"),
        ("mean", "the mean of 2 executions"),
        ("total", "the sum of 2 executions"),
    ] {
        let rows = texts(&mut client, &format!("SELECT rowsource_html({ids}, '{which}')"));
        let page = rows[0][0].as_deref().expect("a page");
        assert!(page.contains(expected) && page.contains("pg_sleep"), "{page}");
    }
    let (_, message) = must_fail(&mut client, "SELECT rowsource_html(1, 2)");
    assert!(message.starts_with("no plan is kept for queryid 1, planid 2"));
}

/// The picture says the times that the table says, and a spill has its own colour in the bar of the sort.
#[test]
fn the_picture_and_the_table_agree() {
    let server = Server::preloaded("html-agree", &["jit = off", "work_mem = '64kB'"]);
    let sort = "SELECT count(*) FROM (SELECT i, repeat('x', 100) FROM generate_series(1, 50000) i ORDER BY i DESC OFFSET 0) s";
    let mut client = measured_session(&server, &[sort]);
    let rows = texts(&mut client, "SELECT rowsource_html()");
    let page = rows[0][0].as_deref().expect("a page");
    let cells = |line: &str| -> Vec<String> {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let mut lines = page.lines().filter(|line| line.starts_with('|')).map(cells);
    let heading = lines.next().expect("a table");
    let place = heading
        .iter()
        .position(|name| name == "A-Time ms")
        .expect("times");
    let mut operations = Vec::new();
    for row in lines.take_while(|row| row.len() == heading.len()) {
        let title = format!("<title>{}: {}", row[0], row[1]);
        let title = page
            .split(&title)
            .nth(1)
            .unwrap_or_else(|| panic!("no {title} in {page}"));
        let title = title.split("</title>").next().unwrap_or("");
        assert!(
            title.contains(&format!("A-Time {} ms", row[place])),
            "{row:?}: {title}"
        );
        if row[1] == "Sort" {
            assert!(title.contains("; temporary files "), "{title}");
        }
        operations.push(row[1].clone());
    }
    assert!(operations.contains(&"Sort".to_owned()), "{operations:?}");
    assert!(page.contains("<rect class=\"temp\" "), "{page}");
}
