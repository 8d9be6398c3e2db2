//! What can be typed next, for the scripts of `turnpoint completions`.
//!
//! Somebody waits for it with a finger on the key: it takes a moment at most, changes nothing, and says
//! nothing of what goes wrong. Where it has no answer a shell offers the names of files.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory};
use turnpoint::clock::Timestamp;
use turnpoint::id::SessionName;
use turnpoint::path::{RelPath, printable};
use turnpoint::settings::{SETTINGS, Setting};
use turnpoint::{CheckpointSummary, RunState, Spec, Store};

use crate::cli::arguments::{Arguments, CompleteArguments, Shell};
use crate::cli::exit::Exit;
use crate::cli::format;
use crate::cli::moment::moment;
use crate::cli::settings::{Settings, UserFile};
use crate::cli::target::{self, Target};

/// How long somebody waits at most.
const ANSWERED_WITHIN: Duration = Duration::from_millis(700);
/// How many candidates are offered at most.
const OFFERED_MAX: usize = 500;
/// How far `latest~N` is offered.
const NEWEST_MAX: usize = 20;

/// Something that can be typed, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    text: Vec<u8>,
    about: String,
}

impl Candidate {
    fn new(text: impl Into<Vec<u8>>, about: impl Into<String>) -> Self {
        Self { text: text.into(), about: about.into() }
    }
}

/// Prints one candidate a line, for zsh and fish with a tab and what it is.
pub(crate) fn run(arguments: &CompleteArguments, directory: Option<PathBuf>) -> Exit {
    let shell = arguments.shell;
    let words: Vec<Vec<u8>> = match &arguments.line {
        Some(line) => {
            let Some(words) = split(line.as_bytes()) else { return Exit::Done };
            words.into_iter().skip(1).collect()
        }
        None => arguments.words.iter().map(|word| word.as_bytes().to_vec()).collect(),
    };
    let (answer, answered) = mpsc::channel();
    let current = words.last().cloned().unwrap_or_default();
    // Left behind where it takes too long: the process ends, and it has nothing in hand.
    std::thread::spawn(move || answer.send(candidates(&words, directory)).ok());
    let mut found = answered.recv_timeout(ANSWERED_WITHIN).unwrap_or_default();
    found.retain(|candidate| candidate.text.starts_with(&current));
    found.truncate(OFFERED_MAX);
    let mut out = io::stdout().lock();
    for candidate in found {
        if writeln_candidate(&mut out, &candidate, &current, shell).is_err() {
            break;
        }
    }
    Exit::Done
}

fn writeln_candidate(
    out: &mut impl Write,
    candidate: &Candidate,
    current: &[u8],
    shell: Shell,
) -> io::Result<()> {
    // A name with a line feed in it cannot be said on one line.
    if candidate.text.iter().any(u8::is_ascii_control) {
        return Ok(());
    }
    if shell == Shell::Bash {
        // bash cuts words at these too, and puts in place only what comes after.
        let kept = current.iter().rposition(|byte| b":=".contains(byte)).map_or(0, |at| at + 1);
        out.write_all(&quoted(&candidate.text[kept..]))?;
    } else {
        out.write_all(&candidate.text)?;
        if !candidate.about.is_empty() {
            write!(out, "\t{}", printable(candidate.about.as_bytes()))?;
        }
    }
    out.write_all(b"\n")
}

/// With a backslash before everything that means something to bash.
fn quoted(text: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(text.len());
    for (at, &byte) in text.iter().enumerate() {
        // A tilde names a home directory where it begins a word, and is itself elsewhere.
        let is_tilde = byte == b'~' && at == 0;
        if is_tilde
            || byte.is_ascii() && !byte.is_ascii_alphanumeric() && !b"_@%+=:,./-~".contains(&byte)
        {
            quoted.push(b'\\');
        }
        quoted.push(byte);
    }
    quoted
}

/// The words of a line as bash reads them; the last is the one under the cursor. `None` within quotes,
/// where it is not known what may be put in.
fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = vec![Vec::new()];
    let mut quote = None;
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        let word = words.last_mut()?;
        match (quote, byte) {
            (None, b' ' | b'\t') => {
                if !word.is_empty() {
                    words.push(Vec::new());
                }
            }
            (None, b'\'' | b'"') => quote = Some(byte),
            (Some(open), _) if open == byte => quote = None,
            (None | Some(b'"'), b'\\') => word.push(bytes.next()?),
            _ => word.push(byte),
        }
    }
    quote.is_none().then_some(words)
}

