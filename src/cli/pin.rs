//! `turnpoint pin` and `turnpoint unpin`.

use serde::Serialize;
use turnpoint::id::CheckpointId;

use crate::cli::arguments::{CheckpointArguments, PinArguments, UnpinArguments};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::json::IdDocument;
use crate::cli::target;

#[derive(Serialize)]
struct PinDocument<'a> {
    #[serde(flatten)]
    id: IdDocument,
    pinned: bool,
    note: Option<&'a str>,
}

/// Pins a checkpoint.
pub(crate) fn pin(arguments: &PinArguments, context: &mut Context) -> Outcome<Exit> {
    let id = named(&arguments.checkpoint, context)?;
    let note = arguments.note.as_deref();
    context.run(|store, monitor| store.pin(&id, note, monitor))?;
    if context.is_json() {
        context.document(&PinDocument { id: IdDocument::from(&id), pinned: true, note })?;
    } else if !context.is_quiet() {
        context.printer.prose(&format!("pinned {id}: it is never pruned"))?;
    }
    Ok(Exit::Done)
}

/// Unpins a checkpoint.
pub(crate) fn unpin(arguments: &UnpinArguments, context: &mut Context) -> Outcome<Exit> {
    let id = named(&arguments.checkpoint, context)?;
    context.run(|store, monitor| store.unpin(&id, monitor))?;
    if context.is_json() {
        context.document(&PinDocument { id: IdDocument::from(&id), pinned: false, note: None })?;
    } else if !context.is_quiet() {
        context.printer.prose(&format!(
            "unpinned {id}: retention may drop it; `turnpoint pin {}` takes this back",
            id.shell_word()
        ))?;
    }
    Ok(Exit::Done)
}

fn named(arguments: &CheckpointArguments, context: &mut Context) -> Outcome<CheckpointId> {
    let spec = target::parse_alone(
        &arguments.words,
        arguments.session.as_deref(),
        arguments.time.at,
        &context.settings.directory,
    )?;
    context.resolve(&spec)
}
