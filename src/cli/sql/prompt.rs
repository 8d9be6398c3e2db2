//! Questions at a prompt, one after the other.
//!
//! Between two answers nothing of the store is open.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use etcetera::BaseStrategy;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Editor, Helper};
use turnpoint::path::printable;
use turnpoint::{Error, QueryOptions, VIEWS};

use super::{answer, schema, statement};
use crate::cli::arguments::AnswerFormat;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{self, Failure, Outcome};
use crate::cli::format;
use crate::cli::printer::{Kind, aside};

const PROMPT: &str = "sql> ";
/// Before a line that goes on with what was begun.
const CONTINUED: &str = "...> ";
/// How many inputs are remembered.
const HISTORY_MAX: usize = 1_000;
/// Words of SQL that are worth completing.
const KEYWORDS: [&str; 24] = [
    "AND", "AS", "ASC", "BETWEEN", "CASE", "CAST", "COUNT", "DESC", "DISTINCT", "EXISTS", "FROM",
    "GLOB", "GROUP", "HAVING", "JOIN", "LEFT", "LIKE", "LIMIT", "NULL", "ORDER", "SELECT", "UNION",
    "WHERE", "WITH",
];
const COMMANDS: [&str; 4] = [".help", ".quit", ".schema", ".tables"];

/// Reads and answers until Ctrl-D, or one of the words by which other programs are left.
pub(super) fn run(
    format: AnswerFormat,
    options: &QueryOptions,
    context: &mut Context,
) -> Outcome<Exit> {
    let config = Config::builder()
        .completion_type(CompletionType::List)
        .history_ignore_space(true)
        .max_history_size(HISTORY_MAX)
        .map_err(|error| unreadable(&error))?
        .build();
    let mut editor: Editor<Words, FileHistory> =
        Editor::with_config(config).map_err(|error| unreadable(&error))?;
    editor.set_helper(Some(Words));
    let history = open_history(&mut editor, context);
    if !context.is_quiet() {
        let place = printable(context.store.root().as_os_str().as_encoded_bytes());
        context.printer.prose(&format!(
            "Questions about {place}. A query ends with `;`. `.schema` shows what can be asked, `.help` \
             the rest; `.quit` or Ctrl-D leaves."
        ))?;
    }
    // What was typed of an input that is not complete.
    let mut begun = String::new();
    loop {
        context.printer.flush()?;
        let prompt = if begun.is_empty() { PROMPT } else { CONTINUED };
        // Nothing is held while a person thinks. What is typed reaches the editor, Ctrl-C included; a
        // signal from elsewhere ends the process.
        let read =
            context.interrupt.ending_at_once(|| editor.readline(prompt)).ok_or(Error::Cancelled)?;
        match read {
            // Whoever is caught in a text that does not end gets out, too.
            Ok(line) if is_leaving(&line) => break,
            Ok(line) if begun.is_empty() && line.trim().is_empty() => continue,
            Ok(line) if begun.is_empty() => begun = line,
            Ok(line) => begun.extend(["\n", &line]),
            Err(ReadlineError::Interrupted) => {
                begun.clear();
                continue;
            }
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(unreadable(&error)),
        }
        if !is_command(&begun) && !statement::is_complete(&begun) {
            continue;
        }
        let text = std::mem::take(&mut begun);
        let remembered = editor.add_history_entry(text.as_str());
        if let (Ok(true), Some(file)) = (remembered, &history) {
            // At once: the next prompt may be ended by a signal. That it fails was told at the beginning.
            editor.append_history(file).ok();
        }
        respond(&text, format, options, context)?;
    }
    Ok(Exit::Done)
}

fn unreadable(error: &ReadlineError) -> Failure {
    Failure::own(Exit::Failed, "terminal", format!("the terminal cannot be read: {error}"))
}

/// Reads what was asked before. Says where the next questions go; nowhere if that cannot be done.
fn open_history(editor: &mut Editor<Words, FileHistory>, context: &Context) -> Option<PathBuf> {
    let file = etcetera::base_strategy::Xdg::new().ok()?.state_dir()?.join("turnpoint/sql-history");
    let directory = file.parent()?;
    let opened = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(ReadlineError::from)
        .and_then(|()| match editor.load_history(&file) {
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        });
    match opened {
        Ok(()) => Some(file),
        Err(error) => {
            let file = printable(file.as_os_str().as_encoded_bytes());
            let message = format!("questions are not remembered in {file}: {error}");
            context.printer.style().complain(Kind::Note, &message);
            None
        }
    }
}

/// Answers one input. What a query fails with is told, and the prompt goes on; that nobody can be told
/// anything any more ends it.
fn respond(
    text: &str,
    format: AnswerFormat,
    options: &QueryOptions,
    context: &mut Context,
) -> Outcome<()> {
    if is_command(text) {
        return Ok(command(text, context)?);
    }
    let (statements, rest) = statement::split(text);
    let unfinished = Some(rest).filter(|rest| !rest.trim().is_empty());
    for sql in statements.into_iter().chain(unfinished) {
        let answered = answer::print(sql, options, format, context);
        context.printer.flush()?;
        match answered {
            Ok(outcome) => {
                let told = if outcome.has_more {
                    answer::told_of_more(&outcome)
                } else {
                    format::counted(outcome.rows, "row", "rows")
                };
                if !context.is_quiet() {
                    aside(&format!("({told})"));
                }
            }
            Err(Failure::Library { error, .. }) if matches!(*error, Error::Cancelled) => {
                aside("(stopped)");
                break;
            }
            Err(failure @ (Failure::Library { .. } | Failure::Own { .. })) => {
                failure::report(&failure, context.printer.style(), &[], Exit::Damaged);
                break;
            }
            Err(failure @ Failure::Output(_)) => return Err(failure),
        }
    }
    // A Ctrl-C has done what it was typed for, or came too late for that: it does not end the prompt.
    context.interrupt.forget();
    Ok(())
}

