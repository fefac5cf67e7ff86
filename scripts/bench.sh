#!/usr/bin/env bash
# The overhead and accuracy laboratory (bench/): builds the library, and measures it on throwaway servers.
#   scripts/bench.sh            all experiments; records and report go to bench/results
#   WHAT=name[,name]            only these (or all whose names begin so); the report keeps the others' last records
#   QUICK=1                     small and short: whether all works. Goes to target/bench
#   SCALE=n REPEAT=n            n times the rows; n times the rounds
#   OUTPUT=folder               records and report go there
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
quick=() folder=bench/results
if [ "${QUICK:-0}" != 0 ]; then
    quick=(--quick) folder=$TARGET/bench
fi

# Extensions to compare with. What cannot be had is left out of the comparison, and the report says so.
peers=()
[ "$PG_CONFIG" != /usr/lib/postgresql/15/bin/pg_config ] || peers=(postgresql-15-pg-stat-kcache postgresql-15-pgaudit)
scripts/setup.sh || exit 1
scripts/setup.sh "${peers[@]}" || say "going on without ${peers[*]}"
choose_run
phase="the bench; what had ended is in ${OUTPUT:=$folder}"
at_end stop_test_servers
say "building"
run_child scripts/build.sh || die "the library could not be built"
run_child cargo build --locked --ignore-rust-version --profile lab -p rowsource-bench || die "the laboratory could not be built"
stop_test_servers
run_child scripts/tree.sh >/dev/null || die "the private server tree could not be made"
run_child "$TARGET/lab/rowsource-bench" run "${quick[@]}" --scale "${SCALE:-1}" --repeat "${REPEAT:-1}" \
    --output "$OUTPUT" -- "${WHAT:-}"
