//! `turnpoint man`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_mangen::Man;
use serde::Serialize;
use turnpoint::Error;
use turnpoint::path::{printable, shell_path};

use crate::cli::arguments::{Arguments, ManArguments};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::json::PathDocument;

/// What the names stand for that the arguments have in place of a checkpoint.
const VALUES: [(&str, &str); 6] = [
    (
        "CHECKPOINT",
        "SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N, @LABEL, or a session and one of the last three, \
         as in fix-login:latest.",
    ),
    (
        "SEQ",
        "The number of a checkpoint in its session. Without a session it is one of the session that \
         TURNPOINT_SESSION names, else of the newest session of this workspace.",
    ),
    ("SESSION, NAME of --session", "The name of a session; upper and lower case are the same."),
    (
        "latest, latest~N",
        "The newest checkpoint of this workspace that no restore made, and the N-th before it; where \
         TURNPOINT_SESSION names a session, of that session.",
    ),
    ("@LABEL", "The newest checkpoint of this workspace with that label."),
    (
        "TIME of --at",
        "now, yesterday, how long ago (10m, 2h, '2 days ago'), a time of day (09:30, 9:30pm), 'yesterday \
         09:30', a date (its beginning), a date and a time ('2026-11-29 18:15'), or RFC 3339.",
    ),
];

const EXIT_STATUS: [(&str, &str); 8] = [
    ("0", "Done; also where whoever reads the output stops reading."),
    (
        "1",
        "Failed: no space, no permission, damage that stops a change; something differs, where that was \
         asked for with --exit-code.",
    ),
    ("2", "Not understood, or not found."),
    (
        "3",
        "Refused so that nothing is lost, or the answer was no, or there was nobody to ask; a log in a \
         workspace or in the store.",
    ),
    ("4", "Done, but something is damaged or could not be read, and is named."),
    ("5", "Another process held a lock for a minute: try again."),
    ("130", "Stopped by a signal."),
    (
        "other",
        "turnpoint exec and turnpoint plan: that of the command; 125, 126, 127 where it could not be run.",
    ),
];

const ENVIRONMENT: [(&str, &str); 8] = [
    ("TURNPOINT_HOME", "The directory of the store."),
    ("TURNPOINT_SESSION", "The session that is meant where a command names none."),
    ("TURNPOINT_CONFIG", "Another file in place of the user's settings; empty: none."),
    (
        "TURNPOINT_...",
        "Every setting: its name in upper case, with _ for the dot, as in TURNPOINT_CAPTURE_FILE_LIMIT; \
         turnpoint config list --long shows all, and what they are for.",
    ),
    ("TURNPOINT_LOG", "info or debug: what is done, and how long it takes, on standard error."),
    (
        "PAGER, LESS",
        "What shows long output on a terminal, and how less does; TURNPOINT_PAGER goes first.",
    ),
    ("NO_COLOR", "No colors, unless --color or the setting color says otherwise."),
    ("TMPDIR", "Where turnpoint bisect writes checkpoints out."),
];

const FILES: [(&str, &str); 5] = [
    ("~/.local/share/turnpoint/checkpoints", "The store, unless TURNPOINT_HOME says where it is."),
    ("~/.config/turnpoint/config.toml", "The user's settings."),
    (
        ".turnpoint.toml",
        "Settings at the root of a workspace, which may only make less be captured.",
    ),
    (
        ".turnpoint",
        "In a workspace while a restore runs; work trees of turnpoint exec --worktree and turnpoint plan.",
    ),
    ("~/.local/state/turnpoint/sql-history", "What was asked at the prompt of turnpoint sql."),
];

#[derive(Serialize)]
#[serde(untagged)]
enum ManDocument {
    Page { page: String },
    Directory { directory: PathDocument },
}

/// Prints a page, or writes all.
pub(crate) fn run(arguments: &ManArguments, context: &mut Context) -> Outcome<Exit> {
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    if let Some(directory) = &arguments.into {
        return write_all(&command, directory, context);
    }
    let page = page(&command)?;
    if context.is_json() {
        let page = String::from_utf8_lossy(&page).into_owned();
        context.document(&ManDocument::Page { page })?;
    } else {
        context.printer.bytes().write_all(&page)?;
    }
    Ok(Exit::Done)
}

fn write_all(command: &clap::Command, directory: &Path, context: &mut Context) -> Outcome<Exit> {
    let place = context.settings.directory.join(directory);
    if !place.is_dir() {
        let shown = printable(directory.as_os_str().as_encoded_bytes());
        let message = format!("there is no directory {shown}");
        return Err(Failure::own(Exit::Usage, "no-directory", message)
            .hint(format!("make it first: `mkdir -p {}`", shell_path(directory))));
    }
    write_below(command, &place)?;
    if context.is_json() {
        let directory = PathDocument::from(directory);
        context.document(&ManDocument::Directory { directory })?;
    }
    Ok(Exit::Done)
}

