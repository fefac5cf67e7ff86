#!/usr/bin/env bash
# Takes the current output of sql/*.sql as the expected output. Read the difference before you commit it.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
choose_run
results=$RUN/regress/results
rm -rf "$results"
# pg_regress stops at a file without an expected result.
for file in sql/*.sql; do touch "expected/$(basename "$file" .sql).out"; done
scripts/test.sh regress >"$TARGET/accept.log" 2>&1
cp "$results"/*.out expected/ || die "the tests did not run (see $TARGET/accept.log)"
git --no-pager diff --stat -- expected
