//! The man page: one page with the options of all subcommands, made of the declarations of the command line.

use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;

use crate::args::SCREEN;
use crate::keys;

/// Returns the man page of a program whose subcommands have options of their own.
pub fn page(command: Command) -> io::Result<String> {
    let version = command.get_version().unwrap_or("").to_owned();
    let (mut top, mut commands, mut rest) = (Vec::new(), ".SH COMMANDS\n".to_owned(), Vec::new());
    for subcommand in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        commands += &section(subcommand)?;
    }
    // They stand with `top`.
    let command = command.mut_args(|argument| {
        let is_hidden = argument.is_hide_set() || is_of_screen(&argument);
        argument.hide(is_hidden)
    });
    let man = Man::new(command).date("").manual("pg_rowsource");
    man.render_title(&mut top)?;
    man.render_name_section(&mut top)?;
    man.render_synopsis_section(&mut top)?;
    man.render_description_section(&mut top)?;
    man.render_options_section(&mut rest)?;
    man.render_extra_section(&mut rest)?;
    let rest = text(rest)?.replace(".SH EXTRA\n", ".PP\n");
    Ok(format!(
        "{}{commands}{rest}{}.SH VERSION\n{version}\n",
        text(top)?,
        keys::man()
    ))
}

/// Returns whether an option is one of the screen: it stands without a command, too.
fn is_of_screen(argument: &Arg) -> bool {
    argument.get_help_heading() == Some(SCREEN)
}

/// Returns the part of one subcommand: how it is called, what it does, and its arguments and options.
fn section(subcommand: &Command) -> io::Result<String> {
    let name = format!("rowsource {}", subcommand.get_name());
    // -h is the host.
    let man = Man::new(subcommand.clone().bin_name(&name).disable_help_flag(true));
    let mut body = Vec::new();
    man.render_synopsis_section(&mut body)?;
    body.extend(b".PP\n");
    man.render_description_section(&mut body)?;
    man.render_options_section(&mut body)?;
    let body = text(body)?;
    let lines = body
        .lines()
        .filter(|line| !line.starts_with(".SH ") && !is_preamble(line));
    Ok(
        lines.fold(format!(".SS {}\n", subcommand.get_name()), |all, line| {
            all + line + "\n"
        }),
    )
}

/// Returns whether a line only defines a string, which each part that is rendered does.
fn is_preamble(line: &str) -> bool {
    line.starts_with(".ie ") || line.starts_with(".el ")
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::args::Arguments;

    /// Returns the page without its commands for bold and cursive.
    fn plain() -> String {
        let page = page(Arguments::command()).expect("a page");
        ["\\fB", "\\fI", "\\fR"]
            .iter()
            .fold(page, |page, font| page.replace(font, ""))
            .replace("\\-", "-")
    }

    /// Returns what stands below a heading, up to the next one.
    fn part<'a>(page: &'a str, heading: &str) -> &'a str {
        let begin = page
            .find(&format!("{heading}\n"))
            .unwrap_or_else(|| panic!("no {heading}"));
        let rest = &page[begin + heading.len()..];
        let end = rest.find("\n.S").unwrap_or(rest.len());
        &rest[..end]
    }

    #[test]
    fn each_subcommand_and_each_of_its_options_is_in_the_page() {
        let (mut command, page) = (Arguments::command(), plain());
        command.build();
        let is_own = |argument: &&clap::Arg| !argument.is_global_set() && !argument.is_hide_set();
        let subcommands = command
            .get_subcommands()
            .filter(|it| !it.is_hide_set() && it.get_name() != "help");
        let mut names = Vec::new();
        for subcommand in subcommands {
            names.push(subcommand.get_name());
            let part = part(&page, &format!(".SS {}", subcommand.get_name()));
            assert!(
                part.contains(&subcommand.get_about().expect("a text").to_string()),
                "{part}"
            );
            for argument in subcommand.get_arguments().filter(is_own) {
                let heading = match argument.get_long() {
                    Some(long) => format!("--{long}"),
                    None => argument.get_value_names().expect("a name")[0].to_string(),
                };
                let help = argument.get_help().expect("a text").to_string();
                let entry = part.split(".TP\n").find(|entry| {
                    let first = entry.lines().next().unwrap_or_default();
                    first
                        .split(&[' ', ',', '<', '>', '[', ']'][..])
                        .any(|word| word == heading)
                });
                assert!(
                    entry.is_some_and(|entry| entry.contains(&help)),
                    "{heading}: {part}"
                );
            }
        }
        assert_eq!(names, ["top", "live", "plan", "compare", "report"]);
        let hidden = ["completions", "man", "keys"];
        assert!(
            hidden.iter().all(|name| !page.contains(&format!(".SS {name}"))),
            "{page}"
        );
    }

    #[test]
    fn the_options_of_connections_stand_once_and_h_is_the_host() {
        let page = plain();
        let command = Arguments::command();
        for argument in command.get_arguments().filter(|argument| !is_of_screen(argument)) {
            let long = argument.get_long().expect("an option");
            let entries = page.matches(&format!(", --{long}")).count();
            assert_eq!(entries, 1, "{long}: {page}");
        }
        assert!(part(&page, ".SH CONNECTION").contains("-h, --host"));
        assert_eq!(page.matches("-h, ").count(), 1, "{page}");
        // No line of another page remains.
        assert_eq!(page.matches(".TH ").count(), 1);
        assert!(!page.contains("rowsource-top(1)"));
    }
}
