#!/usr/bin/env bash
# Builds the library, and measures its overhead and accuracy on throwaway servers (bench/).
#   scripts/bench.sh            runs all experiments; writes records and report to bench/results
#   WHAT=name[,name]            only experiments with these names or prefixes; the report keeps the others' last records
#   QUICK=1                     a small, short run, to check that all works; writes to target/bench
#   SCALE=n REPEAT=n            n times the rows; n times the rounds
#   OUTPUT=folder               writes records and report there
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
quick=() folder=bench/results
if [ "${QUICK:-0}" != 0 ]; then
    quick=(--quick) folder=$TARGET/bench
fi

# Extensions for comparison. The report names those that could not be installed, and the comparison leaves them out.
peers=()
[ "$PG_CONFIG" != /usr/lib/postgresql/15/bin/pg_config ] || peers=(postgresql-15-pg-stat-kcache postgresql-15-pgaudit)
scripts/setup.sh || exit 1
scripts/setup.sh "${peers[@]}" || say "continuing without ${peers[*]}"
choose_run
phase="the bench; finished experiments are in ${OUTPUT:=$folder}"
at_end stop_test_servers
say "building"
run_child scripts/build.sh || die "the library could not be built"
run_child cargo build --locked --ignore-rust-version --profile lab -p rowsource-bench || die "the bench could not be built"
stop_test_servers
run_child scripts/tree.sh >/dev/null || die "the private server tree could not be made"
run_child "$TARGET/lab/rowsource-bench" run "${quick[@]}" --scale "${SCALE:-1}" --repeat "${REPEAT:-1}" \
    --output "$OUTPUT" -- "${WHAT:-}"
