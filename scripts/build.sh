#!/usr/bin/env bash
# Builds target/release/libpg_rowsource.so for the PostgreSQL of PG_CONFIG; cargo-pgrx is not needed.
# With "clippy" as first argument: lints it with the same settings, so that both share the bindings.
set -euo pipefail
. "$(dirname "$0")/common.sh"
[ -x "$PG_CONFIG" ] || die "$PG_CONFIG not found: run scripts/setup.sh, or set PG_CONFIG"
version=$("$PG_CONFIG" --version)
major=$(sed -E 's/^[^0-9]*([0-9]+).*/\1/' <<<"$version")
grep -q "^pg$major *=" "$ROOT/Cargo.toml" || die "$version is not supported: the supported ones are the features of Cargo.toml"
export PGRX_PG_CONFIG_PATH=$PG_CONFIG
cd "$ROOT"
locked=(--locked)
[ -f Cargo.lock ] || locked=()
options=(--release --ignore-rust-version "${locked[@]}" -p pg_rowsource --no-default-features --features "pg$major")
if [ "${1:-}" = clippy ]; then
    exec cargo clippy "${options[@]}" -- -D warnings
fi
exec cargo build "${options[@]}" "$@"
