//! What is measured, as data: every operation has a name for `--operations`, a title for the table,
//! and the phase of a run that takes it.

use crate::Outcome;

/// The part of a run that an operation belongs to; a phase none of whose operations is wanted is
/// left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// First captures, each into a new store.
    First,
    /// Turns into a store of their own, which is collected at the end.
    Space,
    /// Captures of a tree that every peer knows.
    Turns,
    /// Looking at history.
    History,
    /// Putting something back.
    Back,
    /// Writing everything to an empty directory.
    Into,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    First,
    Unchanged,
    Void,
    Edited,
    Hinted,
    PathsBack,
    WholeBack,
    Into,
    List,
    Diff,
    Views,
    Collect,
    SizeFirst,
    Growth,
    SizeCollected,
    GrowthCollected,
    Written,
    PeakFirst,
    PeakUnchanged,
}

impl Operation {
    pub(crate) const ALL: [Self; 19] = [
        Self::First,
        Self::Unchanged,
        Self::Void,
        Self::Edited,
        Self::Hinted,
        Self::PathsBack,
        Self::WholeBack,
        Self::Into,
        Self::List,
        Self::Diff,
        Self::Views,
        Self::Collect,
        Self::SizeFirst,
        Self::Growth,
        Self::SizeCollected,
        Self::GrowthCollected,
        Self::Written,
        Self::PeakFirst,
        Self::PeakUnchanged,
    ];

    /// What `--operations` calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Unchanged => "unchanged",
            Self::Void => "void",
            Self::Edited => "edited",
            Self::Hinted => "hinted",
            Self::PathsBack => "paths",
            Self::WholeBack => "whole",
            Self::Into => "into",
            Self::List => "list",
            Self::Diff => "diff",
            Self::Views => "views",
            Self::Collect => "gc",
            Self::SizeFirst => "size",
            Self::Growth => "growth",
            Self::SizeCollected => "size-gc",
            Self::GrowthCollected => "growth-gc",
            Self::Written => "written",
            Self::PeakFirst => "peak-first",
            Self::PeakUnchanged => "peak",
        }
    }

    pub(crate) fn title(self, edits: usize) -> String {
        match self {
            Self::First => "first capture, ms".to_owned(),
            Self::Unchanged => "nothing changed, ms".to_owned(),
            Self::Void => "nothing changed, all directories touched, ms".to_owned(),
            Self::Edited => format!("{edits} files changed, ms"),
            Self::Hinted => format!("{edits} files changed, and it is told which, ms"),
            Self::PathsBack => format!("{edits} given paths back, ms"),
            Self::WholeBack => format!("whole tree back, {edits} differ, ms"),
            Self::Into => "all into an empty directory, ms".to_owned(),
            Self::List => "list 50, ms".to_owned(),
            Self::Diff => format!("diff of two, {edits} differ, ms"),
            Self::Views => "all files of 20 checkpoints by SQL, ms".to_owned(),
            Self::Collect => "gc, keep 20, ms".to_owned(),
            Self::SizeFirst => "store after first capture, MB".to_owned(),
            Self::Growth => format!("store grows, {edits} files changed, KB (mean)"),
            Self::SizeCollected => "store after gc, MB".to_owned(),
            Self::GrowthCollected => format!("growth of {edits} files changed that gc leaves, KB"),
            Self::Written => "written, nothing changed, KB".to_owned(),
            Self::PeakFirst => "peak memory, first capture, MB".to_owned(),
            Self::PeakUnchanged => "peak memory, nothing changed, MB".to_owned(),
        }
    }

    pub(crate) fn phase(self) -> Phase {
        match self {
            Self::First | Self::SizeFirst | Self::PeakFirst => Phase::First,
            Self::Collect | Self::Growth | Self::SizeCollected | Self::GrowthCollected => {
                Phase::Space
            }
            Self::Unchanged
            | Self::Void
            | Self::Edited
            | Self::Hinted
            | Self::Written
            | Self::PeakUnchanged => Phase::Turns,
            Self::List | Self::Diff | Self::Views => Phase::History,
            Self::PathsBack | Self::WholeBack => Phase::Back,
            Self::Into => Phase::Into,
        }
    }

    /// Growth comes in steps (a pack is begun, a log is emptied), which a median would not see.
    pub(crate) fn is_mean(self) -> bool {
        self == Self::Growth
    }

    pub(crate) fn parse_list(text: &str) -> Outcome<Vec<Self>> {
        text.split(',')
            .map(|name| {
                let found = Self::ALL.into_iter().find(|operation| operation.name() == name);
                Ok(found.ok_or(format!("there is no operation `{name}`"))?)
            })
            .collect()
    }
}
