//! The syntax of JSON, YAML and XML, laid out as EXPLAIN does.

use super::explained::ExplainFormat;
use super::value::{Field, Value};
use crate::export::escape::{Syntax, escaped};

/// The most levels by which a line is indented. A plan can be thousands of levels deep.
pub(super) const MAX_INDENT: usize = 200;

/// Writes a document. The text format is none: what is written in it is nothing.
pub(super) struct Writer {
    format: ExplainFormat,
    out: String,
    indent: usize,
    /// The open groups.
    groups: Vec<Group>,
}

struct Group {
    /// The name of XML's element.
    tag: String,
    is_list: bool,
    is_empty: bool,
}

impl Writer {
    /// Begins a document of several statements.
    pub fn new(format: ExplainFormat) -> Self {
        let mut writer = Writer {
            format,
            out: String::new(),
            indent: 0,
            groups: vec![Group {
                tag: String::new(),
                is_list: true,
                is_empty: true,
            }],
        };
        match format {
            ExplainFormat::Json => {
                writer.out.push('[');
                writer.indent = 1;
            }
            ExplainFormat::Xml => {
                writer.out += "<explain xmlns=\"http://www.postgresql.org/2009/explain\">";
                writer.indent = 1;
            }
            ExplainFormat::Yaml | ExplainFormat::Text => {}
        }
        writer
    }

    /// Ends the document.
    pub fn finished(mut self) -> String {
        match self.format {
            ExplainFormat::Json => self.out += "\n]",
            ExplainFormat::Xml => self.out += "\n</explain>",
            ExplainFormat::Yaml | ExplainFormat::Text => {}
        }
        self.out
    }

    /// Begins an object. It has a label unless it is an item of a list, and a name as XML's element.
    pub fn open_object(&mut self, label: Option<&str>, tag: &str) {
        self.open(label, tag, false);
    }

    /// Begins a list of objects.
    pub fn open_list(&mut self, label: &str) {
        self.open(Some(label), label, true);
    }

    fn open(&mut self, label: Option<&str>, tag: &str, is_list: bool) {
        self.begin_line(label);
        match self.format {
            ExplainFormat::Json => self.out.push(if is_list { '[' } else { '{' }),
            ExplainFormat::Xml => self.out += &format!("<{}>", tag_name(tag)),
            ExplainFormat::Yaml | ExplainFormat::Text => {}
        }
        self.groups.push(Group {
            tag: tag_name(tag),
            is_list,
            // YAML's first line of a labelled group begins on a line of its own.
            is_empty: !(self.format == ExplainFormat::Yaml && label.is_some()),
        });
        self.indent += 1;
    }

    /// Ends the object or list that began last.
    pub fn close(&mut self) {
        self.indent = self.indent.saturating_sub(1);
        let Some(group) = self.groups.pop() else {
            return;
        };
        match self.format {
            ExplainFormat::Json => {
                self.break_line();
                self.out.push(if group.is_list { ']' } else { '}' });
            }
            ExplainFormat::Xml => {
                self.break_line();
                self.out += &format!("</{}>", group.tag);
            }
            ExplainFormat::Yaml | ExplainFormat::Text => {}
        }
    }

    /// Adds fields to the object that began last.
    pub fn fields(&mut self, fields: &[Field]) {
        for (label, value) in fields {
            self.field(label, value);
        }
    }

    /// Adds a field to the object that began last.
    pub fn field(&mut self, label: &str, value: &Value) {
        match value {
            Value::Object(tag, fields) => {
                self.open_object(Some(label), tag);
                self.fields(fields);
                self.close();
            }
            Value::Objects(tag, objects) => {
                self.open_list(label);
                for fields in objects {
                    self.open_object(None, tag);
                    self.fields(fields);
                    self.close();
                }
                self.close();
            }
            Value::Lists(tag, lists) => {
                self.open_list(label);
                lists.iter().for_each(|list| self.inner_list(tag, list));
                self.close();
            }
            Value::List(items) => self.list(label, items),
            Value::Text(text) => {
                let text = self.quoted(text);
                self.scalar(label, &text);
            }
            Value::Number(number) => self.scalar(label, number),
            Value::Flag(flag) => self.scalar(label, if *flag { "true" } else { "false" }),
        }
    }

