-- Adds pg_rowsource to shared_preload_libraries, after the libraries that the next start of the server would load. `psql -f` runs this file, as a
-- superuser. ALTER SYSTEM writes the list to postgresql.auto.conf, where each library is a value of its own: in 'a, b' it is the name of one.
\set ON_ERROR_STOP on
WITH configured AS (
    -- The last line of the configuration files counts, also if the server has not been restarted since.
    SELECT coalesce((SELECT setting FROM pg_file_settings WHERE name = 'shared_preload_libraries' ORDER BY seqno DESC LIMIT 1),
                    current_setting('shared_preload_libraries')) AS list
), libraries AS (
    SELECT trim(name, ' "') AS name, number
    FROM configured, regexp_split_to_table(list, ',') WITH ORDINALITY AS part (name, number)
    WHERE trim(name, ' "') <> ''
    UNION ALL
    SELECT 'pg_rowsource', NULL FROM configured WHERE list !~ '\mpg_rowsource\M'
)
SELECT 'ALTER SYSTEM SET shared_preload_libraries = ' || string_agg(quote_literal(name), ', ' ORDER BY number) FROM libraries \gexec
\echo 'The next start of the server loads:'
SELECT setting FROM pg_file_settings WHERE name = 'shared_preload_libraries' ORDER BY seqno DESC LIMIT 1;
