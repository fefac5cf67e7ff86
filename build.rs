//! Tells the code which PostgreSQL it is built for: sets `pg_ge_NN` if the major version is at least NN.
//!
//! The features `pgNN` of Cargo.toml are the only list of supported majors. Code for older majors is marked
//! `not(pg_ge_NN)`, so a new major uses the newest branch until it gets its own.

use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.toml");
    let supported = supported_majors();
    let enabled: Vec<u32> = supported
        .iter()
        .copied()
        .filter(|&major| is_enabled(major))
        .collect();
    for major in supported.iter().skip(1) {
        println!("cargo::rustc-check-cfg=cfg(pg_ge_{major})");
    }
    match enabled[..] {
        [chosen] => {
            for major in supported.iter().skip(1).filter(|&&major| major <= chosen) {
                println!("cargo::rustc-cfg=pg_ge_{major}");
            }
        }
        [] => println!(
            "cargo::error=no PostgreSQL major is chosen: enable one of the features {}",
            names(&supported)
        ),
        _ => println!(
            "cargo::error=the features {} exclude each other: enable one, with --no-default-features",
            names(&enabled)
        ),
    }
}

/// Returns the majors for which Cargo.toml has a feature, in ascending order.
fn supported_majors() -> Vec<u32> {
    let manifest = fs::read_to_string("Cargo.toml").expect("Cargo runs build scripts beside Cargo.toml");
    let mut majors: Vec<u32> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("pg")?.split_once('=')?.0.trim().parse().ok())
        .collect();
    majors.sort_unstable();
    majors
}

fn is_enabled(major: u32) -> bool {
    env::var_os(format!("CARGO_FEATURE_PG{major}")).is_some()
}

fn names(majors: &[u32]) -> String {
    let names: Vec<String> = majors.iter().map(|major| format!("pg{major}")).collect();
    names.join(", ")
}
