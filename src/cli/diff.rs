//! `turnpoint diff`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use turnpoint::clock::Timestamp;
use turnpoint::compare::{Change, ChangeKind, LineCount, Selection};
use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::manifest::{Entry, EntryKind, OmitReason};
use turnpoint::path::{printable, shell_path};
use turnpoint::{CompareOptions, Compared, Comparison, Error, Spec, Which};

use crate::cli::arguments::DiffArguments;
use crate::cli::capture;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::json::{
    DifferenceDocument, IdDocument, PathDocument, ReasonDocument, RootDocument,
};
use crate::cli::patch::{self, AfterIs};
use crate::cli::printer::{Kind, Paint, Printer};
use crate::cli::stat;
use crate::cli::target::{self, Target};

/// Compares.
pub(crate) fn run(arguments: &DiffArguments, context: &mut Context) -> Outcome<Exit> {
    if context.is_json() && (arguments.patch || arguments.name_status || arguments.nul) {
        let message = "--patch, --name-status and -z are no JSON; leave them out, or --json";
        return Err(Failure::own(Exit::Usage, "usage", message));
    }
    context.report_open_restore();
    let session = arguments.session.as_deref();
    let is_path = |before: &Spec, word: &OsStr| is_path(before, word, context);
    let (before, after, rest) =
        sides(&arguments.words, session, arguments.time.at, Some(context), is_path)?;
    if after.is_none() {
        refuse_two_readings(&before, rest, context)?;
    }
    let root = context.root()?;
    let paths = target::paths(context, &root, rest.iter().chain(&arguments.paths))?;
    let mut options = CompareOptions::default();
    options.paths = Selection::new(paths);
    options.renames = !arguments.no_renames;
    options.force = arguments.force;
    options.workspace = context.settings.workspace;
    let (before, after) = match after {
        None => {
            options.scope = context.values(&root)?.scope;
            (context.resolve(&before)?, None)
        }
        Some(after) => {
            let label = Some(&after.which).filter(|_| after.session.is_none()).cloned();
            let resolved = resolve_both(&before, after, context);
            if let (Err(failure), Some(Which::Label(label))) = (&resolved, label)
                && matches!(failure.error(), Some(Error::LabelNotFound { label: of, .. }) if *of == label)
            {
                context.remark(format!(
                    "`@{label}` is no path here, so a label is meant; a path that is gone comes after `--`"
                ));
            }
            let (before, after) = resolved?;
            (before, Some(after))
        }
    };
    let found = context.run(|store, monitor| match &after {
        Some(after) => store.compare(&before, after, &options, monitor),
        None => store.compare_with_disk(&before, &root, &options, monitor),
    })?;
    tell_what_it_is_not(&found, context);
    let is_whole = show(&found, arguments, context)?;
    Ok(if !is_whole || found.problem_count > 0 {
        Exit::Damaged
    } else if arguments.exit_code && !found.changes.is_empty() {
        Exit::Differs
    } else {
        Exit::Done
    })
}

/// The two checkpoints. A number without a session is of the session of the first, and so is everything
/// where that one was named; `latest` and a label mean what they mean for the first.
fn resolve_both(
    before: &Spec,
    after: Spec,
    context: &mut Context,
) -> Outcome<(CheckpointId, CheckpointId)> {
    let found = context.resolve(before)?;
    let is_of_same = before.session.is_some() || matches!(after.which, Which::Seq(_));
    let session = after.session.or_else(|| is_of_same.then(|| found.session.clone()));
    let after = context.resolve(&Spec { session, ..after })?;
    Ok((found, after))
}

