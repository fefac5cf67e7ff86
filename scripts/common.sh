# The other scripts source this file. It finds the folders, runs commands as `postgres`, and starts and stops throwaway
# servers. It never changes the system's own PostgreSQL.
#
# ROOT     the checkout
# TARGET   cargo's target folder
# RUN      servers, their data and their private tree: TARGET/run, or a folder under /tmp if TARGET's path is too long
#          or the account that runs the server cannot enter it
# TREE     private copy (hard links) of the installed server; DESTDIR of `make install`
# PGBIN    the server's programs inside TREE
# INSTALLED  if not empty, tests use the installed server, with the installed extension
# PG_ROOT  the chroot in which PG_CONFIG's server is installed; empty for this machine

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
TARGET=${CARGO_TARGET_DIR:-$ROOT/target}
case $TARGET in /*) ;; *) TARGET=$ROOT/$TARGET ;; esac
PG_CONFIG=${PG_CONFIG:-/usr/lib/postgresql/15/bin/pg_config}
export PG_CONFIG
unset RUST_BACKTRACE PGDATA PGHOST PGPORT PGUSER PGDATABASE PGOPTIONS PGPASSWORD PGSERVICE

die() {
    echo "${0##*/}: $*" >&2
    exit 1
}

# major: prints the major version of PG_CONFIG's PostgreSQL.
major() { "$PG_CONFIG" --version | sed -E 's/^[^0-9]*([0-9]+).*/\1/'; }

say() { echo "== $*"; }

# The account that runs servers, because PostgreSQL refuses root.
if [ "$(id -u)" = 0 ]; then
    SERVER_USER=postgres
    as_server() { runuser -u postgres -- env -u RUST_BACKTRACE LC_ALL=C.UTF-8 "$@"; }
else
    SERVER_USER=$(id -un)
    as_server() { env -u RUST_BACKTRACE LC_ALL=C.UTF-8 "$@"; }
fi

# choose_run: sets RUN, TREE and PGBIN, and creates the folders. The longest socket path is
# RUN17/servers/<name>-<pid>/.s.PGSQL.5432, and the limit is 107 bytes.
choose_run() {
    mkdir -p "$TARGET" || die "cannot create $TARGET"
    id "$SERVER_USER" >/dev/null 2>&1 || die "there is no user $SERVER_USER to run the server as: run scripts/setup.sh first"
    RUN=${ROWSOURCE_RUN:-$TARGET/run}
    if [ -z "${ROWSOURCE_RUN:-}" ] && ! { [ ${#TARGET} -le 48 ] && (cd / && as_server test -x "$TARGET"); }; then
        RUN=/tmp/pg_rowsource-$(id -u)-$(cksum <<<"$TARGET" | cut -d' ' -f1)/run
        mkdir -p -m 755 "${RUN%/run}" && [ -O "${RUN%/run}" ] && [ ! -L "${RUN%/run}" ] || die "${RUN%/run} belongs to another user"
    fi
    export ROWSOURCE_RUN=$RUN
    mkdir -p "$RUN/servers" || die "cannot create $RUN"
    [ "$(id -u)" != 0 ] || chown postgres: "$RUN" "$RUN/servers"
    TREE=$RUN/tree
    [ -z "${INSTALLED:-}" ] || TREE=""
    PGBIN=$TREE$("$PG_CONFIG" --bindir) || die "cannot run $PG_CONFIG"
    export PGBIN
}

# make_template: creates RUN/template, a data directory, by initdb once per server version.
make_template() {
    local template=$RUN/template version
    version=$("$PGBIN/postgres" --version)
    (
        flock 9
        [ "$(cat "$template.done" 2>/dev/null)" != "$version" ] || exit 0
        rm -rf "$template" "$template.done"
        cd "$RUN" && as_server "$PGBIN/initdb" -D "$template" -U postgres -A trust -E UTF8 --locale=C -N \
            >"$TARGET/initdb.log" 2>&1 9>&- || die "initdb failed: $(tail -n 1 "$TARGET/initdb.log") (see $TARGET/initdb.log)"
        echo "$version" >"$template.done"
    ) 9>"$RUN/template.lock"
}

# stop_server DIR: stops the server if it runs.
stop_server() {
    [ -f "$1/data/postmaster.pid" ] || return 0
    (cd / && as_server "$PGBIN/pg_ctl" -D "$1/data" -m "${2:-fast}" -w stop >/dev/null 2>&1) || true
}

# stop_test_servers: stops and removes the servers of interrupted test runs. A folder's name ends with the id of its test
# process; folders of running processes are kept.
stop_test_servers() {
    local dir
    for dir in "$RUN"/servers/*/; do
        dir=${dir%/}
        [ -d "$dir" ] && [ ! -d "/proc/${dir##*-}" ] || continue
        stop_server "$dir" immediate
        rm -rf "$dir"
    done
}

# run_child COMMAND...: runs it in its own process group, so that stop_child stops all of its processes.
CHILD=""
run_child() {
    local status=0
    set -m
    "$@" &
    CHILD=$!
    set +m
    wait "$CHILD" || status=$?
    CHILD=""
    return $status
}

stop_child() {
    local tenths
    [ -n "$CHILD" ] && kill -TERM -- "-$CHILD" 2>/dev/null || return 0
    for ((tenths = 0; tenths < 100; tenths++)); do
        kill -0 -- "-$CHILD" 2>/dev/null || return 0
        sleep 0.1
    done
}

# at_end COMMAND...: stops the child and runs this when the script ends, is interrupted or is terminated.
at_end() {
    AT_END=("$@")
    trap 'status=$?; trap - EXIT INT TERM; stop_child; "${AT_END[@]}" "$status"; exit "$status"' EXIT
    trap 'echo "${0##*/}: interrupted${phase:+ during $phase}" >&2; exit 130' INT
    trap 'echo "${0##*/}: terminated${phase:+ during $phase}" >&2; exit 143' TERM
}

# logged COMMAND...: writes its output to $log too.
logged() {
    "$@" 2>&1 | tee -a "$log"
    return "${PIPESTATUS[0]}"
}

# sum_up LOG...: prints "N passed, N failed, N skipped, N flaky", summed over the summaries of cargo test and cargo-nextest in
# the logs. (Indented lines are the output of a single test.)
sum_up() {
    cat "$@" 2>/dev/null | awk '
        function number_before(word) { return match($0, "[0-9]+ " word) ? substr($0, RSTART) + 0 : 0 }
        /^test result:/ || /^ +Summary \[/ {
            passed += number_before("passed"); flaky += number_before("flaky")
            failed += number_before("failed") + number_before("timed out") + number_before("exec failed")
        }
        /^Skipped: / { skipped += $2 }
        /^server crash: / { crashed = 1 }
        END {
            printf "%d passed, %d failed, %d skipped, %d flaky%s\n", passed, failed, skipped, flaky,
                crashed ? "; a server crashed" : ""
        }'
}