    /// Adds a field whose value is one word.
    fn scalar(&mut self, label: &str, value: &str) {
        self.begin_line(Some(label));
        match self.format {
            ExplainFormat::Xml => {
                let tag = tag_name(label);
                self.out += &format!("<{tag}>{value}</{tag}>");
            }
            _ => self.out += value,
        }
    }

    fn list(&mut self, label: &str, items: &[String]) {
        self.begin_line(Some(label));
        let items: Vec<String> = items.iter().map(|item| self.quoted(item)).collect();
        match self.format {
            ExplainFormat::Xml => self.elements(label, &items),
            ExplainFormat::Yaml => {
                self.indent += 1;
                for item in items {
                    self.break_line();
                    self.out += &format!("- {item}");
                }
                self.indent -= 1;
            }
            ExplainFormat::Json | ExplainFormat::Text => self.out += &format!("[{}]", items.join(", ")),
        }
    }

    /// Adds a list to the list that began last.
    fn inner_list(&mut self, tag: &str, items: &[String]) {
        self.begin_line(None);
        let items: Vec<String> = items.iter().map(|item| self.quoted(item)).collect();
        match self.format {
            ExplainFormat::Xml => self.elements(tag, &items),
            _ => self.out += &format!("[{}]", items.join(", ")),
        }
    }

    /// Writes the items of a list in XML.
    fn elements(&mut self, tag: &str, items: &[String]) {
        let tag = tag_name(tag);
        self.out += &format!("<{tag}>");
        self.indent += 1;
        for item in items {
            self.break_line();
            self.out += &format!("<Item>{item}</Item>");
        }
        self.indent -= 1;
        self.break_line();
        self.out += &format!("</{tag}>");
    }

    /// Begins a line of the group that began last, up to the value.
    fn begin_line(&mut self, label: Option<&str>) {
        let is_first = self
            .groups
            .last_mut()
            .is_some_and(|group| std::mem::replace(&mut group.is_empty, false));
        match self.format {
            ExplainFormat::Json => {
                if !is_first {
                    self.out.push(',');
                }
                self.break_line();
                if let Some(label) = label {
                    self.out += &format!("{}: ", json(label));
                }
            }
            ExplainFormat::Yaml => {
                if !is_first {
                    self.break_line();
                }
                match label {
                    Some(label) => self.out += &format!("{label}: "),
                    None => self.out += "- ",
                }
            }
            ExplainFormat::Xml => self.break_line(),
            ExplainFormat::Text => {}
        }
    }

    fn break_line(&mut self) {
        self.out.push('\n');
        self.out
            .extend(std::iter::repeat_n("  ", self.indent.min(MAX_INDENT)));
    }

    /// Returns a text as a value of the format.
    fn quoted(&self, text: &str) -> String {
        match self.format {
            ExplainFormat::Xml => xml(text),
            ExplainFormat::Yaml => escaped(&json(text), Syntax::Yaml, |c| !is_in_yaml(c)),
            ExplainFormat::Json | ExplainFormat::Text => json(text),
        }
    }
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns whether a character may stand in a text of YAML, and is read as itself. Control characters may
/// not, and characters that break lines are read as spaces.
fn is_in_yaml(c: char) -> bool {
    let breaks_lines = matches!(c, '\u{2028}' | '\u{2029}');
    !c.is_control() && !breaks_lines && !matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns a text in which nothing is markup. XML knows no control characters but those of spaces.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '\r' => escaped += "&#x0d;",
            '\t' | '\n' => escaped.push(character),
            _ if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Returns a label as the name of an element.
fn tag_name(label: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    label
        .chars()
        .map(|c| if is_allowed(c) { c } else { '-' })
        .collect()
}
