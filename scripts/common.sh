# Shared by the other scripts (sourced, not run). Nothing here touches the system's own PostgreSQL.
# ROOT, TARGET   the checkout; cargo's target folder
# BASE       TARGET, or a short folder under /tmp where TARGET's path does not suit servers (below)
# MATRIX     in BASE, chroots of other Debian suites and what belongs to them
# RUN        servers, their data and their private tree (choose_run)
# SERVERS    the folder of the tests' servers (choose_servers)
# TREE       private copy (hard links) of the installed server; DESTDIR of `make install`
# PGBIN      the server's programs inside TREE
# INSTALLED  not empty: tests take the server as it is installed, and TREE is empty
# PG_ROOT    the chroot in which PG_CONFIG's server is installed; empty: this machine

set -uo pipefail
# What a user's own settings would change: the account of the servers must be able to read what is made here, and programs speak English.
umask 022
export LC_ALL=C.UTF-8 TZ=UTC
unset LANGUAGE
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
TARGET=$(cd "$ROOT" && realpath -ms "${CARGO_TARGET_DIR:-target}")
# A socket's name has 107 bytes at most, and make, dh and LD_PRELOAD split a path at spaces.
BASE=$TARGET
[[ $TARGET =~ ^[A-Za-z0-9_./+-]{1,48}$ ]] || BASE=/tmp/pg_rowsource-$(id -u)-$(cksum <<<"$TARGET" | cut -d' ' -f1)
MATRIX=$(realpath -m "$BASE/matrix")
export PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/15/bin/pg_config}
unset RUST_BACKTRACE PGDATA PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGPASSWORD PGSERVICE

say() { echo "== $*"; }
die() { echo "${0##*/}: $*" >&2; exit 1; }

# major: the major version of PG_CONFIG's PostgreSQL.
major() { "$PG_CONFIG" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/'; }

# library: the file that scripts/build.sh builds, of the profile ROWSOURCE_PROFILE.
library() {
    local profile=${ROWSOURCE_PROFILE:-release}
    echo "$TARGET/pg$(major)$([ "$profile" = release ] || echo "-$profile")/pg_rowsource.so"
}

# as_server COMMAND...: runs it as the account that runs servers, for PostgreSQL refuses root.
as_server() {
    [ "$(id -u)" != 0 ] || set -- runuser -u postgres -- "$@"
    "$@"
}

# mirror: the Debian mirror that this machine itself installs from, unless ROWSOURCE_MIRROR names another.
mirror() {
    local found=${ROWSOURCE_MIRROR:-$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 'Component: main' \
        "Codename: $(. /etc/os-release && echo "$VERSION_CODENAME")" | head -n 1)}
    [ -n "$found" ] || { echo "E: no Debian mirror in this machine's apt configuration: name one in ROWSOURCE_MIRROR" >&2; return 1; }
    echo "$found"
}

# in_chroot DIR COMMAND...: runs it there.
in_chroot() { ROWSOURCE_INSIDE=$1 "$ROOT/scripts/in-chroot.sh" "${@:2}"; }

# own_folder DIR: makes it. Fails if it belongs to another user, who could have made it before, since anybody may write beside it.
own_folder() {
    mkdir -m 755 "$1" 2>/dev/null || true
    [ -O "$1" ] && [ ! -L "$1" ]
}

# own_base: makes BASE, which another user may not have made before.
own_base() {
    [ "$BASE" = "$TARGET" ] || own_folder "$BASE" || die "$BASE belongs to another user"
    mkdir -p "$BASE"
}

# choose_run: sets RUN, TREE and PGBIN, and makes the folders. RUN is under /tmp, too, where TARGET is closed to the account that runs
# the server.
choose_run() {
    as_server true 2>/dev/null || die "there is no user postgres to run the server as: run scripts/setup.sh first"
    own_base
    RUN=${ROWSOURCE_RUN:-$BASE/run}
    if [ -z "${ROWSOURCE_RUN:-}" ] && ! (cd / && as_server test -x "$BASE"); then
        RUN=/tmp/pg_rowsource-$(id -u)-$(cksum <<<"$TARGET" | cut -d' ' -f1)/run
        own_folder "${RUN%/run}" || die "${RUN%/run} belongs to another user"
    fi
    mkdir -p "$RUN/servers" || die "cannot create $RUN"
    [ "$(id -u)" != 0 ] || chown postgres: "$RUN" "$RUN/servers"
    TREE=$RUN/tree
    [ -z "${INSTALLED:-}" ] || TREE=""
    PGBIN=$TREE$("$PG_CONFIG" --bindir) || die "cannot run $PG_CONFIG"
    export ROWSOURCE_RUN=$RUN PGBIN
}

# choose_servers: sets SERVERS. A test's server writes a thousand small files. In memory, that takes a fraction of the processor time.
choose_servers() {
    local memory=/dev/shm least=$((8 << 20))
    SERVERS=$RUN/servers
    if [ "$(df --output=avail "$memory" 2>/dev/null | tail -n 1)" -ge "$least" ] 2>/dev/null &&
        [ "$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)" -ge "$least" ]; then
        memory+=/servers-$(id -u)-$(cksum <<<"$RUN" | cut -d' ' -f1)
        own_folder "$memory" && mkdir -p "$memory/servers" && SERVERS=$memory/servers
    fi
    [ "$(id -u)" != 0 ] || chown postgres: "$SERVERS"
    export ROWSOURCE_SERVERS=$SERVERS
}

# stop_server DIR [MODE]: stops it if it runs; no complaint if not.
stop_server() { (cd / && as_server "$PGBIN/pg_ctl" -D "$1/data" -m "${2:-fast}" -w stop >/dev/null 2>&1) || true; }

# together LOG COMMAND...: runs it as a process group, with its output in LOG too. The group ends with it or with this script.
together() {
    local log=$1 status=0
    mkdir -p "$TARGET"
    set -m
    { set +m; "${@:2}" 2>&1 </dev/null | (trap '' TERM && exec tee "$log"); } &
    set +m
    trap 'end_group; echo "${0##*/}: interrupted" >&2; exit 130' INT TERM HUP
    wait $! || status=$?
    end_group
    return $status
}

# end_group: ends what `together` began. It waits: cargo-nextest ends its tests first, and servers die with their test.
end_group() {
    kill -TERM -- "-$!" 2>/dev/null || return 0
    for _ in {1..200}; do kill -0 -- "-$!" 2>/dev/null && sleep 0.1 || break; done
}
