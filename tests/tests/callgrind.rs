//! The cost of the hot path in instructions per call, counted by callgrind on a single-user backend.

use rowsource_tests::Server;
use rowsource_tests::callgrind::{above_recorded, create_tables, of_a_call, recorded};
use rowsource_tests::session::major;

/// The maximum instructions that the hot path may add to a call (design 3.2).
const BUDGET: f64 = 40.0;

#[test]
fn a_call_costs_few_instructions() {
    let mut server = Server::preloaded("callgrind", &[]);
    let mut client = server.connect();
    create_tables(&mut client);
    let recorded = recorded(major(&mut client));
    drop(client);
    server.stop();
    let mut failures = Vec::new();
    // The scan below the aggregate that only counts is fused with it; the scan below the one that compares texts is not.
    for (which, (node, select)) in [
        ("a fused scan", "SELECT count(pad)"),
        ("any other node", "SELECT max(pad)"),
    ]
    .into_iter()
    .enumerate()
    {
        let a_call = of_a_call(&server.data(), select);
        println!(
            "{node}: {a_call:.1} instructions a call over a bare call at sampfreq 128 (budget {BUDGET})"
        );
        if !(0.5..=BUDGET).contains(&a_call.round()) {
            failures.push(format!("{node}: {a_call:.1} instructions a call"));
        }
        let recorded = recorded.map(|recorded| recorded.calls[which]);
        failures.extend(above_recorded(node, a_call, recorded));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
