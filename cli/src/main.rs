//! `rowsource`: the terminal program of pg_rowsource.

use std::future::poll_fn;
use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::process::ExitCode;
use std::task::Poll;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::app::App;
use crate::args::{Arguments, Command, ConnectionArgs, OutputArgs, TopArgs, TopOptions};
use crate::connect::{Environment, Failure, Params, Reached, Target};
use crate::draw::Theme;
use crate::record::Recording;
use crate::screens::{Screen, View};
use crate::server::Connection;
use crate::top::{Source, Top};
use crate::worker::Worker;

mod actions;
mod app;
mod args;
mod connect;
mod data;
mod delta;
mod draw;
mod empty;
mod ending;
mod flame;
mod format;
mod hints;
mod json;
mod keys;
mod last_run;
mod live_plan;
mod man;
mod model;
mod news;
mod own;
mod password;
mod queries;
mod raw;
mod record;
mod screens;
mod screens_live;
mod screens_plan;
mod series;
mod server;
mod signals;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod texts;
mod title;
mod top;
mod worker;
mod working;

fn main() -> ExitCode {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| wrong_arguments(&error));
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rowsource: {}", format::one_line(&error));
            ExitCode::FAILURE
        }
    }
}

/// Ends with what is wrong, or with the help. A connection string that is no option is not printed: it may
/// have a password.
fn wrong_arguments(error: &clap::Error) -> ! {
    let text = error.to_string();
    let is_string = ["postgresql://", "postgres://", "password="].map(|part| text.contains(part));
    if error.use_stderr() && is_string.contains(&true) {
        eprintln!("rowsource: a connection string or URI is the value of -d, or follows top");
        std::process::exit(2);
    }
    error.exit()
}

/// Returns the options of a connection to a database that follows `top`.
fn connection_to(mut options: ConnectionArgs, database: Option<String>) -> ConnectionArgs {
    if database.is_some() && options.dbname.is_some() {
        let text = "the database is there twice: as -d, and after top";
        Arguments::command()
            .error(ErrorKind::ArgumentConflict, text)
            .exit();
    }
    options.dbname = options.dbname.or(database);
    options
}

/// Returns the command, or `top` if there is none: then the options of the screen may stand alone.
fn command_of(command: Option<Command>, options: TopOptions) -> Command {
    if command.is_some() && options != TopOptions::default() {
        let text = "options of the screen stand without a command, or after it";
        Arguments::command()
            .error(ErrorKind::ArgumentConflict, text)
            .exit();
    }
    command.unwrap_or(Command::Top(TopArgs {
        database: None,
        options,
    }))
}

fn run(mut arguments: Arguments) -> Result<(), String> {
    if let Some(Command::Top(top)) = &mut arguments.command {
        arguments.connection = connection_to(arguments.connection, top.database.take());
    }
    let connection = &arguments.connection;
    match command_of(arguments.command, arguments.top) {
        Command::Top(TopArgs { options, .. }) => show(
            connection,
            Screen::List(options.view.unwrap_or(View::Statements)),
            options,
        ),
        Command::Live { pid, top } => show(
            connection,
            Screen::LivePlan(pid),
            TopOptions {
                output: top,
                ..TopOptions::default()
            },
        ),
        Command::Plan {
            queryid,
            planid,
            format,
        } => {
            let planid = planid.map_or_else(|| "NULL".to_owned(), |planid| planid.to_string());
            print_lines(
                connection,
                &format!(
                    "rowsource_display({queryid}, {planid}, format => {})",
                    literal(&format)
                ),
            )
        }
        Command::Compare { queryid, a, b } => print_lines(
            connection,
            &format!("rowsource_compare({queryid}, {}, {})", literal(&a), literal(&b)),
        ),
        Command::Report {
            from,
            to,
            queryid,
            html,
            output,
        } => {
            let text = |moment: Option<String>| moment.map_or("NULL".to_owned(), |moment| literal(&moment));
            let format = if html { "html" } else { "text" };
            let queryid = queryid.map_or_else(String::new, |queryid| format!("{queryid}::int8, "));
            let call = format!(
                "rowsource_report({queryid}{}::text, {}::text, '{format}')",
                text(from),
                text(to)
            );
            match output {
                Some(file) => record::write_page(&file, &lines(connection, &call)?)
                    .map_err(|error| format!("{}: {error}", file.display())),
                None => print_lines(connection, &call),
            }
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "rowsource", &mut io::stdout());
            Ok(())
        }
        Command::Man => man::page(Arguments::command())
            .and_then(|page| io::stdout().write_all(page.as_bytes()))
            .map_err(|error| error.to_string()),
        Command::Keys => {
            keys::all()
                .iter()
                .for_each(|(name, does)| println!("{name}\t{does}"));
            Ok(())
        }
    }
}

/// Writes a text as a literal of SQL, whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''").replace('\\', "\\\\");
    if doubled.contains('\\') {
        format!("E'{doubled}'")
    } else {
        format!("'{doubled}'")
    }
}

