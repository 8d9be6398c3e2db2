//! `turnpoint export`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::id::CheckpointId;
use turnpoint::manifest::{Entry, EntryKind};
use turnpoint::path::{RelPath, printable};
use turnpoint::{Error, RestoreOptions};

use crate::cli::arguments::ExportArguments;
use crate::cli::cat::Recording;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, ReasonDocument};
use crate::cli::printer::{self, Kind};
use crate::cli::target::{self, Target};

#[derive(Serialize)]
struct ExportDocument {
    #[serde(flatten)]
    id: IdDocument,
    into: PathDocument,
    paths: u64,
    omitted: Vec<ReasonDocument>,
}

/// Writes a checkpoint out.
pub(crate) fn run(arguments: &ExportArguments, context: &mut Context) -> Outcome<Exit> {
    let is_to_stdout = arguments.tar.as_deref() == Some(Path::new("-"));
    if is_to_stdout && context.is_json() {
        let message = "the archive goes to standard output, and so would the JSON document";
        return Err(Failure::own(Exit::Usage, "usage", message)
            .hint("name a file in place of `-`, or leave --json out"));
    }
    if is_to_stdout && context.printer.is_terminal() {
        let message = "an archive is nothing for a terminal";
        return Err(Failure::own(Exit::Usage, "usage", message)
            .hint("pass it on: `turnpoint export latest --tar - | tar -t`"));
    }
    context.report_open_restore();
    let Target { spec, rest } = target::parse_at(
        &arguments.words,
        arguments.session.as_deref(),
        arguments.time.at,
        Some(context),
    )?;
    let root = context.root()?;
    let paths = target::paths(context, &root, &arguments.paths)?;
    let id = context.resolve(&spec)?;
    let (into, written) = match (&arguments.tar, rest) {
        (Some(_), []) if is_to_stdout => (None, to_stdout(&id, &paths, context)?),
        (Some(file), []) => {
            let place = context.settings.directory.join(file);
            (Some(file.as_os_str()), to_file(&id, &paths, &place, context)?)
        }
        (None, [into]) => {
            let place = context.settings.directory.join(into);
            let mut options = RestoreOptions::default();
            options.paths.clone_from(&paths);
            let written =
                context.run(|store, monitor| store.restore_into(&id, &place, &options, monitor))?;
            (Some(into.as_os_str()), written)
        }
        _ => {
            let message = "one directory is expected after the checkpoint, or --tar FILE";
            return Err(Failure::own(Exit::Usage, "usage", message)
                .hint("paths come after `--`: `turnpoint export latest ../old -- src`"));
        }
    };
    let omitted = omitted(&id, &paths, context)?;
    let Some(into) = into else {
        name_omitted(&omitted, context);
        return Ok(Exit::Done);
    };
    if context.is_json() {
        let (id, into) = (IdDocument::from(&id), PathDocument::from(Path::new(into)));
        context.document(&ExportDocument { id, into, paths: written, omitted })?;
        return Ok(Exit::Done);
    }
    if !context.is_quiet() {
        let count = format::counted(written, "path", "paths");
        let shown = printable(into.as_bytes());
        context.printer.prose(&format!("wrote {count} of {id} into {shown}"))?;
        context.printer.flush()?;
    }
    name_omitted(&omitted, context);
    Ok(Exit::Done)
}

fn to_stdout(id: &CheckpointId, paths: &[RelPath], context: &mut Context) -> Outcome<u64> {
    let (written, failed) = context.run_printing(|store, printer, monitor| {
        let mut recording = Recording { out: printer.bytes(), failed: None };
        (store.export_tar(id, paths, &mut recording, monitor), recording.failed)
    });
    match (written, failed) {
        (Err(_), Some(failed)) => Err(Failure::Output(failed)),
        (written, _) => Ok(written?),
    }
}

/// Writes a new file, which is removed again where that fails. A device or a pipe is written to as it is.
fn to_file(
    id: &CheckpointId,
    paths: &[RelPath],
    file: &Path,
    context: &mut Context,
) -> Outcome<u64> {
    let file = &*context.place_of(file);
    let failed = |verb: &'static str| {
        move |source: io::Error| Error::Io { verb, path: file.to_owned(), source }
    };
    context.refuse_in_store(file, "the archive")?;
    let is_special = fs::metadata(file).is_ok_and(|it| !it.is_file() && !it.is_dir());
    let opened =
        if is_special { OpenOptions::new().write(true).open(file) } else { File::create_new(file) };
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let message = format!("{} is there already", printable(file.as_os_str().as_bytes()));
            return Err(Failure::own(Exit::Refused, "file-exists", message)
                .hint("name a new file, or remove that one"));
        }
        opened => opened.map_err(failed("create"))?,
    };
    let own = opened.metadata().map_err(failed("examine"))?;
    let mut out = BufWriter::new(opened);
    let written = context.run(|store, monitor| {
        let written = store.export_tar(id, paths, &mut out, monitor)?;
        out.flush().map_err(failed("write"))?;
        if !is_special {
            out.get_ref().sync_all().map_err(failed("write"))?;
        }
        Ok(written)
    });
    // A part of an archive must not be taken for one; what has its name by now may be somebody else's. What
    // went wrong first is what is told.
    let is_own = |now: fs::Metadata| (now.dev(), now.ino()) == (own.dev(), own.ino());
    if written.is_err() && !is_special && fs::symlink_metadata(file).is_ok_and(is_own) {
        fs::remove_file(file).ok();
    }
    Ok(written?)
}

/// What of the selected paths the checkpoint does not hold.
fn omitted(
    id: &CheckpointId,
    paths: &[RelPath],
    context: &mut Context,
) -> Outcome<Vec<ReasonDocument>> {
    let entries = context.run(|store, monitor| store.entries(id, &RelPath::root(), monitor))?;
    let is_selected = |entry: &&Entry| {
        paths.is_empty() || paths.iter().any(|path| entry.path.is_at_or_below(path))
    };
    let reason = |entry: &Entry| match entry.kind {
        EntryKind::Omitted { reason, .. } => Some(ReasonDocument {
            path: PathDocument::from(&entry.path),
            reason: reason.as_str().to_owned(),
        }),
        _ => None,
    };
    Ok(entries.iter().filter(is_selected).filter_map(reason).collect())
}

fn name_omitted(omitted: &[ReasonDocument], context: &Context) {
    let style = context.printer.style();
    if omitted.is_empty() || style.quiet {
        return;
    }
    let count = format::counted(omitted.len() as u64, "name", "names");
    let verb = if omitted.len() == 1 { "is" } else { "are" };
    style.complain(
        Kind::Note,
        &format!("{count} {verb} left out, which the checkpoint does not hold"),
    );
    let most = if style.verbose { usize::MAX } else { NAMED_MAX };
    for ReasonDocument { path, reason } in omitted.iter().take(most) {
        printer::aside_item(&format!("{}: {reason}", path.printable()));
    }
    if omitted.len() > most {
        let more = format::number((omitted.len() - most) as u64);
        printer::aside(&format!("  and {more} more (--verbose names all)"));
    }
}
