//! Connection parameters as libpq has them: from a connection string, options, a service file, variables
//! and defaults.

use std::collections::BTreeMap;

use super::environment::{Environment, Error};
use super::service;

/// What the program does with a parameter of libpq.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Support {
    /// It has libpq's meaning.
    Yes,
    /// It makes no difference here.
    Ignored,
    /// It would change what happens, and this program cannot do it: an error.
    No,
}

/// The parameters of libpq 19: keyword, variable, and whether this program has it.
pub const KNOWN: &[(&str, &str, Support)] = &[
    ("application_name", "PGAPPNAME", Support::Yes),
    ("channel_binding", "PGCHANNELBINDING", Support::Yes),
    ("client_encoding", "PGCLIENTENCODING", Support::Ignored),
    ("connect_timeout", "PGCONNECT_TIMEOUT", Support::Yes),
    ("dbname", "PGDATABASE", Support::Yes),
    ("fallback_application_name", "", Support::Ignored),
    ("gssencmode", "PGGSSENCMODE", Support::Yes),
    ("gssdelegation", "PGGSSDELEGATION", Support::No),
    ("gsslib", "PGGSSLIB", Support::No),
    ("host", "PGHOST", Support::Yes),
    ("hostaddr", "PGHOSTADDR", Support::Yes),
    ("keepalives", "", Support::Ignored),
    ("keepalives_count", "", Support::Ignored),
    ("keepalives_idle", "", Support::Ignored),
    ("keepalives_interval", "", Support::Ignored),
    ("krbsrvname", "PGKRBSRVNAME", Support::No),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", Support::No),
    ("max_protocol_version", "PGMAXPROTOCOLVERSION", Support::No),
    ("min_protocol_version", "PGMINPROTOCOLVERSION", Support::No),
    ("oauth_ca_file", "PGOAUTHCAFILE", Support::No),
    ("oauth_client_id", "", Support::No),
    ("oauth_client_secret", "", Support::No),
    ("oauth_issuer", "", Support::No),
    ("oauth_scope", "", Support::No),
    ("options", "PGOPTIONS", Support::Yes),
    ("passfile", "PGPASSFILE", Support::Yes),
    ("password", "PGPASSWORD", Support::Yes),
    ("port", "PGPORT", Support::Yes),
    ("replication", "", Support::No),
    ("require_auth", "PGREQUIREAUTH", Support::No),
    ("requirepeer", "PGREQUIREPEER", Support::No),
    ("scram_client_key", "", Support::No),
    ("scram_server_key", "", Support::No),
    ("requiressl", "PGREQUIRESSL", Support::Yes),
    ("service", "PGSERVICE", Support::Yes),
    ("servicefile", "PGSERVICEFILE", Support::Yes),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION", Support::No),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION", Support::No),
    ("sslcert", "PGSSLCERT", Support::No),
    ("sslcertmode", "PGSSLCERTMODE", Support::No),
    ("sslcompression", "PGSSLCOMPRESSION", Support::Ignored),
    ("sslcrl", "PGSSLCRL", Support::No),
    ("sslcrldir", "PGSSLCRLDIR", Support::No),
    ("sslkey", "PGSSLKEY", Support::No),
    ("sslkeylogfile", "", Support::No),
    ("sslmode", "PGSSLMODE", Support::Yes),
    ("sslnegotiation", "PGSSLNEGOTIATION", Support::No),
    ("sslpassword", "", Support::No),
    ("sslrootcert", "PGSSLROOTCERT", Support::Yes),
    ("sslsni", "PGSSLSNI", Support::No),
    ("target_session_attrs", "PGTARGETSESSIONATTRS", Support::Yes),
    ("tcp_user_timeout", "", Support::Ignored),
    ("user", "PGUSER", Support::Yes),
];

/// Parameters and their values. One that is not there has its default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Params(BTreeMap<String, String>);

impl Params {
    /// Returns a parameter that is set and not empty.
    pub fn get(&self, keyword: &str) -> Option<&str> {
        self.0
            .get(keyword)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Sets a parameter. Fails if libpq has no such parameter, or if this program cannot do what it says.
    pub fn set(&mut self, keyword: &str, value: &str) -> Result<(), Error> {
        // The older name of libpq.
        if keyword == "requiressl" {
            let mode = if value.starts_with('1') {
                "require"
            } else {
                "prefer"
            };
            return self.set("sslmode", mode);
        }
        // What is no name may be a part of a password.
        if !keyword
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        {
            let text = "invalid connection option (a value with spaces stands in quotes)";
            return Err(Error(text.to_owned()));
        }
        let Some((_, _, support)) = KNOWN.iter().find(|(known, ..)| *known == keyword) else {
            return Err(Error(format!("invalid connection option \"{keyword}\"")));
        };
        if *support == Support::No && !value.is_empty() {
            return Err(Error(format!(
                "connection option \"{keyword}\" is not supported by rowsource: leave it out"
            )));
        }
        self.0.insert(keyword.to_owned(), value.to_owned());
        Ok(())
    }

    /// Sets a parameter that has no value yet.
    pub fn set_default(&mut self, keyword: &str, value: &str) -> Result<(), Error> {
        let is_older = keyword == "requiressl" && self.0.contains_key("sslmode");
        if is_older || self.0.contains_key(keyword) {
            Ok(())
        } else {
            self.set(keyword, value)
        }
    }

    /// Reads a connection string: a URI, or keywords and values.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut params = Self::default();
        match text
            .strip_prefix("postgresql://")
            .or_else(|| text.strip_prefix("postgres://"))
        {
            Some(rest) => params.read_uri(rest)?,
            None => params.read_keywords(text)?,
        }
        Ok(params)
    }

