//! `turnpoint show`.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use turnpoint::clock::Timestamp;
use turnpoint::manifest::{
    CheckpointRef, Coverage, GitState, Manifest, RestoreRecord, RestoreVerb, Tracked,
};
use turnpoint::path::{RelPath, printable, shell_path, shell_word};
use turnpoint::{CheckpointSummary, ShownCheckpoint};

use crate::cli::arguments::ShowArguments;
use crate::cli::capture;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::json::{CheckpointDocument, IdDocument, PathDocument};
use crate::cli::table::{Align, Table};
use crate::cli::target::{self, Target};

#[derive(Serialize)]
struct ShowDocument<'a> {
    #[serde(flatten)]
    checkpoint: CheckpointDocument<'a>,
    parent: Option<IdDocument>,
    git: &'a Option<GitState>,
    restore: Option<RestoreDocument>,
    coverage: &'a Coverage,
    scope: ScopeDocument<'a>,
    root_page: String,
    digest: String,
    manifest: PathDocument,
}

#[derive(Serialize)]
struct RestoreDocument {
    verb: RestoreVerb,
    target: IdDocument,
    undoes: Option<IdDocument>,
}

#[derive(Serialize)]
struct ScopeDocument<'a> {
    file_limit_bytes: u64,
    total_limit_bytes: Option<u64>,
    cross_mounts: bool,
    excluded: &'a [String],
    secrets: &'a [String],
    ignore_files: Vec<PathDocument>,
    tracked: Tracked,
}

/// What is said of a checkpoint of given paths.
pub(crate) const MADE_OF_PART: &str = "was made of the paths that a restore was about to change";

/// How many of these are named.
const PATHS_SHOWN_MAX: usize = 3;

/// Shows one checkpoint.
pub(crate) fn run(arguments: &ShowArguments, context: &mut Context) -> Outcome<Exit> {
    context.report_open_restore();
    let checkpoint = &arguments.checkpoint;
    let Target { spec, rest } = target::parse_or_latest(
        &checkpoint.words,
        checkpoint.session.as_deref(),
        checkpoint.time.at,
        Some(context),
    )?;
    if let Some(path) = rest.first() {
        let shown = printable(path.as_bytes());
        let message = format!("nothing is expected after the checkpoint, but there is `{shown}`");
        let (place, path) = (context.place(), shell_path(path));
        let named = &checkpoint.words[..checkpoint.words.len() - rest.len()];
        let mut named: Vec<String> = named.iter().map(shell_word).collect();
        let session =
            checkpoint.session.iter().map(|session| format!("--session {}", shell_word(session)));
        let of_session: String = session.clone().map(|session| session + " ").collect();
        named.extend(session);
        named.extend(checkpoint.time.at.map(|at| format!("--at {at}")));
        let named = named.join(" ");
        return Err(Failure::own(Exit::Usage, "usage", message).hint(format!(
            "of a file, `turnpoint {place}cat {named} {path}` shows the content, `turnpoint {place}log \
             {of_session}{path}` which checkpoints changed it"
        )));
    }
    let id = context.resolve(&spec)?;
    let shown = context.run(|store, monitor| store.show(&id, monitor))?;
    if context.is_json() {
        let summary = shown.summary();
        context.document(&document(&shown, &summary))?;
    } else {
        // What is lost of it does not keep the rest from being shown.
        let only = context.run(|store, monitor| store.paths_spoken_of(&id, monitor)).ok().flatten();
        print(&shown, only.as_ref(), context)?;
    }
    Ok(Exit::Done)
}

fn document<'a>(shown: &'a ShownCheckpoint, summary: &'a CheckpointSummary) -> ShowDocument<'a> {
    let ShownCheckpoint { manifest, digest, file, .. } = shown;
    let id = |reference: &CheckpointRef| IdDocument::from(&reference.id);
    let scope = &manifest.scope;
    ShowDocument {
        checkpoint: CheckpointDocument::from(summary),
        parent: manifest.parent.as_ref().map(id),
        git: &manifest.git,
        restore: manifest.restore.as_ref().map(|restore| RestoreDocument {
            verb: restore.verb,
            target: id(&restore.target),
            undoes: restore.undoes.as_ref().map(id),
        }),
        coverage: &manifest.coverage,
        scope: ScopeDocument {
            file_limit_bytes: scope.file_limit_bytes,
            total_limit_bytes: scope.total_limit_bytes,
            cross_mounts: scope.cross_mounts,
            excluded: &scope.excluded,
            secrets: &scope.secrets,
            ignore_files: scope
                .ignore_files
                .iter()
                .map(|file| PathDocument::from(file.path.as_path()))
                .collect(),
            tracked: scope.tracked,
        },
        root_page: manifest.tree.root.to_string(),
        digest: digest.to_string(),
        manifest: PathDocument::from(file.as_path()),
    }
}

