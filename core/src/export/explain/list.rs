//! Lists of expressions that are kept as one text.

use crate::plan::PlanNode;

/// Splits a list of expressions at its commas, but not at those inside of parentheses, brackets and quotes.
pub(super) fn items(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut start, mut depth) = (0, 0usize);
    let mut quote: Option<(u8, bool)> = None;
    let mut escaped = false;
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        if let Some((end, escapes)) = quote {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if escapes => escaped = true,
                _ if byte == end => quote = None,
                _ => {}
            }
            continue;
        }
        match byte {
            b'\'' => quote = Some((byte, at > 0 && bytes[at - 1] == b'E')),
            b'"' => quote = Some((byte, false)),
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(text[start..].trim());
    items
}

/// Returns the first input of a node that has one.
pub(super) fn input_of(nodes: &[PlanNode], i: usize) -> Option<usize> {
    // Only nodes that change data need it. Below others, the search could become long.
    let node = nodes.get(i)?;
    if !matches!(node.operation.as_str(), "Insert" | "Merge") {
        return None;
    }
    let mut below = nodes.iter().enumerate().skip(i + 1);
    below
        .find(|(_, below)| below.parent == Some(i) && below.subplan_name.is_none())
        .map(|(input, _)| input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_between_their_items() {
        assert_eq!(items("a"), ["a"]);
        assert_eq!(items("a, b DESC"), ["a", "b DESC"]);
        assert_eq!(
            items(r#"f(a, b), "x, y", ARRAY[1, 2], 'it''s, ok', E'\', ', (c)"#),
            [
                "f(a, b)",
                r#""x, y""#,
                "ARRAY[1, 2]",
                "'it''s, ok'",
                r"E'\', '",
                "(c)"
            ]
        );
        assert_eq!(items("é, (("), ["é", "(("]);
        assert_eq!(items("a), b"), ["a)", "b"]);
    }
}
