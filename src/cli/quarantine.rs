//! `turnpoint quarantine`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::path::printable;
use turnpoint::{Quarantined, QuarantinedKind};

use crate::cli::arguments::QuarantineArguments;
use crate::cli::ask;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument};
use crate::cli::prune;

#[derive(Serialize)]
struct QuarantineDocument {
    dry_run: bool,
    kind: &'static str,
    file: PathDocument,
    to: PathDocument,
    pin: Option<PathDocument>,
    reason: String,
    checkpoints: Vec<IdDocument>,
}

/// Puts a damaged file out of the way.
pub(crate) fn run(arguments: &QuarantineArguments, context: &mut Context) -> Outcome<Exit> {
    let file = arguments.file.as_path();
    if arguments.dry_run || !arguments.yes {
        let planned = context.run(|store, monitor| store.plan_quarantine(file, monitor))?;
        tell(&planned, true, context)?;
        if arguments.dry_run {
            return Ok(Exit::Done);
        }
        if !ask::can_ask(context) {
            context.printer.flush()?;
            return Err(ask::needs_yes("putting a file into the quarantine"));
        }
        if !ask::confirm(context, "Put it into the quarantine?")? {
            return Ok(Exit::Refused);
        }
    }
    let done = context.run(|store, monitor| store.quarantine(file, monitor))?;
    tell(&done, false, context)?;
    Ok(Exit::Done)
}

fn tell(quarantined: &Quarantined, dry_run: bool, context: &mut Context) -> io::Result<()> {
    if context.is_json() {
        return context.document(&QuarantineDocument {
            dry_run,
            kind: quarantined.kind.as_str(),
            file: PathDocument::from(quarantined.file.as_path()),
            to: PathDocument::from(quarantined.to.as_path()),
            pin: quarantined.pin.as_deref().map(PathDocument::from),
            reason: quarantined.reason.clone(),
            checkpoints: quarantined.checkpoints.iter().map(IdDocument::from).collect(),
        });
    }
    if context.is_quiet() && !dry_run {
        return Ok(());
    }
    let shown = |path: &Path| printable(path.as_os_str().as_bytes());
    let (file, to) = (shown(&quarantined.file), shown(&quarantined.to));
    let printer = &mut context.printer;
    let verb = if dry_run { "would move" } else { "moved" };
    printer.hanging("", &format!("{verb} {file}"))?;
    printer.hanging("  to ", &to)?;
    printer.hanging("  ", &printable(quarantined.reason.as_bytes()))?;
    if let Some(pin) = &quarantined.pin {
        printer.hanging("", &format!("{verb} with it {}", shown(pin)))?;
    }
    let count = format::counted(quarantined.checkpoints.len() as u64, "checkpoint", "checkpoints");
    match (quarantined.kind, quarantined.checkpoints.is_empty()) {
        (QuarantinedKind::Pin, _) => {
            printer.prose("the checkpoint stays; its pin, label and note are given up")?;
        }
        (_, true) => printer.prose("every checkpoint has all its content without it")?,
        (QuarantinedKind::Manifest, false) => {
            printer.prose(
                "this checkpoint is given up; what only it needs is removed by the next `turnpoint \
                 gc`, which it does not stop any more",
            )?;
            prune::print_by_session(&quarantined.checkpoints, printer)?;
        }
        (_, false) => {
            printer.prose(&format!(
                "{count} cannot be restored in whole, with it or without it, until a capture has \
                 stored the content anew"
            ))?;
            prune::print_by_session(&quarantined.checkpoints, printer)?;
        }
    }
    if !dry_run {
        printer.prose("to take it back, move the file back, and run `turnpoint doctor`")?;
    }
    Ok(())
}