/// Whether a line is what people type who want to leave, in this program or another one.
fn is_leaving(line: &str) -> bool {
    let word = line.trim().trim_end_matches(';').trim_end().to_ascii_lowercase();
    matches!(word.as_str(), ".quit" | ".exit" | ".q" | "quit" | "exit" | "\\q")
}

/// Whether an input is for the prompt itself: no query begins so.
fn is_command(text: &str) -> bool {
    let text = text.trim();
    text.starts_with(['.', '\\', '?']) || text.trim_end_matches(';') == "help"
}

fn command(text: &str, context: &mut Context) -> io::Result<()> {
    let mut words = text.trim().trim_end_matches(';').split_whitespace();
    let name = words.next().unwrap_or_default();
    let printer = &mut context.printer;
    match (name, words.next(), words.next()) {
        (".tables", None, None) => {
            for view in VIEWS {
                printer.line(view.name)?;
            }
        }
        (".schema", None, None) => schema::print(AnswerFormat::Table, context)?,
        (".schema", Some(view), None) => {
            if let Some(view) = VIEWS.iter().find(|known| known.name == view) {
                schema::in_full(view, printer)?;
            } else {
                let view = printable(view.as_bytes());
                printer.style().complain(Kind::Error, &format!("there is no view `{view}`"));
            }
        }
        (".help" | "help" | "?" | "\\?", None, None) => {
            for (name, about) in [
                (".tables", "the names of the views, which are what can be asked"),
                (".schema [VIEW]", "their columns; of one view, what its columns mean"),
                (".quit", "leave, as Ctrl-D does, and `exit`, `quit` and `\\q`"),
                ("Tab", "complete the name of a view or column"),
                ("Ctrl-C", "clear what is typed, or stop a query that runs"),
                ("Ctrl-R", "search what was asked before"),
            ] {
                printer.hanging(&format!("{name:<16}"), about)?;
            }
        }
        _ => {
            let name = printable(text.trim().as_bytes());
            let message = format!(
                "there is no command `{name}`; `.schema` shows what can be asked, `.help` the commands"
            );
            printer.style().complain(Kind::Error, &message);
        }
    }
    Ok(())
}

/// Knows the names of views and columns.
#[derive(Debug)]
struct Words;

impl Helper for Words {}
impl Highlighter for Words {}
impl Hinter for Words {
    type Hint = String;
}

impl Validator for Words {}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(completions(line.get(..position).unwrap_or(line)))
    }
}

/// Where the word at the end of `before` begins, and what it may become.
fn completions(before: &str) -> (usize, Vec<String>) {
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let start = before.rfind(|character| !is_part(character)).map_or(0, |at| {
        at + before.get(at..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
    });
    let (earlier, word) = before.split_at(start);
    if earlier.trim() == "." {
        let word = format!(".{word}");
        let found = COMMANDS.iter().filter(|name| name.starts_with(&word));
        return (start - 1, found.map(|name| (*name).to_owned()).collect());
    }
    let views = || VIEWS.iter().map(|view| view.name);
    let columns = || VIEWS.iter().flat_map(|view| view.columns).map(|column| column.name);
    let last = earlier.split_whitespace().last().unwrap_or_default();
    let wants_view = ["from", "join", ".schema"].iter().any(|it| last.eq_ignore_ascii_case(it));
    let mut found: Vec<&str> = if wants_view {
        views().collect()
    } else if earlier.ends_with('.') {
        columns().collect()
    } else if word.is_empty() {
        Vec::new()
    } else {
        views().chain(columns()).chain(KEYWORDS).collect()
    };
    let folded = word.to_ascii_lowercase();
    found.retain(|name| name.to_ascii_lowercase().starts_with(&folded));
    found.sort_unstable();
    found.dedup();
    (start, found.into_iter().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_other_programs_leave_and_ask_for_help() {
        for line in [".quit", " quit; ", "EXIT", "\\q", ".exit"] {
            assert!(is_leaving(line), "{line}");
        }
        for line in ["SELECT 1", "quit smoking", "exit code", ""] {
            assert!(!is_leaving(line) && !is_command(line), "{line}");
        }
        for line in [".schema turns", "\\d", "help;", "?"] {
            assert!(is_command(line), "{line}");
        }
    }

    #[test]
    fn a_word_becomes_what_may_stand_there() {
        for (before, start, expected) in [
            ("sel", 0, &["SELECT"][..]),
            ("SELECT path_", 7, &["path_bytes"]),
            ("SELECT * FROM turn", 14, &["turn_changes", "turns"]),
            ("SELECT * FROM changes JOIN om", 27, &["omitted"]),
            ("SELECT c.crea", 9, &["created_at"]),
            ("SELECT count(logi", 13, &["logical_bytes"]),
            ("SELECT 'é', labe", 13, &["label"]),
            (".q", 0, &[".quit"]),
            (".schema stor", 8, &["storage"]),
            (".t", 0, &[".tables"]),
            ("SELECT ", 7, &[]),
        ] {
            let (found_start, found) = completions(before);
            assert_eq!(
                (found_start, found),
                (start, expected.iter().map(|it| (*it).to_owned()).collect()),
                "{before}"
            );
        }
        assert_eq!(completions("SELECT * FROM ").1.len(), VIEWS.len());
    }
}
