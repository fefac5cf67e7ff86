//! Checks the built library: code that an error may leave by a longjmp runs nothing that panics, unwinds or
//! allocates.
//!
//! The roots are every function from src/pg/hot/ and from the wrapper's logic in core, the functions that
//! stand in for system calls, and the clocks. The check follows all direct calls and jumps inside the
//! library. Calls through the import table go to PostgreSQL or the C library: only the name of the called
//! function is checked. Calls by address are not followed: these go to a plan node or a clock, and the clocks
//! are roots.

use crate::environment::library;
use std::collections::{BTreeMap, VecDeque};
use std::process::Command;

/// A function of the library. Variants share a name, so functions are told apart by address.
#[derive(Default)]
struct Function {
    name: String,
    /// The functions to which it calls or jumps.
    calls: Vec<Called>,
}

/// A function that is called or jumped to.
#[derive(Debug, PartialEq)]
struct Called {
    /// The function's address; for an imported function, that of its entry in the import table.
    address: String,
    name: String,
}

/// Reads what objdump prints.
fn functions(disassembly: &str) -> BTreeMap<String, Function> {
    let mut found: BTreeMap<String, Function> = BTreeMap::new();
    let mut current = String::new();
    for line in disassembly.lines() {
        if let Some((address, name)) = beginning(line) {
            current = address.to_string();
            found.entry(current.clone()).or_default().name = name.to_string();
        } else if let Some(called) = call(line)
            && let Some(function) = found.get_mut(&current)
        {
            function.calls.push(called);
        }
    }
    found
}

/// Returns the address and the name of a line like "0000000000085840 <name>:", with which a function begins.
fn beginning(line: &str) -> Option<(&str, &str)> {
    let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
    let is_address = address.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_address.then(|| (address.trim_start_matches('0'), name))
}

/// Returns where a line calls or jumps to, if that is the beginning of a function:
///
/// * "  85a70: call   85830 <name>": yes;
/// * "  85a72: jne    85a76 <name+0x76>": no;
/// * "  85a78: call   *0x14b838(%rip)        # 199f80 <memcpy@GLIBC_2.14>": yes, an imported function.
fn call(line: &str) -> Option<Called> {
    let (_, instruction) = line.split_once(":\t")?;
    let instruction = instruction.strip_prefix("addr32 ").unwrap_or(instruction);
    let (mnemonic, operands) = instruction.split_once(char::is_whitespace)?;
    let transfers = match mnemonic {
        "call" | "b" | "bl" | "cbz" | "cbnz" | "tbz" | "tbnz" => true,
        other => other.starts_with('j') || other.starts_with("b."),
    };
    let (before, name) = operands.split_once(" <")?;
    let name = name.strip_suffix('>')?;
    let inside = name
        .rsplit_once("+0x")
        .is_some_and(|(_, offset)| offset.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let address = before.rsplit([' ', ',', '\t']).next()?;
    let is_address = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit());
    (transfers && is_address && !inside).then(|| Called {
        address: address.to_string(),
        name: name.to_string(),
    })
}

/// The end of the name of a function that reads a clock.
const CLOCK_READ: &str = " as rowsource_core::clock::leaf::Clock>::read";

/// Returns whether the check begins at this function.
fn is_root(name: &str) -> bool {
    const BEGINNINGS: [&str; 3] = [
        "pg_rowsource::pg::hot::",
        "rowsource_core::wrapper::",
        "rowsource_core::sampler::",
    ];
    // A trait's method begins with the type: "<type as trait>::method".
    let path = name.strip_prefix('<').unwrap_or(name);
    let interposed = path
        .strip_prefix("pg_rowsource::pg::interpose::functions::")
        .is_some_and(|function| ["plain", "vectored", "close"].contains(&function))
        || path
            .strip_prefix("pg_rowsource::pg::interpose::waiting::")
            .is_some_and(|function| function != "replacement");
    // The wrapper calls clocks by address.
    let clock = path.starts_with("rowsource_core::clock::source::") && path.ends_with(CLOCK_READ);
    // `estimate` runs once per statement, outside of PostgreSQL's frames.
    let outside = name.ends_with("NodeTimer::estimate");
    (BEGINNINGS.iter().any(|it| path.starts_with(it)) || interposed || clock) && !outside
}

