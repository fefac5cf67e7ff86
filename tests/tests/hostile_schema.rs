//! A role that may create objects in the extension's schema gains nothing: no expression of the script finds
//! its operators, functions, aggregates, casts, types or sequences.

use postgres::Client;
use postgres::error::SqlState;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;
use rowsource_tests::session::{must_fail, run_each, texts, value};
use std::fs;

/// The types of what the script's expressions take, and those that fit any type.
const TYPES: &str = "ARRAY['text', 'name', 'bool', '\"char\"', 'int2', 'int4', 'int8', 'float4', 'float8', 'numeric', 'oid', 'regclass', 'regrole',
    'timestamptz', 'timestamp', 'date', 'interval', 'inet', 'json', 'jsonb', 'text[]', 'int8[]', 'float8[]', 'anyelement', 'anynonarray',
    'anycompatible', 'anyarray']";

/// Creates hostile twins, as the role `joe`, in the first schema of the path. `names` are the words and
/// operators of the scripts. A twin has arguments that no function or operator of PostgreSQL takes exactly,
/// so that it would be the better match.
const CREATE_TWINS: &str = "
DO $do$
DECLARE
    types text[] := TYPES;
    l text; r text; name text; twin record; made int := 0;
    aggregates text[]; functions text[]; of_two text[]; of_several text[]; made_by text;
    body CONSTANT text := 'LANGUAGE plpgsql AS ''BEGIN RAISE ''''hostile''''; END''';
BEGIN
    SET LOCAL check_function_bodies = off;
    SELECT array_agg(DISTINCT proname) FILTER (WHERE prokind = 'a'), array_agg(DISTINCT proname) FILTER (WHERE prokind <> 'a'),
           coalesce(array_agg(DISTINCT proname) FILTER (WHERE prokind = 'a' AND pronargs = 2), '{}')
      INTO aggregates, functions, of_two
      FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = ANY ($names);
    -- A function for each of PostgreSQL's with several arguments, for each of these and each type.
    SELECT array_agg(DISTINCT format('CREATE OR REPLACE FUNCTION %I(%s) RETURNS text ', proname, arguments)) INTO of_several
      FROM (SELECT proname, (
                       SELECT string_agg(CASE WHEN i = changed THEN other WHEN proargtypes[i] = 2276 THEN 'anyelement'
                                              ELSE proargtypes[i]::regtype::text END, ', ' ORDER BY i)
                         FROM generate_series(0, pronargs - 1) i) AS arguments
              FROM pg_proc, generate_series(0, pronargs - 1) changed, unnest(types) other
             WHERE pronamespace = 'pg_catalog'::regnamespace AND pronargs > 1 AND prokind = 'f' AND proname = ANY ($names)) x
     WHERE arguments !~ 'internal|cstring';
    -- And one for any number of arguments.
    SELECT of_several || array_agg(format('CREATE FUNCTION %I(VARIADIC anycompatiblearray) RETURNS text ', proname)) INTO of_several
      FROM unnest(functions || aggregates) proname;
    -- An operator of each name that the scripts have, for each pair of types: its result is that of PostgreSQL's operators of this name.
    FOREACH l IN ARRAY types LOOP
        FOREACH r IN ARRAY types LOOP
            EXECUTE format('CREATE FUNCTION hostile_bool(%1$s, %2$s) RETURNS bool ', l, r) || body;
            EXECUTE format('CREATE FUNCTION hostile_text(%1$s, %2$s) RETURNS text ', l, r) || body;
            EXECUTE format('CREATE FUNCTION hostile_left(%1$s, %2$s) RETURNS %1$s ', l, r) || body;
            EXECUTE format('CREATE FUNCTION hostile_state(int8, %1$s, %2$s) RETURNS int8 ', l, r) || body;
            FOR twin IN
                SELECT DISTINCT oprname,
                       CASE WHEN bool_or(oprresult = 'bool'::regtype) THEN 'hostile_bool' WHEN oprname IN ('||', '->>', '#>>') THEN 'hostile_text'
                            ELSE 'hostile_left' END AS function
                  FROM pg_operator WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'b' AND oprname = ANY ($names) GROUP BY oprname
            LOOP
                EXECUTE format('CREATE OPERATOR %s (FUNCTION = %s, LEFTARG = %s, RIGHTARG = %s)', twin.oprname, twin.function, l, r);
                made := made + 1;
            END LOOP;
            -- Likewise the aggregates of two arguments.
            FOREACH name IN ARRAY of_two LOOP
                EXECUTE format('CREATE AGGREGATE %I(%s, %s) (SFUNC = hostile_state, STYPE = int8)', name, l, r);
                made := made + 1;
            END LOOP;
        END LOOP;
        -- A prefix operator of each name that the scripts have.
        EXECUTE format('CREATE FUNCTION hostile_prefix(%1$s) RETURNS %1$s ', l) || body;
        FOR twin IN
            SELECT DISTINCT oprname FROM pg_operator
             WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind = 'l' AND oprname = ANY ($names)
        LOOP
            EXECUTE format('CREATE OPERATOR %s (FUNCTION = hostile_prefix, RIGHTARG = %s)', twin.oprname, l);
            made := made + 1;
        END LOOP;
        -- A function or an aggregate of each name of PostgreSQL's that the scripts have, with one argument.
        EXECUTE format('CREATE FUNCTION hostile_state(int8, %s) RETURNS int8 ', l) || body;
        FOREACH name IN ARRAY aggregates LOOP
            EXECUTE format('CREATE AGGREGATE %I(%s) (SFUNC = hostile_state, STYPE = int8)', name, l);
            made := made + 1;
        END LOOP;
        FOREACH name IN ARRAY functions LOOP
            EXECUTE format('CREATE FUNCTION %I(%s) RETURNS %s ', name, l, CASE WHEN l LIKE 'any%' THEN 'text' ELSE l END) || body;
            made := made + 1;
        END LOOP;
    END LOOP;
    FOREACH made_by IN ARRAY of_several LOOP
        EXECUTE made_by || body;
        made := made + 1;
    END LOOP;
    -- Types with the names of PostgreSQL's.
    FOR twin IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b' AND typname !~ '^_' LOOP
        EXECUTE pg_catalog.format('CREATE DOMAIN %I AS pg_catalog.text', twin.typname);
    END LOOP;
    -- A type of his own that becomes text, and any other, by itself.
    CREATE TYPE hostile AS (a pg_catalog.int4);
    CREATE FUNCTION hostile_cast(hostile) RETURNS pg_catalog.text LANGUAGE plpgsql AS 'BEGIN RAISE ''hostile''; END';
    CREATE CAST (hostile AS pg_catalog.text) WITH FUNCTION hostile_cast(hostile) AS IMPLICIT;
    RAISE NOTICE '% twins', made;
