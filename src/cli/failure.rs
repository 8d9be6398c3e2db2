//! How a command fails, and how that is told.

use std::io::{self, Write};
use std::path::Path;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue};
use serde::Serialize;
use turnpoint::path::printable;
use turnpoint::{Error, ErrorClass, GoingBackError, IsolationError};

use crate::cli::exit::Exit;
use crate::cli::format;
use crate::cli::json::{NoticeDocument, PathDocument, ReasonDocument};
use crate::cli::printer::{self, Kind, Style};
use crate::cli::settings;

/// The result of everything here that can fail.
pub(crate) type Outcome<T> = Result<T, Failure>;

/// How many paths a refusal names; all with `--verbose`.
pub(crate) const NAMED_MAX: usize = 20;

/// Why a command did not do its work.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library says why.
    Library {
        /// What it says.
        error: Box<Error>,
        /// What to do next, where that follows from what was typed; else the library says that too.
        hint: Option<String>,
    },
    /// Standard output cannot be written.
    Output(io::Error),
    /// The program itself says why.
    Own {
        /// How to end.
        exit: Exit,
        /// The word for scripts.
        code: &'static str,
        /// One sentence without a final period.
        message: String,
        /// What to do next.
        hint: Option<String>,
    },
}

impl Failure {
    /// A failure that the program itself found.
    pub(crate) fn own(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self::Own { exit, code, message: message.into(), hint: None }
    }

    /// The same with another hint.
    #[must_use]
    pub(crate) fn hint(mut self, text: impl Into<String>) -> Self {
        if let Self::Own { hint, .. } | Self::Library { hint, .. } = &mut self {
            *hint = Some(text.into());
        }
        self
    }

    /// The same with `place` in the commands that it names, where they ask the workspace or a repository: the
    /// library knows nothing of `-C`.
    pub(crate) fn seen_from(mut self, place: &str) -> Self {
        if let Self::Library { error, hint: hint @ None } = &mut self
            && let Error::PathNotFound { .. }
            | Error::PathNotCovered { .. }
            | Error::NoCheckpoint { .. }
            | Error::CheckpointNotFound { .. }
            | Error::LabelNotFound { .. }
            | Error::RestoreOpen { .. }
            | Error::Isolation(_) = **error
        {
            *hint = hint_of(error).map(|text| placed(&text, place));
        }
        self
    }

    /// The error of the library that it is.
    pub(crate) fn error(&self) -> Option<&Error> {
        match self {
            Self::Library { error, .. } => Some(error),
            _ => None,
        }
    }

    fn exit(&self, on_damage: Exit) -> Exit {
        match self {
            Self::Library { error, .. } if error.class() == ErrorClass::Damaged => on_damage,
            Self::Library { error, .. } => error.class().into(),
            // Whoever reads has seen enough: `turnpoint list | head` is no failure.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Output(_) => Exit::Failed,
            Self::Own { exit, .. } => *exit,
        }
    }

