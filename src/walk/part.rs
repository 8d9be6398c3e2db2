//! Part of a workspace: given paths, and nothing else.
//!
//! For a restore of given paths, which has to save these and need not know of others. What is asked is
//! what the walk of the whole tree would say of them. Where that may depend on more than the paths
//! themselves, nothing is said, and the whole tree has to be walked.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, mpsc};

use crate::disk::{Dir, FileKind};
use crate::error::{IoContext, Result};
use crate::git;
use crate::manifest::{Listed, Tracked, topmost};
use crate::monitor::{Monitor, Phase};
use crate::path::RelPath;
use crate::settings::ScopeSettings;
use crate::walk::directory::{Policy, Seen, Tree};
use crate::walk::{Observed, WalkOptions, Walked, What, graft, locked, open};

/// What was found of given paths.
#[derive(Debug)]
pub(crate) struct WalkedPart {
    /// The paths, what is below them, and the directories above them, these as partial ones.
    pub(crate) walked: Walked,
    /// The topmost directories above the paths that are not there.
    pub(crate) missing: Vec<RelPath>,
}

/// Looks at `paths`, at everything below them, and at the directories above them. `None` where the
/// whole tree has to be walked: where a rule leaves any of it out, since git may track it all the same;
/// where something is neither file, symlink nor directory, or cannot be read; in a repository below the
/// root; where the way to a path leads over something else than directories.
///
/// # Errors
/// As [`crate::walk::walk`].
///
/// Cost: an open and some stats for each directory above the paths; one stat for each name at or below
/// them, on this thread.
pub(crate) fn walk_part(
    root: &Dir,
    root_path: &Path,
    settings: &ScopeSettings,
    options: &WalkOptions,
    paths: &[RelPath],
    monitor: &dyn Monitor,
) -> Result<Option<WalkedPart>> {
    monitor.phase(Phase::Walk, None);
    let repository = git::repository_of(root_path);
    // git is not asked: nothing that it says is of use here.
    let (jobs, _) = mpsc::channel();
    let tree = open(root, root_path, settings, options, repository.as_ref(), jobs)?;
    let tops = topmost(paths);
    let Some(missing) = look_above(&tree, &tops)? else { return Ok(None) };
    let mut has_directory = false;
    for top in &tops {
        if missing.iter().any(|above| top.is_at_or_below(above)) {
            continue;
        }
        match tree.look_at(top, Policy::Scope) {
            Seen::Gone => continue,
            Seen::Directory(_) => has_directory = true,
            Seen::Leaf(_) => {}
        }
        tree.descend(top, Policy::Scope)?;
    }
    let (batches, is_plain) = {
        let mut found = locked(&tree.found);
        let is_plain = found.unfinished.is_empty()
            && found.unsettled.is_empty()
            && found.nested.is_empty()
            && !found.missed;
        (std::mem::take(&mut found.batches), is_plain)
    };
    let mut observations: Vec<Observed> = batches.into_iter().flatten().collect();
    graft::sort(&mut observations);
    let is_left_out = |seen: &Observed| matches!(seen.what, What::Omitted { .. });
    let report = tree.rule_files.report();
    // Files that git keeps out of the work tree make their directories partial.
    let may_be_sparse = has_directory
        && repository.as_ref().is_some_and(|repository| !options.tracked.is_plain(repository));
    if !is_plain
        || may_be_sparse
        || observations.iter().any(is_left_out)
        || !report.skipped.is_empty()
    {
        return Ok(None);
    }
    if !Dir::open(root_path)?.stat_self()?.is_same_inode(&tree.root_stat) {
        let replaced = std::io::Error::other("it was replaced meanwhile");
        return Err(replaced).at("walk", root_path);
    }
    let walked = Walked {
        observations,
        kept: Vec::new(),
        ignore_files: report.outside,
        ignore_digest: report.digest,
        rules: None,
        #[cfg(test)]
        nested_repositories: Vec::new(),
        tracked: if repository.is_some() { Tracked::Stale } else { Tracked::None },
        tracked_cache: options.tracked.clone(),
        unfinished: Vec::new(),
        restless: Vec::new(),
        listed: None,
        unlisted: Vec::new(),
        tree: Arc::new(tree),
    };
    Ok(Some(WalkedPart { walked, missing }))
}

/// Visits the directories above `tops`, from the root down, and reads their rules. Returns those that
/// are not there.
fn look_above(tree: &Tree, tops: &[RelPath]) -> Result<Option<Vec<RelPath>>> {
    let directories: BTreeSet<RelPath> = tops.iter().flat_map(RelPath::ancestors).collect();
    let mut missing: Vec<RelPath> = Vec::new();
    for path in directories {
        if missing.iter().any(|above| path.is_at_or_below(above)) {
            continue;
        }
        match tree.look_at(&path, Policy::Scope) {
            Seen::Gone => {
                missing.push(path);
                continue;
            }
            Seen::Directory(_) => {}
            Seen::Leaf(_) => return Ok(None),
        }
        let Ok(Some((dir, stat))) = tree.open(&path) else { return Ok(None) };
        let is_file = |name: &[u8]| -> Result<bool> {
            Ok(dir.stat(name)?.is_some_and(|stat| stat.kind == FileKind::File))
        };
        let is_repository = !path.is_root() && dir.stat(b".git")?.is_some();
        if is_repository || is_file(b"format.json")? {
            return Ok(None);
        }
        let above = path.parent().map(|parent| tree.nearest_rules(&parent));
        let above = above.unwrap_or_else(|| tree.root_rules.clone());
        tree.add_rules(&dir, &path, &above, None, is_file(b".gitignore")?);
        let what = What::Dir { listed: Listed::Partial };
        tree.push(vec![Observed { path, stat, what }]);
    }
    Ok(Some(missing))
}

/// Whether every name on the way to `path` is one that its directory lists: a file system that folds
/// names finds others too.
pub(crate) fn is_listed(root: &Dir, path: &RelPath) -> Result<bool> {
    for path in path.ancestors().skip(1).chain([path.clone()]) {
        let Some(parent) = root.try_open_dir(&path.parent().unwrap_or_default())? else {
            return Ok(false);
        };
        if !parent.names()?.iter().any(|name| name == path.name()) {
            return Ok(false);
        }
    }
    Ok(true)
}
