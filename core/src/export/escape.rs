//! Escapes of single characters in documents.

/// The syntax of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// JSON.
    Json,
    /// YAML, with all texts in double quotes.
    Yaml,
    /// XML and HTML.
    Markup,
}

/// Returns a document with escapes in place of all characters that are not ASCII. They may occur only in
/// texts, which are all that such documents have besides ASCII. So the document means the same in each
/// encoding that contains ASCII.
pub fn in_ascii(document: &str, syntax: Syntax) -> String {
    escaped(document, syntax, |c| !c.is_ascii())
}

/// Returns a text with escapes in place of the chosen characters.
pub(super) fn escaped(text: &str, syntax: Syntax, is_chosen: impl Fn(char) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        let code = u32::from(c);
        match syntax {
            _ if !is_chosen(c) => escaped.push(c),
            Syntax::Markup => escaped += &format!("&#x{code:x};"),
            // YAML knows no pairs of escapes.
            Syntax::Yaml if code > 0xffff => escaped += &format!("\\U{code:08x}"),
            Syntax::Json | Syntax::Yaml => {
                let units = &mut [0; 2];
                for unit in c.encode_utf16(units) {
                    escaped += &format!("\\u{unit:04x}");
                }
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_syntax_has_its_escapes() {
        let document = "\"aé日😀\"";
        for (syntax, expected) in [
            (Syntax::Json, r#""a\u00e9\u65e5\ud83d\ude00""#),
            (Syntax::Yaml, r#""a\u00e9\u65e5\U0001f600""#),
            (Syntax::Markup, "\"a&#xe9;&#x65e5;&#x1f600;\""),
        ] {
            assert_eq!(in_ascii(document, syntax), expected, "{syntax:?}");
        }
        let json = in_ascii(document, Syntax::Json);
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), "aé日😀");
    }
}
