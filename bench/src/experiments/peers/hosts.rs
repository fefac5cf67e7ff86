//! Servers with other extensions. Each set of libraries has its own server over a copy of the same data. Only
//! one server works at a time.

use crate::measure::context::ExperimentContext;
use crate::measure::session::Session;
use rowsource_tests::Server;
use rowsource_tests::environment::environment;

/// A server with its libraries.
pub struct Host {
    name: &'static str,
    libraries: &'static [&'static str],
    settings: &'static [&'static str],
}

pub const HOSTS: [Host; 8] = [
    Host {
        name: "bare",
        libraries: &[],
        settings: &[],
    },
    Host {
        name: "rowsource",
        libraries: &["pg_rowsource"],
        settings: &[],
    },
    Host {
        name: "statements",
        libraries: &["pg_stat_statements"],
        settings: &[],
    },
    Host {
        name: "explain",
        libraries: &["auto_explain"],
        // Measures everything and logs nothing, because logging plans is a cost of its own.
        settings: &[
            "auto_explain.log_min_duration = '1h'",
            "auto_explain.log_analyze = on",
        ],
    },
    Host {
        name: "kcache",
        libraries: &["pg_stat_statements", "pg_stat_kcache"],
        settings: &[],
    },
    Host {
        name: "monitor",
        libraries: &["pg_stat_monitor"],
        settings: &[],
    },
    Host {
        name: "plans",
        libraries: &["pg_store_plans"],
        settings: &[
            "pg_store_plans.log_analyze = on",
            "pg_store_plans.log_timing = on",
        ],
    },
    Host {
        name: "tracing",
        libraries: &["pg_tracing"],
        settings: &["pg_tracing.sample_rate = 1.0"],
    },
];

/// More servers for short statements: a second one with nothing loaded, which shows how far two servers
/// differ by themselves, and the pair of extensions that does most of what pg_rowsource does.
pub const SHORT_STATEMENT_HOSTS: [Host; 2] = [
    Host {
        name: "bare-again",
        libraries: &[],
        settings: &[],
    },
    Host {
        name: "statements-explain",
        libraries: &["pg_stat_statements", "auto_explain"],
        settings: &[
            "auto_explain.log_min_duration = '1h'",
            "auto_explain.log_analyze = on",
            "auto_explain.log_buffers = on",
        ],
    },
];

/// One line of the comparison: its name, its host, and the settings of its session.
pub struct Variant {
    pub name: &'static str,
    host: &'static str,
    settings: &'static [(&'static str, &'static str)],
}

const fn variant(
    name: &'static str,
    host: &'static str,
    settings: &'static [(&'static str, &'static str)],
) -> Variant {
    Variant { name, host, settings }
}

/// The first variant is the base of the ratios.
pub static VARIANTS: [Variant; 13] = [
    variant("nothing loaded", "bare", &[]),
    variant("nothing loaded, another server", "bare-again", &[]),
    variant(
        "pg_rowsource, basic",
        "rowsource",
        &[("pg_rowsource.statistics_level", "basic")],
    ),
    variant("pg_rowsource, sampfreq 128", "rowsource", &[]),
    variant(
        "pg_rowsource, sampfreq 1",
        "rowsource",
        &[("pg_rowsource.sampfreq", "1")],
    ),
    variant("pg_stat_statements", "statements", &[]),
    variant(
        "auto_explain, analyze, timing off",
        "explain",
        &[("auto_explain.log_timing", "off")],
    ),
    variant(
        "auto_explain, analyze, buffers",
        "explain",
        &[("auto_explain.log_buffers", "on")],
    ),
    variant("pg_stat_statements + auto_explain", "statements-explain", &[]),
    variant("pg_stat_statements + pg_stat_kcache", "kcache", &[]),
    variant("pg_stat_monitor", "monitor", &[]),
    variant("pg_store_plans, analyze", "plans", &[]),
    variant("pg_tracing, all", "tracing", &[]),
];

/// The servers whose libraries are installed here.
pub struct Hosts {
    servers: Vec<(&'static str, Server)>,
}

impl Hosts {
    /// Starts each host over a copy of the stopped server's data. Records which libraries are not installed.
    pub fn start<'a>(
        context: &mut ExperimentContext,
        hosts: impl IntoIterator<Item = &'a Host>,
        original: &Server,
        settings: &[&str],
    ) -> Hosts {
        let mut servers = Vec::new();
        for host in hosts {
            if let Some(missing) = host
                .libraries
                .iter()
                .find(|library| !environment().has_library(library))
            {
                context.finding(format!("{missing} is not installed here and is not compared."));
                continue;
            }
            let preload = format!("shared_preload_libraries = '{}'", host.libraries.join(", "));
            let mut all = vec![preload.as_str()];
            all.extend(host.settings);
            all.extend(settings);
            let server = Server::copy_of(original, host.name, &all);
            let mut client = server.connect();
            for library in host.libraries {
                // Some libraries have no extension to create.
                let _ = client.batch_execute(&format!("CREATE EXTENSION {library}"));
            }
            servers.push((host.name, server));
        }
        Hosts { servers }
    }

    fn find(&self, host: &str) -> Option<&Server> {
        self.servers
            .iter()
            .find(|(name, _)| *name == host)
            .map(|(_, server)| server)
    }

    /// Returns the variants whose hosts run here.
    pub fn variants(&self) -> Vec<(&'static Variant, &Server)> {
        VARIANTS
            .iter()
            .filter_map(|variant| self.find(variant.host).map(|server| (variant, server)))
            .collect()
    }
}

impl Variant {
    /// Returns the settings in the form of PGOPTIONS.
    pub fn options(&self) -> String {
        let options: Vec<String> = self
            .settings
            .iter()
            .map(|(name, value)| format!("-c {name}={value}"))
            .collect();
        options.join(" ")
    }

    /// Opens a session with the settings.
    pub fn session(&self, server: &Server) -> Session {
        let mut session = Session::new(server);
        for (name, value) in self.settings {
            session.run(&format!("SET {name} = {value}"));
        }
        session
    }
}
