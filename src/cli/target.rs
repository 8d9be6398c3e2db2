//! Which checkpoint and which paths the words of a command mean.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use turnpoint::clock::Timestamp;
use turnpoint::id::SessionName;
use turnpoint::path::{RelPath, printable, shell_path, shell_word};
use turnpoint::{Error, Spec, Which};

use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};

/// A checkpoint, and the words after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    pub(crate) spec: Spec,
    pub(crate) rest: &'a [OsString],
}

/// Reads `SESSION SEQ …`, `SESSION:SEQ …` or `SEQ …`, where `SEQ` may be `latest`, `latest~N` or `@LABEL`.
///
/// The second word decides between the first and the last form: if it is a number or `latest`, the
/// first one is a session, unless `--session` named one. A path that looks like a number comes after
/// `--`. What else might be meant is told of what is `around`.
pub(crate) fn parse<'a>(
    words: &'a [OsString],
    session: Option<&str>,
    around: Option<&Context>,
) -> Outcome<Target<'a>> {
    let session = session.map(session_name).transpose()?;
    let [first, rest @ ..] = words else {
        return Err(not_a_checkpoint("no checkpoint is named", around));
    };
    let first = first.to_string_lossy();
    if session.is_none()
        && !first.contains(':')
        && let [second, rest @ ..] = rest
        && let Some(which) = second.to_str().and_then(|second| second.parse::<Which>().ok())
        // A path may well begin as a label does, behind what is a checkpoint by itself.
        && !(matches!(which, Which::Label(_)) && first.parse::<Spec>().is_ok())
    {
        let session = session_name(&first).map_err(|failure| {
            let (checkpoint, path) = (shell_word(second), shell_path(&*first));
            failure.hint(format!("a checkpoint comes before a path, as in `{checkpoint} {path}`"))
        })?;
        return Ok(Target { spec: Spec { session: Some(session), which }, rest });
    }
    let Ok(spec) = first.parse::<Spec>() else {
        let shown = printable(first.as_bytes());
        let failure = not_a_checkpoint(&format!("`{shown}` names no checkpoint"), around);
        let hint = around.and_then(|context| what_it_is(&first, session.as_ref(), context));
        return Err(match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        });
    };
    Ok(Target { spec: Spec { session: spec.session.or(session), ..spec }, rest })
}

/// What a word in the place of a checkpoint seems to be instead.
fn what_it_is(word: &str, session: Option<&SessionName>, context: &Context) -> Option<String> {
    // Whoever has git in the fingers names a path alone.
    let (path, before) = (shell_path(word), "a checkpoint comes before a path");
    let place = context.place();
    if context.settings.directory.join(word).symlink_metadata().is_ok() {
        return Some(format!(
            "it is a path here, and {before}, as in `latest {path}`; `turnpoint {place}list` shows what there is"
        ));
    }
    let is_session = |name: &SessionName| {
        let spec = Spec { session: Some(name.clone()), which: Which::Latest { back: 0 } };
        context.resolved(&spec).is_some()
    };
    // As git has it: a range.
    if let Some((first, last)) = word.split_once("..")
        && let Ok(spec) = first.parse::<Spec>()
        && last.parse::<Spec>().is_ok()
    {
        let last = match &spec.session {
            Some(session) if !last.contains(':') => format!("{session}:{last}"),
            _ => last.to_owned(),
        };
        let (first, last) = (shell_word(first), shell_word(last));
        return Some(format!(
            "two checkpoints are two words, as in `turnpoint {place}diff {first} {last}`"
        ));
    }
    // As git has it: a revision, a colon, a path.
    if let Some((named, path)) = word.rsplit_once(':')
        && !path.is_empty()
    {
        let checkpoint = if named.parse::<Spec>().is_ok() {
            named.to_owned()
        } else {
            let session = SessionName::new(named).ok().filter(&is_session)?;
            format!("{session}:latest")
        };
        let (checkpoint, path) = (shell_word(checkpoint), shell_path(path));
        return Some(format!(
            "`{checkpoint}` is a checkpoint, and a path a word of its own, as in `turnpoint {place}cat {checkpoint} \
             {path}`"
        ));
    }
    let of_session = session
        .map_or_else(String::new, |session| format!("--session {} ", shell_word(session.as_str())));
    let log = format!("`turnpoint {place}log {of_session}{path}`");
    if word.contains('/') {
        return Some(format!("{before}; {log} shows which have one that is gone"));
    }
    let name = SessionName::new(word).ok()?;
    let latest = shell_word(name.as_str());
    Some(if is_session(&name) {
        format!(
            "{FORMS}: `latest` is the newest, `{latest}:latest` that of a session, and `turnpoint {place}list` shows \
             what there is"
        )
    } else {
        format!(
            "{FORMS}: `latest` is the newest, and `turnpoint {place}list` shows what there is; {log} shows which \
             have a path of that name"
        )
    })
}