/// Reads `[SESSION] A [B]` in every form of a checkpoint; the rest are paths.
///
/// Of two words that are both a number or `latest`, and no third, both are checkpoints. A bare word that
/// begins with `@` is a label where it comes first, or behind a session; in the place of B it is one unless
/// `is_path` says that it is a path, seen from A. Where `at` names a time, that is A; where nothing names one,
/// A is the newest.
pub(crate) fn sides<'a>(
    words: &'a [OsString],
    session: Option<&str>,
    at: Option<Timestamp>,
    around: Option<&Context>,
    is_path: impl Fn(&Spec, &OsStr) -> bool,
) -> Outcome<(Spec, Option<Spec>, &'a [OsString])> {
    let is_number = |word: Option<&OsString>| {
        let which = word.and_then(|word| word.to_str()?.parse::<Which>().ok());
        which.is_some_and(|which| !matches!(which, Which::Label(_)))
    };
    let label_of = |word: Option<&OsString>| word.and_then(|word| bare_label(word));
    // No session's name begins with `@`, so what comes after a label is no number of it.
    let is_pair = is_number(words.get(1))
        && (label_of(words.first()).is_some()
            || is_number(words.first()) && !is_number(words.get(2)));
    let Target { spec: before, rest } = if at.is_some() || words.is_empty() {
        Target { rest: words, ..target::parse_or_latest(&[], session, at, around)? }
    } else if is_pair {
        let (first, rest) = words.split_at(1);
        Target { rest, ..target::parse(first, session, around)? }
    } else {
        target::parse(words, session, around)?
    };
    let spec: Option<Spec> = rest.first().and_then(|word| word.to_str()?.parse().ok());
    let is_checkpoint = |word: &OsString| bare_label(word).is_none() || !is_path(&before, word);
    if let (Some(after), Some(word)) = (spec, rest.first())
        && is_checkpoint(word)
    {
        return Ok((before, Some(after), &rest[1..]));
    }
    let is_label_of_session = label_of(rest.get(1)).is_some()
        && rest.iter().take(2).all(|word| !is_path(&before, word))
        && rest[0].to_str().is_some_and(|word| SessionName::new(word).is_ok());
    if is_number(rest.get(1)) || is_label_of_session {
        let Target { spec: after, rest } = target::parse(rest, None, around)?;
        return Ok((before, Some(after), rest));
    }
    Ok((before, None, rest))
}

/// The label that a word such as `@works` names.
fn bare_label(word: &OsStr) -> Option<Which> {
    let which = word.to_str()?.parse().ok()?;
    matches!(which, Which::Label(_)).then_some(which)
}

/// Whether a word that could be a label is a path: a pattern, or one that is here or was there in A, which may be
/// what somebody asks about.
fn is_path(before: &Spec, word: &OsStr, context: &Context) -> bool {
    let directory = &context.settings.directory;
    if word.as_bytes().iter().any(|byte| b"*?[".contains(byte))
        || directory.join(word).symlink_metadata().is_ok()
    {
        return true;
    }
    let path = context.root().and_then(|root| target::path_inside(&root, directory, word));
    let (Ok(Some(path)), Some(before)) = (path, context.resolved(before)) else { return false };
    context.store.entries(&before, &path, &()).is_ok()
}

/// Refuses a word in the place of B that is a path, and a label too.
fn refuse_two_readings(before: &Spec, rest: &[OsString], context: &Context) -> Outcome<()> {
    let Some(word) = rest.first() else { return Ok(()) };
    let Some(which) = bare_label(word) else { return Ok(()) };
    let Some(id) = context.resolved(&Spec { session: before.session.clone(), which }) else {
        return Ok(());
    };
    let shown = printable(word.as_bytes());
    let message = format!("`{shown}` is a path, and the label of {id}");
    Err(Failure::own(Exit::Usage, "ambiguous", message).hint(format!(
        "`{}` in its place means the checkpoint, `-- {}` the path",
        id.shell_word(),
        shell_path(word)
    )))
}

/// What somebody who reads the answer could take it for.
fn tell_what_it_is_not(found: &Comparison, context: &mut Context) {
    let (before, after) = (&found.before, &found.after);
    let mut notes = Vec::new();
    if before.workspace != after.workspace {
        let root = |side: &Compared| printable(side.root.as_os_str().as_bytes());
        let (old, new) = (root(before), root(after));
        notes.push(format!("two workspaces are compared: {old} and {new}"));
    }
    for side in [before, after] {
        let name = name_of(side);
        if side.is_part {
            notes.push(format!(
                "{name} was made of the paths that a restore was about to change; the others are \
                 compared as in the checkpoint before it"
            ));
        }
        if !side.complete && side.checkpoint.is_some() {
            notes.push(format!(
                "{name} is incomplete: something could not be read whole when it was made"
            ));
        }
    }
    for note in notes {
        context.remark(note);
    }
    if found.problem_count > 0 && !context.is_json() {
        let style = context.printer.style();
        let count = format::counted(found.problem_count, "path", "paths");
        style.complain(Kind::Warning, &format!("{count} could not be read whole"));
        capture::name_problems(&found.problems, found.problem_count, style);
    }
}

