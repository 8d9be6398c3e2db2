//! Work trees of runs: making and removing them, and what is in them that only they have.
//!
//! Making one is a checkout, which may run filters and fetch what a partial clone lacks. So git's own check
//! of who owns the repository is not lifted here, and there is no deadline.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::asking::{UNDISTURBED, ask, ask_of, write};
use super::{Answer, DURABLE, Ending, GitError, POLL, Repository, finish, joined, surrounded};
use crate::disk::{self, Lock};
use crate::error::{Error, Result};
use crate::limits;
use crate::path::{RelPath, printable};

/// How many commits are asked about at a time: a list of arguments has a greatest length.
const COMMITS_ASKED: usize = 500;

/// How often it is tried to write the configuration beside somebody who does.
const CONFIG_TRIES: u32 = 10;

/// What git locks a work tree with while it makes it.
const BEING_MADE: &str = "initializing";

/// Where a directory is, as git sees it.
#[derive(Debug)]
pub(crate) enum Place {
    /// In a work tree, with the commit that HEAD is at; `None` before the first one.
    WorkTree(Repository, Option<String>),
    /// In a repository that has no work tree.
    Bare,
    /// In git's own directory.
    InsideGit,
    /// In no repository.
    Nowhere,
}

/// Asks git where `directory` is.
///
/// # Errors
/// See [`GitError`]; a repository that git refuses to read is one.
pub(crate) fn place_of(
    directory: &Path,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Place, GitError> {
    let questions = [
        "rev-parse",
        "--is-bare-repository",
        "--is-inside-git-dir",
        "--path-format=absolute",
        "--git-dir",
        "--git-common-dir",
    ];
    let answer = ask(directory, &questions, is_cancelled)?;
    if is_nowhere(&answer) {
        return Ok(Place::Nowhere);
    }
    let output = answer.success()?;
    let lines: Vec<&[u8]> = output.split(|&byte| byte == b'\n').collect();
    let [is_bare, is_inside, git_dir, common_dir, b""] = lines.as_slice() else {
        return Err(GitError::failed("it did not say where the repository is"));
    };
    if *is_bare == b"true" {
        return Ok(Place::Bare);
    }
    if *is_inside == b"true" {
        return Ok(Place::InsideGit);
    }
    let top = ask(directory, &["rev-parse", "--show-toplevel"], is_cancelled)?.success()?;
    let top = top.strip_suffix(b"\n").unwrap_or(&top);
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let (git_dir, common_dir) = (path(git_dir), path(common_dir));
    let repository = Repository { top: path(top), git_dir, common_dir };
    let commit = commit_of(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"], |words| {
        ask(directory, words, is_cancelled)
    })?;
    Ok(Place::WorkTree(repository, commit))
}

/// What the work trees of the repository share that `directory` lies in; `None` where it lies in none.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn common_dir(
    directory: &Path,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Option<PathBuf>, GitError> {
    let words = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
    let answer = ask(directory, &words, is_cancelled)?;
    if is_nowhere(&answer) {
        return Ok(None);
    }
    let path = answer.success()?;
    Ok(Some(PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"\n").unwrap_or(&path)))))
}

fn is_nowhere(answer: &Answer) -> bool {
    !answer.status.success() && answer.complaint.starts_with(b"fatal: not a git repository")
}

/// Whether there is a ref of that full name.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn exists(common_dir: &Path, name: &str) -> Result<bool, GitError> {
    let words = ["show-ref", "--verify", "--quiet", name];
    Ok(ask_of(common_dir, &words, UNDISTURBED)?.found()?.is_some())
}

