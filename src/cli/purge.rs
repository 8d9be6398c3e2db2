//! `turnpoint purge`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::compare::Selection;
use turnpoint::id::CheckpointId;
use turnpoint::path::{printable, shell_path, shell_word};
use turnpoint::{
    Holder, KeptContent, PurgePlan, PurgeRequest, PurgedCheckpoint, PurgedPath, Removed, Spec,
};

use crate::cli::arguments::PurgeArguments;
use crate::cli::ask;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, NAMED_MAX, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, RootDocument};
use crate::cli::printer::Printer;
use crate::cli::prune;
use crate::cli::target;

#[derive(Serialize)]
struct PurgeDocument {
    dry_run: bool,
    plan: String,
    workspace: String,
    checkpoints: Vec<CheckpointDocument>,
    linked: u64,
    paths: Vec<PurgedDocument>,
    contents: u64,
    bytes: u64,
    kept: Vec<KeptDocument>,
    quarantined: Vec<PathDocument>,
    purged_before: u64,
    removed: Option<RemovedDocument>,
}

#[derive(Serialize)]
struct CheckpointDocument {
    #[serde(flatten)]
    id: IdDocument,
    pinned: bool,
    safety: bool,
    paths: u64,
}

#[derive(Serialize)]
struct PurgedDocument {
    #[serde(flatten)]
    path: PathDocument,
    checkpoints: u64,
    versions: u64,
    bytes: u64,
    on_disk: bool,
}

#[derive(Serialize)]
struct KeptDocument {
    #[serde(flatten)]
    path: PathDocument,
    hash: String,
    bytes: u64,
    holders: u64,
    held_by: Vec<HolderDocument>,
}

#[derive(Serialize)]
struct HolderDocument {
    workspace: String,
    #[serde(flatten)]
    root: RootDocument,
    #[serde(flatten)]
    path: PathDocument,
    #[serde(flatten)]
    id: IdDocument,
    checkpoints: u64,
}

#[derive(Serialize)]
struct RemovedDocument {
    blobs: u64,
    bytes: u64,
    packs: u64,
}

/// Takes the content of paths out of history.
pub(crate) fn run(arguments: &PurgeArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let paths = target::paths(context, &root, &arguments.paths)?;
    let mut request = PurgeRequest::new(root.clone(), paths);
    request.workspace = context.settings.workspace;
    request.session = arguments.session.as_deref().map(target::session_name).transpose()?;
    if !arguments.dry_run {
        // What was agreed to before comes to its end first, and is not planned again.
        context.run(|store, monitor| store.complete_purge(monitor))?;
    }
    let plan = context.run(|store, monitor| store.plan_purge(&request, monitor))?;
    if plan.is_empty() {
        return nothing(&plan, arguments, &root, context);
    }
    refuse_checkpoints(&plan, arguments, &request, context)?;
    let will_ask = !arguments.dry_run && !arguments.yes;
    if !context.is_json() || arguments.dry_run || will_ask {
        tell_plan(&plan, arguments, &root, context)?;
    }
    if arguments.dry_run {
        return Ok(Exit::Done);
    }
    if will_ask {
        if !ask::can_ask(context) {
            context.printer.flush()?;
            return Err(ask::needs_yes("a purge, which cannot be taken back,"));
        }
        let count = format::counted(plan.checkpoints.len() as u64, "checkpoint", "checkpoints");
        let although =
            if plan.contents == 0 { ", although its content stays in the store" } else { "" };
        if !ask::confirm(context, &format!("Purge this from {count}, for good{although}?"))? {
            return Ok(Exit::Refused);
        }
    }
    let expected = plan.id();
    let outcome = context.run(|store, monitor| store.purge(&request, &expected, monitor))?;
    if context.is_json() {
        context.document(&document(&outcome.plan, false, Some(outcome.removed)))?;
    } else if !context.is_quiet() {
        tell_done(outcome.removed, &mut context.printer)?;
    }
    Ok(Exit::Done)
}

/// What no checkpoint holds is told where the rest is purged, and refused where it names a checkpoint: a purge
/// is of all of them.
fn refuse_checkpoints(
    plan: &PurgePlan,
    arguments: &PurgeArguments,
    request: &PurgeRequest,
    context: &mut Context,
) -> Outcome<()> {
    for (word, path) in arguments.paths.iter().zip(&request.paths) {
        let meant = Selection::new(vec![path.clone()]);
        if plan.paths.iter().any(|purged| meant.includes(&purged.path)) {
            continue;
        }
        let shown = printable(word.as_bytes());
        if word.to_str().and_then(|word| word.parse::<Spec>().ok()).is_some() {
            let message = format!("`{shown}` is no path that a checkpoint holds");
            return Err(Failure::own(Exit::Usage, "usage", message).hint(
                "a purge takes paths out of all checkpoints, and names none; --session narrows it to one session",
            ));
        }
        if plan.purged_before == 0 {
            context.remark(format!("no checkpoint holds `{shown}`"));
        }
    }
    Ok(())
}

