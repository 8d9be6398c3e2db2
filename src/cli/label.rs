//! `turnpoint label`.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use turnpoint::path::printable;

use crate::cli::arguments::LabelArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::json::IdDocument;
use crate::cli::target::{self, Target};

#[derive(Serialize)]
struct LabelDocument<'a> {
    #[serde(flatten)]
    id: IdDocument,
    label: Option<&'a str>,
}

/// Labels a checkpoint. The last word is the label, so that it may be a number.
pub(crate) fn run(arguments: &LabelArguments, context: &mut Context) -> Outcome<Exit> {
    let (words, label) = match arguments.words.split_last() {
        Some((label, words)) if !arguments.clear => {
            let label = label.to_str().ok_or_else(|| {
                Failure::own(Exit::Usage, "invalid-label", "the label is not UTF-8")
            })?;
            (words, Some(label))
        }
        _ => (&*arguments.words, None),
    };
    let is_named = !words.is_empty() || arguments.time.at.is_some();
    if !is_named || label.is_none() && !arguments.clear {
        let message = "a checkpoint and a label are expected";
        let hint = "as in `turnpoint label latest 'before the refactor'`, or with --clear no label";
        return Err(Failure::own(Exit::Usage, "usage", message).hint(hint));
    }
    let (session, at) = (arguments.session.as_deref(), arguments.time.at);
    let Target { spec, rest } = target::parse_at(words, session, at, Some(context))?;
    if let Some(word) = rest.first() {
        let word = printable(word.as_bytes());
        let message =
            format!("one label is expected after the checkpoint, but `{word}` is before it");
        return Err(Failure::own(Exit::Usage, "usage", message).hint(
            "quote one of several words, as in `turnpoint label latest 'before the refactor'`",
        ));
    }
    let id = context.resolve(&spec)?;
    context.run(|store, monitor| store.label(&id, label, monitor))?;
    let shown = context.run(|store, monitor| store.show(&id, monitor))?;
    let label = shown.pin.label.as_deref().or(shown.manifest.label.as_deref());
    if context.is_json() {
        context.document(&LabelDocument { id: IdDocument::from(&id), label })?;
    } else if !context.is_quiet() {
        let text = match label {
            Some(label) => format!("labeled {id}: {}", printable(label.as_bytes())),
            None => format!("{id} has no label now"),
        };
        context.printer.prose(&text)?;
    }
    Ok(Exit::Done)
}
