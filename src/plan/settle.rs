//! What becomes of one path when what one side did is to be had beside the work of another.
//!
//! Three states of it: `base`, from which both set out; `theirs`, which has what is brought in; `ours`, as
//! it is now. Where a turn is taken back, `base` is as it left the path and `theirs` as it was before it.
//! What is wanted is `ours` with what leads from `base` to `theirs`. Content and permission bits are
//! decided apart.

use crate::manifest::{Entry, EntryKind, Mode};

/// What is to be at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Settled {
    /// What is there now.
    Stays,
    /// This, or nothing.
    Becomes(Option<Entry>),
    /// A file with this mode and the content that merging the three gives.
    Merged(Mode),
    /// The two sides exclude each other.
    Conflict(Collision),
}

/// How two sides exclude each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Collision {
    /// Both changed the same lines, or lines that touch.
    Lines,
    /// Both changed a file that is not text.
    Binary,
    /// Both changed a file that is too long to be merged.
    TooLong,
    /// Both changed it, and it is, was or becomes something else than a file.
    Content,
    /// Both changed the permission bits.
    Mode,
    /// They have nothing there any more, and ours was changed.
    NoTheirs,
    /// There was nothing, and the two are not the same.
    NoBase,
    /// They changed it, and there is nothing of ours any more.
    NoOurs,
    /// It changes while it is read.
    Moving,
}

impl Collision {
    /// The reason, as people are told who take a turn back: theirs is what was before it.
    pub(crate) const fn since_then(self) -> &'static str {
        match self {
            Self::Lines => "the same lines were changed since, or lines beside them",
            Self::Binary => "it was changed since, and is not text that could be merged",
            Self::TooLong => "it was changed since, and is too long to be merged",
            Self::Content => "it was changed since",
            Self::Mode => "its mode was changed since",
            Self::NoTheirs => "it was made then, and changed since",
            Self::NoBase => "it was deleted then, and made again since",
            Self::NoOurs => "it was changed then, and deleted since",
            Self::Moving => "it changes while it is read",
        }
    }

    /// The reason, as people are told who bring in what was done elsewhere: theirs is what was done there.
    pub(crate) const fn in_both(self) -> &'static str {
        match self {
            Self::Lines => "the same lines were changed here, or lines beside them",
            Self::Binary => "it was changed here too, and is not text that could be merged",
            Self::TooLong => "it was changed here too, and is too long to be merged",
            Self::Content => "it was changed here too",
            Self::Mode => "its mode was changed here too",
            Self::NoTheirs => "it was deleted there, and changed here",
            Self::NoBase => "it was made there, and something else here",
            Self::NoOurs => "it was changed there, and deleted here",
            Self::Moving => "it changes while it is read",
        }
    }
}

/// Decides about one path. `None` is nothing there; both `base` and `theirs` hold what they have.
pub(crate) fn settle(
    base: Option<&Entry>,
    theirs: Option<&Entry>,
    ours: Option<&Entry>,
) -> Settled {
    if Entry::are_same_state(ours, theirs) {
        return Settled::Stays;
    }
    if Entry::are_same_state(ours, base) {
        return Settled::Becomes(theirs.cloned());
    }
    match (base, theirs, ours) {
        (Some(base), Some(theirs), Some(ours)) => settle_all(base, theirs, ours),
        // That directories are there is what counts, and one with something in it stays.
        (None, Some(theirs), Some(ours)) if is_dir(theirs) && is_dir(ours) => Settled::Stays,
        (Some(base), None, Some(ours)) if is_dir(base) && is_dir(ours) => Settled::Becomes(None),
        (Some(base), Some(theirs), None) if is_dir(base) && is_dir(theirs) => Settled::Stays,
        (None, _, _) => Settled::Conflict(Collision::NoBase),
        (Some(_), None, _) => Settled::Conflict(Collision::NoTheirs),
        (Some(_), Some(_), None) => Settled::Conflict(Collision::NoOurs),
    }
}