/// Nothing is held there. That an earlier purge emptied it is as good as having done it.
fn nothing(
    plan: &PurgePlan,
    arguments: &PurgeArguments,
    root: &Path,
    context: &mut Context,
) -> Outcome<Exit> {
    if plan.purged_before == 0 {
        let words: Vec<String> =
            arguments.paths.iter().map(|word| printable(word.as_bytes())).collect();
        let of = match &arguments.session {
            Some(session) => format!("session `{}`", printable(session.as_bytes())),
            None => shown(root),
        };
        let message = format!("no checkpoint of {of} holds `{}`", words.join("`, `"));
        let place = context.place();
        return Err(Failure::own(Exit::Usage, "path-not-found", message).hint(format!(
            "`turnpoint {place}find NAME` searches all checkpoints of this workspace"
        )));
    }
    if context.is_json() {
        let removed = (!arguments.dry_run).then(Removed::default);
        context.document(&document(plan, arguments.dry_run, removed))?;
    } else {
        context.printer.prose("nothing to purge: it was purged before")?;
    }
    Ok(Exit::Done)
}

fn document(plan: &PurgePlan, dry_run: bool, removed: Option<Removed>) -> PurgeDocument {
    let checkpoint = |it: &PurgedCheckpoint| CheckpointDocument {
        id: IdDocument::from(&it.checkpoint),
        pinned: it.pinned,
        safety: it.is_safety,
        paths: it.paths,
    };
    let path = |it: &PurgedPath| PurgedDocument {
        path: PathDocument::from(&it.path),
        checkpoints: it.checkpoints,
        versions: it.versions,
        bytes: it.bytes,
        on_disk: it.is_on_disk,
    };
    let kept = |it: &KeptContent| KeptDocument {
        path: PathDocument::from(&it.path),
        hash: it.hash.to_string(),
        bytes: it.bytes,
        holders: it.holders,
        held_by: it.held_by.iter().map(holder).collect(),
    };
    PurgeDocument {
        dry_run,
        plan: plan.id(),
        workspace: plan.workspace.to_string(),
        checkpoints: plan.checkpoints.iter().map(checkpoint).collect(),
        linked: plan.linked,
        paths: plan.paths.iter().map(path).collect(),
        contents: plan.contents,
        bytes: plan.bytes,
        kept: plan.kept.iter().map(kept).collect(),
        quarantined: plan.quarantined.iter().map(|it| PathDocument::from(it.as_path())).collect(),
        purged_before: plan.purged_before,
        removed: removed.map(|it| RemovedDocument {
            blobs: it.blobs,
            bytes: it.bytes,
            packs: it.packs,
        }),
    }
}

fn holder(holder: &Holder) -> HolderDocument {
    HolderDocument {
        workspace: holder.workspace.to_string(),
        root: RootDocument::from(holder.root.as_path()),
        path: PathDocument::from(&holder.path),
        id: IdDocument::from(&holder.checkpoint),
        checkpoints: holder.checkpoints,
    }
}

fn shown(path: &Path) -> String {
    printable(path.as_os_str().as_bytes())
}

/// The command that purges what a holder has, as it is typed where somebody stands; `root` is what paths are seen
/// in there. A workspace whose root is gone has only its id left, and one that was named by its id is named again.
fn command_for(holder: &Holder, is_here: bool, root: &Path, context: &Context) -> String {
    let path = literal(holder.path.as_bytes());
    let path = OsStr::from_bytes(&path);
    if !is_here && holder.root.is_dir() {
        return format!("turnpoint -C {} purge {}", shell_word(&holder.root), shell_path(path));
    }
    let is_named = !is_here || context.settings.workspace.is_some();
    let workspace =
        if is_named { format!("--workspace {} ", holder.workspace) } else { String::new() };
    let (place, path) = (context.place(), context.as_typed_here(root, Path::new(path)));
    format!("turnpoint {place}{workspace}purge {path}")
}

/// A path that is meant as it is and not as a pattern.
fn literal(path: &[u8]) -> Vec<u8> {
    if !path.iter().any(|byte| b"*?[".contains(byte)) {
        return path.to_owned();
    }
    let escape =
        |&byte: &u8| b"*?[]{}\\".contains(&byte).then_some(b'\\').into_iter().chain([byte]);
    path.iter().flat_map(escape).collect()
}

fn checkpoints(count: u64) -> String {
    format::counted(count, "checkpoint", "checkpoints")
}

