-- The tables of the examples in this book, small. In psql, `\i docs/examples.sql` makes them in your database, where the extension is
-- created; they go with DROP TABLE. Run the examples in the same session: gtt is its temporary table, and the settings are its own.
-- The tests run all examples on them.
SET max_parallel_workers_per_gather = 0;
-- The outputs in the book are without just-in-time compilation, which takes part of the time of a statement.
SET jit = off;
SET client_min_messages = warning;
CREATE TABLE test AS SELECT i AS id, '*'::text AS pad FROM generate_series(1, 20000) i;
CREATE INDEX test_id ON test (id);
CREATE TABLE customers AS SELECT i AS id, 'customer ' || i AS name FROM generate_series(1, 200) i;
-- Customer 1 has half of the orders.
CREATE TABLE orders AS
    SELECT i AS id, CASE WHEN i % 2 = 0 THEN 1 ELSE 2 + i % 199 END AS customer, i % 97 AS amount, i % 89 AS total,
           md5(i::text) AS pad, 'part ' || i % 1000 AS part FROM generate_series(1, 20000) i;
ALTER TABLE orders ADD PRIMARY KEY (id);
CREATE INDEX orders_customer_idx ON orders (customer);
CREATE TABLE big AS SELECT i AS id, i AS k, 'y' || i AS pad FROM generate_series(1, 60000) i;
CREATE TABLE t AS SELECT i AS id FROM generate_series(1, 20000) i;
CREATE INDEX t_id_idx ON t (id);
CREATE TEMPORARY TABLE gtt AS SELECT i AS id, repeat('*', 1000) AS pad FROM generate_series(1, 20000) i;
VACUUM ANALYZE test;
VACUUM ANALYZE customers;
VACUUM ANALYZE orders;
VACUUM ANALYZE big;
VACUUM ANALYZE t;
RESET client_min_messages;