/// As [`parse`]; where `at` names a time that is the checkpoint, and no word names one.
///
/// A path that looks like a checkpoint comes after `--` here too: who names two means something else.
pub(crate) fn parse_at<'a>(
    words: &'a [OsString],
    session: Option<&str>,
    at: Option<Timestamp>,
    around: Option<&Context>,
) -> Outcome<Target<'a>> {
    let Some(at) = at else { return parse(words, session, around) };
    if let Some(word) = words.first().and_then(|word| word.to_str())
        && (word.parse::<Spec>().is_ok_and(|spec| !is_label(&spec))
            || words.get(1).is_some_and(|second| is_number(second)))
    {
        let shown = printable(word.as_bytes());
        let message = format!("--at is in the checkpoint's place, but there is `{shown}`");
        return Err(Failure::own(Exit::Usage, "usage", message).hint(
            "--session names the session; a path that looks like a checkpoint comes after `--`",
        ));
    }
    let session = session.map(session_name).transpose()?;
    Ok(Target { spec: Spec { session, which: Which::At(at) }, rest: words })
}

fn is_label(spec: &Spec) -> bool {
    spec.session.is_none() && matches!(spec.which, Which::Label(_))
}

fn is_number(word: &OsStr) -> bool {
    let which = word.to_str().and_then(|word| word.parse::<Which>().ok());
    which.is_some_and(|which| !matches!(which, Which::Label(_)))
}

/// As [`parse_at`]; the newest checkpoint where nothing names one.
pub(crate) fn parse_or_latest<'a>(
    words: &'a [OsString],
    session: Option<&str>,
    at: Option<Timestamp>,
    around: Option<&Context>,
) -> Outcome<Target<'a>> {
    if words.is_empty() && at.is_none() {
        let session = session.map(session_name).transpose()?;
        return Ok(Target { spec: Spec { session, which: Which::Latest { back: 0 } }, rest: &[] });
    }
    parse_at(words, session, at, around)
}

/// As [`parse_at`], and no word is left.
pub(crate) fn parse_alone(
    words: &[OsString],
    session: Option<&str>,
    at: Option<Timestamp>,
    around: Option<&Context>,
) -> Outcome<Spec> {
    let Target { spec, rest } = parse_at(words, session, at, around)?;
    require_no_rest(rest)?;
    Ok(spec)
}

/// Refuses words that nothing is known to do with.
pub(crate) fn require_no_rest(rest: &[OsString]) -> Outcome<()> {
    match rest.first() {
        None => Ok(()),
        Some(word) => {
            let shown = printable(word.as_bytes());
            let message =
                format!("nothing is expected after the checkpoint, but there is `{shown}`");
            Err(Failure::own(Exit::Usage, "usage", message))
        }
    }
}

/// How a checkpoint is named.
const FORMS: &str = "SEQ, SESSION SEQ, SESSION:SEQ, latest, latest~N or @LABEL is expected";

fn not_a_checkpoint(message: &str, around: Option<&Context>) -> Failure {
    let place = around.map(Context::place).unwrap_or_default();
    Failure::own(Exit::Usage, "invalid-checkpoint", message).hint(format!(
        "{FORMS}: `latest` is the newest, and `turnpoint {place}list` shows what there is"
    ))
}

/// A session's name as it was typed.
pub(crate) fn session_name(text: &str) -> Outcome<SessionName> {
    SessionName::new(text)
        .map_err(|reason| Error::InvalidSession { name: text.to_owned(), reason }.into())
}

/// The paths that `words` mean, relative to the workspace `root`. What is not absolute starts from
/// the directory that the program was called in.
pub(crate) fn paths<'a>(
    context: &Context,
    root: &Path,
    words: impl IntoIterator<Item = &'a OsString>,
) -> Outcome<Vec<RelPath>> {
    let directory = &context.settings.directory;
    words.into_iter().map(|word| Ok(relative(root, directory, word)?)).collect()
}

/// The path that `word`, seen from `directory`, means, relative to the workspace `root`; `None` where it
/// lies outside.
pub(crate) fn path_inside(
    root: &Path,
    directory: &Path,
    word: &OsStr,
) -> turnpoint::Result<Option<RelPath>> {
    inside(root, directory, word).map(|inside| rel_path(&inside, word)).transpose()
}

/// Whether `word`, seen from `directory`, means a directory that the workspace `root` lies in.
pub(crate) fn is_above(root: &Path, directory: &Path, word: &OsStr) -> bool {
    root.starts_with(without_dots(&directory.join(word)))
}

/// `word` seen from `directory`, relative to `root`.
fn relative(root: &Path, directory: &Path, word: &OsStr) -> turnpoint::Result<RelPath> {
    // An unset variable of a script must not stand for the whole tree.
    if word.is_empty() {
        return Err(invalid(word, "it is empty; `.` is the whole directory".to_owned()));
    }
    let inside = inside(root, directory, word)
        .ok_or_else(|| invalid(word, format!("it lies outside of {}", root.display())))?;
    rel_path(&inside, word)
}

