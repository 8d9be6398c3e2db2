//! Walking by what the caller says has changed.

use rayon::ThreadPool;

use crate::disk::FileKind;
use crate::error::Result;
use crate::manifest::{EntryKind, Listed};
use crate::monitor::Monitor;
use crate::path::{RelPath, at_or_below};
use crate::walk::CachedEntry;
use crate::walk::directory::Tree;
use crate::walk::known::table::Table;
use crate::walk::known::{KnownRules, Remainder, Revisit, Revisited, Same, account, is_same};

/// As [`revisit`](super::revisit) for [`Detail::Changes`](crate::walk::Detail::Changes), and nothing is
/// looked at but what is at and below `hints`, and the names beside them. `remainder` is what is left out of
/// `known`; where any of that is needed there is no result either.
///
/// Cost: what is looked at, and a pass over what is known.
pub(in crate::walk) fn revisit_hinted(
    tree: &Tree,
    known: &[CachedEntry],
    rules: &KnownRules,
    remainder: Option<&Remainder>,
    hints: &[RelPath],
    pool: &ThreadPool,
    monitor: &dyn Monitor,
) -> Result<Option<Revisit>> {
    let Some(table) = Table::of(known) else { return Ok(None) };
    let mut is_hinted = vec![false; table.directories.len()];
    for hint in hints {
        if hint.is_root() {
            return Ok(None);
        }
        for index in at_or_below(known, hint, |known| &known.entry.path) {
            if let Some(number) = table.numbers[index] {
                is_hinted[number] = true;
            }
        }
        // The file behind a symlink lies elsewhere, and so does what is known of it.
        if leads_through_link(tree, hint) {
            return Ok(None);
        }
        // What is new begins in the nearest directory that is known; and where that is gone, or another
        // one, in the one above it.
        let above: Vec<RelPath> = hint.ancestors().collect();
        for number in above.iter().rev().filter_map(|above| table.number(above)) {
            if remainder.is_some_and(|remainder| remainder.is_closed(table.path(number))) {
                return Ok(None);
            }
            is_hinted[number] = true;
            let found = tree.open(table.path(number));
            if found
                .is_ok_and(|found| found.is_some_and(|(_, stat)| is_same(&table, number, &stat)))
            {
                break;
            }
        }
    }
    // Of what is in a partial one the rules alone do not tell what is held.
    let is_partial = |(number, _): (usize, &bool)| {
        let kind = &known[table.directories[number]].entry.kind;
        *kind == EntryKind::Dir { listed: Listed::Partial }
    };
    if is_hinted.iter().enumerate().filter(|(_, is_hinted)| **is_hinted).any(is_partial) {
        return Ok(None);
    }
    let revisited = is_hinted.into_iter().map(|is_hinted| {
        let as_known = Same::default();
        if is_hinted { Revisited::Changed } else { Revisited::Same(as_known) }
    });
    let revisited = revisited.collect();
    let revisit = account(tree, &table, rules, remainder, revisited, pool, monitor)?;
    Ok(revisit.map(|revisit| Revisit { is_hinted: true, ..revisit }))
}

/// Whether what is above `path` is a symlink somewhere.
fn leads_through_link(tree: &Tree, path: &RelPath) -> bool {
    let mut above = path.ancestors().filter(|above| !above.is_root());
    let stop = above.find(|above| !matches!(tree.open(above), Ok(Some(_))));
    let Some(stop) = stop else { return false };
    let parent = stop.parent().unwrap_or_default();
    let Ok(Some((dir, _))) = tree.open(&parent) else { return false };
    dir.stat(stop.name()).is_ok_and(|stat| stat.is_some_and(|s| s.kind == FileKind::Symlink))
}
