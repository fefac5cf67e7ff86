//! README and the chapters of the book: their headings, links and blocks of code, and whether an output
//! equals what a block of code printed.

use std::fs;
use std::path::{Path, PathBuf};

/// The file that lists the chapters.
const SUMMARY: &str = "docs/SUMMARY.md";

/// A block of code.
#[derive(Debug, Default, PartialEq)]
pub struct Block {
    /// The line in which it begins.
    pub line: usize,
    /// What stands after the fence, for example `sql`.
    pub info: String,
    pub text: String,
    /// What comments `<!-- test: ... -->` right before it say.
    pub directives: Vec<String>,
    /// Whether it follows the block before it, with nothing between them.
    pub follows: bool,
}

impl Block {
    /// Returns what follows this word in a directive; `None` if no directive begins with it.
    pub fn directive(&self, word: &str) -> Option<&str> {
        let mut rests = self.directives.iter().filter_map(|d| d.strip_prefix(word));
        rests.next().map(|rest| rest.trim_start_matches(':').trim())
    }
}

/// What a statement returned.
#[derive(Debug, Default)]
pub struct Output {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
}

/// Returns the checkout's folder.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the text of a file of the checkout.
pub fn read(file: &str) -> String {
    fs::read_to_string(checkout().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns README and all chapters, as paths in the checkout.
pub fn documents() -> Vec<String> {
    let chapters = links(&read(SUMMARY))
        .into_iter()
        .map(|link| format!("docs/{link}"));
    ["README.md".to_owned()].into_iter().chain(chapters).collect()
}

/// Returns the lines outside of blocks of code.
pub fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Returns the anchors of the headings, as the repository's website and mdBook make them.
pub fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
    headings
        .map(|line| line.trim_start_matches('#').trim().to_lowercase())
        .map(|heading| heading.chars().filter(kept).collect::<String>().replace(' ', "-"))
        .collect()
}

/// Returns the targets of links and pictures.
pub fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let mut parts = line.split("](");
        parts.next();
        found.extend(
            parts
                .filter_map(|rest| rest.split_once(')'))
                .map(|(link, _)| link.to_owned()),
        );
    }
    found
}

/// Returns the blocks of code.
pub fn blocks(text: &str) -> Vec<Block> {
    let (mut found, mut directives, mut follows) = (Vec::new(), Vec::new(), false);
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if let Some(info) = line.strip_prefix("```") {
            let body: Vec<&str> = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| !line.starts_with("```"))
                .collect();
            found.push(Block {
                line: number + 1,
                info: info.trim().to_owned(),
                text: body.join("\n"),
                directives: std::mem::take(&mut directives),
                follows,
            });
            follows = true;
        } else if let Some(comment) = line.strip_prefix("<!-- test: ") {
            directives.push(comment.trim_end_matches("-->").trim().to_owned());
        } else if !line.trim().is_empty() {
            follows = false;
        }
    }
    found
}

/// Returns the statements of a text. Splits at semicolons outside of quotes, of the bodies of functions, and
/// of comments.
pub fn statements(sql: &str) -> Vec<String> {
    let without_comments: Vec<&str> = sql
        .lines()
        .map(|line| line.split("--").next().unwrap_or(""))
        .collect();
    let sql = without_comments.join("\n");
    let (mut found, mut statement) = (Vec::new(), String::new());
    let (mut quoted, mut in_body) = (false, false);
    for character in sql.chars() {
        match character {
            '\'' if !in_body => quoted = !quoted,
            '$' if !quoted && statement.ends_with('$') => in_body = !in_body,
            ';' if !quoted && !in_body => {
                found.push(std::mem::take(&mut statement).trim().to_owned());
                continue;
            }
            _ => {}
        }
        statement.push(character);
    }
    found.push(statement.trim().to_owned());
    found.retain(|statement| !statement.is_empty());
    found
}

