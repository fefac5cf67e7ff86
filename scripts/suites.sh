#!/usr/bin/env bash
# Runs the regression tests of other people's extensions on throwaway servers, without the library and with it, and
# compares what they gave byte by byte:
#   scripts/suites.sh [NAME ...]     those of Debian's packages postgresql-15-NAME; without a name, all of the list
# It prints a table, and leaves it in target/suites/table.md. A file fails if the run with the library gives something
# else, and a second run without it does not. The tests come by `apt-get source`; if there is a folder
# target/suites/sources/NAME, from there. Needs root.
. "$(dirname "$0")/common.sh"
cd "$ROOT" || exit

# NAME, the libraries to preload or -, settings of the server, VARIABLES of the Makefile, a +target to make before,
# the /folder that has the Makefile.
suites='
cron pg_cron cron.database_name=contrib_regression REGRESS_OPTS=--dbname=contrib_regression
dirtyread
extra-window-functions
first-last-agg
hll
hypopg
icu-ext
ip4r
jsquery
numeral
orafce
periods
pg-qualstats pg_stat_statements,pg_qualstats
pg-stat-kcache pg_stat_statements,pg_stat_kcache
pg-wait-sampling pg_stat_statements,pg_wait_sampling
pgaudit pgaudit
pgpcre
pgtap
plpgsql-check
plproxy - listen_addresses=127.0.0.1 port=54329
plsh
prefix
preprepare
rational
repack - /regress
rum
semver
set-user set_user
similarity - +pg_similarity.sql
tablelog
tdigest
unit
'
limit=300 # seconds for one run of a suite
common=(compute_query_id=on)
ours=(pg_rowsource.track=all pg_rowsource.statistics_level=all pg_rowsource.sampfreq=1)

