//! Makes a table fit into a line. Columns first lose their padding. Then names and operations are cut. A
//! compact table also loses columns. A table that does not fit with all names cut keeps them.

use super::columns::{NAME, OPERATION};
use super::table::{self, Column};
use super::text::narrowed;

/// The widths below which names and operations are not cut.
struct Least {
    name: usize,
    operation: usize,
}

/// Tried first, unless the table is compact.
const ROOMY: Least = Least {
    name: 24,
    operation: 32,
};
const TIGHT: Least = Least {
    name: 10,
    operation: 18,
};

/// The columns that a compact table may lose, those first that tell least.
const DISPENSABLE: [&str; 16] = [
    "WAL-FPI",
    "Writes",
    "Temp ms",
    "Used-Tmp",
    "E-Bytes",
    "Bytes",
    "Used-Mem",
    "WAL-Bytes",
    "WAL-Recs",
    "Cost",
    "Temp-W",
    "Temp-R",
    "Reads",
    "W-Time ms",
    "E-Rows",
    "Starts",
];

/// The characters of an operation that stay visible below a deep indentation.
const VISIBLE: usize = 14;

/// A table that fits into a line, if that is possible.
pub(super) struct Fitted {
    pub columns: Vec<Column>,
    pub padding: usize,
    /// The headings of the columns that were left out.
    pub left_out: Vec<&'static str>,
}

/// Makes a table at most `limit` wide. If it is not compact, that is not always possible: it keeps all its
/// columns.
pub(super) fn fitted(columns: Vec<Column>, limit: usize, is_compact: bool) -> Fitted {
    let mut fitted = Fitted {
        columns,
        padding: 1,
        left_out: Vec::new(),
    };
    if fitted.excess(limit) == 0 {
        return fitted;
    }
    fitted.padding = 0;
    if is_compact {
        fitted.leave_out(limit, &TIGHT);
        fitted.narrow(limit, &TIGHT);
    } else {
        let mut candidates = [ROOMY, TIGHT].into_iter();
        let least = candidates.find(|least| fitted.excess(limit) <= fitted.spare(least));
        if let Some(least) = least {
            fitted.narrow(limit, &least);
        }
    }
    fitted
}

impl Fitted {
    /// Returns the width of the column of names; 0 if there is none.
    pub(super) fn name_width(&self) -> usize {
        let mut columns = self.columns.iter();
        columns
            .find(|column| column.heading == NAME)
            .map_or(0, Column::width)
    }

    /// Returns how many columns of the screen are too many.
    fn excess(&self, limit: usize) -> usize {
        table::width(&self.columns, self.padding).saturating_sub(limit)
    }

    /// Returns by how much names and operations can be cut.
    fn spare(&self, least: &Least) -> usize {
        let columns = self.columns.iter();
        columns
            .map(|column| match column.heading {
                NAME => column.width().saturating_sub(least.name),
                OPERATION => column.width().saturating_sub(least.operation),
                _ => 0,
            })
            .sum()
    }

    /// Leaves out columns until the others fit, with names and operations cut as far as allowed.
    fn leave_out(&mut self, limit: usize, least: &Least) {
        for heading in DISPENSABLE {
            if self.excess(limit) <= self.spare(least) {
                return;
            }
            if let Some(at) = self.columns.iter().position(|column| column.heading == heading) {
                self.columns.remove(at);
                self.left_out.push(heading);
            }
        }
    }

    /// Makes names and then operations narrower, as far as needed and allowed.
    fn narrow(&mut self, limit: usize, least: &Least) {
        for (heading, least) in [(NAME, least.name), (OPERATION, least.operation)] {
            let excess = self.excess(limit);
            let mut columns = self.columns.iter_mut();
            let Some(column) = columns.find(|column| column.heading == heading) else {
                continue;
            };
            let width = column.width().saturating_sub(excess).max(least);
            column.narrow(width, if heading == NAME { name } else { operation });
        }
    }
}

/// Cuts the name of an object. An index loses its table first.
fn name(text: &str, width: usize) -> String {
    let own = text.split_once(" on ").map_or(text, |(index, _)| index);
    narrowed(own, width)
}

/// Cuts an operation. First it loses indentation.
fn operation(text: &str, width: usize) -> String {
    let name = text.trim_start();
    let indent = (text.len() - name.len()).min(width.saturating_sub(VISIBLE));
    narrowed(&format!("{}{name}", " ".repeat(indent)), width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::table::Align;

    fn column(heading: &'static str, width: usize) -> Column {
        let align = match heading {
            NAME | OPERATION => Align::Left,
            _ => Align::Right,
        };
        Column::new(heading, align, 0, vec!["x".repeat(width), "y".to_owned()])
    }

    fn wide() -> Vec<Column> {
        vec![
            column("Id", 2),
            column(OPERATION, 40),
            column(NAME, 50),
            column("Starts", 6),
            column("E-Rows", 6),
            column("A-Rows", 6),
            column("A-Time ms", 9),
            column("Buffers", 7),
            column("Used-Mem", 8),
        ]
    }

    fn headings(columns: &[Column]) -> Vec<&str> {
        columns.iter().map(|column| column.heading).collect()
    }

    #[test]
    fn a_table_that_fits_is_not_changed() {
        let fitted = fitted(vec![column(NAME, 40), column("Starts", 6)], 53, false);
        assert_eq!((fitted.padding, table::width(&fitted.columns, 1)), (1, 53));
        assert_eq!(fitted.name_width(), 40);
    }

    #[test]
    fn a_table_loses_its_padding_before_names_are_cut() {
        let fitted = fitted(vec![column(NAME, 40), column("Starts", 6)], 52, false);
        assert_eq!((fitted.padding, table::width(&fitted.columns, 0)), (0, 49));
        assert_eq!(fitted.name_width(), 40);
    }

    #[test]
    fn a_wide_table_keeps_its_columns() {
        let fitted = fitted(wide(), 120, false);
        assert_eq!(table::width(&fitted.columns, fitted.padding), 120);
        assert_eq!(headings(&fitted.columns), headings(&wide()));
        assert_eq!(fitted.name_width(), 26);
        assert!(fitted.left_out.is_empty());
    }

    #[test]
    fn a_compact_table_loses_columns() {
        let fitted = fitted(wide(), 80, true);
        assert_eq!(table::width(&fitted.columns, fitted.padding), 80);
        assert_eq!(fitted.left_out, ["Used-Mem"]);
        assert_eq!(fitted.columns[1].width() + fitted.columns[2].width(), 35);
    }

    #[test]
    fn names_are_not_cut_in_vain() {
        let fitted = fitted(wide(), 60, false);
        assert_eq!(table::width(&fitted.columns, 0), table::width(&wide(), 0));
    }

    #[test]
    fn names_lose_their_table_first() {
        assert_eq!(name("orders_pkey on shop.orders", 20), "orders_pkey");
        assert_eq!(name("orders_pkey on shop.orders", 10), "orders_...");
        assert_eq!(name("partsupp", 7), "part...");
    }

    #[test]
    fn operations_lose_their_indentation_first() {
        assert_eq!(operation("      Index Scan", 20), "      Index Scan");
        assert_eq!(operation("      Index Scan", 15), " Index Scan");
        assert_eq!(
            operation("        Parallel Index Only Scan", 20),
            "      Parallel In..."
        );
    }
}
