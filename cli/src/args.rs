//! The options of the command line. The man page and the completions are made of the same declarations.

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::screens::View;

/// Shows what a PostgreSQL server does, down to each node of each plan
#[derive(Debug, Parser)]
#[command(
    name = "rowsource",
    version,
    disable_help_flag = true,
    after_help = "Connections are made as psql makes them: with a connection string or URI, the options above, the variables PGHOST, \
                  PGPORT, PGUSER, PGDATABASE, PGSERVICE, PGSSLMODE and others, the service file and ~/.pgpass. A password is asked \
                  for, and is never an option."
)]
pub struct Arguments {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    #[command(flatten)]
    pub top: TopOptions,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// How to connect.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ConnectionArgs {
    /// Host of the server, or folder of its socket
    #[arg(short = 'h', long, global = true, value_name = "HOST")]
    pub host: Option<String>,
    /// Port of the server
    #[arg(short = 'p', long, global = true, value_name = "PORT")]
    pub port: Option<String>,
    /// User to connect as
    #[arg(short = 'U', long = "username", global = true, value_name = "USER")]
    pub username: Option<String>,
    /// Database to connect to, or a connection string or URI
    #[arg(short = 'd', long = "dbname", global = true, value_name = "DATABASE")]
    pub dbname: Option<String>,
    /// Never ask for a password
    #[arg(short = 'w', long, global = true, conflicts_with = "password")]
    pub no_password: bool,
    /// Ask for a password before connecting
    #[arg(short = 'W', long, global = true)]
    pub password: bool,
    /// Print this help
    #[arg(short = '?', long, global = true, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// What to show.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show a screen that moves (the default)
    Top(TopArgs),
    /// Show the plan that a process runs, as it moves
    Live {
        /// The process, as in pg_stat_activity
        pid: i64,
        #[command(flatten)]
        top: OutputArgs,
    },
    /// Print a plan of a statement, with the figures of each node
    Plan {
        /// The statement, as in pg_stat_statements
        #[arg(allow_negative_numbers = true)]
        queryid: i64,
        /// One of its plans; without it, the one that took the most time
        #[arg(allow_negative_numbers = true)]
        planid: Option<i64>,
        /// The format, as rowsource_display() has it
        #[arg(long, default_value = "ALLSTATS")]
        format: String,
    },
    /// Print why a statement takes longer than before
    Compare {
        /// The statement
        #[arg(allow_negative_numbers = true)]
        queryid: i64,
        /// What was: a planid, an interval, or what else rowsource_compare() takes
        #[arg(allow_hyphen_values = true)]
        a: String,
        /// What is
        #[arg(allow_hyphen_values = true)]
        b: String,
    },
    /// Print what happened, and what to look at next
    Report {
        /// From when on: 14:05, a timestamp, or how long ago; the last hour without it
        from: Option<String>,
        /// Until when; now without it
        to: Option<String>,
        /// Only this statement
        #[arg(long, allow_negative_numbers = true)]
        queryid: Option<i64>,
        /// As an HTML page
        #[arg(long)]
        html: bool,
        /// Write it to a file
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print the completions of a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page
    #[command(hide = true)]
    Man,
    /// Print the keys of top, with the names that tmux has for them
    #[command(hide = true)]
    Keys,
}

/// The heading of the options of the screen.
pub const SCREEN: &str = "Screen";

/// What top shows, and of which database.
#[derive(Debug, Default, Args)]
pub struct TopArgs {
    /// Database to connect to, or a connection string or URI, as with -d
    #[arg(value_name = "DATABASE", conflicts_with = "replay")]
    pub database: Option<String>,
    #[command(flatten)]
    pub options: TopOptions,
}

/// What top shows, and how. They may stand without `top`, too.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = SCREEN)]
pub struct TopOptions {
    /// The view to begin with
    #[arg(long, value_enum)]
    pub view: Option<View>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Write each refresh to a file, with all views
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub record: Option<PathBuf>,
    /// Show what was recorded, without a server
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
}

/// How it is shown.
#[derive(Debug, Default, PartialEq, Args)]
#[command(next_help_heading = SCREEN)]
pub struct OutputArgs {
    /// Seconds between two refreshes
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<f64>,
    /// Never cancel statements or terminate sessions
    #[arg(long)]
    pub read_only: bool,
    /// Print the screen once, after one interval
    #[arg(long)]
    pub once: bool,
    /// Print it as JSON, with all columns and rows
    #[arg(long)]
    pub json: bool,
    /// Show no colours, as with the variable NO_COLOR
    #[arg(long)]
    pub no_color: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().map_err(|_| "not a number".to_owned())?;
    if (0.1..=3600.0).contains(&value) {
        Ok(value)
    } else {
        Err("not from 0.1 to 3600".to_owned())
    }
}
