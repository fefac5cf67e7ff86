#!/usr/bin/env bash
# Runs cargo-nextest: the one on the PATH if it is new enough for .config/nextest.toml, else one under target/tools.
#   scripts/nextest.sh --install       builds it there if it is missing (two minutes)
#   scripts/nextest.sh ARGUMENTS...    runs cargo nextest ARGUMENTS...
set -euo pipefail
. "$(dirname "$0")/common.sh"
tools=$TARGET/tools
cd "$ROOT"
VERSION=$(sed -n 's/^nextest-version = "\(.*\)"/\1/p' .config/nextest.toml)
PATH=$PATH:$tools/bin
fits() { cargo-nextest nextest show-config version >/dev/null 2>&1; }

if ! fits; then
    mkdir -p "$tools"
    exec 7>"$tools/lock"
    flock 7
    # It comes before an older one on the PATH.
    PATH=$tools/bin:$PATH
    if ! fits; then
        say "cargo-nextest $VERSION, under $tools"
        # It has its own target folder, so that other builds need not wait for it.
        CARGO_PROFILE_DEV_DEBUG=false cargo install cargo-nextest --version "$VERSION" --locked --profile dev \
            --no-default-features --features default-no-update --force --root "$tools" --target-dir "$tools/build" \
            >"$tools/install.log" 2>&1 7>&- || die "cargo-nextest cannot be built (see $tools/install.log)"
        rm -rf "$tools/build"
    fi
    exec 7>&-
fi
[ "${1:-}" != --install ] || exit 0
exec cargo-nextest nextest "$@"
