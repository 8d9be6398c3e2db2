//! `turnpoint restore`.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::id::CheckpointId;
use turnpoint::manifest::RestoreVerb;
use turnpoint::path::{RelPath, printable};
use turnpoint::{EndedRestore, Error, GoingBackError, RestoreOptions, Spec, Which};

use crate::cli::arguments::{ChangeArguments, RestoreArguments};
use crate::cli::ask;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, ReasonDocument, RootDocument};
use crate::cli::pick;
use crate::cli::plan::{self, Asked, Verb};
use crate::cli::printer::Kind;
use crate::cli::target::{self, Target};

/// Restores, or ends an interrupted restore.
pub(crate) fn run(arguments: &RestoreArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    if arguments.resume {
        return resume(arguments, &root, context);
    }
    if arguments.abort {
        return abort(arguments, &root, context);
    }
    if let Some(file) = &arguments.apply {
        return apply(arguments, file, &root, context);
    }
    let words = &arguments.target;
    let change = &arguments.change;
    let session = change.session.as_deref();
    let is_named = !words.words.is_empty() || words.time.at.is_some();
    let Target { spec, rest } = if is_named || !ask::can_ask(context) {
        target::parse_at(&words.words, session, words.time.at, Some(context))?
    } else if let Some(CheckpointId { session, seq }) = pick::checkpoint(&root, session, context)? {
        Target { spec: Spec { session: Some(session), which: Which::Seq(seq) }, rest: &[] }
    } else {
        context.printer.style().complain(Kind::Note, "nothing was changed");
        return Ok(Exit::Refused);
    };
    let paths = target::paths(context, &root, rest.iter().chain(&words.paths))?;
    let options = options(change, paths, context);
    if let Some(into) = &arguments.into {
        if arguments.overlay {
            return lay_over(&spec, into, options, arguments, context);
        }
        if arguments.plan.dry_run {
            let message = "a new directory has nothing that a plan could be about";
            let hint = "leave out --dry-run, or add --overlay";
            return Err(Failure::own(Exit::Usage, "usage", message).hint(hint));
        }
        return restore_into(&spec, into, &options, context);
    }
    let checkpoint = context.resolve(&spec)?;
    let asked = Asked::of(&arguments.plan, change);
    plan::perform(&Verb::Restore(checkpoint), &root, options, asked, context)
}

/// Carries out a plan that was written to a file.
fn apply(
    arguments: &RestoreArguments,
    file: &Path,
    root: &Path,
    context: &mut Context,
) -> Outcome<Exit> {
    let file = context.settings.directory.join(file);
    let bound = context.run(|store, _| store.read_plan(&file))?;
    let target = bound.target.id.clone();
    let verb = match bound.verb {
        RestoreVerb::Restore => Verb::Restore(target),
        RestoreVerb::Undo => Verb::Undo,
        RestoreVerb::Redo => Verb::Redo,
        RestoreVerb::Revert => Verb::Revert(target),
        RestoreVerb::Apply => return Err(Error::from(GoingBackError::PlanOfRun).into()),
    };
    let mut options = options(&arguments.change, Vec::new(), context);
    options.bind(bound);
    let asked = Asked::of(&arguments.plan, &arguments.change);
    plan::perform(&verb, root, options, asked, context)
}

/// What the library is told.
pub(crate) fn options(
    change: &ChangeArguments,
    paths: Vec<RelPath>,
    context: &Context,
) -> RestoreOptions {
    let mut options = RestoreOptions::default();
    options.paths = paths;
    options.thorough = change.thorough;
    options.preserve_mtime = change.preserve_mtime;
    options.session.clone_from(&change.session);
    options.force = change.force;
    options.workspace = context.settings.workspace;
    options
}

/// Lays a checkpoint over a directory that may hold something: as a restore of that directory, with what
/// is overwritten saved first.
fn lay_over(
    spec: &Spec,
    into: &Path,
    mut options: RestoreOptions,
    arguments: &RestoreArguments,
    context: &mut Context,
) -> Outcome<Exit> {
    let checkpoint = context.resolve(spec)?;
    options.overlay = true;
    // The other workspace is that of the checkpoint.
    options.workspace = None;
    let into = context.settings.directory.join(into);
    let asked = Asked::of(&arguments.plan, &arguments.change);
    plan::perform(&Verb::Restore(checkpoint), &into, options, asked, context)
}

#[derive(Serialize)]
struct IntoDocument {
    #[serde(flatten)]
    id: IdDocument,
    into: PathDocument,
    paths: u64,
}

