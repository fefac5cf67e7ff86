//! How figures, times and texts of the server are written.

use unicode_width::UnicodeWidthStr;

/// Returns whether a character moves the cursor of a terminal, or is not seen and changes how others are: the
/// controls, the formats of Unicode (Cf), which turn the order of what follows, and its separators of lines.
fn is_unseen(letter: char) -> bool {
    letter.is_control()
        || matches!(u32::from(letter),
            0xAD | 0x600..=0x605 | 0x61C | 0x6DD | 0x70F | 0x890..=0x891 | 0x8E2 | 0x180E | 0x200B..=0x200F
            | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB | 0x110BD | 0x110CD
            | 0x13430..=0x1343F | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0001 | 0xE0020..=0xE007F)
}

/// Replaces line breaks and control characters, which would move the cursor of a terminal.
pub fn one_line(text: &str) -> String {
    without_controls(text)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Replaces each of them by a space.
pub fn without_controls(text: &str) -> String {
    text.chars()
        .map(|letter| if is_unseen(letter) { ' ' } else { letter })
        .collect()
}

/// The same for a text that is copied, which keeps its lines and tabs: where it is pasted, other characters
/// could act like keys, or end what a terminal takes for pasted.
pub fn for_clipboard(text: &str) -> String {
    text.replace("\r\n", "\n")
        .split_inclusive(['\n', '\t'])
        .map(|part| match part.strip_suffix(['\n', '\t']) {
            Some(begin) => without_controls(begin) + &part[begin.len()..],
            None => without_controls(part),
        })
        .collect()
}

/// Breaks a text between words into at most so many lines of a width. One that is longer ends with a tilde.
pub fn wrap(text: &str, width: usize, most: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in without_controls(text).split_whitespace() {
        let line = lines.last_mut().map_or("", |line| line.as_str());
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            if lines.len() == most {
                if let Some(last) = lines.last_mut() {
                    last.push('~');
                }
                return lines;
            }
            lines.push(String::new());
        }
        if let Some(last) = lines.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// Writes a figure, a large one in thousands.
pub fn count(value: f64) -> String {
    match value.abs() {
        size if size >= 9.95e9 => format!("{:.0}G", value / 1e9),
        size if size >= 9.95e6 => format!("{:.0}M", value / 1e6),
        size if size >= 99_950.0 => format!("{:.0}k", value / 1e3),
        size if size >= 10.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.1}"),
    }
}

/// Writes a time of day of seconds since 1970 (UTC).
pub fn clock(at: f64) -> String {
    let of_day = at as u64 % 86_400;
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}")
}

/// Writes milliseconds with a unit.
pub fn time(ms: f64) -> String {
    match ms.abs() {
        size if size >= 3_600_000.0 => format!(
            "{:.0}h{:02.0}m",
            (ms / 3_600_000.0).floor(),
            (ms / 60_000.0).floor() % 60.0
        ),
        size if size >= 60_000.0 => format!(
            "{:.0}m{:02.0}s",
            (ms / 60_000.0).floor(),
            (ms / 1000.0).floor() % 60.0
        ),
        size if size >= 1000.0 => format!("{:.2} s", ms / 1000.0),
        size if size >= 1.0 => format!("{ms:.1} ms"),
        // As EXPLAIN writes it: a third unit would have to be read twice in a column.
        size if size > 0.0 => format!("{ms:.3} ms"),
        _ => "0".to_owned(),
    }
}

/// Writes a size.
pub fn bytes(value: f64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 9_999.5 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.0} {}", units[unit])
}

/// Draws how much is done, in percent.
pub fn bar(percent: f64) -> String {
    let full = (percent.clamp(0.0, 100.0) / 10.0).round() as usize;
    format!("{}{} {percent:>3.0}%", "#".repeat(full), ".".repeat(10 - full))
}

/// Writes what a node does, indented by its depth.
pub fn node_name(depth: i64, operation: &str, object: Option<&str>) -> String {
    let indent = " ".repeat(depth.clamp(0, 40) as usize);
    match object {
        Some(object) => format!("{indent}{operation} | {object}"),
        None => format!("{indent}{operation}"),
    }
}