/// How a side is called.
fn name_of(side: &Compared) -> String {
    match &side.checkpoint {
        Some(id) => id.to_string(),
        None => printable(side.root.as_os_str().as_bytes()),
    }
}

/// Prints what was asked for; `false` where something could not be read, which was told.
fn show(found: &Comparison, arguments: &DiffArguments, context: &mut Context) -> Outcome<bool> {
    if context.is_json() {
        let (counts, is_whole) =
            if arguments.stat { stat::count(found, context)? } else { (Vec::new(), true) };
        context.document(&document(found, &counts))?;
        return Ok(is_whole);
    }
    if arguments.nul {
        found
            .changes
            .iter()
            .try_for_each(|change| name_status_nul(change, &mut context.printer))?;
        return Ok(true);
    }
    // What was read of the contents is told before a pager takes the terminal.
    let counted = if arguments.stat { Some(stat::count(found, context)?) } else { None };
    if !arguments.no_pager {
        context.page()?;
    }
    if arguments.patch {
        return patch::print(&found.changes, AfterIs::of(found), context);
    }
    let printer = &mut context.printer;
    if arguments.name_status {
        found.changes.iter().try_for_each(|change| name_status(change, printer))?;
        return Ok(true);
    }
    let counts = counted.as_ref().map(|(counts, _)| &**counts);
    listing(found, counts, printer)?;
    Ok(counted.is_none_or(|(_, is_whole)| is_whole))
}

/// A line for each change, with the number of lines where these were counted, and what was not compared.
pub(crate) fn listing(
    found: &Comparison,
    counts: Option<&[stat::Count]>,
    printer: &mut Printer,
) -> io::Result<()> {
    if !printer.style().quiet {
        let (before, after) = (name_of(&found.before), name_of(&found.after));
        let text = if found.changes.is_empty() {
            format!("nothing differs between {before} and {after}")
        } else {
            format!("changes from {before} to {after}")
        };
        printer.prose(&text)?;
    }
    match counts {
        Some(counts) => stat::print(found, counts, printer)?,
        None => summary(found, printer)?,
    }
    if printer.style().quiet { Ok(()) } else { print_not_compared(found, printer) }
}

/// One line for each change, and how many there are of each kind.
pub(crate) fn summary(found: &Comparison, printer: &mut Printer) -> io::Result<()> {
    for change in &found.changes {
        letter(change, printer)?;
        printer.hanging_after(3, &described(change))?;
    }
    if printer.style().quiet || found.changes.is_empty() {
        return Ok(());
    }
    let kinds = [
        ChangeKind::Added,
        ChangeKind::Modified,
        ChangeKind::Deleted,
        ChangeKind::Renamed,
        ChangeKind::Mode,
        ChangeKind::Type,
    ];
    let count = |kind| found.changes.iter().filter(|change| change.kind == kind).count() as u64;
    let parts = kinds.map(|kind| (kind, count(kind))).into_iter().filter(|(_, count)| *count > 0);
    let text = parts.map(|(kind, count)| {
        let count = format::number(count);
        match kind {
            ChangeKind::Mode => format!("{count} with another mode"),
            ChangeKind::Type => format!("{count} of another kind"),
            kind => format!("{count} {}", kind.as_str()),
        }
    });
    printer.gap()?;
    printer.prose(&text.collect::<Vec<_>>().join(", "))
}

fn letter(change: &Change, printer: &mut Printer) -> io::Result<()> {
    let paint = match change.kind {
        ChangeKind::Added => Paint::Added,
        ChangeKind::Deleted => Paint::Removed,
        _ => Paint::Place,
    };
    printer.paint(paint, change.kind.letter().to_string().as_bytes())?;
    printer.paint(Paint::Plain, b"  ")
}