fn restore_into(
    spec: &Spec,
    into: &Path,
    options: &RestoreOptions,
    context: &mut Context,
) -> Outcome<Exit> {
    let checkpoint = context.resolve(spec)?;
    let place = context.place_of(into);
    let paths =
        context.run(|store, monitor| store.restore_into(&checkpoint, &place, options, monitor))?;
    if context.is_json() {
        let (id, into) = (IdDocument::from(&checkpoint), PathDocument::from(into));
        context.document(&IntoDocument { id, into, paths })?;
    } else if !context.is_quiet() {
        let count = format::counted(paths, "path", "paths");
        let into = printable(into.as_os_str().as_bytes());
        context.printer.prose(&format!("wrote {count} of {checkpoint} into {into}"))?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct EndedDocument {
    #[serde(flatten)]
    root: RootDocument,
    safety: Option<IdDocument>,
    left: Vec<ReasonDocument>,
    remarks: Vec<String>,
}

fn resume(arguments: &RestoreArguments, root: &Path, context: &mut Context) -> Outcome<Exit> {
    let options = options(&arguments.change, Vec::new(), context);
    let ended = context.run(|store, monitor| store.continue_restore(root, &options, monitor))?;
    let place = context.place();
    let text = match &ended.safety {
        Some(safety) => format!(
            "the interrupted restore is complete; what was there before is {safety}, and \
             `turnpoint {place}undo` takes it back"
        ),
        None => "the interrupted restore had not changed anything and is discarded".to_owned(),
    };
    tell(&ended, root, &text, context)?;
    Ok(if ended.left.is_empty() { Exit::Done } else { Exit::Refused })
}

fn abort(arguments: &RestoreArguments, root: &Path, context: &mut Context) -> Outcome<Exit> {
    let options = options(&arguments.change, Vec::new(), context);
    // A journal that cannot be understood is set aside: that much is known of it.
    let open = match context.run(|store, monitor| store.open_restore(root, monitor)) {
        Ok(Some(open)) => Some(open),
        Ok(None) => return Err(Error::NoOpenRestore { workspace: root.to_owned() }.into()),
        Err(Error::JournalUnreadable { path, .. }) => {
            if !arguments.change.yes && !context.is_json() {
                let shown = printable(path.as_os_str().as_bytes());
                context.printer.prose(&format!(
                    "set the journal {shown} aside, which cannot be understood, and leave the \
                     workspace as it is"
                ))?;
            }
            None
        }
        Err(error) => return Err(error.into()),
    };
    if !arguments.change.yes {
        if let Some(open) = open.as_ref().filter(|_| !context.is_json()) {
            let shown = printable(root.as_os_str().as_bytes());
            let changes = format::counted(open.changes, "change", "changes");
            let state = match &open.safety {
                Some(safety) => format!(
                    "some of its {changes} may be made, the others are given up. What was there \
                     before is {safety}."
                ),
                None => format!("none of its {changes} is made."),
            };
            context.printer.prose(&format!(
                "end the restore of {} in {shown} where it stands: {state}",
                open.target
            ))?;
        }
        if !ask::can_ask(context) {
            context.printer.flush()?;
            return Err(ask::needs_yes("ending the interrupted restore"));
        }
        if !ask::confirm(context, "End it?")? {
            return Ok(Exit::Refused);
        }
    }
    let ended = context.run(|store, monitor| store.abort_restore(root, &options, monitor))?;
    let is_undo = ended.safety.as_ref().is_some_and(|safety| is_undo(safety, context));
    let place = context.place();
    let text = match (&ended.safety, &open) {
        _ if open.is_none() => "the interrupted restore is ended; the workspace is as it was left \
                                and nothing in it was touched"
            .to_owned(),
        (Some(safety), Some(open)) if is_undo => format!(
            "the interrupted undo is ended where it stood; `turnpoint {place}restore {}` brings back the \
             rest; what was there before is {safety}, and `turnpoint {place}redo` brings it back",
            open.target.shell_word()
        ),
        (Some(safety), _) => format!(
            "the interrupted restore is ended where it stood; what was there before is {safety}, \
             and `turnpoint {place}undo` brings it back"
        ),
        (None, _) => "the interrupted restore is ended; it had not changed anything".to_owned(),
    };
    tell(&ended, root, &text, context)?;
    Ok(Exit::Done)
}

/// Whether a safety checkpoint is that of an undo, which another undo does not go on with.
fn is_undo(safety: &CheckpointId, context: &mut Context) -> bool {
    let shown = context.run(|store, monitor| store.show(safety, monitor));
    let verb = shown.ok().and_then(|shown| shown.manifest.restore.map(|restore| restore.verb));
    verb == Some(RestoreVerb::Undo)
}

fn tell(ended: &EndedRestore, root: &Path, text: &str, context: &mut Context) -> io::Result<()> {
    if context.is_json() {
        return context.document(&EndedDocument {
            root: RootDocument::from(root),
            safety: ended.safety.as_ref().map(IdDocument::from),
            left: ended.left.iter().map(ReasonDocument::from).collect(),
            remarks: ended.remarks.clone(),
        });
    }
    if !context.is_quiet() {
        context.printer.prose(text)?;
    }
    plan::print_skips(&ended.left, &mut context.printer)?;
    context.printer.flush()?;
    let style = context.printer.style();
    for remark in &ended.remarks {
        style.complain(Kind::Note, &printable(remark.as_bytes()));
    }
    Ok(())
}
