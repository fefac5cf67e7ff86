//! What an index's expressions and predicate are, independent of OIDs.
//!
//! PostgreSQL stores them as the text of their nodes:
//! `{OPEXPR :opno 521 :opfuncid 147 :args (...) :location 34}`. What a field has is hashed as it is, unless
//! its name says that it is the OID of an object: then the object's name is. Places in the text are left out.
//! So nodes that a later major adds need nothing here.

use crate::stable_hash::StableHasher;

/// What the number in a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// An operator.
    Operator,
    /// A function or an aggregate.
    Function,
    /// A type.
    Type,
    /// A collation.
    Collation,
    /// A column of the index's table, by its number.
    Column,
}

/// Who knows the names of objects.
pub trait Names {
    /// Returns an object's name, with its schema and the types of its arguments; `None` if there is no such
    /// object.
    fn name(&self, object: Object, number: u32) -> Option<String>;
    /// Hashes a constant of this type. Its bytes may contain OIDs.
    fn constant(&self, type_oid: u32, bytes: &[u8], hasher: &mut StableHasher);
}

/// What a field is.
enum Field {
    /// It is the object with this number.
    Of(Object),
    /// It says nothing more.
    LeftOut,
    AsItIs,
}

/// Says what a field is by its name.
fn field(name: &str) -> Field {
    match name {
        "opno" => Field::Of(Object::Operator),
        "funcid" | "aggfnoid" | "winfnoid" => Field::Of(Object::Function),
        "varattno" => Field::Of(Object::Column),
        // The operator tells these.
        "opfuncid" | "hashfuncid" | "negfuncid" => Field::LeftOut,
        "location" | "varnosyn" | "varattnosyn" | "stmt_location" | "stmt_len" => Field::LeftOut,
        // Not all majors have these, and they say nothing in an index.
        "varnullingrels" | "varreturningtype" => Field::LeftOut,
        "nulltesttype" | "booltesttype" => Field::AsItIs,
        _ if name.ends_with("collid") => Field::Of(Object::Collation),
        _ if name.ends_with("type") || name.ends_with("typeid") || name.ends_with("typeId") => {
            Field::Of(Object::Type)
        }
        _ => Field::AsItIs,
    }
}

/// Hashes the text of nodes. Each object counts as its name.
pub fn hash(text: &str, names: &impl Names, hasher: &mut StableHasher) {
    let mut words = text.split_ascii_whitespace().peekable();
    let mut type_oid = 0;
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix(':') else {
            hasher.text(word.as_bytes());
            continue;
        };
        match field(name) {
            Field::LeftOut => {
                words.next();
                continue;
            }
            Field::AsItIs => {}
            Field::Of(object) => {
                let value = words.peek().copied().unwrap_or_default();
                // The last field of a node has its end.
                let digits = value.trim_end_matches(['}', ')']);
                if let Ok(number) = digits.parse::<u32>() {
                    words.next();
                    if name == "consttype" {
                        type_oid = number;
                    }
                    hasher.text(word.as_bytes());
                    let known = (number != 0).then(|| names.name(object, number)).flatten();
                    hasher.text(known.as_deref().unwrap_or(digits).as_bytes());
                    hasher.text(&value.as_bytes()[digits.len()..]);
                    continue;
                }
            }
        }
        hasher.text(word.as_bytes());
        if name == "constvalue" && words.clone().nth(1) == Some("[") {
            // Bytes are signed or not, as the processor's are.
            let bytes = words.clone().skip(2).map_while(|byte| byte.parse::<i16>().ok());
            let bytes: Vec<u8> = bytes.map(|byte| byte as u8).collect();
            words.nth(1 + bytes.len());
            names.constant(type_oid, &bytes, hasher);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects have their number, less the OID with which a database began.
    struct From(u32);

    impl Names for From {
        fn name(&self, object: Object, number: u32) -> Option<String> {
            (number >= self.0).then(|| format!("{object:?} {}", number - self.0))
        }

        fn constant(&self, type_oid: u32, bytes: &[u8], hasher: &mut StableHasher) {
            match bytes.first_chunk() {
                Some(oid) if type_oid == self.0 + 5 => hasher.number(u32::from_le_bytes(*oid) - self.0),
                _ => hasher.bytes(bytes.iter().copied()),
            }
        }
    }

    fn of(text: &str, first: u32) -> i64 {
        let mut hasher = StableHasher::new();
        hash(text, &From(first), &mut hasher);
        hasher.finish()
    }

    #[test]
    fn the_same_definition_with_other_numbers_is_the_same() {
        let text = |first: u32, column: u32, place: u32, label: u8| {
            format!(
                "({{OPEXPR :opno {} :opfuncid {} :opresulttype 16 :opcollid 0 :args ({{VAR :varno 1 :varattno {column} :vartype {}}} \
                 {{CONST :consttype {} :constlen 4 :constisnull false :location {place} :constvalue 4 [ {} 0 0 0 -1 0 0 0 ]}}) :location {place}}})",
                first + 1,
                first + 2,
                first + 5,
                first + 5,
                first + u32::from(label),
            )
        };
        // The column has another number: 3 before it were dropped, and 17 are fewer in the other database.
        let one = of(&text(17, 20, 7, 9), 17);
        assert_eq!(of(&text(40, 43, 99, 9), 40), one);
        assert_ne!(of(&text(40, 43, 99, 8), 40), one);
        assert_ne!(of(&text(40, 44, 99, 9), 40), one);
        assert_ne!(of(&text(17, 20, 7, 9).replace(":opno 18", ":opno 19"), 17), one);
        assert_ne!(of(&text(17, 20, 7, 9).replace("CONST", "PARAM"), 17), one);
        let newer =
            text(17, 20, 7, 9).replace(":varno 1", ":varno 1 :varnullingrels (b) :varreturningtype 0");
        assert_eq!(of(&newer, 17), one);
    }

    #[test]
    fn damaged_texts_are_hashed_too() {
        for text in [
            "",
            ":",
            ":opno",
            ":constvalue",
            ":constvalue 4 [",
            ":location",
            ":vartype )",
            ":consttype 5 :constvalue 1 [ 900",
        ] {
            of(text, 1);
        }
    }
}
