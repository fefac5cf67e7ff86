//! Reads the columns of a condition that a B-tree index could find.

/// A column of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Column {
    pub name: String,
    /// It is compared for equality, not for its order.
    pub is_equal: bool,
    /// It is compared as a text. An index on it serves only if it is a varchar.
    pub is_cast: bool,
}

/// Returns the columns that a condition compares with values: those of equality first. Returns `None` if any
/// part of it is something else: then nobody knows which part removed the rows.
pub(super) fn columns(condition: &str) -> Option<Vec<Column>> {
    let mut columns: Vec<Column> = Vec::new();
    for part in parts(stripped(condition)) {
        let column = column(stripped(part))?;
        match columns.iter_mut().find(|known| known.name == column.name) {
            Some(known) => known.is_equal |= column.is_equal,
            None => columns.push(column),
        }
    }
    columns.sort_by_key(|column| !column.is_equal);
    (!columns.is_empty()).then_some(columns)
}

/// Returns the text without brackets around all of it.
fn stripped(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
    match inner {
        Some(inner) if is_balanced(inner) => stripped(inner),
        _ => text,
    }
}

/// Calls `visit` for each byte that is in no string and no quoted name, with the depth of brackets there.
fn outside_strings(text: &str, mut visit: impl FnMut(usize, u8, i32)) {
    let (mut quote, mut depth) = (None, 0);
    for (at, byte) in text.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'\'' | b'"') => quote = Some(byte),
            (None, _) => {
                depth += i32::from(byte == b'(') - i32::from(byte == b')');
                visit(at, byte, depth);
            }
        }
    }
}

fn is_balanced(text: &str) -> bool {
    let (mut lowest, mut last) = (0, 0);
    outside_strings(text, |_, _, depth| {
        lowest = depth.min(lowest);
        last = depth;
    });
    lowest == 0 && last == 0
}

/// Splits a condition at its ANDs.
fn parts(text: &str) -> Vec<&str> {
    let mut ends = Vec::new();
    outside_strings(text, |at, _, depth| {
        if depth == 0 && text[at..].starts_with(" AND ") {
            ends.push(at);
        }
    });
    let mut parts = Vec::new();
    let mut begin = 0;
    for end in ends {
        parts.push(&text[begin..end]);
        begin = end + " AND ".len();
    }
    parts.push(&text[begin..]);
    parts
}

/// The operators that a B-tree index can use, and whether they are equality. Longer ones come first.
const OPERATORS: [(&str, bool); 5] = [
    (" <= ", false),
    (" >= ", false),
    (" = ", true),
    (" < ", false),
    (" > ", false),
];

/// Returns the column of a comparison with a value.
fn column(part: &str) -> Option<Column> {
    if let Some(name) = part.strip_suffix(" IS NULL") {
        return named(name, true);
    }
    // One of several alternatives says nothing about the columns.
    let mut is_or = false;
    outside_strings(part, |at, _, depth| {
        is_or |= depth == 0 && part[at..].starts_with(" OR ")
    });
    if is_or {
        return None;
    }
    let found = OPERATORS
        .iter()
        .find_map(|(operator, is_equal)| Some((part.split_once(operator)?, *is_equal)));
    let ((left, right), is_equal) = found?;
    if is_value(right) {
        named(left, is_equal)
    } else if is_value(left) {
        named(right, is_equal)
    } else {
        None
    }
}

/// Returns a column by its name in a condition: with its table before it, or cast to text.
fn named(text: &str, is_equal: bool) -> Option<Column> {
    let text = text.trim();
    let (text, is_cast) = match text.strip_suffix("::text") {
        Some(cast) => (stripped(cast), true),
        None => (text, false),
    };
    let mut dot = None;
    outside_strings(text, |at, byte, _| {
        if byte == b'.' {
            dot = Some(at);
        }
    });
    let name = &text[dot.map_or(0, |dot| dot + 1)..];
    let is_plain = |name: &str| {
        let mut characters = name.chars();
        characters.next().is_some_and(|c| c.is_alphabetic() || c == '_')
            && characters.all(|c| c.is_alphanumeric() || c == '_')
    };
    let identifier = |text: &str| {
        let unquoted = text.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
        match unquoted {
            Some(name) => Some(name.replace("\"\"", "\"")),
            None => is_plain(text).then(|| text.to_owned()),
        }
    };
    // Before a field of a composite stands its column in brackets.
    if let Some(dot) = dot {
        identifier(&text[..dot])?;
    }
    Some(Column {
        name: identifier(name)?,
        is_equal,
        is_cast,
    })
}

