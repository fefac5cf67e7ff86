#!/usr/bin/env bash
# Runs what takes too long for `make test` and CI, each entry with a log of its own, and writes the results to tests/all.md, to be committed:
#   scripts/test-all.sh              all entries, in three hours
#   scripts/test-all.sh ENTRY...     only these: long, majors, platforms, 16, 17, 18, 19, assertions, suites. The rows of the others stay
#                                    as they are.
# Needs root.
. "$(dirname "$0")/testing.sh"
record=tests/all.md suites=$TARGET/suites/table.md

# entry NAME WHAT COMMAND...: runs it, and replaces its row of the record.
entry() {
    local log="$TARGET/all-$1.log" result=passed begin=$SECONDS
    say "$(date +%T) $2"
    "${@:3}" >"$log" 2>&1 || result=failed
    [ "$result" = passed ] || { failures "$log" && overall=1; }
    rows[$1]="| $2 | $result | $(sums "$log" | paste -sd, | sed 's/,/, /g; s/,  /, /g') | $(((SECONDS - begin + 59) / 60)) | $(
        git rev-parse --short HEAD)$(git diff --quiet HEAD -- ':!tests/all.md' || echo ", with changes") | $(date +%F) |"
    write
}

# write: writes the record. What was not run keeps the row that it has there.
write() {
    local name old
    old=$(cat "$record" 2>/dev/null)
    {
        cat <<END
# The last run of \`make test-all\`

On a machine of $(nproc) processors.

| what | result | tests | minutes | commit | date |
|---|---|---|---|---|---|
END
        for name in "${!titles[@]}"; do echo "$name"; done | sort -V | while read -r name; do
            if [ -n "${rows[$name]:-}" ]; then echo "${rows[$name]}"; else grep -F "| ${titles[$name]} |" <<<"$old"; fi
        done
        printf '\n## Suites of other extensions (scripts/suites.sh)\n\n'
        if [ -n "${rows[suites]:-}" ]; then cat "$suites"; else grep -A100 '^| tests of' <<<"$old"; fi
    } >"$record.new"
    mv "$record.new" "$record"
}

# every_test MAJOR: all tests on that major, not only those of what majors do differently.
every_test() { scripts/matrix.sh "$1" "$everyday - group(timing)"; }

[ "$(id -u)" = 0 ] || die "needs root, for chroots"
# The newest major whose source can be had.
asserted=18
declare -A rows titles=([long]="sizes that take minutes" [suites]="suites of other extensions"
    [majors]="what majors do differently, packages and pg_upgrade (make test-matrix)"
    [platforms]="aarch64, and installcheck with assertions (make test-platforms)"
    [assertions]="every test on PostgreSQL $asserted with assertions")
for major in 16 17 18 19; do titles[$major]="every test on PostgreSQL $major"; done
overall=0
[ $# -gt 0 ] || set -- long majors platforms 16 17 18 19 assertions suites
for name; do
    case $name in
    long) run=(scripts/test.sh "$of_long") ;;
    majors) run=(make test-matrix) ;;
    platforms) run=(make test-platforms) ;;
    16 | 17 | 18 | 19) run=(every_test "$name") ;;
    assertions) run=(scripts/assertions.sh "$asserted" "$everyday - group(timing)") ;;
    suites) rm -f "$suites" && run=(scripts/suites.sh) ;;
    *) die "there is no entry $name" ;;
    esac
    entry "$name" "${titles[$name]}" "${run[@]}"
done
cat "$record"
exit $overall
