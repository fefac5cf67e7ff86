#!/usr/bin/env bash
# Makes target/pg_rowsource-VERSION.zip from the last commit: a source distribution as PGXN wants it.
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$ROOT"
version=$(sed -n 's/^ *"version": "\([0-9.]*\)",$/\1/p' META.json | head -n 1)
mkdir -p "$TARGET"
git archive --format zip --prefix "pg_rowsource-$version/" --output "$TARGET/pg_rowsource-$version.zip" HEAD
echo "$TARGET/pg_rowsource-$version.zip"
