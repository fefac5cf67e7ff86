//! Titles of tables: on a narrow terminal, names become shorter or go. A figure is shown with its unit, or
//! not at all.

use unicode_width::UnicodeWidthStr;

/// What stands above a table.
#[derive(Clone, Debug, Default)]
pub struct Title {
    /// As it is where it has room. JSON has this one.
    whole: String,
    /// What stands there where it has none, the longest first.
    shorter: Vec<String>,
}

impl Title {
    /// Makes one of titles, the longest first.
    pub fn new(titles: impl IntoIterator<Item = String>) -> Self {
        let mut titles = titles.into_iter();
        Self {
            whole: titles.next().unwrap_or_default(),
            shorter: titles.collect(),
        }
    }

    /// Returns the whole title.
    pub fn whole(&self) -> &str {
        &self.whole
    }

    /// Returns the longest title that has room in a width. If none has, it is the shortest one, which then
    /// ends with a tilde.
    pub fn in_width(&self, width: usize) -> String {
        let titles = || std::iter::once(&self.whole).chain(&self.shorter);
        if let Some(title) = titles().find(|title| title.width() <= width) {
            return title.clone();
        }
        let shortest = titles().next_back().map_or("", String::as_str);
        cut(shortest, width)
    }
}

impl From<&str> for Title {
    fn from(whole: &str) -> Self {
        Self::new([whole.to_owned()])
    }
}

impl From<String> for Title {
    fn from(whole: String) -> Self {
        Self::new([whole])
    }
}

/// Keeps the first words of a text, as many as have room beside a tilde: a number is not cut, and goes if the
/// unit behind it has no room. A first word without room is cut.
fn cut(text: &str, width: usize) -> String {
    let most = width.saturating_sub(1);
    let is_number = |word: &str| word.ends_with(|it: char| it.is_ascii_digit());
    let mut kept: Vec<&str> = Vec::new();
    let mut long = 0;
    for word in text.split(' ') {
        if long + word.width() > most {
            if kept.last().is_some_and(|last| is_number(last)) && kept.len() > 1 {
                kept.pop();
            }
            break;
        }
        long += word.width() + 1;
        kept.push(word);
    }
    if !kept.is_empty() {
        return kept.join(" ").trim_end().to_owned() + "~";
    }
    let mut begin = String::new();
    for letter in text.chars() {
        begin.push(letter);
        if begin.width() > most {
            begin.pop();
            break;
        }
    }
    begin + "~"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_shorter_before_figures_go() {
        let title = Title::new(
            [
                "Nodes of all statements, in 3.1 s",
                "Nodes, in 3.1 s",
                "Nodes 3.1 s",
            ]
            .map(str::to_owned),
        );
        assert_eq!(title.whole(), "Nodes of all statements, in 3.1 s");
        assert_eq!(title.in_width(33), "Nodes of all statements, in 3.1 s");
        assert_eq!(title.in_width(32), "Nodes, in 3.1 s");
        assert_eq!(title.in_width(11), "Nodes 3.1 s");
        // The unit has no room, so that the figure has none.
        assert_eq!(title.in_width(10), "Nodes~");
        assert_eq!(title.in_width(3), "No~");
        assert_eq!(Title::from("äöü").in_width(3), "äöü");
        assert_eq!(Title::from("日本語").in_width(4), "日~");
        assert_eq!(Title::default().in_width(0), "");
    }
}