/// What was typed before the word under the cursor.
struct Typed<'a> {
    command: &'a Command,
    /// What stands where a value goes: words that are no options, nor theirs.
    positional: Vec<OsString>,
    /// The values of options that matter here.
    session: Option<String>,
    at: Option<Timestamp>,
    directory: Option<PathBuf>,
    /// The option whose value is under the cursor.
    option: Option<&'a Arg>,
    /// Whether `--` was typed.
    is_last: bool,
}

impl<'a> Typed<'a> {
    fn read(root: &'a Command, words: &[Vec<u8>]) -> Self {
        let mut typed = Self {
            command: root,
            positional: Vec::new(),
            session: None,
            at: None,
            directory: None,
            option: None,
            is_last: false,
        };
        for word in words {
            let text = String::from_utf8_lossy(word);
            if let Some(option) = typed.option.take() {
                typed.take_value(option, word);
            } else if typed.is_last {
                typed.positional.push(OsString::from_vec(word.clone()));
            } else if text == "--" {
                typed.is_last = true;
            } else if text.starts_with('-') && text.len() > 1 {
                let (name, value) = text.split_once('=').unwrap_or((&text, ""));
                let Some(option) = option_of(typed.command, name) else { continue };
                if !option.get_action().takes_values() {
                    continue;
                }
                if text.contains('=') {
                    typed.take_value(option, value.as_bytes());
                } else {
                    typed.option = Some(option);
                }
            } else if let Some(command) = typed.command.find_subcommand(&*text) {
                typed.command = command;
            } else {
                typed.positional.push(OsString::from_vec(word.clone()));
            }
        }
        typed
    }

    fn take_value(&mut self, option: &Arg, value: &[u8]) {
        let text = String::from_utf8_lossy(value);
        match option.get_id().as_str() {
            "session" => self.session = Some(text.into_owned()),
            "at" => self.at = moment(&text).ok(),
            "directory" => self.directory = Some(OsString::from_vec(value.to_vec()).into()),
            _ => {}
        }
    }

    /// Whether the command's words name a checkpoint.
    fn names_a_checkpoint(&self) -> bool {
        self.command.get_positionals().any(|it| value_name(it) == "CHECKPOINT")
    }

    /// Whether the first word is to come, and is the name of a setting.
    fn wants_setting(&self) -> bool {
        let first = self.command.get_positionals().next();
        self.positional.is_empty() && first.is_some_and(|it| value_name(it) == "SETTING")
    }

    fn takes_paths(&self) -> bool {
        self.command.get_positionals().any(|it| value_name(it) == "PATH")
    }
}

fn first_sentence(text: &str) -> &str {
    let end = [". ", ";"].iter().filter_map(|end| text.find(end)).min();
    end.and_then(|end| text.get(..end)).unwrap_or(text).trim_end_matches('.')
}

fn value_name(argument: &Arg) -> &str {
    argument.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str())
}

fn option_of<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let (long, short) = (name.strip_prefix("--"), name.chars().last());
    command.get_arguments().find(|argument| match long {
        Some(long) => argument.get_long() == Some(long),
        None => argument.get_short().is_some() && argument.get_short() == short,
    })
}

fn candidates(words: &[Vec<u8>], directory: Option<PathBuf>) -> Vec<Candidate> {
    let mut root = Arguments::command();
    root.build();
    let Some((current, before)) = words.split_last() else { return Vec::new() };
    let typed = Typed::read(&root, before);
    let text = String::from_utf8_lossy(current);
    if let Some(option) = typed.option {
        return values(option, &typed, directory, "", &text);
    }
    if !typed.is_last && text.starts_with('-') {
        if let Some((name, value)) = text.split_once('=') {
            let option = option_of(typed.command, name);
            let prefix = format!("{name}=");
            return option
                .map_or_else(Vec::new, |it| values(it, &typed, directory, &prefix, value));
        }
        return options(typed.command);
    }
    if typed.command.has_subcommands() {
        let is_first = typed.positional.is_empty();
        return if is_first { commands(typed.command) } else { Vec::new() };
    }
    if typed.wants_setting() {
        let about = |it: &Setting| Candidate::new(it.name, first_sentence(it.about));
        return SETTINGS.iter().map(about).collect();
    }
    let possible: Vec<Candidate> = typed
        .command
        .get_positionals()
        .next()
        .map(|it| values(it, &typed, directory.clone(), "", &text))
        .unwrap_or_default();
    if !possible.is_empty() {
        return possible;
    }
    let Some(place) = Place::of(&typed, directory) else { return Vec::new() };
    if typed.names_a_checkpoint() { place.checkpoint_or_path(&typed, &text) } else { Vec::new() }
}

