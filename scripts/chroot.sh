#!/usr/bin/env bash
# Prepares what is needed to build for another PostgreSQL major and to run its server, all under MATRIX:
#   scripts/chroot.sh MAJOR [base]
#     base-SUITE      the suite as its users have it, with nothing but apt
#     MAJOR           the same with that server, and what the tests call; the server's headers lie in it too
#     pg_config-MAJOR answers for that server, here and inside the chroot
# What is there is kept. Nothing is mounted outside a namespace of its own, so nothing stays mounted.
set -euo pipefail
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/matrix-common.sh"
major=${1:?usage: chroot.sh MAJOR}
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

# The machine's own way to its mirror: proxies, certificates, retries.
apt_settings() {
    apt-config dump | grep -E '^Acquire::(http|https|Retries)' || true
    echo 'Acquire::Check-Valid-Until "false";'
    echo 'APT::Install-Recommends "false";'
}

# The server's package would create a cluster and start it: not wanted here.
quiet_server() {
    mkdir -p "$1/etc/postgresql-common" "$1/usr/sbin"
    echo "create_main_cluster = false" >"$1/etc/postgresql-common/createcluster.conf"
    printf '#!/bin/sh\nexit 101\n' >"$1/usr/sbin/policy-rc.d"
    chmod 755 "$1/usr/sbin/policy-rc.d"
}

make_base() {
    local mirror part=$base.part sources
    mirror=$(find_mirror)
    reach "$mirror" "$suite" "$log"
    rm -rf "$part"
    apt_settings >"$MATRIX/$major.apt.conf"
    sources="deb $mirror $suite main"
    # Experimental is no suite of its own: it lies on top of sid.
    [ "$suite" != experimental ] || sources="deb $mirror sid main"
    mmdebstrap --quiet --mode=root --variant=apt --aptopt="$MATRIX/$major.apt.conf" --skip=cleanup/apt/lists \
        --include=passwd "" "$part" "$sources" >>"$log" 2>&1 || return 1
    [ ! -f /etc/ssl/certs/ca-certificates.crt ] ||
        install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$part/etc/ssl/certs/ca-certificates.crt"
    if [ "$suite" = experimental ]; then
        echo "deb $mirror experimental main" >>"$part/etc/apt/sources.list"
        # From there only the server and its client library; the rest stays sid's.
        printf 'Package: postgresql-*%s libpq*\nPin: release a=experimental\nPin-Priority: 990\n' "$major" \
            >"$part/etc/apt/preferences.d/postgresql"
        in_chroot "$part" apt-get -q update >>"$log" 2>&1 || return 1
    fi
    quiet_server "$part"
    # The account has the same number inside and outside, since both write to the same folders.
    grep '^postgres:' /etc/passwd >>"$part/etc/passwd"
    grep '^postgres:' /etc/group | cut -d: -f1-3 | sed 's/$/:/' >>"$part/etc/group"
    rm -rf "$base"
    mv "$part" "$base"
}

make_server() {
    local part=$chroot.part headers
    rm -rf "$part"
    cp -a "$base" "$part"
    # gcc and its friends compile the tests' own libraries; the server's headers only are unpacked,
    # as their package would bring in a whole clang.
    in_chroot "$part" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install \
        "postgresql-$major" gcc libc6-dev valgrind strace procps >>"$log" 2>&1 || return 1
    in_chroot "$part" sh -c "cd /tmp && apt-get -q download postgresql-server-dev-$major" >>"$log" 2>&1 || return 1
    headers=("$part"/tmp/postgresql-server-dev-"$major"_*.deb)
    dpkg -x "${headers[0]}" "$part" >>"$log" 2>&1
    rm -f "${headers[0]}"
    rm -rf "$chroot"
    mv "$part" "$chroot"
}

# The stand-in knows the answers by heart: the chroot's program runs only inside. The headers are named
# by their place outside, which in_chroot shows inside too.
make_pg_config() {
    local answers
    answers=$(in_chroot "$chroot" "/usr/lib/postgresql/$major/bin/pg_config" |
        sed -E "s|^(INCLUDEDIR.*= )|\1$chroot|")
    [ -n "$answers" ] || return 1
    cat >"$MATRIX/pg_config-$major.part" <<SCRIPT
#!/bin/sh
# pg_config of the PostgreSQL $major in $chroot.
answers() { cat <<'ANSWERS'
$answers
ANSWERS
}
[ \$# -gt 0 ] || { answers; exit; }
for option; do
    name=\$(echo "\${option#--}" | tr 'a-z' 'A-Z')
    answers | sed -n "s/^\$name = //p" | grep . || { echo "pg_config-$major: \$option?" >&2; exit 1; }
done
SCRIPT
    chmod 755 "$MATRIX/pg_config-$major.part"
    mv "$MATRIX/pg_config-$major.part" "$MATRIX/pg_config-$major"
}

failed() { die "$1 for PostgreSQL $major could not be made: $(grep -E '^(E|error):|E: ' "$log" | tail -n 1) (see $log)"; }
[ -d "$base" ] || make_base || failed "the chroot $suite"
[ "${2:-}" != base ] || exit 0
[ -d "$chroot" ] || make_server || failed "the server"
make_pg_config || failed "pg_config"
