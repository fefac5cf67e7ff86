//! Stores numbers as EXPLAIN prints them, which takes fewer bytes than an `f64`.

/// A number without decimals.
pub mod integer {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(number.round() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(|number| number as f64)
    }
}

/// A number with two decimals.
pub mod cents {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64((number * 100.0).round() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        u64::deserialize(deserializer).map(|cents| cents as f64 / 100.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::PlanNode;

    #[test]
    fn numbers_are_stored_as_explain_prints_them() {
        for (width, cost) in [
            (0.0, 0.0),
            (4.0, 0.29),
            (8.0, 1.15),
            (32_767.0, 12_345_678_901.23),
        ] {
            let node = PlanNode {
                plan_width: width,
                startup_cost: cost,
                total_cost: 3.0 * cost,
                ..PlanNode::default()
            };
            let bytes = postcard::to_stdvec(&node).expect("bytes");
            let stored: PlanNode = postcard::from_bytes(&bytes).expect("a node");
            assert_eq!(
                (stored.plan_width, stored.startup_cost),
                (node.plan_width, node.startup_cost)
            );
            assert_eq!(
                format!("{:.2}", stored.total_cost),
                format!("{:.2}", node.total_cost)
            );
        }
    }
}
