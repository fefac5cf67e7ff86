//! Recordings: a line of JSON for each refresh.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::model::Snapshot;

/// A line of a recording has at most these bytes: a damaged file takes no more memory.
const MAX_LINE: u64 = 64 << 20;

/// Makes a file that only its owner may read, since it has texts of statements. Fails if it is there.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Makes a recording. A file that is there and not empty is not replaced: it may be the only recording of an
/// incident. What is no file, such as a pipe, is written to.
pub fn create(path: &Path) -> io::Result<File> {
    match create_new(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let file = OpenOptions::new().write(true).open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_file() && metadata.len() > 0 {
                let text = "the file is there already: choose another name, or remove it";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            restrict(&file)?;
            Ok(file)
        }
        result => result,
    }
}

/// Writes a page, in place of what the file has. Only its owner may read it then: what belongs to somebody
/// else stays as it is.
pub fn write_page(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    restrict(&file)?;
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())
}

/// Takes the permissions of others from a file that was there before.
fn restrict(file: &File) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Adds a refresh.
pub fn write(file: &mut File, snapshot: &Snapshot) -> io::Result<()> {
    let mut line = serde_json::to_vec(snapshot)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// A recording that is read.
pub struct Recording {
    lines: BufReader<File>,
    name: String,
    /// How many refreshes were read.
    count: u64,
    is_cut: bool,
}

impl Recording {
    /// Opens it. Fails if it has not even one refresh.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut last = [b'\n'];
        if metadata.is_file() && metadata.len() > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            file.rewind()?;
        }
        let mut recording = Self {
            lines: BufReader::new(file),
            name: path.display().to_string(),
            count: 0,
            is_cut: last != [b'\n'],
        };
        if recording.lines.fill_buf()?.is_empty() {
            return Err(invalid("the file is empty: no recording".to_owned()));
        }
        Ok(recording)
    }

    /// Returns whether it ends within a line, because the program that wrote it was killed. What comes before
    /// that is replayed.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the next refresh; nothing at the end.
    pub fn next(&mut self) -> io::Result<Option<Snapshot>> {
        let mut line = Vec::new();
        (&mut self.lines).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        let number = self.count + 1;
        match serde_json::from_slice(&line) {
            Ok(snapshot) => {
                self.count = number;
                Ok(Some(snapshot))
            }
            Err(error) if error.is_eof() && self.is_cut && self.count > 0 && !line.ends_with(b"\n") => {
                Ok(None)
            }
            Err(error) => Err(invalid(format!(
                "{}: line {number} is no refresh of a recording: {error}",
                self.name
            ))),
        }
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
