//! Three-way merge of texts, line by line. What differs is found by `similar`; putting two lists of edits
//! together is done here, in one pass. Why: `docs/adr/0012-merge.md`.

use std::iter::Peekable;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::lines::lines;

/// Lines of the base, and what one side has in their place.
#[derive(Debug)]
struct Edit {
    base: Range<usize>,
    side: Range<usize>,
}

/// What is left of one side's edits, in order.
type Edits = Peekable<std::vec::IntoIter<Edit>>;

/// The text with what both `ours` and `theirs` changed in `base`; `None` where they changed the same
/// lines, or lines that touch, in different ways. This is when `git merge-file` has a conflict.
///
/// Cost: two comparisons, of `base` with each of the others; memory in proportion to the texts.
pub fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let (base, ours, theirs) = (lines(base), lines(ours), lines(theirs));
    let (mut from_ours, mut from_theirs) = (edits(&base, &ours), edits(&base, &theirs));
    let mut merged = Vec::new();
    let mut at = 0;
    loop {
        let first = [from_ours.peek(), from_theirs.peek()];
        let Some(start) = first.into_iter().flatten().map(|edit| edit.base.start).min() else {
            break;
        };
        let (lines, own, other) = cluster(start, &mut from_ours, &mut from_theirs);
        merged.extend_from_slice(&base[at..start]);
        at = lines.end;
        let own = own.map(|edit| &ours[widened(&edit, &lines)]);
        let other = other.map(|edit| &theirs[widened(&edit, &lines)]);
        match (own, other) {
            (Some(own), Some(other)) if own != other => return None,
            (Some(changed), _) | (None, Some(changed)) => merged.extend_from_slice(changed),
            (None, None) => {}
        }
    }
    merged.extend_from_slice(&base[at..]);
    Some(merged.concat())
}

fn edits(base: &[&[u8]], side: &[&[u8]]) -> Edits {
    let mut edits: Vec<Edit> = Vec::new();
    // Where many lines that lie apart were changed the algorithm of patches takes a minute, and this one a
    // fraction of a second.
    for operation in capture_diff_slices(Algorithm::Myers, base, side) {
        if !matches!(operation, DiffOp::Equal { .. }) {
            edits.push(Edit { base: operation.old_range(), side: operation.new_range() });
        }
    }
    edits.into_iter().peekable()
}

/// Takes the edits that belong together: from the line `start` of the base on, those between which no
/// line of the base stays as it is on both sides. Which lines these are, and what either side has done.
fn cluster(
    start: usize,
    ours: &mut Edits,
    theirs: &mut Edits,
) -> (Range<usize>, Option<Edit>, Option<Edit>) {
    let mut lines = start..start;
    let (mut own, mut other) = (None, None);
    loop {
        let end = lines.end;
        let touches = |edit: &Edit| edit.base.start <= end;
        let (edit, into) = if let Some(edit) = ours.next_if(touches) {
            (edit, &mut own)
        } else if let Some(edit) = theirs.next_if(touches) {
            (edit, &mut other)
        } else {
            return (lines, own, other);
        };
        lines.end = end.max(edit.base.end);
        *into = Some(match into.take() {
            // Between two edits of one side both texts have the same lines.
            Some(Edit { base, side }) => {
                Edit { base: base.start..edit.base.end, side: side.start..edit.side.end }
            }
            None => edit,
        });
    }
}

/// What a side has in the place of all of `lines`, of which it changed those of `edit`.
fn widened(edit: &Edit, lines: &Range<usize>) -> Range<usize> {
    let before = edit.base.start - lines.start;
    let after = lines.end - edit.base.end;
    edit.side.start - before..edit.side.end + after
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::merge;

    fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
        merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes())
            .map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn changes_apart_go_together_and_changes_that_touch_do_not() {
        let base = "1\n2\n3\n4\n5\n";
        assert_eq!(
            merged(base, "1a\n2\n3\n4\n5\n", "1\n2\n3\n4\n5b\n").unwrap(),
            "1a\n2\n3\n4\n5b\n"
        );
        assert_eq!(
            merged(base, "1a\n2\n3\n4\n5\n", "1\n2\n3b\n4\n5\n").unwrap(),
            "1a\n2\n3b\n4\n5\n"
        );
        assert_eq!(merged(base, "1a\n2\n3\n4\n5\n", "1\n2b\n3\n4\n5\n"), None);
        assert_eq!(merged(base, "1\n3\n4\n5\n", "1\n2\n2b\n3\n4\n5\n"), None);
        assert_eq!(
            merged(base, "0\n1\n2\n3\n4\n5\n", "1\n2\n3\n4\n"),
            Some("0\n1\n2\n3\n4\n".into())
        );
        // Both did the same, and one of them more elsewhere.
        assert_eq!(merged(base, "1\nx\n3\n4\n5\n", "1\nx\n3\n4\n").unwrap(), "1\nx\n3\n4\n");
        // Several edits of one side meet one long one of the other.
        assert_eq!(merged(base, "1a\n2\n3a\n4\n5\n", "b\n5\n"), None);
    }

    #[test]
    fn the_end_of_the_last_line_is_part_of_it() {
        assert_eq!(merged("1\n2\n3", "1a\n2\n3", "1\n2\n3\n4\n").unwrap(), "1a\n2\n3\n4\n");
        assert_eq!(merged("1\n2\n3", "1\n2\n3\n4", "1\n2\n3\n"), None);
        assert_eq!(merged("", "a\n", "").unwrap(), "a\n");
        assert_eq!(merged("a\n", "", "a\n").unwrap(), "");
        // A carriage return alone ends no line.
        assert_eq!(merged("a\rb\rc\n", "A\rb\rc\n", "a\rb\rC\n"), None);
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let line = prop::sample::select(vec![&b"a\n"[..], b"b\n", b"c\n", b"\xff\n", b"\n"]);
        (prop::collection::vec(line, 0..12), any::<bool>()).prop_map(|(lines, has_end)| {
            let mut text = lines.concat();
            if !has_end {
                text.pop();
            }
            text
        })
    }

    proptest! {
        #[test]
        fn a_side_that_changed_nothing_does_not_count(base in text(), other in text()) {
            prop_assert_eq!(merge(&base, &base, &other), Some(other.clone()));
            prop_assert_eq!(merge(&base, &other, &base), Some(other.clone()));
            prop_assert_eq!(merge(&base, &other, &other), Some(other));
        }

        #[test]
        fn the_sides_can_change_places(base in text(), ours in text(), theirs in text()) {
            prop_assert_eq!(merge(&base, &ours, &theirs), merge(&base, &theirs, &ours));
        }
    }
}