END $do$";

/// Creates twins of the extension's own functions, from a database that has it: with each argument of each
/// type, and without those that have a default.
const LIST_OWN: &str = "
SELECT format('CREATE OR REPLACE FUNCTION %I(%s) RETURNS %s LANGUAGE plpgsql AS %L', p.proname,
              concat_ws(', ', arguments.list, (
                  SELECT string_agg(format('OUT %I %s', p.proargnames[i], format_type(p.proallargtypes[i], NULL)), ', ' ORDER BY i)
                    FROM generate_subscripts(p.proallargtypes, 1) i WHERE p.proargmodes[i] IN ('o', 't'))),
              CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END
              -- Rows of a table of the extension, which is not there.
              || CASE WHEN t.typrelid <> 0 THEN 'text' ELSE format_type(p.prorettype, NULL) END,
              'BEGIN RAISE ''hostile''; END')
  FROM pg_proc p JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
       JOIN pg_type t ON t.oid = p.prorettype,
       LATERAL (
           -- One argument of another type.
           SELECT (SELECT string_agg(CASE WHEN i = changed THEN other ELSE format_type(p.proargtypes[i], NULL) END, ', ' ORDER BY i)
                     FROM generate_series(0, p.pronargs - 1) i) AS list
             FROM generate_series(0, p.pronargs - 1) changed, unnest(TYPES) other
            WHERE other <> format_type(p.proargtypes[changed], NULL) AND other::regtype <> p.proargtypes[changed]
            UNION
           -- Only the first arguments.
           SELECT (SELECT string_agg(format_type(p.proargtypes[i], NULL), ', ' ORDER BY i) FROM generate_series(0, kept - 1) i)
             FROM generate_series(p.pronargs - p.pronargdefaults, p.pronargs - 1) kept
       ) arguments
 WHERE NOT EXISTS (
           SELECT FROM pg_proc o WHERE o.proname = p.proname AND arguments.list IS NOT DISTINCT FROM (
               SELECT string_agg(format_type(o.proargtypes[i], NULL), ', ' ORDER BY i) FROM generate_series(0, o.pronargs - 1) i))
       AND d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_rowsource')";

/// What the extension's objects, the rules of its views among them, need that neither PostgreSQL nor the
/// extension made.
const NEEDED_OF_OTHERS: &str = "
WITH RECURSIVE member AS (
    SELECT d.classid, d.objid FROM pg_depend d
     WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_rowsource')
     UNION
    SELECT d.classid, d.objid FROM member m JOIN pg_depend d ON d.refclassid = m.classid AND d.refobjid = m.objid AND d.deptype IN ('i', 'a')
)
SELECT DISTINCT pg_describe_object(d.classid, d.objid, 0) || ' needs ' || pg_describe_object(d.refclassid, d.refobjid, 0)
  FROM member m JOIN pg_depend d USING (classid, objid)
 WHERE d.refobjid >= 16384 AND d.refclassid NOT IN ('pg_extension'::regclass, 'pg_namespace'::regclass)
       AND NOT EXISTS (SELECT FROM member o WHERE (o.classid, o.objid) = (d.refclassid, d.refobjid))";

fn scripts() -> String {
    let folder = fs::read_dir(&environment().root).expect("the checkout");
    let names = folder.flatten().map(|entry| entry.path());
    let scripts = names.filter(|path| path.extension().is_some_and(|ending| ending == "sql"));
    scripts
        .map(|path| fs::read_to_string(path).expect("a script"))
        .collect()
}

