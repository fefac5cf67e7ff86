//! The SQL script and the tables of the book have what the library declares. `make accept` writes them.

use postgres::Client;
use rowsource_tests::Server;
use rowsource_tests::documents::{checkout, read};
use rowsource_tests::session::{texts, value};
use rowsource_tests::surface::{Object, declared};
use std::collections::BTreeMap;
use std::fs;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The line that ends what is written in a chapter.
const END: &str = "<!-- end -->";

/// Compares a file with what it should be, or writes it.
fn assert_or_write(file: &str, wanted: &str) {
    let is = read(file);
    if std::env::var_os("ROWSOURCE_ACCEPT").is_some() {
        fs::write(checkout().join(file), wanted).expect("the file can be written");
        return;
    }
    let differs = is.lines().zip(wanted.lines()).find(|(is, wanted)| is != wanted);
    assert!(
        is == wanted,
        "run make accept: the first difference in {file} is {differs:#?}"
    );
}

#[test]
fn the_script_has_what_the_library_declares() {
    let server = Server::preloaded("surface", &[]);
    let objects = declared(&mut server.connect());
    let statements: Vec<&str> = objects.iter().map(|object| &*object.statements).collect();
    let file = format!("pg_rowsource--{VERSION}.sql");
    let script = format!(
        "/* {file} */

-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\\echo Use \"CREATE EXTENSION pg_rowsource\" to load this file. \\quit

-- `make accept` writes this file: it has what the library declares in src/functions.

{}
-- This call registers the database for snapshots, when the transaction commits.
SELECT pg_catalog.count(*) FROM _rowsource_excluded();
",
        statements.join("\n")
    );
    assert_or_write(&file, &script);
}

/// What a chapter says about something.
#[derive(Default)]
struct Entry {
    name: String,
    /// What stands at the mark `declared`, before text that is written by hand.
    text: String,
    /// What stands at the mark `columns` behind that, or without such a mark, right behind the text.
    columns: String,
    /// What stands at the mark of the others, if the chapter has no mark for it.
    other: String,
}

/// Entries, the mark of those that have none, and what stands first there.
type Group = (&'static str, &'static str, Vec<Entry>);

/// Writes entries into a chapter, at their marks.
fn assert_or_write_chapter(file: &str, groups: Vec<Group>) {
    let chapter = read(file);
    let mark = |kind: &str, name: &str| format!("<!-- {kind}: {name} -->");
    let mut made = BTreeMap::new();
    for (others, head, entries) in groups {
        let mut rest = head.to_owned();
        for entry in entries {
            let (place, columns) = (mark("declared", &entry.name), mark("columns", &entry.name));
            if !chapter.contains(&place) {
                rest += &entry.other;
            }
            let text = match chapter.contains(&columns) {
                true => entry.text,
                false => entry.text + &entry.columns,
            };
            made.insert(place, text);
            made.insert(columns, entry.columns.trim_start().to_owned());
        }
        let place = mark("declared", others);
        assert!(chapter.contains(&place), "{file} lacks {place}");
        made.insert(place, rest);
    }
    let (mut wanted, mut is_old) = (String::new(), false);
    for line in chapter.lines() {
        is_old &= line != END;
        if !is_old {
            wanted += &format!("{line}\n");
        }
        if line.starts_with("<!-- declared: ") || line.starts_with("<!-- columns: ") {
            wanted += made
                .get(line)
                .unwrap_or_else(|| panic!("{file}: nothing is declared for {line}"));
            is_old = true;
        }
    }
    assert_or_write(file, &wanted);
}

/// Returns the name of a type as the catalog has it.
fn type_name(client: &mut Client, declared: &str) -> String {
    value(client, &format!("SELECT '{declared}'::regtype::text"))
}

/// Returns the table of an object's columns.
fn table(client: &mut Client, object: &Object) -> String {
    let mut table = String::from("\n| column | type | meaning |\n|---|---|---|\n");
    for [name, declared, comment] in &object.columns {
        let of = type_name(client, declared);
        table += &format!("| `{name}` | {of} | {comment} |\n");
    }
    table
}

/// Returns what an object is, and for whom.
fn meaning(object: &Object) -> String {
    format!("{}.", object.comment)
}

/// Returns what the chapter of views says.
fn view_entries(client: &mut Client, objects: &[Object]) -> Vec<Entry> {
    let views = objects.iter().filter(|object| !object.is_function());
    let entries = views.map(|view| {
        let name = view.name().to_owned();
        let text = format!("### {name} ({})\n\n{}\n", view.kind.to_lowercase(), meaning(view));
        let columns = table(client, view);
        let other = format!("{text}{columns}\n");
        Entry {
            name,
            text,
            columns,
            other,
        }
    });
    entries.collect()
}

