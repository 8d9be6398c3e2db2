//! `turnpoint doctor`.

use std::io;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use turnpoint::RebuildOutcome;
use turnpoint::path::printable;

use crate::cli::arguments::DoctorArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::ReasonDocument;
use crate::cli::printer::{self, Kind};
use crate::cli::verify;

#[derive(Serialize)]
struct RebuildDocument {
    checkpoints: u64,
    unreadable: Vec<ReasonDocument>,
}

/// Checks or repairs the store.
pub(crate) fn run(arguments: &DoctorArguments, context: &mut Context) -> Outcome<Exit> {
    if !arguments.rebuild {
        let exit = verify::check(false, context)?;
        if !context.is_json() && !context.is_quiet() {
            context.printer.prose("`turnpoint doctor --rebuild` builds the index anew")?;
        }
        return Ok(exit);
    }
    let outcome = context.run(|store, monitor| store.rebuild_index(monitor))?;
    if context.is_json() {
        let unreadable = outcome.unreadable.iter().map(ReasonDocument::from).collect();
        let checkpoints = outcome.checkpoints;
        context.document(&RebuildDocument { checkpoints, unreadable })?;
    } else {
        tell(&outcome, context)?;
    }
    Ok(Exit::damaged_if(!outcome.unreadable.is_empty()))
}

fn tell(outcome: &RebuildOutcome, context: &mut Context) -> io::Result<()> {
    if !context.is_quiet() {
        let count = format::counted(outcome.checkpoints, "checkpoint", "checkpoints");
        let store = printable(context.store.root().as_os_str().as_bytes());
        context.printer.prose(&format!("built the index of {store} anew: {count}"))?;
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
