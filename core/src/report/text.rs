//! Makes texts fit into a line and a column.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const MARK: &str = "...";

/// Returns `text` with a space instead of each control character. Names and literals may contain newlines.
pub(super) fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Returns at most `limit` characters of `text`. A cut is marked with dots.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    if text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    text.chars()
        .take(limit.saturating_sub(MARK.len()))
        .chain(MARK.chars())
        .collect()
}

/// Returns as much of `text` as fits into `width` columns of the screen. A cut is marked with dots.
pub(super) fn narrowed(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(MARK.len());
    format!("{}{MARK}", &text[..beginning(text, kept)])
}

/// Returns how many bytes of `text` fit into `width` columns of the screen.
fn beginning(text: &str, width: usize) -> usize {
    let mut left = width;
    for (at, character) in text.char_indices() {
        match left.checked_sub(character.width().unwrap_or(0)) {
            Some(rest) => left = rest,
            None => return at,
        }
    }
    text.len()
}

/// Breaks a line into lines of at most `width` columns, if possible at a space. The first line has `first`
/// columns less.
pub(super) fn wrapped(text: &str, width: usize, first: usize) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut rest = text;
    let mut room = width.saturating_sub(first);
    loop {
        let fits = beginning(rest, room.max(1));
        if fits == rest.len() {
            lines.push(rest);
            return lines;
        }
        // The space after the last word may be outside.
        let is_break = rest[fits..].starts_with(' ');
        let end = if is_break {
            fits
        } else {
            rest[..fits].rfind(' ').unwrap_or(0)
        };
        let end = match rest[..end].trim_end().len() {
            0 => fits.max(rest.chars().next().map_or(1, char::len_utf8)),
            end => end,
        };
        lines.push(&rest[..end]);
        rest = rest[end..].trim_start();
        room = width;
        if rest.is_empty() {
            return lines;
        }
    }
}

/// Joins items with two spaces to lines of at most `width` columns. An item is not broken.
pub(super) fn filled(items: &[String], width: usize) -> Vec<String> {
    const SEPARATOR: &str = "  ";
    let mut lines: Vec<String> = Vec::new();
    for item in items {
        match lines.last_mut() {
            Some(line) if line.width() + SEPARATOR.len() + item.width() <= width => {
                line.push_str(SEPARATOR);
                line.push_str(item);
            }
            _ => lines.push(item.clone()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrapped("select a from b", 8, 0), ["select a", "from b"]);
        assert_eq!(wrapped("select a from b", 9, 0), ["select a", "from b"]);
        assert_eq!(wrapped("select a from b", 8, 4), ["sele", "ct a", "from b"]);
        assert_eq!(wrapped("select a", 80, 0), ["select a"]);
        assert_eq!(wrapped("", 80, 0), [""]);
        assert_eq!(wrapped("    deep indent", 8, 0), ["    deep", "indent"]);
    }

    #[test]
    fn words_that_are_too_long_are_broken() {
        assert_eq!(wrapped("abcdefgh ij", 3, 0), ["abc", "def", "gh", "ij"]);
        assert_eq!(wrapped("日本語", 4, 0), ["日本", "語"]);
        assert_eq!(wrapped("日本", 1, 0), ["日", "本"]);
        assert_eq!(wrapped("ab", 0, 7), ["a", "b"]);
    }

    #[test]
    fn texts_are_narrowed_by_their_width_on_the_screen() {
        assert_eq!(narrowed("lineitem", 8), "lineitem");
        assert_eq!(narrowed("lineitems", 8), "linei...");
        assert_eq!(narrowed("日本語日本", 8), "日本...");
    }

    #[test]
    fn items_are_joined_to_lines() {
        let items = ["aa", "bb", "cccccccc", "d"].map(str::to_owned);
        assert_eq!(filled(&items, 8), ["aa  bb", "cccccccc", "d"]);
        assert_eq!(filled(&[], 8), Vec::<String>::new());
    }
}
