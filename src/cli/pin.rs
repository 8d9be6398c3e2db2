//! `turnpoint pin` and `turnpoint unpin`.

use serde::Serialize;
use turnpoint::id::CheckpointId;
use turnpoint::path::shell_word;

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
    let before = context.run(|store, monitor| store.show(&id, monitor)).ok().map(|it| it.pin);
    context.run(|store, monitor| store.unpin(&id, monitor))?;
    if context.is_json() {
        context.document(&PinDocument { id: IdDocument::from(&id), pinned: false, note: None })?;
    } else if !context.is_quiet() {
        let text = match before {
            Some(pin) if !pin.pinned => format!("{id} was not pinned; nothing has changed"),
            before => {
                let note = before.and_then(|pin| pin.note);
                let note = note.map(|note| format!(" --note {}", shell_word(note)));
                let (place, word, note) =
                    (context.place(), id.shell_word(), note.unwrap_or_default());
                format!(
                    "unpinned {id}: retention may drop it; `turnpoint {place}pin {word}{note}` takes this back"
                )
            }
        };
        context.printer.prose(&text)?;
    }
    Ok(Exit::Done)
}

fn named(arguments: &CheckpointArguments, context: &mut Context) -> Outcome<CheckpointId> {
    let spec = target::parse_alone(
        &arguments.words,
        arguments.session.as_deref(),
        arguments.time.at,
        Some(context),
    )?;
    context.resolve(&spec)
}
