//! Recordings: a line of JSON for each refresh.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::model::Snapshot;

/// A line of a recording has at most these bytes: a damaged file takes no more memory.
const MAX_LINE: u64 = 64 << 20;

/// Makes a recording that only its owner may read, since it has texts of statements.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Adds a refresh.
pub fn write(file: &mut File, snapshot: &Snapshot) -> io::Result<()> {
    let mut line = serde_json::to_vec(snapshot)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// A recording that is read.
pub struct Recording(BufReader<File>);

impl Recording {
    /// Opens it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(BufReader::new(File::open(path)?)))
    }

    /// Returns the next refresh; nothing at the end.
    pub fn next(&mut self) -> io::Result<Option<Snapshot>> {
        let mut line = Vec::new();
        (&mut self.0).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let snapshot = serde_json::from_slice(&line);
        snapshot
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("no recording: {error}")))
    }
}
