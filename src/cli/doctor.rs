//! `turnpoint doctor`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::id::OperationId;
use turnpoint::path::printable;
use turnpoint::{Diagnosis, Examination, Mended, RebuildOutcome, Repair, Severity, Treatment};

use crate::cli::arguments::DoctorArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, ReasonDocument};
use crate::cli::printer::{self, Kind};

#[derive(Serialize)]
struct RebuildDocument {
    checkpoints: u64,
    repaired: Vec<RepairDocument>,
    unreadable: Vec<ReasonDocument>,
}

#[derive(Serialize)]
struct RepairDocument {
    file: PathDocument,
    reason: String,
    aside: Option<PathDocument>,
}

#[derive(Serialize)]
struct ForgottenDocument {
    operation: String,
    kind: &'static str,
    started_at: String,
    is_foreign: bool,
}

#[derive(Serialize)]
struct ExaminationDocument {
    ok: bool,
    checkpoints: u64,
    blobs: u64,
    content_bytes: u64,
    sqlite: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<Vec<FixedDocument>>,
    findings: Vec<DiagnosisDocument>,
}

#[derive(Serialize)]
struct DiagnosisDocument {
    id: &'static str,
    severity: &'static str,
    #[serde(flatten)]
    path: PathDocument,
    message: String,
    next: String,
    checkpoints: Vec<IdDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct FixedDocument {
    id: &'static str,
    #[serde(flatten)]
    path: PathDocument,
    message: String,
    aside: Option<PathDocument>,
}

/// Checks or repairs the store.
pub(crate) fn run(arguments: &DoctorArguments, context: &mut Context) -> Outcome<Exit> {
    if let Some(id) = arguments.forget_operation {
        return forget(id, context);
    }
    if arguments.fix {
        return fix(context);
    }
    if !arguments.rebuild {
        let examination = context.run(|store, monitor| store.examine(monitor))?;
        return report(&examination, None, context);
    }
    let outcome = context.run(|store, monitor| store.rebuild_index(monitor))?;
    if context.is_json() {
        let unreadable = outcome.unreadable.iter().map(ReasonDocument::from).collect();
        let checkpoints = outcome.checkpoints;
        let repaired = outcome.repaired.iter().map(RepairDocument::from).collect();
        context.document(&RebuildDocument { checkpoints, repaired, unreadable })?;
    } else {
        tell(&outcome, context)?;
    }
    Ok(Exit::damaged_if(!outcome.unreadable.is_empty()))
}

impl From<&Repair> for RepairDocument {
    fn from(repair: &Repair) -> Self {
        Self {
            file: PathDocument::from(repair.file.as_path()),
            reason: repair.reason.clone(),
            aside: repair.aside.as_deref().map(PathDocument::from),
        }
    }
}

/// Repairs what can be repaired without losing anything.
fn fix(context: &mut Context) -> Outcome<Exit> {
    let Treatment { mended, left, .. } = context.run(|store, monitor| store.mend(monitor))?;
    report(&left, Some(&mended), context)
}

/// Tells what was found, and what was done before.
fn report(
    examination: &Examination,
    mended: Option<&[Mended]>,
    context: &mut Context,
) -> Outcome<Exit> {
    let is_problem = |it: &&Diagnosis| it.condition.severity() == Severity::Problem;
    let problems = examination.findings.iter().filter(is_problem).count() as u64;
    if context.is_json() {
        context.document(&ExaminationDocument {
            ok: problems == 0,
            checkpoints: examination.checkpoints,
            blobs: examination.blobs,
            content_bytes: examination.content_bytes,
            sqlite: examination.sqlite,
            fixed: mended.map(|mended| mended.iter().map(FixedDocument::from).collect()),
            findings: examination.findings.iter().map(DiagnosisDocument::from).collect(),
        })?;
    } else {
        tell_mended(mended.unwrap_or_default(), context)?;
        tell_findings(examination, problems, mended.is_some(), context)?;
    }
    Ok(Exit::damaged_if(problems > 0))
}

impl From<&Diagnosis> for DiagnosisDocument {
    fn from(it: &Diagnosis) -> Self {
        Self {
            id: it.condition.as_str(),
            severity: it.condition.severity().as_str(),
            path: PathDocument::from(it.path.as_path()),
            message: it.message.clone(),
            next: it.next.clone(),
            checkpoints: it.checkpoints.iter().map(IdDocument::from).collect(),
            bytes: it.bytes,
        }
    }
}

impl From<&Mended> for FixedDocument {
    fn from(it: &Mended) -> Self {
        Self {
            id: it.condition.as_str(),
            path: PathDocument::from(it.path.as_path()),
            message: it.message.clone(),
            aside: it.aside.as_deref().map(PathDocument::from),
        }
    }
}

fn tell_mended(mended: &[Mended], context: &mut Context) -> io::Result<()> {
    if context.is_quiet() {
        return Ok(());
    }
    let root = context.store.root().to_owned();
    for it in mended {
        context.printer.heading(&format!("fixed: {}", it.condition.as_str()))?;
        context.printer.hanging("  ", &below(&root, &it.path))?;
        let kept = it.aside.as_deref().map(|aside| format!("; kept as {}", below(&root, aside)));
        let text = format!("{}{}", it.message, kept.unwrap_or_default());
        context.printer.hanging("  ", &printable(text.as_bytes()))?;
    }
    if !mended.is_empty() {
        context.printer.gap()?;
    }
    Ok(())
}

fn tell_findings(
    examination: &Examination,
    problems: u64,
    was_fixed: bool,
    context: &mut Context,
) -> io::Result<()> {
    let (style, root) = (context.printer.style(), context.store.root().to_owned());
    let findings = &examination.findings;
    let printer = &mut context.printer;
    if findings.is_empty() {
        if style.quiet {
            return Ok(());
        }
        let store = printable(root.as_os_str().as_bytes());
        let count = format::counted(examination.checkpoints, "checkpoint", "checkpoints");
        return printer.prose(&if examination.is_made {
            format!("all is well: {count}; `turnpoint verify --read-data` reads every byte")
        } else {
            format!("all is well: there is no store in {store} yet")
        });
    }
    let most = if style.verbose { usize::MAX } else { NAMED_MAX };
    for it in findings.iter().take(most) {
        let severity = it.condition.severity().as_str();
        printer.heading(&format!("{severity}: {}", it.condition.as_str()))?;
        printer.hanging("  ", &below(&root, &it.path))?;
        let size = it.bytes.map(|bytes| format!(" ({})", format::size(bytes)));
        let text = format!("{}{}", it.message, size.unwrap_or_default());
        printer.hanging("  ", &printable(text.as_bytes()))?;
        if !it.checkpoints.is_empty() {
            let ids: Vec<String> = it.checkpoints.iter().map(ToString::to_string).collect();
            printer.hanging("  of ", &ids.join(", "))?;
        }
        printer.hanging("  next: ", &printable(it.next.as_bytes()))?;
    }
    if findings.len() > most {
        let more = format::number((findings.len() - most) as u64);
        printer.line(format_args!("and {more} more (--verbose names all)"))?;
    }
    if style.quiet {
        return Ok(());
    }
    printer.gap()?;
    let notes = findings.len() as u64 - problems;
    let problems = format::counted(problems, "problem", "problems");
    let notes = format::counted(notes, "note", "notes");
    let left = if was_fixed { " left" } else { "" };
    printer.prose(&format!(
        "{problems} and {notes}{left} in {}",
        printable(root.as_os_str().as_bytes())
    ))?;
    printer.prose("content was not read; `turnpoint verify --read-data` reads every byte")
}

/// A path as it is in the store, or from the root where it is not.
fn below(root: &Path, path: &Path) -> String {
    let inside = path.strip_prefix(root).ok().filter(|path| !path.as_os_str().is_empty());
    printable(inside.unwrap_or(path).as_os_str().as_bytes())
}

/// Forgets an operation that nobody can tell to be over.
fn forget(id: OperationId, context: &mut Context) -> Outcome<Exit> {
    let forgotten = context.run(|store, monitor| store.forget_operation(id, monitor))?;
    let kind = forgotten.kind.as_str();
    if context.is_json() {
        context.document(&ForgottenDocument {
            operation: id.to_string(),
            kind,
            started_at: forgotten.started_at.to_string(),
            is_foreign: forgotten.is_foreign,
        })?;
    } else if !context.is_quiet() {
        let whose =
            if forgotten.is_foreign { "of another machine" } else { "whose process is dead" };
        context.printer.prose(&format!(
            "forgot operation {id}, a {kind} {whose} that began at {}; what it protected may be \
             removed",
            forgotten.started_at
        ))?;
    }
    Ok(Exit::Done)
}

fn tell(outcome: &RebuildOutcome, context: &mut Context) -> io::Result<()> {
    if !context.is_quiet() {
        let count = format::counted(outcome.checkpoints, "checkpoint", "checkpoints");
        let store = printable(context.store.root().as_os_str().as_bytes());
        context.printer.prose(&format!("built the index of {store} anew: {count}"))?;
        for Repair { file, reason, aside, .. } in &outcome.repaired {
            let shown = |path: &Path| printable(path.as_os_str().as_bytes());
            let kept = aside.as_deref().map(|aside| format!("; kept as {}", shown(aside)));
            let (file, kept) = (shown(file), kept.unwrap_or_default());
            let reason = printable(reason.as_bytes());
            context.printer.hanging("  ", &format!("repaired {file}: {reason}{kept}"))?;
        }
        context.printer.flush()?;
    }
    if !outcome.unreadable.is_empty() {
        let style = context.printer.style();
        let text = "some files could not be understood; they are left as they are, and nothing is \
                    deleted while they are there";
        style.complain(Kind::Warning, text);
        for bad in &outcome.unreadable {
            let (file, reason) = (bad.path.as_os_str().as_bytes(), bad.reason.as_bytes());
            printer::aside_item(&format!("{}: {}", printable(file), printable(reason)));
        }
    }
    Ok(())
}
