#!/usr/bin/env bash
# Makes the private tree: the installed server's folders as hard links under RUN/tree, at the same
# paths (PostgreSQL finds its folders relative to its program), and the extension, if built, in it.
# Prints the tree's folder of programs.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ -x "$PG_CONFIG" ] || die "$PG_CONFIG not found: run scripts/setup.sh, or set PG_CONFIG"
choose_run

bindir=$("$PG_CONFIG" --bindir)
# Installing or removing an extension changes the second time.
stamp="$("$PG_CONFIG" --version) $bindir $(stat -L -c '%i %Y' "${PG_ROOT:-}$bindir/postgres")"
stamp+=" $(stat -L -c %Y "${PG_ROOT:-}$("$PG_CONFIG" --pkglibdir)")"
exec 9>"$RUN/tree.lock"
flock 9
if [ "$(cat "$TREE.stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$TREE" "$TREE.stamp"
    for folder in "$bindir" "$("$PG_CONFIG" --pkglibdir)" "$("$PG_CONFIG" --sharedir)"; do
        mkdir -p "$TREE$folder"
        # Links cost nothing; where they cannot be made (other file system, not the owner) copy.
        if ! cp -al "${PG_ROOT:-}$folder/." "$TREE$folder/" 2>/dev/null; then
            rm -rf "${TREE:?}$folder"
            mkdir -p "$TREE$folder"
            cp -a "${PG_ROOT:-}$folder/." "$TREE$folder/" || die "cannot copy $folder into $TREE"
        fi
    done
    echo "$stamp" >"$TREE.stamp"
fi
if [ -f "$TARGET/pg$(major)/pg_rowsource.so" ] && [ -f "$ROOT/pg_rowsource.control" ]; then
    make -s --no-print-directory -C "$ROOT" install DESTDIR="$TREE" PG_CONFIG="$PG_CONFIG" >&2
fi
echo "$PGBIN"
