//! `turnpoint capture`.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::id::CheckpointId;
use turnpoint::limits::PATH_BYTES_MAX;
use turnpoint::manifest::{Counts, Coverage};
use turnpoint::path::{RelPath, printable};
use turnpoint::{CaptureOptions, CaptureOutcome, CaptureProblem, Error, Spec, Which};

use crate::cli::arguments::CaptureArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, ReasonDocument, RootDocument};
use crate::cli::printer::{self, Kind, Style};
use crate::cli::target;

/// A list of paths is never longer: a million long ones.
const LIST_BYTES_MAX: u64 = 256 * 1024 * 1024;

#[derive(Serialize)]
struct CaptureDocument<'a> {
    #[serde(flatten)]
    id: IdDocument,
    created: bool,
    coverage: &'a Coverage,
    complete: bool,
    #[serde(flatten)]
    root: RootDocument,
    counts: &'a Counts,
    problems: Vec<ReasonDocument>,
    problem_count: u64,
    unknown_count: u64,
    first_unknown: Option<PathDocument>,
    dropped: Vec<IdDocument>,
    elapsed_ms: u64,
}

/// Captures the workspace.
pub(crate) fn run(arguments: &CaptureArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let mut options = CaptureOptions::default();
    options.session.clone_from(&arguments.session);
    options.label.clone_from(&arguments.label);
    options.trigger = arguments.trigger.clone();
    options.if_changed = arguments.if_changed;
    options.strict = arguments.strict;
    options.force = arguments.force;
    options.workspace = context.settings.workspace;
    let values = if arguments.strict {
        context.values(&root)?
    } else {
        context.configuration_as_understood(&root).settings()
    };
    options.scope = values.scope;
    options.session = options.session.or(values.session);
    if let Some(file) = &arguments.changed_from {
        options.changed = Some(changed_paths(&root, file, context)?);
    }
    let outcome = context.run(|store, monitor| store.capture(&root, &options, monitor))?;
    if context.is_json() {
        context.document(&CaptureDocument {
            id: IdDocument::from(&outcome.checkpoint),
            created: outcome.created,
            coverage: &outcome.coverage,
            complete: outcome.complete,
            root: RootDocument::from(outcome.root.as_path()),
            counts: &outcome.counts,
            problems: outcome.problems.iter().map(ReasonDocument::from).collect(),
            problem_count: outcome.problem_count,
            unknown_count: outcome.unknown_count,
            first_unknown: outcome.first_unknown.as_ref().map(PathDocument::from),
            dropped: outcome.dropped.iter().map(IdDocument::from).collect(),
            elapsed_ms: outcome.elapsed_ms,
        })?;
    } else {
        print(&outcome, context)?;
    }
    Ok(Exit::damaged_if(!outcome.complete))
}

/// The list of paths that have changed. What lies outside of the workspace is of no concern to it, and is
/// told: an agent lists whatever it touched.
fn changed_paths(root: &Path, file: &Path, context: &Context) -> Outcome<Vec<RelPath>> {
    let name = if file == Path::new("-") { Path::new("standard input") } else { file };
    let unreadable = |source| Error::Io { verb: "read", path: name.to_owned(), source };
    let mut text = Vec::new();
    let read = if file == Path::new("-") {
        io::stdin().lock().take(LIST_BYTES_MAX + 1).read_to_end(&mut text)
    } else {
        let file = context.settings.directory.join(file);
        File::open(file).and_then(|file| file.take(LIST_BYTES_MAX + 1).read_to_end(&mut text))
    };
    read.map_err(unreadable)?;
    if text.len() as u64 > LIST_BYTES_MAX {
        let source = io::Error::other(format!("it is longer than {LIST_BYTES_MAX} bytes"));
        return Err(unreadable(source).into());
    }
    for (number, word) in (1_u64..).zip(words_of(&text)) {
        if word.len() > PATH_BYTES_MAX {
            let message =
                format!("line {number} of the list is longer than {PATH_BYTES_MAX} bytes");
            return Err(Failure::own(Exit::Usage, "invalid-list", message)
                .hint("one path a line is expected, or a NUL byte after each"));
        }
    }
    if let Some((number, plain)) = without_return(&text, root, context) {
        let message = format!(
            "line {number} of the list ends with a carriage return, and there is only `{plain}` without one"
        );
        return Err(Failure::own(Exit::Usage, "invalid-list", message).hint(
            "the list has CRLF line ends: take them away, as `tr -d '\\r'` does; a name that ends so comes in a \
             list with a NUL byte after each path",
        ));
    }
    let (paths, outside) = paths_of_list(&text, root, &context.settings.directory)?;
    if outside > 0 {
        let count = format::counted(outside, "path of the list lies", "paths of the list lie");
        let text = format!("{count} outside of {}", printable(root.as_os_str().as_bytes()));
        context.printer.style().complain(Kind::Note, &text);
    }
    Ok(paths)
}

