//! Connects to a server as psql does: the same parameters, from the same places.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{ChannelBinding, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{CancelToken, Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

pub use self::environment::{Environment, Error};
pub use self::params::Params;
use self::pgpass::{Found, Wanted};
use self::tls::Mode;

mod environment;
mod params;
mod pgpass;
mod service;
#[cfg(test)]
mod tests;
mod tls;

/// Why a connection failed.
#[derive(Debug)]
pub enum Failure {
    /// The server wants a password, and none is known.
    PasswordNeeded,
    /// The server has no TLS, or does not let this user connect with TLS or without it.
    NotThisWay(String),
    /// No answer came in time.
    Silent(String),
    /// Anything else.
    Other(String),
}

/// A host that is tried.
#[derive(Clone, Debug)]
struct Host {
    config: Config,
    name: String,
    is_socket: bool,
}

impl Host {
    /// Returns the addresses that its name stands for; nothing stands for a socket, or for an address that
    /// the user has named.
    async fn addresses(&self) -> io::Result<Vec<Option<IpAddr>>> {
        if self.is_socket || !self.config.get_hostaddrs().is_empty() {
            return Ok(vec![None]);
        }
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let found = tokio::net::lookup_host((self.name.as_str(), port)).await?;
        let addresses: Vec<_> = found.map(|address| Some(address.ip())).collect();
        if addresses.is_empty() {
            return Err(io::Error::other("its name stands for no address"));
        }
        Ok(addresses)
    }
}

/// The hosts that are tried in turn, and how.
#[derive(Debug)]
pub struct Target {
    hosts: Vec<Host>,
    mode: Mode,
    tls: Option<MakeRustls>,
    timeout: Duration,
    /// What the user should know: a password file that is not read.
    pub warnings: Vec<String>,
}

#[derive(Clone)]
struct MakeRustls(MakeRustlsConnect);

impl std::fmt::Debug for MakeRustls {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("TLS")
    }
}

/// Debian's folder of sockets, and PostgreSQL's own where that is not there.
fn default_host() -> &'static str {
    if PathBuf::from("/var/run/postgresql").is_dir() {
        "/var/run/postgresql"
    } else {
        "/tmp"
    }
}

/// Returns the elements of a list, or one empty element.
fn list(text: Option<&str>) -> Vec<&str> {
    text.unwrap_or("").split(',').map(str::trim).collect()
}

impl Target {
    /// Makes a target of complete parameters. `asked` is a password that the user typed.
    pub fn new(params: &Params, asked: Option<&str>, environment: &Environment) -> Result<Self, Error> {
        let mode = Mode::parse(params.get("sslmode"))?;
        let root = params.get("sslrootcert");
        let timeout = params.get("connect_timeout").unwrap_or("10").parse::<i32>();
        let timeout = timeout.map_err(|_| Error("connect_timeout is not a number of seconds".to_owned()))?;
        // As in libpq, 0 and less wait for as long as it takes.
        let timeout = Duration::from_secs(if timeout <= 0 { 3600 } else { timeout.max(2) as u64 });
        let mut target = Self {
            hosts: Vec::new(),
            mode,
            tls: None,
            timeout,
            warnings: Vec::new(),
        };
        let (names, addresses, ports) = (
            list(params.get("host")),
            list(params.get("hostaddr")),
            list(params.get("port")),
        );
        let count = names.len().max(addresses.len());
        if (ports.len() > 1 && ports.len() != count)
            || (addresses != [""] && names != [""] && names.len() != addresses.len())
        {
            return Err(Error(
                "host, hostaddr and port have different numbers of elements".to_owned(),
            ));
        }
        for index in 0..count {
            let name = names.get(index).copied().unwrap_or("");
            let address = addresses.get(index).copied().unwrap_or("");
            let port = ports
                .get(if ports.len() > 1 { index } else { 0 })
                .copied()
                .unwrap_or("");
            let name = if name.is_empty() && address.is_empty() {
                default_host()
            } else {
                name
            };
            let port = if port.is_empty() {
                Ok(5432)
            } else {
                port.parse::<u16>()
            };
            let port = port.map_err(|_| Error("port is not a number from 1 to 65535".to_owned()))?;
            target.add_host(name, address, port, params, asked, environment)?;
        }
        if mode != Mode::Disable && target.hosts.iter().any(|host| !host.is_socket) {
            let tls = tls::configuration(mode, root, environment.home.as_deref())?;
            target.tls = Some(MakeRustls(MakeRustlsConnect::new(tls)));
        }
        Ok(target)
    }

