//! The roles and databases of which the history has nothing. The worker reads catalogs without a cache, so it
//! looks their names up seldom.

use super::snapshots::found;
use crate::guc;
use crate::pg::server;

/// How often names are looked up again, in microseconds: somebody may have made, dropped or renamed one.
const AGAIN_US: i64 = 10_000_000;

/// What is excluded.
#[derive(Default)]
pub struct Excluded {
    names: Vec<(bool, Vec<u8>)>,
    look_at: i64,
    roles: Vec<u32>,
    databases: Vec<u32>,
}

impl Excluded {
    /// Looks names up, if that is due. Only the worker may call this, outside of transactions.
    pub fn refresh(&mut self, now: i64) {
        let names = guc::history_exclude();
        if names == self.names && (names.is_empty() || now < self.look_at) {
            return;
        }
        (self.look_at, self.names) = (now + AGAIN_US, names);
        let all = |of_roles: bool, find: fn(&[u8]) -> Option<u32>| {
            let names = self.names.iter().filter(|(is_role, _)| *is_role == of_roles);
            names.filter_map(|(_, name)| found(|| find(name)).ok()?).collect()
        };
        self.databases = all(false, |wanted| {
            server::find_database(|_, name, _| name.to_bytes() == wanted)
        });
        self.roles = all(true, server::find_role);
    }

    pub fn has(&self, userid: u32, datid: u32) -> bool {
        self.roles.contains(&userid) || self.databases.contains(&datid)
    }
}
