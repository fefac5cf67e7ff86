//! Connection parameters: where they come from, and what wins.

use std::cell::Cell;
use std::fs;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use tokio_postgres::config::ChannelBinding;

use super::params::{KNOWN, Support};
use super::pgpass::{Found, Wanted, look_up};
use super::{Environment, Failure, Params, Target};
use crate::tests::fake_server::{Answer, FakeServer};

fn params(text: &str) -> Params {
    Params::parse(text).expect("a connection string")
}

fn error(text: &str) -> String {
    Params::parse(text).expect_err("an error").to_string()
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("rowsource-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

#[test]
fn keywords_and_uris_mean_the_same() {
    let keywords =
        params(r"host=db,other port = 5433,5434 user='o\'neil' password='a b' dbname=x sslmode=require");
    let uri = params("postgresql://o%27neil:a%20b@db:5433,other:5434/x?sslmode=require");
    assert_eq!(keywords, uri);
    assert_eq!(
        params("postgres://[::1]:5433/x"),
        params("host=::1 port=5433 dbname=x")
    );
    assert_eq!(
        params("postgresql:///x?host=/run/pg"),
        params("host=/run/pg dbname=x")
    );
    assert_eq!(params("postgresql://"), Params::default());
}

#[test]
fn what_is_wrong_or_not_supported_is_said() {
    assert_eq!(error("hots=x"), "invalid connection option \"hots\"");
    assert!(error("sslcert=x").contains("\"sslcert\" is not supported"));
    assert!(error("host").contains("missing \"=\""));
    assert!(error("host='x").contains("does not end"));
    assert!(error("postgresql://%zz/").contains("percent"));
    assert!(error("postgresql:///x?a").contains("missing \"=\""));
    let environment = Environment {
        read: |_| None,
        home: None,
        user: "me".to_owned(),
    };
    for (text, said) in [
        ("sslmode=never", "invalid sslmode"),
        ("port=x", "port is not"),
        ("host=a,b port=1,2,3", "different numbers"),
        ("host=a sslmode=verify-full", "does not exist"),
        ("host=a target_session_attrs=primary", "not supported"),
        ("host=a sslrootcert=system", "needs sslmode=verify-full"),
    ] {
        let found = Target::new(&params(text), None, &environment)
            .expect_err("an error")
            .to_string();
        assert!(found.contains(said), "{text}: {found}");
    }
}

/// Whatever is wrong, no word of a password is printed.
#[test]
fn errors_have_no_passwords() {
    for text in [
        "postgresql://u:secret%@h/d",
        "postgresql://u:secret%zz@h/d",
        "postgresql://u:secret%ff@h/d",
        "postgresql://u:se?secret@h/d",
        "postgresql://u:se?secret=1@h/d",
        "postgresql://[secret/d",
        "postgresql:///d?password=secret%zz",
        "password=my secret",
        "password='my secret",
        "password=my very secret host=x",
        "secret",
    ] {
        let said = error(text);
        assert!(!said.contains("secret"), "{text}: {said}");
    }
}

/// Whether the channel was bound shows nowhere on the server, so this looks at what is asked for.
#[test]
fn channels_are_bound_as_libpq_binds_them() {
    let environment = Environment {
        read: |_| None,
        home: None,
        user: "me".to_owned(),
    };
    for (text, expected) in [
        ("host=h", ChannelBinding::Prefer),
        ("host=h channel_binding=prefer", ChannelBinding::Prefer),
        ("host=h channel_binding=disable", ChannelBinding::Disable),
        ("host=h channel_binding=require", ChannelBinding::Require),
    ] {
        let target = Target::new(&params(text), None, &environment).expect("a target");
        let found = target.hosts[0].config.get_channel_binding();
        assert_eq!(found, expected, "{text}");
    }
}

/// The older name of `sslmode`, which libpq has kept.
#[test]
fn requiressl_is_an_older_name() {
    let environment = |read| Environment {
        read,
        home: None,
        user: "me".to_owned(),
    };
    let one = environment(|name| (name == "PGREQUIRESSL").then(|| "1".to_owned()));
    let both = environment(|name| match name {
        "PGREQUIRESSL" => Some("1".to_owned()),
        "PGSSLMODE" => Some("allow".to_owned()),
        _ => None,
    });
    for (text, environment, mode) in [
        ("", &one, "require"),
        ("sslmode=disable", &one, "disable"),
        ("", &both, "allow"),
        ("requiressl=1", &both, "require"),
        ("requiressl=0", &one, "prefer"),
        ("postgresql:///?requiressl=1", &both, "require"),
    ] {
        let mut found = params(text);
        found.complete(environment).expect("parameters");
        assert_eq!(found.get("sslmode"), Some(mode), "{text}");
    }
}

#[test]
fn options_win_over_the_service_that_wins_over_variables() {
    let folder = Folder::new("service");
    // What is said of another service is in another encoding.
    let file = b"# gr\xfcn\n[other]\nhost=\xfc\n\n[mine]\nhost=from-service\nport=1\n";
    fs::write(folder.0.join(".pg_service.conf"), file).expect("a file");
    let read = |name: &str| match name {
        "PGSERVICE" => Some("mine".to_owned()),
        "PGHOST" | "PGUSER" => Some("from-variable".to_owned()),
        _ => None,
    };
    let environment = Environment {
        read,
        home: Some(folder.0.clone()),
        user: "me".to_owned(),
    };
    let mut found = params("port=2");
    found.complete(&environment).expect("parameters");
    assert_eq!(found.get("host"), Some("from-service"));
    assert_eq!(found.get("port"), Some("2"));
    assert_eq!(found.get("user"), Some("from-variable"));
    assert_eq!(found.get("dbname"), Some("from-variable"));
    let error = params("service=none")
        .complete(&environment)
        .expect_err("an error")
        .to_string();
    assert_eq!(error, "definition of service \"none\" not found");
    let error = params("service=other")
        .complete(&environment)
        .expect_err("an error");
    assert_eq!(error.to_string(), "service \"other\": a line is not UTF-8");
}

#[test]
fn the_password_file_is_libpqs() {
    let folder = Folder::new("pgpass");
    let text =
        "# a comment\nother:*:*:*:no\nlocalhost:5432:x:me:first\nh\\:1:5432:*:me:a\\:b\\\\\n*:*:*:me:last";
    let file = folder.write("pgpass", text, 0o600);
    // A line in another encoding, before the one that fits.
    let with_latin1 = [
        b"db\xfc:*:*:me:no\n# \xff\n",
        text.as_bytes(),
        b"\n*:*:*:latin1:gr\xfcn",
    ]
    .concat();
    fs::write(&file, with_latin1).expect("a file");
    let look = |host, port, dbname, user| {
        look_up(
            &file,
            &Wanted {
                host,
                port,
                dbname,
                user,
            },
        )
    };
    assert_eq!(
        look("localhost", 5432, "x", "me"),
        Found::Password(b"first".to_vec())
    );
    assert_eq!(look("h:1", 5432, "x", "me"), Found::Password(b"a:b\\".to_vec()));
    assert_eq!(
        look("localhost", 5433, "x", "me"),
        Found::Password(b"last".to_vec())
    );
    let green = Found::Password(b"gr\xfcn".to_vec());
    assert_eq!(look("localhost", 5433, "x", "latin1"), green);
    assert_eq!(look("localhost", 5433, "x", "you"), Found::Nothing);
    let open = folder.write("open", text, 0o644);
    let found = look_up(
        &open,
        &Wanted {
            host: "localhost",
            port: 5432,
            dbname: "x",
            user: "me",
        },
    );
    assert!(matches!(found, Found::Refused(why) if why.contains("chmod 0600")));
}

thread_local! {
    /// The only variable that is set.
    static SET: Cell<&'static str> = const { Cell::new("") };
}

#[test]
fn each_option_that_is_not_supported_is_an_error_from_wherever_it_comes() {
    let environment = Environment {
        read: |name| (name == SET.get()).then(|| "x".to_owned()),
        home: None,
        user: "me".to_owned(),
    };
    let mut count = 0;
    for (keyword, variable, _) in KNOWN.iter().filter(|(.., support)| *support == Support::No) {
        let says = format!("connection option \"{keyword}\" is not supported by rowsource: leave it out");
        assert_eq!(error(&format!("{keyword}=x")), says);
        assert_eq!(error(&format!("postgresql:///?{keyword}=x")), says);
        // An empty value is the default.
        params(&format!("{keyword}=''"));
        SET.set(variable);
        let found = Params::default().complete(&environment);
        let expected = if variable.is_empty() { Ok(()) } else { Err(says) };
        assert_eq!(found.map_err(|error| error.to_string()), expected, "{variable}");
        count += 1;
    }
    assert!(count > 20);
    SET.set("PGGSSENCMODE");
    let found = Params::default().complete(&environment).expect_err("an error");
    assert_eq!(found.to_string(), "invalid gssencmode value: \"x\"");
    let found = params("gssencmode=require").complete(&environment);
    assert!(
        found
            .expect_err("an error")
            .to_string()
            .contains("gssencmode=require")
    );
}

/// Each option stands in one row of the table, with its variable, and the row says what the program does.
#[test]
fn the_book_lists_what_is_supported() {
    let book = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/terminal.md");
    let book = fs::read_to_string(book).expect("the book");
    let table = book.split("| connection options |").nth(1).expect("the table");
    let rows: Vec<(Vec<&str>, &str)> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.split('|').skip(1).map(str::trim);
            let words = cells.next().unwrap_or("").split('`').skip(1).step_by(2);
            (words.collect(), cells.next().unwrap_or(""))
        })
        .collect();
    for (keyword, variable, support) in KNOWN {
        let of_it: Vec<_> = rows.iter().filter(|(words, _)| words.contains(keyword)).collect();
        let [(words, says)] = of_it[..] else {
            panic!("{keyword}: {of_it:?}");
        };
        let begins = match support {
            Support::Yes => "as libpq",
            Support::Ignored => "ignored",
            Support::No => "an error",
        };
        assert!(says.starts_with(begins), "{keyword}: {says}");
        assert!(variable.is_empty() || words.contains(variable), "{variable}");
    }
    let known = |word: &&str| {
        KNOWN
            .iter()
            .any(|(keyword, variable, _)| word == keyword || word == variable)
    };
    let unknown: Vec<_> = rows
        .iter()
        .flat_map(|(words, _)| words)
        .filter(|word| !known(word))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_socket_without_a_file_is_an_error_that_says_so() {
    let params = params("host=@postgres user=x dbname=x");
    let error = Target::new(&params, None, &no_environment()).expect_err("an error");
    assert!(
        error
            .to_string()
            .contains("host \"@postgres\" is a socket without a file"),
        "{error}"
    );
}

fn no_environment() -> Environment {
    Environment {
        read: |_| None,
        home: None,
        user: "me".to_owned(),
    }
}

/// A name may stand for an address that does not answer, such as one of IPv6, and for one that does.
#[test]
fn each_address_of_a_name_has_its_own_time() {
    let server = FakeServer::start(|_| Answer::Nothing);
    let port = server.port;
    // It takes connections, and says nothing.
    let _silent = TcpListener::bind(("127.0.0.2", port)).expect("the same port of another address");
    let environment = no_environment();
    for mode in ["disable", "prefer", "allow"] {
        let params = params(&format!(
            "host=db port={port} user=x dbname=x connect_timeout=2 sslmode={mode}"
        ));
        let target = Target::new(&params, None, &environment).expect("a target");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let connect = |addresses: &[[u8; 4]]| {
            let addresses: Vec<_> = addresses.iter().map(|it| Some(IpAddr::from(*it))).collect();
            let attempt = target.connect_to_one_of(&target.hosts[0], &addresses);
            runtime.as_ref().expect("a runtime").block_on(attempt)
        };
        let both = connect(&[[127, 0, 0, 2], [127, 0, 0, 1]]);
        assert!(both.is_ok(), "{mode}: {both:?}");
    }
}

#[test]
fn what_each_address_says_is_told() {
    // Nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let _silent = TcpListener::bind(("127.0.0.2", port)).expect("the same port of another address");
    let params = params(&format!(
        "host=db port={port} user=x dbname=x connect_timeout=2 sslmode=disable"
    ));
    let target = Target::new(&params, None, &no_environment()).expect("a target");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let says = |addresses: &[[u8; 4]]| {
        let addresses: Vec<_> = addresses.iter().map(|it| Some(IpAddr::from(*it))).collect();
        match runtime.block_on(target.connect_to_one_of(&target.hosts[0], &addresses)) {
            Err(Failure::Silent(text)) => format!("silent: {text}"),
            Err(Failure::Other(text)) => text,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(says(&[[127, 0, 0, 2]]), "silent: db: no answer within 2 s");
    let refused = "error connecting to server: Connection refused (os error 111)";
    assert_eq!(
        says(&[[127, 0, 0, 2], [127, 0, 0, 1]]),
        format!("db (127.0.0.2): no answer within 2 s; db (127.0.0.1): {refused}")
    );
    assert_eq!(says(&[[127, 0, 0, 1], [127, 0, 0, 3]]), format!("db: {refused}"));
}
