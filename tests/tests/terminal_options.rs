//! Each connection option of `docs/terminal.md` that the program supports, against a server with TLS and
//! passwords: in a connection string, in a URI, and as a variable.

use rowsource_tests::Server;
use rowsource_tests::documents::checkout;
use rowsource_tests::environment::environment;
use rowsource_tests::session::run_each;
use rowsource_tests::terminal::{certificates, run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const PASSWORD: &str = "hush hush'42";

/// What a connection must come to.
enum Comes {
    /// The log says this.
    Logged(&'static str),
    /// It fails, and the program says this.
    Fails(&'static str),
}
use Comes::{Fails, Logged};

/// A server that listens at an address of its own.
struct Place {
    server: Server,
    address: String,
    /// The files of its authority, of passwords and of services.
    authority: String,
    passwords: String,
    services: String,
    /// Never answers.
    silent: TcpListener,
}

fn place() -> Place {
    // Other servers may have the same port.
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{b}.{c}", a.saturating_add(1));
    let mut server = Server::preloaded(
        "terminal-options",
        &[
            "log_connections = on",
            "password_encryption = 'scram-sha-256'",
            &format!("listen_addresses = '{address}'"),
        ],
    );
    run_each(
        &mut server.connect(),
        &format!(
            "CREATE ROLE asked LOGIN PASSWORD '{}'; CREATE ROLE plain LOGIN; CREATE ROLE secure LOGIN; CREATE DATABASE other",
            PASSWORD.replace('\'', "''")
        ),
    );
    server.stop();
    let folder = server.folder().join("tls");
    fs::create_dir(&folder).expect("a folder");
    let authority = certificates(&folder);
    if environment().is_root {
        let status = Command::new("chown")
            .args(["-R", "postgres:"])
            .arg(&folder)
            .status();
        assert!(status.expect("chown runs").success());
    }
    let rules = "local all all trust\nhost all asked all scram-sha-256\nhostnossl all plain all trust\nhostssl all secure all trust\n";
    fs::write(server.data().join("pg_hba.conf"), rules).expect("the file of rules");
    server.configure("ssl = on");
    for (setting, file) in [("ssl_cert_file", "it.crt"), ("ssl_key_file", "it.key")] {
        server.configure(&format!("{setting} = '{}'", folder.join(file).display()));
    }
    server.launch();
    let passwords = format!("{address}:5432:postgres:asked:{PASSWORD}\n{address}:*:*:*:not this\n");
    let services = format!("[mine]\nhost={address}\nuser=plain\ndbname=other\n");
    Place {
        passwords: file(server.folder(), "passwords", &passwords),
        services: file(server.folder(), "services", &services),
        server,
        silent: TcpListener::bind((address.as_str(), 0)).expect("a port"),
        address,
        authority,
    }
}

/// Writes a file that only its owner may read, and returns its name.
fn file(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    fs::write(&file, text).expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("permissions");
    file.display().to_string()
}

/// Returns the options that the table of the book calls supported, each with its variable.
fn supported() -> BTreeMap<String, String> {
    let book = fs::read_to_string(checkout().join("docs/terminal.md")).expect("the chapter");
    let table = book.split("| connection options |").nth(1).expect("the table");
    let mut found = BTreeMap::new();
    for row in table.lines().skip(2).take_while(|line| line.starts_with('|')) {
        let mut cells = row.split('|').skip(1).map(str::trim);
        let words: Vec<&str> = cells.next().unwrap_or("").split('`').skip(1).step_by(2).collect();
        if cells.next().is_some_and(|says| says.starts_with("as libpq")) {
            found.extend(
                words
                    .chunks(2)
                    .map(|pair| (pair[0].to_owned(), pair[1].to_owned())),
            );
        }
    }
    found
}

impl Place {
    /// Replaces what stands in braces.
    fn value(&self, text: &str) -> String {
        let socket = self.server.folder().display().to_string();
        let silent = self.silent.local_addr().expect("its address").port().to_string();
        let words = [
            ("{silent}", silent.as_str()),
            ("{address}", self.address.as_str()),
            ("{authority}", &self.authority),
            ("{passwords}", &self.passwords),
            ("{services}", &self.services),
            ("{password}", PASSWORD),
            ("{socket}", &socket),
        ];
        words
            .iter()
            .fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
    }

    /// Reads options and their values.
    fn options<'a>(&self, text: &'a str) -> Vec<(&'a str, String)> {
        let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.map(|(option, value)| (option, self.value(value))).collect()
    }

    /// Runs the program with options, one of them in one of three ways, and looks at what comes of it.
    fn connects(&self, way: usize, options: &[(&str, String)], variable: &str, comes: &Comes) {
        let (strung, set) = match way {
            2 => (&options[1..], &options[..1]),
            _ => (options, &options[..0]),
        };
        let string: Vec<String> = if way == 1 {
            let pairs = strung.iter().map(|(option, value)| {
                let bytes = value.bytes().map(|byte| format!("%{byte:02x}"));
                format!("{option}={}", bytes.collect::<String>())
            });
            vec![format!("postgresql:///?{}", pairs.collect::<Vec<_>>().join("&"))]
        } else {
            let pairs = strung.iter().map(|(option, value)| {
                let escaped = value.replace('\\', "\\\\").replace('\'', "\\'");
                format!("{option} = '{escaped}'")
            });
            // One that says nothing, so that it is a connection string.
            pairs.chain(["sslcompression=0".to_owned()]).collect()
        };
        let mut variables = vec![("HOME", self.server.folder().display().to_string())];
        variables.extend(set.iter().map(|(_, value)| (variable, value.to_string())));
        let before = self.server.log().len();
        let arguments = [
            "-d",
            &string.join(" "),
            "top",
            "--view",
            "sessions",
            "--once",
            "--interval",
            "0.1",
        ];
        let output = run(&arguments, &variables);
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        let log = self.server.log().split_off(before);
        let told = format!("{way}: {options:?}\n{out}{err}\n{log}");
        match comes {
            Logged(text) => {
                assert!(
                    output.status.success() && out.starts_with("rowsource  PostgreSQL"),
                    "{told}"
                );
                assert!(log.contains(text), "no {text}: {told}");
            }
            Fails(text) => assert!(
                !output.status.success() && err.contains(text),
                "no {text}: {told}"
            ),
        }
    }
}

/// Options beside the one that is looked at. A word in braces stands for what [`Place::value`] returns.
const TCP: &str = "host={address} user=asked dbname=postgres password={password}";
const SOON: &str = "host={address} user=asked dbname=postgres connect_timeout=2";
const SILENT: &str = "host={address} port={silent} user=asked dbname=postgres";
const ASKED: &str = "host={address} user=asked dbname=postgres";
const LOCAL: &str = "host={socket} user=postgres dbname=postgres";
const PLAIN: &str = "host={address} user=plain dbname=postgres";
const SECURE: &str = "host={address} user=secure dbname=postgres";
const UNKNOWN: &str = "host=nothing.invalid user=secure dbname=postgres";
const CA: &str = "host=localhost hostaddr={address} user=secure dbname=postgres sslmode=verify-ca";
const FULL: &str = "host=localhost hostaddr={address} user=secure dbname=postgres sslmode=verify-full";
const LISTED: &str = "servicefile={services}";
const NAMED: &str = "service=mine";

const WITH_TLS: Comes = Logged("SSL enabled (protocol=TLSv1.");
const WITHOUT_TLS: Comes = Logged("connection authorized: user=plain");
const ASKED_IN: Comes = Logged("user=asked");

/// An option, its value, the options beside it, and what comes of them.
const CASES: &[(&str, &str, &str, Comes)] = &[
    ("host", "{address}", TCP, Logged("connection received: host=127.")),
    (
        "host",
        "{socket}",
        LOCAL,
        Logged("connection received: host=[local]"),
    ),
    (
        "host",
        "/nowhere,{address}",
        TCP,
        Logged("connection received: host=127."),
    ),
    (
        "host",
        "/nowhere,/nothing",
        TCP,
        Fails("/nowhere: error connecting"),
    ),
    ("hostaddr", "{address}", UNKNOWN, Logged("user=secure")),
    (
        "hostaddr",
        "localhost",
        TCP,
        Fails("hostaddr \"localhost\" is not an address"),
    ),
    ("port", "{silent}", SOON, Fails("no answer within 2 s")),
    ("port", "1", TCP, Fails("refused")),
    ("dbname", "other", TCP, Logged("database=other")),
    ("user", "plain", TCP, Logged("user=plain")),
    ("password", "{password}", TCP, ASKED_IN),
    (
        "password",
        "not this",
        TCP,
        Fails("password authentication failed"),
    ),
    ("passfile", "{passwords}", ASKED, ASKED_IN),
    (
        "passfile",
        "/nowhere",
        ASKED,
        Fails("the server wants a password"),
    ),
    ("service", "mine", LISTED, Logged("user=plain database=other")),
    (
        "service",
        "other",
        LISTED,
        Fails("definition of service \"other\" not found"),
    ),
    (
        "servicefile",
        "{services}",
        NAMED,
        Logged("user=plain database=other"),
    ),
    (
        "servicefile",
        "/nowhere",
        NAMED,
        Fails("service file \"/nowhere\""),
    ),
    ("connect_timeout", "3", SILENT, Fails("no answer within 3 s")),
    ("connect_timeout", "1", SILENT, Fails("no answer within 2 s")),
    ("connect_timeout", "-1", TCP, ASKED_IN),
    (
        "connect_timeout",
        "soon",
        TCP,
        Fails("connect_timeout is not a number"),
    ),
    (
        "application_name",
        "it's mine",
        TCP,
        Logged("application_name=it's mine"),
    ),
    ("options", "-c log_statement=all", LOCAL, Logged("statement: ")),
    ("sslmode", "disable", PLAIN, WITHOUT_TLS),
    ("sslmode", "disable", SECURE, Fails("no encryption")),
    ("sslmode", "allow", PLAIN, WITHOUT_TLS),
    ("sslmode", "allow", SECURE, WITH_TLS),
    ("sslmode", "prefer", PLAIN, WITHOUT_TLS),
    ("sslmode", "prefer", SECURE, WITH_TLS),
    ("sslmode", "require", SECURE, WITH_TLS),
    ("sslmode", "require", PLAIN, Fails("no pg_hba.conf entry")),
    ("sslmode", "require", LOCAL, Logged("user=postgres")),
    ("requiressl", "1", SECURE, WITH_TLS),
    ("requiressl", "1", PLAIN, Fails("no pg_hba.conf entry")),
    ("requiressl", "0", PLAIN, WITHOUT_TLS),
    ("sslmode", "verify-ca", SECURE, Fails("root certificate file")),
    ("sslrootcert", "{authority}", CA, WITH_TLS),
    ("sslrootcert", "{authority}", FULL, WITH_TLS),
    ("sslrootcert", "/etc/hosts", FULL, Fails("it has no certificate")),
    ("sslrootcert", "system", FULL, Fails("certificate")),
    ("channel_binding", "require", TCP, WITH_TLS),
    ("channel_binding", "disable", TCP, WITH_TLS),
    (
        "channel_binding",
        "never",
        TCP,
        Fails("invalid channel_binding value"),
    ),
    ("channel_binding", "require", PLAIN, Fails("channel binding")),
    ("target_session_attrs", "any", TCP, ASKED_IN),
    ("target_session_attrs", "read-write", TCP, ASKED_IN),
    (
        "target_session_attrs",
        "read-only",
        TCP,
        Fails("database is not read only"),
    ),
    ("target_session_attrs", "standby", TCP, Fails("is not supported")),
    ("gssencmode", "never", TCP, Fails("invalid gssencmode value")),
    ("gssencmode", "disable", TCP, ASKED_IN),
    ("gssencmode", "prefer", TCP, ASKED_IN),
    (
        "gssencmode",
        "require",
        TCP,
        Fails("gssencmode=require is not supported"),
    ),
];

#[test]
fn each_supported_option_is_libpqs_needs_program() {
    let place = place();
    let supported = supported();
    let covered: BTreeSet<&str> = CASES.iter().map(|(option, ..)| *option).collect();
    assert_eq!(covered, supported.keys().map(String::as_str).collect());
    for (option, value, beside, comes) in CASES {
        let mut options = vec![(*option, place.value(value))];
        options.extend(
            place
                .options(beside)
                .into_iter()
                .filter(|(other, _)| other != option),
        );
        for way in 0..3 {
            place.connects(way, &options, &supported[*option], comes);
        }
    }
    // A name that the certificate does not have.
    let other = FULL.replace("localhost", "other.invalid") + " sslrootcert={authority}";
    place.connects(0, &place.options(&other), "", &Fails("certificate"));
    // Whoever wants only reads gets a session that can do no more.
    let mut reads = place.options(TCP);
    let read_only = "-c default_transaction_read_only=on".to_owned();
    reads.extend([
        ("target_session_attrs", "read-only".to_owned()),
        ("options", read_only),
    ]);
    place.connects(0, &reads, "", &ASKED_IN);
    place.server.assert_no_crash();
}

/// What makes no difference here may be set.
#[test]
fn options_that_are_ignored_do_no_harm_needs_program() {
    let server = Server::preloaded("terminal-ignored", &[]);
    let string = format!(
        "host='{}' user=postgres dbname=postgres client_encoding=LATIN1 fallback_application_name=x keepalives=0
         keepalives_count=1 keepalives_idle=1 keepalives_interval=1 sslcompression=1 tcp_user_timeout=1",
        server.folder().display()
    );
    let arguments = [
        "-d",
        &string,
        "top",
        "--view",
        "sessions",
        "--once",
        "--interval",
        "0.1",
    ];
    let output = run(&arguments, &[("PGCLIENTENCODING", "LATIN1".to_owned())]);
    assert!(output.status.success(), "{output:?}");
}
