#!/usr/bin/env bash
# Runs what takes too long for `make test` and CI, each step with a log of its own, and writes the results to tests/all.md, to be committed.
# Needs root.
. "$(dirname "$0")/testing.sh"
record=tests/all.md suites=$TARGET/suites/table.md rows=()

# every_test: all tests on each other major, not only those of what majors do differently.
every_test() {
    local major status=0
    for major in 16 17 18 19; do scripts/matrix.sh "$major" "$everyday - group(timing)" || status=1; done
    return "$status"
}

# entry NAME COMMAND...: runs it, and adds a row to the record.
entry() {
    local log="$TARGET/all-${1// /-}.log" status=passed begin=$SECONDS
    say "$(date +%T) $1"
    "${@:2}" >"$log" 2>&1 || status=failed
    [ "$status" = passed ] || { failures "$log" && overall=1; }
    rows+=("| $1 | $status | $(sums "$log" | paste -sd, | sed 's/,/, /g; s/,  /, /g') | $(((SECONDS - begin + 59) / 60)) |")
}

[ "$(id -u)" = 0 ] || die "needs root, for chroots"
overall=0
entry "sizes that take minutes" scripts/test.sh "$of_long"
entry "every test on each other major" every_test
rm -f "$suites"
entry "suites of other extensions" scripts/suites.sh
{
    cat <<END
# The last run of \`make test-all\`

Commit $(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo ", with changes"), $(date +%F), $(nproc) processors.

| what | result | tests | minutes |
|---|---|---|---|
END
    printf '%s\n' "${rows[@]}"
    [ ! -f "$suites" ] || { echo && echo "## Suites of other extensions (scripts/suites.sh)" && echo && cat "$suites"; }
} >"$record"
cat "$record"
exit $overall
