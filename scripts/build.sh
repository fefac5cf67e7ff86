#!/usr/bin/env bash
# Builds target/pgNN/pg_rowsource.so for the PostgreSQL of PG_CONFIG; cargo-pgrx is not needed.
# With "clippy" as first argument: lints it with the same settings, so that both share the bindings. With "check":
# compiles it without making code. ROWSOURCE_PROFILE is a
# profile of Cargo.toml: with `lab`, which takes less time to build, it is target/pgNN-lab/pg_rowsource.so. ROWSOURCE_BUILT=1 takes what is
# built.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ -x "$PG_CONFIG" ] || die "$PG_CONFIG not found: run scripts/setup.sh, or set PG_CONFIG"
cd "$ROOT"
major=$(major)
grep -q "^pg$major *=" Cargo.toml || die "PostgreSQL $major is not supported: the supported ones are the features of Cargo.toml"
# Cargo builds the bindings again when one of these changes: pg_config's path, or what dh sets for C.
PGRX_PG_CONFIG_PATH=$(readlink -f "$PG_CONFIG")
export PGRX_PG_CONFIG_PATH
unset CFLAGS CXXFLAGS CPPFLAGS LDFLAGS SOURCE_DATE_EPOCH
profile=${ROWSOURCE_PROFILE:-release}
options=(--profile "$profile" --locked --ignore-rust-version -p pg_rowsource --no-default-features --features "pg$major")
[ "${1:-}" != clippy ] || exec cargo clippy "${options[@]}" -- -D warnings
[ "${1:-}" != check ] || exec cargo check "${options[@]}" "${@:2}"
built=$TARGET/$profile/libpg_rowsource.so kept=$(library)
[ -z "${ROWSOURCE_BUILT:-}" ] || [ ! -f "$kept" ] || exit 0
# Cargo's own place for it is the same for every major: nobody else builds with this profile until it is taken away from there.
mkdir -p "$TARGET"
exec 8>"$TARGET/build-$profile.lock"
flock 8
cargo build "${options[@]}" "$@" 8>&-
cmp -s "$built" "$kept" || install -D -m 755 "$built" "$kept"
