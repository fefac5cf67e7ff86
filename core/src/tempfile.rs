//! Requests to temporary files: their kinds and their counters.

pub mod counters;
pub mod names;
pub mod sessions;

use crate::histogram::Log2;
use serde::{Deserialize, Serialize};

/// What a temporary file is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileType {
    /// Sorts, hashes, materialised results, and shared file sets of parallel workers.
    WorkFile,
    /// Temporary tables and their indexes.
    TempTable,
}

/// The direction of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// From the file.
    Read,
    /// Into the file.
    Write,
}

/// The size class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Size {
    /// One block or less.
    Small,
    /// More than one block.
    Large,
}

impl FileType {
    /// Both, in the order of [`Kind::index`].
    pub const ALL: [FileType; 2] = [FileType::WorkFile, FileType::TempTable];

    /// Returns the name in the views.
    pub const fn name(self) -> &'static str {
        match self {
            FileType::WorkFile => "work file",
            FileType::TempTable => "temp table",
        }
    }
}

impl Operation {
    /// Returns the name in the views.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
        }
    }
}

impl Size {
    /// Returns the size class of a request of `bytes`.
    #[inline(always)]
    pub const fn of(bytes: usize, block: usize) -> Size {
        if bytes > block { Size::Large } else { Size::Small }
    }

    /// Returns the name in the views.
    pub const fn name(self) -> &'static str {
        match self {
            Size::Small => "small",
            Size::Large => "large",
        }
    }
}

/// A kind of requests. Each kind has its own counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What the file is used for.
    pub filetype: FileType,
    /// The direction of the data.
    pub operation: Operation,
    /// The size class of the request.
    pub size: Size,
}

/// The number of kinds.
pub const KINDS: usize = 8;

impl Kind {
    /// Returns the kind's index. The kinds are sorted by file type, then by direction, then by size.
    #[inline(always)]
    pub const fn index(self) -> usize {
        (self.filetype as usize) << 2 | (self.operation as usize) << 1 | self.size as usize
    }

    /// Returns all kinds, each at its index.
    pub fn all() -> impl Iterator<Item = Kind> {
        FileType::ALL.into_iter().flat_map(|filetype| {
            [Operation::Read, Operation::Write]
                .into_iter()
                .flat_map(move |operation| {
                    [Size::Small, Size::Large].map(|size| Kind {
                        filetype,
                        operation,
                        size,
                    })
                })
        })
    }
}

/// The times of requests, in powers of two of a microsecond. The first bucket is for requests of less than a
/// microsecond, the last begins at 67 s.
pub type RequestTimes = Log2<28, 500>;

/// The requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// The number of system calls, including failed and empty ones.
    pub count: u64,
    /// The bytes read or written.
    pub bytes: u64,
    /// The total of their times in nanoseconds.
    pub ns: u64,
    /// The time of the longest one.
    pub max_ns: u64,
    /// The histogram of their times.
    pub histogram: [u64; RequestTimes::BUCKETS],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_at_its_index() {
        let kinds: Vec<Kind> = Kind::all().collect();
        assert_eq!(kinds.len(), KINDS);
        for (i, kind) in kinds.iter().enumerate() {
            assert_eq!(kind.index(), i, "{kind:?}");
        }
    }

    #[test]
    fn a_block_is_small() {
        assert_eq!(Size::of(0, 8192), Size::Small);
        assert_eq!(Size::of(8192, 8192), Size::Small);
        assert_eq!(Size::of(8193, 8192), Size::Large);
    }
}
