#!/usr/bin/env bash
# The fences of the code: `unsafe` stays in src/pg/ (and the TSC leaf of core), and files stay small.
set -uo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
WARN_LINES=500
MAX_LINES=600
failed=0

# Attributes may name it (`#[unsafe(no_mangle)]`, `allow(unsafe_code, reason = ...)`), and so may comments.
found=$(find src -name '*.rs' -not -path 'src/pg/*' -exec grep -nHE '\bunsafe\b' {} + |
    grep -vE '^[^:]+:[0-9]+: *(//|#!?\[|reason = ")')
if [ -n "$found" ]; then
    echo "check-sources.sh: unsafe outside src/pg/:" >&2
    echo "$found" >&2
    failed=1
fi
while read -r lines file; do
    if [ "$lines" -gt $MAX_LINES ]; then
        echo "check-sources.sh: $file has $lines lines, more than $MAX_LINES: split it" >&2
        failed=1
    elif [ "$lines" -gt $WARN_LINES ]; then
        echo "check-sources.sh: warning: $file has $lines lines, more than $WARN_LINES" >&2
    fi
done < <(find src core/src tests bench/src -name '*.rs' -exec wc -l {} + | grep -v ' total$')
exit $failed