/// Returns whether a function panics, unwinds, allocates or drops.
fn is_forbidden(name: &str) -> bool {
    const PARTS: [&str; 12] = [
        "core::panicking",
        "std::panicking",
        "panic_",
        "__rust_",
        "__rdl_",
        "__rg_",
        "_Unwind",
        "alloc::alloc",
        "handle_alloc_error",
        "drop_in_place",
        "dlmalloc",
        "GlobalAlloc",
    ];
    let fails = ["result", "option", "slice", "str", "cell"].iter().any(|module| {
        name.split_once(&format!("core::{module}::"))
            .is_some_and(|(_, rest)| rest.contains("fail"))
    });
    fails || PARTS.iter().any(|part| name.contains(part))
}

/// Returns whether an imported function unwinds, ends the process or allocates. The name may end in a version
/// ("@GLIBC_2.2.5") or in "@plt".
fn is_forbidden_import(name: &str) -> bool {
    // The first access to a library's thread-local storage allocates it.
    const NAMES: [&str; 8] = [
        "malloc",
        "calloc",
        "realloc",
        "posix_memalign",
        "aligned_alloc",
        "free",
        "abort",
        "__tls_get_addr",
    ];
    let base = name.split('@').next().unwrap_or(name);
    is_forbidden(base) || NAMES.contains(&base)
}

/// Follows the calls from the roots on. Returns the names of the functions that it met, and the ways to the
/// forbidden ones.
fn follow(functions: &BTreeMap<String, Function>) -> (Vec<&str>, Vec<String>) {
    let mut ways: BTreeMap<&str, String> = BTreeMap::new();
    let mut next: VecDeque<&str> = VecDeque::new();
    for (address, function) in functions.iter().filter(|(_, function)| is_root(&function.name)) {
        ways.insert(address, function.name.clone());
        next.push_back(address);
    }
    let mut forbidden = Vec::new();
    while let Some(address) = next.pop_front() {
        let (function, way) = (&functions[address], ways[address].clone());
        if is_forbidden(&function.name) {
            forbidden.push(way);
            continue;
        }
        for called in &function.calls {
            let way = || format!("{way} -> {}", called.name);
            match functions.get_key_value(&called.address) {
                Some((to, _)) if !ways.contains_key(to.as_str()) => {
                    ways.insert(to, way());
                    next.push_back(to);
                }
                Some(_) => {}
                None if is_forbidden_import(&called.name) => forbidden.push(way()),
                None => {}
            }
        }
    }
    let met = ways.keys().map(|&address| functions[address].name.as_str());
    (met.collect(), forbidden)
}