fn commands(command: &Command) -> Vec<Candidate> {
    let shown = command.get_subcommands().filter(|it| !it.is_hide_set());
    let about = |it: &Command| it.get_about().map(ToString::to_string).unwrap_or_default();
    shown.map(|it| Candidate::new(it.get_name(), about(it))).collect()
}

fn options(command: &Command) -> Vec<Candidate> {
    let shown = command.get_arguments().filter(|it| !it.is_hide_set());
    let named = shown.filter_map(|it| {
        let about = it.get_help().map(ToString::to_string).unwrap_or_default();
        Some(Candidate::new(format!("--{}", it.get_long()?), about))
    });
    named.collect()
}

/// What an argument may be, where that is known: of which `current` was typed, and `prefix` before it.
fn values(
    argument: &Arg,
    typed: &Typed<'_>,
    directory: Option<PathBuf>,
    prefix: &str,
    current: &str,
) -> Vec<Candidate> {
    let of = |text: &str, about: String| Candidate::new(format!("{prefix}{text}"), about);
    if value_name(argument) == "RUN" {
        let place = Place::of(typed, directory).filter(|_| typed.positional.is_empty());
        // What was removed may be applied, and not removed once more.
        let with_removed = typed.command.get_name() == "apply";
        return place.map_or_else(Vec::new, |place| place.runs(with_removed));
    }
    if argument.get_id() == "from" {
        let Some(place) = Place::of(typed, directory) else { return Vec::new() };
        let found = place.first_words(None, current).into_iter();
        let prefixed = |it: Candidate| {
            let text = [prefix.as_bytes(), &it.text].concat();
            Candidate::new(text, it.about)
        };
        return found.map(prefixed).collect();
    }
    if argument.get_id() == "session" || value_name(argument) == "SESSION" {
        let Some(place) = Place::of(typed, directory) else { return Vec::new() };
        return place.sessions().iter().map(|name| of(name.as_str(), String::new())).collect();
    }
    let possible = argument.get_possible_values();
    let shown = possible.iter().filter(|value| !value.is_hide_set());
    let about = |value: &clap::builder::PossibleValue| value.get_help().map(ToString::to_string);
    shown.map(|value| of(value.get_name(), about(value).unwrap_or_default())).collect()
}

/// Where somebody types.
struct Place {
    store: Store,
    directory: PathBuf,
    is_named: bool,
    /// The one of a checkpoint that is named without one.
    session: Option<String>,
}

impl Place {
    fn of(typed: &Typed<'_>, directory: Option<PathBuf>) -> Option<Self> {
        let directory = typed.directory.clone().or(directory);
        let is_named = directory.is_some();
        let settings = Settings::of_directory(directory, UserFile::Obeyed).ok()?;
        Some(Self {
            store: Store::at(&settings.home),
            directory: settings.directory,
            is_named,
            session: settings.values.session,
        })
    }

    fn root(&self) -> PathBuf {
        let located = || self.store.locate(&self.directory).ok();
        let root = if self.is_named { None } else { located() };
        root.unwrap_or_else(|| self.directory.clone())
    }

    fn runs(&self, with_removed: bool) -> Vec<Candidate> {
        let mut found = self.store.offered_runs(&self.directory).unwrap_or_default();
        found.retain(|(_, state, _)| with_removed || *state != RunState::Removed);
        found
            .into_iter()
            .map(|(id, _, words)| Candidate::new(id.to_string(), words.join(" ")))
            .collect()
    }

    fn sessions(&self) -> Vec<SessionName> {
        self.store.offered_sessions().unwrap_or_default()
    }

    /// A checkpoint where none is named yet, else the paths in it, and where there may be two both.
    fn checkpoint_or_path(&self, typed: &Typed<'_>, current: &str) -> Vec<Candidate> {
        let words = &typed.positional;
        let session = typed.session.as_deref().or(self.session.as_deref());
        let named = target::parse_at(words, session, typed.at, None);
        let Ok(Target { spec, .. }) = named else {
            // A session, of which a checkpoint is to come.
            return match &**words {
                [] => self.first_words(typed.session.as_deref(), current),
                [session] => self.checkpoints(&session.to_string_lossy(), ""),
                _ => Vec::new(),
            };
        };
        let mut found = Vec::new();
        if !typed.is_last && ["diff", "bisect"].contains(&typed.command.get_name()) {
            found = match spec.session.as_ref() {
                Some(session) if !current.contains(':') => self.checkpoints(session.as_str(), ""),
                _ => self.first_words(typed.session.as_deref(), current),
            };
        }
        if typed.takes_paths() || typed.is_last {
            found.extend(self.paths(&spec, current));
        }
        found
    }

