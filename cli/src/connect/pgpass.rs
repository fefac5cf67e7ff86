//! The password file of libpq.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// What a password is looked up by.
pub struct Wanted<'a> {
    /// The host's name or address; `localhost` for the default folder of sockets, else the folder.
    pub host: &'a str,
    /// The port.
    pub port: u16,
    /// The database.
    pub dbname: &'a str,
    /// The user.
    pub user: &'a str,
}

/// What the file says.
#[derive(Debug, PartialEq)]
pub enum Found {
    /// The password.
    Password(Vec<u8>),
    /// No line fits, or there is no such file.
    Nothing,
    /// Why the file is not read.
    Refused(String),
}

/// Looks up a password in a file, which only its owner may read.
pub fn look_up(file: &Path, wanted: &Wanted) -> Found {
    let Ok(metadata) = fs::metadata(file) else {
        return Found::Nothing;
    };
    if !metadata.is_file() {
        return Found::Refused(format!(
            "password file \"{}\" is not a plain file",
            file.display()
        ));
    }
    if metadata.permissions().mode() & 0o077 != 0 {
        let name = file.display();
        return Found::Refused(format!(
            "password file \"{name}\" may be read by others: chmod 0600 \"{name}\""
        ));
    }
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => {
            return Found::Refused(format!("password file \"{}\": {error}", file.display()));
        }
    };
    // As in libpq, these are bytes: a line may be in another encoding.
    { bytes.split(|byte| *byte == b'\n') }
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .find_map(|line| password_of(line, wanted))
        .map_or(Found::Nothing, Found::Password)
}

/// Returns the password of a line that fits.
fn password_of(line: &[u8], wanted: &Wanted) -> Option<Vec<u8>> {
    if line.starts_with(b"#") {
        return None;
    }
    let mut rest = line;
    for value in [wanted.host, &wanted.port.to_string(), wanted.dbname, wanted.user] {
        let (field, after) = read_field(rest)?;
        if field != value.as_bytes() && !rest.starts_with(b"*:") {
            return None;
        }
        rest = after;
    }
    Some(read_field(rest).map_or_else(|| unescape(rest), |(field, _)| field))
}

/// Reads a field up to its colon, and returns what follows that.
fn read_field(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b':' if !escaped => return Some((unescape(&text[..at]), &text[at + 1..])),
            _ => escaped = *byte == b'\\' && !escaped,
        }
    }
    None
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.iter().copied();
    let mut result = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        result.push(if byte == b'\\' {
            bytes.next().unwrap_or(b'\\')
        } else {
            byte
        });
    }
    result
}