/// Returns the words and the operators of the scripts, as an array in SQL. Where operators stand together,
/// each is one.
fn names() -> String {
    let scripts = scripts();
    let mut names: Vec<&str> = scripts
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .chain(scripts.split(|c: char| !"+-*/<>=~!@#%^&|`?".contains(c)))
        .filter(|name| !name.is_empty())
        .collect();
    // BETWEEN, LIKE and the like are operators, too.
    names.extend(["=", "<>", "<", ">", "<=", ">=", "~~", "!~~", "~~*"]);
    names.sort_unstable();
    names.dedup();
    format!(
        "'{{{}}}'::pg_catalog.text[]",
        names
            .iter()
            .map(|name| format!("\"{name}\""))
            .collect::<Vec<_>>()
            .join(",")
    )
}

fn needed_of_others(client: &mut Client) -> Vec<String> {
    texts(client, NEEDED_OF_OTHERS)
        .into_iter()
        .flatten()
        .flatten()
        .collect()
}

/// Opens a session in a new database in whose schema `public` everybody may create.
fn database(server: &Server, name: &str) -> Client {
    run_each(&mut server.connect(), &format!("CREATE DATABASE {name}"));
    let mut client = server.try_connect_to("postgres", name).expect("a session");
    run_each(&mut client, "GRANT CREATE ON SCHEMA public TO PUBLIC");
    client
}

/// Returns the statements that create twins of the extension's own functions.
fn twins_of_own(server: &Server) -> String {
    let mut client = database(server, "own");
    run_each(&mut client, "CREATE EXTENSION pg_rowsource");
    let twins: Vec<String> = texts(&mut client, &LIST_OWN.replace("TYPES", TYPES))
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    println!("{} functions", twins.len());
    assert!(twins.len() > 1_000, "{}", twins.len());
    twins.join(";\n")
}

#[test]
fn no_twin_in_the_schema_is_found() {
    let server = Server::preloaded("hostile-schema", &[]);
    run_each(&mut server.connect(), "CREATE ROLE joe");
    let own = twins_of_own(&server);
    let mut client = database(&server, "hostile");
    run_each(&mut client, "SET ROLE joe");
    let of_postgresql = CREATE_TWINS.replace("$names", &names()).replace("TYPES", TYPES);
    for twins in [of_postgresql, own] {
        client.batch_execute(&twins).expect("twins");
    }
    // So the queries of this test find none of them.
    run_each(&mut client, "RESET ROLE; SET search_path = ''");
    for (least, twins) in [
        (
            5_000,
            "pg_operator WHERE oprkind = 'b' AND oprowner = 'joe'::regrole",
        ),
        (
            50,
            "pg_operator WHERE oprkind = 'l' AND oprowner = 'joe'::regrole",
        ),
        (100, "pg_proc WHERE prokind = 'a' AND proowner = 'joe'::regrole"),
        (
            1_000,
            "pg_proc WHERE pronargs > 1 AND proname !~ '^(hostile|rowsource)' AND proowner = 'joe'::regrole",
        ),
    ] {
        let found: i64 = value(&mut client, &format!("SELECT count(*) FROM {twins}"));
        println!("{found} of {twins}");
        assert!(found > least, "{found} of {twins}");
    }
    run_each(&mut client, "CREATE EXTENSION pg_rowsource SCHEMA public");
    assert_eq!(needed_of_others(&mut client), Vec::<String>::new());
    // The check finds what is bound.
    run_each(
        &mut client,
        "SET search_path = public; CREATE VIEW bound AS SELECT 'a'::text || 1::oid AS a, - 'a'::text AS b, sum('a'::text) AS c, date_part('a'::text, 1) AS d;
         ALTER EXTENSION pg_rowsource ADD VIEW bound; SET search_path = ''",
    );
    let found = needed_of_others(&mut client);
    assert!(
        found.len() == 4
            && [
                "operator public.||",
                "operator public.-",
                "function public.sum",
                "function public.date_part"
            ]
            .iter()
            .all(|twin| found.iter().any(|one| one.contains(twin))),
        "{found:?}"
    );
    // An object of the same name is not taken over.
    for (object, code) in [
        (
            "FUNCTION public.rowsource_last() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            SqlState::DUPLICATE_FUNCTION,
        ),
        ("TABLE public.pg_stat_rowsource(a int)", SqlState::DUPLICATE_TABLE),
        (
            "SEQUENCE public.rowsource_snapshots_snap_id_seq",
            SqlState::DUPLICATE_TABLE,
        ),
    ] {
        run_each(
            &mut client,
            &format!("DROP EXTENSION pg_rowsource; SET ROLE joe; CREATE {object}; RESET ROLE"),
        );
        let (found, message) = must_fail(&mut client, "CREATE EXTENSION pg_rowsource SCHEMA public");
        assert_eq!(found, code, "{message}");
        let name = object.split(['(']).next().expect("its name");
        run_each(
            &mut client,
            &format!("DROP {name}; CREATE EXTENSION pg_rowsource SCHEMA public"),
        );
    }
}