/// Makes a work tree at `path`, on a new branch, from a commit that is given by its id. git holds `lock`
/// for as long as it runs, also where this process ends before it.
///
/// # Errors
/// See [`GitError`]. git takes away what it had begun, unless it is killed.
pub(crate) fn add_worktree(
    repository: &Repository,
    path: &Path,
    branch: &str,
    commit: &str,
    lock: &Lock,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), GitError> {
    let top = &repository.top;
    let add = |is_again: bool| {
        let mut command = surrounded(top);
        // Relative paths would set an extension in the shared configuration.
        command.args(["-c", "worktree.useRelativePaths=false"]);
        // The branch may be there from the first time.
        let new = if is_again { "-B" } else { "-b" };
        command.args(["worktree", "add", "--quiet", "--no-track", new, branch]);
        command.arg("--").arg(path).arg(commit);
        command
    };
    write(add, top, &repository.common_dir, path, lock, is_cancelled)
}

/// Removes the work tree at `path` with everything in it, as git does it; with `is_locked` also one that git
/// has locked while it made it.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn remove_worktree(
    common_dir: &Path,
    path: &Path,
    is_locked: bool,
    lock: &Lock,
) -> Result<(), GitError> {
    let remove = |_| {
        let mut command = surrounded(common_dir);
        command.arg(joined("--git-dir=", common_dir)).args(["worktree", "remove", "--force"]);
        if is_locked {
            command.arg("--force");
        }
        command.arg("--").arg(path);
        command
    };
    write(remove, common_dir, common_dir, path, lock, UNDISTURBED)
}

/// Why the branch of a work tree that is gone stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stays {
    /// It leads to another commit than the one that is held.
    Moved,
    /// It is checked out there, as it is safe to print.
    CheckedOut(String),
}

/// Deletes the branch of the work tree at `path`, which is gone, if it leads to `commit`, and what the shared
/// configuration says of it. Returns why it is there afterwards, if it is.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn delete_branch(
    common_dir: &Path,
    path: &Path,
    branch: &str,
    commit: Option<&str>,
    lock: &Lock,
) -> Result<Option<Stays>, GitError> {
    let name = format!("refs/heads/{branch}");
    let is_at = || -> Result<Option<String>, GitError> {
        let refs = kept_refs(common_dir, &name)?;
        Ok(refs.into_iter().find(|(found, _)| *found == name).map(|(_, commit)| commit))
    };
    if let Some(now) = is_at()? {
        let Some(commit) = commit.filter(|commit| *commit == now) else {
            return Ok(Some(Stays::Moved));
        };
        let words = ["for-each-ref", "--format=%(worktreepath)", &name];
        let places = ask_of(common_dir, &words, UNDISTURBED)?.success()?;
        let place = places.trim_ascii_end();
        if !place.is_empty() {
            return Ok(Some(Stays::CheckedOut(printable(place))));
        }
        // Only from this commit: whoever commits to it at this moment keeps the branch.
        let delete = |_| {
            let mut command = surrounded(common_dir);
            command.arg(joined("--git-dir=", common_dir));
            command.args(["update-ref", "--no-deref", "-d", &name, commit]);
            command
        };
        match write(delete, common_dir, common_dir, path, lock, UNDISTURBED) {
            Err(_) if is_at()?.is_some_and(|now| now != commit) => return Ok(Some(Stays::Moved)),
            ended => ended?,
        }
    }
    // The branch is gone, and git itself does no more than warn where its section stays.
    drop(forget_branch(common_dir, branch));
    Ok(None)
}

/// Takes out of the shared configuration what `git push -u` has written of a branch that is gone, as
/// `git branch -D` does. Where nothing is said of it nothing is written.
fn forget_branch(common_dir: &Path, branch: &str) -> Result<(), GitError> {
    let is_known = || -> Result<bool, GitError> {
        let pattern = format!("^branch\\.{branch}\\.");
        let words = ["config", "--local", "--name-only", "--get-regexp", &pattern];
        Ok(ask_of(common_dir, &words, UNDISTURBED)?.found()?.is_some())
    };
    let section = format!("branch.{branch}");
    let words = ["config", "--local", "--remove-section", &section];
    let mut tries = 0;
    while is_known()? {
        match ask_of(common_dir, &words, UNDISTURBED)?.success() {
            // git does not wait for who writes there at this moment.
            Err(_) if tries < CONFIG_TRIES => {
                tries += 1;
                std::thread::sleep(POLL);
            }
            ended => return ended.map(drop),
        }
    }
    Ok(())
}

