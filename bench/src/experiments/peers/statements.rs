//! Analytical statements over the tables of TPC-H, of the same kinds as its queries: large scans, joins of many tables,
//! aggregates over aggregates, anti-joins, correlated subqueries and windows.

pub const STATEMENTS: [(&str, &str); 14] = [
    (
        "price summary",
        "SELECT l_returnflag, l_linestatus, count(*), sum(l_quantity), sum(l_extendedprice * (1 - l_discount)),
                avg(l_discount)
         FROM lineitem WHERE l_shipdate < '1998-09-01' GROUP BY 1, 2 ORDER BY 1, 2",
    ),
    (
        "revenue of small lines",
        "SELECT sum(l_extendedprice * l_discount) FROM lineitem
         WHERE l_shipdate BETWEEN '1995-01-01' AND '1995-12-31' AND l_discount BETWEEN 0.04 AND 0.06 AND l_quantity < 25",
    ),
    (
        "open orders of a segment",
        "SELECT o_orderkey, o_orderdate, sum(l_extendedprice * (1 - l_discount)) AS value
         FROM customer JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
         WHERE c_mktsegment = 'MACHINERY' AND o_orderdate < '1995-04-01' AND l_shipdate > '1995-04-01'
         GROUP BY 1, 2 ORDER BY value DESC, 1 LIMIT 10",
    ),
    (
        "late lines by priority",
        "SELECT o_orderpriority, count(*) FROM orders
         WHERE o_orderdate BETWEEN '1994-01-01' AND '1994-03-31'
           AND EXISTS (SELECT FROM lineitem WHERE l_orderkey = o_orderkey AND l_receiptdate > l_commitdate)
         GROUP BY 1 ORDER BY 1",
    ),
    (
        "local suppliers' sales",
        "SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS value
         FROM region JOIN nation ON n_regionkey = r_regionkey JOIN customer ON c_nationkey = n_nationkey
              JOIN orders ON o_custkey = c_custkey JOIN lineitem ON l_orderkey = o_orderkey
              JOIN supplier ON s_suppkey = l_suppkey AND s_nationkey = c_nationkey
         WHERE r_name = 'EUROPE' AND o_orderdate BETWEEN '1996-01-01' AND '1996-12-31'
         GROUP BY 1 ORDER BY value DESC",
    ),
    (
        "cheapest supplier of a part",
        "SELECT p_partkey, s_name, ps_supplycost
         FROM part JOIN partsupp ON ps_partkey = p_partkey JOIN supplier ON s_suppkey = ps_suppkey
         WHERE p_size = 20 AND p_type LIKE '%STEEL'
           AND ps_supplycost = (SELECT min(x.ps_supplycost) FROM partsupp x WHERE x.ps_partkey = p_partkey)
         ORDER BY 1, 2 LIMIT 100",
    ),
    (
        "customers by number of orders",
        "SELECT orders, count(*) AS customers
         FROM (SELECT c_custkey, count(o_orderkey) AS orders FROM customer LEFT JOIN orders ON o_custkey = c_custkey
               GROUP BY 1) each
         GROUP BY 1 ORDER BY 2 DESC, 1",
    ),
    (
        "share of promotions",
        "SELECT 100 * sum(l_extendedprice) FILTER (WHERE p_type LIKE 'PROMO%') / sum(l_extendedprice)
         FROM lineitem JOIN part ON p_partkey = l_partkey WHERE l_shipdate BETWEEN '1995-06-01' AND '1995-06-30'",
    ),
    (
        "best supplier of a quarter",
        "WITH sold AS MATERIALIZED (SELECT l_suppkey, sum(l_extendedprice) AS value FROM lineitem
                                    WHERE l_shipdate BETWEEN '1996-04-01' AND '1996-06-30' GROUP BY 1)
         SELECT s_name, value FROM sold JOIN supplier ON s_suppkey = l_suppkey
         WHERE value = (SELECT max(value) FROM sold)",
    ),
    (
        "small parts' lost revenue",
        "SELECT sum(l_extendedprice) / 7 FROM lineitem JOIN part ON p_partkey = l_partkey
         WHERE p_brand = 'Brand#23' AND p_container LIKE 'MED%'
           AND l_quantity < (SELECT 0.4 * avg(x.l_quantity) FROM lineitem x WHERE x.l_partkey = p_partkey)",
    ),
    (
        "large orders",
        "SELECT c_name, o_orderkey, sum(l_quantity)
         FROM orders JOIN customer ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey
         WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY 1 HAVING sum(l_quantity) > 270)
         GROUP BY 1, 2 ORDER BY 3 DESC, 2 LIMIT 50",
    ),
    (
        "rich customers without orders",
        "SELECT substr(c_phone, 1, 2), count(*), sum(c_acctbal) FROM customer
         WHERE c_acctbal > (SELECT avg(c_acctbal) FROM customer WHERE c_acctbal > 0)
           AND NOT EXISTS (SELECT FROM orders WHERE o_custkey = c_custkey)
         GROUP BY 1 ORDER BY 1",
    ),
    (
        "each customer's largest orders",
        "SELECT count(*), sum(o_totalprice)
         FROM (SELECT o_totalprice, rank() OVER (PARTITION BY o_custkey ORDER BY o_totalprice DESC) AS place
               FROM orders) ranked
         WHERE place <= 3",
    ),
    (
        "modes of late lines",
        "SELECT l_shipmode, count(*) FILTER (WHERE o_orderpriority < '3'), count(*)
         FROM lineitem JOIN orders ON o_orderkey = l_orderkey
         WHERE l_shipmode IN ('AIR', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate
         GROUP BY 1 ORDER BY 1",
    ),
];