/// The words of a list, empty ones too: with a NUL after each where it has one, else one a line.
fn words_of(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = if text.contains(&0) { 0 } else { b'\n' };
    text.split(move |&byte| byte == end)
}

/// The first line that ends with a carriage return where only without it there is a path, on the disk or in the
/// newest checkpoint: its number, and that path.
///
/// Cost: two stats for each such line, and once the entries of that checkpoint where the disk does not decide it.
fn without_return(list: &[u8], root: &Path, context: &Context) -> Option<(u64, RelPath)> {
    if list.contains(&0) {
        return None;
    }
    let directory = &context.settings.directory;
    let path = |word| target::path_inside(root, directory, OsStr::from_bytes(word)).ok().flatten();
    let is_on_disk = |path: &RelPath| root.join(path.as_os()).symlink_metadata().is_ok();
    let held: LazyCell<HashSet<RelPath>, _> = LazyCell::new(|| {
        let newest = Spec { session: None, which: Which::Latest { back: 0 } };
        let newest = context.store.resolve(&newest, root, &()).ok();
        let entries = newest.and_then(|it| context.store.entries(&it, &RelPath::root(), &()).ok());
        entries.into_iter().flatten().map(|entry| entry.path).collect()
    });
    let lines = (1_u64..).zip(words_of(list));
    let returned =
        lines.filter_map(|(number, word)| Some((number, word, word.strip_suffix(b"\r")?)));
    returned.filter(|(.., plain)| !plain.is_empty()).find_map(|(number, word, plain)| {
        let (typed, plain) = (path(word)?, path(plain)?);
        let is_meant = !is_on_disk(&typed)
            && (is_on_disk(&plain) || held.contains(&plain))
            && !held.contains(&typed);
        is_meant.then_some((number, plain))
    })
}

/// The paths of a list, relative to the workspace `root`, and how many more lie outside of it.
fn paths_of_list(
    text: &[u8],
    root: &Path,
    directory: &Path,
) -> turnpoint::Result<(Vec<RelPath>, u64)> {
    let (mut paths, mut outside) = (Vec::new(), 0);
    for word in words_of(text).filter(|word| !word.is_empty()) {
        match target::path_inside(root, directory, OsStr::from_bytes(word))? {
            Some(path) => paths.push(path),
            // All that is here is below it.
            None if target::is_above(root, directory, OsStr::from_bytes(word)) => {
                paths.push(RelPath::root());
            }
            None => outside += 1,
        }
    }
    Ok((paths, outside))
}

fn print(outcome: &CaptureOutcome, context: &mut Context) -> io::Result<()> {
    let printer = &mut context.printer;
    let style = printer.style();
    if !style.quiet {
        let root = printable(outcome.root.as_os_str().as_bytes());
        let id = &outcome.checkpoint;
        if outcome.created {
            printer.prose(&format!("captured {id} of {root}"))?;
        } else {
            printer.prose(&format!("nothing has changed in {root} since {id}"))?;
        }
        if let Coverage::Hinted(listed) = &outcome.coverage {
            let count = format::counted(listed.len() as u64, "directory", "directories");
            printer.prose(&format!("looked at {count} as told, and nowhere else"))?;
        }
        printer.prose(&work_done(&outcome.counts, outcome.elapsed_ms))?;
        if !outcome.counts.omitted.is_empty() {
            printer.hanging("not held: ", &omitted(&outcome.counts.omitted))?;
        }
        if let Some(dropped) = told(&outcome.dropped) {
            let text =
                format!("{dropped}, by the rules of retention (`retention.keep` and its like)");
            printer.hanging("dropped: ", &text)?;
        }
        printer.flush()?;
        if let Some(first) = &outcome.first_unknown {
            let (is, are) = ("path of the list is", "paths of the list are");
            let count = format::counted(outcome.unknown_count, is, are);
            let text =
                format!("{count} neither here nor in the checkpoint before, the first `{first}`");
            style.complain(Kind::Note, &text);
        }
    }
    if !outcome.complete {
        let text = "the checkpoint is incomplete: some paths could not be held whole";
        style.complain(Kind::Warning, text);
        name_problems(&outcome.problems, outcome.problem_count, style);
    }
    Ok(())
}

