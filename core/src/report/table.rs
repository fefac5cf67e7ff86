//! Formats a table in Oracle's layout: a line above and below the heading, and one below the rows. No table crate has this
//! layout.

use unicode_width::UnicodeWidthStr;

/// How a column's heading is aligned with its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
    /// Cells of equal width, with a short heading in the middle.
    Centre,
}

/// One column, as wide as its widest cell.
pub(super) struct Column {
    heading: &'static str,
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
            Align::Centre => missing / 2,
        };
        format!("{}{text}{}", " ".repeat(before), " ".repeat(missing - before))
    }
}

/// Returns the table's lines, including its rules; none if there are no columns.
pub(super) fn lines(columns: &[Column]) -> Vec<String> {
    if columns.is_empty() {
        return Vec::new();
    }
    let line = |text: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns.iter().map(text).collect();
        format!("| {} |", cells.join(" | "))
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
            column("Time", Align::Centre, &["1234567", "7654321", ""]),
        ];
        assert_eq!(
            lines(&columns),
            [
                "------------------------",
                "| Name |   N |  Time   |",
                "------------------------",
                "| test |   1 | 1234567 |",
                "| a    | 10M | 7654321 |",
                "|      |     |         |",
                "------------------------",
            ]
        );
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let columns = [
            column("Name", Align::Left, &["日本語表", "größe"]),
            column("N", Align::Right, &["1", "2"]),
        ];
        assert_eq!(
            lines(&columns)[3..5],
            ["| 日本語表 | 1 |".to_owned(), "| größe    | 2 |".to_owned()]
        );
        assert_eq!(lines(&columns)[0].len(), 16);
    }

    #[test]
    fn tables_may_have_no_columns_or_columns_of_different_lengths() {
        assert!(lines(&[]).is_empty());
        let uneven = [
            column("A", Align::Left, &["1", "2"]),
            column("B", Align::Left, &["3"]),
        ];
        assert_eq!(lines(&uneven)[4], "| 2 |   |");
    }
}
