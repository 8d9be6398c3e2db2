//! `turnpoint verify`.

use std::io;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use turnpoint::path::printable;
use turnpoint::{Finding, VerifyOptions, VerifyReport};

use crate::cli::arguments::VerifyArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument};
use crate::cli::printer::{self, Kind, Style};

#[derive(Serialize)]
struct VerifyDocument {
    ok: bool,
    read_data: bool,
    checkpoints: u64,
    pages: u64,
    blobs: u64,
    content_bytes: u64,
    legacy: Vec<PathDocument>,
    findings: Vec<FindingDocument>,
}

#[derive(Serialize)]
struct FindingDocument {
    kind: &'static str,
    file: PathDocument,
    reason: String,
    checkpoints: Vec<IdDocument>,
    #[serde(flatten)]
    path: Option<PathDocument>,
}

/// Checks the store; ends with 4 where something is not as it should be.
pub(crate) fn run(arguments: &VerifyArguments, context: &mut Context) -> Outcome<Exit> {
    let read_data = arguments.read_data;
    let mut options = VerifyOptions::default();
    options.read_data = read_data;
    let report = context.run(|store, monitor| store.verify(options, monitor))?;
    if context.is_json() {
        context.document(&document(&report, read_data))?;
    } else {
        tell(&report, read_data, context)?;
    }
    Ok(Exit::damaged_if(!report.findings.is_empty()))
}

fn document(report: &VerifyReport, read_data: bool) -> VerifyDocument {
    VerifyDocument {
        ok: report.findings.is_empty(),
        read_data,
        checkpoints: report.checkpoints,
        pages: report.pages,
        blobs: report.blobs,
        content_bytes: report.content_bytes,
        legacy: report.legacy.iter().map(|file| PathDocument::from(file.as_path())).collect(),
        findings: report.findings.iter().map(FindingDocument::from).collect(),
    }
}

impl From<&Finding> for FindingDocument {
    fn from(finding: &Finding) -> Self {
        Self {
            kind: finding.kind.as_str(),
            file: PathDocument::from(finding.file.as_path()),
            reason: finding.reason.clone(),
            checkpoints: finding.checkpoints.iter().map(IdDocument::from).collect(),
            path: finding.path.as_ref().map(PathDocument::from),
        }
    }
}

fn tell(report: &VerifyReport, read_data: bool, context: &mut Context) -> io::Result<()> {
    let style = context.printer.style();
    let printer = &mut context.printer;
    if !style.quiet {
        let store = printable(context.store.root().as_os_str().as_bytes());
        printer.prose(&format!("store {store}"))?;
        let checkpoints = format::counted(report.checkpoints, "checkpoint", "checkpoints");
        let pages = format::counted(report.pages, "page", "pages");
        let blobs = format::counted(report.blobs, "file content", "file contents");
        let bytes = format::size(report.content_bytes);
        printer.prose(&format!("{checkpoints}, {pages}, {blobs} ({bytes})"))?;
        if !report.legacy.is_empty() {
            let count = format::counted(report.legacy.len() as u64, "manifest", "manifests");
            printer.prose(&format!("{count} of another program, left alone"))?;
        }
        if report.findings.is_empty() {
            printer.prose(if read_data {
                "everything is there, and every byte is as it was stored"
            } else {
                "everything is there with the right length; `turnpoint verify --read-data` compares every byte"
            })?;
        }
        printer.flush()?;
    }
    if !report.findings.is_empty() {
        tell_findings(&report.findings, style);
    }
    Ok(())
}

fn tell_findings(findings: &[Finding], style: Style) {
    let count = findings.len() as u64;
    let things = format::counted(count, "thing is not as it", "things are not as they");
    style.complain(Kind::Warning, &format!("{things} should be"));
    let most = if style.verbose { usize::MAX } else { NAMED_MAX };
    for finding in findings.iter().take(most) {
        let file = printable(finding.file.as_os_str().as_bytes());
        let reason = printable(finding.reason.as_bytes());
        printer::aside_item(&format!("{}: {file}: {reason}", finding.kind.as_str()));
        let ids: Vec<String> = finding.checkpoints.iter().map(ToString::to_string).collect();
        match (&finding.path, ids.is_empty()) {
            (Some(path), false) => printer::aside(&format!("    {path} in {}", ids.join(", "))),
            (None, false) => printer::aside(&format!("    needed by {}", ids.join(", "))),
            (_, true) => {}
        }
    }
    if findings.len() > most {
        let more = format::number((findings.len() - most) as u64);
        printer::aside(&format!("  and {more} more (--verbose names all)"));
    }
    printer::aside("");
    style.complain(
        Kind::Hint,
        "a capture of files that still have lost content heals it; `turnpoint doctor` says what to do \
         about each; nothing is deleted that a damaged manifest or page may name",
    );
}
