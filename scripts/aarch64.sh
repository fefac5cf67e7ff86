#!/usr/bin/env bash
# Checks that the library compiles for aarch64 and for a server without liburing, in a chroot of the Debian suite
# whose Rust has the library of that processor. No code is made, and nothing runs. The chroot and what cargo has
# built there are kept beside the chroots of the majors. Needs root.
. "$(dirname "$0")/testing.sh"
target=aarch64-unknown-linux-gnu place=$MATRIX/aarch64

# without_liburing: makes the headers those of a server that was configured without it. What was compiled with them
# before is made again.
without_liburing() {
    local headers
    headers=$(grep -rl 'define USE_LIBURING' "$place/usr/include/postgresql" --include='pg_config*.h') || return 0
    sed -i '/define USE_LIBURING/d' $headers && rm -rf "$MATRIX/target-aarch64"
}

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
step "a chroot that compiles for aarch64" scripts/chroot.sh aarch64 && without_liburing &&
    step "the library compiles for aarch64, and without liburing" check
