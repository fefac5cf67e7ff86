//! The cost of the hot path in instructions per call, counted by callgrind on a single-user backend.

use rowsource_tests::Server;
use rowsource_tests::callgrind::{CALLS, call_above_recorded, create_tables, of_calls, recorded};
use rowsource_tests::session::major;

#[test]
fn a_call_costs_few_instructions_release() {
    let mut server = Server::preloaded("callgrind", &[]);
    let mut client = server.connect();
    create_tables(&mut client);
    let major = major(&mut client);
    let recorded = recorded(major);
    drop(client);
    server.stop();
    let mut failures = Vec::new();
    let counts = of_calls(&server.data());
    for (which, (calls, _, budget)) in CALLS.into_iter().enumerate() {
        let (counted, of_core) = (counts.measured[which], counts.explained[which]);
        println!(
            "{calls}: {counted:.1} instructions more than unmeasured at sampfreq 128 (budget {budget}), {of_core:.1} by core's EXPLAIN"
        );
        // From 19 on, core counts rows in fewer instructions, too.
        if !(0.5..=budget).contains(&counted.round()) || major < 19 && counted >= of_core {
            failures.push(format!(
                "{calls}: {counted:.1} instructions, {of_core:.1} by core's EXPLAIN"
            ));
        }
        let recorded = recorded.map(|recorded| recorded.calls[which]);
        failures.extend(call_above_recorded(calls, counted, recorded));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
