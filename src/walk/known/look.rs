//! One known directory: what became of it and of the names in it.

use crate::disk::{Dir, FileKind, FileStat, Names};
use crate::limits;
use crate::manifest::{EntryKind, Listed, OmitReason};
use crate::path::RelPath;
use crate::walk::directory::{Policy, Seen, Tree};
use crate::walk::known::Revisited;
use crate::walk::known::table::Table;
use crate::walk::{CachedEntry, Detail, InodeId, KnownRules, Observed, Stamps, What, locked};

/// What became of a known directory that has to be asked nothing more.
#[derive(Debug, Default)]
pub(super) struct Same {
    /// It and the names in it that are no directories, by index of entry, as far as they are to be
    /// reported.
    pub(super) seen: Vec<(usize, FileStat, What)>,
    /// Entries of names that have to be judged anew.
    pub(super) again: Vec<usize>,
    /// What its listing differs in, where it was listed.
    pub(super) listed: Option<Box<ListedAnew>>,
}

/// How a directory that was listed again differs from what was known of it.
#[derive(Debug, Default)]
pub(super) struct ListedAnew {
    /// Entries whose names it has no more.
    pub(super) gone: Vec<usize>,
    /// Names that it did not have, but for directories.
    pub(super) leaves: Vec<Observed>,
    /// Directories that it did not have.
    pub(super) directories: Vec<RelPath>,
}

/// Looks at one directory, and lists it where its stamps say that its names may be others.
pub(super) fn look(
    tree: &Tree,
    table: &Table<'_>,
    number: usize,
    rules: &KnownRules,
    detail: Detail,
) -> Revisited {
    let known = &table.entries[table.directories[number]];
    let path = &known.entry.path;
    let is_whole = known.entry.kind == EntryKind::Dir { listed: Listed::Whole };
    let opened = match tree.open(path) {
        Ok(Some(opened)) if is_whole && !rules.lifts(path) => opened,
        Ok(None) => return Revisited::Gone,
        _ => return Revisited::Changed,
    };
    let (dir, stat) = opened;
    if stat.ino != known.stamps.inode || stat.dev != tree.root_stat.dev {
        return Revisited::Gone;
    }
    let is_special = tree.mounts.contains(path)
        || tree.stores.contains(&InodeId { dev: stat.dev, ino: stat.ino });
    let same =
        if is_special { None } else { look_into(tree, table, number, rules, detail, dir, stat) };
    same.map_or(Revisited::Changed, Revisited::Same)
}

/// As [`look`], at one that is open and the one that is known; `None` where its names have to be judged one
/// after another, by more than is known.
fn look_into(
    tree: &Tree,
    table: &Table<'_>,
    number: usize,
    rules: &KnownRules,
    detail: Detail,
    mut dir: Dir,
    stat: FileStat,
) -> Option<Same> {
    let known = &table.entries[table.directories[number]];
    let path = &known.entry.path;
    let children = table.children(number);
    let room = if detail == Detail::All { children.len() + 1 } else { 0 };
    let mut same = Same { seen: Vec::with_capacity(room), again: Vec::new(), listed: None };
    let own = (table.directories[number], stat, What::Dir { listed: Listed::Whole });
    if detail == Detail::All || !is_as_known(known, &own.1, &own.2) {
        same.seen.push(own);
    }
    let is_as_it_was = !known.racy && Stamps::of(&stat) == known.stamps;
    let names = if is_as_it_was { None } else { Some(dir.sorted_names().ok()?) };
    if names.is_some() {
        tree.note_change(&dir, &stat);
    }
    let revisit = RevisitedDirectory { tree, table, rules, detail, dir: &dir, path };
    match names {
        None => revisit.ask(children, &mut same)?,
        Some(names) => revisit.compare(&names, children, &mut same)?,
    }
    Some(same)
}

/// A known directory that is open.
struct RevisitedDirectory<'a> {
    tree: &'a Tree,
    table: &'a Table<'a>,
    rules: &'a KnownRules,
    detail: Detail,
    dir: &'a Dir,
    path: &'a RelPath,
}

