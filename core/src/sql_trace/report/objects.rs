//! What a statement waited for, by its objects.

use super::super::event::{Wait, WaitObject};
use super::waits::Waited;
use std::collections::BTreeMap;

/// The most objects of a statement.
const MAX_OBJECTS: usize = 500;

/// An object. The numbers are OIDs, except that of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// A relation: that of a lock, or else the one that the node works on.
    Relation {
        /// Its database; 0 if all databases share it.
        database: u64,
        /// The relation.
        oid: u64,
    },
    /// The file of a relation.
    File {
        /// Its database; 0 if all databases share it.
        database: u64,
        /// Its tablespace; `None` if it is not known.
        tablespace: Option<u64>,
        /// The number of the relation's files.
        number: u64,
        /// The number of the fork.
        fork: u64,
    },
}

impl Object {
    /// Returns what a wait was for. `database` is that of the session, if it is known.
    fn of(wait: &WaitObject, database: Option<u64>) -> Option<Object> {
        if let Some(number) = wait.file {
            return Some(Object::File {
                database: wait.database.or(database)?,
                tablespace: wait.tablespace,
                number,
                fork: wait.fork.unwrap_or(0),
            });
        }
        let (database, oid) = match wait.relation {
            Some(oid) => (wait.database.or(database)?, oid),
            None => (database?, wait.node_relation?),
        };
        Some(Object::Relation { database, oid })
    }

    /// Returns a text for it. `name` is that of the relation, if it is known.
    pub fn text(&self, name: Option<String>) -> String {
        match (*self, name) {
            (Object::Relation { .. }, Some(name)) => name,
            (Object::Relation { oid, .. }, None) => format!("relation {oid}"),
            (Object::File { fork, .. }, Some(name)) => name + Object::suffix(fork),
            (
                Object::File {
                    database,
                    tablespace,
                    number,
                    fork,
                },
                None,
            ) => {
                let tablespace = tablespace.map_or("?".to_owned(), |oid| oid.to_string());
                format!("file {tablespace}/{database}/{number}{}", Object::suffix(fork))
            }
        }
    }

    fn suffix(fork: u64) -> &'static str {
        match fork {
            0 => "",
            1 => " (fsm)",
            2 => " (vm)",
            _ => " (init)",
        }
    }
}

/// The waits by their events and objects.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    sums: BTreeMap<(String, Object), Waited>,
    /// How many waits had an object that is not listed.
    others: u64,
}

impl Objects {
    /// Adds a wait, if it had an object. `database` is that of the session, if it is known. Returns how many
    /// bytes more are kept. The rest of a wait may not know the object any more, so it adds no object.
    pub fn add(&mut self, wait: &Wait, database: Option<u64>) -> usize {
        let Some(object) = Object::of(&wait.object, database) else {
            return 0;
        };
        let key = (wait.name.clone(), object);
        if let Some(waited) = self.sums.get_mut(&key) {
            waited.add_wait(wait);
            return 0;
        }
        if wait.is_rest {
            return 0;
        }
        if self.sums.len() >= MAX_OBJECTS {
            self.others = self.others.saturating_add(1);
            return 0;
        }
        let bytes = key.0.len() + size_of::<((String, Object), Waited)>();
        self.sums.entry(key).or_default().add_wait(wait);
        bytes
    }

    /// Returns the events, the objects and their waits, the longest first.
    pub fn sorted(&self) -> Vec<(&str, Object, &Waited)> {
        let sums = self.sums.iter();
        let mut sorted: Vec<_> = sums
            .map(|((event, object), waited)| (event.as_str(), *object, waited))
            .collect();
        sorted.sort_by_key(|(_, _, waited)| std::cmp::Reverse(waited.total_us));
        sorted
    }

    /// Returns how many waits had an object that is not listed.
    pub fn others(&self) -> u64 {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(object: WaitObject) -> Wait {
        Wait {
            name: "IO DataFileRead".to_owned(),
            elapsed_us: 5,
            object,
            ..Wait::default()
        }
    }

    #[test]
    fn a_lock_or_a_file_comes_before_the_nodes_relation() {
        let node = WaitObject {
            node_relation: Some(7),
            ..WaitObject::default()
        };
        let lock = WaitObject {
            relation: Some(8),
            database: Some(1),
            ..node
        };
        let file = WaitObject {
            file: Some(9),
            database: Some(2),
            fork: Some(2),
            ..node
        };
        let mut objects = Objects::default();
        assert_eq!(objects.add(&wait(WaitObject::default()), Some(5)), 0);
        for object in [file, node, lock, lock] {
            objects.add(&wait(object), Some(5));
        }
        let found: Vec<(String, u64)> = objects
            .sorted()
            .into_iter()
            .map(|(_, object, waited)| (object.text(None), waited.times))
            .collect();
        let expected = [("relation 8", 2), ("relation 7", 1), ("file ?/2/9 (vm)", 1)];
        assert_eq!(found, expected.map(|(text, times)| (text.to_owned(), times)));
        let named = objects.sorted()[2].1.text(Some("t".to_owned()));
        assert_eq!(named, "t (vm)");
    }

    #[test]
    fn objects_are_bounded() {
        let mut objects = Objects::default();
        for oid in 0..MAX_OBJECTS as u64 + 3 {
            objects.add(
                &wait(WaitObject {
                    relation: Some(oid),
                    ..WaitObject::default()
                }),
                Some(5),
            );
        }
        assert_eq!((objects.sorted().len(), objects.others()), (MAX_OBJECTS, 3));
    }
}
