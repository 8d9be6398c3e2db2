//! Removing the work tree of a run once everything in it is held.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::making::leave;
use super::{LeftOut, RemoveOptions, RunContent, failed};
use crate::disk::{self, Dir, Extent, Lock};
use crate::error::{Error, IsolationError, REMOVE_WORK_TREE, Result};
use crate::git::{self, Administration, IndexStamp, RefLock, Repository, Status, Stays, Tips};
use crate::id::RunId;
use crate::manifest::{Entry, EntryKind, OmitReason};
use crate::monitor::Monitor;
use crate::path::{RelPath, at_or_below};
use crate::runs::{RunRecord, RunState, place};
use crate::settings::is_version_control;

/// How much there is of a run's work tree.
#[derive(Debug)]
pub(crate) enum Stage {
    /// All of it.
    Whole(WorkTree),
    /// git was killed over making it: nothing was run in it, and what is in it is the commit's.
    HalfMade,
    /// git was killed over removing it, and has taken away its link to the repository, which knows it.
    Unlinked,
    /// git could not remove all of it, and has forgotten it: nobody but us can say what is left in it.
    Forgotten,
    /// Its directory is gone. git may still keep what belongs to it.
    Gone,
}

impl Stage {
    /// Whether git can say what is in it.
    pub(crate) const fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }
}

/// A work tree and what git keeps of it.
#[derive(Debug)]
pub(crate) struct WorkTree {
    repository: Repository,
}

/// What was found of a run's work tree.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) stage: Stage,
    administration: Option<Administration>,
}

/// What git says of a work tree at one moment.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) status: Status,
    tips: Tips,
    index: Option<IndexStamp>,
}

impl Kept {
    /// The commit that the branch leads to.
    pub(crate) fn branch(&self) -> Option<String> {
        self.tips.branch.clone()
    }

    /// Whether commits and index are as they were then, and git says the same of the files.
    pub(crate) fn is_as(&self, then: &Self) -> bool {
        self.tips == then.tips && self.index == then.index && self.status == then.status
    }
}

/// Finds what there is of a run.
///
/// # Errors
/// [`IsolationError::Unknown`] where a directory is in its place that git does not know;
/// [`IsolationError::Closed`].
pub(crate) fn find(record: &RunRecord) -> Result<Found> {
    let path = record.path();
    // git would say that there is no work tree.
    if let Err(Error::Io { source, .. }) = Dir::open(&path).and_then(|top| top.stat(b".git"))
        && source.kind() == ErrorKind::PermissionDenied
    {
        return Err(IsolationError::Closed { path }.into());
    }
    let is_making = record.state == RunState::Making;
    let is_removing = record.state == RunState::Removing;
    let administration = git::administration(&record.repository, &path, is_making || is_removing)?;
    let leads_there = administration.as_ref().is_some_and(|it| it.leads_there);
    let repository = Repository::at(&path).filter(|found| {
        let git_dir = administration.as_ref().map(|it| &it.git_dir);
        let is_same = |git_dir: &PathBuf| {
            disk::real_path(&found.git_dir)
                .is_ok_and(|found| disk::real_path(git_dir).is_ok_and(|git_dir| git_dir == found))
        };
        git_dir.is_some_and(is_same)
    });
    // Where git has an index of it the files are there, and somebody may have gone on with it since.
    let is_begun = |it: &Administration| it.is_being_made() && !it.is_whole();
    let is_half_made =
        is_making && administration.as_ref().is_some_and(|it| !it.leads_there || is_begun(it));
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.is_dir());
    let is_unlinked = || -> Result<bool> {
        let Some(known) = administration.as_ref().filter(|it| it.is_whole()) else {
            return Ok(false);
        };
        // What may not be looked into may have one.
        let link = path.join(".git").symlink_metadata();
        let has_none = link.is_err_and(|error| error.kind() == ErrorKind::NotFound);
        Ok(has_none || git::is_own_link(&known.git_dir, &path)?)
    };
    let stage = match repository {
        _ if is_half_made => Stage::HalfMade,
        Some(repository) if leads_there => Stage::Whole(WorkTree { repository }),
        _ if is_nothing_at(&path)? => Stage::Gone,
        // git was killed before it had put anything there, or while it took away what it had made.
        _ if is_making => Stage::HalfMade,
        // What lies elsewhere is another's, and so is what has a repository of its own there.
        _ if is_removing && is_dir(&path) && !is_dir(&path.join(".git")) => {
            if is_unlinked()? {
                Stage::Unlinked
            } else {
                Stage::Forgotten
            }
        }
        _ => return Err(unknown(record)),
    };
    Ok(Found { stage, administration })
}

