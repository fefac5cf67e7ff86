//! What is printed of a node: as a line of text, and as fields of the other formats.

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A text.
    Text(String),
    /// A number as it is printed.
    Number(String),
    /// True or false.
    Flag(bool),
    /// A list of texts.
    List(Vec<String>),
    /// A list of lists of texts. XML needs the name of an inner list.
    Lists(&'static str, Vec<Vec<String>>),
    /// An object. XML needs its name.
    Object(&'static str, Vec<Field>),
    /// A list of objects. XML needs the name of an object.
    Objects(&'static str, Vec<Vec<Field>>),
}

/// A field with its label.
pub(super) type Field = (String, Value);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Value::Number(number.to_string())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Flag(flag)
    }
}

/// Returns a number with this many decimals, as PostgreSQL prints it.
pub(super) fn decimal(number: f64, decimals: usize) -> Value {
    Value::Number(format!("{number:.decimals$}"))
}

pub(super) fn field(label: &str, value: impl Into<Value>) -> Field {
    (label.to_owned(), value.into())
}

/// Something that EXPLAIN says of a node.
#[derive(Default)]
pub(super) struct Item {
    /// The lines of the text format. Some things are not said there.
    pub lines: Vec<String>,
    /// The fields of the other formats.
    pub fields: Vec<Field>,
}

impl Item {
    /// Makes an item that is one field, and a line with the same label.
    pub fn text(label: &str, text: &str) -> Item {
        Item {
            lines: vec![format!("{label}: {text}")],
            fields: vec![field(label, text)],
        }
    }

    /// Makes an item that is a number, and a line with the same label.
    pub fn number(label: &str, number: u64) -> Item {
        Item {
            lines: vec![format!("{label}: {number}")],
            fields: vec![field(label, number)],
        }
    }

    /// Makes an item that is a list, and a line with the same label.
    pub fn list(label: &str, items: Vec<String>) -> Item {
        Item {
            lines: vec![format!("{label}: {}", items.join(", "))],
            fields: vec![field(label, Value::List(items))],
        }
    }

    /// Makes an item of fields, and of a line unless that is empty.
    pub fn packed(fields: Vec<Field>, line: String) -> Item {
        let lines = if line.is_empty() { Vec::new() } else { vec![line] };
        Item { lines, fields }
    }

    /// Leaves out the line if it says nothing.
    pub fn line_if(mut self, is_shown: bool) -> Item {
        if !is_shown {
            self.lines.clear();
        }
        self
    }
}