fn settle_all(base: &Entry, theirs: &Entry, ours: &Entry) -> Settled {
    let mode = if base.mode == theirs.mode || ours.mode == theirs.mode {
        ours.mode
    } else if ours.mode == base.mode {
        theirs.mode
    } else {
        return Settled::Conflict(Collision::Mode);
    };
    let with_mode = |entry: &Entry| Settled::Becomes(Some(Entry { mode, ..entry.clone() }));
    let is_file = |entry: &&Entry| matches!(entry.kind, EntryKind::File { .. });
    if base.is_same_content(theirs) || ours.is_same_content(theirs) {
        with_mode(ours)
    } else if ours.is_same_content(base) {
        with_mode(theirs)
    } else if [base, theirs, ours].iter().all(is_file) {
        Settled::Merged(mode)
    } else {
        Settled::Conflict(Collision::Content)
    }
}

fn is_dir(entry: &Entry) -> bool {
    matches!(entry.kind, EntryKind::Dir { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::BlobHash;
    use crate::manifest::Listed;
    use crate::path::RelPath;

    /// `-` nothing; `d` a directory, `l` a link, else a file with this content; then a mode.
    fn state(text: &str) -> Option<Entry> {
        let (what, mode) = text.split_once(' ').unwrap_or((text, "0644"));
        let kind = match what {
            "-" => return None,
            "d" => EntryKind::Dir { listed: Listed::Whole },
            "l" => EntryKind::Symlink { target: (*b"l").into() },
            text => EntryKind::File {
                size: text.len() as u64,
                mtime_ns: 0,
                hash: BlobHash::of(text.as_bytes()),
                unstable: false,
            },
        };
        Some(Entry { path: RelPath::new(b"x").unwrap(), mode: mode.parse().unwrap(), kind })
    }

    #[test]
    fn each_case_is_settled_as_a_merge_settles_it() {
        use Collision::*;
        let conflict = Settled::Conflict;
        let becomes = |text| Settled::Becomes(state(text));
        for (theirs, base, ours, expected) in [
            // Unchanged since: put back; put back by hand already: nothing.
            ("a", "b", "b", becomes("a")),
            ("a", "b", "a", Settled::Stays),
            ("-", "b", "b", becomes("-")),
            ("-", "b", "-", Settled::Stays),
            ("a", "-", "-", becomes("a")),
            ("a", "-", "a", Settled::Stays),
            ("l 0777", "b", "b", becomes("l 0777")),
            ("d 0755", "b", "b", becomes("d 0755")),
            // Changed since.
            ("a", "b", "c", Settled::Merged("0644".parse().unwrap())),
            ("a", "b", "c 0755", Settled::Merged("0755".parse().unwrap())),
            ("a 0755", "b", "c", Settled::Merged("0755".parse().unwrap())),
            ("a 0755", "b", "b 0600", conflict(Mode)),
            ("a 0755", "a", "c", becomes("c 0755")),
            ("a 0755", "a", "c 0755", becomes("c 0755")),
            ("a", "b", "b 0755", becomes("a 0755")),
            ("-", "b", "c", conflict(NoTheirs)),
            ("-", "b", "b 0755", conflict(NoTheirs)),
            ("a", "-", "c", conflict(NoBase)),
            ("a", "-", "a 0755", conflict(NoBase)),
            ("a", "b", "-", conflict(NoOurs)),
            ("l 0777", "b", "c", conflict(Content)),
            ("a", "b", "d 0644", conflict(Content)),
            ("a", "b", "l 0644", conflict(Content)),
            // Directories.
            ("-", "d 0755", "d 0700", becomes("-")),
            ("d 0755", "-", "d 0700", Settled::Stays),
            ("d 0755", "d 0700", "-", Settled::Stays),
            ("d 0755", "d 0700", "d 0700", becomes("d 0755")),
            ("d 0755", "d 0700", "d 0711", conflict(Mode)),
            ("-", "d 0755", "c", conflict(NoTheirs)),
        ] {
            let (base, theirs, ours) = (state(base), state(theirs), state(ours));
            let found = settle(base.as_ref(), theirs.as_ref(), ours.as_ref());
            assert_eq!(found, expected, "{theirs:?} {base:?} {ours:?}");
        }
    }
}