/// Words that may stand in a value.
const VALUE_WORDS: [&str; 8] = [
    "any",
    "array",
    "null",
    "true",
    "false",
    "current_date",
    "current_timestamp",
    "now",
];

/// Returns whether an expression has no column in it: a constant, a parameter, or a list of them.
fn is_value(text: &str) -> bool {
    // A name in quotes is a column.
    if text.contains("SubPlan") || text.contains('"') {
        return false;
    }
    let mut plain = String::new();
    let mut last = 0;
    outside_strings(text, |at, byte, _| {
        // Strings are left out.
        if at > last + 1 {
            plain.push(' ');
        }
        plain.push(char::from(byte));
        last = at;
    });
    // A type follows its cast.
    let mut words = plain.split("::");
    let first = words.next().unwrap_or_default().to_owned();
    let rest: String = words
        .map(|cast| {
            let end = cast.find([')', ',', '+', '-', '*', '/']).unwrap_or(cast.len());
            &cast[end..]
        })
        .collect();
    let has_text = text
        .bytes()
        .any(|byte| byte.is_ascii_digit() || matches!(byte, b'\'' | b'$' | b'?'));
    let is_word = |word: &str| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let all = format!("{first} {rest}");
    let mut words = all.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$'));
    let is_known = words.all(|word| !is_word(word) || VALUE_WORDS.contains(&word.to_lowercase().as_str()));
    is_known && (has_text || VALUE_WORDS.iter().any(|word| text.to_lowercase().contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(condition: &str) -> Option<String> {
        let columns = columns(condition)?;
        let shown = columns.iter().map(|column| {
            let sign = if column.is_equal { "=" } else { "<" };
            format!(
                "{}{sign}{}",
                column.name,
                if column.is_cast { "text" } else { "" }
            )
        });
        Some(shown.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn columns_that_are_compared_with_values() {
        for (condition, expected) in [
            ("(customer = 42)", "customer="),
            ("(customer = $1)", "customer="),
            ("((status)::text = 'open'::text)", "status=text"),
            ("((a > 5) AND (b = '(x) AND (y = z'::text))", "b= a<"),
            (
                "(at >= '2026-01-01 00:00:00'::timestamp without time zone)",
                "at<",
            ),
            ("((d >= '2026-01-01'::date) AND (d < '2026-02-01'::date))", "d<"),
            ("(id = ANY ('{1,2,3}'::integer[]))", "id="),
            ("(o.\"Id\" = 7)", "Id="),
            ("(parent IS NULL)", "parent="),
            ("(at > (now() - '01:00:00'::interval))", "at<"),
            ("(5 = a)", "a="),
            ("(at < CURRENT_DATE)", "at<"),
            ("(\"Price\" < 2)", "Price<"),
        ] {
            assert_eq!(names(condition).as_deref(), Some(expected), "{condition}");
        }
    }

    #[test]
    fn what_no_index_on_a_column_finds() {
        for condition in [
            "(name ~~ '%x%'::text)",
            "(lower(name) = 'x'::text)",
            "(a <> 5)",
            "((a = 1) OR (b = 2))",
            "(a = b)",
            "(a = (b + 1))",
            "((a % 10) = 3)",
            "(NOT flag)",
            "flag",
            "(parent IS NOT NULL)",
            "((at)::date = '2026-01-01'::date)",
            "((a = 1) AND (name ~~* '%x%'::text))",
            "(a = (SubPlan 1))",
            "(\"Id\" = \"CompanyId\")",
            "(\"Price\" < \"Price2\")",
            "(hashed SubPlan 1)",
            "(tags @> '{x}'::text[])",
            "(random() < '0.1'::double precision)",
            "((addr).zip = 5)",
            "((c.addr).zip = 5)",
            "(((addr).city)::text = 'x'::text)",
            "(tags[1] = 5)",
        ] {
            assert_eq!(names(condition), None, "{condition}");
        }
    }
}
