//! The service file of libpq: named sets of connection parameters.

use std::fs;
use std::path::{Path, PathBuf};

use super::environment::{Environment, Error};

/// Returns the parameters of a service: from the user's file, else from the system's.
pub fn read(
    service: &str,
    named: Option<&str>,
    environment: &Environment,
) -> Result<Vec<(String, String)>, Error> {
    let named = named
        .map(str::to_owned)
        .or_else(|| environment.variable("PGSERVICEFILE"));
    let user_file = match &named {
        Some(file) => Some(PathBuf::from(file)),
        None => environment
            .home
            .as_ref()
            .map(|home| home.join(".pg_service.conf")),
    };
    if let Some(file) = user_file.filter(|file| named.is_some() || file.exists()) {
        let text = read_file(&file)?;
        if let Some(found) = find(&text, service) {
            return found;
        }
    }
    let folder = environment
        .variable("PGSYSCONFDIR")
        .unwrap_or_else(|| "/etc/postgresql-common".to_owned());
    let file = PathBuf::from(folder).join("pg_service.conf");
    let text = if file.exists() {
        read_file(&file)?
    } else {
        Vec::new()
    };
    find(&text, service)
        .unwrap_or_else(|| Err(Error(format!("definition of service \"{service}\" not found"))))
}

fn read_file(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|error| Error(format!("service file \"{}\": {error}", file.display())))
}

/// Returns the parameters of the service's section in a file; nothing if the file has no such section.
/// Only its own lines have to be UTF-8.
fn find(text: &[u8], service: &str) -> Option<Result<Vec<(String, String)>, Error>> {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let name = format!("[{service}]");
    lines.find(|line| *line == name.as_bytes())?;
    let mut found = Vec::new();
    for line in lines.take_while(|line| !line.starts_with(b"[")) {
        let Ok(line) = str::from_utf8(line) else {
            return Some(Err(Error(format!("service \"{service}\": a line is not UTF-8"))));
        };
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.split_once('=') {
            Some(("service", _)) => {
                return Some(Err(Error(format!("service \"{service}\" names another service"))));
            }
            Some((keyword, value)) => found.push((keyword.trim().to_owned(), value.trim().to_owned())),
            None => {
                return Some(Err(Error(format!(
                    "service \"{service}\": no \"=\" in the line \"{line}\""
                ))));
            }
        }
    }
    Some(Ok(found))
}
