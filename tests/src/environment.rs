//! The locations of the server's programs and of the throwaway servers.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folders of one test run.
pub struct Environment {
    /// The checkout.
    pub root: PathBuf,
    /// The server's programs, inside the private tree.
    pub pgbin: PathBuf,
    /// What belongs to the servers; the account that runs them may write there.
    pub run: PathBuf,
    /// The folder of the servers.
    pub servers: PathBuf,
    /// Whether the tests run as root, so that servers must be started as `postgres`.
    pub is_root: bool,
}

/// Returns the environment, looked up once.
pub fn environment() -> &'static Environment {
    static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .canonicalize()
            .expect("the checkout");
        let (pgbin, run) = match (std::env::var_os("PGBIN"), std::env::var_os("ROWSOURCE_RUN")) {
            (Some(pgbin), Some(run)) => (PathBuf::from(pgbin), PathBuf::from(run)),
            _ => ask_script(&root),
        };
        let is_root = std::fs::metadata("/proc/self").expect("/proc/self").uid() == 0;
        let servers =
            std::env::var_os("ROWSOURCE_SERVERS").map_or_else(|| run.join("servers"), PathBuf::from);
        Environment {
            root,
            pgbin,
            run,
            servers,
            is_root,
        }
    })
}

fn ask_script(root: &Path) -> (PathBuf, PathBuf) {
    let output = Command::new(root.join("scripts/server.sh"))
        .arg("tree")
        .output()
        .expect("scripts/server.sh can be run");
    assert!(
        output.status.success(),
        "scripts/server.sh tree: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let pgbin = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let run = pgbin
        .ancestors()
        .find(|folder| folder.ends_with("tree"))
        .and_then(Path::parent)
        .expect("PGBIN lies inside RUN/tree")
        .to_path_buf();
    (pgbin, run)
}

/// Returns the output of `pg_config --OPTION` of the installed server (not of the private tree).
pub fn pg_config(option: &str) -> String {
    let program =
        std::env::var("PG_CONFIG").unwrap_or_else(|_| "/usr/lib/postgresql/15/bin/pg_config".to_string());
    let output = Command::new(program)
        .arg(option)
        .output()
        .expect("pg_config can be run");
    assert!(output.status.success(), "pg_config {option} failed");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Returns the library as `scripts/build.sh` built it for the server of `PG_CONFIG`, with the profile of
/// `ROWSOURCE_PROFILE`.
pub fn library() -> PathBuf {
    let output = Command::new("bash")
        .args(["-c", ". scripts/common.sh && library"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .expect("bash can be run");
    assert!(output.status.success(), "scripts/common.sh: {output:?}");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Returns the folder of the programs that read what the library writes (`tests/readers`).
pub fn readers() -> PathBuf {
    let installed = environment().root.join("target/tools/readers");
    std::env::var_os("ROWSOURCE_READERS").map_or(installed, PathBuf::from)
}

impl Environment {
    /// Returns the root of the server's files: that of the private tree (`DESTDIR` of `make install`), or `/`
    /// if a package is tested.
    pub fn tree(&self) -> PathBuf {
        let programs = self.pgbin.to_string_lossy();
        let root = programs
            .strip_suffix(&pg_config("--bindir"))
            .expect("PGBIN ends like PG_CONFIG's folder");
        PathBuf::from(if root.is_empty() { "/" } else { root })
    }

    /// Returns whether the server can load this library.
    pub fn has_library(&self, name: &str) -> bool {
        let folder = pg_config("--pkglibdir");
        let folder = self.tree().join(folder.trim_start_matches('/'));
        folder.join(format!("{name}.so")).exists()
    }

    /// Returns a command that runs as the servers' account, without environment variables that change the
    /// server's output. The kernel stops it when the calling thread ends, so nothing outlives an interrupted
    /// test.
    pub fn as_server(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "QUIT"]);
        if self.is_root {
            command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]);
        }
        command
            .arg("--")
            .arg(program)
            .current_dir(&self.run)
            .env("LC_ALL", "C.UTF-8");
        for name in [
            "RUST_BACKTRACE",
            // cargo-nextest sets it for the test process.
            "LD_LIBRARY_PATH",
            "PGDATA",
            "PGOPTIONS",
            "PGHOST",
            "PGPORT",
            "PGUSER",
            "PGDATABASE",
        ] {
            command.env_remove(name);
        }
        command
    }
}