/// Returns what objdump says about the built library.
fn objdump(arguments: &[&str]) -> String {
    let library = library();
    assert!(
        library.exists(),
        "{} is not built: run scripts/build.sh",
        library.display()
    );
    let output = Command::new("objdump")
        .args(arguments)
        .arg(&library)
        .output()
        .expect("objdump can be run (package binutils)");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// RHEL 9 and its relatives have this version. A library that is built with a newer one may need more.
#[test]
fn no_symbol_is_newer_than_glibc_2_34() {
    let here = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .expect("getconf can be run");
    let here = String::from_utf8_lossy(&here.stdout).trim().to_owned();
    let (_, minor) = here.rsplit_once('.').expect("a version");
    if minor.parse::<u32>().expect("a number") > 36 {
        return println!("{here}: not judged");
    }
    let symbols = objdump(&["--dynamic-syms"]);
    // A weak symbol may be missing.
    let needed = symbols
        .lines()
        .filter(|line| line.contains("*UND*") && !line.contains(" w "));
    let versions: Vec<(u32, u32)> = needed
        .filter_map(|line| {
            let (_, version) = line.split_once("GLIBC_")?;
            let mut numbers = version
                .split([')', ' '])
                .next()?
                .split('.')
                .map_while(|number| number.parse().ok());
            Some((numbers.next()?, numbers.next()?))
        })
        .collect();
    assert!(versions.len() > 20, "{symbols}");
    let newest = versions.iter().max().expect("a version");
    assert!(*newest <= (2, 34), "GLIBC_{}.{}", newest.0, newest.1);
}

#[test]
fn hot_functions_are_plain_frames() {
    let disassembly = objdump(&[
        "--disassemble",
        "--demangle",
        "--no-show-raw-insn",
        "--wide",
        "--section=.text",
    ]);
    let functions = functions(&disassembly);
    let (met, forbidden) = follow(&functions);
    // Without any of these, `is_root` is out of date. Each group of roots has one here.
    for wanted in [
        "pg_rowsource::pg::hot::wrapper::call",
        "pg_rowsource::pg::hot::wrapper::scan",
        "pg_rowsource::pg::hot::wrapper::first_call",
        "pg_rowsource::pg::hot::wrapper::call_timed",
        "pg_rowsource::pg::hot::wrapper::call_sampled",
        "pg_rowsource::pg::hot::timing::take_beats",
        "pg_rowsource::pg::interpose::functions::plain",
        "pg_rowsource::pg::interpose::functions::vectored",
        "pg_rowsource::pg::interpose::functions::close",
        "pg_rowsource::pg::interpose::waiting::epoll_wait",
        "pg_rowsource::pg::interpose::waiting::sem_wait",
        "pg_rowsource::pg::waits::counting::end",
        "rowsource_core::wrapper::record_detected",
    ] {
        assert!(met.contains(&wanted), "the check does not meet {wanted}");
    }
    for clock in ["coarse::Coarse", "syscall::Syscall", "system::System", "tsc::Tsc"] {
        let name = format!("<rowsource_core::clock::source::{clock}{CLOCK_READ}");
        assert!(met.contains(&name.as_str()), "the check does not meet {name}");
    }
    assert!(forbidden.is_empty(), "not plain:\n{}", forbidden.join("\n"));
    println!(
        "{} functions run nothing that panics, unwinds or allocates",
        met.len()
    );
}

#[test]
fn a_panic_is_found_behind_a_call() {
    let disassembly = "0000000000000100 <pg_rowsource::pg::hot::wrapper::call>:\n\
        \x20    100:\tjne    100 <pg_rowsource::pg::hot::wrapper::call+0x10>\n\
        \x20    102:\taddr32 call 200 <pg_rowsource::helper>\n\
        0000000000000200 <pg_rowsource::helper>:\n\
        \x20    200:\tjmp    300 <core::panicking::panic>\n\
        0000000000000300 <core::panicking::panic>:\n\
        \x20    300:\tcall   400 <never_followed>\n";
    let functions = functions(disassembly);
    let (met, forbidden) = follow(&functions);
    assert_eq!(met.len(), 3);
    assert_eq!(
        forbidden,
        ["pg_rowsource::pg::hot::wrapper::call -> pg_rowsource::helper -> core::panicking::panic"]
    );
}

#[test]
fn unwinding_and_allocating_are_found_in_imports() {
    let disassembly = "0000000000000100 <pg_rowsource::pg::hot::wrapper::call>:\n\
        \x20    100:\tcall   9000 <_Unwind_Resume@plt>\n\
        \x20    106:\tcall   *0x14b838(%rip)        # 9100 <malloc@GLIBC_2.2.5>\n\
        \x20    10c:\tcall   *0x14b840(%rip)        # 9108 <memcpy@GLIBC_2.14>\n\
        \x20    112:\tcall   9010 <__tls_get_addr@plt>\n\
        \x20    118:\tmov    0x14b840(%rip),%rax        # 9110 <free@GLIBC_2.2.5>\n";
    let functions = functions(disassembly);
    let (_, forbidden) = follow(&functions);
    let way = |to: &str| format!("pg_rowsource::pg::hot::wrapper::call -> {to}");
    assert_eq!(
        forbidden,
        ["_Unwind_Resume@plt", "malloc@GLIBC_2.2.5", "__tls_get_addr@plt"].map(way)
    );
}

#[test]
fn a_clock_is_followed() {
    let disassembly = "0000000000000100 <<rowsource_core::clock::source::tsc::Tsc as rowsource_core::clock::leaf::Clock>::read>:\n\
        \x20    100:\tjmp    300 <core::panicking::panic>\n\
        0000000000000300 <core::panicking::panic>:\n";
    assert_eq!(follow(&functions(disassembly)).1.len(), 1);
}
