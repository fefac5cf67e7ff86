//! Numbers of the sources that may only fall. `tests/ratchets.txt` has them. `make accept` lowers them
//! there. If one must rise, write it there by hand, and say why in the commit. If that file is deleted,
//! `make accept` writes it anew.
//!
//! Unsafe code is counted in the files' tokens, so what is written in a macro counts too: once, however
//! often the macro is expanded. `unsafe fn` and `unsafe extern "C-unwind" fn` with a name are unsafe
//! functions, and `unsafe { ... }` is an unsafe block. Functions of PostgreSQL that are declared
//! (`declare!`) are not counted.

use crate::sources::rust_files;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ratchets.txt");
const HEAD: &str =
    "# Numbers of the sources that may only fall, see tests/src/ratchets.rs. `make accept` lowers them.\n";
const LONG_FUNCTION: usize = 80;
const LONG_COMMENT: usize = 110;

/// The numbers, by what is counted and by folder.
type Numbers = BTreeMap<(String, String), usize>;

/// What is counted in a file.
#[derive(Default, Debug, PartialEq)]
struct Counts {
    unsafe_functions: usize,
    unsafe_blocks: usize,
    forwarding_texts: usize,
    long_functions: usize,
    long_comments: usize,
    swallowed_errors: usize,
}

impl Counts {
    fn of(text: &str) -> Counts {
        let mut counts = Counts::default();
        counts.add_tokens(text.parse().expect("a source file is Rust"));
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//"));
        counts.long_comments = comments
            .filter(|line| line.chars().count() > LONG_COMMENT)
            .count();
        counts.forwarding_texts = safety_texts(text).filter(|text| only_forwards(text)).count();
        let swallows = |line: &&str| line.contains("let _ = ") && line.contains("caught(");
        counts.swallowed_errors = text.lines().filter(swallows).count();
        counts
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let word = |at: usize| match tokens.get(at) {
            Some(TokenTree::Ident(word)) => word.to_string(),
            Some(TokenTree::Literal(_)) => "literal".to_owned(),
            // `fn $name` in a macro.
            Some(TokenTree::Punct(mark)) if mark.as_char() == '$' => "name".to_owned(),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => "{".to_owned(),
            _ => String::new(),
        };
        let is_name = |at: usize| word(at).starts_with(|c: char| c.is_alphanumeric() || c == '_');
        for (at, token) in tokens.iter().enumerate() {
            if word(at) == "unsafe" {
                let keyword = match (word(at + 1).as_str(), word(at + 2).as_str()) {
                    ("extern", "literal") => at + 3,
                    _ => at + 1,
                };
                self.unsafe_blocks += usize::from(word(at + 1) == "{");
                self.unsafe_functions += usize::from(word(keyword) == "fn" && is_name(keyword + 1));
            }
            if word(at) == "fn" && is_name(at + 1) {
                let ends = |token: &&TokenTree| match token {
                    TokenTree::Punct(mark) => mark.as_char() == ';',
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    _ => false,
                };
                let last = tokens[at..].iter().find(ends);
                let lines = last.map_or(0, |last| last.span().end().line - token.span().start().line + 1);
                self.long_functions += usize::from(lines > LONG_FUNCTION);
            }
            if let TokenTree::Group(group) = token {
                self.add_tokens(group.stream());
            }
        }
    }

