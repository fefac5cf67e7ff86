//! Reads the properties of a node from EXPLAIN's JSON, and limits how much of their text is kept.

use serde::Deserialize;
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};
use serde_json::Deserializer;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The most characters that are kept of a name, a condition or a list of keys.
const MAX_CHARS: usize = 1_000;
/// The most bytes of conditions and keys that are kept of a whole plan.
const MAX_PLAN_BYTES: usize = 16 * 1024;
/// The end of a text that was cut.
pub const CUT: &str = "...";

/// A node's properties. The values are slices of the JSON text.
pub(super) struct Properties<'a> {
    all: Vec<(Cow<'a, str>, &'a str)>,
}

/// The name of a property.
#[derive(Deserialize)]
pub(super) struct Name<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl<'a> Properties<'a> {
    /// Reads the properties up to the one with this name. Returns whether it was found; its value comes next
    /// then.
    #[inline(never)]
    pub fn up_to<A: MapAccess<'a>>(name: &str, map: &mut A) -> Result<(Self, bool), A::Error> {
        let mut all = Vec::new();
        while let Some(Name(found)) = map.next_key()? {
            if found == name {
                return Ok((Properties { all }, true));
            }
            all.push((found, map.next_value::<&RawValue>()?.get()));
        }
        Ok((Properties { all }, false))
    }

    /// Reads all properties of an object.
    pub fn of(object: &'a str) -> Option<Self> {
        Deserializer::from_str(object).deserialize_map(All).ok()
    }

    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|(label, _)| &**label)
    }

    /// Returns a property's value as JSON.
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        self.all
            .iter()
            .find(|(label, _)| label == name)
            .map(|(_, raw)| *raw)
    }

    /// Returns a keyword of EXPLAIN. Keywords contain no escapes.
    pub fn keyword(&self, name: &str) -> Option<&'a str> {
        self.raw(name)?.strip_prefix('"')?.strip_suffix('"')
    }

    pub fn name(&self, name: &str, texts: &mut TextLimiter) -> Option<String> {
        texts.name(self.raw(name)?)
    }

    pub fn number(&self, name: &str) -> f64 {
        self.raw(name)
            .and_then(|raw| raw.parse().ok())
            .unwrap_or_default()
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.raw(name) == Some("true")
    }
}

/// Cuts the texts of a plan to the limits, and counts how many were cut.
pub(super) struct TextLimiter {
    left: usize,
    pub cut: usize,
    /// Whether a condition names a parameter.
    pub generic: bool,
}

impl TextLimiter {
    pub fn new() -> Self {
        TextLimiter {
            left: MAX_PLAN_BYTES,
            cut: 0,
            generic: false,
        }
    }

    /// Returns whether the limit of the whole plan is reached.
    pub fn is_full(&self) -> bool {
        self.left == 0
    }

    /// Returns a name. The limit of the whole plan does not apply to names.
    pub fn name(&mut self, raw: &str) -> Option<String> {
        let (text, cut) = text(raw, MAX_CHARS)?;
        Some(self.marked(text.into_owned(), cut))
    }

    /// Returns a condition. Joins a list of conditions as EXPLAIN's text format does.
    pub fn condition(&mut self, raw: &str) -> Option<String> {
        self.generic |= names_parameter(raw);
        self.joined(raw)
    }

    /// Returns a text. Joins a list of texts as EXPLAIN's text format does.
    pub fn joined(&mut self, raw: &str) -> Option<String> {
        let most = self.left.min(MAX_CHARS);
        let (joined, cut) = match raw.as_bytes().first()? {
            b'"' => {
                let (text, cut) = text(raw, most)?;
                (text.into_owned(), cut)
            }
            b'[' => list(raw, most)?,
            _ => return None,
        };
        self.left = self.left.saturating_sub(joined.len());
        Some(self.marked(joined, cut))
    }

    /// Returns a name that counts for the limit of the whole plan. Returns `None` if that is reached.
    pub fn within_plan(&mut self, raw: &str) -> Option<String> {
        if self.is_full() {
            self.cut += 1;
            return None;
        }
        self.joined(raw)
    }

    fn marked(&mut self, mut text: String, cut: bool) -> String {
        if cut {
            self.cut += 1;
            text.push_str(CUT);
        }
        text
    }
}

/// Joins the texts of a list. Returns at most `most` characters, and whether the text was cut.
fn list(raw: &str, most: usize) -> Option<(String, bool)> {
    let mut joined = String::new();
    let (mut left, mut cut, mut separator) = (most, false, "");
    each_item(raw, |item| {
        let Some((item, item_cut)) = text(item, most) else {
            return;
        };
        for part in [separator, &item] {
            let end = part.char_indices().nth(left).map_or(part.len(), |(at, _)| at);
            joined.push_str(&part[..end]);
            left -= part[..end].chars().count();
            cut |= end < part.len();
        }
        cut |= item_cut;
        separator = ", ";
    })
    .ok()?;
    Some((joined, cut))
}

/// Returns at most `most` characters of a JSON string, and whether it was cut. Does not read the rest.
/// Returns `None` if the value is not a string.
fn text(raw: &str, most: usize) -> Option<(Cow<'_, str>, bool)> {
    let text = raw.strip_prefix('"')?.strip_suffix('"')?;
    let (mut end, mut escaped) = (0, false);
    for _ in 0..most {
        let rest = &text[end..];
        let Some(first) = rest.chars().next() else {
            break;
        };
        end += match first {
            '\\' if rest.starts_with("\\u") => 6,
            '\\' => 2,
            _ => first.len_utf8(),
        };
        escaped |= first == '\\';
    }
    let kept = &text[..end];
    let kept = if escaped {
        // Half of a surrogate pair is not valid text. PostgreSQL never writes one; it gives an empty text
        // here.
        serde_json::from_str(&format!("\"{kept}\"")).unwrap_or_default()
    } else {
        Cow::Borrowed(kept)
    };
    Some((kept, end < text.len()))
}

/// Returns whether a condition names a parameter: `$1`.
fn names_parameter(condition: &str) -> bool {
    let mut after = condition.split('$').skip(1);
    after.any(|part| part.starts_with(|c: char| c.is_ascii_digit()))
}

/// Visits the items of a JSON array. Each item is a slice of the text.
pub(super) fn each_item<'a>(array: &'a str, visit: impl FnMut(&'a str)) -> serde_json::Result<()> {
    Deserializer::from_str(array).deserialize_seq(EachItem(visit))
}

struct EachItem<F>(F);

impl<'de, F: FnMut(&'de str)> Visitor<'de> for EachItem<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<&RawValue>()? {
            self.0(item.get());
        }
        Ok(())
    }
}

struct All;

impl<'de> Visitor<'de> for All {
    type Value = Properties<'de>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Properties<'de>, A::Error> {
        Ok(Properties::up_to("", &mut map)?.0)
    }
}