/// Adds `line` to the patterns that no work tree of the repository shows, unless it is there.
///
/// # Errors
/// [`crate::Error::Io`].
pub(crate) fn exclude(common_dir: &Path, line: &str) -> Result<()> {
    disk::make_directory_if_missing(&common_dir.join("info"))?;
    disk::append_missing_line(&common_dir.join("info").join("exclude"), line.as_bytes())
}

/// Whether git ignores a path below the top of a work tree, by what is there now. What is tracked it does not.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn is_ignored(top: &Path, path: &RelPath) -> Result<bool, GitError> {
    let mut command = surrounded(top);
    // A colon at the beginning would mean something else.
    command.args(["check-ignore", "--quiet", "--"]).arg(Path::new(".").join(path.as_os()));
    Ok(finish(command, top, Ending::Asked, UNDISTURBED)?.found()?.is_some())
}

/// What git keeps of a work tree beside it.
#[derive(Debug)]
pub(crate) struct Administration {
    /// Its directory.
    pub(crate) git_dir: PathBuf,
    /// Why it is locked, if it is: by a person, or while git makes it.
    pub(crate) locked: Option<String>,
    /// Whether it leads to the work tree. Where git was killed while it made or removed it, it may not.
    pub(crate) leads_there: bool,
}

/// What git keeps of the work tree at `path`, if it knows one there. With `may_be_cut` also of one that has
/// its name and does not lead there, as git leaves it that is killed over making or removing it.
///
/// # Errors
/// [`crate::Error::Io`].
pub(crate) fn administration(
    common_dir: &Path,
    path: &Path,
    may_be_cut: bool,
) -> Result<Option<Administration>> {
    let all = common_dir.join("worktrees");
    if !disk::is_directory(&all)? {
        return Ok(None);
    }
    let mut cut = None;
    for (name, _) in disk::list_dir(&all)? {
        let git_dir = all.join(OsStr::from_bytes(&name));
        let text = |name: &str| -> Result<Option<Vec<u8>>> {
            Ok(disk::read_small(&git_dir.join(name), limits::SMALL_FILE_BYTES_MAX)?
                .map(|text| text.trim_ascii_end().to_vec()))
        };
        let leads_to = text("gitdir")?.filter(|leads_to| !leads_to.is_empty());
        let leads_there = match &leads_to {
            Some(leads_to) => {
                // Relative ones are seen from here.
                let there = git_dir.join(OsStr::from_bytes(leads_to));
                there == path.join(".git")
                    || disk::real_path(&there).is_ok_and(|there| there == path.join(".git"))
            }
            None => false,
        };
        let is_named_so = path.file_name().is_some_and(|last| last.as_bytes() == name);
        if leads_there || (may_be_cut && leads_to.is_none() && is_named_so) {
            let locked = text("locked")?.map(|text| String::from_utf8_lossy(&text).into_owned());
            let found = Administration { git_dir, locked, leads_there };
            if leads_there {
                return Ok(Some(found));
            }
            cut = Some(found);
        }
    }
    Ok(cut)
}

/// Lets git know of the work tree at `path` again, whose administration it had taken away; it is to be
/// completed.
///
/// # Errors
/// [`Error::PlaceTaken`] where there is one of its name, of another work tree; [`Error::Io`].
pub(crate) fn administer(common_dir: &Path, path: &Path) -> Result<Administration> {
    let all = common_dir.join("worktrees");
    disk::make_directory_if_missing(&all)?;
    let git_dir = all.join(path.file_name().unwrap_or_default());
    if !disk::make_directory_if_missing(&git_dir)? {
        return Err(Error::PlaceTaken { path: git_dir });
    }
    // First, as git does it: `git worktree prune` takes away what lacks the rest.
    put(&disk::Dir::open(&git_dir)?, "locked", BEING_MADE.as_bytes())?;
    Ok(Administration { git_dir, locked: Some(BEING_MADE.to_owned()), leads_there: false })
}

