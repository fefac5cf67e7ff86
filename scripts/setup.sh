#!/usr/bin/env bash
# Installs missing packages for building and testing on Debian 12: as root, or as a user with sudo. Prints nothing if none is
# missing. Starts no server and creates no cluster.
#   scripts/setup.sh --matrix         also installs the packages for the other majors
#   scripts/setup.sh [PACKAGE ...]    also installs these packages
set -uo pipefail
. "$(dirname "$0")/common.sh"

for tool in cargo "cargo fmt" "cargo clippy"; do
    $tool --version >/dev/null 2>&1 || die "$tool not found: install Rust (with rustfmt and clippy) and put cargo on the PATH"
done

packages=(binutils gcc libc6-dev libicu-dev make pkg-config strace valgrind)
if [ "$PG_CONFIG" = /usr/lib/postgresql/15/bin/pg_config ]; then
    packages+=(postgresql-15 postgresql-server-dev-15)
else
    [ -x "${PG_ROOT:-}$("$PG_CONFIG" --bindir)/postgres" ] && [ -f "$("$PG_CONFIG" --includedir-server)/postgres.h" ] ||
        die "$PG_CONFIG does not lead to a PostgreSQL server and its headers"
fi
# Any version of LLVM works.
[ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang.so*' >/dev/null || packages+=(libclang-14-dev)
command -v clang >/dev/null || compgen -G '/usr/lib/llvm-*/bin/clang' >/dev/null || packages+=(clang-14)
if [ "${1:-}" = --matrix ]; then
    shift
    packages+=(mmdebstrap debhelper postgresql-server-dev-all)
    python3 -m pip --version >/dev/null 2>&1 || packages+=(python3-pip)
fi
packages+=("$@")

command -v dpkg-query >/dev/null || { say "not a Debian machine: packages like ${packages[*]} are needed"; exit 0; }
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p')
mapfile -t missing < <(printf '%s\n' "${packages[@]}" | grep -vxF "$installed")
[ ${#missing[@]} -gt 0 ] || exit 0
sudo=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing: ${missing[*]} (run as root, or install sudo)"
    sudo=(sudo)
fi
mkdir -p "$TARGET"
log=$TARGET/setup.log
say "installing ${missing[*]}"
# Without this, Debian's package would create a cluster and start it.
conf=/etc/postgresql-common/createcluster.conf
[ -e "$conf" ] || { "${sudo[@]}" mkdir -p "${conf%/*}" && echo "create_main_cluster = false" | "${sudo[@]}" tee "$conf" >/dev/null; }
apt=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q)
"${apt[@]}" update >"$log" 2>&1 || die "apt-get update failed: $(grep -E '^[EW]:' "$log" | tail -n 1) (see $log)"
"${apt[@]}" -o Dpkg::Options::=--force-confold install --no-install-recommends "${missing[@]}" >>"$log" 2>&1 ||
    die "apt-get install failed: $(grep -E '^E:' "$log" | tail -n 1) (see $log)"