    fn code(&self) -> &'static str {
        match self {
            Self::Library { error, .. } => error.code(),
            Self::Output(_) => "output",
            Self::Own { code, .. } => code,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Self::Library { error, .. } => match &**error {
                Error::NoneSoOld(it) => {
                    format!("no checkpoint is as old as {}", format::second(it.at))
                }
                error => error.to_string(),
            },
            Self::Output(_) => "cannot write to standard output".to_owned(),
            Self::Own { message, .. } => message.clone(),
        }
    }

    pub(crate) fn causes(&self) -> Vec<String> {
        let mut causes = Vec::new();
        let mut source: Option<&dyn std::error::Error> = match self {
            Self::Library { error, .. } => std::error::Error::source(&**error),
            Self::Output(error) => Some(error),
            Self::Own { .. } => None,
        };
        while let Some(error) = source {
            causes.push(error.to_string());
            source = error.source();
        }
        causes
    }

    fn hint_text(&self) -> Option<String> {
        match self {
            Self::Library { error, hint } => hint.clone().or_else(|| hint_of(error)),
            Self::Output(_) => None,
            Self::Own { hint, .. } => hint.clone(),
        }
    }

    /// The other paths, where a merge was refused over some.
    fn free(&self) -> Vec<PathDocument> {
        match self.error() {
            Some(
                Error::GoingBack(GoingBackError::RevertConflicts { conflicts, .. })
                | Error::Isolation(IsolationError::ApplyConflicts { conflicts, .. }),
            ) => conflicts.free.iter().map(PathDocument::from).collect(),
            _ => Vec::new(),
        }
    }

    /// The paths that the failure is about, each with what is wrong.
    pub(crate) fn paths(&self) -> Vec<ReasonDocument> {
        let Some(error) = self.error() else { return Vec::new() };
        match error {
            Error::Configuration(error) => error
                .problems
                .iter()
                .skip(1)
                .map(|problem| ReasonDocument {
                    path: PathDocument::from(Path::new(&problem.place.to_string())),
                    reason: problem.reason.clone(),
                })
                .collect(),
            Error::DeletionBlocked { files } => files.iter().map(ReasonDocument::from).collect(),
            Error::ContentLost { lost } => lost
                .iter()
                .map(|lost| ReasonDocument {
                    path: PathDocument::from(&lost.path),
                    reason: format!("{}: blob {}", lost.reason, lost.hash),
                })
                .collect(),
            Error::GoingBack(GoingBackError::RevertConflicts { conflicts, .. })
            | Error::Isolation(IsolationError::ApplyConflicts { conflicts, .. }) => conflicts
                .against
                .iter()
                .map(|conflict| ReasonDocument {
                    path: PathDocument::from(&conflict.path),
                    reason: conflict.reason.clone(),
                })
                .collect(),
            Error::GoingBack(GoingBackError::PlanOutdated { paths, .. }) => {
                let reason = "not as it was when the plan was made".to_owned();
                let one = |path| ReasonDocument { path, reason: reason.clone() };
                paths.iter().map(PathDocument::from).map(one).collect()
            }
            Error::Isolation(
                IsolationError::NotHeld { left, .. }
                | IsolationError::NotRemoved { stuck: left, .. },
            ) => left
                .iter()
                .map(|(path, reason)| ReasonDocument {
                    path: PathDocument::from(path),
                    reason: reason.clone(),
                })
                .collect(),
            Error::PathNotFound { path, omitted: Some(reason), .. } => {
                let path = PathDocument::from(path);
                vec![ReasonDocument { path, reason: reason.as_str().to_owned() }]
            }
            _ => Vec::new(),
        }
    }
}

/// A hint with `place` in those of its commands that name none by themselves.
fn placed(hint: &str, place: &str) -> String {
    // What is between backticks is every other part.
    let parts = hint.split('`').enumerate().map(|(number, part)| {
        let words = part.strip_prefix("turnpoint ").filter(|_| number % 2 == 1);
        match words.filter(|words| words.split(' ').all(|word| word != "-C")) {
            Some(words) => format!("turnpoint {place}{words}"),
            None => part.to_owned(),
        }
    });
    parts.collect::<Vec<_>>().join("`")
}

/// The hint of the library, or what only a person at a terminal has to be told.
fn hint_of(error: &Error) -> Option<String> {
    let text = match error {
        Error::Cancelled => "the store is whole; the same command begins again".to_owned(),
        Error::NoneSoOld(it) => {
            format!("the oldest is {}, of {}", it.oldest, format::second(it.created_at))
        }
        Error::CheckpointNotFound { nearest, .. } if nearest.is_empty() => {
            "`turnpoint list` shows what there is, `turnpoint operations` what was dropped".to_owned()
        }
        // A number is given only once: one before all that there are was dropped.
        Error::CheckpointNotFound { seq, nearest, .. } if nearest.iter().all(|it| it > seq) => {
            format!("{}; `turnpoint operations` says what was dropped", error.hint()?)
        }
        // A removed run's, or that of a directory that was moved.
        Error::OtherWorkspace { checkpoint, root } if !root.is_dir() => {
            let checkpoint = checkpoint.shell_word();
            format!(
                "that directory is gone; `turnpoint cat {checkpoint} PATH > FILE` writes a file of it, \
                 `turnpoint restore {checkpoint} PATH --into . --overlay` lays it over what is here"
            )
        }
        Error::NothingToUndo { .. } => {
            "it takes back what restore, rewind, revert, redo and `worktree apply` did; `turnpoint operations` \
             shows that"
                .to_owned()
        }
        Error::GoingBack(GoingBackError::NothingToRedo { since: None, .. }) => {
            "it takes back an undo; `turnpoint operations` shows what was done".to_owned()
        }
        Error::CheckpointUnreadable { checkpoint, path, .. } => {
            let is_manifest = path.extension().is_some_and(|extension| extension == "json");
            let quarantine = if is_manifest {
                format!(": a backup, or `turnpoint quarantine {}`", checkpoint.manifest_word())
            } else {
                String::new()
            };
            format!("`turnpoint doctor` says what is damaged, and what can be done{quarantine}")
        }
        Error::Io { source, path, .. }
            if source.kind() == io::ErrorKind::NotADirectory && settings::is_in_store(path) =>
        {
            "a file is in the place of a directory; TURNPOINT_HOME says where the store is".to_owned()
        }
        error => return error.hint(),
    };
    Some(text)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library { error: Box::new(error), hint: None }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<ReasonDocument>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    free: Vec<PathDocument>,
    hint: Option<String>,
}