    fn add_host(
        &mut self,
        name: &str,
        address: &str,
        port: u16,
        params: &Params,
        asked: Option<&str>,
        environment: &Environment,
    ) -> Result<(), Error> {
        if name.starts_with('@') && address.is_empty() {
            return Err(Error(format!(
                "host \"{name}\" is a socket without a file, in the abstract namespace, which rowsource does not \
                 support: name the folder of a socket, or an address"
            )));
        }
        let is_socket = name.starts_with('/') && address.is_empty();
        let shown = if name.is_empty() { address } else { name };
        let mut config = Config::new();
        config.host(shown).port(port).connect_timeout(self.timeout);
        if !address.is_empty() {
            let address = address
                .parse()
                .map_err(|_| Error(format!("hostaddr \"{address}\" is not an address")))?;
            config.hostaddr(address);
        }
        let (user, dbname) = (
            params.get("user").unwrap_or(""),
            params.get("dbname").unwrap_or(""),
        );
        config
            .user(user)
            .dbname(dbname)
            .application_name(params.get("application_name").unwrap_or("rowsource"));
        if let Some(options) = params.get("options") {
            config.options(options);
        }
        config.channel_binding(match params.get("channel_binding").unwrap_or("prefer") {
            "disable" => ChannelBinding::Disable,
            "prefer" => ChannelBinding::Prefer,
            "require" => ChannelBinding::Require,
            other => return Err(Error(format!("invalid channel_binding value: \"{other}\""))),
        });
        config.target_session_attrs(match params.get("target_session_attrs").unwrap_or("any") {
            "any" => TargetSessionAttrs::Any,
            "read-write" => TargetSessionAttrs::ReadWrite,
            "read-only" => TargetSessionAttrs::ReadOnly,
            other => {
                return Err(Error(format!(
                    "target_session_attrs value \"{other}\" is not supported by rowsource: use any, read-write or read-only"
                )));
            }
        });
        let is_default_socket = is_socket && name == default_host();
        let host = if is_default_socket { "localhost" } else { shown };
        match asked.or(params.get("password")) {
            Some(password) => drop(config.password(password)),
            None => self.take_password(
                &mut config,
                &Wanted {
                    host,
                    port,
                    dbname,
                    user,
                },
                params,
                environment,
            ),
        }
        self.hosts.push(Host {
            config,
            name: shown.to_owned(),
            is_socket,
        });
        Ok(())
    }

    fn take_password(
        &mut self,
        config: &mut Config,
        wanted: &Wanted,
        params: &Params,
        environment: &Environment,
    ) {
        let file = params.get("passfile").map(PathBuf::from);
        let Some(file) = file.or_else(|| environment.home.as_ref().map(|home| home.join(".pgpass"))) else {
            return;
        };
        match pgpass::look_up(&file, wanted) {
            Found::Password(password) => drop(config.password(password)),
            Found::Refused(warning) if !self.warnings.contains(&warning) => self.warnings.push(warning),
            Found::Nothing | Found::Refused(_) => {}
        }
    }

    /// Returns the hosts' names, separated by commas.
    pub fn host_names(&self) -> String {
        self.hosts
            .iter()
            .map(|host| host.name.as_str())
            .collect::<Vec<_>>()
            .join(",")
    }

    /// Connects to the first host that lets it. The connection ends with the client.
    pub async fn connect(&self) -> Result<Client, Failure> {
        let mut failures = Vec::new();
        let mut is_silent = true;
        for host in &self.hosts {
            let addresses = match tokio::time::timeout(self.timeout, host.addresses()).await {
                Ok(Ok(addresses)) => addresses,
                Ok(Err(error)) => {
                    is_silent = false;
                    failures.push(format!("{}: error connecting to server: {error}", host.name));
                    continue;
                }
                Err(_) => {
                    failures.push(format!("{}: {}", host.name, self.no_answer()));
                    continue;
                }
            };
            match self.connect_to_one_of(host, &addresses).await {
                Ok(client) => return Ok(client),
                Err(Failure::PasswordNeeded) => return Err(Failure::PasswordNeeded),
                Err(Failure::NotThisWay(error) | Failure::Other(error)) => {
                    is_silent = false;
                    failures.push(error);
                }
                Err(Failure::Silent(error)) => failures.push(error),
            }
        }
        let text = failures.join("; ");
        Err(if is_silent {
            Failure::Silent(text)
        } else {
            Failure::Other(text)
        })
    }