/// The commits that are lost with a work tree and its branch, unless something else leads to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tips {
    /// Where the branch is.
    pub(crate) branch: Option<String>,
    /// Where HEAD is.
    pub(crate) head: Option<String>,
    /// Where both have been, and what else only the work tree names.
    pub(crate) log: Vec<String>,
}

/// What the branch `branch` and the work tree of which `git_dir` is kept lead to.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn tips(
    common_dir: &Path,
    branch: &str,
    git_dir: Option<&Path>,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Tips, GitError> {
    let branch = format!("refs/heads/{branch}");
    let verify = |git_dir: &Path, name: &str| {
        commit_of(&["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")], |words| {
            ask_of(git_dir, words, is_cancelled)
        })
    };
    let mut tips = Tips::default();
    if exists(common_dir, &branch)? {
        tips.branch = verify(common_dir, &branch)?;
    }
    let mut log = Vec::new();
    if tips.branch.is_some() {
        log.extend(log_of(common_dir, &branch, true, is_cancelled)?);
    }
    // A half-made one may have no HEAD yet.
    if let Some(git_dir) = git_dir.filter(|git_dir| git_dir.join("HEAD").exists()) {
        tips.head = verify(git_dir, "HEAD")?;
        log.extend(log_of(git_dir, "HEAD", tips.head.is_some(), is_cancelled)?);
        let own = ["refs/worktree", "refs/bisect", "refs/rewritten"];
        // An annotated tag leads to its commit.
        let format = "--format=%(objecttype) %(objectname)%0a%(*objecttype) %(*objectname)";
        let words = [&["for-each-ref", format][..], &own].concat();
        let refs = ask_of(git_dir, &words, is_cancelled)?.success()?;
        log.extend(lines(&refs).filter_map(|line| line.strip_prefix("commit ").map(str::to_owned)));
        log.extend(begun(git_dir, is_cancelled)?);
    }
    log.sort_unstable();
    log.dedup();
    tips.log = log;
    Ok(tips)
}

