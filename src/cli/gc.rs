//! `turnpoint gc`.

use std::io;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use turnpoint::path::printable;
use turnpoint::{GcOutcome, SweepOutcome, Tightness};

use crate::cli::arguments::GcArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::{IdDocument, ReasonDocument};
use crate::cli::printer::{self, Kind};
use crate::cli::prune;
use crate::cli::watch;

#[derive(Serialize)]
struct GcDocument {
    dry_run: bool,
    pruned: Vec<IdDocument>,
    kept: u64,
    evicted: Vec<IdDocument>,
    evicted_because: Option<&'static str>,
    released_bytes: u64,
    short_bytes: u64,
    blobs_removed: u64,
    bytes_removed: u64,
    index_bytes_freed: u64,
    blobs_waiting: u64,
    blobs_packed: u64,
    adopted: u64,
    leftovers_removed: u64,
    failed: Vec<ReasonDocument>,
}

/// Drops old checkpoints and frees space.
pub(crate) fn run(arguments: &GcArguments, context: &mut Context) -> Outcome<Exit> {
    let dry_run = arguments.dry_run;
    let outcome = context.run(
        |store, monitor| {
            if dry_run { store.plan_gc(monitor) } else { store.gc(monitor) }
        },
    )?;
    if context.is_json() {
        context.document(&document(&outcome, dry_run))?;
    } else {
        tell(&outcome, dry_run, context)?;
    }
    Ok(Exit::damaged_if(!outcome.sweep.failed.is_empty()))
}

fn document(outcome: &GcOutcome, dry_run: bool) -> GcDocument {
    let GcOutcome { prune, evict, sweep, .. } = outcome;
    GcDocument {
        dry_run,
        pruned: prune.pruned.iter().map(IdDocument::from).collect(),
        kept: prune.kept.len().saturating_sub(evict.evicted.len()) as u64,
        evicted: evict.evicted.iter().map(IdDocument::from).collect(),
        evicted_because: evict.because.map(Tightness::as_str),
        released_bytes: evict.released_bytes,
        short_bytes: evict.short_bytes,
        blobs_removed: sweep.blobs_removed,
        bytes_removed: sweep.bytes_removed,
        index_bytes_freed: outcome.index_bytes_freed,
        blobs_waiting: sweep.blobs_waiting,
        blobs_packed: sweep.blobs_packed,
        adopted: sweep.adopted,
        leftovers_removed: sweep.leftovers_removed,
        failed: sweep.failed.iter().map(ReasonDocument::from).collect(),
    }
}

fn tell(outcome: &GcOutcome, dry_run: bool, context: &mut Context) -> io::Result<()> {
    let GcOutcome { prune, evict, sweep, .. } = outcome;
    let style = context.printer.style();
    let printer = &mut context.printer;
    if !style.quiet || dry_run {
        let pruned = prune.pruned.len() as u64;
        let checkpoints = format::counted(pruned, "checkpoint", "checkpoints");
        let blobs = format::counted(sweep.blobs_removed, "blob", "blobs");
        let freed = format::size(sweep.bytes_removed);
        let is_nothing = pruned == 0 && evict.evicted.is_empty() && sweep.blobs_removed == 0;
        let text = match (dry_run, is_nothing) {
            (true, true) => "nothing would be removed".to_owned(),
            (false, true) => "nothing to remove".to_owned(),
            (true, false) => format!("would drop {checkpoints} and remove {blobs}, {freed}"),
            (false, false) => format!("dropped {checkpoints}, removed {blobs}: {freed} freed"),
        };
        printer.prose(&text)?;
        prune::print_by_session(&prune.pruned, printer)?;
        if !evict.evicted.is_empty() {
            let count = evict.evicted.len() as u64;
            let count = format::counted(count, "checkpoint", "checkpoints");
            let verb = if dry_run { "would evict" } else { "evicted" };
            let released = format::size(evict.released_bytes);
            printer.prose(&format!("{verb} {count}, {released}, the oldest"))?;
            prune::print_by_session(&evict.evicted, printer)?;
        }
        let drops = pruned > 0 || !evict.evicted.is_empty();
        if outcome.index_bytes_freed > 0 {
            let freed = format::size(outcome.index_bytes_freed);
            printer.prose(&format!("the index gave back {freed}"))?;
        }
        for line in remarks(sweep, drops && dry_run) {
            printer.prose(&line)?;
        }
        printer.flush()?;
    }
    if let Some(because) = evict.because.filter(|_| evict.short_bytes > 0) {
        let text = watch::evicted(0, because.as_str(), 0, evict.short_bytes);
        style.complain(Kind::Warning, &text);
    }
    if !sweep.failed.is_empty() {
        style.complain(Kind::Warning, "some blobs could not be removed");
        for bad in &sweep.failed {
            let (file, reason) = (bad.path.as_os_str().as_bytes(), bad.reason.as_bytes());
            printer::aside_item(&format!("{}: {}", printable(file), printable(reason)));
        }
    }
    Ok(())
}

fn remarks(sweep: &SweepOutcome, is_prune_planned: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if is_prune_planned {
        lines.push("what only these checkpoints need is removed a minute later".to_owned());
    }
    if sweep.blobs_waiting > 0 {
        lines.push(format!(
            "{} for the next time: newer than a minute, or needed by a running operation",
            format::counted(sweep.blobs_waiting, "blob waits", "blobs wait")
        ));
    }
    if sweep.blobs_packed > 0 {
        let count = format::counted(sweep.blobs_packed, "small blob was", "small blobs were");
        lines.push(format!("{count} moved into packs, which take less room"));
    }
    if sweep.adopted > 0 {
        let count = format::counted(sweep.adopted, "checkpoint", "checkpoints");
        lines.push(format!("{count} were missing in the index and were added to it"));
    }
    if sweep.leftovers_removed > 0 {
        let count = format::counted(sweep.leftovers_removed, "dead process", "dead processes");
        lines.push(format!("temporary files of {count} were removed"));
    }
    lines
}
