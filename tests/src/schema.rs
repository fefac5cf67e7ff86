//! The tables that the compared statements work on.

use crate::explain::describe;
use crate::server::Server;

/// Creates the tables, the functions and a postgres_fdw server that connects to the same database.
pub fn create(server: &Server) {
    create_by(server, |loopback| {
        [TABLES, PARTITIONS, FUNCTIONS, loopback, FOREIGN]
            .map(String::from)
            .to_vec()
    });
}

/// Creates the same in another order, after other objects: all OIDs differ.
pub fn create_in_other_order(server: &Server) {
    create_by(server, |loopback| {
        let mut tables: Vec<String> = TABLES.split("\n\n").map(String::from).collect();
        tables.reverse();
        let others =
            "CREATE TABLE another (id int PRIMARY KEY, gone text); CREATE TABLE one_more (id serial);
                      ALTER TABLE another DROP gone";
        [
            vec![others.to_owned(), PARTITIONS.to_owned()],
            tables,
            vec![loopback.to_owned(), FOREIGN.to_owned(), FUNCTIONS.to_owned()],
        ]
        .concat()
    });
}

/// Creates it by what `statements` returns, which gets those that make the foreign server.
fn create_by(server: &Server, statements: impl FnOnce(&str) -> Vec<String>) {
    let mut client = server.connect();
    let loopback = format!(
        "CREATE EXTENSION postgres_fdw;
         CREATE SERVER loopback FOREIGN DATA WRAPPER postgres_fdw
             OPTIONS (host '{}', port '5432', dbname 'postgres', async_capable 'true');
         CREATE USER MAPPING FOR postgres SERVER loopback OPTIONS (user 'postgres', password_required 'false');",
        server.folder().display()
    );
    for sql in statements(&loopback) {
        client
            .batch_execute(&sql)
            .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
    }
    // VACUUM sets every hint bit and the visibility map, so that no later reader dirties a page.
    client.batch_execute("VACUUM (FREEZE, ANALYZE)").expect("VACUUM");
    client.batch_execute("CHECKPOINT").expect("CHECKPOINT");
}

const TABLES: &str = "
    CREATE TABLE t (id int PRIMARY KEY, grp int, val int, pad text);
    INSERT INTO t SELECT i, i % 100, (i * 7919) % 10000, repeat('x', 50) FROM generate_series(1, 10000) i;
    CREATE INDEX t_grp ON t (grp);
    CREATE INDEX t_val ON t (val);

    CREATE TABLE s (id int PRIMARY KEY, t_id int, name text);
    INSERT INTO s SELECT i, i * 20, 'name ' || i FROM generate_series(1, 500) i;

    CREATE TABLE big (id int, k int, pad text);
    INSERT INTO big SELECT i, (i * 7919) % 20000, repeat('y', 60) FROM generate_series(1, 60000) i;
    CREATE INDEX big_id ON big (id);
    CREATE INDEX big_k ON big (k);

    CREATE TABLE toasted (id int, body text);
    ALTER TABLE toasted ALTER body SET STORAGE external;
    INSERT INTO toasted SELECT i, repeat('toast', 2000) FROM generate_series(1, 200) i;

    CREATE TABLE doc (x xml, j jsonb);
    INSERT INTO doc SELECT '<r><i>1</i><i>2</i><i>3</i></r>', '[{\"a\": 1}, {\"a\": 2}]' FROM generate_series(1, 50);
";

