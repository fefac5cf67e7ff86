//! Makes texts fit into a line and a column.

/// Returns `text` with a space instead of each control character. Names and literals may contain newlines.
pub(super) fn on_one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Returns at most `limit` characters of `text`. A cut is marked with dots.
pub(super) fn shortened(text: &str, limit: usize) -> String {
    const MARK: &str = "...";
    if text.chars().nth(limit).is_none() {
        return text.to_owned();
    }
    text.chars()
        .take(limit.saturating_sub(MARK.len()))
        .chain(MARK.chars())
        .collect()
}
