//! What kind of command a text is. Of a command without a plan, samples have only that: its text may hold a
//! password.

/// The longest name of a command has this many words: REFRESH MATERIALIZED VIEW.
const WORDS: usize = 3;
/// Words that are not part of the name of the command that they stand in.
const LEFT_OUT: [&str; 8] = [
    "UNIQUE",
    "TEMP",
    "TEMPORARY",
    "UNLOGGED",
    "GLOBAL",
    "LOCAL",
    "OR",
    "REPLACE",
];

/// Returns the names that the command with this text may have, the most likely ones first; none if it is not
/// one command.
pub fn command_names(text: &[u8]) -> Vec<String> {
    let end = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
    if !text[end..].iter().skip(1).all(u8::is_ascii_whitespace) {
        return Vec::new();
    }
    let is_word = |word: &&[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_alphabetic);
    let words: Vec<String> = text[..end]
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .take_while(is_word)
        .take(WORDS + LEFT_OUT.len())
        .map(|word| String::from_utf8_lossy(word).to_ascii_uppercase())
        .filter(|word| !LEFT_OUT.contains(&word.as_str()))
        .collect();
    let first = words.first().map(|word| format!("{word} TABLE"));
    let names = (1..=words.len().min(WORDS))
        .rev()
        .map(|count| words[..count].join(" "));
    // The word TABLE may be missing in LOCK and TRUNCATE.
    names.chain(first).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_name_that_it_begins_with() {
        let names = |text: &str| command_names(text.as_bytes());
        assert_eq!(
            names("alter  table\norders add x int"),
            ["ALTER TABLE ORDERS", "ALTER TABLE", "ALTER", "ALTER TABLE"]
        );
        assert_eq!(names("CREATE UNIQUE INDEX ON t (a)")[1], "CREATE INDEX");
        assert_eq!(names("CREATE OR REPLACE VIEW v AS")[1], "CREATE VIEW");
        assert_eq!(names(" commit ; "), ["COMMIT", "COMMIT TABLE"]);
        assert_eq!(names("lock t").last().map(String::as_str), Some("LOCK TABLE"));
        assert_eq!(names("COPY(SELECT 1) TO STDOUT"), [] as [&str; 0]);
        // Which of several commands runs is not known.
        for none in ["BEGIN; ALTER TABLE t ADD x int", "", "-- ALTER TABLE", "; ;"] {
            assert!(names(none).is_empty(), "{none}: {:?}", names(none));
        }
    }
}