fn tell_plan(
    plan: &PurgePlan,
    arguments: &PurgeArguments,
    root: &Path,
    context: &mut Context,
) -> io::Result<()> {
    if context.is_json() {
        return context.document(&document(plan, true, None));
    }
    let most = if context.printer.style().verbose { usize::MAX } else { NAMED_MAX };
    let verb = if arguments.yes { "purges" } else { "would purge" };
    let of = match context.settings.workspace {
        Some(id) => format!("workspace {id}"),
        None => shown(root),
    };
    let printer = &mut context.printer;
    let count = format::counted(plan.paths.len() as u64, "path", "paths");
    let all = plan.checkpoints.len() as u64;
    printer.prose(&format!("{verb} {count} from {} of {of}", checkpoints(all)))?;
    for purged in plan.paths.iter().take(most) {
        let versions = format::counted(purged.versions, "version", "versions");
        let (of, size) = (checkpoints(purged.checkpoints), format::size(purged.bytes));
        printer.hanging("  ", &format!("{}: {of}, {versions}, {size}", purged.path))?;
    }
    and_more(plan.paths.len(), most, printer)?;
    printer.prose(&format!("in {}:", checkpoints(all)))?;
    prune::print_by_session(&ids(plan, |_| true), printer)?;
    tell_some(plan, |it| it.pinned, "pinned, which is no protection here:", printer)?;
    let safety = "saved before a restore, which cannot bring these paths back any more:";
    tell_some(plan, |it| it.is_safety, safety, printer)?;
    if plan.linked > 0 {
        let verb = if plan.linked == 1 { "names" } else { "name" };
        printer.prose(&format!(
            "{} that {verb} one of these {} written anew, and {} content",
            checkpoints(plan.linked),
            if plan.linked == 1 { "is" } else { "are" },
            if plan.linked == 1 { "keeps its" } else { "keep their" },
        ))?;
    }
    if plan.contents == 0 && !plan.kept.is_empty() {
        printer.prose("none of it leaves the store:")?;
        return tell_kept(plan, root, most, context)
            .and_then(|()| tell_on_disk(plan, most, &mut context.printer));
    }
    let contents = format::counted(plan.contents, "content", "contents");
    printer.prose(&format!(
        "{contents} of {} before compression {} the store, and with {} all that no checkpoint names",
        format::size(plan.bytes),
        if plan.contents == 1 { "leaves" } else { "leave" },
        if plan.contents == 1 { "it" } else { "them" },
    ))?;
    for file in &plan.quarantined {
        printer.hanging("  ", &format!("{} goes too", shown(file)))?;
    }
    tell_kept(plan, root, most, context)?;
    tell_on_disk(plan, most, &mut context.printer)
}

fn ids(plan: &PurgePlan, which: impl Fn(&PurgedCheckpoint) -> bool) -> Vec<CheckpointId> {
    let of = plan.checkpoints.iter().filter(|it| which(it));
    of.map(|it| it.checkpoint.clone()).collect()
}

fn tell_some(
    plan: &PurgePlan,
    which: impl Fn(&PurgedCheckpoint) -> bool,
    what: &str,
    printer: &mut Printer,
) -> io::Result<()> {
    let some = ids(plan, which);
    if some.is_empty() {
        return Ok(());
    }
    printer.prose(what)?;
    prune::print_by_session(&some, printer)
}

fn and_more(all: usize, most: usize, printer: &mut Printer) -> io::Result<()> {
    if all <= most {
        return Ok(());
    }
    let more = format::number((all - most) as u64);
    printer.line(format!("  and {more} more (--verbose names all)"))
}

/// What stays, who has it, and how it would go too.
fn tell_kept(plan: &PurgePlan, root: &Path, most: usize, context: &mut Context) -> io::Result<()> {
    if plan.kept.is_empty() {
        return Ok(());
    }
    context.printer.prose("the same content stays in the store where something else has it:")?;
    for kept in plan.kept.iter().take(most) {
        let size = format::size(kept.bytes);
        context.printer.hanging("  ", &format!("{} ({size}) is also", kept.path))?;
        for holder in &kept.held_by {
            let is_here = holder.workspace == plan.workspace;
            let workspace =
                if is_here { String::new() } else { format!(" of {}", shown(&holder.root)) };
            let text = format!(
                "{}{workspace}, in {}, the newest {}: `{}`",
                holder.path,
                checkpoints(holder.checkpoints),
                holder.checkpoint,
                command_for(holder, is_here, root, context),
            );
            context.printer.hanging("    ", &text)?;
        }
        let named = kept.held_by.len() as u64;
        if kept.holders > named {
            let more = format::number(kept.holders - named);
            context.printer.line(format!("    and {more} more"))?;
        }
    }
    and_more(plan.kept.len(), most, &mut context.printer)
}

/// What the next capture would bring back.
fn tell_on_disk(plan: &PurgePlan, most: usize, printer: &mut Printer) -> io::Result<()> {
    let there: Vec<&PurgedPath> = plan.paths.iter().filter(|it| it.is_on_disk).collect();
    if there.is_empty() {
        return Ok(());
    }
    printer.prose("still in the workspace, and captured again by the next capture:")?;
    for purged in there.iter().take(most) {
        printer.hanging("  ", &purged.path.to_string())?;
    }
    and_more(there.len(), most, printer)?;
    printer.prose(
        "remove it, or name it in .gitignore or .git/info/exclude; what git tracks is captured all the \
         same, until `git rm --cached`",
    )
}

fn tell_done(removed: Removed, printer: &mut Printer) -> io::Result<()> {
    let blobs = format::counted(removed.blobs, "blob", "blobs");
    let size = format::size(removed.bytes);
    printer.prose(&format!("purged; {blobs} removed, {size} as stored"))?;
    printer.prose(
        "backups of the store, free blocks of the disk and snapshots of the file system are not reached: \
         change a secret that was stored",
    )
}