/// Returns what the reference says of functions. Those with the same name are together.
fn function_entries(client: &mut Client, objects: &[Object]) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for function in objects.iter().filter(|object| object.is_function()) {
        let name = function.name().to_owned();
        let (mut names, mut arguments) = (Vec::new(), Vec::new());
        for argument in &function.arguments {
            let [Some(name), Some(of), default] = &argument[..] else {
                panic!("not an argument: {argument:?}");
            };
            let default = default.iter().map(|default| format!(" = {default}"));
            arguments.push(format!(
                "{name} {}{}",
                type_name(client, of),
                default.collect::<String>()
            ));
            names.push(&**name);
        }
        let names = names.join(", ");
        let returns = function.returns.to_lowercase();
        let mut text = format!("### {name}({names}) ({returns})\n\n");
        if !arguments.is_empty() {
            text += &format!("`{}`\n\n", arguments.join(", "));
        }
        text += &format!("{}\n", meaning(function));
        // A view of the function's rows has its columns.
        let is_shown = |view: &Object| {
            let has = |[name, ..]: &[String; 3]| view.columns.iter().any(|[column, ..]| column == name);
            !view.is_function() && view.name() == name && function.columns.iter().all(has)
        };
        if !function.columns.is_empty() && !objects.iter().any(is_shown) {
            text += &table(client, function);
        }
        let other = format!("| `{name}({names})` | {} |\n", meaning(function));
        match entries.iter_mut().find(|entry| entry.name == name) {
            Some(entry) => {
                entry.text += &format!("\n{text}");
                entry.other += &other;
            }
            None => entries.push(Entry {
                name,
                text,
                other,
                ..Entry::default()
            }),
        }
    }
    entries
}

/// Returns the value of a setting with its largest unit.
fn with_unit(value: &str, unit: Option<&str>) -> String {
    let units: &[(i64, &str)] = match unit {
        Some("kB") => &[(1 << 20, "GB"), (1 << 10, "MB"), (1, "kB")],
        Some("MB") => &[(1 << 10, "GB"), (1, "MB")],
        Some("min") => &[(24 * 60, "days")],
        _ => &[],
    };
    let number: i64 = value.parse().expect("a number");
    let fits = units.iter().find(|(size, _)| number > 0 && number % size == 0);
    fits.map_or(value.to_owned(), |(size, unit)| {
        format!("{} {unit}", number / size)
    })
}

/// Returns what the reference says of settings.
fn setting_entries(client: &mut Client) -> Vec<Entry> {
    let rows = texts(
        client,
        "SELECT name, replace(vartype, 'bool', 'boolean'), context, boot_val, short_desc, extra_desc,
                min_val, max_val, unit, array_to_string(enumvals, '`, `')
           FROM pg_settings WHERE name LIKE 'pg\\_rowsource.%' ORDER BY name",
    );
    let entries = rows.iter().map(|row| {
        let [
            Some(name),
            Some(kind),
            Some(context),
            Some(default),
            Some(summary),
            Some(details),
            min,
            max,
            unit,
            words,
        ] = row.as_slice()
        else {
            panic!("{row:?}");
        };
        let who = match context.as_str() {
            "user" => "Any user may set it.",
            "superuser" => "Superusers may set it.",
            "sighup" => "Set in the configuration file.",
            _ => "Set at server start.",
        };
        let unit = unit.as_deref();
        let default = match (min, max) {
            (Some(min), Some(max)) if *max == i32::MAX.to_string() => {
                format!("{}, at least {}", with_unit(default, unit), with_unit(min, unit))
            }
            (Some(min), Some(max)) => format!(
                "{}, from {} to {}",
                with_unit(default, unit),
                with_unit(min, unit),
                with_unit(max, unit)
            ),
            _ => format!("`{default}`"),
        };
        let unit = match unit {
            Some("min") => ", in minutes without a unit".to_owned(),
            Some(unit) => format!(", in {unit} without a unit"),
            None => String::new(),
        };
        let words = words.iter().map(|words| format!(" Values: `{words}`."));
        let words: String = words.collect();
        let text =
            format!("### {name} ({kind})\n\nDefault {default}{unit}.{words} {who}\n\n{summary} {details}\n");
        Entry {
            name: name.clone(),
            other: format!("{text}\n"),
            text,
            ..Entry::default()
        }
    });
    entries.collect()
}

#[test]
fn the_book_has_what_the_library_declares() {
    let server = Server::preloaded("surface_book", &[]);
    let mut client = server.connect();
    let objects = declared(&mut client);
    let views = view_entries(&mut client, &objects);
    assert_or_write_chapter("docs/views.md", vec![("other views", "", views)]);
    let settings = setting_entries(&mut client);
    let functions = function_entries(&mut client, &objects);
    let head = "| function | meaning |\n|---|---|\n";
    assert_or_write_chapter(
        "docs/reference.md",
        vec![
            ("other settings", "", settings),
            ("other functions", head, functions),
        ],
    );
}
