//! Brings a session into the state in which a case is compared: caches, local buffers and the sizes of
//! relations.

use crate::cases::Case;
use crate::explain::describe;
use crate::session::run_each;
use postgres::Client;

/// Applies the settings of a case and `settings`, and runs the case as often as its comparison needs.
pub fn warmed_up(mut client: Client, case: &Case, settings: &str) -> Client {
    run_each(&mut client, case.settings);
    run_each(&mut client, settings);
    if !case.reset.is_empty() {
        // A first run, so that the catalogues' pages are in memory on both sides.
        run_each(&mut client, case.reset);
        run(&mut client, case.statement);
        run_each(&mut client, case.reset);
    }
    // VERBOSE names everything in the plan, which fills the catalogue caches in the same mode on both sides.
    run(&mut client, &format!("EXPLAIN (VERBOSE) {}", case.statement));
    if case.reset.is_empty() {
        for _ in 0..2 {
            run(&mut client, case.statement);
        }
    }
    client
}

fn run(client: &mut Client, sql: &str) {
    client
        .simple_query(sql)
        .unwrap_or_else(|error| panic!("{sql}\n{}", describe(&error)));
}
