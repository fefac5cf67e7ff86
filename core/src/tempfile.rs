//! Requests to temporary files: how they are told apart, counted and put into histograms.

pub mod counters;
pub mod names;

use serde::{Deserialize, Serialize};

/// What a request's file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileType {
    /// Sorts, hashes, materialised results; shared file sets of parallel workers too.
    WorkFile,
    /// Temporary tables and their indexes.
    TempTable,
}

/// Which way the data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// From the file.
    Read,
    /// Into the file.
    Write,
}

/// How much is asked for.
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

    /// As views name it.
    pub const fn name(self) -> &'static str {
        match self {
            FileType::WorkFile => "work file",
            FileType::TempTable => "temp table",
        }
    }
}

impl Operation {
    /// As views name it.
    pub const fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
        }
    }
}

impl Size {
    /// The size of a request of so many bytes.
    #[inline(always)]
    pub const fn of(bytes: usize, block: usize) -> Size {
        if bytes > block { Size::Large } else { Size::Small }
    }

    /// As views name it.
    pub const fn name(self) -> &'static str {
        match self {
            Size::Small => "small",
            Size::Large => "large",
        }
    }
}

/// What requests are counted apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What the file is for.
    pub filetype: FileType,
    /// Which way the data goes.
    pub operation: Operation,
    /// How much is asked for.
    pub size: Size,
}

/// Kinds of requests there are.
pub const KINDS: usize = 8;

impl Kind {
    /// The kind's place among all: those of one file type together, reads first, small ones first.
    #[inline(always)]
    pub const fn index(self) -> usize {
        (self.filetype as usize) << 2 | (self.operation as usize) << 1 | self.size as usize
    }

    /// All, each at its index.
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

/// Bucket 0 holds requests below a microsecond, bucket `i` those from 2^(i-1) to 2^i of them, the last all longer ones
/// (67 s).
pub const BUCKETS: usize = 28;

/// The bucket of a request that took so long.
#[inline(always)]
pub const fn bucket(ns: u64) -> usize {
    let us = ns / 1_000;
    let bits = (u64::BITS - us.leading_zeros()) as usize;
    if bits < BUCKETS { bits } else { BUCKETS - 1 }
}

/// The bounds of a bucket in microseconds; none above the last.
pub fn bounds_us(bucket: usize) -> (f64, Option<f64>) {
    let from = if bucket == 0 {
        0.0
    } else {
        2f64.powi(bucket as i32 - 1)
    };
    (from, (bucket + 1 < BUCKETS).then(|| 2f64.powi(bucket as i32)))
}

/// The requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// How many: each one a system call, failed and empty ones too.
    pub count: u64,
    /// What they brought or took.
    pub bytes: u64,
    /// How long they took in all.
    pub ns: u64,
    /// The longest one.
    pub max_ns: u64,
    /// How many took how long.
    pub histogram: [u64; BUCKETS],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two_of_a_microsecond() {
        assert_eq!(
            [0, 999, 1_000, 1_999, 2_000, 3_999, 4_000, 5_000_000, u64::MAX].map(bucket),
            [0, 0, 1, 1, 2, 2, 3, 13, BUCKETS - 1]
        );
        assert_eq!(bounds_us(0), (0.0, Some(1.0)));
        assert_eq!(bounds_us(1), (1.0, Some(2.0)));
        assert_eq!(bounds_us(13), (4096.0, Some(8192.0)));
        assert_eq!(bounds_us(BUCKETS - 1), (67_108_864.0, None));
        for ns in (0..40).map(|shift| 1234u64 << shift) {
            let (from, to) = bounds_us(bucket(ns));
            let us = ns as f64 / 1e3;
            assert!(from <= us && to.is_none_or(|to| us < to), "{ns}");
        }
    }

    #[test]
    fn every_kind_has_its_place() {
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