/// Whether nothing is at `path`. That nobody can say is an error: it may come back.
fn is_nothing_at(path: &Path) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(false),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(true)
        }
        Err(source) => Err(Error::Io { verb: "look at", path: path.to_owned(), source }),
    }
}

/// That git does not know what is in the place of a work tree.
pub(crate) fn unknown(record: &RunRecord) -> Error {
    let is_begun = record.state == RunState::Removing;
    let kept = record.kept.clone().filter(|_| is_begun);
    IsolationError::Unknown { path: record.path(), kept }.into()
}

/// Refuses a work tree that somebody is at work in, or that a person has locked, or on or in which something is
/// mounted: what is there is not of the run.
///
/// # Errors
/// [`IsolationError::InUse`], [`IsolationError::Locked`], [`IsolationError::Mounted`]; [`Error::Io`] where the
/// kernel does not say.
pub(crate) fn refuse_busy(record: &RunRecord, found: &Found) -> Result<()> {
    let path = record.path();
    let is_making = record.state == RunState::Making;
    let by_a_person = |it: &&Administration| !(is_making && it.is_being_made());
    let administration = found.administration.as_ref().filter(by_a_person);
    let locked = administration.and_then(|it| it.locked.clone());
    if let Some(reason) = locked.filter(|_| !matches!(found.stage, Stage::HalfMade)) {
        return Err(IsolationError::Locked { path, reason }.into());
    }
    let place = place(&record.top);
    let is_in_it = |mount: &RelPath| mount.as_os().starts_with(record.id.to_string());
    let mounts = disk::mounts_below(&place)?.into_iter().filter(is_in_it);
    // The deepest has to go first.
    if let Some(mount) = mounts.max_by_key(|mount| mount.components().count()) {
        return Err(IsolationError::Mounted { path: place.join(mount.as_os()) }.into());
    }
    let processes = disk::processes_that_stay_in(&path)?;
    if !processes.is_empty() {
        return Err(IsolationError::InUse { path, processes }.into());
    }
    Ok(())
}

/// Removes the locks that a killed git has left on the refs of a run. Returns the removed ones.
///
/// # Errors
/// [`IsolationError::RefLocked`] where one of them may be somebody's.
pub(crate) fn clear_locks(record: &RunRecord) -> Result<Vec<PathBuf>> {
    let refs = [format!("refs/heads/{}", record.branch())];
    let (removed, in_the_way) = git::clear_locks(&record.repository, &refs, &own_refs(record))?;
    match in_the_way {
        Some(RefLock { path, processes }) => {
            Err(IsolationError::RefLocked { path, processes }.into())
        }
        None => Ok(removed),
    }
}

/// What the refs begin with that removals make; then comes the run.
const REFS: &str = "refs/turnpoint/removed";

fn own_refs(record: &RunRecord) -> String {
    format!("{REFS}/{}", record.id)
}

/// The runs of a repository of whose removal refs are there.
///
/// # Errors
/// What git says.
pub(crate) fn runs_with_refs(common_dir: &Path) -> Result<HashSet<RunId>> {
    let refs = git::kept_refs(common_dir, REFS).map_err(failed("list refs"))?;
    let run = |name: &str| name.strip_prefix(REFS)?.split('/').nth(1)?.parse().ok();
    Ok(refs.iter().filter_map(|(name, _)| run(name)).collect())
}

/// What is in the work tree of a run. `None` where there is none, or git does not know it, or something of it
/// cannot be read.
///
/// # Errors
/// [`Error::Cancelled`] alone: what nobody can say of one run is no reason to say nothing of the others.
pub(crate) fn content(record: &RunRecord, monitor: &dyn Monitor) -> Result<Option<RunContent>> {
    match read_content(record, monitor) {
        Err(Error::Cancelled) => Err(Error::Cancelled),
        content => Ok(content.ok().flatten()),
    }
}

