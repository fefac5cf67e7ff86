#!/usr/bin/env bash
# The fence of the built library: code that an error may cross (a longjmp) runs nothing that panics, unwinds or allocates.
#   scripts/check-plain.sh     looks at the library as built for the server of PG_CONFIG
#
# The roots are the wrappers that run once per row, the tick's signal handler, and the functions that stand in for system
# calls. From them all direct calls and jumps inside the library are followed. Calls through the import table go to
# PostgreSQL or the C library and end there, and so do calls by address (the node itself, the clock): the clocks are roots.
set -uo pipefail
. "$(dirname "$0")/common.sh"
library=${1:-$TARGET/pg$(major)/pg_rowsource.so}
[ -f "$library" ] || die "$library is not built: run scripts/build.sh"
command -v objdump >/dev/null || die "objdump not found: install binutils"
objdump --disassemble --demangle --no-show-raw-insn --wide --section=.text "$library" | awk '
    BEGIN {
        roots = "^(pg_rowsource::pg::wrapper::(call|scan|first_call|book_and_call|leave_moved|call_sampled|settle_and_scan|settle)" \
            "|pg_rowsource::pg::tick::ticked|pg_rowsource::pg::tempfile::interpose::(plain|vectored|close)" \
            "|rowsource_core::clock::(system|tsc)::[a-z]+)$"
        forbidden = "core::panicking|std::panicking|panic_|__rust_|__rdl_|__rg_|_Unwind|alloc::alloc|handle_alloc_error" \
            "|drop_in_place|core::(result|option|slice|str|cell)::.*(failed|fail)|dlmalloc|GlobalAlloc"
    }
    # "0000000000085840 <name>:" begins a function. Variants have one name, so functions are told apart by address.
    /^[0-9a-f]+ <.*>:$/ {
        at = $1; sub(/^0+/, "", at)
        name = $0; sub(/^[0-9a-f]+ </, "", name); sub(/>:$/, "", name)
        names[at] = name
        next
    }
    # Of "call 85830 <name>" and "jne 85a76 <name+0x76>" those that lead to the beginning of a function.
    { sub(/\taddr32 /, "\t") }
    $2 ~ /^(call|j[a-z]+|b|bl|b\.[a-z]+|cbn?z|tbn?z)$/ && /<[^>]/ {
        if (match($0, /[0-9a-f]+ <.*>$/)) {
            to = substr($0, RSTART); sub(/ <.*/, "", to)
            if ($0 !~ /\+0x[0-9a-f]+>$/) calls[at] = calls[at] " " to
        }
    }
    END {
        for (at in names) if (names[at] ~ roots) { queue[++last] = at; from[at] = "" ; seen[at] = 1; found[names[at]] = 1 }
        count = split("call scan first_call book_and_call leave_moved call_sampled settle_and_scan", wanted, " ")
        for (i = 1; i <= count; i++) if (!found["pg_rowsource::pg::wrapper::" wanted[i]]) {
            print "check-plain.sh: there is no wrapper::" wanted[i] " in the library"; failed = 1
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
