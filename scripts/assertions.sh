#!/usr/bin/env bash
# Tests the library on a PostgreSQL with assertions, which is built from Debian's source and kept beside the folder
# of the servers:
#   scripts/assertions.sh MAJOR           runs make installcheck, and stops the server
#   scripts/assertions.sh MAJOR NAME...   runs these files of tests/tests, or what a filter expression selects
# The library is the one that is built for Debian's server of that major: assertions change nothing that it uses.
# Needs root.
. "$(dirname "$0")/testing.sh"
major=${1:?usage: assertions.sh MAJOR [NAME...]}
export ROWSOURCE_PROFILE=lab
# make, which calls this, tells these to the makes below it. PostgreSQL's Makefile asks for them.
unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS CPPFLAGS LDFLAGS

# fetch: the source into this folder, in the newest version that can be had: a mirror may list one that it does
# not have.
fetch() {
    local version options=(-qq -o "Dir::Etc::SourceList=$PWD/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$PWD/lists" -o "Dir::Cache=$PWD")
    mkdir -p lists/partial
    # 15 is that of this machine's own suite.
    if [ "$major" = 15 ]; then
        apt-get indextargets --format 'deb-src $(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian'
    else
        echo "deb-src $(mirror) sid main"
    fi >sources.list
    apt-get "${options[@]}" update || return
    for version in $(apt-cache "${options[@]}" showsrc --only-source "postgresql-$major" | sed -n 's/^Version: //p' | sort -Vru); do
        apt-get "${options[@]}" source "postgresql-$major=$version" && return
    done
    return 1
}

# build: with what tests of other extensions need, but without what would need further packages.
build() {
    local work=$place.work
    rm -rf "$place" "$work" && mkdir -p "$work" && cd "$work" && fetch && cd postgresql-*/ || return
    ./configure --prefix="$place" --enable-cassert --with-icu --without-readline --without-zlib CFLAGS="-O1 -g1 -fno-omit-frame-pointer" &&
        make -s -j "$(nproc)" && make -s install && make -s -j "$(nproc)" -C contrib install && touch "$place/built" || return
    cd "$ROOT" && rm -rf "$work"
}

# make_server: keeps it.
make_server() (
    exec 9>"$place.lock"
    flock 9
    [ ! -e "$place/built" ] || exit 0
    scripts/setup.sh bison flex perl dpkg-dev || exit
    (build) >"$TARGET/assertions-$major.log" 2>&1 </dev/null || { tail -n 5 "$TARGET/assertions-$major.log"; exit 1; }
)

# make_library: for Debian's server.
make_library() (
    [ "$major" = 15 ] || { scripts/chroot.sh "$major" && export PG_CONFIG=$MATRIX/pg_config-$major; } || exit
    scripts/build.sh
)

# installcheck: and a clean stop, after which neither a failed assertion nor a lock file is there.
installcheck() {
    local server=$RUN/play status=0
    rm -f "$server/log"
    scripts/server.sh start && mkdir -p "$RUN/regress" || return
    PGHOST=$server PGUSER=postgres make installcheck EXTRA_REGRESS_OPTS="--outputdir='$RUN/regress'" | tee "$RUN/regress/log" || {
        status=1
        cat "$RUN/regress/regression.diffs"
    }
    # From 16 on, it prints TAP.
    awk '/^(test .*\.\.\. ok |ok [0-9])/ { passed++ } /^(test .*\.\.\. FAILED|not ok )/ { failed++ }
        END { print "test result: " passed + 0 " passed; " failed + 0 " failed" }' "$RUN/regress/log"
    scripts/server.sh stop
    ! grep -aE 'TRAP|was terminated by signal|PANIC' "$server/log" && [ ! -e "$server/data/postmaster.pid" ] && return "$status"
}

run() {
    step "PostgreSQL $major with assertions: library" make_library || return
    step "PostgreSQL $major with assertions" make_server || return
    export PG_CONFIG=$place/bin/pg_config ROWSOURCE_RUN=${RUN}a$major
    choose_run
    if [ $# -eq 0 ]; then
        step "PostgreSQL $major with assertions: installcheck" installcheck
    else
        step "cargo-nextest" install_nextest && step "test programs" build_tests || return
        step "PostgreSQL $major with assertions: private server tree" scripts/server.sh tree || return
        step "PostgreSQL $major with assertions: server tests" server_tests "$@"
    fi
}

[ "$(id -u)" = 0 ] || die "needs root, to install packages"
choose_run
place=${RUN%/*}/assertions-$major
unset ROWSOURCE_RUN
shift
judge "$TARGET/assertions-$major.run.log" run "$@"
