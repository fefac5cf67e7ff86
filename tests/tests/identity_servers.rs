//! Plans have the same planids on other servers: on replicas, where objects have other OIDs, and on other
//! majors.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::cases::{self, Case};
use rowsource_tests::explain::{describe, first_column};
use rowsource_tests::session::{run_each, texts, value};
use rowsource_tests::store::basic_server;
use rowsource_tests::waiting::until;
use rowsource_tests::{Server, schema};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Lines of EXPLAIN's output that say what a planid depends on, beside the nodes.
const KEYS: [&str; 4] = ["Sort Key", "Presorted Key", "Group Key", "Hash Key"];

/// A statement's plan.
struct Found {
    planid: i64,
    /// What EXPLAIN shows without costs.
    lines: Vec<String>,
}

impl Found {
    /// Returns the operations, relations and keys, without aliases: what is the same in all plans of a
    /// planid.
    fn outline(&self) -> Vec<String> {
        let lines = self.lines.iter().enumerate();
        let lines = lines.filter_map(|(i, line)| match KEYS.iter().find(|key| line.contains(*key)) {
            Some(_) => Some(without_tables(line)),
            None => (i == 0 || line.contains("->")).then(|| without_alias(line)),
        });
        lines.collect()
    }
}

/// Returns a line of a node without the alias of its relation.
fn without_alias(line: &str) -> String {
    let (node, on) = line.split_once(" on ").unwrap_or((line, ""));
    // What has no relation is shown with its alias.
    let is_alias = ["CTE", "Function", "Values", "Subquery", "WorkTable", "Tuplestore"]
        .iter()
        .any(|kind| node.contains(kind));
    let relation = on.split(' ').next().unwrap_or_default();
    format!("{node} on {}", if is_alias { "" } else { relation })
}

/// Returns a line of keys with the names of columns alone, and without what expressions are made of.
fn without_tables(line: &str) -> String {
    let (what, keys) = line.split_once(": ").unwrap_or((line, ""));
    let keys = keys.split(", ").map(|key| match key.contains('(') {
        true => "expression",
        false => key.rsplit('.').next().unwrap_or(key),
    });
    format!("{what}: {}", keys.collect::<Vec<_>>().join(", "))
}

/// Runs a case, and returns its plan. Returns `None` if this server is read-only, and the case writes.
fn found(server: &Server, case: &Case) -> Option<Found> {
    let mut client = server.connect();
    let statement = case.statement;
    let is_read_only: bool = value(&mut client, "SELECT pg_is_in_recovery()");
    if is_read_only && !case.reset.is_empty() {
        return None;
    }
    let mut run = || -> Result<Vec<String>, postgres::Error> {
        client.batch_execute(case.settings)?;
        run_each(&mut client, case.reset);
        let explained = first_column(&mut client, &format!("EXPLAIN (COSTS OFF) {statement}"));
        run_each(&mut client, "SET pg_rowsource.statistics_level = typical");
        client.simple_query(statement)?;
        Ok(explained)
    };
    match run() {
        Ok(lines) => {
            run_each(&mut client, "SET pg_rowsource.statistics_level = basic");
            let planid = value(&mut client, "SELECT planid FROM rowsource_last()");
            Some(Found { planid, lines })
        }
        Err(error) if is_of_read_only_server(&error) => None,
        Err(error) => panic!("{}: {}", case.name, describe(&error)),
    }
}

fn is_of_read_only_server(error: &postgres::Error) -> bool {
    error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION)
}

/// Returns a server whose tables are copied from the primary by logical replication, to objects with other
/// OIDs.
fn logical_replica(primary: &Server) -> Server {
    let replica = basic_server("identity-logical", &PARALLEL);
    schema::create_in_other_order(&replica);
    let mut publisher = primary.connect();
    run_each(&mut publisher, "CREATE PUBLICATION everything FOR ALL TABLES");
    let mut client = replica.connect();
    let truncate = "DO $$BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ')
                               FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace); END$$";
    client.batch_execute(truncate).expect("the tables are empty");
    let folder = primary.folder().display();
    run_each(
        &mut client,
        &format!(
            "CREATE SUBSCRIPTION s CONNECTION 'host={folder} user=postgres dbname=postgres' PUBLICATION everything"
        ),
    );
    until(
        &mut client,
        "SELECT count(*) > 10 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel",
    );
    // What the cases do to tables on both sides is not replicated.
    run_each(&mut client, "DROP SUBSCRIPTION s");
    run_each(&mut publisher, "DROP PUBLICATION everything");
    run_each(&mut client, "VACUUM (FREEZE, ANALYZE)");
    replica
}

/// The servers have workers, as shipped.
const PARALLEL: [&str; 2] = ["max_parallel_workers_per_gather = 2", "wal_level = 'logical'"];

/// The planids of the statements of `equality` by what EXPLAIN shows, of all majors.
struct Recorded {
    file: PathBuf,
    planids: BTreeMap<(String, String), i64>,
    added: usize,
}

