#!/usr/bin/env bash
# Installs what is missing to build and test on Debian 12: as root, or as a user with sudo.
# Quiet where nothing is missing. Starts no server and creates no cluster.
#   scripts/setup.sh --matrix         and what the other majors need
#   scripts/setup.sh [PACKAGE ...]    and these packages too (make bench compares with other extensions)
set -uo pipefail
. "$(dirname "$0")/common.sh"

for tool in cargo "cargo fmt" "cargo clippy"; do
    $tool --version >/dev/null 2>&1 || die "$tool not found: install Rust (with rustfmt and clippy) and put cargo on the PATH"
done

missing=()
need() { # need PACKAGE TEST...: the package is wanted where the test fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
libclang() { [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang.so*' || compgen -G '/usr/lib64/libclang.so*'; }
clang() { command -v clang || compgen -G '/usr/lib/llvm-*/bin/clang'; }
server() { [ -x "${PG_ROOT:-}$("$PG_CONFIG" --bindir)/postgres" ] && [ -x "${PG_ROOT:-}$("$PG_CONFIG" --pkglibdir)/pgxs/src/test/regress/pg_regress" ]; }
headers() { [ -f "$("$PG_CONFIG" --includedir-server)/postgres.h" ]; }

if [ "$PG_CONFIG" = /usr/lib/postgresql/15/bin/pg_config ]; then
    need postgresql-15 server
    need postgresql-server-dev-15 headers
else
    server || die "$PG_CONFIG does not lead to a PostgreSQL server with pg_regress"
    headers || die "$PG_CONFIG does not lead to the server's headers"
fi
need libclang-14-dev libclang
need clang-14 clang
need gcc command -v gcc
need libc6-dev test -f /usr/include/stdlib.h
need libicu-dev test -f /usr/include/unicode/ucol.h
need pkg-config command -v pkg-config
need make command -v make
need strace command -v strace
need valgrind command -v valgrind
need binutils command -v objdump
if [ "${1:-}" = --matrix ]; then
    shift
    need mmdebstrap command -v mmdebstrap
    need python3-pip python3 -m pip --version
fi
for package in "$@"; do need "$package" installed "$package"; done
[ ${#missing[@]} -gt 0 ] || exit 0

command -v apt-get >/dev/null || die "missing: ${missing[*]} (not a Debian machine: install their like by hand)"
root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "missing: ${missing[*]} (run as root, or install sudo)"
    root=(sudo)
fi
mkdir -p "$TARGET"
log=$TARGET/setup.log
say "installing ${missing[*]}"
# Debian's package would create a cluster and start it: not wanted here.
conf=/etc/postgresql-common/createcluster.conf
if ! installed postgresql-common && [ ! -e "$conf" ]; then
    "${root[@]}" mkdir -p "${conf%/*}" && echo "create_main_cluster = false" | "${root[@]}" tee "$conf" >/dev/null
fi
apt=("${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q)
"${apt[@]}" update >"$log" 2>&1 || die "apt-get update failed: $(grep -E '^[EW]:' "$log" | tail -n 1) (see $log)"
"${apt[@]}" -o Dpkg::Options::=--force-confold install --no-install-recommends "${missing[@]}" >>"$log" 2>&1 ||
    die "apt-get install failed: $(grep -E '^E:' "$log" | tail -n 1) (see $log)"