/// The page of a command, and those of its commands.
fn write_below(command: &clap::Command, place: &Path) -> Outcome<()> {
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_below(command, place)?;
    }
    let path = place.join(Man::new(command.clone()).get_filename());
    fs::write(&path, page(command)?)
        .map_err(|source| Error::Io { verb: "write", path, source }.into())
}

fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command, &mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let names_one = command
        .get_arguments()
        .filter_map(clap::Arg::get_value_names)
        .any(|names| names.iter().any(|name| name == "CHECKPOINT"));
    if names_one || command.get_name() == "turnpoint" {
        section("VALUES", &VALUES, &mut page)?;
    }
    section("EXIT STATUS", &EXIT_STATUS, &mut page)?;
    section("ENVIRONMENT", &ENVIRONMENT, &mut page)?;
    section("FILES", &FILES, &mut page)?;
    if let Some(examples) = command.get_after_help() {
        let examples = examples.to_string();
        let shown = examples.strip_prefix("Examples:\n").or(examples.strip_prefix("Example:\n"));
        write!(page, ".SH EXAMPLES\n.nf\n")?;
        for line in shown.unwrap_or(&examples).lines() {
            writeln!(page, "{}", escaped(line))?;
        }
        writeln!(page, ".fi")?;
    }
    writeln!(
        page,
        ".SH \"SEE ALSO\"\n{}",
        if command.get_name() == "turnpoint" { "less(1), git(1)" } else { "turnpoint(1)" }
    )?;
    if command.get_version().is_some() {
        man.render_version_section(&mut page)?;
    }
    Ok(page)
}

/// Each way to call it, the first with the names of all options and of their values, but for those that belong to
/// one of the ways.
fn synopsis(command: &clap::Command, page: &mut Vec<u8>) -> io::Result<()> {
    const OPTIONS: &str = "[OPTIONS]";
    let usage = command.clone().render_usage().to_string();
    writeln!(page, ".SH SYNOPSIS\n.nh")?;
    for (at, line) in usage.trim_start_matches("Usage:").lines().enumerate() {
        let (name, words) = line.trim().split_once(OPTIONS).unwrap_or((line.trim(), ""));
        if at > 0 {
            writeln!(page, ".br")?;
        }
        write!(page, "\\fB{}\\fR", escaped(name.trim()))?;
        if at > 0 {
            write!(page, " {}", escaped(OPTIONS))?;
        } else {
            // Those of every command come last.
            let words_of_usage =
                || usage.split(|it: char| !it.is_ascii_alphanumeric() && it != '-');
            let is_named = |option: &clap::Arg| {
                let long = option.get_long().map(|long| format!("--{long}"));
                long.is_some_and(|long| words_of_usage().any(|word| word == long))
            };
            let shown = || {
                let options = command.get_arguments().filter(|it| !it.is_positional());
                options.filter(|it| !it.is_hide_set() && !is_named(it))
            };
            let own = shown().filter(|option| !option.is_global_set());
            for option in own.chain(shown().filter(|option| option.is_global_set())) {
                write!(page, " [{}]", option_in_synopsis(option))?;
            }
        }
        writeln!(page, "{}", escaped(words))?;
    }
    writeln!(page, ".hy")
}

/// `-y|--yes`, `--keep N`, which no line is broken in.
fn option_in_synopsis(option: &clap::Arg) -> String {
    let short = option.get_short().map(|short| format!("-{short}"));
    let long = option.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> =
        short.into_iter().chain(long).map(|name| format!("\\fB{}\\fR", escaped(&name))).collect();
    let values = option.get_value_names().filter(|_| option.get_action().takes_values());
    let values = values.into_iter().flatten();
    let values: Vec<String> =
        values.map(|value| format!("\\ \\fI{}\\fR", escaped(value))).collect();
    format!("{}{}", names.join("|"), values.concat())
}

/// Terms and what they mean.
fn section(heading: &str, terms: &[(&str, &str)], page: &mut Vec<u8>) -> io::Result<()> {
    writeln!(page, ".SH \"{heading}\"")?;
    for (term, meaning) in terms {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", escaped(term), escaped(meaning))?;
    }
    Ok(())
}

/// Text for roff: what begins like a request, and what a hyphen or a backslash would become, is itself.
fn escaped(text: &str) -> String {
    let plain = text.replace('\\', "\\e").replace('-', "\\-");
    if plain.starts_with(['.', '\'']) { format!("\\&{plain}") } else { plain }
}