/// The commits that what has begun and not ended in a work tree leads to, and those that the last command of
/// that kind has left: the other side of a merge, what a rebase has put aside.
fn begun(git_dir: &Path, is_cancelled: &dyn Fn() -> bool) -> Result<Vec<String>, GitError> {
    let names = ["ORIG_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "MERGE_AUTOSTASH"];
    let mut commits: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let files = [
        // A merge of several has a line for each.
        "MERGE_HEAD",
        "rebase-merge/autostash",
        "rebase-merge/orig-head",
        "rebase-apply/autostash",
        "rebase-apply/orig-head",
        // What a cherry-pick or revert of several has not come to: `pick <commit> <subject>`.
        "sequencer/todo",
    ];
    for name in files {
        let text = disk::read_small(&git_dir.join(name), limits::GIT_OUTPUT_BYTES_MAX);
        let text = text.map_err(|error| GitError::failed(error.with_source()))?.unwrap_or_default();
        let word = |line: &str| {
            line.split(' ').nth(usize::from(name == "sequencer/todo")).map(str::to_owned)
        };
        let is_commit = |word: &String| word.bytes().all(|byte| byte.is_ascii_hexdigit());
        commits.extend(lines(&text).filter_map(word).filter(is_commit));
    }
    // Few of them are there, and git keeps none from being collected. Each is asked for by a command that passes
    // over what is not there: one that looks a name up ends with the first that is missing.
    let mut there = Vec::new();
    for part in commits.chunks(COMMITS_ASKED) {
        let words = ["rev-list", "--no-walk", "--ignore-missing"].into_iter();
        let words: Vec<&str> = words.chain(part.iter().map(String::as_str)).chain(["--"]).collect();
        let found = ask_of(git_dir, &words, is_cancelled)?.success()?;
        there.extend(lines(&found).map(str::to_owned));
    }
    Ok(there)
}

/// Every commit that a ref or HEAD has been at, as far as git remembers.
fn log_of(
    git_dir: &Path,
    name: &str,
    is_born: bool,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<String>, GitError> {
    if ask_of(git_dir, &["reflog", "exists", name], is_cancelled)?.found()?.is_none() {
        return Ok(Vec::new());
    }
    if is_born {
        let commits = ask_of(git_dir, &["rev-list", "--walk-reflogs", name, "--"], is_cancelled)?
            .success()?;
        return Ok(lines(&commits).map(str::to_owned).collect());
    }
    // git does not walk the log of a HEAD that is at no commit now. Each line begins with the commit that
    // HEAD left and the one that it came to.
    let log = disk::read_small(&git_dir.join("logs").join(name), limits::GIT_OUTPUT_BYTES_MAX);
    // git says that there is one, and keeps it elsewhere: what it leads to must not be taken for nothing.
    let log = log.map_err(|error| GitError::failed(error.to_string()))?;
    let log = log.ok_or_else(|| GitError::failed(format!("the log of {name} is in no file")))?;
    let came_to = |line: &str| line.split(' ').nth(1).map(str::to_owned);
    let is_commit = |id: &String| id.bytes().any(|byte| byte != b'0');
    Ok(lines(&log).filter_map(came_to).filter(is_commit).collect())
}

/// Those of `commits` that no ref leads to but the branches of runs and the refs below `own`, nor HEAD of
/// the main work tree; of several that follow one another the last.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn only_led_to_by(
    common_dir: &Path,
    own: &str,
    commits: &[String],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<Vec<String>, GitError> {
    let mut lone: Vec<String> = Vec::new();
    // What an earlier removal wrote does not count: each commit is led to by a ref that is looked for.
    let own = format!("--exclude={own}/*");
    for part in commits.chunks(COMMITS_ASKED) {
        let mut words = vec!["rev-list", "--single-worktree"];
        words.extend(part.iter().map(String::as_str));
        // A branch of another run does not count: it may be removed at the same moment.
        words.extend(["--not", "--exclude=refs/heads/turnpoint/*", &own, "--all", "--"]);
        let found = ask_of(common_dir, &words, is_cancelled)?.success()?;
        let found: std::collections::HashSet<&str> = lines(&found).collect();
        lone.extend(part.iter().filter(|commit| found.contains(commit.as_str())).cloned());
    }
    if lone.len() < 2 {
        return Ok(lone);
    }
    let mut last: Vec<String> = Vec::new();
    for part in lone.chunks(COMMITS_ASKED) {
        let words = ["merge-base", "--independent"].into_iter();
        let words: Vec<&str> = words.chain(part.iter().map(String::as_str)).collect();
        let found = ask_of(common_dir, &words, is_cancelled)?.success()?;
        last.extend(lines(&found).map(str::to_owned));
    }
    Ok(last)
}

/// How many commits lead to one of `tips` and not to `base`.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn count_since(
    common_dir: &Path,
    base: &str,
    tips: &[&str],
    is_cancelled: &dyn Fn() -> bool,
) -> Result<u64, GitError> {
    if tips.is_empty() {
        return Ok(0);
    }
    let words = [&["rev-list", "--count"], tips, &["--not", base, "--"]].concat();
    let count = ask_of(common_dir, &words, is_cancelled)?.success()?;
    let count = lines(&count).next().and_then(|count| count.parse().ok());
    count.ok_or_else(|| GitError::failed("it did not count commits"))
}

/// Makes a ref that leads to a commit. The names of files are not durable yet: git does not wait for these.
///
/// # Errors
/// See [`GitError`]; that there is such a ref is one.
pub(crate) fn keep(common_dir: &Path, name: &str, commit: &str) -> Result<(), GitError> {
    let words = [&DURABLE[..], &["update-ref", "--no-deref", name, commit, ""]].concat();
    ask_of(common_dir, &words, UNDISTURBED)?.success().map(drop)
}

/// The refs below `prefix`, each with the commit it leads to.
///
/// # Errors
/// See [`GitError`].
pub(crate) fn kept_refs(
    common_dir: &Path,
    prefix: &str,
) -> Result<Vec<(String, String)>, GitError> {
    let words = ["for-each-ref", "--format=%(refname) %(objectname)", prefix];
    let refs = ask_of(common_dir, &words, UNDISTURBED)?.success()?;
    let pair = |line: &str| line.split_once(' ').map(|(name, id)| (name.to_owned(), id.to_owned()));
    Ok(lines(&refs).filter_map(pair).collect())
}

impl Administration {
    /// Whether git has not come to the end of making it.
    pub(crate) fn is_being_made(&self) -> bool {
        self.locked.as_deref() == Some(BEING_MADE)
    }

    /// Whether git can be asked about it: git that is killed over taking it away may have left a part.
    pub(crate) fn is_readable(&self) -> bool {
        self.leads_there && ["HEAD", "commondir"].iter().all(|name| self.has(name))
    }

    /// Whether git can say by it what is in the work tree.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_readable() && self.has("index")
    }

    fn has(&self, name: &str) -> bool {
        self.git_dir.join(name).metadata().is_ok_and(|it| it.len() > 0)
    }
}

