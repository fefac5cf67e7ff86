//! The test driver: throwaway servers, core's EXPLAIN and pg_rowsource's statistics in one form, comparison.
//!
//! Every file under `tests/` starts its own server through [`Server`] and stops it at its end.
//! `make test` sets `PGBIN` and `ROWSOURCE_RUN`. A plain `cargo test -p rowsource-tests` finds both
//! by running `scripts/server.sh tree`, which also installs the built extension into the private tree.

pub mod adversarial;
#[cfg(test)]
mod architecture;
pub mod attack;
pub mod beats;
#[cfg(test)]
mod book;
pub mod browser;
pub mod burn;
pub mod busy;
pub mod callgrind;
pub mod cases;
pub mod causes;
pub mod compare;
pub mod compiled;
pub mod crashes;
pub mod documents;
pub mod environment;
pub mod explain;
pub mod explain_probe;
pub mod facts;
pub mod fold;
pub mod history;
#[cfg(test)]
mod imports;
pub mod judging;
#[cfg(test)]
mod layers;
pub mod measured;
pub mod mounts;
pub mod oltp;
pub mod own_figures;
pub mod pgbench;
#[cfg(test)]
mod plain_frames;
pub mod process;
pub mod proxy;
#[cfg(test)]
mod ratchets;
pub mod schema;
pub mod server;
mod server_log;
pub mod session;
pub mod shape;
pub mod shared_lines;
#[cfg(test)]
mod sources;
pub mod stack_samples;
pub mod statistics;
pub mod stepped;
pub mod store;
pub mod strace;
pub mod surface;
pub mod tempfile;
pub mod terminal;
pub mod trace_file;
pub mod trace_target;
pub mod verdict;
pub mod waiting;
pub mod warm_up;

pub use compare::{differences, differences_from_runs};
pub use explain::{NodeCounts, explain_nodes};
pub use measured::{MeasuredNode, display, last, measure, measured_nodes};
pub use server::{SHIPPED, Server};