/// A path, and what there is to say of it beside its letter.
pub(crate) fn described(change: &Change) -> String {
    let path = match change.from() {
        Some(from) => format!("{from} -> {}", change.path()),
        None => change.path().to_string(),
    };
    let mut remarks = Vec::new();
    if let (Some(before), Some(after)) = (&change.before, &change.after) {
        if change.kind == ChangeKind::Type {
            remarks.push(format!("{} -> {}", kind_text(before), kind_text(after)));
        } else if before.mode != after.mode {
            remarks.push(format!("mode {} -> {}", before.mode, after.mode));
        }
    }
    if remarks.is_empty() { path } else { format!("{path} [{}]", remarks.join(", ")) }
}

fn kind_text(entry: &Entry) -> String {
    match entry.kind {
        EntryKind::Omitted { reason, .. } => format!("not held: {reason}"),
        EntryKind::Dir { .. } => "directory".to_owned(),
        _ => entry.kind.name().to_owned(),
    }
}

/// What neither side, or only one, holds: nobody can say whether it changed.
fn print_not_compared(found: &Comparison, printer: &mut Printer) -> io::Result<()> {
    let mut reasons: BTreeMap<OmitReason, u64> = found.before.omitted.clone();
    for (&reason, &count) in &found.after.omitted {
        let most = reasons.entry(reason).or_default();
        *most = count.max(*most);
    }
    if reasons.is_empty() {
        return Ok(());
    }
    printer.prose(&format!("not compared: {}", capture::omitted(&reasons)))
}

/// As `git diff --name-status` writes it.
fn name_status(change: &Change, printer: &mut Printer) -> io::Result<()> {
    match change.from() {
        Some(from) => printer.line(format_args!("R100\t{from}\t{}", change.path())),
        None => printer.line(format_args!("{}\t{}", change.kind.letter(), change.path())),
    }
}

/// As `git diff --name-status -z` writes it.
fn name_status_nul(change: &Change, printer: &mut Printer) -> io::Result<()> {
    let out = printer.bytes();
    match change.from() {
        Some(from) => {
            out.write_all(b"R100\0")?;
            out.write_all(from.as_bytes())?;
            out.write_all(b"\0")?;
        }
        None => write!(out, "{}\0", change.kind.letter())?,
    }
    out.write_all(change.path().as_bytes())?;
    out.write_all(b"\0")
}

#[derive(Serialize)]
struct DiffDocument<'a> {
    before: SideDocument<'a>,
    after: SideDocument<'a>,
    changes: Vec<ChangeDocument>,
    problems: Vec<ReasonDocument>,
    problem_count: u64,
}

#[derive(Serialize)]
struct SideDocument<'a> {
    #[serde(flatten)]
    id: Option<IdDocument>,
    workspace: String,
    #[serde(flatten)]
    root: RootDocument,
    complete: bool,
    omitted: &'a BTreeMap<OmitReason, u64>,
}

/// A change, as `diff` and `log` have it.
#[derive(Serialize)]
pub(crate) struct ChangeDocument {
    #[serde(flatten)]
    path: PathDocument,
    change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_bytes: Option<String>,
    #[serde(flatten)]
    difference: DifferenceDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason_to: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    added_lines: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removed_lines: Option<u64>,
}

fn reason_of(entry: Option<&Entry>) -> Option<&'static str> {
    match entry?.kind {
        EntryKind::Omitted { reason, .. } => Some(reason.as_str()),
        _ => None,
    }
}

impl From<&Change> for ChangeDocument {
    fn from(change: &Change) -> Self {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let (from, from_bytes) = match change.from() {
            Some(from) => {
                let (text, bytes) = crate::cli::json::text_and_bytes(from.as_bytes());
                (Some(text), bytes)
            }
            None => (None, None),
        };
        Self {
            path: PathDocument::from(change.path()),
            change: change.kind.as_str(),
            from,
            from_bytes,
            difference: DifferenceDocument::between(before, after),
            reason_from: reason_of(before),
            reason_to: reason_of(after),
            added_lines: None,
            removed_lines: None,
        }
    }
}

