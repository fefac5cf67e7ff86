//! Checks the built library: code that an error may leave by a longjmp runs nothing that panics, unwinds or allocates.
//!
//! The roots are every function from src/pg/hot/ and from the wrapper's logic in core, the functions that stand in for
//! system calls, and the clocks. The check follows all direct calls and jumps inside the library. Calls through the import
//! table go to PostgreSQL or the C library and are not followed. Neither are calls by address: these go to a plan node or a
//! clock.

use crate::environment::pg_config;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::Command;

/// A function of the library. Variants share a name, so functions are told apart by address.
#[derive(Default)]
struct Function {
    name: String,
    /// Addresses to which it calls or jumps.
    calls: Vec<String>,
}

/// Reads what objdump prints.
fn functions(disassembly: &str) -> BTreeMap<String, Function> {
    let mut found: BTreeMap<String, Function> = BTreeMap::new();
    let mut current = String::new();
    for line in disassembly.lines() {
        if let Some((address, name)) = beginning(line) {
            current = address.to_string();
            found.entry(current.clone()).or_default().name = name.to_string();
        } else if let Some(to) = call(line)
            && let Some(function) = found.get_mut(&current)
        {
            function.calls.push(to.to_string());
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

/// Returns where a line calls or jumps to, if that is the beginning of a function: of "  85a70: call   85830 <name>" and
/// "  85a72: jne    85a76 <name+0x76>" the first.
fn call(line: &str) -> Option<&str> {
    let (_, instruction) = line.split_once(":\t")?;
    let instruction = instruction.strip_prefix("addr32 ").unwrap_or(instruction);
    let (mnemonic, operands) = instruction.split_once(char::is_whitespace)?;
    let transfers = match mnemonic {
        "call" | "b" | "bl" | "cbz" | "cbnz" | "tbz" | "tbnz" => true,
        other => other.starts_with('j') || other.starts_with("b."),
    };
    let (before, name) = operands.split_once(" <")?;
    let inside = name
        .strip_suffix('>')?
        .rsplit_once("+0x")
        .is_some_and(|(_, offset)| offset.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let address = before.rsplit([' ', ',', '\t']).next()?;
    let is_address = !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit());
    (transfers && is_address && !inside).then_some(address)
}

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
        .strip_prefix("pg_rowsource::pg::tempfile::interpose::")
        .is_some_and(|function| ["plain", "vectored", "close"].contains(&function));
    let clock = ["rowsource_core::clock::system::", "rowsource_core::clock::tsc::"]
        .iter()
        .filter_map(|module| path.strip_prefix(module))
        .any(|function| !function.is_empty() && function.bytes().all(|byte| byte.is_ascii_lowercase()));
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

/// Follows the calls from the roots on. Returns how many functions it met, and the ways to the forbidden ones.
fn follow(functions: &BTreeMap<String, Function>) -> (usize, Vec<String>) {
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
        for to in &function.calls {
            if let Some(called) = functions.get(to)
                && !ways.contains_key(to.as_str())
            {
                ways.insert(to, format!("{way} -> {}", called.name));
                next.push_back(to);
            }
        }
    }
    (ways.len(), forbidden)
}

/// Returns the library as built for the server of PG_CONFIG.
fn library() -> PathBuf {
    let version = pg_config("--version");
    let major = version
        .split(|c: char| !c.is_ascii_digit())
        .find(|part| !part.is_empty());
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let target = root.join(std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string()));
    target.join(format!("pg{}/pg_rowsource.so", major.expect("a major version")))
}

#[test]
fn hot_functions_are_plain_frames() {
    let library = library();
    assert!(
        library.exists(),
        "{} is not built: run scripts/build.sh",
        library.display()
    );
    let output = Command::new("objdump")
        .args([
            "--disassemble",
            "--demangle",
            "--no-show-raw-insn",
            "--wide",
            "--section=.text",
        ])
        .arg(&library)
        .output()
        .expect("objdump can be run (package binutils)");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let functions = functions(&String::from_utf8_lossy(&output.stdout));
    // Without these, `is_root` is out of date.
    for wanted in [
        "wrapper::call",
        "wrapper::scan",
        "wrapper::first_call",
        "tick::ticked",
    ] {
        let name = format!("pg_rowsource::pg::hot::{wanted}");
        let present = functions.values().any(|function| function.name == name);
        assert!(present, "there is no {name} in the library");
    }
    let (met, forbidden) = follow(&functions);
    println!("{met} functions run nothing that panics, unwinds or allocates");
    assert!(forbidden.is_empty(), "not plain:\n{}", forbidden.join("\n"));
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
    let (met, forbidden) = follow(&functions(disassembly));
    assert_eq!(met, 3);
    assert_eq!(
        forbidden,
        ["pg_rowsource::pg::hot::wrapper::call -> pg_rowsource::helper -> core::panicking::panic"]
    );
}