impl RevisitedDirectory<'_> {
    /// The directory has the names that it had, and each leads to the inode that it led to.
    fn ask(&self, children: &[usize], same: &mut Same) -> Option<()> {
        for &index in children {
            self.ask_one(index, same)?;
        }
        Some(())
    }

    fn ask_one(&self, index: usize, same: &mut Same) -> Option<()> {
        let child = &self.table.entries[index];
        let path = &child.entry.path;
        if let EntryKind::Dir { listed } = child.entry.kind {
            if self.is_deepest() {
                return None;
            }
            if listed == Listed::Partial || self.rules.lifts(path) {
                same.again.push(index);
            }
            return Some(());
        }
        let now = self.dir.stat(path.name()).ok().flatten();
        self.judge_one(index, now, same)
    }

    /// Judges a known name that is no directory by what the file system says of it now.
    fn judge_one(&self, index: usize, now: Option<FileStat>, same: &mut Same) -> Option<()> {
        let child = &self.table.entries[index];
        let path = &child.entry.path;
        // What says that a directory is a store, and must not be captured, can change in place.
        if path.name() == b"format.json"
            && (child.racy || now.map(|now| Stamps::of(&now)) != Some(child.stamps))
        {
            return None;
        }
        let still = |now: &FileStat| {
            self.is_in_place(child, now).then(|| judge(self.tree, &child.entry.kind, now)).flatten()
        };
        match now.as_ref().and_then(|now| Some((*now, still(now)?))) {
            // How many names without content a directory has is counted over all of them.
            Some((_, What::Omitted { .. })) if !is_omitted(child) => return None,
            Some((stat, what)) => self.report(index, stat, what, same),
            None => same.again.push(index),
        }
        Some(())
    }

    /// The directory may have other names than it had, and a name that it had may lead to something else.
    ///
    /// An inode can have been given to something else meanwhile, so it vouches for a regular file alone,
    /// whose content the stamps vouch for. What decides by which rules names are judged must be what it
    /// was.
    fn compare(&self, names: &Names, children: &[usize], same: &mut Same) -> Option<()> {
        let mut names = names.iter().peekable();
        let mut listed = ListedAnew::default();
        for &index in children {
            let child = &self.table.entries[index];
            let name = child.entry.path.name();
            while let Some(new) = names.next_if(|new| *new < name) {
                self.meet(new, &mut listed)?;
            }
            if names.next_if_eq(&name).is_none() {
                if sets_rules(name) {
                    return None;
                }
                listed.gone.push(index);
                continue;
            }
            if self.rules.lifts(&child.entry.path) {
                same.again.push(index);
                continue;
            }
            let now = self.dir.stat(name).ok().flatten();
            let in_place = now.filter(|now| self.is_in_place(child, now));
            match (&child.entry.kind, in_place.map(|now| now.kind)) {
                (_, None) if sets_rules(name) => return None,
                (kind, found)
                    if matches!(name, b".gitignore" | b"format.json")
                        && !(matches!(kind, EntryKind::File { .. })
                            && found == Some(FileKind::File)) =>
                {
                    return None;
                }
                (EntryKind::File { .. }, Some(FileKind::File)) => {
                    self.judge_one(index, now, same)?;
                }
                // What is in it is looked at with it.
                (EntryKind::Dir { .. }, Some(FileKind::Dir)) if !sets_rules(name) => {
                    self.ask_one(index, same)?;
                }
                _ => self.meet_again(index, &mut listed, same)?,
            }
        }
        for new in names {
            self.meet(new, &mut listed)?;
        }
        if !self.lists_all_omitted(children, &listed) {
            return None;
        }
        same.listed = Some(Box::new(listed));
        Some(())
    }

    /// Looks at a name that the directory did not have.
    fn meet(&self, name: &[u8], listed: &mut ListedAnew) -> Option<()> {
        let seen = self.look_at(name)?;
        self.add(name, seen, listed)
    }

    /// Looks at a known name as if it were new.
    fn meet_again(&self, index: usize, listed: &mut ListedAnew, same: &mut Same) -> Option<()> {
        let child = &self.table.entries[index];
        let name = child.entry.path.name();
        match self.look_at(name)? {
            Seen::Leaf(Observed { stat, what: what @ What::Omitted { .. }, .. })
                if is_omitted(child) =>
            {
                self.report(index, stat, what, same);
                Some(())
            }
            seen => {
                listed.gone.push(index);
                self.add(name, seen, listed)
            }
        }
    }

    /// Takes in what a new name turned out to be.
    fn add(&self, name: &[u8], seen: Seen, listed: &mut ListedAnew) -> Option<()> {
        match seen {
            _ if sets_rules(name) => return None,
            Seen::Gone => locked(&self.tree.found).missed = true,
            Seen::Directory(_) if self.is_deepest() => return None,
            Seen::Directory(_) => listed.directories.push(self.path.join(name).ok()?),
            Seen::Leaf(observed) => listed.leaves.push(observed),
        }
        Some(())
    }

    /// Whether each name without content is listed as one, before and now: where there are more of them,
    /// one stands for the rest, and they are counted over all.
    fn lists_all_omitted(&self, children: &[usize], listed: &ListedAnew) -> bool {
        let known = children.iter().map(|&index| &self.table.entries[index].entry.kind);
        let mut count = 0;
        for kind in known {
            match kind {
                EntryKind::Omitted { rest: 0, .. } => count += 1,
                EntryKind::Omitted { .. } => return false,
                _ => {}
            }
        }
        let new = listed.leaves.iter().filter(|leaf| matches!(leaf.what, What::Omitted { .. }));
        count + new.count() <= limits::OMITTED_LISTED_MAX
    }

    fn look_at(&self, name: &[u8]) -> Option<Seen> {
        let rules = self.tree.rules_of(self.path);
        self.tree.look(self.dir, self.path, name, &rules, Policy::Scope).ok()
    }

    fn report(&self, index: usize, stat: FileStat, what: What, same: &mut Same) {
        if self.detail == Detail::All || !is_as_known(&self.table.entries[index], &stat, &what) {
            same.seen.push((index, stat, what));
        }
    }

    /// Whether a known name leads to the inode that it led to, and to nothing that is judged otherwise.
    fn is_in_place(&self, child: &CachedEntry, now: &FileStat) -> bool {
        let path = &child.entry.path;
        now.ino == child.stamps.inode
            && now.dev == self.tree.root_stat.dev
            && !self.rules.lifts(path)
            && !self.tree.mounts.contains(path)
    }

    fn is_deepest(&self) -> bool {
        self.path.components().count() + 1 >= limits::DEPTH_MAX
    }
}