/// Tells it on standard error and says how to end; `on_damage` where damage is why it failed.
pub(crate) fn report(
    failure: &Failure,
    style: Style,
    notices: &[NoticeDocument],
    on_damage: Exit,
) -> Exit {
    let exit = failure.exit(on_damage);
    if exit == Exit::Done {
        return exit;
    }
    if style.json {
        let body = ErrorDocument {
            code: failure.code(),
            message: &failure.message(),
            causes: failure.causes(),
            paths: failure.paths(),
            free: failure.free(),
            hint: failure.hint_text(),
        };
        print_document(&body, notices);
        return exit;
    }
    let shown = |text: &str| printable(text.as_bytes());
    style.complain(Kind::Error, &shown(&failure.message()));
    for cause in failure.causes() {
        style.complain(Kind::Cause, &shown(&cause));
    }
    let paths = failure.paths();
    let most = if style.verbose { usize::MAX } else { NAMED_MAX };
    for ReasonDocument { path, reason } in paths.iter().take(most) {
        printer::aside_item(&format!("{}: {}", path.printable(), shown(reason)));
    }
    if paths.len() > most {
        let more = format::number((paths.len() - most) as u64);
        printer::aside(&format!("  and {more} more (--verbose names all)"));
    }
    if let Some(hint) = failure.hint_text() {
        printer::aside("");
        style.complain(Kind::Hint, &shown(&hint));
    }
    exit
}

fn print_document(body: &ErrorDocument<'_>, notices: &[NoticeDocument]) {
    if let Ok(text) = printer::document(body, notices) {
        // There is no other place to tell it.
        writeln!(io::stderr(), "{text}").ok();
    }
}

/// The command that does what another tool calls by this name: what is spelled alike may be something else.
fn meant_by(word: &str) -> Option<&'static str> {
    let meant = match word {
        "checkout" | "switch" | "reset" => "restore",
        "rollback" => "undo",
        "status" => "diff",
        "commit" | "save" | "snapshot" | "backup" | "stash" => "capture",
        "snapshots" | "history" => "list",
        "blame" | "annotate" => "log",
        "forget" => "prune",
        "clean" => "gc",
        "op" | "reflog" => "operations",
        "grep" | "search" => "find",
        _ => return None,
    };
    Some(meant)
}

/// Tells what clap has to say: help and version on standard output, what is wrong with the arguments
/// on standard error.
pub(crate) fn usage(mut error: clap::Error) -> Exit {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        // That what looks like an option could be meant as a path leads nobody on.
        let is_useful = |tip: &StyledStr| !tip.to_string().contains(" as a value");
        let useful: Vec<StyledStr> = tips.into_iter().filter(is_useful).collect();
        if !useful.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(useful));
        }
    }
    // The commands below `worktree` and the like are others.
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let is_first = usage.contains("turnpoint [") || usage.contains("turnpoint <");
    let word = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) if is_first => meant_by(word),
        _ => None,
    };
    if let Some(meant) = word {
        let suggested = ContextValue::Strings(vec![meant.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, suggested);
    }
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => Exit::Done,
            Err(error) => report(&Failure::Output(error), Style::plain(false), &[], Exit::Failed),
        };
    }
    // The arguments are not understood, so this is as near as one can get to what was meant.
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    if wants_json {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(message);
        let failure = Failure::own(Exit::Usage, "usage", message)
            .hint("`turnpoint --help` lists commands and options");
        return report(&failure, Style::plain(true), &[], Exit::Failed);
    }
    // Standard error is the only place for it.
    error.print().ok();
    Exit::Usage
}