impl Recorded {
    /// Reads them.
    fn read() -> Recorded {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("planids.tsv");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().map(|line| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().unwrap_or_default().to_owned();
            ((next(), next()), next().parse().expect("a planid"))
        });
        Recorded {
            planids: lines.collect(),
            file,
            added: 0,
        }
    }

    /// Compares a plan with the recorded one. Adds it if none is recorded. Returns what is wrong.
    fn compare(&mut self, client: &mut Client, case: &Case, found: &Found) -> Option<String> {
        let row = client.query_one("SELECT left(md5($1), 16)", &[&found.lines.join("\n")]);
        let key = (case.name.to_owned(), row.expect("a hash").get(0));
        match self.planids.get(&key) {
            Some(planid) if *planid == found.planid => None,
            Some(planid) => Some(format!(
                "{}: {}, recorded {planid}: {:#?}",
                case.name, found.planid, found.lines
            )),
            None => {
                self.planids.insert(key, found.planid);
                self.added += 1;
                None
            }
        }
    }

    /// Writes them.
    fn write(&self) {
        let lines = self
            .planids
            .iter()
            .map(|((name, hash), planid)| format!("{name}\t{hash}\t{planid}\n"));
        std::fs::write(&self.file, lines.collect::<String>()).expect("the file is written");
    }
}

/// Cases that differ in the partitions that are left, which is no other plan.
const ONE_PLAN: [&[&str]; 6] = [
    &["parts-all", "parts-pruned", "parts-lone"],
    &["parts-lone-init-plan", "parts-two-init-plan"],
    &["parallel partitions", "parallel partition"],
    &[
        "parts-generic-all",
        "parts-generic-one",
        "parts-generic-other",
        "parts-generic-upper",
    ],
    &["parts-default", "parts-sub", "parts-sub-one", "parts-sub-some"],
    &["parts-update", "parts-update-one", "update between partitions"],
];

/// On a server, on its standby, and on a logical replica whose objects were made in another order, the
/// statements of `equality` have the same planids. Plans that share a planid have the same nodes, relations
/// and keys. Where EXPLAIN shows the same as on another major, the planids are those that were recorded
/// there: `ROWSOURCE_ACCEPT` adds what is not recorded; to renew all, delete the file before.
#[test]
fn replicas_and_other_majors_give_the_same_planids() {
    let primary = basic_server("identity-primary", &PARALLEL);
    schema::create(&primary);
    let logical = logical_replica(&primary);
    let mut client = primary.connect();
    let oids = "SELECT oid::int8 FROM pg_class WHERE relname IN ('t', 't_pkey', 'p1', 'ft') ORDER BY relname";
    let [of_primary, of_replica] = [&primary, &logical].map(|server| texts(&mut server.connect(), oids));
    assert!(
        of_primary
            .iter()
            .zip(&of_replica)
            .all(|(one, other)| one != other)
    );
    let standby = Server::standby_of(&primary, "identity-standby");
    let written: String = value(&mut client, "SELECT pg_current_wal_lsn()::text");
    until(
        &mut standby.connect(),
        &format!("SELECT pg_last_wal_replay_lsn() >= '{written}'::pg_lsn"),
    );
    let mut recorded = Recorded::read();
    let mut failures = Vec::new();
    let mut plans: HashMap<i64, (&str, Vec<String>)> = HashMap::new();
    let mut planid_of: HashMap<&str, i64> = HashMap::new();
    let (mut compared, mut on_standby, mut different) = (0, 0, 0);
    for case in cases::all() {
        let on_primary = found(&primary, case).expect("a plan");
        planid_of.insert(case.name, on_primary.planid);
        failures.extend(recorded.compare(&mut client, case, &on_primary));
        for (server, what) in [(&logical, "logical replica"), (&standby, "standby")] {
            let Some(there) = found(server, case) else {
                continue;
            };
            // Workers that are missing may give another plan.
            if there.lines != on_primary.lines {
                different += 1;
                continue;
            }
            compared += 1;
            on_standby += usize::from(what == "standby");
            if there.planid != on_primary.planid {
                failures.push(format!("{}, {what}: {:#?}", case.name, there.lines));
            }
        }
        let outline = on_primary.outline();
        let known = plans
            .entry(on_primary.planid)
            .or_insert_with(|| (case.name, outline.clone()));
        let are_one = ONE_PLAN
            .iter()
            .any(|cases| cases.contains(&known.0) && cases.contains(&case.name));
        if known.1 != outline && !are_one {
            failures.push(format!(
                "{} and {} share a planid: {:#?} {outline:#?}",
                known.0, case.name, known.1
            ));
        }
    }
    println!(
        "{compared} plans are equal, {on_standby} of them on the standby; {different} are different; {} planids; {} not recorded",
        plans.len(),
        recorded.added
    );
    for cases in ONE_PLAN {
        let planids = cases.iter().map(|case| planid_of.get(case));
        let planids: HashSet<Option<&i64>> = planids.collect();
        if planids.len() != 1 || planids.contains(&None) {
            failures.push(format!("{cases:?} are not one plan: {planids:?}"));
        }
    }
    assert!(failures.is_empty(), "{}: {}", failures.len(), failures.join("\n"));
    assert!(on_standby > 80 && different <= 5);
    if std::env::var_os("ROWSOURCE_ACCEPT").is_some() {
        recorded.write();
    } else {
        assert!(recorded.added <= 5);
    }
}