    fn first_words(&self, session: Option<&str>, current: &str) -> Vec<Candidate> {
        if let Some((session, _)) = current.split_once(':') {
            return self.checkpoints(session, &format!("{session}:"));
        }
        if current.starts_with('@') {
            let labelled = self.store.offered_of_workspace(&self.root()).unwrap_or_default();
            let candidate = |it: &CheckpointSummary| {
                Some(Candidate::new(format!("@{}", it.label.as_ref()?), it.id.to_string()))
            };
            return labelled.iter().filter_map(candidate).collect();
        }
        if current.starts_with("latest") {
            return self.newest(session);
        }
        if let Some(session) = session {
            return self.checkpoints(session, "");
        }
        let latest = Candidate::new("latest", "the newest of this workspace");
        let sessions = self.sessions();
        let named = sessions.iter().map(|name| Candidate::new(name.as_str(), "a session"));
        [latest].into_iter().chain(named).collect()
    }

    /// `latest` and those before it, each with what it is.
    fn newest(&self, session: Option<&str>) -> Vec<Candidate> {
        let now = Timestamp::now();
        let session = session.or(self.session.as_deref()).map(str::to_lowercase);
        let of_workspace = self.store.offered_of_workspace(&self.root()).unwrap_or_default();
        let meant = of_workspace.iter().filter(|it| {
            let is_of = session.as_ref().is_none_or(|session| *session == it.id.session.folded());
            is_of && !it.is_safety()
        });
        let candidate = |(back, it): (usize, &CheckpointSummary)| {
            let text = if back == 0 { "latest".to_owned() } else { format!("latest~{back}") };
            Candidate::new(text, format!("{}, {}", it.id, about(it, now)))
        };
        meant.take(NEWEST_MAX).enumerate().map(candidate).collect()
    }

    /// Those of a session, the newest first.
    fn checkpoints(&self, session: &str, prefix: &str) -> Vec<Candidate> {
        let Ok(session) = SessionName::new(session) else { return Vec::new() };
        let found = self.store.offered_checkpoints(&session).unwrap_or_default();
        let now = Timestamp::now();
        let candidate = |it: &CheckpointSummary| {
            Candidate::new(format!("{prefix}{}", it.id.seq), about(it, now))
        };
        found.iter().map(candidate).collect()
    }

    /// What a checkpoint holds in the directory that was typed so far, as seen from here.
    fn paths(&self, spec: &Spec, current: &str) -> Vec<Candidate> {
        let root = self.root();
        let typed = current.rfind('/').map_or("", |slash| current.split_at(slash + 1).0);
        let above = if typed.is_empty() { "." } else { typed };
        let inside = target::path_inside(&root, &self.directory, above.as_ref());
        let Ok(Some(directory)) = inside else { return Vec::new() };
        let found = self.store.offered_paths(spec, &root, &directory).unwrap_or_default();
        let candidate = |(path, is_dir): (RelPath, bool)| {
            let name = Path::new(path.as_os()).file_name()?.as_bytes();
            let slash: &[u8] = if is_dir { b"/" } else { b"" };
            Some(Candidate::new([typed.as_bytes(), name, slash].concat(), ""))
        };
        found.into_iter().filter_map(candidate).collect()
    }
}

/// Age, trigger and label.
fn about(checkpoint: &CheckpointSummary, now: Timestamp) -> String {
    let (age, label) = (format::age(checkpoint.created_at, now), checkpoint.label.as_deref());
    let about = [age.as_str(), &checkpoint.trigger, label.unwrap_or_default()].join(", ");
    about.trim_end_matches(", ").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_as_bash_cuts_it() {
        let words = |line: &str| {
            let words = split(line.as_bytes())?;
            Some(words.into_iter().map(|it| String::from_utf8(it).unwrap()).collect::<Vec<_>>())
        };
        let is = |line: &str, expected: &[&str]| {
            assert_eq!(words(line).unwrap(), expected, "{line}");
        };
        is("t show s:3", &["t", "show", "s:3"]);
        is("t  show ", &["t", "show", ""]);
        is("t 'a b' c\\ d \"e'f\"", &["t", "a b", "c d", "e'f"]);
        is("t --session=x", &["t", "--session=x"]);
        assert_eq!(words("t 'a b"), None);
        assert_eq!(words("t a\\"), None);
    }

    #[test]
    fn what_means_something_to_bash_is_quoted() {
        assert_eq!(quoted(b"a b$(c)'*"), b"a\\ b\\$\\(c\\)\\'\\*");
        assert_eq!(quoted(b"~x/~y"), b"\\~x/~y");
        assert_eq!(quoted("größe:3/x".as_bytes()), "größe:3/x".as_bytes());
    }
}
