//! Indexes that are gone. Their names are those that SQL needs, as `public."IX_Orders"`; those of the nodes
//! are the catalog's.

use super::side::{Node, Side};

/// An index that a plan uses, by the names that the catalog has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedIndex<'a> {
    /// Its schema, which is also its table's; `None` of a temporary table or a system catalog.
    pub schema: Option<&'a str>,
    /// Its table, if that is known.
    pub table: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
}

impl Side {
    /// Returns the index that a node uses, if it uses one. Of a bitmap, who reads it has the table.
    pub fn index_of(&self, i: usize) -> Option<UsedIndex<'_>> {
        let node = self.nodes.get(i)?;
        let name = node.object.as_deref().filter(|_| is_index(node))?;
        let is_bitmap =
            |node: &Node| node.operation.starts_with("Bitmap") && !node.operation.ends_with("Heap Scan");
        let mut reader = node;
        while let Some(above) = reader.parent.filter(|_| is_bitmap(reader)) {
            reader = self.nodes.get(above)?;
        }
        let table = reader.table.as_deref().or(reader.object.as_deref());
        Some(UsedIndex {
            schema: node.schema.as_deref().or(reader.schema.as_deref()),
            table: table.filter(|_| !is_bitmap(reader)),
            name,
        })
    }

    /// Returns the name of the index that a node uses, if that is gone.
    pub fn gone_index(&self, i: usize, gone: &Gone) -> Option<&str> {
        if gone.names.is_empty() {
            return None;
        }
        let used = self.index_of(i)?;
        gone.has(used).then_some(used.name)
    }
}

/// The indexes that are gone.
pub struct Gone {
    /// The parts of their names: of each the schema, if it is known, and the name itself.
    names: Vec<Vec<String>>,
}

impl Gone {
    /// Returns those with these names, which SQL would need.
    pub fn new(names: &[String]) -> Gone {
        let names = names.iter().map(|name| parts(name)).collect();
        Gone { names }
    }

    fn has(&self, used: UsedIndex<'_>) -> bool {
        self.names.iter().any(|parts| match &parts[..] {
            [.., schema, name] => name == used.name && used.schema.is_none_or(|own| own == schema),
            [name] => name == used.name,
            [] => false,
        })
    }
}

fn is_index(node: &Node) -> bool {
    node.table.is_some() || node.operation == "Bitmap Index Scan"
}

/// Returns the parts of a name, without their quotes: of `"My schema"."a ""b"""` these are `My schema` and
/// `a "b"`.
fn parts(qualified: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_quoted = false;
    let mut letters = qualified.chars().peekable();
    while let Some(letter) = letters.next() {
        let part = parts.last_mut();
        match letter {
            '"' if is_quoted && letters.next_if_eq(&'"').is_some() => part.map(|part| part.push('"')),
            '"' => {
                is_quoted = !is_quoted;
                None
            }
            '.' if !is_quoted => {
                parts.push(String::new());
                None
            }
            letter => part.map(|part| part.push(letter)),
        };
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(parent: Option<usize>, operation: &str, [object, table, schema]: [&str; 3]) -> Node {
        let name = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        Node {
            parent,
            operation: operation.to_owned(),
            object: name(object),
            table: name(table),
            schema: name(schema),
            ..Node::default()
        }
    }

    #[test]
    fn names_have_parts_with_and_without_quotes() {
        for (name, parts_of_it) in [
            ("public.a_idx", ["public", "a_idx"]),
            (r#"public."IX_Orders""#, ["public", "IX_Orders"]),
            (r#""S"."a.b""#, ["S", "a.b"]),
            (r#""My ""S"""."a ""b""""#, [r#"My "S""#, r#"a "b""#]),
        ] {
            assert_eq!(parts(name), parts_of_it, "{name}");
        }
    }

    #[test]
    fn an_index_is_the_one_of_its_whole_name_and_schema() {
        let index = |name: &'static str, schema| {
            let nodes = vec![node(None, "Index Scan", [name, "orders", schema])];
            Side {
                nodes,
                ..Side::default()
            }
        };
        let is_gone = |side: Side, gone: &str| side.gone_index(0, &Gone::new(&[gone.to_owned()])).is_some();
        assert!(is_gone(index("IX_Orders", ""), r#"public."IX_Orders""#));
        assert!(is_gone(index("IX_Orders", "public"), r#"public."IX_Orders""#));
        assert!(!is_gone(index("IX_Orders", "other"), r#"public."IX_Orders""#));
        assert!(!is_gone(index("ix_orders", "public"), r#"public."IX_Orders""#));
        assert!(!is_gone(index("Orders", ""), r#"public."IX_Orders""#));
        assert!(!is_gone(index("b", ""), r#"public."a.b""#));
        assert!(is_gone(index("a.b", "public"), r#"public."a.b""#));
        assert!(is_gone(index("order", "S"), r#""S"."order""#));
    }

    #[test]
    fn who_reads_a_bitmap_has_the_table_of_its_index() {
        let side = Side {
            nodes: vec![
                node(None, "Bitmap Heap Scan", ["orders", "", "S"]),
                node(Some(0), "BitmapAnd", ["", "", ""]),
                node(Some(1), "Bitmap Index Scan", ["a_idx", "", ""]),
                node(Some(0), "Seq Scan", ["other", "", "S"]),
            ],
            ..Side::default()
        };
        let used = UsedIndex {
            schema: Some("S"),
            table: Some("orders"),
            name: "a_idx",
        };
        assert_eq!(side.index_of(2), Some(used));
        assert_eq!([0, 1, 3].map(|i| side.index_of(i)), [None; 3]);
        let gone = |name: &str| side.gone_index(2, &Gone::new(&[name.to_owned()]));
        assert_eq!(gone("s.a_idx"), None);
        assert_eq!(gone(r#""S".a_idx"#), Some("a_idx"));
    }
}
