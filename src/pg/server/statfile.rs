//! Writes and reads the files that keep statistics across a clean restart.
//!
//! They are in the data directory, where PostgreSQL keeps its own. Each is first written under a temporary
//! name, and removed when it is read. A file that is truncated, corrupt or from another version is ignored
//! with one LOG line. Who reads it must know that the stop was clean.
//!
//! A file is a header (magic, major version), records (length, bytes), a record of length 0, and a checksum
//! of all these. It is written and read record by record, so only one record is in memory.

use crate::pg::{compat, server};
use crc32fast::Hasher;
use rowsource_core::model::FILE_FORMAT;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A file with a longer record is corrupt: a plan of a thousand nodes takes a fifth of this.
const MAX_RECORD: u32 = 8 << 20;
const READ_AT_ONCE: usize = 64 << 10;

/// Removes a file, so that its statistics do not come back later, and what a process left that was killed
/// while it wrote one.
pub fn forget(name: &str) {
    let _ = fs::remove_file(name);
    let _ = fs::remove_file(temporary(name));
}

/// A file that is being written. Dropping it before [`Writer::finish`] removes the file.
pub struct Writer {
    name: String,
    file: Option<BufWriter<File>>,
    checksum: Hasher,
    record: Vec<u8>,
}

impl Writer {
    /// Begins a file that will take the place of the one with this name.
    pub fn create(name: &str) -> io::Result<Self> {
        let mut writer = Writer {
            name: name.to_owned(),
            file: Some(BufWriter::new(create(&temporary(name))?)),
            checksum: Hasher::new(),
            record: Vec::new(),
        };
        writer.write(&FILE_FORMAT)?;
        writer.write(&compat::MAJOR_VERSION.to_le_bytes())?;
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.update(bytes);
        match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => Ok(()),
        }
    }

    /// Writes a record.
    pub fn record(&mut self, what: &impl Serialize) -> io::Result<()> {
        let size = postcard::experimental::serialized_size(what).map_err(io::Error::other)?;
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        record.try_reserve_exact(size)?;
        record.resize(size, 0);
        postcard::to_slice(what, &mut record).map_err(io::Error::other)?;
        self.write(&(size as u32).to_le_bytes())?;
        self.write(&record)?;
        self.record = record;
        Ok(())
    }

    /// Ends the file, and gives it its final name.
    pub fn finish(mut self) -> io::Result<()> {
        self.write(&0u32.to_le_bytes())?;
        let checksum = self.checksum.clone().finalize();
        let Some(mut file) = self.file.take() else {
            return Ok(());
        };
        let written = file
            .write_all(&checksum.to_le_bytes())
            .and_then(|()| file.flush())
            .and_then(|()| file.get_ref().sync_all())
            .and_then(|()| fs::rename(temporary(&self.name), &self.name));
        if written.is_err() {
            let _ = fs::remove_file(temporary(&self.name));
        }
        written
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(temporary(&self.name));
        }
    }
}

fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}

fn create(name: &str) -> io::Result<File> {
    // The name may belong to anything. Opening a pipe, for example, would wait for a reader.
    let _ = fs::remove_file(name);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(name)
}

/// Writes a file that is only a text, of any version. After a crash it has this text, or that of before.
pub fn write_text(name: &str, text: &str) -> io::Result<()> {
    let temporary = temporary(name);
    let mut file = create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, name)?;
    let folder = Path::new(name).parent().unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

/// Reads such a file; `None` if there is none that can be read.
pub fn read_text(name: &str) -> Option<String> {
    const MAX_BYTES: u64 = 1000;
    let mut text = String::new();
    open(name, MAX_BYTES).ok()?.read_to_string(&mut text).ok()?;
    Some(text)
}

/// A checked file whose records are being read.
pub struct Reader {
    name: String,
    file: BufReader<File>,
    record: Vec<u8>,
}