const PARTITIONS: &str = "
    CREATE TABLE p (id int, v int, pad text) PARTITION BY RANGE (id);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (2500);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (2500) TO (5000);
    CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (5000) TO (7500);
    CREATE TABLE p4 PARTITION OF p FOR VALUES FROM (7500) TO (10001);
    INSERT INTO p SELECT i, i % 50, repeat('p', 40) FROM generate_series(1, 10000) i;
    CREATE INDEX ON p (id);
    CREATE INDEX ON p (v);
    CREATE TABLE q (LIKE p) PARTITION BY RANGE (id);
    CREATE TABLE q1 PARTITION OF q FOR VALUES FROM (0) TO (2500);
    CREATE TABLE q2 PARTITION OF q FOR VALUES FROM (2500) TO (5000);
    CREATE TABLE q3 PARTITION OF q FOR VALUES FROM (5000) TO (7500);
    CREATE TABLE q4 PARTITION OF q FOR VALUES FROM (7500) TO (10001);
    INSERT INTO q SELECT * FROM p WHERE id % 3 = 0;
    CREATE TABLE deep (a int, b int) PARTITION BY LIST (a);
    CREATE TABLE deep_a PARTITION OF deep FOR VALUES IN (1) PARTITION BY RANGE (b);
    CREATE TABLE deep_a_low PARTITION OF deep_a FOR VALUES FROM (0) TO (50);
    CREATE TABLE deep_a_high PARTITION OF deep_a FOR VALUES FROM (50) TO (100);
    CREATE TABLE deep_b PARTITION OF deep FOR VALUES IN (2);
    CREATE TABLE deep_rest PARTITION OF deep DEFAULT;
    INSERT INTO deep SELECT i % 4, i % 100 FROM generate_series(1, 4000) i;
    CREATE TABLE ways (id int, v int, gone text) PARTITION BY RANGE (id);
    CREATE TABLE ways_a PARTITION OF ways FOR VALUES FROM (0) TO (1000);
    CREATE TABLE ways_b PARTITION OF ways FOR VALUES FROM (1000) TO (2000);
    CREATE TABLE ways_c PARTITION OF ways FOR VALUES FROM (2000) TO (3000);
    ALTER TABLE ways DROP gone;
    CREATE TABLE later (v int, id int);
    ALTER TABLE ways ATTACH PARTITION later FOR VALUES FROM (3000) TO (4000);
    INSERT INTO ways SELECT i, i % 50 FROM generate_series(0, 3999) i;
    CREATE INDEX ways_a_id ON ways_a (id); CREATE INDEX ways_b_id ON ways_b (id); CREATE INDEX later_id ON later (id, v);
    CREATE TABLE parent (a int, b text);
    CREATE TABLE child_a () INHERITS (parent);
    CREATE TABLE child_b () INHERITS (parent);
    INSERT INTO parent VALUES (1, 'x');
    INSERT INTO child_a SELECT i, 'y' FROM generate_series(1, 500) i;
    INSERT INTO child_b SELECT i, 'z' FROM generate_series(1, 700) i;
";

const FUNCTIONS: &str = "
    CREATE FUNCTION lookup(int) RETURNS int LANGUAGE plpgsql STABLE AS
        'DECLARE r int; BEGIN SELECT val INTO r FROM t WHERE id = $1; RETURN r; END';
    CREATE FUNCTION guarded(int) RETURNS int LANGUAGE plpgsql VOLATILE AS
        'BEGIN RETURN 10 / ($1 % 10); EXCEPTION WHEN division_by_zero THEN RETURN (SELECT count(*) FROM s); END';
    CREATE FUNCTION sql_sum(int) RETURNS bigint LANGUAGE sql VOLATILE AS
        'SELECT sum(val) FROM t WHERE grp = $1';
    CREATE FUNCTION sql_rows(int) RETURNS SETOF t LANGUAGE sql VOLATILE AS
        'SELECT * FROM t WHERE grp = $1 ORDER BY id';
    CREATE FUNCTION note_row() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO audit VALUES (TG_OP, NEW.id); RETURN NEW; END';
    CREATE FUNCTION note_all() RETURNS trigger LANGUAGE plpgsql AS
        'BEGIN INSERT INTO audit SELECT TG_OP, count(*) FROM changed; RETURN NULL; END';
";

const FOREIGN: &str = "
    CREATE TABLE r1 AS SELECT i AS id, i % 7 AS v FROM generate_series(1, 3000) i;
    CREATE TABLE r2 AS SELECT i AS id, i % 7 AS v FROM generate_series(3001, 6000) i;
    CREATE FOREIGN TABLE ft (id int, grp int, val int, pad text) SERVER loopback OPTIONS (table_name 't');
    CREATE FOREIGN TABLE fs (id int, t_id int, name text) SERVER loopback OPTIONS (table_name 's');
    CREATE TABLE fp (id int, v int) PARTITION BY RANGE (id);
    CREATE FOREIGN TABLE fp1 PARTITION OF fp FOR VALUES FROM (1) TO (3001) SERVER loopback OPTIONS (table_name 'r1');
    CREATE FOREIGN TABLE fp2 PARTITION OF fp FOR VALUES FROM (3001) TO (6001) SERVER loopback OPTIONS (table_name 'r2');
";
