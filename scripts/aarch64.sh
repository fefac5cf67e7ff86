#!/usr/bin/env bash
# Checks that the library compiles for aarch64, in a chroot of the Debian suite whose Rust has the library of that
# processor. No code is made, and nothing runs. The chroot and what cargo has built there are kept beside the
# chroots of the majors. Needs root.
. "$(dirname "$0")/testing.sh"
target=aarch64-unknown-linux-gnu place=$MATRIX/aarch64

# check: with the crates that this machine has.
check() {
    cargo fetch --locked --target "$target" || return
    in_chroot "$place" env -u RUSTFLAGS PATH=/usr/sbin:/usr/bin:/sbin:/bin CARGO_NET_OFFLINE=true CARGO_TARGET_DIR="$MATRIX/target-aarch64" \
        PG_CONFIG="$MATRIX/pg_config-aarch64" CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
        CARGO_PROFILE_DEV_DEBUG=false ROWSOURCE_PROFILE=dev scripts/build.sh check --target "$target"
}

[ "$(id -u)" = 0 ] || die "needs root, for a chroot"
scripts/setup.sh mmdebstrap || exit
export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo}
step "a chroot that compiles for aarch64" scripts/chroot.sh aarch64 && step "the library compiles for aarch64" check
