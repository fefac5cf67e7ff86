//! The format of the files that keep statistics across a restart.

/// What such a file begins with. A file that begins with anything else is dropped. Give it the next number
/// when the test below fails: the records have changed.
pub const FILE_FORMAT: [u8; 8] = *b"ROWSRC36";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Source;
    use crate::model::partitions::ListedPartition;
    use crate::model::{DatabaseSum, LazyDescription, PlanDescription, sample};
    use crate::normalise::{Constants, Text};
    use crate::plan::parse_explain_json;
    use crate::regressions::Regression;
    use crate::tempfile::FileType;
    use rustc_hash::FxHasher;
    use serde::Serialize;
    use std::hash::Hasher;

    fn bytes(record: &impl Serialize) -> Vec<u8> {
        postcard::to_stdvec(record).expect("a record can be written")
    }

    #[test]
    fn records_have_the_format_that_the_file_names() {
        let plan = sample::plan(2);
        let description = LazyDescription::new((*plan.description).clone(), Vec::new());
        let text = Text {
            bytes: b"SELECT 1",
            backslashes: false,
        };
        let explained = parse_explain_json(r#"{"Plan": {"Node Type": "Result"}}"#).expect("a plan");
        let constants = Constants::literals(text).expect("constants");
        let normalised = PlanDescription::normalised("SELECT $1".to_string(), false, explained, constants);
        let normalised = LazyDescription::new(normalised, Vec::new());
        let all = [
            bytes(&plan.key),
            bytes(&plan.statistics),
            bytes(&DatabaseSum::default()),
            description.stored().expect("memory"),
            normalised.stored().expect("memory"),
            bytes(&plan.nodes),
            bytes(&plan.exemplars),
            bytes(&[ListedPartition::default()]),
            bytes(&Source::ALL),
            bytes(&FileType::ALL),
            bytes(&Regression::default()),
        ]
        .concat();
        let mut hasher = FxHasher::default();
        hasher.write(&all);
        assert_eq!(
            (FILE_FORMAT, all.len(), hasher.finish()),
            (*b"ROWSRC36", 2_886, 5_636_587_934_392_335_217),
            "the records of statistics files have changed: give FILE_FORMAT the next number"
        );
    }
}