/// Compares a block of output with what its statement printed, as far as the output is the same in each run.
/// Returns what differs.
pub fn compare(expected: &Block, actual: &Output) -> Result<(), String> {
    if expected.directive("not compared").is_some() {
        return Ok(());
    }
    let lines: Vec<&str> = expected.text.lines().collect();
    let printed: Vec<String> = actual.rows.iter().flat_map(|row| lines_of(row)).collect();
    let printed: Vec<&str> = printed.iter().map(String::as_str).collect();
    if lines.get(1).is_some_and(|line| is_rule(line)) {
        compare_table(expected, &lines, actual)
    } else if lines.iter().any(|line| is_plan_header(line)) {
        equal("operations", &plan_operations(&lines), &plan_operations(&printed))?;
        match planid(&lines) {
            Some(wanted) => equal(
                "planid",
                &[wanted],
                &planid(&printed).map_or_else(Vec::new, |found| vec![found]),
            ),
            None => Ok(()),
        }
    } else if expected.directive("operations").is_some() {
        equal("operations", &explained(&lines), &explained(&printed))
    } else {
        let printed: Vec<String> = printed.iter().map(|line| collapsed(line)).collect();
        let constant = lines
            .iter()
            .map(|line| collapsed(line))
            .filter(|line| is_constant(line));
        let missing: Vec<String> = constant.filter(|line| !printed.contains(line)).collect();
        if missing.is_empty() && !printed.is_empty() {
            return Ok(());
        }
        Err(format!("these lines are missing: {missing:#?}\nin: {printed:#?}"))
    }
}

/// Compares psql's table: the names of the columns, and the values of the columns that `same` names.
fn compare_table(expected: &Block, lines: &[&str], actual: &Output) -> Result<(), String> {
    let header = cells(lines[0]);
    equal("columns", &header, &actual.columns)?;
    for name in expected
        .directive("same")
        .unwrap_or("")
        .split(", ")
        .filter(|name| !name.is_empty())
    {
        let place = header.iter().position(|column| column == name);
        let place = place.ok_or_else(|| format!("the output has no column {name}"))?;
        let rows = lines[2..]
            .iter()
            .filter(|line| !line.starts_with('(') && !line.is_empty());
        let wanted: Vec<String> = rows.map(|line| cells(line)[place].clone()).collect();
        let found: Vec<String> = actual
            .rows
            .iter()
            .map(|row| row[place].clone().unwrap_or_default())
            .collect();
        equal(name, &wanted, &found)?;
    }
    Ok(())
}

fn equal(what: &str, expected: &[String], actual: &[String]) -> Result<(), String> {
    if expected == actual && !expected.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{what}: the document has {expected:?}, the server {actual:?}"
    ))
}

fn lines_of(row: &[Option<String>]) -> Vec<String> {
    let texts = row.iter().flatten();
    texts.flat_map(|text| text.lines()).map(str::to_owned).collect()
}

fn is_rule(line: &str) -> bool {
    line.contains("--") && line.chars().all(|c| c == '-' || c == '+')
}

