//! What a client sent for an execution: its text, and the values of its parameters as PostgreSQL has them in
//! memory. Nothing is printed until somebody looks at them.

use serde::{Deserialize, Serialize};

/// The maximal bytes of a value.
const MAX_VALUE: usize = 256;
/// The maximal bytes of all values of an execution, and of what is kept beside each.
const MAX_TOTAL: usize = 4096;
/// What counts for a parameter beside its value.
const BESIDE: usize = 8;

/// The maximal bytes of a text.
const MAX_TEXT: usize = 4096;

/// What a client sent for an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The text, in the encoding of its database, if constants are kept.
    pub text: Option<Vec<u8>>,
    /// The parameters, if they are kept.
    pub parameters: Option<Parameters>,
}

impl Sent {
    /// Keeps a text, if it is not too long.
    pub fn with_text(mut self, text: Vec<u8>) -> Sent {
        self.text = Some(text).filter(|text| !text.is_empty() && text.len() <= MAX_TEXT);
        self
    }

    /// Returns the bytes that it takes.
    pub fn size(&self) -> usize {
        let parameters = self.parameters.as_ref().map_or(0, Parameters::size);
        self.text.as_ref().map_or(0, Vec::len) + parameters
    }
}

/// What is known of a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Value {
    /// It is NULL.
    Null,
    /// Its bytes, without the header of a type of variable length.
    Whole(Vec<u8>),
    /// Its first bytes, and how many it has.
    Beginning(Vec<u8>, u64),
    /// It is too large, is stored elsewhere, or its type is not PostgreSQL's own.
    Unknown,
}

/// A parameter of an execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// The OID of its type.
    pub type_id: u32,
    /// Its value.
    pub value: Value,
}

/// The parameters of an execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// The first ones.
    pub kept: Vec<Parameter>,
    /// How many there are.
    pub count: u32,
}

impl Parameters {
    /// Keeps parameters, as far as there is room: the type of each, and its value. `None` is a value that
    /// is not known. Returns `None`
    /// if there is no memory.
    pub fn keep<'a>(
        parameters: impl ExactSizeIterator<Item = (u32, Option<Bytes<'a>>)>,
    ) -> Option<Parameters> {
        let mut all = Parameters {
            kept: Vec::new(),
            count: parameters.len() as u32,
        };
        all.kept
            .try_reserve_exact(parameters.len().min(MAX_TOTAL / BESIDE))
            .ok()?;
        let mut room = MAX_TOTAL;
        for (type_id, bytes) in parameters {
            let Some(left) = room.checked_sub(BESIDE) else {
                break;
            };
            let value = bytes.map_or(Some(Value::Unknown), |bytes| bytes.kept(left.min(MAX_VALUE)))?;
            room = left - value.size();
            all.kept.push(Parameter { type_id, value });
        }
        Some(all)
    }

    /// Returns the bytes that they take.
    fn size(&self) -> usize {
        self.kept
            .iter()
            .map(|parameter| size_of::<Parameter>() + parameter.value.size())
            .sum()
    }
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Value::Whole(bytes) | Value::Beginning(bytes, _) => bytes.len(),
            Value::Null | Value::Unknown => 0,
        }
    }
}

/// The bytes of a value.
#[derive(Clone, Copy)]
pub enum Bytes<'a> {
    /// None: the value is NULL.
    Null,
    /// Those of a text: its beginning is a text, too.
    Text(&'a [u8]),
    /// Others.
    Other(&'a [u8]),
}

impl Bytes<'_> {
    /// Returns what is kept of them in so many bytes. Returns `None` if there is no memory.
    fn kept(self, max: usize) -> Option<Value> {
        Some(match self {
            Bytes::Null => Value::Null,
            Bytes::Text(bytes) | Bytes::Other(bytes) if bytes.len() <= max => Value::Whole(copy(bytes)?),
            Bytes::Text(bytes) => Value::Beginning(copy(bytes.get(..max)?)?, bytes.len() as u64),
            Bytes::Other(_) => Value::Unknown,
        })
    }
}

fn copy(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(parameters: &[Option<Bytes<'_>>]) -> Parameters {
        Parameters::keep(parameters.iter().map(|bytes| (25, *bytes))).expect("memory")
    }

    fn values(parameters: Parameters) -> Vec<Value> {
        parameters.kept.into_iter().map(|kept| kept.value).collect()
    }

    #[test]
    fn each_value_is_cut() {
        let long = [7; MAX_VALUE + 1];
        assert_eq!(
            values(kept(&[
                Some(Bytes::Null),
                Some(Bytes::Text(&long)),
                Some(Bytes::Text(&long[1..])),
                Some(Bytes::Other(&long)),
                Some(Bytes::Other(&long[1..])),
                None,
            ])),
            [
                Value::Null,
                Value::Beginning(vec![7; MAX_VALUE], 257),
                Value::Whole(vec![7; MAX_VALUE]),
                Value::Unknown,
                Value::Whole(vec![7; MAX_VALUE]),
                Value::Unknown,
            ]
        );
    }

    #[test]
    fn all_values_together_are_limited() {
        let long = [7; MAX_VALUE];
        let many = kept(&[Some(Bytes::Text(&long)); 100]);
        assert!(many.kept.len() < 100 && many.count == 100);
        let size: usize = many.kept.iter().map(|kept| BESIDE + kept.value.size()).sum();
        assert!((MAX_TOTAL - BESIDE..=MAX_TOTAL).contains(&size), "{size}");
        let most = kept(&[Some(Bytes::Null); 65_535]);
        assert_eq!((most.kept.len(), most.count), (MAX_TOTAL / BESIDE, 65_535));
        // Small ones still find room behind a large one that has none.
        let other = [Some(Bytes::Other(&long)); 15];
        let last = values(kept(
            &[&other[..], &[Some(Bytes::Other(&long)), Some(Bytes::Other(&[1]))]].concat(),
        ));
        assert_eq!(last[15..], [Value::Unknown, Value::Whole(vec![1])]);
    }
}
