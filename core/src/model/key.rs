//! The identity of a plan.

use serde::{Deserialize, Serialize};

/// Identifies a plan of a statement that a user ran in a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(C)]
pub struct PlanKey {
    /// The statement's identifier, as in pg_stat_statements.
    pub queryid: i64,
    /// The plan's number.
    pub planid: i64,
    /// The OID of the user who ran it.
    pub userid: u32,
    /// The OID of the database in which it ran.
    pub datid: u32,
    /// 1 if a client sent the statement, 0 if a function did. It has 64 bits, so that the key has no padding.
    toplevel: u64,
}

// The shared hash table compares and hashes the key's bytes: padding would make equal keys differ.
const _: () = assert!(size_of::<PlanKey>() == 3 * 8 + 2 * 4);

impl PlanKey {
    /// Makes the key of a plan.
    pub fn new(userid: u32, datid: u32, queryid: i64, planid: i64, toplevel: bool) -> Self {
        PlanKey {
            queryid,
            planid,
            userid,
            datid,
            toplevel: u64::from(toplevel),
        }
    }

    /// Returns whether both keys are the same. Each statement compares keys, so this is faster than `==`: it
    /// is always inlined and compares whole words.
    #[inline(always)]
    pub fn is(&self, other: &PlanKey) -> bool {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        self.queryid == other.queryid
            && self.planid == other.planid
            && pair(self.userid, self.datid) == pair(other.userid, other.datid)
            && self.toplevel == other.toplevel
    }

    /// Returns whether a client sent the statement, not a function.
    pub fn toplevel(&self) -> bool {
        self.toplevel != 0
    }

    /// Returns the key of the same plan if a client sent the statement.
    pub fn at_toplevel(self) -> Self {
        PlanKey { toplevel: 1, ..self }
    }

    /// Returns the key of another plan of the same query.
    pub fn with_plan(&self, planid: i64) -> PlanKey {
        PlanKey { planid, ..*self }
    }

    /// Returns whether both are plans of the same query.
    pub fn is_same_query(&self, other: &PlanKey) -> bool {
        self.with_plan(0) == other.with_plan(0)
    }

    /// Returns whether the plan belongs to this user, database and query. 0 means any.
    pub fn matches(&self, userid: u32, datid: u32, queryid: i64) -> bool {
        (userid == 0 || self.userid == userid)
            && (datid == 0 || self.datid == datid)
            && (queryid == 0 || self.queryid == queryid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_only_if_all_parts_are() {
        let key = PlanKey::new(1, 2, -3, 4, true);
        assert!(key.is(&key.clone()));
        let others = [
            PlanKey { userid: 9, ..key },
            PlanKey { datid: 9, ..key },
            PlanKey { queryid: 3, ..key },
            PlanKey { planid: -4, ..key },
            PlanKey { toplevel: 0, ..key },
        ];
        for other in others {
            assert!(!key.is(&other) && key != other, "{other:?}");
        }
    }
}
