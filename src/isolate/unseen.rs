//! What a run changed where git lets nobody see it.

use super::failed;
use crate::error::Result;
use crate::git::{self, Repository};
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::runs::RunRecord;

/// What a run changed at paths that its own sparse checkout leaves out: no checkpoint holds what its commits, or its
/// index, have there.
#[derive(Debug)]
pub(crate) struct Unseen {
    /// In order; not what the checkout that it was made from has by now, too.
    pub(crate) paths: Vec<RelPath>,
    /// What leads to its commits: the branch that is checked out in it, or a commit.
    pub(crate) tip: String,
}

/// Finds what a run changed unseen. `None` where it is in no sparse checkout.
///
/// # Errors
/// What git says.
///
/// Cost: one process; in a sparse checkout four more, of which each reads an index.
pub(crate) fn unseen(record: &RunRecord, monitor: &dyn Monitor) -> Result<Option<Unseen>> {
    let (path, is_cancelled) = (record.path(), || monitor.is_cancelled());
    let Some(repository) = Repository::at(&path) else { return Ok(None) };
    if !git::is_sparse(&repository).map_err(failed("say whether a checkout is sparse"))? {
        return Ok(None);
    }
    let staged = |repository: &Repository| {
        git::staged_since(repository, &record.commit, &is_cancelled)
            .map_err(failed("say what is staged"))
    };
    let there = staged(&repository)?;
    let here = Repository::at(&record.top).map(|here| staged(&here)).transpose()?;
    let here = here.unwrap_or_default();
    let tracked = git::tracked(&repository, &path, &is_cancelled);
    let tracked = tracked.map_err(failed("say what it tracks"))?.into_iter();
    let is_unseen = |path: &RelPath| {
        let is_there = record.path().join(path.as_os()).symlink_metadata().is_ok();
        !is_there && there.get(path).is_some_and(|staged| here.get(path) != Some(staged))
    };
    let mut paths: Vec<RelPath> =
        tracked.filter(|it| it.skip_worktree).map(|it| it.path).filter(is_unseen).collect();
    paths.sort_unstable();
    let head = git::head(&repository, &is_cancelled).map_err(failed("say where HEAD is"))?;
    let tip = head.branch.or(head.head).unwrap_or_else(|| record.branch());
    Ok(Some(Unseen { paths, tip }))
}
