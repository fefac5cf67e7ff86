#!/usr/bin/env bash
# Runs cargo-nextest: the one on the PATH where it is new enough for .config/nextest.toml, else one under target/tools.
#   scripts/nextest.sh ARGUMENTS...    cargo nextest ARGUMENTS...
#   scripts/nextest.sh --install       only builds it there if it is missing (two minutes)
set -euo pipefail
. "$(dirname "$0")/common.sh"
tools=$TARGET/tools
cd "$ROOT"
fits() { cargo-nextest nextest show-config version >/dev/null 2>&1; }
fits || PATH=$tools/bin:$PATH
if ! fits; then
    mkdir -p "$tools"
    version=$(sed -n 's/^nextest-version = "\(.*\)"/\1/p' .config/nextest.toml)
    say "cargo-nextest $version, under $tools"
    # In a folder of its own: other builds need not wait for it.
    CARGO_PROFILE_DEV_DEBUG=false flock "$tools" cargo install cargo-nextest --version "$version" --locked --profile dev \
        --no-default-features --features default-no-update --root "$tools" --target-dir "$tools/build" \
        >"$tools/install.log" 2>&1 || die "cargo-nextest cannot be built (see $tools/install.log)"
    rm -rf "$tools/build"
fi
[ "${1:-}" = --install ] || exec cargo-nextest nextest "$@"
