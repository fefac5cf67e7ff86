# Shared by test.sh, release.sh, matrix.sh, test-all.sh and .ci/run (sourced, not run): runs tests, and sums up their results.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
cd "$ROOT" || exit

# step NAME COMMAND...: says when it does what, and where it fails.
step() {
    say "$(date +%T) $1"
    "${@:2}" && return
    echo "${0##*/}: failed: $1" && return 1
}

# set_up: installs what the tests need. Not in the background: sudo may want to ask.
set_up() {
    local fetchers=()
    scripts/setup.sh || exit 1
    # With these, install_readers fetches programs. Any version will do.
    command -v npm >/dev/null || fetchers+=(npm)
    python3 -c 'import ensurepip, venv' 2>/dev/null || fetchers+=(python3-venv)
    [ ${#fetchers[@]} -eq 0 ] || scripts/setup.sh "${fetchers[@]}" || say "going on without ${fetchers[*]}"
    # Some tests need these extensions.
    [ "$(major)" != 15 ] || scripts/setup.sh postgresql-15-pgaudit || say "going on without pgaudit"
    [ "$(major)" != 15 ] || scripts/setup.sh postgresql-plperl-15 postgresql-plpython3-15 postgresql-pltcl-15 ||
        say "going on without PL/Perl, PL/Python and PL/Tcl"
    [ "$(major)" != 15 ] || scripts/setup.sh pgbouncer || say "going on without PgBouncer"
    [ "$(major)" != 15 ] || scripts/setup.sh postgresql-15-plr || say "going on without PL/R"
}

nextest() { PATH=$TARGET/tools/bin:$PATH cargo-nextest nextest "$@"; }

# install_nextest: builds cargo-nextest under target/tools (two minutes), unless one is there or on the PATH that is new
# enough for .config/nextest.toml.
install_nextest() {
    local tools=$TARGET/tools version
    ! nextest show-config version >/dev/null 2>&1 || return 0
    version=$(sed -n 's/^nextest-version = "\(.*\)"/\1/p' .config/nextest.toml)
    mkdir -p "$tools"
    # In a folder of its own: other builds need not wait for it.
    CARGO_PROFILE_DEV_DEBUG=false flock "$tools" cargo install cargo-nextest --version "$version" --locked --profile dev \
        --no-default-features --features default-no-update --root "$tools" --target-dir "$tools/build" && rm -rf "$tools/build"
}

# install_mdbook: builds mdBook under target/tools (half a minute), unless this version is there or on the PATH. Without its
# server and its search.
install_mdbook() {
    local tools=$TARGET/tools version=0.5.4
    [ "$(PATH=$tools/bin:$PATH mdbook --version 2>/dev/null)" != "mdbook v$version" ] || return 0
    mkdir -p "$tools"
    CARGO_PROFILE_DEV_DEBUG=false flock "$tools" cargo install mdbook --version "$version" --locked --profile dev \
        --no-default-features --root "$tools" --target-dir "$tools/build-book" && rm -rf "$tools/build-book"
}

# install_readers: installs the programs that read exported plans (tests/readers) under target/tools/readers, with the
# registries that npm and pip are configured for.
install_readers() {
    local from=$ROOT/tests/readers to=$TARGET/tools/readers stamp
    stamp=$(cat "$from"/* | cksum)
    [ "$(cat "$to/stamp" 2>/dev/null)" != "$stamp" ] || return 0
    say "installing the programs that read plans (see $TARGET/readers.log)"
    (fetch_readers && echo "$stamp" >"$to/stamp") >"$TARGET/readers.log" 2>&1 </dev/null ||
        { say "they could not be installed: their tests are skipped" && return 1; }
}

# fetch_readers: does that, up to the first failure. Packages of npm are whole: they need no others.
fetch_readers() {
    local package pip=$to/python/bin/pip
    rm -rf "$to" && mkdir -p "$to/npm" && cd "$to/npm" || return
    while read -r _ package; do
        package=${package%.tgz}
        timeout 300 npm pack --silent "${package%-*}@${package##*-}" </dev/null || return
    done <"$from/npm.sha512"
    sha512sum -c "$from/npm.sha512" || return
    for package in *.tgz; do
        mkdir "${package%-*}" && tar -xzf "$package" -C "${package%-*}" --strip-components 1 || return
    done
    python3 -m venv "$to/python" &&
        timeout 600 "$pip" install -q --require-hashes --no-deps -r "$from/requirements.txt" &&
        timeout 600 "$pip" install -q --no-deps -r "$from/libraries.txt"
}

# What build_tests built is run without cargo, which would wait while it builds for another server.
built=$TARGET/server-tests
run_built=(--cargo-metadata "$built.cargo.json" --binaries-metadata "$built.binaries.json" --color never)
build_tests() {
    # Another script may read them now.
    nextest list --locked --ignore-rust-version -p rowsource-tests --list-type binaries-only --message-format json \
        >"$built.binaries.json.$$" && cargo metadata --locked --format-version 1 >"$built.cargo.json.$$" &&
        mv "$built.binaries.json.$$" "$built.binaries.json" && mv "$built.cargo.json.$$" "$built.cargo.json"
}

# selected_tests EXPRESSION: lists the built tests that a filter expression of cargo-nextest selects.
selected_tests() { nextest list "${run_built[@]}" -T oneline -E "$1" 2>/dev/null; }

# Tests that `make test` leaves to others: those of the library as it is released, with link-time optimization (scripts/release.sh), and
# those that take long (scripts/test-all.sh).
of_release='test(/_release(_before_pg[0-9]+)?$/)'
of_long='test(/_long$/)'
everyday="all() - $of_release - $of_long"

# server_tests [NAME...]: runs the tests of `make test` against the library as built for the server of PG_CONFIG, or those of these files
# of tests/tests, or of a filter expression of cargo-nextest, such as 'group(timing)'. With PG_ROOT, they run in that chroot.
# Tests whose name says that they do not fit here (CONTRIBUTING.md) are skipped and listed. So are those of UNFIT, a filter
# expression too.
server_tests() (
    selected="none()" major=$(major) status=0
    for name in "${@:-$everyday}"; do
        [[ $name == *'('* ]] || [ -f "tests/tests/$name.rs" ] || die "there is no tests/tests/$name.rs"
        [[ $name == *'('* ]] || name="test(/^$name::/)"
        selected+=" | ($name)"
    done
    later=$(seq -s '|' $((major + 1)) $((major + 20))) earlier=$(seq -s '|' 15 "$major")
    unfit="test(/_pg($later)_plus$/) | test(/_before_pg($earlier)$/)${UNFIT:+ | $UNFIT}"
    { [ "$(id -u)" = 0 ] && [ -x "${PG_ROOT:-}/bin/mount" ]; } || unfit+=" | test(/_needs_mount$/)"
    { [ -z "${PG_ROOT:-}" ] && command -v chromium >/dev/null; } || unfit+=" | test(/_needs_(browser|readers)$/)"
    if [ -n "$(selected_tests "kind(test) & ($selected) & test(/_needs_readers$/) - ($unfit)")" ]; then
        install_readers || unfit+=" | test(/_needs_readers$/)"
    fi
    # The terminal program, which is built here, and tmux where the tests run.
    export ROWSOURCE_PROGRAM=$TARGET/lab/rowsource
    [ -x "$ROWSOURCE_PROGRAM" ] || unfit+=" | test(/_needs_(program|terminal|script|pgbouncer)$/)"
    [ -x "${PG_ROOT:-}/usr/bin/tmux" ] || unfit+=" | test(/_needs_(terminal|pgbouncer)$/)"
    # Chroots of sid and experimental have no script(1).
    [ -x "${PG_ROOT:-}/usr/bin/script" ] || unfit+=" | test(/_needs_script$/)"
    [ -x "${PG_ROOT:-}/usr/sbin/pgbouncer" ] || unfit+=" | test(/_needs_pgbouncer$/)"
    for module in pgaudit plperl plpython3 pltcl plr; do
        [ -e "${PG_ROOT:-}$("$PG_CONFIG" --pkglibdir)/$module.so" ] || unfit+=" | test(/_needs_$module$/)"
    done
    [ -n "${ROWSOURCE_OLD:-}" ] || unfit+=" | test(/_needs_old_server$/)"
    selected_tests "kind(test) & ($selected) & ($unfit)" | awk -v "major=$major" '
        { print "        SKIP " $0 }
        END { if (NR > 0) print "Skipped: " NR " tests that do not fit PostgreSQL " major " here" }'
    choose_run
    # What interrupted tests left goes; their servers died with them. A folder's name ends in the id of its process.
    choose_servers
    for dir in "$SERVERS"/*; do [ -d "/proc/${dir##*-}" ] || rm -rf "$dir"; done
    rm -rf "$RUN/crashes"
    export ROWSOURCE_INSIDE=${PG_ROOT:-} ROWSOURCE_READERS=$TARGET/tools/readers
    [ -z "$ROWSOURCE_INSIDE" ] || run_built+=(--config "target.'cfg(unix)'.runner = ['$ROOT/scripts/in-chroot.sh']")
    nextest run "${run_built[@]}" -E "kind(test) & ($selected) - ($unfit)" 2>&1 || status=$?
    rmdir "$SERVERS" "${SERVERS%/servers}" 2>/dev/null
    # A crash is a failure, whatever came after it.
    ! compgen -G "$RUN/crashes/*" >/dev/null || { sed "s|^|server crash: |" "$RUN"/crashes/* && status=1; }
    exit $status
)

# failures LOG: which tests failed in it, and what they said, each once, for one who sees only the log's end.
failures() {
    awk '
        /^test .* \.\.\. FAILED$/
        /^[A-Z0-9 ]+ \[ *[0-9.]+s\] \(/ { failed = !/^ +(PASS|START|SLOW) / }
        failed && (/^[A-Z0-9 ]+ \[/ || /^ *thread .* panicked at/) { lines = 9 }
        failed && lines-- > 0 && !seen[$0]++ { print substr($0, 1, 400) }' "$1"
}

# sums LOG: the sum of the summaries of cargo test and cargo-nextest in the log. (What stands indented deeper is the output of a single
# test.) A line of its own counts the tests that could not tell on this machine now (tests/src/verdict.rs): these passed.
sums() {
    awk '
        function number(word) { return match($0, "[0-9]+ " word) ? substr($0, RSTART) + 0 : 0 }
        /^test result:/ || /^ +Summary \[/ {
            passed += number("passed")
            failed += number("failed") + number("timed out") + number("exec failed")
        }
        /^Skipped: / { skipped += $2 }
        /^ +UNDECIDED / { undecided += !seen[substr($0, 1, 400)]++ }
        /^server crash: / { crashed = "; a server crashed" }
        END {
            print passed + 0 " passed, " failed + 0 " failed, " skipped + 0 " skipped" crashed
            print undecided + 0 " undecided"
        }' "$1"
}

# judge LOG COMMAND...: runs it together, repeats which tests and steps failed, sums up, and exits.
judge() {
    local status=0
    together "$@" || status=1
    [ "$status" = 0 ] || failures "$1" >&2
    ! grep -a '^[a-z0-9-]*\.sh: failed: ' "$1" | sort -u >&2 || status=1
    grep -aE '^ +UNDECIDED ' "$1" | cut -c1-400
    sums "$1"
    exit $status
}