fn read_content(record: &RunRecord, monitor: &dyn Monitor) -> Result<Option<RunContent>> {
    let options = RemoveOptions { discard: true, ..RemoveOptions::default() };
    let found = find(record)?;
    if !found.stage.is_whole() {
        return Ok(None);
    }
    let kept = look(record, &found, &options, monitor)?;
    let tips: Vec<&str> =
        kept.tips.branch.iter().chain(&kept.tips.head).map(String::as_str).collect();
    let commits =
        git::count_since(&record.repository, &record.commit, &tips, &|| monitor.is_cancelled());
    let commits = commits.map_err(failed("count commits"))?;
    let place = Dir::open(&place(&record.top))?;
    let bytes = disk::extent(&place, record.id.to_string().as_bytes())?.bytes;
    let (ignored, _) = measured(record, kept.status.ignored().iter(), LeftOut::default())?;
    Ok(Some(RunContent { changed: kept.status.changed, commits, bytes, ignored }))
}

/// What may not be looked into, of which nobody knows how much it is.
const UNKNOWN: Extent = Extent { files: 1, bytes: 0 };

/// How much it is that is given up in a work tree, or beside it.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn measure_given_up(
    record: &RunRecord,
    found: &Found,
    paths: Vec<(RelPath, String)>,
) -> Result<LeftOut> {
    let mut all = Extent::default();
    for (path, _) in &paths {
        let submodule = path.as_bytes().strip_prefix(SUBMODULES);
        let extent = match (&found.administration, submodule.map(RelPath::new)) {
            (Some(known), Some(Ok(name))) => {
                extent_of(&Dir::open(&known.git_dir.join("modules"))?, &name)
            }
            _ => extent_of(&Dir::open(&record.path())?, path),
        };
        all += extent?.unwrap_or(UNKNOWN);
    }
    Ok(LeftOut { paths, files: all.files, bytes: all.bytes })
}

/// How much what git ignores in a work tree is, beside what is `given_up`; and what of it may not be looked
/// into. What is ignored and has no file in it nobody misses.
fn measured<'a>(
    record: &RunRecord,
    ignored: impl Iterator<Item = &'a RelPath>,
    given_up: LeftOut,
) -> Result<(LeftOut, Vec<(RelPath, String)>)> {
    let top = Dir::open(&record.path())?;
    let mut all = Extent { files: given_up.files, bytes: given_up.bytes };
    let (mut paths, mut closed) = (given_up.paths, Vec::new());
    for path in ignored {
        let extent = extent_of(&top, path)?;
        if extent.is_none() {
            closed.push((path.clone(), OmitReason::Unreadable.to_string()));
        }
        if extent.is_none_or(|extent| extent.files > 0) {
            all += extent.unwrap_or(UNKNOWN);
            paths.push((path.clone(), OmitReason::Ignored.to_string()));
        }
    }
    Ok((LeftOut { paths, files: all.files, bytes: all.bytes }, closed))
}

/// `None` where something of it may not be looked into.
fn extent_of(top: &Dir, path: &RelPath) -> Result<Option<Extent>> {
    let above = top.try_open_dir(&path.parent().unwrap_or_default());
    let extent = above.and_then(|above| {
        above.map_or(Ok(Extent::default()), |above| disk::extent(&above, path.name()))
    });
    match extent {
        Err(error) if disk::is_withheld(&error) => Ok(None),
        extent => extent.map(Some),
    }
}

