//! Looking for the first bad one in a row whose first is good and whose last is bad.
//!
//! Pure: whoever knows which are good says so. As in git, one may be neither: nobody can tell.

use std::collections::BTreeSet;

/// What was found out about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// What is looked for is not in it.
    Good,
    /// What is looked for is in it.
    Bad,
    /// Nobody can tell.
    Skip,
}

/// A row, and what is known of it: the last known good one comes before the first known bad one.
#[derive(Debug, Clone)]
pub struct Bisection<T> {
    row: Vec<T>,
    good: usize,
    bad: usize,
    skipped: BTreeSet<usize>,
}

impl<T> Bisection<T> {
    /// A row of which the first is good and the last is bad; `None` where these are not two.
    pub fn new(row: Vec<T>) -> Option<Self> {
        let bad = row.len().checked_sub(1).filter(|&last| last > 0)?;
        Some(Self { row, good: 0, bad, skipped: BTreeSet::new() })
    }

    /// The places that a verdict would tell something about.
    fn untested(&self) -> impl Iterator<Item = usize> {
        (self.good + 1..self.bad).filter(|place| !self.skipped.contains(place))
    }

    /// How many may still have to be judged.
    pub fn left(&self) -> usize {
        self.untested().count()
    }

    /// The one to be judged next, in the middle of those that are left; `None` at the end.
    pub fn next(&self) -> Option<&T> {
        self.middle().map(|place| &self.row[place])
    }

    fn middle(&self) -> Option<usize> {
        self.untested().nth(self.left() / 2)
    }

    /// Takes the verdict on [`Bisection::next`].
    pub fn judge(&mut self, verdict: Verdict) {
        let Some(place) = self.middle() else { return };
        match verdict {
            Verdict::Good => self.good = place,
            Verdict::Bad => self.bad = place,
            Verdict::Skip => {
                self.skipped.insert(place);
            }
        }
    }

    /// The last that is known to be good.
    pub fn last_good(&self) -> &T {
        &self.row[self.good]
    }

    /// Those of which one is the first bad one: at the end that one alone, and before it those between
    /// it and the last good one that were skipped.
    pub fn suspects(&self) -> &[T] {
        &self.row[self.good + 1..=self.bad]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Judges by `verdicts` to the end; the last good one, the suspects, and which were judged.
    fn search(verdicts: &[Verdict]) -> (usize, Vec<usize>, Vec<usize>) {
        let mut bisection = Bisection::new((0..verdicts.len()).collect()).unwrap();
        let mut judged = Vec::new();
        while let Some(&next) = bisection.next() {
            judged.push(next);
            let left = bisection.left();
            bisection.judge(verdicts[next]);
            assert!(bisection.left() < left);
        }
        (*bisection.last_good(), bisection.suspects().to_vec(), judged)
    }

    /// Good, then bad from `first` on; skipped where `skips` says so, but at both ends.
    fn history(length: usize, first: usize, skips: &[bool]) -> Vec<Verdict> {
        let at = |place: usize| {
            let is_end = place == 0 || place == length - 1;
            match skips.get(place) {
                Some(true) if !is_end => Verdict::Skip,
                _ if place < first => Verdict::Good,
                _ => Verdict::Bad,
            }
        };
        (0..length).map(at).collect()
    }

    proptest! {
        #[test]
        fn it_finds_what_a_scan_from_the_beginning_finds(
            length in 2..200_usize,
            first in any::<prop::sample::Index>(),
            skips in prop::collection::vec(prop::bool::weighted(0.3), 0..200),
        ) {
            let first = 1 + first.index(length - 1);
            let verdicts = history(length, first, &skips);
            let scan = |verdict| verdicts.iter().position(|it| *it == verdict).unwrap();
            let last_good = verdicts.iter().rposition(|it| *it == Verdict::Good).unwrap();
            let expected: Vec<usize> = (last_good + 1..=scan(Verdict::Bad)).collect();
            let (good, suspects, judged) = search(&verdicts);
            prop_assert_eq!(good, last_good);
            prop_assert_eq!(&suspects, &expected);
            prop_assert!(suspects.contains(&first));
            let skipped = judged.iter().filter(|&&it| verdicts[it] == Verdict::Skip).count();
            let halvings = usize::try_from(length.ilog2()).unwrap() + 1;
            prop_assert!(judged.len() <= halvings + skipped, "{} of {}", judged.len(), length);
        }

        #[test]
        fn where_bad_and_good_alternate_it_finds_one_that_went_bad(
            middle in prop::collection::vec(0..3_usize, 0..60),
        ) {
            let kinds = [Verdict::Good, Verdict::Bad, Verdict::Skip];
            let middle = middle.iter().map(|&kind| kinds[kind]);
            let verdicts: Vec<Verdict> =
                [Verdict::Good].into_iter().chain(middle).chain([Verdict::Bad]).collect();
            let (good, suspects, _) = search(&verdicts);
            let (bad, between) = suspects.split_last().unwrap();
            prop_assert_eq!(verdicts[good], Verdict::Good);
            prop_assert_eq!(verdicts[*bad], Verdict::Bad);
            prop_assert!(between.iter().all(|&it| verdicts[it] == Verdict::Skip));
            prop_assert_eq!(suspects[0], good + 1);
        }
    }

    #[test]
    fn two_neighbours_leave_nothing_to_judge() {
        assert_eq!(search(&[Verdict::Good, Verdict::Bad]), (0, vec![1], vec![]));
        assert!(Bisection::new(vec![0]).is_none());
        assert!(Bisection::<u8>::new(Vec::new()).is_none());
    }
}
