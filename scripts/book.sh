#!/usr/bin/env bash
# Builds the book of docs/ as HTML under target/book, with mdBook, and fails if a link leads nowhere.
. "$(dirname "$0")/testing.sh"
mkdir -p "$TARGET"
install_mdbook >"$TARGET/mdbook.log" 2>&1 || die "mdBook could not be installed (see $TARGET/mdbook.log)"
book=$TARGET/book
repository=$(sed -n 's/^git-repository-url = "\(.*\)"/\1/p' book.toml)
PATH=$TARGET/tools/bin:$PATH mdbook build --dest-dir "$book" "$ROOT" 2>"$TARGET/book.log" || { cat "$TARGET/book.log" >&2; die "mdBook failed"; }
! grep -E 'WARN|ERROR' "$TARGET/book.log" >&2 || die "mdBook complains"
# Pages outside of the book are read in the repository.
sed -i -E "s|href=\"\.\./([^\"#]*)\.html(#[^\"]*)?\"|href=\"$repository/blob/HEAD/\1.md\2\"|g" "$book"/*.html

# links FILE: the targets of its links inside of the book: "page anchor".
links() {
    grep -oE 'href="[^":]*"' "$1" | sed -E 's/^href="(.*)"$/\1/' | sort -u | while IFS='#' read -r page anchor; do
        echo "${page:-${1##*/}} $anchor"
    done
}

status=0
for file in "$book"/*.html; do
    # This page contains all others, and their links as they stood there.
    [ "${file##*/}" != print.html ] || continue
    while read -r page anchor; do
        [ -e "$book/$page" ] || { echo "${file##*/}: no page $page" >&2 && status=1; }
        [ -z "$anchor" ] || grep -qF "id=\"$anchor\"" "$book/$page" 2>/dev/null ||
            { echo "${file##*/}: no heading $anchor in $page" >&2 && status=1; }
    done < <(links "$file")
done
[ "$status" = 0 ] || die "the book has links that lead nowhere"
say "$book/index.html"
