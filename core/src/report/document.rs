//! A report as its parts. They become lines of text, or an HTML page.

use super::table::{self, Align, Column};
use super::text::{narrowed, on_one_line, wrapped};
use crate::page::page;
use maud::{Markup, html};
use unicode_width::UnicodeWidthStr;

/// The width of a report in columns.
pub(super) const WIDTH: usize = 120;
/// The most characters of a bar.
const BAR_WIDTH: usize = 50;
/// A column of texts is no narrower than that.
const LEAST_TEXT: usize = 20;
/// A finding has at most so many lines. It ends in the text of a statement, which may be long.
const FINDING_LINES: usize = 4;

/// A class of what a bar consists of: its name, its character, and its colour in a page.
pub(super) type Class = (&'static str, char, &'static str);

/// What happened in the parts of an interval.
pub(super) struct Chart {
    /// What a bar shows.
    pub heading: String,
    pub classes: &'static [Class],
    /// For each part of the interval, when it begins, and its number in each class.
    pub bars: Vec<(String, Vec<f64>)>,
}

/// A part of a report.
pub(super) enum Part {
    /// Begins a section.
    Heading(String),
    /// A line of its own.
    Line(String),
    /// A sentence, which is broken where it does not fit.
    Text(String),
    /// A command to type, in one line or several.
    Command(Vec<String>),
    /// A sentence, and the command that shows more of it, if there is one.
    Finding(String, Option<String>),
    Table(Vec<Column>),
    Chart(Chart),
}

impl Part {
    /// Returns a part of one command in one line.
    pub fn command(command: impl Into<String>) -> Part {
        Part::Command(vec![command.into()])
    }
}

/// A report.
pub struct Document {
    /// What it is about.
    title: String,
    /// Facts about it, with their names.
    facts: Vec<(&'static str, String)>,
    parts: Vec<Part>,
}

const STYLE: &str = "
.command { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3em 0 .8em; user-select: all }
.finding { border-left: .3em solid var(--lock); padding-left: .8em; margin: .8em 0 } .finding p { margin: .2em 0; overflow-wrap: anywhere }
.wide td { overflow-wrap: anywhere; min-width: 3em } .text { min-width: 16em }
.chart { width: 100% } .chart td, .chart th { border: 0; font-weight: normal; padding: 1px .8em 1px 0; white-space: nowrap }
.chart .bar { width: 100%; padding: 1px 0 } .bar span { display: inline-block; height: 1.1em; vertical-align: middle }
.legend { margin: .4em 0 .4em -1em }
";

impl Document {
    pub(super) fn new(title: String, facts: Vec<(&'static str, String)>, parts: Vec<Part>) -> Document {
        Document { title, facts, parts }
    }

    /// Returns the report as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.title.clone()];
        let width = self.facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        lines.extend(
            self.facts
                .iter()
                .map(|(name, value)| format!("{name:width$}  {value}")),
        );
        lines.extend(text(&self.parts, WIDTH));
        lines
    }