/// Whether names are judged by what is at this one, or whether what it is in is captured at all.
fn sets_rules(name: &[u8]) -> bool {
    matches!(name, b".git" | b".gitignore" | b"format.json")
}

fn is_omitted(known: &CachedEntry) -> bool {
    matches!(known.entry.kind, EntryKind::Omitted { .. })
}

/// Whether a known name is to the letter what it was, and nothing is to be written about it.
fn is_as_known(known: &CachedEntry, stat: &FileStat, what: &What) -> bool {
    let is_untouched = !known.racy && known.stamps == Stamps::of(stat);
    let has_mode = known.entry.mode == stat.mode;
    match (&known.entry.kind, what) {
        (EntryKind::File { unstable: false, .. }, What::File) => is_untouched && has_mode,
        (EntryKind::Dir { listed }, What::Dir { listed: now }) => {
            listed == now && is_untouched && has_mode
        }
        // A symlink's mode means nothing.
        (EntryKind::Symlink { .. }, What::Symlink { .. }) => is_untouched,
        (EntryKind::Omitted { reason, rest }, What::Omitted { reason: now, rest: rest_now }) => {
            (reason, rest) == (now, rest_now) && has_mode
        }
        _ => false,
    }
}

/// What a name that leads to the inode that it led to is now; `None` where that has to be found out
/// anew.
fn judge(tree: &Tree, known: &EntryKind, now: &FileStat) -> Option<What> {
    let over = OmitReason::OverFileLimit;
    match known {
        EntryKind::File { .. }
        | EntryKind::Omitted {
            reason: OmitReason::OverFileLimit | OmitReason::OverTotalLimit,
            ..
        } if now.kind == FileKind::File => {
            let is_over = now.size > tree.settings.file_limit_bytes;
            Some(if is_over { What::Omitted { reason: over, rest: 0 } } else { What::File })
        }
        EntryKind::Symlink { target } if now.kind == FileKind::Symlink => {
            Some(What::Symlink { target: target.clone() })
        }
        EntryKind::Omitted { reason, .. }
            if matches!(
                reason,
                OmitReason::Excluded
                    | OmitReason::Ignored
                    | OmitReason::Secret
                    | OmitReason::Special
            ) =>
        {
            Some(What::Omitted { reason: *reason, rest: 0 })
        }
        _ => None,
    }
}