# get_tests NAME: copies the suite's files to where the account of the server may write.
get_tests() {
    local apt=$place/apt from=$place/sources/$1 options file
    rm -rf "$server/tests" "$place/fetched"
    if [ ! -d "$from" ]; then
        options=(-qq -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$apt/parts" -o "Dir::State::Lists=$apt/lists"
            -o "Dir::Cache=$apt")
        # Where this machine has its packages from, but for sources.
        if [ ! -d "$apt/parts" ]; then
            mkdir -p "$apt/lists/partial" && cp -r /etc/apt/sources.list.d "$apt/parts"
            [ ! -f /etc/apt/sources.list ] || cp /etc/apt/sources.list "$apt/parts/main.list"
            for file in "$apt/parts"/*.{list,sources}; do
                [ ! -f "$file" ] || sed -Ei 's/^deb /deb-src /; s/^Types:.*/Types: deb-src/' "$file"
            done
            apt-get "${options[@]}" update
        fi
        # Its authors' archive will do, where Debian's changes cannot be had.
        mkdir "$place/fetched" && (cd "$place/fetched" &&
            { timeout 300 apt-get "${options[@]}" source "postgresql-$major-$1" || tar -xf ./*.orig.tar.*; }) || return
        from=$(echo "$place"/fetched/*/)
    fi
    cp -r "$from" "$server/tests" && chown -R postgres: "$server/tests"
}

# run KIND LIBRARIES OPTION...: runs the suite on a new server, and keeps its results and logs in the folder NAME/KIND.
# The Makefile installs nothing.
run() {
    local kept=$place/$name/$1 status=0
    stop_server "$server" immediate
    rm -rf "$kept" "$server/data" "$tests/results" && mkdir -p "$kept"
    [ ! -d "$server/fresh" ] || cp -a "$server/fresh" "$server/data"
    ROWSOURCE_SERVER=suites NOPRELOAD=1 nice scripts/server.sh start "shared_preload_libraries='$2'" "${common[@]}" "${@:3}" \
        >"$kept/log" 2>&1 || return
    PGHOST=$server PGUSER=postgres as_server timeout "$limit" nice make -s -C "$tests" "${made[@]}" USE_PGXS=1 \
        "PG_CONFIG=$PG_CONFIG" INSTALL=true MKDIR_P=true >"$kept/log" 2>&1 </dev/null || status=$?
    cp -r "$tests/results" "$tests/regression.diffs" "$kept/" 2>/dev/null
    cp "$server/log" "$kept/server.log" && : >"$server/log"
    [ "$status" != 124 ] || { echo "it takes more than $limit seconds" >>"$kept/log" && return 1; }
    ! grep -q 'server process .* was terminated by signal' "$kept/server.log" || { echo "the server crashed" >>"$kept/log" && return 1; }
}

# failing KIND: how many files are not as its authors expect.
failing() { grep -cE '\.\.\. +FAILED' "$place/$name/$1/log"; }

# skip REASON: notes that this suite cannot tell.
skip() { rows+=("| $name | skipped: $1 | | | | |") && skipped=$((skipped + 1)); }

# compare LIBRARIES OPTION...: runs the suite with and without the library, and adds a row to the table.
compare() {
    local file files again="" only=() unstable=() base=$1
    run without "$base" "${@:2}" || { skip "$(tail -n 1 "$place/$name/without/log")"; return; }
    files=$(cd "$place/$name/without" && compgen -G 'results/*.out') || { skip "$(tail -n 1 "$place/$name/without/log")"; return; }
    run with "${base:+$base,}pg_rowsource" "${@:2}" "${ours[@]}" || only+=("$(tail -n 1 "$place/$name/with/log")")
    for file in $files; do
        ! cmp -s "$place/$name/"{without,with}"/$file" || continue
        [ -n "$again" ] || { run again "$base" "${@:2}"; again=1; }
        file=${file#results/}
        if cmp -s "$place/$name/"{without,again}"/results/$file"; then only+=("${file%.out}"); else unstable+=("${file%.out}"); fi
    done
    rows+=("| $name $(dpkg-query -W -f '${Version}' "postgresql-$major-$name") | $(wc -w <<<"$files") | $(failing without) | $(
        failing with) | ${#only[@]}${only[*]:+: ${only[*]}} | ${unstable[*]} |")
    same=$((same + $(wc -w <<<"$files") - ${#only[@]})) differing=$((differing + ${#only[@]}))
}

[ "$(id -u)" = 0 ] || die "needs root, to install packages"
scripts/build.sh || exit
choose_run
major=$(major) place=$TARGET/suites server=$RUN/suites rows=() same=0 differing=0 skipped=0
mkdir -p "$place"
trap 'stop_server "$server" immediate' EXIT
rm -rf "$server"
ROWSOURCE_SERVER=suites NOPRELOAD=1 scripts/server.sh start >/dev/null || exit
stop_server "$server" && cp -a "$server/data" "$server/fresh"
scripts/setup.sh dpkg-dev || exit
while read -r name libraries words; do
    [[ -n $name && ( $# = 0 || " $* " == *" $name "* ) ]] || continue
    say "$(date +%T) $name"
    scripts/setup.sh "postgresql-$major-$name" >"$place/log" 2>&1 </dev/null || { skip "no package"; continue; }
    get_tests "$name" >"$place/log" 2>&1 </dev/null || { skip "its source package cannot be had"; continue; }
    tests=$server/tests made=(installcheck) settings=()
    for word in $words; do
        case $word in
        /*) tests+=$word ;;
        +*) made=("${word#+}" "${made[@]}") ;;
        [A-Z]*) made+=("$word") ;;
        *) settings+=("${word%%=*}='${word#*=}'") ;;
        esac
    done
    compare "${libraries#-}" "${settings[@]}"
done <<<"$suites"
{
    echo "| tests of | files | fail without | fail with | only with | unstable |"
    echo "|---|---|---|---|---|---|"
    printf '%s\n' "${rows[@]}"
} | tee "$place/table.md"
echo "Skipped: $skipped suites of other extensions"
echo "test result: $same passed; $differing failed"
[ "$differing" = 0 ] && [ "$same" -gt 0 ]
