use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::checkpoint::PinFile;
use crate::hash::{BlobHash, Digest};
use crate::id::{OperationId, Seq, WorkspaceId};
use crate::manifest::{Tree, Trigger};
use crate::mutation::config;

const HOUR: i64 = 3_600 * 1_000_000_000;
const NOW: i64 = 1_000 * HOUR;

/// A checkpoint, as the test knows it.
#[derive(Debug, Clone)]
struct Made {
    session: u8,
    workspace: u8,
    hours_ago: i64,
    is_safety: bool,
    is_pinned: bool,
    is_protected: bool,
    /// The contents that it names, by number; number and length are the same.
    names: BTreeSet<u64>,
}

fn made() -> impl Strategy<Value = Made> {
    let flags = (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let names = prop::collection::btree_set(1_u64..12, 0..6);
    (0_u8..3, 0_u8..2, -5_i64..60, flags, names).prop_map(
        |(session, workspace, hours_ago, (is_safety, is_pinned, is_protected), names)| Made {
            session,
            workspace,
            hours_ago,
            is_safety,
            is_pinned,
            is_protected,
            names,
        },
    )
}

fn row(seq: u64, made: &Made) -> CheckpointRow {
    let session = format!("s{}", made.session).parse().unwrap();
    CheckpointRow {
        id: CheckpointId { session, seq: Seq::new(seq).unwrap() },
        digest: Digest::of(b""),
        manifest_bytes: 0,
        op: OperationId::random(),
        workspace: WorkspaceId::from_bytes([made.workspace; 16]),
        created_at: Timestamp::from_ns(NOW - made.hours_ago * HOUR),
        manifest_label: None,
        trigger: if made.is_safety { Trigger::PRE_RESTORE } else { Trigger::MANUAL },
        complete: true,
        state: CheckpointState::Live,
        pin: PinFile { pinned: made.is_pinned, ..PinFile::default() },
        tree: Tree { root: BlobHash::of(b""), root_size: 0, levels: 1, entries: 0 },
        after: None,
    }
}

/// How many bytes only those name that are in `gone`.
fn released(all: &BTreeMap<CheckpointId, Made>, gone: &BTreeSet<&CheckpointId>) -> u64 {
    let names = |is_gone: bool| {
        all.iter()
            .filter(move |(id, _)| gone.contains(id) == is_gone)
            .flat_map(|(_, made)| made.names.iter().copied())
            .collect::<BTreeSet<u64>>()
    };
    names(true).difference(&names(false)).sum()
}

proptest! {
    #![proptest_config(config())]

    /// What goes is the shortest beginning of those that may go that is enough, the oldest first; where
    /// no beginning is, all for a budget, and none for the disk.
    #[test]
    fn the_oldest_go_no_more_than_it_takes_and_never_one_that_is_protected(
        made in prop::collection::vec(made(), 0..24),
        budget in 0_u64..70,
        free_space in 0_u64..70,
    ) {
        let excess = Excess { budget, free_space };
        let rows: Vec<CheckpointRow> =
            (0..).zip(&made).map(|(seq, made)| row(seq, made)).collect();
        let all: BTreeMap<CheckpointId, Made> =
            rows.iter().map(|row| row.id.clone()).zip(made).collect();
        let protected: HashSet<CheckpointId> =
            all.iter().filter(|(_, made)| made.is_protected).map(|(id, _)| id.clone()).collect();
        let candidates = may_go(rows, &protected, &HashMap::new(), Timestamp::from_ns(NOW));

        // Who stays, said in another way.
        for (id, made) in &all {
            let is_newest = !all.iter().any(|(other, it)| {
                (it.session, it.workspace) == (made.session, made.workspace) && other.seq > id.seq
            });
            let is_young_safety = made.is_safety && made.hours_ago < 24;
            let stays = is_newest || is_young_safety || made.is_pinned || made.is_protected;
            prop_assert_eq!(!candidates.contains(id), stays, "{} {:?}", id, made);
        }
        for (at, id) in candidates.iter().enumerate() {
            for later in &candidates[at + 1..] {
                prop_assert!(id.session != later.session || id.seq < later.seq);
            }
            // Among the oldest that are left of each session it has the earliest time.
            let first_of = |session: u8| {
                candidates[at..].iter().find(|id| all[*id].session == session)
            };
            for first in (0..3).filter_map(first_of) {
                prop_assert!(all[id].hours_ago >= all[first].hours_ago);
            }
        }

        let after = |count: usize| released(&all, &candidates[..count].iter().collect());
        let steps: Vec<u64> = (1..=candidates.len()).map(after).collect();
        let count = how_many(&steps, 0, excess);
        let goal = if after(candidates.len()) >= free_space { budget.max(free_space) } else { budget };
        prop_assert!(after(count) >= goal || count == candidates.len());
        prop_assert!(count == 0 || after(count - 1) < goal, "one less would do");
    }
}

#[test]
fn what_waits_for_a_sweep_is_free_for_the_disk_and_no_part_of_the_budget() {
    let content = ContentBytes { named: 100, unnamed: 30 };
    let of = |budget, floor, available| Excess::of(budget, floor, content, available);
    assert_eq!(of(None, None, 0), Excess::default());
    assert_eq!(of(Some(100), None, 0).largest(), 0);
    assert_eq!(of(Some(60), None, 0), Excess { budget: 40, free_space: 0 });
    assert_eq!(of(None, Some(50), 20).largest(), 0);
    assert_eq!(of(Some(90), Some(50), 5), Excess { budget: 10, free_space: 15 });
}

#[test]
fn a_disk_that_something_else_fills_takes_no_history_with_it() {
    let full = Excess { budget: 0, free_space: 1_000 };
    assert_eq!(how_many(&[10, 20, 30], 0, full), 0);
    assert_eq!(how_many(&[10, 20, 30], 0, Excess { budget: 1_000, free_space: 0 }), 3);
    assert_eq!(how_many(&[10, 20, 30], 0, Excess { budget: 15, free_space: 1_000 }), 2);
    assert_eq!(how_many(&[10, 20, 30], 0, Excess { budget: 15, free_space: 21 }), 3);
    assert_eq!(how_many(&[10, 20, 30], 0, Excess { budget: 20, free_space: 5 }), 2);
    assert_eq!(how_many(&[10, 20, 30], 5, Excess { budget: 5, free_space: 0 }), 0);
}

#[test]
fn what_took_another_back_goes_after_it_and_stays_where_it_stays() {
    let made = |session, hours_ago| Made {
        session,
        workspace: 0,
        hours_ago,
        is_safety: true,
        is_pinned: false,
        is_protected: false,
        names: BTreeSet::new(),
    };
    // The clock was set back between the two, which are of two sessions; each has a newer one.
    let rows: Vec<CheckpointRow> = [made(0, 50), made(1, 90), made(0, 30), made(1, 30)]
        .iter()
        .zip(0..)
        .map(|(made, seq)| row(seq, made))
        .collect();
    let (restored, undone) = (rows[0].id.clone(), rows[1].id.clone());
    let taken_back = HashMap::from([(undone.clone(), restored.clone())]);
    let now = Timestamp::from_ns(NOW);
    let mut going = may_go(rows.clone(), &HashSet::new(), &taken_back, now);
    leave_links(&mut going, &taken_back);
    assert_eq!(going, [restored.clone(), undone.clone()]);
    let mut going = may_go(rows, &HashSet::from([restored]), &taken_back, now);
    assert_eq!(going, [undone]);
    leave_links(&mut going, &taken_back);
    assert_eq!(going, []);
}
