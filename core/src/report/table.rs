//! Formats a table in Oracle's layout: a line above and below the heading, and one below the rows. No table
//! crate has this layout.

use maud::{Markup, html};
use unicode_width::UnicodeWidthStr;

/// How a column's heading is aligned with its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// One column, as wide as its widest cell.
#[derive(Clone)]
pub(super) struct Column {
    pub heading: &'static str,
    align: Align,
    width: usize,
    cells: Vec<String>,
}

impl Column {
    pub(super) fn new(heading: &'static str, align: Align, min_width: usize, cells: Vec<String>) -> Column {
        let widest = cells.iter().map(|cell| cell.width()).max().unwrap_or(0);
        Column {
            heading,
            align,
            width: widest.max(heading.width()).max(min_width),
            cells,
        }
    }

    fn padded(&self, text: &str) -> String {
        // `{:width$}` would count characters, but some take two columns on the screen, or none.
        let missing = self.width.saturating_sub(text.width());
        let before = match self.align {
            Align::Left => 0,
            Align::Right => missing,
        };
        format!("{}{text}{}", " ".repeat(before), " ".repeat(missing - before))
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn align(&self) -> Align {
        self.align
    }

    /// Makes the column at most `width` wide: `cut` shortens the cells that are wider.
    pub(super) fn narrow(&mut self, width: usize, cut: fn(&str, usize) -> String) {
        self.width = self.width.min(width.max(self.heading.width()));
        let width = self.width;
        for cell in self.cells.iter_mut().filter(|cell| cell.width() > width) {
            *cell = cut(cell, width);
        }
    }
}

/// Returns the width of a table with `padding` spaces at both sides of each cell.
pub(super) fn width(columns: &[Column], padding: usize) -> usize {
    let widths = columns.iter().map(|column| column.width + 2 * padding + 1);
    1 + widths.sum::<usize>()
}

/// Returns the table's lines, including its rules; none if there are no columns. `padding` is the number of
/// spaces at both sides of each cell.
pub(super) fn lines(columns: &[Column], padding: usize) -> Vec<String> {
    if columns.is_empty() {
        return Vec::new();
    }
    let pad = " ".repeat(padding);
    let separator = format!("{pad}|{pad}");
    let line = |text: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns.iter().map(text).collect();
        format!("|{pad}{}{pad}|", cells.join(&separator))
    };
    let heading = line(&|column| column.padded(column.heading));
    let rule = "-".repeat(heading.width());
    let height = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);

    let mut lines = vec![rule.clone(), heading, rule.clone()];
    lines.extend((0..height).map(|row| {
        line(&|column| column.padded(column.cells.get(row).map(String::as_str).unwrap_or_default()))
    }));
    lines.push(rule);
    lines
}

/// Returns the table as HTML.
pub(super) fn markup(columns: &[Column]) -> Markup {
    let height = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    let class = |column: &Column| match column.align {
        Align::Left => "text",
        Align::Right => "number",
    };
    html! {
        table {
            thead { tr { @for column in columns { th scope="col" class=(class(column)) { (column.heading) } } } }
            tbody {
                @for row in 0..height {
                    tr {
                        @for column in columns {
                            td class=(class(column)) { (column.cells.get(row).map_or("", String::as_str)) }
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

    fn column(heading: &'static str, align: Align, cells: &[&str]) -> Column {
        Column::new(
            heading,
            align,
            0,
            cells.iter().map(|cell| (*cell).to_owned()).collect(),
        )
    }

    #[test]
    fn cells_are_padded_to_the_widest() {
        let columns = [
            column("Name", Align::Left, &["test", "a", ""]),
            column("N", Align::Right, &["1", "10M", ""]),
        ];
        assert_eq!(
            lines(&columns, 1),
            [
                "--------------",
                "| Name |   N |",
                "--------------",
                "| test |   1 |",
                "| a    | 10M |",
                "|      |     |",
                "--------------",
            ]
        );
        assert_eq!(lines(&columns, 0)[4], "|a   |10M|");
        assert_eq!((width(&columns, 1), width(&columns, 0)), (14, 10));
    }

    #[test]
    fn columns_are_narrowed_but_not_below_their_heading() {
        let mut name = column("Name", Align::Left, &["customer", "ab", "orders"]);
        name.narrow(8, |_, _| unreachable!());
        name.narrow(6, |text, width| text[..width].to_owned());
        assert_eq!(name.width(), 6);
        name.narrow(1, |text, width| text[..width].to_owned());
        assert_eq!(lines(&[name], 0)[3..6], ["|cust|", "|ab  |", "|orde|"]);
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let columns = [
            column("Name", Align::Left, &["日本語表", "größe"]),
            column("N", Align::Right, &["1", "2"]),
        ];
        assert_eq!(
            lines(&columns, 1)[3..5],
            ["| 日本語表 | 1 |".to_owned(), "| größe    | 2 |".to_owned()]
        );
        assert_eq!(lines(&columns, 1)[0].len(), 16);
    }

    #[test]
    fn tables_may_have_no_columns_or_columns_of_different_lengths() {
        assert!(lines(&[], 1).is_empty());
        let uneven = [
            column("A", Align::Left, &["1", "2"]),
            column("B", Align::Left, &["3"]),
        ];
        assert_eq!(lines(&uneven, 1)[4], "| 2 |   |");
    }
}
