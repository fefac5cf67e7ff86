//! Each connection option of `docs/terminal.md` that the program supports, against a server with TLS and
//! passwords: in a connection string, in a URI, and as a variable.

use rowsource_tests::Server;
use rowsource_tests::documents::checkout;
use rowsource_tests::environment::environment;
use rowsource_tests::session::run_each;
use rowsource_tests::terminal::{certificates, run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
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
    authority: String,
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
    Place {
        server,
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
    /// Runs the program with options, one of them in one of three ways, and looks at what comes of it.
    fn connects(&self, way: usize, options: &[(&str, &str)], variable: &str, comes: &Comes) {
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

#[test]
fn each_supported_option_is_libpqs_needs_program() {
    let place = place();
    let folder = place.server.folder().to_path_buf();
    let socket = folder.display().to_string();
    let (address, authority) = (place.address.as_str(), place.authority.as_str());
    let both = format!("/nowhere,{address}");
    let passwords = file(
        &folder,
        "passwords",
        &format!("{address}:5432:postgres:asked:{PASSWORD}\n{address}:*:*:*:not this\n"),
    );
    let services = file(
        &folder,
        "services",
        &format!("[mine]\nhost={address}\nuser=plain\ndbname=other\n"),
    );
    let tcp = [
        ("host", address),
        ("user", "asked"),
        ("dbname", "postgres"),
        ("password", PASSWORD),
    ];
    let local = [
        ("host", socket.as_str()),
        ("user", "postgres"),
        ("dbname", "postgres"),
    ];
    let plain = [("host", address), ("user", "plain"), ("dbname", "postgres")];
    let secure = [("host", address), ("user", "secure"), ("dbname", "postgres")];
    let named = [
        ("host", "localhost"),
        ("user", "secure"),
        ("dbname", "postgres"),
        ("hostaddr", address),
    ];
    let listed = [("servicefile", services.as_str())];
    let (with_tls, without) = (
        "SSL enabled (protocol=TLSv1.",
        "connection authorized: user=plain",
    );
    // The option, its value, the options beside it, and what comes of them.
    type Case<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], Comes);
    let rooted =
        |mode: &'static str| [named.as_slice(), &[("sslmode", mode), ("sslrootcert", authority)]].concat();
    let (ca, full) = (rooted("verify-ca"), rooted("verify-full"));
    let cases: Vec<Case> = vec![
        ("host", address, &tcp, Logged("connection received: host=127.")),
        (
            "host",
            &socket,
            &local,
            Logged("connection received: host=[local]"),
        ),
        ("host", &both, &tcp, Logged("connection received: host=127.")),
        (
            "host",
            "/nowhere,/nothing",
            &tcp,
            Fails("/nowhere: error connecting"),
        ),
        (
            "hostaddr",
            address,
            &[
                ("host", "nothing.invalid"),
                ("user", "secure"),
                ("dbname", "postgres"),
            ],
            Logged("user=secure"),
        ),
        (
            "hostaddr",
            "localhost",
            &tcp,
            Fails("hostaddr \"localhost\" is not an address"),
        ),
        ("port", "5432", &tcp, Logged("user=asked")),
        ("port", "1", &tcp, Fails("refused")),
        ("dbname", "other", &tcp, Logged("database=other")),
        ("user", "plain", &tcp, Logged("user=plain")),
        ("password", PASSWORD, &tcp, Logged("user=asked")),
        (
            "password",
            "not this",
            &tcp,
            Fails("password authentication failed"),
        ),
        ("passfile", &passwords, &tcp[..3], Logged("user=asked")),
        (
            "passfile",
            "/nowhere",
            &tcp[..3],
            Fails("the server wants a password"),
        ),
        ("service", "mine", &listed, Logged("user=plain database=other")),
        (
            "service",
            "other",
            &listed,
            Fails("definition of service \"other\" not found"),
        ),
        (
            "servicefile",
            &services,
            &[("service", "mine")],
            Logged("user=plain database=other"),
        ),
        (
            "servicefile",
            "/nowhere",
            &[("service", "mine")],
            Fails("service file \"/nowhere\""),
        ),
        ("connect_timeout", "5", &tcp, Logged("user=asked")),
        ("connect_timeout", "-1", &tcp, Logged("user=asked")),
        (
            "connect_timeout",
            "soon",
            &tcp,
            Fails("connect_timeout is not a number"),
        ),
        (
            "application_name",
            "it's mine",
            &tcp,
            Logged("application_name=it's mine"),
        ),
        ("options", "-c log_statement=all", &local, Logged("statement: ")),
        ("sslmode", "disable", &plain, Logged(without)),
        ("sslmode", "disable", &secure, Fails("no encryption")),
        ("sslmode", "allow", &plain, Logged(without)),
        ("sslmode", "allow", &secure, Logged(with_tls)),
        ("sslmode", "prefer", &plain, Logged(without)),
        ("sslmode", "prefer", &secure, Logged(with_tls)),
        ("sslmode", "require", &secure, Logged(with_tls)),
        ("sslmode", "require", &plain, Fails("no pg_hba.conf entry")),
        ("sslmode", "require", &local, Logged("user=postgres")),
        ("sslmode", "verify-ca", &secure, Fails("root certificate file")),
        ("sslrootcert", authority, &ca[..5], Logged(with_tls)),
        ("sslrootcert", authority, &full[..5], Logged(with_tls)),
        (
            "sslrootcert",
            "/etc/hosts",
            &full[..5],
            Fails("it has no certificate"),
        ),
        ("sslrootcert", "system", &full[..5], Fails("certificate")),
        ("channel_binding", "require", &tcp, Logged(with_tls)),
        ("channel_binding", "disable", &tcp, Logged(with_tls)),
        ("channel_binding", "require", &plain, Fails("channel binding")),
        ("target_session_attrs", "any", &tcp, Logged("user=asked")),
        ("target_session_attrs", "read-write", &tcp, Logged("user=asked")),
        (
            "target_session_attrs",
            "read-only",
            &tcp,
            Fails("database is not read only"),
        ),
        ("target_session_attrs", "standby", &tcp, Fails("is not supported")),
        ("gssencmode", "disable", &tcp, Logged("user=asked")),
        ("gssencmode", "prefer", &tcp, Logged("user=asked")),
        (
            "gssencmode",
            "require",
            &tcp,
            Fails("gssencmode=require is not supported"),
        ),
    ];
    let supported = supported();
    let covered: BTreeSet<&str> = cases.iter().map(|(option, ..)| *option).collect();
    assert_eq!(covered, supported.keys().map(String::as_str).collect());
    for (option, value, beside, comes) in &cases {
        let others = beside.iter().filter(|(other, _)| other != option).copied();
        let options: Vec<_> = std::iter::once((*option, *value)).chain(others).collect();
        for way in 0..3 {
            place.connects(way, &options, &supported[*option], comes);
        }
    }
    // A name that the certificate does not have.
    let mut other = full.clone();
    other[0].1 = "other.invalid";
    place.connects(0, &other, "", &Fails("certificate"));
    // Whoever wants only reads gets a session that can do no more.
    let mut reads = tcp.to_vec();
    reads.extend([
        ("target_session_attrs", "read-only"),
        ("options", "-c default_transaction_read_only=on"),
    ]);
    place.connects(0, &reads, "", &Logged("user=asked"));
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