fn cells(line: &str) -> Vec<String> {
    line.split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn is_plan_header(line: &str) -> bool {
    let cells = cells(line);
    cells.len() > 3 && cells[1] == "Id" && cells[2] == "Operation"
}

/// Returns the operation and the name of each line of a plan's table.
fn plan_operations(lines: &[&str]) -> Vec<String> {
    let Some(header) = lines.iter().position(|line| is_plan_header(line)) else {
        return Vec::new();
    };
    let has_names = cells(lines[header])[3] == "Name";
    let body = lines[header + 1..].iter().skip(1);
    let rows = body
        .take_while(|line| line.starts_with('|'))
        .map(|line| cells(line));
    rows.map(|row| {
        if has_names {
            format!("{} {}", row[2], row[3])
        } else {
            row[2].clone()
        }
    })
    .collect()
}

/// Returns the planid above a plan's table, which is the same on each server.
fn planid(lines: &[&str]) -> Option<String> {
    let header = lines
        .iter()
        .find(|line| line.trim_start().starts_with("queryid"))?;
    let (_, rest) = header.split_once("planid ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

/// Returns the operations of a plan that EXPLAIN printed.
fn explained(lines: &[&str]) -> Vec<String> {
    let nodes = lines.iter().filter_map(|line| line.split_once("(cost="));
    nodes
        .map(|(node, _)| node.trim().trim_start_matches("->").trim().to_owned())
        .collect()
}

/// Returns a line with each run of spaces or dashes shortened to one.
fn collapsed(line: &str) -> String {
    let mut text = String::new();
    for character in line.trim().chars() {
        if !([' ', '-'].contains(&character) && text.ends_with(character)) {
            text.push(character);
        }
    }
    text
}

/// Returns whether a collapsed line is the same in each run: it has letters, and neither digits nor marks of
/// what is left out.
fn is_constant(line: &str) -> bool {
    line.chars().any(char::is_alphabetic)
        && !line.chars().any(|c| c.is_ascii_digit())
        && !line.contains("...")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(columns: &[&str], rows: &[&[&str]]) -> Output {
        Output {
            columns: columns.iter().map(|name| name.to_string()).collect(),
            rows: rows
                .iter()
                .map(|row| row.iter().map(|cell| Some(cell.to_string())).collect())
                .collect(),
        }
    }

    fn block(text: &str, directives: &[&str]) -> Block {
        let directives = directives.iter().map(|directive| directive.to_string()).collect();
        Block {
            text: text.to_owned(),
            directives,
            ..Block::default()
        }
    }

    #[test]
    fn blocks_are_found_with_their_directives() {
        let text = "a\n<!-- test: fails -->\n```sql\nSELECT 1;\n```\n\n```text\nx\n```\nb\n```sh\nls\n```\n";
        let found = blocks(text);
        let seen: Vec<_> = found
            .iter()
            .map(|b| (b.line, b.info.as_str(), b.follows))
            .collect();
        assert_eq!(seen, [(3, "sql", false), (7, "text", true), (11, "sh", false)]);
        assert!(found[0].directive("fails").is_some() && found[1].directives.is_empty());
    }

    #[test]
    fn statements_end_outside_of_quotes_and_bodies() {
        let found = statements("SELECT ';'; -- a;\nDO $$ BEGIN a; b; END $$;\nSELECT 2");
        assert_eq!(found, ["SELECT ';'", "DO $$ BEGIN a; b; END $$", "SELECT 2"]);
    }

    #[test]
    fn other_columns_or_values_differ() {
        let expected = block(" a | b\n---+---\n 1 | x", &["same b"]);
        assert_eq!(compare(&expected, &output(&["a", "b"], &[&["2", "x"]])), Ok(()));
        assert!(compare(&expected, &output(&["a", "c"], &[&["1", "x"]])).is_err());
        assert!(compare(&expected, &output(&["a", "b"], &[&["1", "y"]])).is_err());
        assert!(compare(&expected, &output(&["a", "b"], &[])).is_err());
    }

    #[test]
    fn other_operations_differ() {
        let plan = |operation: &str| format!("text\n|Id|Operation|Name|\n-----\n| 0|{operation}|t |\n-----");
        let expected = block(&plan("Seq Scan"), &[]);
        assert_eq!(
            compare(&expected, &output(&["x"], &[&[&plan("Seq Scan")]])),
            Ok(())
        );
        assert!(compare(&expected, &output(&["x"], &[&[&plan("Index Scan")]])).is_err());
        let of = |planid: &str| {
            format!(
                "queryid 4711  planid {planid}  executions 1\n{}",
                plan("Seq Scan")
            )
        };
        let expected = block(&of("815"), &[]);
        assert_eq!(compare(&expected, &output(&["x"], &[&[&of("815")]])), Ok(()));
        assert!(compare(&expected, &output(&["x"], &[&[&of("816")]])).is_err());
    }

    #[test]
    fn missing_lines_differ() {
        let expected = block("Top events\n  1 of 2\nvalue ---- count", &[]);
        assert_eq!(
            compare(
                &expected,
                &output(&["x"], &[&["Top events"], &["value ------ count"]])
            ),
            Ok(())
        );
        assert!(compare(&expected, &output(&["x"], &[&["Top events"]])).is_err());
    }
}