fn show(arguments: &ConnectionArgs, screen: Screen, top: TopOptions) -> Result<(), String> {
    let TopOptions {
        output:
            OutputArgs {
                interval,
                read_only,
                once,
                json,
                no_color,
            },
        record,
        replay,
        ..
    } = top;
    let prints = once || json;
    if !prints && !io::stdout().is_terminal() {
        return Err("there is no terminal: --once or --json print the screen".to_owned());
    }
    let terminal = terminal::Terminal::new(|name| std::env::var_os(name));
    if let Some(why) = terminal.refuses().filter(|_| !prints) {
        return Err(why);
    }
    let interval = Duration::from_secs_f64(interval.unwrap_or(if prints { 1.0 } else { 2.0 }));
    let is_replay = replay.is_some();
    let (source, place) = match replay {
        Some(file) => {
            let recording = Recording::open(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            if recording.is_cut() {
                eprintln!(
                    "rowsource: warning: {}: it does not end with a whole line, so that its last refresh may be missing",
                    file.display()
                );
            }
            (
                Source::Recording(recording),
                format!("replay of {}", file.display()),
            )
        }
        None => {
            let reached = reach(arguments)?;
            let place = reached.place.clone();
            (
                Source::Server(Worker::start(reached).map_err(|error| error.to_string())?),
                place,
            )
        }
    };
    let record =
        record.map(|file| record::create(&file).map_err(|error| format!("{}: {error}", file.display())));
    let has_colour = !no_color && terminal.has_colour();
    let app = App::new(screen, place, interval, read_only || is_replay);
    let top = Top::new(app, source, record.transpose()?, Theme { has_colour });
    if prints {
        top.print(json)
    } else {
        top.run().map_err(|error| error.to_string())
    }
}

/// What is said of a password on the command line.
const VISIBLE_PASSWORD: &str = "others on this machine can see the password of the command line, as in ps: put it into \
                                ~/.pgpass, or let rowsource ask for it";

/// Returns the parameters of the options and of all other places, and whether the options have a password.
fn params(arguments: &ConnectionArgs, environment: &Environment) -> Result<(Params, bool), connect::Error> {
    let dbname = arguments.dbname.as_deref().unwrap_or("");
    let mut params = Params::default();
    // As psql: a connection string may stand for the database, and wins over options.
    if dbname.contains('=') || dbname.starts_with("postgresql://") || dbname.starts_with("postgres://") {
        params = Params::parse(dbname)?;
    } else if !dbname.is_empty() {
        params.set("dbname", dbname)?;
    }
    for (keyword, value) in [("host", &arguments.host), ("port", &arguments.port)] {
        if let Some(value) = value {
            params.set_default(keyword, value)?;
        }
    }
    if let Some(user) = &arguments.username {
        params.set_default("user", user)?;
    }
    let is_visible = params.get("password").is_some();
    params.complete(environment)?;
    Ok((params, is_visible))
}

/// Connects to the server, and asks for a password if it wants one.
fn reach(arguments: &ConnectionArgs) -> Result<Reached, String> {
    let environment = Environment::of_process();
    let (params, is_visible) = params(arguments, &environment).map_err(|error| error.to_string())?;
    if is_visible {
        eprintln!("rowsource: warning: {VISIBLE_PASSWORD}");
    }
    let user = params.get("user").unwrap_or("").to_owned();
    let ask = || password::ask(&user).map_err(|error| format!("password: {error}"));
    let make =
        |asked: Option<&str>| Target::new(&params, asked, &environment).map_err(|error| error.to_string());
    let asked = if arguments.password { Some(ask()?) } else { None };
    let mut target = make(asked.as_deref())?;
    for warning in &target.warnings {
        eprintln!("rowsource: warning: {}", format::one_line(warning));
    }
    // Whether a password is wanted shows only in an attempt.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let client = match runtime.block_on(target.connect()) {
        Err(Failure::PasswordNeeded) if arguments.no_password || !io::stdin().is_terminal() => {
            return Err(
                "the server wants a password: put it into ~/.pgpass, or run rowsource on a terminal"
                    .to_owned(),
            );
        }
        Err(Failure::PasswordNeeded) => {
            target = make(Some(&ask()?))?;
            let attempt = runtime.block_on(target.connect());
            attempt.map_err(text_of)?
        }
        Err(failure) => return Err(text_of(failure)),
        Ok(client) => client,
    };
    let place = format!(
        "{user}@{}/{}",
        target.host_names(),
        params.get("dbname").unwrap_or("")
    );
    Ok(Reached {
        target,
        place,
        client,
        runtime,
    })
}

fn text_of(failure: Failure) -> String {
    match failure {
        Failure::PasswordNeeded => "the server wants a password".to_owned(),
        Failure::NotThisWay(text) | Failure::Silent(text) | Failure::Other(text) => text,
    }
}

/// Returns the lines that a function of the extension writes.
fn lines(arguments: &ConnectionArgs, call: &str) -> Result<String, String> {
    let Reached {
        target,
        client,
        runtime,
        ..
    } = reach(arguments)?;
    let cancel = client.cancel_token();
    let connection = Connection::new(client);
    let answer = runtime.block_on(async {
        let mut lines = pin!(connection.lines(call, None));
        let mut interrupt = pin!(tokio::signal::ctrl_c());
        let answer = poll_fn(|context| match lines.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => interrupt.as_mut().poll(context).map(|_| None),
        });
        let answer = answer.await;
        if answer.is_none() {
            target.cancel(cancel).await;
        }
        answer
    });
    // As a shell says it of a program that Ctrl-C has ended.
    let Some(answer) = answer else {
        std::process::exit(130)
    };
    let lines = answer.map_err(|failure| failure.text().to_owned())?;
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// Prints them.
fn print_lines(arguments: &ConnectionArgs, call: &str) -> Result<(), String> {
    let text = lines(arguments, call)?;
    // Names and texts of statements may have what moves the cursor of a terminal.
    let text: String = text
        .lines()
        .map(|line| format::without_controls(line) + "\n")
        .collect();
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}