fn document<'a>(found: &'a Comparison, counts: &[stat::Count]) -> DiffDocument<'a> {
    let mut changes: Vec<ChangeDocument> = found.changes.iter().map(ChangeDocument::from).collect();
    for (change, count) in changes.iter_mut().zip(counts) {
        if let stat::Count::Lines(LineCount { added, removed }) = count {
            change.added_lines = Some(*added);
            change.removed_lines = Some(*removed);
        }
    }
    let side = |side: &'a Compared| SideDocument {
        id: side.checkpoint.as_ref().map(IdDocument::from),
        workspace: side.workspace.to_string(),
        root: RootDocument::from(side.root.as_path()),
        complete: side.complete,
        omitted: &side.omitted,
    };
    DiffDocument {
        before: side(&found.before),
        after: side(&found.after),
        changes,
        problems: found.problems.iter().map(ReasonDocument::from).collect(),
        problem_count: found.problem_count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str], session: Option<&str>) -> Option<(String, Option<String>, usize)> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let is_path =
            |_: &Spec, word: &OsStr| word.to_str().is_some_and(|word| word.starts_with("@types"));
        let (before, after, rest) = sides(&words, session, None, None, is_path).ok()?;
        let text = |spec: Spec| {
            let session = spec.session.map(|session| session.to_string()).unwrap_or_default();
            match &spec.which {
                Which::Seq(seq) => format!("{session}:{seq}"),
                Which::Latest { back } => format!("{session}:~{back}"),
                Which::Label(label) => format!("{session}:@{label}"),
                Which::At(at) => format!("{session}:{at}"),
            }
        };
        Some((text(before), after.map(text), rest.len()))
    }

    #[test]
    fn a_path_that_begins_as_a_label_is_a_path_where_it_is_there() {
        let after = |words: &[&str]| read(words, None).unwrap();
        let is = |before: &str, after: Option<&str>, rest| {
            (before.to_owned(), after.map(str::to_owned), rest)
        };
        assert_eq!(after(&["latest", "@types"]), is(":~0", None, 1));
        assert_eq!(after(&["s", "0", "@types"]), is("s:0", None, 1));
        assert_eq!(after(&["latest~1", "latest", "@types"]), is(":~1", Some(":~0"), 1));
        assert_eq!(after(&["@a", "s:@b", "@types"]), is(":@a", Some("s:@b"), 1));
        assert_eq!(after(&["@a", "@b", "@types"]), is(":@a", Some(":@b"), 1));
        assert_eq!(after(&["s", "0", "@b"]), is("s:0", Some(":@b"), 0));
        assert_eq!(after(&["s", "@a", "t", "@b"]), is("s:@a", Some("t:@b"), 0));
        assert_eq!(after(&["latest", "src", "@types"]), is(":~0", None, 2));
        assert_eq!(after(&["@a", "3", "src"]), is(":@a", Some(":3"), 1));
        assert_eq!(after(&["@a", "3", "4"]), is(":@a", Some(":3"), 1));
        let with_session = read(&["@a", "@b"], Some("s")).unwrap();
        assert_eq!(with_session, is("s:@a", Some(":@b"), 0));
    }

    #[test]
    fn every_way_to_name_two_checkpoints() {
        let is = |words: &[&str], before: &str, after: Option<&str>, rest| {
            let expected = Some((before.to_owned(), after.map(str::to_owned), rest));
            assert_eq!(read(words, None), expected, "{words:?}");
        };
        is(&["s", "0"], "s:0", None, 0);
        is(&["s:0"], "s:0", None, 0);
        is(&["latest"], ":~0", None, 0);
        is(&["s", "0", "2"], "s:0", Some(":2"), 0);
        is(&["0", "2"], ":0", Some(":2"), 0);
        is(&["latest~1", "latest"], ":~1", Some(":~0"), 0);
        is(&["s:0", "t:2"], "s:0", Some("t:2"), 0);
        is(&["s", "0", "t", "2"], "s:0", Some("t:2"), 0);
        is(&["s:0", "t", "2", "src"], "s:0", Some("t:2"), 1);
        is(&["7", "0", "2"], "7:0", Some(":2"), 0);
        is(&["latest", "src", "docs"], ":~0", None, 2);
        is(&["0", "2", "src"], ":0", Some(":2"), 1);
        is(&["s", "0", "latest", "*.rs"], "s:0", Some(":~0"), 1);
        let with_session = read(&["0", "2", "src"], Some("s"));
        assert_eq!(with_session, Some(("s:0".to_owned(), Some(":2".to_owned()), 1)));
        assert_eq!(read(&["src", "docs"], None), None);
        is(&[], ":~0", None, 0);
        assert_eq!(read(&[], Some("s")), Some(("s:~0".to_owned(), None, 0)));
    }
}
