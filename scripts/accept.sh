#!/usr/bin/env bash
# Takes what sql/*.sql give now as what is expected of them. Read the difference before committing it.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
# pg_regress ends at a file without an expected result.
for file in sql/*.sql; do
    name=${file##*/}
    touch "expected/${name%.sql}.out"
done
choose_run
results=$RUN/regress/results
rm -rf "$results"
scripts/test.sh regress >"$TARGET/accept.log" 2>&1
[ -d "$results" ] || die "the tests did not run (see $TARGET/accept.log)"
cp "$results"/*.out expected/
git --no-pager diff --stat -- expected 2>/dev/null || true