fn print(
    shown: &ShownCheckpoint,
    only: Option<&BTreeSet<RelPath>>,
    context: &mut Context,
) -> io::Result<()> {
    let ShownCheckpoint { manifest, digest, pin, file, .. } = shown;
    let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
    let mut row = |name: &str, text: String| table.row(vec![name.to_owned(), text]);
    row("checkpoint", manifest.id.to_string());
    let age = format::age(manifest.created_at, Timestamp::now());
    row("created", format!("{} ({age})", format::second(manifest.created_at)));
    row("workspace", printable(manifest.root_path.as_os_str().as_bytes()));
    row("workspace id", manifest.workspace.to_string());
    row("trigger", manifest.trigger.as_str().to_owned());
    if let Some(label) = pin.label.as_deref().or(manifest.label.as_deref()) {
        row("label", printable(label.as_bytes()));
    }
    row("pinned", pinned(pin.pinned, pin.note.as_deref()));
    row("complete", complete(manifest));
    if manifest.coverage == Coverage::Paths {
        row("speaks of", part(only));
    }
    if let Some(parent) = &manifest.parent {
        row("before it", parent.id.to_string());
    }
    if let Some(git) = &manifest.git {
        row("git", git_state(git));
    }
    if let Some(restore) = &manifest.restore {
        row("holds", format!("what was there {}", before(restore)));
    }
    let counts = &manifest.counts;
    row("files", format::number(counts.files_observed));
    row("entries", format::number(manifest.tree.entries));
    let read = format::counted(counts.files_read, "file", "files");
    row("read", format!("{read}, {}", format::size(counts.bytes_read)));
    row("stored", format::size(counts.bytes_stored));
    row("not held", not_held(manifest));
    row("limits", limits(manifest));
    row("manifest", printable(file.as_os_str().as_bytes()));
    row("digest", digest.to_string());
    table.print(&mut context.printer)
}

/// Of which paths it was made; the others are not its own.
fn part(only: Option<&BTreeSet<RelPath>>) -> String {
    let own = match only {
        None => "only the paths that a restore was about to change".to_owned(),
        Some(only) => {
            let mut names: Vec<String> =
                only.iter().take(PATHS_SHOWN_MAX).map(ToString::to_string).collect();
            let more = only.len().saturating_sub(PATHS_SHOWN_MAX);
            if more > 0 {
                names.push(format!("{} more", format::number(more as u64)));
            }
            format!("only {}, which a restore was about to change", names.join(", "))
        }
    };
    format!("{own}; the others are as in the checkpoint before it")
}

fn pinned(pinned: bool, note: Option<&str>) -> String {
    match (pinned, note) {
        (true, Some(note)) => format!("yes: {}", printable(note.as_bytes())),
        (true, None) => "yes".to_owned(),
        (false, _) => "no".to_owned(),
    }
}

fn complete(manifest: &Manifest) -> String {
    if manifest.complete {
        "yes".to_owned()
    } else {
        "no: something could not be read whole".to_owned()
    }
}

fn git_state(git: &GitState) -> String {
    let head = git.head.as_deref().map(|head| head.get(..12).unwrap_or(head));
    match (&git.branch, head) {
        (Some(branch), Some(head)) => format!("{} at {head}", printable(branch.as_bytes())),
        (Some(branch), None) => format!("{}, without a commit", printable(branch.as_bytes())),
        (None, Some(head)) => format!("detached at {head}"),
        (None, None) => "without a commit".to_owned(),
    }
}

fn not_held(manifest: &Manifest) -> String {
    if manifest.counts.omitted.is_empty() {
        return "nothing is left out".to_owned();
    }
    let reasons = capture::omitted(&manifest.counts.omitted);
    format!("{reasons} (`turnpoint ls {} --omitted` names them)", manifest.id.shell_word())
}

fn limits(manifest: &Manifest) -> String {
    let scope = &manifest.scope;
    let file = format::size(scope.file_limit_bytes);
    let total = match scope.total_limit_bytes {
        Some(total) => format!("{} in all", format::size(total)),
        None => "no limit in all".to_owned(),
    };
    let mounts = if scope.cross_mounts { ", other file systems entered" } else { "" };
    format!("{file} a file, {total}{mounts}")
}

/// Before what a safety checkpoint was made.
pub(crate) fn before(restore: &RestoreRecord) -> String {
    let what = match restore.verb {
        RestoreVerb::Restore => "before a restore of",
        RestoreVerb::Undo => "before an undo of the restore saved in",
        RestoreVerb::Revert => "before a revert of",
        RestoreVerb::Apply => "before a run was applied, which had left",
        RestoreVerb::Redo => "before a redo of the undo saved in",
    };
    format!("{what} {}", restore.target.id)
}
