//! Reads the paths of relations' files. This runs inside system calls of the server, so nothing here
//! allocates or panics.

/// A file of a relation: `base/5/16385_vm.1` in the data directory, for example.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelationFile {
    /// The OID of the tablespace; 0 if the path does not tell it.
    pub tablespace: u32,
    /// The OID of the database; 0 for what all databases share.
    pub database: u32,
    /// The number of the relation's files (`relfilenode`).
    pub number: u32,
    /// The fork: 0 for the rows, 1 for the free space map, 2 for the visibility map, 3 for what an unlogged
    /// relation begins with.
    pub fork: u8,
    /// The place of this file among the fork's files.
    pub segment: u32,
}

/// The OID of `pg_default`, whose files are in `base`.
const PG_DEFAULT: u32 = 1663;
/// The OID of `pg_global`, whose files are in `global`.
const PG_GLOBAL: u32 = 1664;

/// What Linux appends to the path of a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

impl RelationFile {
    /// Reads an absolute path. Returns `None` if it is not that of a relation's file.
    #[inline]
    pub fn parse(path: &[u8]) -> Option<RelationFile> {
        let path = path.strip_suffix(REMOVED).unwrap_or(path);
        let (path, name) = last(path)?;
        let mut file = name_of(name)?;
        let (path, folder) = last(path)?;
        if folder == b"global" {
            file.tablespace = PG_GLOBAL;
            return Some(file);
        }
        let (rest, database) = number(folder)?;
        if !rest.is_empty() {
            return None;
        }
        file.database = database;
        let (_, folder) = last(path)?;
        if folder == b"base" {
            file.tablespace = PG_DEFAULT;
            return Some(file);
        }
        // The folder of a tablespace has no fixed name, but one in it is named after the version of the
        // catalog.
        folder.starts_with(b"PG_").then_some(file)
    }

    /// Returns the number of a block in the fork, from the number of a byte in this file.
    #[inline]
    pub fn block(&self, offset: u64, block_bytes: u32, blocks_per_file: u32) -> u64 {
        let before = u64::from(self.segment).saturating_mul(u64::from(blocks_per_file));
        before.saturating_add(offset.checked_div(u64::from(block_bytes)).unwrap_or(0))
    }
}

/// Splits off what is behind the last slash.
#[inline]
fn last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    Some((path.get(..slash)?, path.get(slash.wrapping_add(1)..)?))
}

/// Reads the digits that a text begins with. Returns the rest, and the number.
#[inline]
fn number(text: &[u8]) -> Option<(&[u8], u32)> {
    let (mut value, mut used) = (0_u32, 0);
    for byte in text.iter().take_while(|byte| byte.is_ascii_digit()) {
        value = value
            .checked_mul(10)?
            .checked_add(u32::from(byte.wrapping_sub(b'0')))?;
        used += 1;
    }
    if used == 0 {
        return None;
    }
    Some((text.get(used..)?, value))
}

/// Reads the name of a file: `16385`, `16385_fsm.2`, or `t3_16385` for a temporary table.
#[inline]
fn name_of(name: &[u8]) -> Option<RelationFile> {
    let name = match name.strip_prefix(b"t") {
        Some(temporary) => number(temporary)?.0.strip_prefix(b"_")?,
        None => name,
    };
    let (rest, of) = number(name)?;
    let forks: [(&[u8], u8); 3] = [(b"_fsm", 1), (b"_vm", 2), (b"_init", 3)];
    let (mut rest, mut fork) = (rest, 0);
    for (suffix, which) in forks {
        if let Some(behind) = rest.strip_prefix(suffix) {
            (rest, fork) = (behind, which);
            break;
        }
    }
    let (rest, segment) = match rest.strip_prefix(b".") {
        Some(segment) => number(segment)?,
        None => (rest, 0),
    };
    rest.is_empty().then_some(RelationFile {
        number: of,
        fork,
        segment,
        ..RelationFile::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_read() {
        let of = |tablespace, database, number, fork, segment| RelationFile {
            tablespace,
            database,
            number,
            fork,
            segment,
        };
        for (path, file) in [
            ("/data/base/5/16385", of(1663, 5, 16385, 0, 0)),
            ("/data/base/5/16385.12", of(1663, 5, 16385, 0, 12)),
            ("/data/base/5/16385_fsm", of(1663, 5, 16385, 1, 0)),
            ("/data/base/5/16385_vm.1", of(1663, 5, 16385, 2, 1)),
            ("/data/base/5/16385_init", of(1663, 5, 16385, 3, 0)),
            ("/data/base/5/t3_16385 (deleted)", of(1663, 5, 16385, 0, 0)),
            ("/data/global/1262", of(1664, 0, 1262, 0, 0)),
            ("/mnt/PG_15_202209061/5/4294967295", of(0, 5, u32::MAX, 0, 0)),
        ] {
            assert_eq!(RelationFile::parse(path.as_bytes()), Some(file), "{path}");
        }
        for other in [
            "",
            "16385",
            "/data/base/5/",
            "/data/base/5/pg_filenode.map",
            "/data/base/5/16385_other",
            "/data/base/5/16385.",
            "/data/base/5/4294967296",
            "/data/base/5/t_1",
            "/data/base/x5/16385",
            "/data/pg_wal/000000010000000000000001",
            "/data/pg_xact/0000",
            "/home/5/16385",
            "socket:[123]",
            "pipe:[5]/5/1",
        ] {
            assert_eq!(RelationFile::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn blocks_are_counted_from_the_first_file() {
        let mut file = RelationFile::default();
        assert_eq!(file.block(0, 8192, 131_072), 0);
        assert_eq!(file.block(5 * 8192, 8192, 131_072), 5);
        file.segment = 2;
        assert_eq!(file.block(8192, 8192, 131_072), 262_145);
    }
}
