#!/usr/bin/env bash
# Takes what sql/*.sql give now as what is expected of them. Read the difference before committing it.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
choose_run
results=$RUN/regress/results
rm -rf "$results"
# pg_regress ends at a file without an expected result.
for file in sql/*.sql; do touch "expected/$(basename "$file" .sql).out"; done
scripts/test.sh regress >"$TARGET/accept.log" 2>&1
cp "$results"/*.out expected/ || die "the tests did not run (see $TARGET/accept.log)"
git --no-pager diff --stat -- expected