    fn read_keywords(&mut self, text: &str) -> Result<(), Error> {
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let Some((keyword, after)) = rest.split_once('=') else {
                return Err(Error(
                    "missing \"=\" after an option of the connection string".to_owned(),
                ));
            };
            let (value, after) = read_value(after.trim_start())?;
            self.set(keyword.trim_end(), &value)?;
            rest = after.trim_start();
        }
        Ok(())
    }

    fn read_uri(&mut self, rest: &str) -> Result<(), Error> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (user, hosts),
            None => ("", authority),
        };
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let (mut names, mut ports) = (Vec::new(), Vec::new());
        for host in hosts.split(',') {
            let (name, port) = split_host(host)?;
            names.push(decode(name)?);
            ports.push(port);
        }
        for (keyword, value) in [
            ("user", decode(user)?),
            ("password", decode(password)?),
            ("dbname", decode(database)?),
        ] {
            if !value.is_empty() {
                self.0.insert(keyword.to_owned(), value);
            }
        }
        if names.iter().any(|name| !name.is_empty()) {
            self.set("host", &names.join(","))?;
        }
        if ports.iter().any(|port| !port.is_empty()) {
            self.set("port", &ports.join(","))?;
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((keyword, value)) = pair.split_once('=') else {
                return Err(Error("missing \"=\" after an option of the URI".to_owned()));
            };
            match (decode(keyword)?.as_str(), decode(value)?.as_str()) {
                ("ssl", "true") => self.set("sslmode", "require")?,
                // It may be a part of a password that has a question mark.
                (keyword, _) if !KNOWN.iter().any(|(known, ..)| *known == keyword) => {
                    let text = "invalid connection option in the URI (a ? in a password is written %3F)";
                    return Err(Error(text.to_owned()));
                }
                (keyword, value) => self.set(keyword, value)?,
            }
        }
        Ok(())
    }

    /// Completes the parameters: from the service, from variables, and by defaults.
    pub fn complete(&mut self, environment: &Environment) -> Result<(), Error> {
        if let Some(service) = self
            .get("service")
            .map(str::to_owned)
            .or_else(|| environment.variable("PGSERVICE"))
        {
            for (keyword, value) in service::read(&service, self.get("servicefile"), environment)? {
                self.set_default(&keyword, &value)?;
            }
        }
        // The older name comes last, since the newer one wins.
        let (older, newer): (Vec<_>, Vec<_>) = KNOWN
            .iter()
            .filter(|(_, variable, _)| !variable.is_empty())
            .partition(|(keyword, ..)| *keyword == "requiressl");
        for (keyword, variable, _) in newer.into_iter().chain(older) {
            if let Some(value) = environment.variable(variable) {
                self.set_default(keyword, &value)?;
            }
        }
        if self.get("user").is_none() {
            self.0.insert("user".to_owned(), environment.user.clone());
        }
        if self.get("dbname").is_none() {
            let user = self.0["user"].clone();
            self.0.insert("dbname".to_owned(), user);
        }
        match self.get("gssencmode").unwrap_or("prefer") {
            "disable" | "prefer" => Ok(()),
            "require" => Err(Error(
                "gssencmode=require is not supported by rowsource: leave it out".to_owned(),
            )),
            other => Err(Error(format!("invalid gssencmode value: \"{other}\""))),
        }
    }
}

/// Splits a host of a URI and its port. An address of IPv6 stands in brackets.
fn split_host(host: &str) -> Result<(&str, &str), Error> {
    if let Some(rest) = host.strip_prefix('[') {
        let Some((address, rest)) = rest.split_once(']') else {
            return Err(Error("missing \"]\" after a host of the URI".to_owned()));
        };
        return Ok((address, rest.strip_prefix(':').unwrap_or(rest)));
    }
    Ok(host.split_once(':').unwrap_or((host, "")))
}

/// Reads a value, which may stand in quotes, and returns what follows it.
fn read_value(text: &str) -> Result<(String, &str), Error> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut letters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            letter if !quoted && letter.is_whitespace() => return Ok((value, &text[at..])),
            letter => value.push(letter),
        }
    }
    if quoted {
        Err(Error(
            "a quoted value of the connection string does not end".to_owned(),
        ))
    } else {
        Ok((value, ""))
    }
}

/// Replaces `%XX` by the byte that it stands for.
fn decode(text: &str) -> Result<String, Error> {
    // Without the text, which may be a password.
    let wrong = || Error("invalid percent-encoding in the URI".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest
            .get(..2)
            .and_then(|digits| str::from_utf8(digits).ok())
            .ok_or_else(wrong)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}
