//! The folder of the trace files. Files are named after their process: `pid_start_part.trc`, where `start` is
//! when the process began, in seconds since 1970.

use crate::pg::border::globals::GLOBALS;
use crate::pg::server;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

/// The folder, in the data directory, which is the working directory of all processes of a server. Base
/// backups leave out what is called `pgsql_tmp...`. The server deletes what is called that in `base` and in
/// tablespaces only.
pub const FOLDER: &str = "pgsql_tmp_rowsource_trace";
/// More entries of the folder are not looked at.
const MAX_LISTED: usize = 10_000;
/// How many entries are looked at between two checks for interrupts.
const LISTED_AT_ONCE: usize = 500;

/// The name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// When the process began.
    pub start: i64,
    pub pid: i32,
    /// The files of a process are numbered from 1 on.
    pub part: u32,
}

impl Name {
    /// Returns the name of a file of this process.
    pub fn mine(part: u32) -> Name {
        Name {
            start: GLOBALS.MyStartTime.get(),
            pid: server::pid(),
            part,
        }
    }

    /// Reads a name. Returns `None` if no file of a trace is called that.
    pub fn parse(name: &str) -> Option<Name> {
        let mut parts = name.strip_suffix(".trc")?.split('_');
        let parsed = Name {
            pid: parts.next()?.parse().ok()?,
            start: parts.next()?.parse().ok()?,
            part: parts.next()?.parse().ok()?,
        };
        (parsed.to_string() == name).then_some(parsed)
    }

    /// Returns whether the file belongs to this session.
    pub fn is_mine(&self) -> bool {
        *self == Name::mine(self.part)
    }

    fn path(&self) -> PathBuf {
        [FOLDER, &self.to_string()].iter().collect()
    }

    /// Creates the file.
    pub fn create(&self) -> io::Result<File> {
        match DirBuilder::new().mode(0o700).create(FOLDER) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.path())
    }

    /// Opens the file for reading.
    pub fn open(&self) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            // Opening a pipe would wait for a writer.
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(self.path())?;
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Returns what the folder says about the file; `None` if there is none.
    pub fn listed(&self) -> Option<Listed> {
        let metadata = fs::symlink_metadata(self.path()).ok()?;
        metadata.is_file().then(|| Listed::new(*self, &metadata))
    }

    /// Removes the file. Returns whether it is gone.
    pub fn remove(&self) -> bool {
        match fs::remove_file(self.path()) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(formatter, "{}_{}_{}.trc", self.pid, self.start, self.part)
    }
}

/// A file of the folder.
pub struct Listed {
    pub name: Name,
    pub bytes: u64,
    /// When it was last written, in seconds since 1970.
    pub modified: i64,
}

impl Listed {
    fn new(name: Name, metadata: &Metadata) -> Listed {
        Listed {
            name,
            bytes: metadata.len(),
            modified: metadata.mtime(),
        }
    }
}

/// Returns the files, in the order of their processes' beginnings. Returns no files if there is no folder.
/// `go_on` is called again and again; if it returns false, the result is `None`.
pub fn list(go_on: impl Fn() -> bool) -> Option<Vec<Listed>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
    for (at, entry) in entries.take(MAX_LISTED).enumerate() {
        if at.is_multiple_of(LISTED_AT_ONCE) && !go_on() {
            return None;
        }
        let name = entry.file_name();
        let name = name.to_str().and_then(Name::parse);
        if let (Some(name), Ok(metadata)) = (name, entry.metadata())
            && metadata.is_file()
            && files.try_reserve(1).is_ok()
        {
            files.push(Listed::new(name, &metadata));
        }
    }
    files.sort_by_key(|file| file.name);
    Some(files)
}
