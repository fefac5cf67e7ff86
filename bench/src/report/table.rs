//! Tables as Markdown.

use crate::model::table::Table;
use comfy_table::CellAlignment;
use comfy_table::presets::ASCII_MARKDOWN;

/// Formats a table as Markdown. Columns of numbers are aligned to the right.
pub fn markdown(table: &Table) -> String {
    let numbers: Vec<bool> = (0..table.columns.len())
        .map(|column| column > 0 && table.rows.iter().all(|row| is_number(&row[column])))
        .collect();
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_preset(ASCII_MARKDOWN)
        .set_header(&table.columns)
        .add_rows(&table.rows);
    for (cells, &numbers) in drawn.column_iter_mut().zip(&numbers) {
        if numbers {
            cells.set_cell_alignment(CellAlignment::Right);
        }
    }
    // The preset pads the cells but writes no alignment into the line below the header.
    let lines: Vec<String> = drawn
        .to_string()
        .lines()
        .enumerate()
        .map(|(at, line)| match at {
            1 => aligned(line, &numbers),
            _ => line.to_string(),
        })
        .collect();
    lines.join("\n")
}

/// Adds a colon at the right of each column of numbers to the line below the header.
fn aligned(line: &str, numbers: &[bool]) -> String {
    let cells = line.trim_matches('|').split('|').zip(numbers);
    let cells = cells.map(|(dashes, &numbers)| match numbers {
        true => format!("{}:", &dashes[1..]),
        false => dashes.to_string(),
    });
    format!("|{}|", cells.collect::<Vec<_>>().join("|"))
}

fn is_number(cell: &str) -> bool {
    cell.is_empty() || cell.starts_with(|first: char| first.is_ascii_digit() || "+-<".contains(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_markdown() {
        let mut table = Table::new("", "", &["what", "ratio", "words"]);
        table.row(["first", "1.5", "a"]);
        table.row(["second, longer", "10.25 (10-11)", ""]);
        assert_eq!(
            markdown(&table),
            "\
| what           |         ratio | words |
|----------------|--------------:|-------|
| first          |           1.5 | a     |
| second, longer | 10.25 (10-11) |       |"
        );
    }
}