    fn rows(&self) -> [(&'static str, usize); 6] {
        [
            (
                "SAFETY texts that only forward the caller's promise",
                self.forwarding_texts,
            ),
            ("comment lines over 110 columns", self.long_comments),
            ("functions over 80 lines", self.long_functions),
            ("swallowed errors: let _ = caught(..)", self.swallowed_errors),
            ("unsafe blocks", self.unsafe_blocks),
            ("unsafe functions", self.unsafe_functions),
        ]
    }
}

/// Returns the texts of the comments that begin with SAFETY.
fn safety_texts(text: &str) -> impl Iterator<Item = String> {
    text.split("// SAFETY:").skip(1).map(|rest| {
        let (first, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        let more = rest
            .lines()
            .map_while(|line| line.trim_start().strip_prefix("// "));
        [first.trim()]
            .into_iter()
            .chain(more)
            .collect::<Vec<_>>()
            .join(" ")
    })
}

/// Returns whether a text about safety says nothing but that the caller promises something: it is one clause
/// that names the caller.
fn only_forwards(text: &str) -> bool {
    let text = text.replace(", by the caller's promise", " by the caller's promise");
    let text = text.trim_end_matches('.');
    text.contains("caller")
        && ![". ", ", ", "; ", ": ", " so "]
            .iter()
            .any(|end| text.contains(end))
}

/// Returns the folder of a file, as in `imports.rs`; outside of `src`, the crate.
fn folder(path: &Path) -> String {
    let path = path.with_extension("");
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().expect("a name")).collect();
    match parts.as_slice() {
        ["src", "pg", "mod"] => "pg".to_owned(),
        ["src", "pg", part, ..] => format!("pg::{part}"),
        ["src", part, ..] => (*part).to_owned(),
        [part, ..] => (*part).to_owned(),
        [] => String::new(),
    }
}

/// Counts.
fn counted() -> Numbers {
    let mut numbers = Numbers::new();
    let mut add = |what: &str, folder: &str, number: usize| {
        if number > 0 {
            *numbers.entry((what.to_owned(), folder.to_owned())).or_default() += number;
        }
    };
    for source in ["src", "core/src", "core/tests", "tests", "bench/src", "cli/src"] {
        for (path, text) in rust_files(source) {
            // This file names what it looks for.
            if path.ends_with("tests/src/ratchets.rs") {
                continue;
            }
            for (what, number) in Counts::of(&text).rows() {
                add(what, &folder(&path), number);
            }
            if source == "src" {
                let lines = text.lines().count();
                add("lines", "src", lines);
                if path.ends_with("executor/hooks.rs") {
                    add("lines", "pg/executor/hooks.rs", lines);
                }
            }
        }
    }
    numbers
}

fn read(text: &str) -> Numbers {
    let mut numbers = Numbers::new();
    let mut what = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix("  ").and_then(|row| row.split_once(' ')) {
            Some((number, folder)) => {
                let number = number.parse().expect("a number before a folder");
                numbers.insert((what.to_owned(), folder.to_owned()), number);
            }
            None => what = line,
        }
    }
    numbers
}

fn written(numbers: &Numbers) -> String {
    let mut text = HEAD.to_owned();
    let mut before = "";
    for ((what, folder), number) in numbers {
        if what != before {
            writeln!(text, "{what}").expect("a String takes any text");
            before = what;
        }
        writeln!(text, "  {number} {folder}").expect("a String takes any text");
    }
    text
}

#[test]
fn accepted_numbers_only_fall() {
    let now = counted();
    let accepts = env::var_os("ROWSOURCE_ACCEPT").is_some();
    let known = match fs::read_to_string(TABLE) {
        Ok(text) => read(&text),
        Err(_) if accepts => now.clone(),
        Err(error) => panic!("{TABLE}: {error}"),
    };
    let keys = || {
        now.keys()
            .chain(known.keys().filter(|key| !now.contains_key(*key)))
    };
    let numbers = |key| [&now, &known].map(|numbers: &Numbers| numbers.get(key).copied().unwrap_or(0));
    let mut report = String::new();
    let mut lowest = Numbers::new();
    for key in keys() {
        let [now, known] = numbers(key);
        let (what, folder) = key;
        if now > known {
            report += &format!("{what}, {folder}: {known} before, {now} now\n");
        } else if now < known && !accepts {
            report += &format!("{what}, {folder}: {known} before, {now} now. It fell: run `make accept`\n");
        }
        if now.min(known) > 0 {
            lowest.insert(key.clone(), now.min(known));
        }
    }
    if accepts {
        fs::write(TABLE, written(&lowest)).expect("the table can be written");
    }
    assert!(report.is_empty(), "numbers of tests/ratchets.txt:\n{report}");
}

#[test]
fn unsafe_code_is_found_in_macros_too() {
    let long = "x;\n".repeat(LONG_FUNCTION);
    let text = format!(
        "macro_rules! m {{ () => {{ unsafe fn $name() {{ unsafe {{ f() }} }} }} }}
        unsafe extern \"C-unwind\" fn g(call: unsafe fn(i32)) {{
            // SAFETY: the query is started,
            // by the caller's promise.
            call! {{ unsafe {{ *p }} }}
            // SAFETY: the caller promises it. It is read once.
            let _ = server::caught(|| 1);
        }}
        unsafe impl Sync for T {{}}
        #[unsafe(no_mangle)]
        // {}
        fn long() {{ {long} }}",
        "w".repeat(LONG_COMMENT)
    );
    let expected = Counts {
        unsafe_functions: 2,
        unsafe_blocks: 2,
        forwarding_texts: 1,
        long_functions: 1,
        long_comments: 1,
        swallowed_errors: 1,
    };
    assert_eq!(Counts::of(&text), expected);
}

#[test]
fn the_table_is_read_as_it_is_written() {
    let numbers = Numbers::from([
        (("a b".to_owned(), "x".to_owned()), 1),
        (("a b".to_owned(), "y".to_owned()), 20),
        (("c".to_owned(), "x".to_owned()), 3),
    ]);
    assert_eq!(read(&written(&numbers)), numbers);
}