/// Asks git what it has to say of a run.
///
/// # Errors
/// [`IsolationError::Unfinished`] where something has not ended that is not to be given up.
pub(crate) fn look(
    record: &RunRecord,
    found: &Found,
    options: &RemoveOptions,
    monitor: &dyn Monitor,
) -> Result<Kept> {
    let is_cancelled = || monitor.is_cancelled();
    let (status, index) = match &found.stage {
        Stage::Whole(WorkTree { repository }) => {
            let status = git::status(repository, &is_cancelled);
            (status.map_err(failed("look at the work tree"))?, git::index_stamp(repository))
        }
        Stage::Gone => {
            let index = index_of_gone(record, found);
            let has_own_index = index.as_ref().map_or(Ok(false), git::has_own_index);
            let has_own_index = has_own_index.map_err(failed("look at the index"))?;
            let mut status = Status::default();
            status.has_own_index = has_own_index;
            (status, None)
        }
        Stage::HalfMade | Stage::Unlinked | Stage::Forgotten => (Status::default(), None),
    };
    if let Some(what) = status.unfinished.filter(|_| !options.discard) {
        return Err(IsolationError::Unfinished { path: record.path(), what }.into());
    }
    // What a killed git had begun to take away tells nothing more. In any other state it is for git to say
    // what is wrong.
    let is_removing = record.state == RunState::Removing;
    let administration =
        found.administration.as_ref().filter(|it| !is_removing || it.is_readable());
    let git_dir = administration.map(|it| it.git_dir.as_path());
    let tips = git::tips(&record.repository, &record.branch(), git_dir, &is_cancelled)
        .map_err(failed("look for commits"))?;
    Ok(Kept { status, tips, index })
}

/// The index of a work tree whose directory somebody has removed, and no removal of ours, before which what was
/// staged was kept. It is asked without files.
fn index_of_gone(record: &RunRecord, found: &Found) -> Option<Repository> {
    let known = found.administration.as_ref().filter(|it| it.is_whole())?;
    let is_gone = matches!(found.stage, Stage::Gone) && record.state == RunState::Made;
    is_gone.then(|| Repository {
        top: known.git_dir.clone(),
        git_dir: known.git_dir.clone(),
        common_dir: record.repository.clone(),
    })
}

/// Has refs lead to the commits that only the run has, and to what is staged in it and nowhere else.
/// Returns all refs of the run. None is ever led elsewhere: what an earlier removal found may be known to
/// nothing else by now.
///
/// # Errors
/// What git says.
pub(crate) fn keep(
    record: &RunRecord,
    found: &Found,
    kept: &Kept,
    monitor: &dyn Monitor,
) -> Result<Vec<String>> {
    let common_dir = &record.repository;
    let prefix = own_refs(record);
    let Tips { branch, head, log } = &kept.tips;
    let mut wanted = Vec::new();
    let mut commits: Vec<String> = branch.iter().chain(head).chain(log).cloned().collect();
    commits.sort_unstable();
    commits.dedup();
    let lone = git::only_led_to_by(common_dir, &prefix, &commits, &|| monitor.is_cancelled());
    for commit in lone.map_err(failed("look for commits"))? {
        let name = if branch.as_ref() == Some(&commit) {
            "branch"
        } else if head.as_ref() == Some(&commit) {
            "head"
        } else {
            "log"
        };
        wanted.push((name, commit));
    }
    let with_index = match &found.stage {
        Stage::Whole(WorkTree { repository }) => Some(repository.clone()),
        _ => index_of_gone(record, found),
    };
    if let Some(repository) = with_index.filter(|_| kept.status.has_own_index) {
        let message = format!("what was staged in run {}", record.id);
        let commit = git::commit_staged(&repository, head.as_deref(), record.started_at, &message)
            .map_err(failed("keep the index"))?;
        wanted.push(("index", commit));
    }
    let list = git::kept_refs(common_dir, &prefix).map_err(failed("list refs"))?;
    let mut refs: BTreeMap<String, String> = list.into_iter().collect();
    for (name, commit) in wanted {
        if refs.values().any(|led_to| *led_to == commit) {
            continue;
        }
        let first = if name == "log" { "log-1" } else { name };
        let further = (2_u64..).map(|number| format!("{name}-{number}"));
        let names = std::iter::once(first.to_owned()).chain(further);
        let mut full = names.map(|name| format!("{prefix}/{name}"));
        let Some(full) = full.find(|full| !refs.contains_key(full)) else { continue };
        git::keep(common_dir, &full, &commit).map_err(failed("keep a commit"))?;
        refs.insert(full, commit);
    }
    Ok(refs.into_keys().collect())
}

