//! The format of the files that keep statistics across a restart.

/// What such a file begins with. A file that begins with anything else is dropped. Give it the next number when the
/// test below fails: the records have changed.
pub const FILE_FORMAT: [u8; 8] = *b"ROWSRC06";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Source;
    use crate::model::{
        NodeFacts, NodeStats, NodeTotals, Outcome, PlanDescription, PlanId, PlanKey, PlanStats, Planning,
        Run, Time, Wal,
    };
    use crate::plan::parse_explain_json;
    use crate::tempfile::FileType;
    use rustc_hash::FxHasher;
    use serde::Serialize;
    use std::hash::Hasher;

    fn bytes(record: &impl Serialize) -> Vec<u8> {
        postcard::to_stdvec(record).expect("a record can be written")
    }

    #[test]
    fn records_have_the_format_that_the_file_names() {
        let key = PlanKey::new(
            10,
            5,
            4711,
            PlanId {
                number: 815,
                shape: 1,
            },
            true,
        );
        let mut statistics = PlanStats::default();
        statistics.add(&Run {
            outcome: Outcome::Cancelled,
            sampfreq: 128,
            clock: Some(Source::Tsc),
            elapsed_ms: 1.5,
            planning: Planning::default(),
            at: 7,
        });
        let json = r#"{"Plan": {"Node Type": "Seq Scan", "Relation Name": "t", "Filter": "(a > 1)", "Plan Rows": 3}}"#;
        let plan = parse_explain_json(json).expect("a plan");
        let description = PlanDescription::new(b"SELECT 1", "SELECT 1".to_string(), false, plan);
        let mut node = NodeTotals::default();
        let stats = NodeStats {
            starts: 2.into(),
            rows: 3,
            time: Time {
                total_ms: 1.25,
                ..Time::default()
            }
            .into(),
            wal: Wal {
                records: 1,
                fpi: 2,
                bytes: 3,
            }
            .into(),
            facts: NodeFacts {
                memory_kb: 64.into(),
                ..NodeFacts::default()
            },
            ..NodeStats::default()
        };
        node.add(&stats, &Default::default());
        let all = [
            bytes(&key),
            bytes(&statistics),
            bytes(&description),
            bytes(&node),
            bytes(&Source::ALL),
            bytes(&FileType::ALL),
        ]
        .concat();
        let mut hasher = FxHasher::default();
        hasher.write(&all);
        assert_eq!(
            (FILE_FORMAT, all.len(), hasher.finish()),
            (*b"ROWSRC06", 454, 14_074_154_686_048_378_574),
            "the records of statistics files have changed: give FILE_FORMAT the next number"
        );
    }
}