/// The first checkpoints by their names, and how many there are.
fn told(checkpoints: &[CheckpointId]) -> Option<String> {
    let first = checkpoints.first()?;
    Some(match checkpoints.len() - 1 {
        0 => first.to_string(),
        more => format!("{first} and {}", format::counted(more as u64, "other", "others")),
    })
}

fn work_done(counts: &Counts, elapsed_ms: u64) -> String {
    let Counts { files_observed, files_read, bytes_read, bytes_stored, .. } = counts;
    let files = format::counted(*files_observed, "file", "files");
    let read = match files_read {
        0 => "none read".to_owned(),
        _ => format!("{} read ({})", format::number(*files_read), format::size(*bytes_read)),
    };
    let (stored, elapsed) = (format::size(*bytes_stored), format::elapsed(elapsed_ms));
    format!("{files}, {read}, {stored} stored, {elapsed}")
}

/// How many names are not held, by reason.
pub(crate) fn omitted(omitted: &BTreeMap<turnpoint::manifest::OmitReason, u64>) -> String {
    let parts: Vec<String> = omitted
        .iter()
        .map(|(reason, count)| format!("{} {reason}", format::number(*count)))
        .collect();
    parts.join(", ")
}

/// Names paths that could not be held whole, each with the reason.
pub(crate) fn name_problems(problems: &[CaptureProblem], count: u64, style: Style) {
    let most = if style.verbose { usize::MAX } else { NAMED_MAX };
    for problem in problems.iter().take(most) {
        let why = problem.reason.map_or("changed while it was read", |reason| reason.as_str());
        printer::aside_item(&format!("{}: {why}", problem.path));
    }
    let more = count - problems.len().min(most) as u64;
    if more > 0 {
        let hint = if problems.len() > most { " (--verbose names more)" } else { "" };
        printer::aside(&format!("  and {} more{hint}", format::number(more)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const WORDS: [&[u8]; 14] = [
        b"a.rs",
        b"../b/./c/",
        b"/r/w/x",
        b"/r/w/../w/y",
        b"/r/w",
        b"..",
        b"../..",
        b"../../../etc/passwd",
        b"/etc/passwd",
        b"/r/wx",
        b"~/x",
        b" ",
        b"\xff\x1b[2J",
        b"a\r",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A path of the list is one in the workspace, or is counted as one outside; none is left out.
        #[test]
        fn no_list_of_changed_paths_leads_out(
            words in vec(prop_oneof![
                3 => select(&WORDS[..]).prop_map(<[u8]>::to_vec),
                1 => vec(any::<u8>(), 0..12),
            ], 0..8),
            end in select(&[0, b'\n'][..]),
        ) {
            let (root, directory) = (Path::new("/r/w"), Path::new("/r/w/src"));
            let text = words.join(&end);
            let end = if text.contains(&0) { 0 } else { b'\n' };
            let count = text.split(|&byte| byte == end).filter(|word| !word.is_empty()).count();
            let (paths, outside) = paths_of_list(&text, root, directory).unwrap();
            prop_assert_eq!(paths.len() as u64 + outside, count as u64);
            let mut again = Vec::new();
            for path in &paths {
                let leads_out = |name: &[u8]| matches!(name, b"" | b"." | b"..") || name.contains(&0);
                let bytes = path.as_bytes();
                prop_assert!(bytes.is_empty() || !bytes.split(|&byte| byte == b'/').any(leads_out));
                again.extend([b"/r/w/", bytes, b"\0"].concat());
            }
            prop_assert_eq!(paths_of_list(&again, root, directory).unwrap(), (paths, 0));
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_an_error_and_not_left_out() {
        let (root, directory) = (Path::new("/r/w"), Path::new("/r/w/src"));
        let list = ["a", &"x".repeat(40_000), "b"].join("\n");
        assert!(paths_of_list(list.as_bytes(), root, directory).is_err());
        let outside = paths_of_list(b"/r/x\0../../y\0/r/w/src/../z\0", root, directory).unwrap();
        assert_eq!(outside, (vec![RelPath::new("z").unwrap()], 2));
    }
}
