#!/usr/bin/env bash
# Creates the private tree: hard links to the installed server's folders under RUN/tree, at the same paths (PostgreSQL finds
# its folders relative to its program), and the extension if it is built. Prints the tree's folder of programs.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ -x "$PG_CONFIG" ] || die "$PG_CONFIG not found: run scripts/setup.sh, or set PG_CONFIG"
choose_run
bindir=$("$PG_CONFIG" --bindir) pkglibdir=$("$PG_CONFIG" --pkglibdir) sharedir=$("$PG_CONFIG" --sharedir)
# Installing or removing an extension changes the folder's time.
stamp="$("$PG_CONFIG" --version) $bindir $(stat -L -c '%i %Y' "${PG_ROOT:-}$bindir/postgres" "${PG_ROOT:-}$pkglibdir")"
exec 9>"$RUN/tree.lock"
flock 9
if [ "$(cat "$TREE.stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$TREE" "$TREE.stamp"
    for folder in "$bindir" "$pkglibdir" "$sharedir"; do
        mkdir -p "$TREE$folder"
        # Copies if hard links are impossible (another file system or owner).
        cp -al "${PG_ROOT:-}$folder/." "$TREE$folder/" 2>/dev/null ||
            cp -a --remove-destination "${PG_ROOT:-}$folder/." "$TREE$folder/" || die "cannot copy $folder into $TREE"
    done
    echo "$stamp" >"$TREE.stamp"
fi
[ ! -f "$TARGET/pg$(major)/pg_rowsource.so" ] || make -s --no-print-directory -C "$ROOT" install DESTDIR="$TREE" >&2
echo "$PGBIN"
