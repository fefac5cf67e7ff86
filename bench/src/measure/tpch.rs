//! The tables of TPC-H.

use postgres::Client;
use rowsource_tests::session::run_each;
use std::fmt::Display;
use std::io::Write;
use tpchgen::csv::{
    CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv,
};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

const TABLES: &str = "
    CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name text, r_comment text);
    CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name text, n_regionkey int, n_comment text);
    CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_name text, s_address text, s_nationkey int, s_phone text,
        s_acctbal numeric, s_comment text);
    CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name text, c_address text, c_nationkey int, c_phone text,
        c_acctbal numeric, c_mktsegment text, c_comment text);
    CREATE TABLE part (p_partkey int PRIMARY KEY, p_name text, p_mfgr text, p_brand text, p_type text, p_size int,
        p_container text, p_retailprice numeric, p_comment text);
    CREATE TABLE partsupp (ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost numeric, ps_comment text,
        PRIMARY KEY (ps_partkey, ps_suppkey));
    CREATE TABLE orders (o_orderkey bigint PRIMARY KEY, o_custkey int, o_orderstatus text, o_totalprice numeric,
        o_orderdate date, o_orderpriority text, o_clerk text, o_shippriority int, o_comment text);
    CREATE TABLE lineitem (l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int, l_quantity numeric,
        l_extendedprice numeric, l_discount numeric, l_tax numeric, l_returnflag text, l_linestatus text,
        l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct text, l_shipmode text, l_comment text,
        PRIMARY KEY (l_orderkey, l_linenumber))";

/// Creates the tables of TPC-H at this scale factor and fills them.
pub fn load(client: &mut Client, factor: f64) {
    run_each(client, TABLES);
    copy(
        client,
        "region",
        RegionGenerator::new(factor, 1, 1).iter().map(RegionCsv::new),
    );
    copy(
        client,
        "nation",
        NationGenerator::new(factor, 1, 1).iter().map(NationCsv::new),
    );
    copy(
        client,
        "supplier",
        SupplierGenerator::new(factor, 1, 1).iter().map(SupplierCsv::new),
    );
    copy(
        client,
        "customer",
        CustomerGenerator::new(factor, 1, 1).iter().map(CustomerCsv::new),
    );
    copy(
        client,
        "part",
        PartGenerator::new(factor, 1, 1).iter().map(PartCsv::new),
    );
    copy(
        client,
        "partsupp",
        PartSuppGenerator::new(factor, 1, 1).iter().map(PartSuppCsv::new),
    );
    copy(
        client,
        "orders",
        OrderGenerator::new(factor, 1, 1).iter().map(OrderCsv::new),
    );
    copy(
        client,
        "lineitem",
        LineItemGenerator::new(factor, 1, 1).iter().map(LineItemCsv::new),
    );
    run_each(
        client,
        "CREATE INDEX ON orders (o_custkey); CREATE INDEX ON lineitem (l_partkey); CREATE INDEX ON partsupp (ps_suppkey);
         VACUUM (FREEZE, ANALYZE); CHECKPOINT",
    );
}

fn copy(client: &mut Client, table: &str, rows: impl Iterator<Item = impl Display>) {
    let mut writer = client
        .copy_in(&format!("COPY {table} FROM STDIN (FORMAT csv)"))
        .unwrap_or_else(|error| panic!("{table}: {error}"));
    for row in rows {
        writeln!(writer, "{row}").unwrap_or_else(|error| panic!("{table}: {error}"));
    }
    writer.finish().unwrap_or_else(|error| panic!("{table}: {error}"));
}
