#!/usr/bin/env bash
# Checks the built library: code that an error may leave by a longjmp calls nothing that panics, unwinds or allocates.
#   scripts/check-plain.sh     checks the library as built for the server of PG_CONFIG
#
# The check starts at every function from src/pg/hot/ and from the wrapper's logic in core, at the functions that replace
# system calls, and at the clocks. It follows all direct calls and jumps inside the library. It does not follow calls through
# the import table, which go to PostgreSQL or the C library, nor calls by address, which go to a plan node or a clock.
set -uo pipefail
. "$(dirname "$0")/common.sh"
library=${1:-$TARGET/pg$(major)/pg_rowsource.so}
[ -f "$library" ] || die "$library is not built: run scripts/build.sh"
command -v objdump >/dev/null || die "objdump not found: install binutils"
objdump --disassemble --demangle --no-show-raw-insn --wide --section=.text "$library" | awk '
    BEGIN {
        roots = "^<?(pg_rowsource::pg::hot::|rowsource_core::(wrapper|sampler)::" \
            "|pg_rowsource::pg::tempfile::interpose::(plain|vectored|close)$|rowsource_core::clock::(system|tsc)::[a-z]+$)"
        # `estimate` runs once per statement, outside of PostgreSQL'"'"'s frames.
        not_roots = "NodeTimer::estimate$"
        forbidden = "core::panicking|std::panicking|panic_|__rust_|__rdl_|__rg_|_Unwind|alloc::alloc|handle_alloc_error" \
            "|drop_in_place|core::(result|option|slice|str|cell)::.*(failed|fail)|dlmalloc|GlobalAlloc"
    }
    # "0000000000085840 <name>:" begins a function. Variants have the same name, so the key of a function is its address.
    /^[0-9a-f]+ <.*>:$/ {
        at = $1; sub(/^0+/, "", at)
        name = $0; sub(/^[0-9a-f]+ </, "", name); sub(/>:$/, "", name)
        names[at] = name
        next
    }
    # Calls and jumps to the start of a function, such as "call 85830 <name>", but not "jne 85a76 <name+0x76>".
    { sub(/\taddr32 /, "\t") }
    $2 ~ /^(call|j[a-z]+|b|bl|b\.[a-z]+|cbn?z|tbn?z)$/ && /<[^>]/ {
        if (match($0, /[0-9a-f]+ <.*>$/)) {
            to = substr($0, RSTART); sub(/ <.*/, "", to)
            if ($0 !~ /\+0x[0-9a-f]+>$/) calls[at] = calls[at] " " to
        }
    }
    END {
        for (at in names) if (names[at] ~ roots && names[at] !~ not_roots) { queue[++last] = at; from[at] = "" ; seen[at] = 1; found[names[at]] = 1 }
        # If one of these is missing, the pattern above is out of date.
        count = split("wrapper::call wrapper::scan wrapper::first_call tick::ticked", wanted, " ")
        for (i = 1; i <= count; i++) if (!found["pg_rowsource::pg::hot::" wanted[i]]) {
            print "check-plain.sh: there is no hot::" wanted[i] " in the library"; failed = 1
        }
        for (i = 1; i <= last; i++) {
            at = queue[i]
            path = from[at] == "" ? names[at] : from[at] " -> " names[at]
            if (names[at] ~ forbidden) { print "check-plain.sh: " path; failed = 1; continue }
            n = split(calls[at], callees, " ")
            for (j = 1; j <= n; j++) if (callees[j] in names && !seen[callees[j]]) {
                seen[callees[j]] = 1; queue[++last] = callees[j]; from[callees[j]] = path
            }
        }
        if (!failed) print "plain frames: " last " functions run nothing that panics, unwinds or allocates"
        exit failed
    }' >&2
