#!/usr/bin/env bash
# Installs the packages that are missing to build and test on Debian 12: as root, or as a user with sudo.
# Quiet where nothing is missing. Starts no server and creates no cluster.
#   scripts/setup.sh [PACKAGE ...]    and these packages too
. "$(dirname "$0")/common.sh"
{ cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 ||
    die "cargo not found: install Rust (with rustfmt and clippy) and put cargo on the PATH"
packages=(binutils chromium gcc libc6-dev libicu-dev make pkg-config strace tmux valgrind "$@")
if [ "$PG_CONFIG" = /usr/lib/postgresql/15/bin/pg_config ]; then
    packages+=(postgresql-15 postgresql-server-dev-15)
elif ! [ -x "${PG_ROOT:-}$("$PG_CONFIG" --bindir)/postgres" ] || ! [ -f "$("$PG_CONFIG" --includedir-server)/postgres.h" ]; then
    die "$PG_CONFIG does not lead to a PostgreSQL server and its headers"
fi
# Any version of LLVM will do.
[ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null || packages+=(libclang-14-dev)
command -v clang >/dev/null || compgen -G '/usr/lib/llvm-*/bin/clang' >/dev/null || packages+=(clang-14)
command -v dpkg-query >/dev/null || { say "not a Debian machine: packages like ${packages[*]} are needed"; exit 0; }
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p')
mapfile -t missing < <(printf '%s\n' "${packages[@]}" | grep -vxF "$installed")
[ ${#missing[@]} -gt 0 ] || exit 0
as_root=(env DEBIAN_FRONTEND=noninteractive)
[ "$(id -u)" = 0 ] || as_root=(sudo "${as_root[@]}")
command -v "${as_root[0]}" >/dev/null || die "missing: ${missing[*]} (run as root, or install sudo)"
mkdir -p "$TARGET" && log=$TARGET/setup.log
say "installing ${missing[*]}"
# Debian's package would create a cluster and start it: not wanted here. Scripts may run side by side, and so may others that use apt.
"${as_root[@]}" flock /run/lock/pg_rowsource-setup sh -ec '
    mkdir -p /etc/postgresql-common && cd /etc/postgresql-common
    [ -e createcluster.conf ] || echo "create_main_cluster = false" >createcluster.conf
    apt-get -yq update
    apt-get -yq -o DPkg::Lock::Timeout=600 -o Dpkg::Options::=--force-confold --no-install-recommends install "$@"' - "${missing[@]}" >"$log" 2>&1 ||
    die "apt-get failed: $(grep -E '^[EW]:' "$log" | tail -n 1) (see $log)"