/// Opens a file, if there is one of at most `max_bytes`, and removes its name. If it cannot be used, logs the
/// reason and returns `None`.
pub fn take(name: &str, max_bytes: u64) -> Option<Reader> {
    let (found, file) = match open(name, max_bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => (false, Err(error)),
        Ok(file) => (true, check(file)),
    };
    // If it could not be opened as a regular file, it is not removed, because pg_rowsource did not write it.
    if found {
        forget(name);
    }
    match file {
        Ok(file) => Some(Reader {
            name: name.to_owned(),
            file,
            record: Vec::new(),
        }),
        Err(error) => {
            log_ignored(name, &error);
            None
        }
    }
}

fn log_ignored(name: &str, why: &dyn std::fmt::Display) {
    server::log_alone(&format!(
        "pg_rowsource ignores \"{name}\": {why}; statistics start empty"
    ));
}

/// Opens a file without waiting. Opening a pipe would otherwise wait for a writer.
fn open(name: &str, max_bytes: u64) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(name)
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => io::Error::other("it is a symbolic link"),
            _ => error,
        })?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if metadata.len() > max_bytes {
        return Err(io::Error::other("it is too large"));
    }
    Ok(file)
}

/// Reads the whole file to check that pg_rowsource wrote it and that it is intact. Returns it at its first
/// record.
fn check(mut file: File) -> io::Result<BufReader<File>> {
    const CHECKSUM: u64 = 4;
    let truncated = || io::Error::other("it is truncated");
    let length = file.metadata()?.len();
    let mut head = [0; 12];
    file.read_exact(&mut head).map_err(|_| truncated())?;
    if head[..8] != FILE_FORMAT {
        return Err(io::Error::other("it is not of this version of pg_rowsource"));
    }
    let major = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    if major != compat::MAJOR_VERSION {
        return Err(io::Error::other(format!("it was written by PostgreSQL {major}")));
    }
    let mut checksum = Hasher::new();
    checksum.update(&head);
    let mut left = length
        .checked_sub(head.len() as u64 + CHECKSUM)
        .ok_or_else(truncated)?;
    let mut buffer = Vec::new();
    buffer.try_reserve_exact(READ_AT_ONCE)?;
    buffer.resize(READ_AT_ONCE, 0);
    while left > 0 {
        let part = left.min(READ_AT_ONCE as u64) as usize;
        file.read_exact(&mut buffer[..part]).map_err(|_| truncated())?;
        checksum.update(&buffer[..part]);
        left -= part as u64;
    }
    let mut expected = [0; 4];
    file.read_exact(&mut expected).map_err(|_| truncated())?;
    if checksum.finalize() != u32::from_le_bytes(expected) {
        return Err(io::Error::other("its checksum is wrong"));
    }
    let records = io::SeekFrom::Start(head.len() as u64);
    file.seek(records)?;
    let mut file = BufReader::new(file);
    let mut at = head.len() as u64;
    loop {
        let record = next_length(&mut file)?;
        at += 4 + u64::from(record);
        if record == 0 {
            break;
        }
        file.seek_relative(i64::from(record))?;
    }
    if at != length - CHECKSUM {
        return Err(truncated());
    }
    file.seek(records)?;
    Ok(file)
}

/// Reads the length of a record; 0 after the last.
fn next_length(file: &mut impl Read) -> io::Result<u32> {
    let mut length = [0; 4];
    file.read_exact(&mut length)
        .map_err(|_| io::Error::other("it is truncated"))?;
    let length = u32::from_le_bytes(length);
    if length > MAX_RECORD {
        return Err(io::Error::other("a record is too long"));
    }
    Ok(length)
}

impl Reader {
    /// Reads the next record. Returns `None` after the last record, or if the record cannot be read.
    pub fn next<T: DeserializeOwned>(&mut self) -> Option<T> {
        self.read()
            .inspect_err(|error| log_ignored(&self.name, error))
            .ok()
            .flatten()
    }

    fn read<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let length = next_length(&mut self.file)?;
        if length == 0 {
            return Ok(None);
        }
        self.record.clear();
        self.record.try_reserve(length as usize)?;
        self.record.resize(length as usize, 0);
        self.file.read_exact(&mut self.record)?;
        postcard::from_bytes(&self.record)
            .map(Some)
            .map_err(io::Error::other)
    }
}