/// What is made in one order or the other, so that it gets other OIDs. The partitions of `g` are read in four
/// ways by indexes, one of them over a type of the user, and in one without.
const WAYS: [&str; 7] = [
    "CREATE TYPE mood AS ENUM ('low', 'high')",
    "CREATE TABLE plain (id int, v int); CREATE INDEX plain_id ON plain (id)",
    "CREATE TABLE g0 (id int, v int, m mood); CREATE INDEX g0_way ON g0 (id)",
    "CREATE TABLE g1 (id int, v int, m mood); CREATE INDEX g1_way ON g1 (id, v)",
    "CREATE TABLE g2 (id int, v int, m mood); CREATE INDEX g2_way ON g2 (id, m)",
    "CREATE TABLE g3 (id int, v int, m mood); CREATE INDEX g3_way ON g3 (id, (v + 1))",
    "CREATE TABLE g4 (id int, v int, m mood)",
];

/// Makes the tables in this order.
fn make_ways(client: &mut Client, order: &[usize]) {
    order.iter().for_each(|at| run_each(client, WAYS[*at]));
    run_each(
        client,
        "CREATE TABLE g (id int, v int, m mood) PARTITION BY RANGE (v)",
    );
    for at in 0..5 {
        let from = at * 100;
        run_each(
            client,
            &format!(
                "ALTER TABLE g ATTACH PARTITION g{at} FOR VALUES FROM ({from}) TO ({})",
                from + 100
            ),
        );
    }
    run_each(
        client,
        "INSERT INTO g SELECT i % (i / 100 + 2), i, 'low' FROM generate_series(0, 499) i;
         INSERT INTO plain SELECT i, i FROM generate_series(1, 50) i; VACUUM ANALYZE g; ANALYZE plain",
    );
}

/// Runs statements that read partitions in several ways. Returns for each what the store has of it: the
/// planid, and each node with starts and rows.
fn ways(client: &mut Client) -> Vec<Vec<String>> {
    let statements = [
        "SELECT v FROM g WHERE id = 1",
        "SELECT v FROM g WHERE id = 1 AND v < 250",
        "SELECT a.v FROM plain a JOIN g b USING (id) WHERE a.id = 1 UNION ALL SELECT v FROM g WHERE id = 0",
        "SELECT x.v FROM plain p, LATERAL (SELECT v FROM g WHERE g.id = p.id UNION ALL SELECT v FROM g) x WHERE p.id = 1",
    ];
    let stored = statements.map(|statement| {
        run_each(
            client,
            "SELECT rowsource_reset(); SET enable_seqscan = off; SET enable_bitmapscan = off;
             SET pg_rowsource.statistics_level = typical",
        );
        client.simple_query(statement).expect("runs");
        run_each(client, "SET pg_rowsource.statistics_level = basic");
        let nodes = texts(
            client,
            "SELECT planid::text, node_id::text, depth::text, operation, object_name, starts::text, rows::text
             FROM pg_stat_rowsource WHERE planid = (SELECT planid FROM rowsource_last()) ORDER BY node_id",
        );
        let line = |row: Vec<Option<String>>| row.into_iter().flatten().collect::<Vec<_>>().join(" ");
        nodes.into_iter().map(line).collect::<Vec<String>>()
    });
    stored.into()
}

/// The groups of an Append have the same order, and so the same planid, whatever OIDs tables, types and
/// indexes have.
#[test]
fn groups_of_partitions_have_one_order_on_each_server() {
    let servers = ["identity-order", "identity-other-order"].map(|name| basic_server(name, &[]));
    let [mut one, mut other] = servers.each_ref().map(Server::connect);
    run_each(&mut other, "CREATE TABLE more (id int)");
    make_ways(&mut one, &[0, 1, 2, 3, 4, 5, 6]);
    make_ways(&mut other, &[0, 6, 5, 4, 3, 2, 1]);
    let first = ways(&mut one);
    // An Append, and a node for each way.
    assert_eq!(first[0].len(), 6, "{first:#?}");
    assert_eq!(first[1].len(), 4, "{first:#?}");
    assert_eq!(ways(&mut other), first);
    for order in [[0, 3, 5, 2, 1, 6, 4], [0, 4, 1, 6, 5, 3, 2]] {
        run_each(&mut one, "DROP TABLE g, plain; DROP TYPE mood");
        make_ways(&mut one, &order);
        assert_eq!(ways(&mut one), first, "{order:?}");
    }
}
