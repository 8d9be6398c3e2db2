//! The order in which checkpoints were made, told without trusting a clock.

use std::collections::{BTreeSet, HashMap};

use crate::clock::Timestamp;
use crate::id::{CheckpointId, Seq, SessionName};

/// What a checkpoint says about its place in the order.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    /// Which one.
    pub(crate) id: &'a CheckpointId,
    /// The checkpoint of its workspace before it, whether or not that is still there.
    pub(crate) parent: Option<&'a CheckpointId>,
    /// When it says that it was made; none where it cannot be read.
    pub(crate) created_at: Option<Timestamp>,
}

/// Puts `items` in the order in which they were made, the oldest first.
///
/// Numbers of a session are given in ascending order, and whoever names a parent came after it and so
/// after every lower number of the parent's session: both are facts that no clock can falsify, and
/// both survive the loss of the index and the pruning of the parent. Within one workspace they decide
/// all but captures that ran at the same time. Only between checkpoints that neither puts in order,
/// those of different workspaces, the recorded time decides.
pub(crate) fn in_order_of_making<T>(items: Vec<T>, place: impl Fn(&T) -> Place<'_>) -> Vec<T> {
    let order = order_of(&items.iter().map(place).collect::<Vec<_>>());
    let mut items: Vec<Option<T>> = items.into_iter().map(Some).collect();
    order.into_iter().filter_map(|index| items[index].take()).collect()
}

/// The indices of `places` in order: Kahn's sort, the earliest time first among those that may come.
fn order_of(places: &[Place<'_>]) -> Vec<usize> {
    let mut sessions: HashMap<String, Vec<(Seq, usize)>> = HashMap::new();
    for (index, place) in places.iter().enumerate() {
        sessions.entry(place.id.session.folded()).or_default().push((place.id.seq, index));
    }
    for numbers in sessions.values_mut() {
        numbers.sort_unstable();
    }
    // The last one of a session that came before a number.
    let last_below = |session: &SessionName, beyond: &dyn Fn(Seq) -> bool| {
        let numbers = sessions.get(&session.folded())?;
        let count = numbers.partition_point(|(seq, _)| !beyond(*seq));
        count.checked_sub(1).map(|last| numbers[last].1)
    };
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    let mut waits_for = vec![0_usize; places.len()];
    for (index, place) in places.iter().enumerate() {
        let seq = place.id.seq;
        let before = last_below(&place.id.session, &|other| other >= seq);
        let parent = place.parent.and_then(|id| last_below(&id.session, &|other| other > id.seq));
        for earlier in [before, parent].into_iter().flatten().filter(|earlier| *earlier != index) {
            followers[earlier].push(index);
            waits_for[index] += 1;
        }
    }
    let key = |index: usize| (places[index].created_at, places[index].id, index);
    let mut left: BTreeSet<_> = (0..places.len()).map(key).collect();
    let mut ready: BTreeSet<_> = left.iter().filter(|it| waits_for[it.2] == 0).copied().collect();
    let mut ordered = Vec::with_capacity(places.len());
    // Where all that is left waits in a circle, which no capture writes, time is as good as any order.
    while let Some(next) = ready.pop_first().or_else(|| left.first().copied()) {
        left.remove(&next);
        ordered.push(next.2);
        for &follower in &followers[next.2] {
            waits_for[follower] = waits_for[follower].saturating_sub(1);
            if waits_for[follower] == 0 && left.contains(&key(follower)) {
                ready.insert(key(follower));
            }
        }
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name`, parent or nothing, time: the names in order.
    fn order(given: &[(&str, &str, i64)]) -> Vec<String> {
        let id = |text: &str| {
            let (session, seq) = text.split_once(':').unwrap();
            CheckpointId { session: SessionName::new(session).unwrap(), seq: seq.parse().unwrap() }
        };
        let items: Vec<_> = given
            .iter()
            .map(|(name, parent, at)| {
                (id(name), (!parent.is_empty()).then(|| id(parent)), Timestamp::from_ns(*at))
            })
            .collect();
        let ordered = in_order_of_making(items, |(id, parent, at)| Place {
            id,
            parent: parent.as_ref(),
            created_at: Some(*at),
        });
        ordered.into_iter().map(|(id, ..)| id.to_string()).collect()
    }

    #[test]
    fn numbers_and_parents_decide_before_any_clock() {
        // The clock was set back after a:0, and again after b:0.
        assert_eq!(
            order(&[("b:0", "a:1", 20), ("a:2", "b:0", 10), ("a:0", "", 40), ("a:1", "a:0", 30)]),
            ["a:0", "a:1", "b:0", "a:2"]
        );
        // The parent itself was pruned: what is left of its session below it still came before.
        assert_eq!(
            order(&[("b:0", "a:7", 1), ("a:6", "a:5", 90), ("a:8", "b:0", 2)]),
            ["a:6", "b:0", "a:8"]
        );
        // Sessions are compared without case.
        assert_eq!(order(&[("b:0", "A:0", 1), ("a:0", "", 2)]), ["a:0", "b:0"]);
    }

    #[test]
    fn time_decides_between_workspaces_and_where_the_rest_is_a_circle() {
        assert_eq!(order(&[("a:0", "", 3), ("b:0", "", 1), ("c:0", "", 2)]), ["b:0", "c:0", "a:0"]);
        assert_eq!(order(&[("a:0", "b:0", 2), ("b:0", "a:0", 1)]), ["b:0", "a:0"]);
        assert_eq!(order(&[("a:0", "a:0", 2), ("b:0", "", 1)]), ["b:0", "a:0"]);
    }
}