    /// Returns the report as an HTML page.
    pub fn html(&self) -> String {
        let body = html! {
            dl { @for (name, value) in &self.facts { dt { (name) } dd { (value) } } }
            @for part in &self.parts { (markup(part)) }
        };
        page(&self.title, STYLE, &body)
    }
}

/// Returns parts of a report as lines of text. Tables are at most `width` wide, and sentences as wide as a
/// report.
pub(super) fn text(parts: &[Part], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let sentence = |lines: &mut Vec<String>, text: &str| {
        let parts = wrapped(text, WIDTH - 2, 0);
        lines.extend(parts.iter().map(|part| format!("  {part}")));
    };
    for part in parts {
        match part {
            Part::Heading(heading) => lines.extend([String::new(), heading.clone()]),
            Part::Line(line) => lines.push(line.clone()),
            Part::Text(text) => sentence(&mut lines, text),
            Part::Command(command) => {
                let broken = command.iter().flat_map(|line| broken(line, WIDTH - 2));
                lines.extend(broken.map(|line| format!("  {line}")));
            }
            Part::Finding(text, command) => {
                sentence(&mut lines, &narrowed(&on_one_line(text), FINDING_LINES * WIDTH));
                let broken = command.iter().flat_map(|line| broken(line, WIDTH - 4));
                lines.extend(broken.map(|line| format!("    {line}")));
            }
            Part::Table(columns) => {
                let mut columns = columns.clone();
                fit(&mut columns, width);
                lines.extend(table::lines(&columns, 1));
            }
            Part::Chart(chart) => lines.extend(chart.lines()),
        }
    }
    lines
}

/// Breaks a command into lines of at most `width` columns, if possible: behind a comma that is in no string.
fn broken(command: &str, width: usize) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut quotes = 0;
    for part in command.split_inclusive(", ") {
        // A part of a string belongs to what is before it.
        match arguments.last_mut().filter(|_| quotes % 2 == 1) {
            Some(argument) => argument.push_str(part),
            None => arguments.push(part.to_owned()),
        }
        quotes += part.matches('\'').count();
    }
    let mut lines: Vec<String> = Vec::new();
    for argument in arguments {
        let margin = if lines.is_empty() { "" } else { "  " };
        let fits = |line: &&mut String| line.width() + argument.trim_end().width() <= width;
        match lines.last_mut().filter(fits) {
            Some(line) => line.push_str(&argument),
            None => lines.push(format!("{margin}{argument}")),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Makes a table at most so wide, by its columns of texts, the last one first.
fn fit(columns: &mut [Column], width: usize) {
    let all = columns.len();
    for at in (0..all).rev() {
        let over = table::width(columns, 1).saturating_sub(width);
        let column = &mut columns[at];
        if over > 0 && column.align() == Align::Left {
            column.narrow(column.width().saturating_sub(over).max(LEAST_TEXT), narrowed);
        }
    }
}

/// Returns a part of a report as HTML.
fn markup(part: &Part) -> Markup {
    match part {
        Part::Heading(heading) => html! { h2 { (heading) } },
        Part::Line(text) | Part::Text(text) => html! { p { (text) } },
        Part::Command(command) => html! { pre.command { (command.join("\n")) } },
        Part::Finding(text, command) => html! {
            div.finding {
                p { (on_one_line(text)) }
                @if let Some(command) = command { pre.command { (command) } }
            }
        },
        Part::Table(columns) => html! {
            // Who has no mouse scrolls it with the keyboard.
            div.wide tabindex="0" role="group" aria-label="Table" { (table::markup(columns)) }
        },
        Part::Chart(chart) => chart.markup(),
    }
}

impl Chart {
    /// Returns the sum of each bar, and the highest one.
    fn sums(&self) -> (Vec<f64>, f64) {
        let sums: Vec<f64> = self.bars.iter().map(|(_, of)| of.iter().sum()).collect();
        let most = sums.iter().copied().fold(0.0, f64::max);
        (sums, most)
    }

    fn lines(&self) -> Vec<String> {
        let legend: Vec<String> = self
            .classes
            .iter()
            .map(|(name, sign, _)| format!("{sign} {name}"))
            .collect();
        let mut lines = vec![String::new(), format!("{}: {}", self.heading, legend.join("  "))];
        let (sums, most) = self.sums();
        let width = sums
            .iter()
            .map(|sum| format!("{sum:.2}").len())
            .max()
            .unwrap_or(0);
        for ((at, of), sum) in self.bars.iter().zip(sums) {
            let mut bar = String::new();
            let mut upper = 0.0;
            for ((_, sign, _), part) in self.classes.iter().zip(of) {
                upper += part;
                let end = (upper / most * BAR_WIDTH as f64).round() as usize;
                while bar.len() < end {
                    bar.push(*sign);
                }
            }
            lines.push(format!("{at}  {sum:>width$.2}  {bar}").trim_end().to_owned());
        }
        lines
    }

    fn markup(&self) -> Markup {
        let (sums, most) = self.sums();
        let style = |colour: &str, part: f64| {
            format!("background: var(--{colour}); width: {:.2}%", 100.0 * part / most)
        };
        // A reader of the screen says the figures of a bar, and not its colours.
        let said = |of: &[f64]| {
            let parts = self.classes.iter().zip(of).filter(|(_, part)| **part > 0.0);
            let parts: Vec<String> = parts
                .map(|((name, ..), part)| format!("{part:.2} {name}"))
                .collect();
            parts.join(", ")
        };
        html! {
            h2 { (self.heading) }
            p.legend {
                @for (name, _, colour) in self.classes {
                    span.key style={ "background: var(--" (colour) ")" } {} (name)
                }
            }
            table.chart {
                @for ((at, of), sum) in self.bars.iter().zip(sums) {
                    tr title=(said(of)) {
                        th scope="row" { (at) }
                        td.number { (format!("{sum:.2}")) }
                        td.bar {
                            @for ((_, _, colour), part) in self.classes.iter().zip(of) {
                                @if *part > 0.0 { span style=(style(colour, *part)) {} }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_broken_behind_a_comma_that_is_in_no_string() {
        let command =
            "SELECT * FROM r.rowsource_compare(1, 'a, b, c and d', '2026-11-30 10:00..11:00', 'text')";
        let lines = broken(command, 45);
        assert_eq!(
            lines,
            [
                "SELECT * FROM r.rowsource_compare(1,",
                "  'a, b, c and d', '2026-11-30 10:00..11:00',",
                "  'text')"
            ]
        );
        assert_eq!(broken(command, 120), [command]);
        assert_eq!(broken("", 120), [] as [&str; 0]);
    }

    #[test]
    fn a_table_of_long_texts_is_as_wide_as_the_report() {
        let column = |heading| Column::new(heading, Align::Left, 0, vec!["x".repeat(70)]);
        let parts = [Part::Table(vec![
            column("Session"),
            column("Waited for"),
            column("Statement"),
        ])];
        let lines = text(&parts, WIDTH);
        assert!(lines.iter().all(|line| line.width() <= WIDTH), "{lines:#?}");
    }

    const CLASSES: [Class; 2] = [("CPU", '#', "cpu"), ("IO", 'I', "io")];

    fn document() -> Document {
        let cells = ["<b>SELECT</b>".to_owned(), "SELECT ".repeat(40)];
        Document::new(
            "What happened & when".to_owned(),
            vec![("from", "<14:00>".to_owned()), ("to", "15:00".to_owned())],
            vec![
                Part::Heading("What is wrong".to_owned()),
                Part::Finding("an <index> is\ngone".to_owned(), Some("SELECT '<x>'".to_owned())),
                Part::Finding("nothing more".to_owned(), None),
                Part::Table(vec![
                    Column::new("Calls", Align::Right, 0, vec!["1".to_owned(), "2".to_owned()]),
                    Column::new("Statement", Align::Left, 0, cells.to_vec()),
                ]),
                Part::Command(vec!["SELECT 1,".to_owned(), "  2".to_owned()]),
                Part::Text("word ".repeat(40)),
                Part::Chart(Chart {
                    heading: "Active sessions".to_owned(),
                    classes: &CLASSES,
                    bars: vec![
                        ("14:00".to_owned(), vec![1.0, 1.0]),
                        ("14:01".to_owned(), vec![0.0, 0.5]),
                        ("14:02".to_owned(), vec![0.0, 0.0]),
                    ],
                }),
            ],
        )
    }

    #[test]
    fn the_text_is_not_wider_than_a_report() {
        let lines = document().lines();
        let text = lines.join("\n");
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        for line in [
            "from  <14:00>",
            "to    15:00",
            "  an <index> is gone",
            "    SELECT '<x>'",
            "  SELECT 1,",
            "    2",
            "Active sessions: # CPU  I IO",
            "14:00  2.00  #########################IIIIIIIIIIIIIIIIIIIIIIIII",
            "14:01  0.50  IIIIIIIIIIIII",
            "14:02  0.00",
        ] {
            assert!(lines.iter().any(|it| it == line), "{line}\n{text}");
        }
    }

    #[test]
    fn the_page_escapes_texts_and_has_no_script_and_no_network() {
        let page = document().html();
        assert!(!page.contains("<b>") && !page.contains("<x>") && !page.contains("<index>"));
        assert!(page.contains("<title>What happened &amp; when</title>"), "{page}");
        assert!(
            !page.contains("<script") && !page.contains("http") && !page.contains("url("),
            "{page}"
        );
        // All of a long statement is there.
        assert!(page.contains(&"SELECT ".repeat(40)), "{page}");
        for part in [
            "<td class=\"number\">2</td>",
            "<pre class=\"command\">SELECT 1,\n  2</pre>",
            "<tr title=\"1.00 CPU, 1.00 IO\">",
            "<span style=\"background: var(--io); width: 25.00%\"></span>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }
}