/// Makes durable what the refs of a run lead to, and these: git waits for neither, nor did the command that
/// made the commits.
///
/// # Errors
/// [`Error::Io`].
///
/// Cost: where there are such refs, the writing of all that waits to be written on the file system.
pub(crate) fn make_durable(record: &RunRecord) -> Result<()> {
    if record.refs.is_empty() {
        return Ok(());
    }
    // Objects may be kept on another one.
    let places = [record.repository.clone(), record.repository.join("objects")];
    places.iter().try_for_each(|place| disk::sync_file_system(&Dir::open(place)?))
}

/// Where those are that [`submodules`] names: git keeps them with what else it keeps of a work tree.
const SUBMODULES: &[u8] = b".git/modules/";

/// The repositories of submodules that git keeps with the work tree, whose commits may be nowhere else:
/// they go with it, also where the files of the submodule are gone.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn submodules(found: &Found) -> Result<Vec<(RelPath, String)>> {
    let Some(administration) = &found.administration else { return Ok(Vec::new()) };
    let all = administration.git_dir.join("modules");
    if !disk::is_directory(&all)? {
        return Ok(Vec::new());
    }
    let reason = || "the repository of a submodule".to_owned();
    let names = disk::list_dir(&all)?.into_iter();
    let path = |name: Vec<u8>| RelPath::new([SUBMODULES, &name].concat()).ok();
    Ok(names.filter_map(|(name, _)| path(name)).map(|path| (path, reason())).collect())
}

/// What a checkpoint of the work tree names and does not hold, that nobody else holds either and that git does
/// not ignore: each with the reason.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn not_held(
    record: &RunRecord,
    entries: &[Entry],
    kept: &Kept,
    options: &RemoveOptions,
) -> Result<Vec<(RelPath, String)>> {
    let top = Dir::open(&record.path())?;
    let named = LazyCell::new(|| entries.iter().map(|entry| &entry.path).collect());
    let mut left = Vec::new();
    for entry in entries {
        let path = &entry.path;
        let reason = match entry.kind {
            EntryKind::File { unstable: true, .. } => "changes while it is read".to_owned(),
            EntryKind::Omitted { .. } if path.as_bytes() == b".git" => continue,
            EntryKind::Omitted { reason, rest } => {
                let has_own = is_version_control(path.name());
                let is_spared = match reason {
                    // What is tracked of it somebody had git take. Into a repository git does not look, of which
                    // it has one commit, and what it ignores there may be the work of another run.
                    _ if has_own => {
                        kept.status.spares(path, false)
                            && !kept.status.has_repository(&top, path)?
                    }
                    OmitReason::Sparse => true,
                    // What is mounted there is not git's, whatever it says.
                    OmitReason::Mount | OmitReason::Store => false,
                    // git says nothing of a directory in which there is no file.
                    OmitReason::Excluded | OmitReason::Ignored => {
                        kept.status.spares(path, !options.ignored)
                            || extent_of(&top, path)?.is_some_and(|extent| extent.files == 0)
                    }
                    _ => kept.status.spares(path, !options.ignored),
                };
                let is_rest_spared = rest == 0 || (!options.ignored && !hides(&named, kept, path));
                if is_spared && is_rest_spared {
                    continue;
                }
                let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
                let reason = if has_own { "version control of its own" } else { reason.as_str() };
                format!("{reason}{more}")
            }
            _ => continue,
        };
        left.push((path.clone(), reason));
    }
    Ok(left)
}

/// Whether one of the names that have no entry because there are too many of them, those of the same directory
/// after `last`, has something in it that only the work tree has.
fn hides(named: &HashSet<&RelPath>, kept: &Kept, last: &RelPath) -> bool {
    let directory = last.parent().unwrap_or_default();
    let is_without_entry = |path: &RelPath| {
        let mut at = Some(path.clone());
        while let Some(path) = at {
            if named.contains(&path) {
                return path == directory;
            }
            at = path.parent();
        }
        true
    };
    let differing = kept.status.differing();
    at_or_below(differing, &directory, |path| path).any(|index| is_without_entry(&differing[index]))
}

