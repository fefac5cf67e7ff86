#!/usr/bin/env bash
# Prepares, under MATRIX, what is needed to build for another PostgreSQL major and to run its server. What is there is kept.
#   scripts/chroot.sh MAJOR
#     base-SUITE      Debian's suite that has the server, with nothing but apt
#     MAJOR           the same with the server, and what the tests call; the server's headers lie in it too
#     pg_config-MAJOR answers for that server, here and inside the chroot
#   scripts/chroot.sh MAJOR FOLDER PACKAGE...    makes FOLDER anew: the same suite, with these packages only
set -euo pipefail
. "$(dirname "$0")/common.sh"
major=${1:?usage: chroot.sh MAJOR [FOLDER PACKAGE...]} pg_config=$MATRIX/pg_config-$1 log=$MATRIX/$1.log
# The Debian suites that have the servers.
declare -A suites=([15]=bookworm [17]=trixie [18]=sid [19]=experimental)
suite=${suites[$major]:-}
[ -n "$suite" ] || die "PostgreSQL $major is in no Debian suite known here"
base=$MATRIX/base-$suite downloaded=$MATRIX/packages-$suite
mkdir -p "$downloaded"
exec 9>"$MATRIX/$major.lock"
flock 9
[ $# -gt 1 ] || [ ! -x "$pg_config" ] || exit 0
: >"$log"
try() { "${@:2}" >>"$log" 2>&1 || die "$1 cannot be made: $(grep -E '^(E|error):|E: ' "$log" | head -n 1) (see $log)"; }

# make_base: from the mirror that this machine itself installs from, unless ROWSOURCE_MIRROR names another.
make_base() (
    mirror=${ROWSOURCE_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' \
        "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" | head -n 1)}
    [ -n "$mirror" ] || die "E: no Debian mirror in this machine's apt configuration: name one in ROWSOURCE_MIRROR"
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
    printf '%s\n' "Package: postgresql-*$major libpq*" "Pin: release a=experimental" "Pin-Priority: 990" >apt/preferences.d/postgresql
    # The server's package would create a cluster: not wanted here.
    echo "create_main_cluster = false" >postgresql-common/createcluster.conf
    # The account has the same number inside and outside, since both write to the same folders.
    grep '^postgres:' /etc/passwd >>passwd
    grep '^postgres:' /etc/group | cut -d: -f1-3 | sed 's/$/:/' >>group
    mv "$base.part" "$base"
)

# clone FOLDER PACKAGE...: what was downloaded before is not downloaded again.
clone() {
    rm -rf "$1" && cp -a "$base" "$1" && cp "$downloaded"/*.deb "$1/var/cache/apt/archives/" || true
    in_chroot "$1" env DEBIAN_FRONTEND=noninteractive apt-get -q -y install "${@:2}" &&
        find "$1/var/cache/apt/archives" -name '*.deb' -exec mv -t "$downloaded" {} +
}

# make_server: gcc and its friends compile the tests' own libraries. The server's headers only are unpacked, as their package
# would bring in a whole clang.
make_server() {
    clone "$MATRIX/$major.part" "postgresql-$major" gcc libc6-dev valgrind strace procps &&
        in_chroot "$MATRIX/$major.part" sh -ec 'cd /tmp; apt-get -q download "$0"; dpkg -x "$0"*.deb /; rm ./*.deb' \
            "postgresql-server-dev-$major" && mv "$MATRIX/$major.part" "$MATRIX/$major"
}

# make_pg_config: a script that knows the answers, for the chroot's program runs only inside. The headers are named by their
# place outside, which in_chroot shows inside too.
make_pg_config() {
    cat >"$pg_config.part" <<SCRIPT && chmod 755 "$pg_config.part" && mv "$pg_config.part" "$pg_config"
#!/bin/sh
# pg_config of the PostgreSQL $major in $MATRIX/$major.
answers() { cat <<'ANSWERS'
$(in_chroot "$MATRIX/$major" "/usr/lib/postgresql/$major/bin/pg_config" | sed -E "s|^(INCLUDEDIR.*= )|\1$MATRIX/$major|")
ANSWERS
}
[ \$# -gt 0 ] || answers
for option; do
    answers | sed -n "s/^\$(echo "\${option#--}" | tr a-z A-Z) = //p" | grep . || { echo "\$0: \$option?" >&2; exit 1; }
done
SCRIPT
}

[ -d "$base" ] || try "the chroot of $suite" make_base
[ $# -eq 1 ] || { try "a chroot with ${*:3}" clone "${@:2}"; exit; }
[ -d "$MATRIX/$major" ] || try "the server of PostgreSQL $major" make_server
try "$pg_config" make_pg_config