    fn no_answer(&self) -> String {
        format!("no answer within {} s", self.timeout.as_secs())
    }

    /// Connects to the first of a host's addresses that lets it. As in libpq, each has its own time, and both
    /// attempts have it together, with TLS and without it.
    async fn connect_to_one_of(&self, host: &Host, addresses: &[Option<IpAddr>]) -> Result<Client, Failure> {
        let mut failures: Vec<(Option<IpAddr>, String)> = Vec::new();
        let mut is_silent = true;
        for address in addresses {
            let mut host = host.clone();
            if let Some(address) = address {
                host.config.hostaddr(*address);
            }
            match tokio::time::timeout(self.timeout, self.connect_to(&host)).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(Failure::PasswordNeeded)) => return Err(Failure::PasswordNeeded),
                Ok(Err(Failure::NotThisWay(error) | Failure::Silent(error) | Failure::Other(error))) => {
                    is_silent = false;
                    failures.push((*address, error));
                }
                Err(_) => failures.push((*address, self.no_answer())),
            }
        }
        let is_same = failures.windows(2).all(|pair| pair[0].1 == pair[1].1);
        failures.truncate(if is_same { 1 } else { failures.len() });
        let texts = failures.iter().map(|(address, error)| match address {
            Some(address) if !is_same => format!("{} ({address}): {error}", host.name),
            _ => format!("{}: {error}", host.name),
        });
        let text = texts.collect::<Vec<_>>().join("; ");
        Err(if is_silent {
            Failure::Silent(text)
        } else {
            Failure::Other(text)
        })
    }

    /// Asks the server to cancel what a connection has asked for. It may have ended.
    pub async fn cancel(&self, token: CancelToken) {
        let wait = self.timeout.min(Duration::from_secs(5));
        let sent = tokio::time::timeout(wait, async {
            match &self.tls {
                // A connection that has none needs none to be cancelled.
                Some(tls) => token.cancel_query(tls.0.clone()).await,
                None => token.cancel_query(NoTls).await,
            }
        });
        drop(sent.await);
    }

    async fn connect_to(&self, host: &Host) -> Result<Client, Failure> {
        let Some(tls) = self.tls.as_ref().filter(|_| !host.is_socket) else {
            return without_tls(host).await;
        };
        match self.mode {
            Mode::Disable => without_tls(host).await,
            Mode::Allow => match without_tls(host).await {
                Err(Failure::NotThisWay(_)) => with_tls(host, tls).await,
                result => result,
            },
            Mode::Prefer => match with_tls(host, tls).await {
                Err(Failure::NotThisWay(_)) => without_tls(host).await,
                result => result,
            },
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => with_tls(host, tls).await,
        }
    }
}

async fn without_tls(host: &Host) -> Result<Client, Failure> {
    let mut config = host.config.clone();
    let (client, connection) = config
        .ssl_mode(SslMode::Disable)
        .connect(NoTls)
        .await
        .map_err(failure)?;
    tokio::spawn(connection);
    Ok(client)
}

async fn with_tls(host: &Host, tls: &MakeRustls) -> Result<Client, Failure> {
    let mut config = host.config.clone();
    let (client, connection) = config
        .ssl_mode(SslMode::Require)
        .connect(tls.0.clone())
        .await
        .map_err(failure)?;
    tokio::spawn(connection);
    Ok(client)
}

fn failure(error: tokio_postgres::Error) -> Failure {
    let text = text_of(&error);
    if text.contains("password missing") {
        Failure::PasswordNeeded
    } else if text.contains("server does not support TLS")
        || text.contains("TLS handshake")
        || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
    {
        Failure::NotThisWay(text)
    } else {
        Failure::Other(text)
    }
}

/// A server that was reached.
pub struct Reached {
    pub target: Target,
    /// The name of the connection.
    pub place: String,
    pub client: Client,
    /// What the connection runs in.
    pub runtime: tokio::runtime::Runtime,
}

/// Returns what an error says, with its causes.
pub fn text_of(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        let hint = error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        return format!("{}{hint}", error.message());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text += &format!(": {said}");
        }
        cause = inner.source();
    }
    text
}
