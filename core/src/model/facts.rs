//! Facts about a node that PostgreSQL knows and that are read once, when a statement has ended. A new fact is a line here
//! and one in `src/pg/results/collect.rs`, which reads it.

use super::measured::Measured;
use serde::{Deserialize, Serialize};

macro_rules! node_facts {
    ($($(#[$doc:meta])* $fact:ident: $rule:ident,)+) => {
        /// Facts about a node in one execution, or in many of them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct NodeFacts {
            $($(#[$doc])* pub $fact: Measured<u64>,)+
        }

        impl NodeFacts {
            /// Adds those of an execution, each by its rule.
            #[inline(always)]
            pub fn add(&mut self, execution: &NodeFacts) {
                $(self.$fact.$rule(execution.$fact);)+
            }
        }
    };
}

// Each fact has a rule for many executions, which is a method of `Measured`: `raise_to` keeps the largest value.
node_facts! {
    /// Peak working memory in kB, if PostgreSQL knows it (sort, hash, aggregate, memoize).
    memory_kb: raise_to,
    /// Peak disk space of the work area in kB, if PostgreSQL knows it.
    disk_kb: raise_to,
}