/// What a removal leaves out: `given_up`, and what git ignores where that is not held. And what of the ignored may
/// not be looked into.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn left_out(
    record: &RunRecord,
    found: &Found,
    entries: &[Entry],
    kept: &Kept,
    given_up: Vec<(RelPath, String)>,
    options: &RemoveOptions,
) -> Result<(LeftOut, Vec<(RelPath, String)>)> {
    if options.ignored {
        // What of it is not held is given up, one by one.
        return Ok((measure_given_up(record, found, given_up)?, Vec::new()));
    }
    let mut omitted: Vec<&RelPath> = Vec::new();
    // The last names that have an entry, by their directory.
    let mut last: HashMap<RelPath, &RelPath> = HashMap::new();
    for Entry { path, kind, .. } in entries {
        let EntryKind::Omitted { rest, .. } = kind else { continue };
        omitted.push(path);
        if *rest > 0 {
            last.insert(path.parent().unwrap_or_default(), path);
        }
    }
    omitted.sort_unstable();
    let is_omitted = |path: &RelPath| {
        let is_one = |path: &RelPath| omitted.binary_search(&path).is_ok();
        let is_one_of_rest = || {
            let last = last.get(&path.parent().unwrap_or_default());
            last.is_some_and(|last| *last < path)
        };
        at_or_below(&omitted, path, |path| *path).next().is_some()
            || path.ancestors().any(|above| is_one(&above))
            || is_one_of_rest()
    };
    let is_left = |path: &&RelPath| {
        !given_up.iter().any(|(other, _)| path.is_at_or_below(other)) && is_omitted(path)
    };
    let ignored: Vec<&RelPath> = kept.status.ignored().iter().filter(is_left).collect();
    measured(record, ignored.into_iter(), measure_given_up(record, found, given_up.clone())?)
}

/// Puts back the link to the repository that a killed git has taken away, so that git judges what is left.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn lead_back(record: &RunRecord, found: &Found) -> Result<()> {
    let administration = found.administration.as_ref();
    administration.map_or(Ok(()), |it| git::lead_back(it, &record.path()))
}

/// Removes what git keeps of the work tree, a half-made one with all that is in it, and the branch, each also
/// where the other cannot be removed, and the directories above it that are empty then. In directories of this
/// user that may not be written to, what is in them is removed all the same. The branch stays where it does not
/// lead to `commit`, up to which it is held, or is checked out elsewhere; returns why, if it does.
///
/// # Errors
/// What git says of the first that it could not remove.
pub(crate) fn remove(
    record: &RunRecord,
    found: &Found,
    commit: Option<&str>,
    lock: &Lock,
) -> Result<Option<Stays>> {
    let (common_dir, path) = (&record.repository, record.path());
    let is_half_made = matches!(found.stage, Stage::HalfMade);
    let mut is_known = found.administration.is_some();
    if path.symlink_metadata().is_ok() {
        // git goes on where it may not delete something, and then knows nothing of what is left.
        disk::open_up(&Dir::open(&place(&record.top))?, record.id.to_string().as_bytes())?;
    }
    if is_half_made {
        // Where git has put nothing there is nothing for it to find.
        disk::remove_directory_if_empty(&path);
        let made_anew = match &found.administration {
            None if path.symlink_metadata().is_ok() => Some(git::administer(common_dir, &path)?),
            _ => None,
        };
        if let Some(administration) = made_anew.as_ref().or(found.administration.as_ref()) {
            git::complete(administration, &path, &record.branch())?;
            if Repository::at(&path).is_none() && disk::is_directory(&path)? {
                git::lead_back(administration, &path)?;
            }
            is_known = true;
        }
    } else if let Some(administration) = &found.administration {
        // Of one that is gone git may have left a part of what it kept.
        git::complete(administration, &path, &record.branch())?;
    }
    let is_locked =
        is_half_made || found.administration.as_ref().is_some_and(Administration::is_being_made);
    let tree =
        if is_known { git::remove_worktree(common_dir, &path, is_locked, lock) } else { Ok(()) };
    let branch = git::delete_branch(common_dir, &path, &record.branch(), commit, lock);
    leave(&record.top);
    tree.map_err(failed(REMOVE_WORK_TREE))?;
    branch.map_err(failed("delete the branch"))
}
