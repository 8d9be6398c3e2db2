//! `turnpoint man`.

use std::path::Path;

use clap::CommandFactory;
use serde::Serialize;
use turnpoint::Error;

use crate::cli::arguments::{Arguments, ManArguments};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::json::PathDocument;

#[derive(Serialize)]
#[serde(untagged)]
enum ManDocument {
    Page { page: String },
    Directory { directory: PathDocument },
}

/// Prints a page, or writes all.
pub(crate) fn run(arguments: &ManArguments, context: &mut Context) -> Outcome<Exit> {
    let command = Arguments::command().disable_help_subcommand(true);
    if let Some(directory) = &arguments.into {
        return write_all(command, directory, context);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    if context.is_json() {
        let page = String::from_utf8_lossy(&page).into_owned();
        context.document(&ManDocument::Page { page })?;
    } else {
        context.printer.bytes().write_all(&page)?;
    }
    Ok(Exit::Done)
}

fn write_all(command: clap::Command, directory: &Path, context: &mut Context) -> Outcome<Exit> {
    let place = context.settings.directory.join(directory);
    clap_mangen::generate_to(command, &place).map_err(|source| Error::Io {
        verb: "write the manual pages into",
        path: place,
        source,
    })?;
    if context.is_json() {
        let directory = PathDocument::from(directory);
        context.document(&ManDocument::Directory { directory })?;
    }
    Ok(Exit::Done)
}
