//! The files that carry statistics across a clean restart.
//!
//! They lie in the data folder, where PostgreSQL keeps its own. Each is written to a temporary name first, and removed
//! when it has been read. So after a crash there is none, and statistics begin anew. A file that is truncated, corrupt
//! or from another version is dropped with one LOG line.

use super::{compat, server};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Changes with what statistics look like in memory or in a file.
pub const MAGIC: &[u8; 8] = b"ROWSRC03";
const HEADER: usize = 8 + 4 + 4;

/// Removes what an earlier run saved: it is not to come back later.
pub fn forget(name: &str) {
    let _ = fs::remove_file(name);
}

/// Writes a file, or leaves the one that was there.
pub fn write(name: &str, what: &impl Serialize) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    let result = write_to(&temporary, what).and_then(|()| fs::rename(&temporary, name));
    if result.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn write_to(name: &str, what: &impl Serialize) -> io::Result<()> {
    let body = postcard::to_stdvec(what).map_err(io::Error::other)?;
    let mut file = File::create(name)?;
    file.write_all(MAGIC)?;
    file.write_all(&compat::MAJOR_VERSION.to_le_bytes())?;
    file.write_all(&crc32fast::hash(&body).to_le_bytes())?;
    file.write_all(&body)?;
    file.sync_all()
}

/// Reads a file, if there is one, and removes it.
pub fn take<T: DeserializeOwned>(name: &str) -> Option<T> {
    let path = Path::new(name);
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            server::log_alone(&format!(
                "pg_rowsource could not read \"{name}\": {error}; statistics start empty"
            ));
            return None;
        }
    };
    let what = decode(&bytes)
        .inspect_err(|why| {
            server::log_alone(&format!(
                "pg_rowsource ignores \"{name}\": {why}; statistics start empty"
            ));
        })
        .ok();
    let _ = fs::remove_file(path);
    what
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (header, body) = bytes.split_at_checked(HEADER).ok_or("it is truncated")?;
    if header[..8] != MAGIC[..] {
        return Err("it is not of this version of pg_rowsource".into());
    }
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if number(8) != compat::MAJOR_VERSION {
        return Err(format!("it was written by PostgreSQL {}", number(8)));
    }
    if number(12) != crc32fast::hash(body) {
        return Err("its checksum is wrong".into());
    }
    postcard::from_bytes(body).map_err(|error| error.to_string())
}