fn lines(output: &[u8]) -> impl Iterator<Item = &str> {
    output
        .split(|&byte| byte == b'\n')
        .filter_map(|line| std::str::from_utf8(line).ok())
        .filter(|line| !line.is_empty())
}

/// The commit that `words` ask for; `None` where there is none.
fn commit_of(
    words: &[&str],
    ask: impl FnOnce(&[&str]) -> Result<Answer, GitError>,
) -> Result<Option<String>, GitError> {
    let found = ask(words)?.found()?;
    Ok(found.and_then(|output| lines(&output).next().map(str::to_owned)))
}

/// Puts in place what git lacks of a work tree that it was killed over making or removing, without which it
/// does not remove it.
///
/// # Errors
/// [`crate::Error::Io`].
pub(crate) fn complete(administration: &Administration, path: &Path, branch: &str) -> Result<()> {
    let dir = disk::Dir::open(&administration.git_dir)?;
    let mut link: OsString = path.join(".git").into_os_string();
    link.push("\n");
    let parts = [
        ("gitdir", link.into_vec()),
        ("commondir", b"../..\n".to_vec()),
        ("HEAD", format!("ref: refs/heads/{branch}\n").into_bytes()),
    ];
    for (name, content) in parts {
        // One that is empty was begun.
        if dir.stat(name.as_bytes())?.is_none_or(|stat| stat.size == 0) {
            put(&dir, name, &content)?;
        }
    }
    Ok(())
}

/// Lets a work tree know where the repository is, as git does.
///
/// # Errors
/// [`crate::Error::Io`].
pub(crate) fn lead_back(administration: &Administration, path: &Path) -> Result<()> {
    put(&disk::Dir::open(path)?, ".git", &link_to(&administration.git_dir))
}

/// What is in the `.git` of a work tree that is kept in `git_dir`.
fn link_to(git_dir: &Path) -> Vec<u8> {
    [b"gitdir: ", git_dir.as_os_str().as_bytes(), b"\n"].concat()
}

/// Whether `.git` at the top of the work tree at `path` is a file, and leads to where git keeps, or kept, it;
/// or leads nowhere yet, as it is left by who is killed over putting it there.
///
/// # Errors
/// [`crate::Error::Io`].
pub(crate) fn is_own_link(git_dir: &Path, path: &Path) -> Result<bool> {
    let dir = disk::Dir::open(path)?;
    if dir.stat(b".git")?.is_none_or(|stat| stat.kind != disk::FileKind::File) {
        return Ok(false);
    }
    let text = disk::read_small(&path.join(".git"), limits::PATH_BYTES_MAX as u64)?;
    Ok(text.is_some_and(|text| text.is_empty() || text == link_to(git_dir)))
}

/// Writes a small file anew. Whoever is killed over that finds it empty, or gone.
fn put(dir: &disk::Dir, name: &str, content: &[u8]) -> Result<()> {
    dir.try_unlink(name.as_bytes())?;
    let mut file = dir.create_file(name.as_bytes())?;
    disk::write_whole(&mut file, content, &dir.path_of(name.as_bytes()))
}
