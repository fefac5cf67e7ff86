//! The function that burns a known time: a few lines of C, compiled when a test needs it.

use crate::compiled::object;
use crate::session::value;
use postgres::Client;

/// Compiles the library into the run folder, and creates `burn(us)` and `burned()` in the session's database.
/// Their declared cost is nearly zero, so that the planner puts them first in every filter.
pub fn create(client: &mut Client) {
    let library = object("burn/burn.c");
    client
        .batch_execute(&format!(
            "CREATE OR REPLACE FUNCTION burn(us double precision) RETURNS boolean
                 AS '{0}' LANGUAGE c VOLATILE STRICT PARALLEL SAFE COST 0.001;
             CREATE OR REPLACE FUNCTION burned() RETURNS double precision
                 AS '{0}' LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED;
             CREATE OR REPLACE FUNCTION burn_above(us double precision) RETURNS boolean
                 AS '{0}' LANGUAGE c VOLATILE STRICT PARALLEL SAFE COST 0.001;
             CREATE OR REPLACE FUNCTION burned_above() RETURNS double precision
                 AS '{0}' LANGUAGE c VOLATILE STRICT PARALLEL RESTRICTED",
            library.display()
        ))
        .expect("burn() can be created");
}

/// Runs a body. Returns its result, and the milliseconds that `burn()` really took meanwhile in the session.
pub fn during<T>(client: &mut Client, body: impl FnOnce(&mut Client) -> T) -> (T, f64) {
    let _: f64 = value(client, "SELECT burned()");
    let result = body(client);
    (result, value(client, "SELECT burned()"))
}
