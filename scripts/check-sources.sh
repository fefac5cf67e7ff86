#!/usr/bin/env bash
# The fences of the code: `unsafe` stays in src/pg/ (and the TSC leaf of core), and files stay small.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
failed=0
# Attributes may name it (`#[unsafe(no_mangle)]`, `allow(unsafe_code, reason = ...)`), and so may comments.
if grep -rnE '\bunsafe\b' --include='*.rs' --exclude-dir=pg src | grep -vE '^[^:]+:[0-9]+: *(//|#!?\[|reason = ")'; then
    echo "check-sources.sh: the lines above say unsafe outside src/pg/" >&2
    failed=1
fi
find src core/src tests bench/src -name '*.rs' -exec wc -l {} + | awk '
    $2 == "total" || $1 <= 500 { next }
    $1 > 600 { print "check-sources.sh: " $2 " has " $1 " lines, more than 600: split it"; failed = 1; next }
    { print "check-sources.sh: warning: " $2 " has " $1 " lines, more than 500" }
    END { exit failed }' >&2 || failed=1
exit $failed
