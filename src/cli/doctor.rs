//! `turnpoint doctor`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::id::OperationId;
use turnpoint::path::printable;
use turnpoint::{RebuildOutcome, Repair};

use crate::cli::arguments::DoctorArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::{PathDocument, ReasonDocument};
use crate::cli::printer::{self, Kind};
use crate::cli::verify;

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

/// Checks or repairs the store.
pub(crate) fn run(arguments: &DoctorArguments, context: &mut Context) -> Outcome<Exit> {
    if let Some(id) = arguments.forget_operation {
        return forget(id, context);
    }
    if !arguments.rebuild {
        let exit = verify::check(false, context)?;
        if !context.is_json() && !context.is_quiet() {
            context.printer.prose(
                "`turnpoint doctor --rebuild` builds the index anew, and what else follows from the \
                 checkpoints",
            )?;
        }
        return Ok(exit);
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
            printer::aside(&format!("  {}: {}", printable(file), printable(reason)));
        }
    }
    Ok(())
}
