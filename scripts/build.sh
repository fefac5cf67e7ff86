#!/usr/bin/env bash
# Builds target/pgNN/pg_rowsource.so for the PostgreSQL of PG_CONFIG; cargo-pgrx is not needed.
# With "clippy" as first argument, it lints the library instead, with the same settings, so that both share the bindings.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ -x "$PG_CONFIG" ] || die "$PG_CONFIG not found: run scripts/setup.sh, or set PG_CONFIG"
major=$(major)
grep -q "^pg$major *=" "$ROOT/Cargo.toml" || die "$("$PG_CONFIG" --version) is not supported: the supported ones are the features of Cargo.toml"
# Cargo rebuilds the bindings if one of these changes: the path of pg_config, or the variables that dh sets for C.
PGRX_PG_CONFIG_PATH=$(readlink -f "$PG_CONFIG")
export PGRX_PG_CONFIG_PATH
unset CFLAGS CXXFLAGS CPPFLAGS LDFLAGS SOURCE_DATE_EPOCH
cd "$ROOT"
locked=(--locked)
[ -f Cargo.lock ] || locked=()
options=(--release --ignore-rust-version "${locked[@]}" -p pg_rowsource --no-default-features --features "pg$major")
if [ "${1:-}" = clippy ]; then
    exec cargo clippy "${options[@]}" -- -D warnings
fi
# Cargo writes the library to the same path for every major. So other builds wait until it is copied.
mkdir -p "$TARGET"
exec 8>"$TARGET/build.lock"
flock 8
cargo build "${options[@]}" "$@" 8>&-
built=$TARGET/release/libpg_rowsource.so kept=$TARGET/pg$major/pg_rowsource.so
cmp -s "$built" "$kept" || install -D -m 755 "$built" "$kept"
