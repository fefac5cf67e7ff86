//! The service file of libpq: named sets of connection parameters.

use std::fs;
use std::path::PathBuf;

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
        let text = fs::read_to_string(&file)
            .map_err(|error| Error(format!("service file \"{}\": {error}", file.display())))?;
        if let Some(found) = find(&text, service) {
            return found;
        }
    }
    let folder = environment
        .variable("PGSYSCONFDIR")
        .unwrap_or_else(|| "/etc/postgresql-common".to_owned());
    fs::read_to_string(PathBuf::from(folder).join("pg_service.conf"))
        .ok()
        .and_then(|text| find(&text, service))
        .unwrap_or_else(|| Err(Error(format!("definition of service \"{service}\" not found"))))
}

/// Returns the parameters of the service's section in a file; nothing if the file has no such section.
fn find(text: &str, service: &str) -> Option<Result<Vec<(String, String)>, Error>> {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) == Some(service))?;
    let mut found = Vec::new();
    for line in lines.take_while(|line| !line.starts_with('[')) {
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