/// Where below `root` a word leads to. Only names are compared: the path may not exist.
fn inside(root: &Path, directory: &Path, word: &OsStr) -> Option<PathBuf> {
    let path = without_dots(&directory.join(word));
    if let Ok(inside) = path.strip_prefix(root) {
        return Some(inside.to_owned());
    }
    through_links(&path)?.strip_prefix(root).ok().map(Path::to_owned)
}

fn rel_path(inside: &Path, word: &OsStr) -> turnpoint::Result<RelPath> {
    RelPath::new(inside.as_os_str().as_bytes()).map_err(|reason| invalid(word, reason.to_string()))
}

fn invalid(word: &OsStr, reason: String) -> Error {
    Error::InvalidPath { path: PathBuf::from(word), reason }
}

/// The same path with `.` and `..` taken out by name.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// The same path with its directory's links followed; the last name is not, it may be a link that is
/// meant itself.
fn through_links(path: &Path) -> Option<PathBuf> {
    let parent = path.parent()?.canonicalize().ok()?;
    Some(parent.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str], session: Option<&str>) -> Option<(String, usize)> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let Target { spec, rest } = parse(&words, session, None).ok()?;
        let session = spec.session.map(|session| session.to_string());
        Some((format!("{}:{:?}", session.unwrap_or_default(), spec.which), rest.len()))
    }

    #[test]
    fn every_form_names_the_same_checkpoint() {
        let expected = |session: &str, rest| Some((format!("{session}:Seq(Seq(3))"), rest));
        assert_eq!(parsed(&["s", "3"], None), expected("s", 0));
        assert_eq!(parsed(&["s:3"], None), expected("s", 0));
        assert_eq!(parsed(&["3"], Some("s")), expected("s", 0));
        assert_eq!(parsed(&["3"], None), expected("", 0));
        assert_eq!(parsed(&["s", "3", "a", "b"], None), expected("s", 2));
        assert_eq!(parsed(&["s:3", "a"], None), expected("s", 1));
        assert_eq!(parsed(&["3", "a"], None), expected("", 1));
        // A session whose name is a number; and a path that is one.
        assert_eq!(parsed(&["7", "3"], None), expected("7", 0));
        assert_eq!(parsed(&["3", "7"], Some("s")), expected("s", 1));
        assert_eq!(parsed(&["s:3", "7"], None), expected("s", 1));
        // The checkpoint's own session wins.
        assert_eq!(parsed(&["s:3"], Some("t")), expected("s", 0));
    }

    #[test]
    fn latest_counts_back() {
        let latest = |words: &[&str]| parsed(words, None).unwrap().0;
        assert_eq!(latest(&["latest"]), ":Latest { back: 0 }");
        assert_eq!(latest(&["latest~2", "src"]), ":Latest { back: 2 }");
        assert_eq!(latest(&["s", "latest~1"]), "s:Latest { back: 1 }");
    }

    #[test]
    fn a_label_is_told_from_a_path() {
        let expected =
            |session: &str, label: &str, rest| Some((format!("{session}:Label({label:?})"), rest));
        assert_eq!(parsed(&["@before"], None), expected("", "before", 0));
        assert_eq!(parsed(&["@before it", "src"], None), expected("", "before it", 1));
        assert_eq!(parsed(&["s", "@before", "src"], None), expected("s", "before", 1));
        assert_eq!(parsed(&["s:@before", "@types"], None), expected("s", "before", 1));
        assert_eq!(parsed(&["@a", "@types"], None), expected("", "a", 1));
        let latest = parsed(&["latest", "@types"], None);
        assert_eq!(latest, Some((":Latest { back: 0 }".to_owned(), 1)));
        assert_eq!(parsed(&["3", "@types"], None), Some((":Seq(Seq(3))".to_owned(), 1)));
    }

    #[test]
    fn what_names_no_checkpoint_is_refused() {
        for words in [&[][..], &["s"], &["src/main.rs", "x"], &["-1"], &["../x", "3"]] {
            assert_eq!(parsed(words, None), None, "{words:?}");
        }
    }

    #[test]
    fn paths_start_from_the_current_directory_and_stay_inside() {
        let root = Path::new("/r/w");
        let path = |directory: &str, word: &str| {
            relative(root, Path::new(directory), OsStr::new(word)).map(|path| path.to_string()).ok()
        };
        assert_eq!(path("/r/w/src", "a.rs").as_deref(), Some("src/a.rs"));
        assert_eq!(path("/r/w/src", "../b/./c/").as_deref(), Some("b/c"));
        assert_eq!(path("/r/w/src", "..").as_deref(), Some("."));
        assert_eq!(path("/r/w", "/r/w/x").as_deref(), Some("x"));
        assert_eq!(path("/r/w", "../x"), None);
        assert_eq!(path("/r/w", "/r/wx"), None);
        assert_eq!(path("/r/w", ""), None, "an unset variable is not the whole tree");
    }
}
