#!/usr/bin/env bash
# Prepares chroots to build for another PostgreSQL major and to run its server, all under MATRIX:
#   scripts/chroot.sh MAJOR [base]
#     base-SUITE      the plain suite with apt
#     MAJOR           the same with the server, its headers, and the programs that the tests call
#     pg_config-MAJOR the server's pg_config, usable here and inside the chroot
# Keeps what exists. It mounts only inside its own namespace, so nothing stays mounted.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/matrix-common.sh"
major=${1:?usage: chroot.sh MAJOR [base]}
suite=$(suite_of "$major")
base=$MATRIX/base-$suite
chroot=$MATRIX/$major
log=$MATRIX/$major.log
mkdir -p "$MATRIX"
exec 9>"$MATRIX/$major.lock"
flock 9
[ ! -x "$MATRIX/pg_config-$major" ] || exit 0
[ "${2:-}" != base ] || [ ! -d "$base" ] || exit 0
: >"$log"

make_base() {
    local mirror sources preferences=""
    mirror=$(find_mirror)
    reach "$mirror" "$suite" "$log"
    sources=("deb $mirror $suite main")
    if [ "$suite" = experimental ]; then
        # experimental builds on sid. Only the server and its client library come from experimental.
        sources+=("deb $mirror sid main")
        preferences="Package: postgresql-*$major libpq*\nPin: release a=experimental\nPin-Priority: 990\n"
    fi
    # The machine's own settings for its mirror: proxies, certificates, retries.
    {
        apt-config dump | grep -E '^Acquire::(http|https|Retries)' || true
        echo 'Acquire::Check-Valid-Until "false"; APT::Install-Recommends "false";'
    } >"$MATRIX/$major.apt.conf"
    mkdir -p "$MATRIX/$major.etc/postgresql-common" "$MATRIX/$major.etc/apt/preferences.d"
    # shellcheck disable=SC2059
    printf "$preferences" >"$MATRIX/$major.etc/apt/preferences.d/postgresql"
    # Without this, the server's package would create a cluster.
    echo "create_main_cluster = false" >"$MATRIX/$major.etc/postgresql-common/createcluster.conf"
    rm -rf "$base.part"
    mmdebstrap --quiet --mode=root --variant=apt --include=passwd --aptopt="$MATRIX/$major.apt.conf" \
        --skip=cleanup/apt/lists --setup-hook="mkdir -p \"\$1/etc\"; cp -r '$MATRIX/$major.etc/.' \"\$1/etc\"" \
        "" "$base.part" "${sources[@]}" >>"$log" 2>&1 || return 1
    rm -rf "$MATRIX/$major.etc"
    [ ! -f /etc/ssl/certs/ca-certificates.crt ] ||
        install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$base.part/etc/ssl/certs/ca-certificates.crt"
    # The account has the same ids inside and outside, because both write to the same folders.
    grep '^postgres:' /etc/passwd >>"$base.part/etc/passwd"
    grep '^postgres:' /etc/group | cut -d: -f1-3 | sed 's/$/:/' >>"$base.part/etc/group"
    mv "$base.part" "$base"
}

make_server() {
    rm -rf "$chroot.part"
    cp -a "$base" "$chroot.part"
    # gcc compiles the tests' own libraries. The server's headers are only unpacked, because their package depends on clang.
    in_chroot "$chroot.part" sh -ec "apt-get -q -y install postgresql-$major gcc libc6-dev valgrind strace procps
        cd /tmp && apt-get -q download postgresql-server-dev-$major && dpkg -x postgresql-server-dev-$major*.deb / && rm *.deb" \
        >>"$log" 2>&1 || return 1
    mv "$chroot.part" "$chroot"
}

# The script reads the answers from a file, because the chroot's own program runs only inside. Header paths are those from
# outside; in_chroot mounts them inside at the same path.
make_pg_config() {
    local answers=$MATRIX/pg_config-$major.answers
    in_chroot "$chroot" "/usr/lib/postgresql/$major/bin/pg_config" | sed -E "s|^(INCLUDEDIR.*= )|\1$chroot|" >"$answers" || return 1
    cat >"$MATRIX/pg_config-$major.part" <<SCRIPT
#!/bin/sh
# pg_config of the PostgreSQL $major in $chroot.
[ \$# -gt 0 ] || exec cat "$answers"
for option; do
    name=\$(echo "\${option#--}" | tr a-z A-Z)
    sed -n "s/^\$name = //p" "$answers" | grep . || { echo "pg_config-$major: \$option?" >&2; exit 1; }
done
SCRIPT
    chmod 755 "$MATRIX/pg_config-$major.part"
    mv "$MATRIX/pg_config-$major.part" "$MATRIX/pg_config-$major"
}

failed() { die "$1 for PostgreSQL $major could not be created: $(grep -E '^(E|error):|E: ' "$log" | tail -n 1) (see $log)"; }
[ -d "$base" ] || make_base || failed "the chroot $suite"
[ "${2:-}" != base ] || exit 0
[ -d "$chroot" ] || make_server || failed "the server"
make_pg_config || failed "pg_config"
