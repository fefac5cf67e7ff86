#!/usr/bin/env bash
# Makes the private tree: the installed server's folders as hard links under RUN/tree, at the same
# paths (PostgreSQL finds its folders relative to its program), and the extension, if built, in it.
# Prints the tree's folder of programs.
set -euo pipefail
. "$(dirname "$0")/common.sh"
choose_run
folders=("$("$PG_CONFIG" --bindir)" "$("$PG_CONFIG" --pkglibdir)" "$("$PG_CONFIG" --sharedir)")
# Installing or removing an extension changes the time of the folder.
stamp="${folders[0]} $(stat -L -c '%i %Y' "${PG_ROOT:-}${folders[0]}/postgres" "${PG_ROOT:-}${folders[1]}")"
exec 9>"$RUN/tree.lock"
flock 9
if [ "$(cat "$TREE.stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$TREE" "$TREE.stamp"
    for folder in "${folders[@]}"; do
        mkdir -p "$TREE$folder"
        # Links cost nothing. Where they cannot be made (another file system, another owner), it copies.
        cp -al "${PG_ROOT:-}$folder/." "$TREE$folder/" 2>/dev/null ||
            cp -a --remove-destination "${PG_ROOT:-}$folder/." "$TREE$folder/" || die "cannot copy $folder into $TREE"
    done
    echo "$stamp" >"$TREE.stamp"
fi
[ ! -f "$TARGET/pg$(major)/pg_rowsource.so" ] || make -s --no-print-directory -C "$ROOT" install DESTDIR="$TREE" >&2
echo "$PGBIN"
