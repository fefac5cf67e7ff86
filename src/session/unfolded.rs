//! The descriptions of executions whose plans are folded: one for each set of partitions that a plan read.
//! They share the folded description with the listed plan.

use rowsource_core::model::{LazyDescription, PlanKey};
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::mem::take;
use std::rc::Rc;

/// The most bytes of those that were used recently, of those that were used before, and of what was decoded.
const MAX_PART: usize = (4 << 20) / 3;

/// Descriptions by the keys of their plans before these were folded.
type Descriptions = FxHashMap<PlanKey, Rc<LazyDescription>>;

/// The descriptions that were used last. If there are too many, those are forgotten that were not used since
/// that happened before.
pub(super) struct Unfolded {
    recent: Descriptions,
    /// The memory of the recent ones, in bytes.
    bytes: usize,
    before: Descriptions,
    /// How much all grew because somebody looked at all nodes, in bytes.
    decoded: OnceCell<Rc<Cell<usize>>>,
}

impl Unfolded {
    pub const fn new() -> Self {
        Unfolded {
            recent: HashMap::with_hasher(FxBuildHasher),
            bytes: 0,
            before: HashMap::with_hasher(FxBuildHasher),
            decoded: OnceCell::new(),
        }
    }

    /// Returns the description of an execution whose plan had this key before it was folded.
    pub fn get(&mut self, found_as: &PlanKey) -> Option<Rc<LazyDescription>> {
        let known = match self.recent.get(found_as) {
            Some(known) => known.clone(),
            None => {
                let known = self.before.remove(found_as)?;
                self.keep(*found_as, &known);
                known
            }
        };
        if self.decoded_bytes().get() > MAX_PART {
            self.forget();
        }
        Some(known)
    }

    /// Keeps a description.
    pub fn keep(&mut self, found_as: PlanKey, description: &Rc<LazyDescription>) {
        if self.bytes + description.size() > MAX_PART {
            self.before = take(&mut self.recent);
            self.bytes = 0;
        }
        if self.recent.try_reserve(1).is_ok() {
            let before = self.recent.insert(found_as, description.clone());
            let before = before.map_or(0, |before| before.size());
            self.bytes = (self.bytes + description.size()).saturating_sub(before);
        }
    }

    /// Returns where the bytes are counted that were decoded.
    pub fn decoded_bytes(&self) -> &Rc<Cell<usize>> {
        self.decoded.get_or_init(Rc::default)
    }

    /// Forgets all.
    pub fn forget(&mut self) {
        self.recent.clear();
        self.before.clear();
        self.bytes = 0;
        self.decoded_bytes().set(0);
    }

    /// Forgets those that share the folded description of this one, which the listed plan has no more.
    #[cold]
    pub fn forget_of(&mut self, description: &Rc<LazyDescription>) {
        if description.fold().is_none() {
            return;
        }
        let is_kept = |known: &Rc<LazyDescription>| !Rc::ptr_eq(known.to_keep(), description.to_keep());
        self.before.retain(|_, known| is_kept(known));
        let bytes = &mut self.bytes;
        self.recent.retain(|_, known| {
            if !is_kept(known) {
                *bytes = bytes.saturating_sub(known.size());
            }
            is_kept(known)
        });
    }
}
