//! Which lines of two texts differ.

use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

/// How many lines around a change are shown, as in git.
const CONTEXT_LINES: usize = 3;

/// git takes a file for binary that has a NUL byte among so many at its beginning.
const BINARY_LOOKED_AT_BYTES: usize = 8_000;

/// Which of the two texts a line is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Both.
    Both,
    /// The first alone: it was removed.
    Before,
    /// The second alone: it was added.
    After,
}

/// A line with its end, which only the last one may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Where it is.
    pub side: Side,
    /// Its bytes.
    pub text: &'a [u8],
}

/// Lines that differ, with a few around them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk<'a> {
    /// Which lines of the first text, counted from 0.
    pub before: Range<usize>,
    /// Which lines of the second text.
    pub after: Range<usize>,
    /// All of both; of those that differ the removed ones first.
    pub lines: Vec<Line<'a>>,
}

/// How many lines were added and removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCount {
    /// In the second text alone.
    pub added: u64,
    /// In the first text alone.
    pub removed: u64,
}

/// Whether git would take this for something else than text.
pub fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(BINARY_LOOKED_AT_BYTES).any(|&byte| byte == 0)
}

/// A line ends with `\n` and nothing else; its bytes need not be UTF-8.
pub(super) fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').collect()
}

fn operations(before: &[&[u8]], after: &[&[u8]]) -> Vec<DiffOp> {
    // Bounded in time where everything differs, lines repeat, or changes are many and apart: see
    // `docs/adr/0010-diff.md`.
    capture_diff_slices(Algorithm::Myers, before, after)
}

/// The hunks that lead from `before` to `after`, with three lines of context.
///
/// Cost: in common texts in proportion to their lines; memory in proportion to the texts.
pub fn hunks<'a>(before: &'a [u8], after: &'a [u8]) -> Vec<Hunk<'a>> {
    let (old, new) = (lines(before), lines(after));
    let groups = group_diff_ops(operations(&old, &new), CONTEXT_LINES);
    groups.iter().filter_map(|group| hunk(group, &old, &new)).collect()
}

fn hunk<'a>(group: &[DiffOp], old: &[&'a [u8]], new: &[&'a [u8]]) -> Option<Hunk<'a>> {
    let (first, last) = (group.first()?, group.last()?);
    let mut lines = Vec::new();
    let mut put = |side, texts: &[&'a [u8]]| {
        lines.extend(texts.iter().map(|&text| Line { side, text }));
    };
    for operation in group {
        if matches!(operation, DiffOp::Equal { .. }) {
            put(Side::Both, &new[operation.new_range()]);
        } else {
            put(Side::Before, &old[operation.old_range()]);
            put(Side::After, &new[operation.new_range()]);
        }
    }
    Some(Hunk {
        before: first.old_range().start..last.old_range().end,
        after: first.new_range().start..last.new_range().end,
        lines,
    })
}

/// How many lines differ, without the hunks.
pub fn count_lines(before: &[u8], after: &[u8]) -> LineCount {
    let mut count = LineCount::default();
    for operation in operations(&lines(before), &lines(after)) {
        if !matches!(operation, DiffOp::Equal { .. }) {
            count.removed += operation.old_range().len() as u64;
            count.added += operation.new_range().len() as u64;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Carries the hunks out.
    fn applied(before: &[u8], hunks: &[Hunk<'_>]) -> Vec<u8> {
        let old = lines(before);
        let mut text = Vec::new();
        let mut at = 0;
        for hunk in hunks {
            text.extend(old[at..hunk.before.start].concat());
            for line in &hunk.lines {
                if line.side != Side::After {
                    assert_eq!(old[at.max(hunk.before.start)], line.text);
                    at = at.max(hunk.before.start) + 1;
                }
                if line.side != Side::Before {
                    text.extend_from_slice(line.text);
                }
            }
            at = hunk.before.end;
        }
        text.extend(old[at..].concat());
        text
    }

    fn any_text() -> impl Strategy<Value = Vec<u8>> {
        let lines: [&[u8]; 6] = [b"a\n", b"b\n", b"\n", b"c\r\n", b"\rd\n", b"\xff\n"];
        let line = prop::sample::select(lines.to_vec());
        (prop::collection::vec(line, 0..40), any::<bool>()).prop_map(|(lines, has_end)| {
            let mut text = lines.concat();
            if !has_end {
                text.pop();
            }
            text
        })
    }

    proptest! {
        #[test]
        fn hunks_lead_from_the_first_text_to_the_second(
            before in any_text(),
            after in any_text(),
        ) {
            let found = hunks(&before, &after);
            prop_assert_eq!(&applied(&before, &found), &after);
            prop_assert_eq!(found.is_empty(), before == after);
            let of = |side| {
                let all = found.iter().flat_map(|hunk| &hunk.lines);
                all.filter(|line| line.side == side).count() as u64
            };
            let count = LineCount { added: of(Side::After), removed: of(Side::Before) };
            prop_assert_eq!(count_lines(&before, &after), count);
            for hunk in &found {
                let both = hunk.lines.iter().filter(|line| line.side == Side::Both).count() as u64;
                prop_assert!(hunk.lines.iter().any(|line| line.side != Side::Both));
                prop_assert!(both <= hunk.lines.len() as u64);
            }
        }
    }

    #[test]
    fn a_carriage_return_alone_ends_no_line() {
        assert_eq!(count_lines(b"a\rb\rc\n", b"a\rB\rc\n"), LineCount { added: 1, removed: 1 });
    }

    #[test]
    fn a_nul_near_the_beginning_makes_a_file_binary() {
        assert!(is_binary(b"a\0b") && !is_binary(b"") && !is_binary(b"\xff\xfe\x1b"));
        let late = [&[b'x'; 8_000][..], b"\0"].concat();
        assert!(!is_binary(&late) && is_binary(&late[1..]));
    }
}
