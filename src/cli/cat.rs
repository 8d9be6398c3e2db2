//! `turnpoint cat`.

use std::io::{self, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use turnpoint::Error;
use turnpoint::id::CheckpointId;
use turnpoint::path::RelPath;

use crate::cli::arguments::CatArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::json::{IdDocument, PathDocument};
use crate::cli::target::{self, Target};

#[derive(Serialize)]
struct CatDocument {
    #[serde(flatten)]
    id: IdDocument,
    #[serde(flatten)]
    path: PathDocument,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_bytes: Option<String>,
}

/// Passes bytes on and remembers why it could not: what the library makes of the error says less.
pub(crate) struct Recording<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) failed: Option<io::Error>,
}

impl Write for Recording<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).map_err(|error| {
            let kind = error.kind();
            // An interrupted write is tried again.
            if kind != io::ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes one file's content.
pub(crate) fn run(arguments: &CatArguments, context: &mut Context) -> Outcome<Exit> {
    context.report_open_restore();
    let words = &arguments.target;
    let Target { spec, rest } =
        target::parse_at(&words.words, arguments.session.as_deref(), words.time.at, Some(context))?;
    let root = context.root()?;
    let paths = target::paths(context, &root, rest.iter().chain(&words.paths))?;
    let [path] = &*paths else {
        let message = "one path is expected after the checkpoint";
        let place = context.place();
        return Err(Failure::own(Exit::Usage, "usage", message).hint(format!(
            "as in `turnpoint {place}cat latest src/main.rs`; `turnpoint {place}ls latest` shows what there is"
        )));
    };
    let id = context.resolve(&spec)?;
    let written = written(&id, path, context);
    told_of_directory(
        written,
        &id,
        path,
        &context.place(),
        &context.as_typed_here(&root, path.as_os()),
    )
}

fn written(id: &CheckpointId, path: &RelPath, context: &mut Context) -> Outcome<Exit> {
    if context.is_json() {
        let mut bytes = Vec::new();
        context.run(|store, monitor| store.cat(id, path, &mut bytes, monitor))?;
        let size = bytes.len() as u64;
        let (content, content_bytes) = match String::from_utf8(bytes) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
        };
        let (id, path) = (IdDocument::from(id), PathDocument::from(path));
        context.document(&CatDocument { id, path, size, content, content_bytes })?;
        return Ok(Exit::Done);
    }
    let (written, failed) = context.run_printing(|store, printer, monitor| {
        let mut recording = Recording { out: printer.bytes(), failed: None };
        (store.cat(id, path, &mut recording, monitor), recording.failed)
    });
    match (written, failed) {
        (Ok(()), _) => Ok(Exit::Done),
        (Err(_), Some(failed)) => Err(Failure::Output(failed)),
        // What was written before damage was found is only a part; the exit code says so.
        (Err(error), None) => Err(error.into()),
    }
}

/// A path that is inside the workspace can only be wrong by what is there.
fn told_of_directory(
    written: Outcome<Exit>,
    id: &CheckpointId,
    path: &RelPath,
    place: &str,
    typed: &str,
) -> Outcome<Exit> {
    match written {
        Err(Failure::Library { error, .. }) if matches!(*error, Error::InvalidPath { .. }) => {
            let message = format!("`{path}` is a directory in {id}");
            let hint = format!("`turnpoint {place}ls {} {typed}` lists it", id.shell_word());
            Err(Failure::own(Exit::Usage, "invalid-path", message).hint(hint))
        }
        written => written,
    }
}
