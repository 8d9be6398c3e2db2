use proptest::collection::btree_map;
use proptest::prelude::*;

use super::*;
use crate::hash::BlobHash;
use crate::id::Seq;

const DEVICE: u64 = 1;
const OTHER_DEVICE: u64 = 2;

fn path(text: &str) -> RelPath {
    if text.is_empty() { RelPath::root() } else { RelPath::new(text.as_bytes()).unwrap() }
}

fn entry(text: &str, mode: u32, kind: EntryKind) -> Entry {
    Entry { path: path(text), mode: Mode::from_st_mode(mode), kind }
}

fn content(text: &str) -> EntryKind {
    let hash = BlobHash::of(text.as_bytes());
    EntryKind::File { size: text.len() as u64, mtime_ns: 7, hash, unstable: false }
}

fn file(at: &str, text: &str) -> Entry {
    entry(at, 0o644, content(text))
}

fn link(at: &str, target: &str) -> Entry {
    entry(at, 0o777, EntryKind::Symlink { target: target.as_bytes().into() })
}

fn dir(at: &str) -> Entry {
    entry(at, 0o755, EntryKind::Dir { listed: Listed::Whole })
}

fn partial(at: &str) -> Entry {
    entry(at, 0o755, EntryKind::Dir { listed: Listed::Partial })
}

fn omitted(at: &str, reason: OmitReason) -> Entry {
    entry(at, 0o644, EntryKind::Omitted { reason, rest: 0 })
}

fn unstable(at: &str) -> Entry {
    let hash = BlobHash::of(b"torn");
    entry(at, 0o644, EntryKind::File { size: 4, mtime_ns: 7, hash, unstable: true })
}

/// On the root's device, each an inode of its own.
fn present(entries: impl IntoIterator<Item = Entry>) -> Vec<Present> {
    let one = |(inode, entry)| Present { entry, device: DEVICE, inode, is_mounted: false };
    (1..).zip(with_root(entries)).map(one).collect()
}

fn with_root(entries: impl IntoIterator<Item = Entry>) -> Vec<Entry> {
    let mut all: Vec<Entry> = entries.into_iter().collect();
    if !all.iter().any(|entry| entry.path.is_root()) {
        all.push(dir(""));
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn target() -> CheckpointId {
    CheckpointId { session: "s".parse().unwrap(), seq: Seq::new(0).unwrap() }
}

fn plan_for(then: &[Entry], is_full: bool, now: &[Present], selection: Selection<'_>) -> Plan {
    let is_overlay = false;
    plan(PlanInput { target: &target(), then, then_is_full: is_full, is_overlay, now, selection })
}

/// Changes as `kind path`, then skips as `skip path reason`.
fn shown(plan: &Plan) -> Vec<String> {
    let kind = |change: &Change| match change.kind() {
        ChangeKind::Create => "create",
        ChangeKind::Overwrite => "overwrite",
        ChangeKind::Delete => "delete",
        ChangeKind::Mode => "mode",
    };
    let change = |change: &Change| format!("{} {}", kind(change), change.path);
    let skip = |skip: &Skip| format!("skip {} {}", skip.path, skip.reason.as_str());
    plan.changes.iter().map(change).chain(plan.skips.iter().map(skip)).collect()
}

#[track_caller]
fn check<const N: usize, const M: usize, const L: usize>(
    then: [Entry; N],
    now: [Entry; M],
    expected: [&str; L],
) {
    check_present(then, &present(now), expected);
}

#[track_caller]
fn check_present<const N: usize, const L: usize>(
    then: [Entry; N],
    now: &[Present],
    expected: [&str; L],
) {
    let plan = plan_for(&with_root(then), true, now, Selection::All);
    assert_eq!(shown(&plan), expected);
}

#[test]
fn what_is_as_it_should_be_is_not_in_the_plan() {
    let all = || [file("a", "x"), dir("d"), link("d/l", "a")];
    check(all(), all(), []);
    let mut touched = file("a", "x");
    if let EntryKind::File { mtime_ns, .. } = &mut touched.kind {
        *mtime_ns = 99;
    }
    check([file("a", "x")], [touched], []);
    // How a directory was listed is no difference.
    check([dir("d")], [partial("d")], []);
}

#[test]
fn each_kind_of_change() {
    check([file("a", "x")], [], ["create a"]);
    check([file("a", "x")], [file("a", "y")], ["overwrite a"]);
    check([link("a", "x")], [link("a", "y")], ["overwrite a"]);
    check([], [file("a", "x")], ["delete a"]);
    check([entry("a", 0o755, content("x"))], [file("a", "x")], ["mode a"]);
    check([entry("d", 0o700, dir("d").kind)], [dir("d")], ["mode d"]);
    check([link("a", "x")], [file("a", "x")], ["overwrite a"]);
    check([dir("a"), file("a/b", "x")], [file("a", "x")], ["overwrite a", "create a/b"]);
    let down = ["overwrite a", "delete a/b", "delete a/c"];
    check([file("a", "x")], [dir("a"), file("a/b", "x"), link("a/c", "x")], down);
    check([entry("", 0o700, dir("").kind)], [], ["mode ."]);
}

#[test]
fn a_path_goes_only_where_the_nearest_directory_that_was_there_had_every_name_listed() {
    // The directory itself, and one that was not there then.
    check([dir("d")], [dir("d"), file("d/new", "x")], ["delete d/new"]);
    check([], [dir("d"), file("d/new", "x")], ["delete d", "delete d/new"]);
    check([partial("d")], [dir("d"), file("d/new", "x")], ["skip d/new no-evidence"]);
    // What is above a partial directory still counts for its own names.
    let deep = [dir("d"), dir("d/e"), file("d/e/new", "x"), file("d/new", "x")];
    check([dir("d"), partial("d/e")], deep, ["delete d/new", "skip d/e/new no-evidence"]);
}

#[test]
fn a_checkpoint_of_some_paths_is_no_evidence_at_all() {
    let then = with_root([dir("d"), file("d/a", "x")]);
    let now = present([dir("d"), file("d/a", "y"), file("d/new", "x"), file("new", "x")]);
    let plan = plan_for(&then, false, &now, Selection::All);
    assert_eq!(shown(&plan), ["overwrite d/a", "skip d/new no-evidence", "skip new no-evidence"]);
}

#[test]
fn what_the_target_does_not_hold_stays_with_everything_below_it() {
    let ignored = OmitReason::Ignored;
    // There was something, nobody knows what.
    check([omitted("a", ignored)], [file("a", "x")], ["skip a ignored"]);
    check([omitted("d", ignored)], [dir("d"), file("d/a", "x")], ["skip d ignored"]);
    check([omitted("a", OmitReason::OverFileLimit)], [], ["skip a over-file-limit"]);
    // Both leave it out: nothing to say.
    check([omitted("a", ignored)], [omitted("a", ignored)], []);
    check([omitted("a", ignored)], [omitted("a", OmitReason::Secret)], []);
}

#[test]
fn what_is_not_held_now_is_not_overwritten() {
    for (reason, word) in [
        (OmitReason::Secret, "secret"),
        (OmitReason::Excluded, "excluded"),
        (OmitReason::Store, "store"),
        (OmitReason::Mount, "mount"),
        (OmitReason::Special, "not-saved"),
        (OmitReason::Unreadable, "not-saved"),
        (OmitReason::IoError, "not-saved"),
        (OmitReason::Ignored, "not-saved"),
        (OmitReason::OverFileLimit, "not-saved"),
    ] {
        let skip = format!("skip a {word}");
        check([file("a", "x")], [omitted("a", reason)], [&*skip]);
        check([link("a", "x")], [omitted("a", reason)], [&*skip]);
        // What a rule keeps keeps what was to be below it by the same rule.
        let why = if word == "not-saved" { "blocked" } else { word };
        let below = [&*skip, &*format!("skip a/b {why}")];
        check([dir("a"), file("a/b", "x")], [omitted("a", reason)], below);
    }
    check([file("a", "x")], [unstable("a")], ["skip a not-saved"]);
    check([], [unstable("a")], ["skip a not-saved"]);
}

#[test]
fn what_is_out_of_scope_now_is_not_deleted_and_keeps_its_directory() {
    check([], [omitted("a", OmitReason::Ignored)], []);
    check([], [dir("d"), omitted("d/a", OmitReason::Ignored)], ["skip d not-empty"]);
    let mixed = [dir("d"), file("d/a", "x"), omitted("d/b", OmitReason::Secret)];
    check([], mixed, ["delete d/a", "skip d not-empty"]);
    // Names that have no entry of their own keep it too.
    check([], [partial("d"), file("d/a", "x")], ["delete d/a", "skip d not-empty"]);
}

#[test]
fn a_directory_gives_way_as_a_whole_or_not_at_all() {
    let now = |inside: Entry| [dir("d"), file("d/a", "x"), dir("d/e"), inside];
    check(
        [file("d", "x")],
        now(file("d/e/b", "y")),
        ["overwrite d", "delete d/a", "delete d/e", "delete d/e/b"],
    );
    for (inside, skip) in [
        (omitted("d/e/b", OmitReason::Secret), "skip d secret"),
        (omitted("d/e/b", OmitReason::Excluded), "skip d excluded"),
        (omitted("d/e/b", OmitReason::Special), "skip d not-saved"),
        (unstable("d/e/b"), "skip d not-saved"),
        (partial("d/e/b"), "skip d not-saved"),
    ] {
        check([file("d", "x")], now(inside.clone()), [skip]);
        check([link("d", "x")], now(inside), [skip]);
    }
    // A rule is named before what could perhaps be mended.
    let both = [dir("d"), omitted("d/a", OmitReason::Special), omitted("d/b", OmitReason::Secret)];
    check([file("d", "x")], both, ["skip d secret"]);
}

#[test]
fn a_name_that_sorts_between_a_directory_and_its_content_is_not_in_it() {
    // `d-` and `d.` sort before `d/`.
    let now = [
        dir("d"),
        omitted("d-", OmitReason::Secret),
        omitted("d.x", OmitReason::Special),
        file("d/a", "x"),
    ];
    check([file("d", "x")], now, ["overwrite d", "delete d/a"]);
}

#[test]
fn set_id_bits_of_files_are_not_given_back() {
    let set_id = |mode| entry("a", mode, content("x"));
    check([set_id(0o4755)], [], ["create a", "skip a set-id"]);
    let then = with_root([set_id(0o4755)]);
    let plan = plan_for(&then, true, &present([]), Selection::All);
    assert_eq!(plan.changes[0].after.as_ref().unwrap().mode, Mode::from_st_mode(0o755));
    check([set_id(0o2755)], [set_id(0o755)], ["skip a set-id"]);
    // They go with the file that had them.
    let other = entry("a", 0o4755, content("y"));
    check([set_id(0o4755)], [other], ["overwrite a", "skip a set-id"]);
    // It has them already, and nothing else differs.
    check([set_id(0o4755)], [set_id(0o4755)], []);
    // Of a directory they only say who owns new files.
    check([entry("d", 0o2775, dir("d").kind)], [dir("d")], ["mode d"]);
    check([entry("d", 0o1777, dir("d").kind)], [], ["create d"]);
}

#[test]
fn another_name_of_a_file_that_stays_is_not_deleted() {
    let mut now = present([file("a", "x"), dir("d"), file("d/b", "x"), file("z", "x")]);
    let inode = now[1].inode;
    now[3].inode = inode;
    now[4].inode = inode;
    let expected = ["skip d not-empty", "skip d/b other-name", "skip z other-name"];
    check_present([file("a", "x")], &now, expected);
    // The same number on another file system is another file.
    now[4].device = OTHER_DEVICE;
    let expected = ["delete z", "skip d not-empty", "skip d/b other-name"];
    check_present([file("a", "x")], &now, expected);
    // None of its names is one of the target's: all go.
    check_present([], &now[..4], ["delete a", "delete d", "delete d/b"]);
}

#[test]
fn a_file_of_another_layer_is_changed_like_any_other() {
    let mut now = present([dir("d"), file("d/a", "x"), file("d/b", "x")]);
    for in_layer in &mut now[2..] {
        in_layer.device = OTHER_DEVICE;
    }
    check_present([dir("d"), file("d/a", "y")], &now, ["overwrite d/a", "delete d/b"]);
}

#[test]
fn nothing_is_changed_where_something_else_is_mounted() {
    let mut now = present([dir("m"), file("m/a", "x"), file("m/b", "y")]);
    for mounted in &mut now[1..] {
        mounted.is_mounted = true;
    }
    let then = [dir("m"), file("m/a", "changed"), file("m/new", "x")];
    check_present(then, &now, ["skip m/a mount", "skip m/b mount", "skip m/new mount"]);
    check_present([file("m", "x")], &now, ["skip m mount"]);
    check_present([], &now, ["skip m mount", "skip m/a mount", "skip m/b mount"]);
    // A mount below a directory that would give way.
    let mut below = present([dir("d"), dir("d/m")]);
    below[2].is_mounted = true;
    check_present([file("d", "x")], &below, ["skip d mount"]);
}

#[test]
fn given_paths_are_changed_with_everything_below_them_and_nothing_else_is() {
    let then = with_root([
        file("a", "x"),
        entry("d", 0o700, dir("d").kind),
        file("d/a", "x"),
        dir("d/e"),
        file("d/e/a", "x"),
        file("da", "x"),
    ]);
    let now =
        present([file("a", "y"), dir("d"), file("d/a", "y"), file("d/new", "x"), file("new", "x")]);
    let of = |paths: &[&str]| {
        let paths: Vec<RelPath> = paths.iter().map(|text| path(text)).collect();
        shown(&plan_for(&then, true, &now, Selection::Below(&paths)))
    };
    assert_eq!(of(&["a"]), ["overwrite a"]);
    let below = ["mode d", "overwrite d/a", "create d/e", "create d/e/a", "delete d/new"];
    assert_eq!(of(&["d"]), below);
    // What lies above is made, and otherwise left alone.
    assert_eq!(of(&["d/e/a"]), ["create d/e", "create d/e/a"]);
    assert_eq!(of(&["d/new", "new"]), ["delete d/new", "delete new"]);
    assert_eq!(of(&["nowhere"]), [""; 0]);
    assert_eq!(of(&[""]), shown(&plan_for(&then, true, &now, Selection::All)));
}

#[test]
fn a_given_path_whose_directory_is_something_else_now_is_blocked() {
    let then = with_root([dir("d"), file("d/a", "x")]);
    let now = present([file("d", "in the way")]);
    let paths = [path("d/a")];
    let plan = plan_for(&then, true, &now, Selection::Below(&paths));
    assert_eq!(shown(&plan), ["skip d/a blocked"]);
}

#[test]
fn what_lies_above_a_given_path_and_is_no_directory_is_not_made() {
    let then = with_root([file("d", "x")]);
    let paths = [path("d/a")];
    let plan = plan_for(&then, true, &present([]), Selection::Below(&paths));
    assert_eq!(shown(&plan), [""; 0]);
}

#[test]
fn no_directory_is_made_for_a_given_path_that_the_target_does_not_hold() {
    let then = with_root([dir("d"), omitted("d/a", OmitReason::Ignored), file("d/b", "x")]);
    let now = present([]);
    let paths = [path("d/a")];
    let plan = plan_for(&then, true, &now, Selection::Below(&paths));
    assert_eq!(shown(&plan), ["skip d/a ignored"]);
    let paths = [path("d/b")];
    let plan = plan_for(&then, true, &now, Selection::Below(&paths));
    assert_eq!(shown(&plan), ["create d", "create d/b"]);
}

fn touched(left: impl IntoIterator<Item = Entry>) -> BTreeMap<RelPath, Entry> {
    left.into_iter().map(|entry| (entry.path.clone(), entry)).collect()
}

fn absent(at: &str) -> Entry {
    entry(at, 0, EntryKind::Absent)
}

#[test]
fn undo_changes_what_was_touched_and_nothing_else() {
    let then = with_root([file("a", "before"), file("b", "x"), file("gone", "x")]);
    let now = present([file("a", "after"), file("b", "y"), file("made", "x"), file("new", "x")]);
    let left = touched([file("a", "after"), absent("gone"), file("made", "x")]);
    let plan = plan_for(&then, true, &now, Selection::Touched(&left));
    assert_eq!(shown(&plan), ["overwrite a", "create gone", "delete made"]);
}

#[test]
fn undo_leaves_what_was_worked_on_since() {
    let then = with_root([
        file("a", "before"),
        file("gone", "x"),
        entry("mode", 0o600, content("x")),
        file("same", "x"),
    ]);
    let left = touched([
        file("a", "after"),
        absent("gone"),
        file("made", "x"),
        file("mode", "x"),
        file("same", "y"),
    ]);
    let now = present([
        file("a", "edited"),
        file("gone", "made anew"),
        file("made", "edited"),
        entry("mode", 0o755, content("x")),
        file("same", "x"),
    ]);
    let plan = plan_for(&then, true, &now, Selection::Touched(&left));
    let conflicts =
        ["skip a conflict", "skip gone conflict", "skip made conflict", "skip mode conflict"];
    assert_eq!(shown(&plan), conflicts);
    // Somebody took it away.
    let plan = plan_for(&then, true, &present([file("same", "x")]), Selection::Touched(&left));
    assert_eq!(shown(&plan), ["create gone", "skip a conflict", "skip mode conflict"]);
}

#[test]
fn undo_takes_a_directory_it_made_only_without_the_work_of_others() {
    let left = touched([dir("d"), file("d/a", "x")]);
    let then = with_root([]);
    let alone = present([dir("d"), file("d/a", "x")]);
    let plan = plan_for(&then, true, &alone, Selection::Touched(&left));
    assert_eq!(shown(&plan), ["delete d", "delete d/a"]);
    let shared = present([dir("d"), file("d/a", "x"), file("d/mine", "x")]);
    let plan = plan_for(&then, true, &shared, Selection::Touched(&left));
    assert_eq!(shown(&plan), ["delete d/a", "skip d conflict"]);
    // The file that was there before it comes back only in place of all of it.
    let then = with_root([file("d", "was a file")]);
    let plan = plan_for(&then, true, &shared, Selection::Touched(&left));
    assert_eq!(shown(&plan), ["skip d conflict"]);
    let plan = plan_for(&then, true, &alone, Selection::Touched(&left));
    assert_eq!(shown(&plan), ["overwrite d", "delete d/a"]);
}

#[test]
fn undo_needs_no_other_evidence_than_that_the_restore_made_it() {
    let then = with_root([partial("d")]);
    let left = touched([file("d/made", "x")]);
    let now = present([dir("d"), file("d/made", "x"), file("d/other", "x")]);
    let plan = plan_for(&then, true, &now, Selection::Touched(&left));
    assert_eq!(shown(&plan), ["delete d/made"]);
}

#[test]
fn undo_leaves_what_was_purged_since() {
    let purged = |at: &str| omitted(at, OmitReason::Purged);
    let then = with_root([purged("a"), dir("b"), purged("b/x"), file("c", "before")]);
    let left = touched([
        purged("a"),
        purged("b"),
        absent("b/x"),
        file("c", "after"),
        dir("d"),
        dir("d/e"),
        purged("d/e/made"),
        dir("f"),
        purged("f/made"),
    ]);
    let now = present([
        file("a", "anything"),
        file("b", "was made in the place of a directory"),
        file("c", "after"),
        dir("d"),
        dir("d/e"),
        file("d/e/made", "anything"),
        dir("f"),
        file("f/made", "anything"),
        file("f/mine", "new"),
    ]);
    let plan = plan_for(&then, true, &now, Selection::Touched(&left));
    let expected = [
        "overwrite c",
        "skip a purged",
        "skip b purged",
        "skip d not-empty",
        "skip d/e not-empty",
        "skip d/e/made purged",
        "skip f conflict",
        "skip f/made purged",
    ];
    assert_eq!(shown(&plan), expected);
    // Where nothing is there any more nothing can be put there either.
    let plan = plan_for(&then, true, &present([file("c", "after")]), Selection::Touched(&left));
    assert_eq!(shown(&plan), ["overwrite c", "skip a purged", "skip b purged"]);
}

#[test]
fn a_plan_has_another_name_when_it_does_anything_else() {
    let id = |then: &[Entry], now: &[Present]| plan_for(then, true, now, Selection::All).id();
    let then = with_root([file("a", "x")]);
    let first = id(&then, &present([file("a", "y")]));
    assert_eq!(first, id(&then, &present([file("a", "y")])));
    assert_ne!(first, id(&then, &present([file("a", "z")])));
    assert_ne!(first, id(&then, &present([])));
    assert_ne!(first, id(&with_root([file("a", "w")]), &present([file("a", "y")])));
}

#[test]
fn what_is_left_is_accounted_for_path_by_path() {
    let then = with_root([file("a", "x"), entry("set", 0o4711, content("x"))]);
    let plan = plan_for(&then, true, &present([file("b", "y")]), Selection::All);
    let after = plan.after();
    let expected = [file("a", "x"), absent("b"), entry("set", 0o711, content("x"))];
    assert_eq!(after, expected);
}

// Any target and any present.

const NAMES: [&str; 4] = ["a", "a-", "b", "d"];

#[derive(Debug, Clone)]
enum Some1 {
    File(u8, u32),
    Link(u8),
    Dir(bool, u32),
    Omitted(OmitReason),
    Unstable,
}

fn thing(for_target: bool) -> impl Strategy<Value = Some1> {
    let reasons = vec![
        OmitReason::Ignored,
        OmitReason::Secret,
        OmitReason::Excluded,
        OmitReason::Special,
        OmitReason::OverFileLimit,
        OmitReason::Mount,
    ];
    prop_oneof![
        6 => (0..3u8, prop::sample::select(vec![0o644, 0o755, 0o4755]))
            .prop_map(|(content, mode)| Some1::File(content, mode)),
        1 => (0..2u8).prop_map(Some1::Link),
        8 => (prop::bool::weighted(0.85), prop::sample::select(vec![0o755, 0o700]))
            .prop_map(|(whole, mode)| Some1::Dir(whole, mode)),
        1 => prop::sample::select(reasons).prop_map(Some1::Omitted),
        u32::from(!for_target) => Just(Some1::Unstable),
    ]
}

fn place() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..NAMES.len(), 1..4)
}

/// A list of entries in which every parent is a directory.
fn list(for_target: bool) -> impl Strategy<Value = Vec<Entry>> {
    btree_map(place(), thing(for_target), 0..16).prop_map(|things| {
        let mut made: BTreeMap<RelPath, Entry> = BTreeMap::new();
        made.insert(RelPath::root(), dir(""));
        // Parents before what is in them.
        let mut things: Vec<_> = things.into_iter().collect();
        things.sort_by_key(|(place, _)| place.len());
        for (place, thing) in things {
            let text = place.iter().map(|&name| NAMES[name]).collect::<Vec<_>>().join("/");
            let at = path(&text);
            let parent = made.get(&at.parent().unwrap());
            if parent.is_some_and(|parent| matches!(parent.kind, EntryKind::Dir { .. })) {
                made.insert(at, entry_of(&text, &thing));
            }
        }
        made.into_values().collect()
    })
}

fn entry_of(at: &str, thing: &Some1) -> Entry {
    match thing {
        Some1::File(number, mode) => entry(at, *mode, content(&number.to_string())),
        Some1::Link(number) => link(at, &number.to_string()),
        Some1::Dir(true, mode) => entry(at, *mode, dir(at).kind),
        Some1::Dir(false, mode) => entry(at, *mode, partial(at).kind),
        Some1::Omitted(reason) => omitted(at, *reason),
        Some1::Unstable => unstable(at),
    }
}

/// Carries the plan out; each change must find what it says is there.
fn applied(plan: &Plan, now: &[Present]) -> BTreeMap<RelPath, Entry> {
    let mut tree: BTreeMap<RelPath, Entry> =
        now.iter().map(|present| (present.entry.path.clone(), present.entry.clone())).collect();
    for change in &plan.changes {
        assert_eq!(tree.get(&change.path), change.before.as_ref());
        match &change.after {
            Some(after) => tree.insert(change.path.clone(), after.clone()),
            None => tree.remove(&change.path),
        };
    }
    tree
}

proptest! {
    #[test]
    fn a_plan_leads_to_the_target_and_changes_only_what_it_may(
        then in list(true),
        now in list(false),
        is_full in prop::bool::weighted(0.8),
        selected in prop::option::of(prop::collection::vec(place(), 1..3)),
    ) {
        let now = present(now);
        let selected: Option<Vec<RelPath>> = selected.map(|places| {
            let text = |place: &Vec<usize>| place.iter().map(|&at| NAMES[at]).collect::<Vec<_>>();
            places.iter().map(|place| path(&text(place).join("/"))).collect()
        });
        let selection = selected.as_deref().map_or(Selection::All, Selection::Below);
        let plan = plan_for(&then, is_full, &now, selection);
        prop_assert!(plan.changes.is_sorted_by(|a, b| a.path < b.path));
        prop_assert!(plan.skips.is_sorted_by(|a, b| a.path < b.path));
        let tree = applied(&plan, &now);
        let find = |path: &RelPath| then.iter().find(|entry| entry.path == *path);

        // It is a tree.
        for path in tree.keys().filter(|path| !path.is_root()) {
            let parent = &tree[&path.parent().unwrap()];
            prop_assert!(matches!(parent.kind, EntryKind::Dir { .. }), "{} is nowhere", path);
        }
        // The target, wherever nothing is skipped.
        for entry in then.iter().filter(|entry| is_held(entry) && selection.includes(&entry.path)) {
            let is_skipped = plan.skips.iter().any(|skip| {
                skip.reason != SkipReason::SetId && entry.path.is_at_or_below(&skip.path)
            });
            let is_there = tree.get(&entry.path).is_some_and(|found| {
                found.is_same_state(entry) || found.is_same_state(&wanted(entry))
            });
            prop_assert!(is_skipped || is_there, "{} is {:?}", entry.path, tree.get(&entry.path));
        }
        for change in &plan.changes {
            // Nothing that the target omits, and nothing that is not held.
            let held_back = |entry: &Entry| why_not_held(entry).is_some();
            prop_assert!(!change.before.as_ref().is_some_and(held_back), "{}", change.path);
            let is_omitted = change.path.ancestors().chain([change.path.clone()]).any(|path| {
                matches!(find(&path).map(|entry| &entry.kind), Some(EntryKind::Omitted { .. }))
            });
            prop_assert!(!is_omitted, "{}", change.path);
            let is_way = change.before.is_none()
                && matches!(change.after.as_ref().unwrap().kind, EntryKind::Dir { .. })
                && selection.includes_or_leads_to(&change.path);
            prop_assert!(is_way || selection.includes(&change.path), "{}", change.path);
            // A path goes where the target shows that it was not there, or with what gave way.
            if change.after.is_none() {
                prop_assert!(find(&change.path).is_none(), "{}", change.path);
                let nearest = change.path.ancestors().filter(|path| find(path).is_some()).last();
                let nearest = find(&nearest.unwrap()).unwrap();
                let is_evidence = match nearest.kind {
                    EntryKind::Dir { listed } => is_full && listed == Listed::Whole,
                    _ => tree[&nearest.path].is_same_content(nearest),
                };
                prop_assert!(is_evidence, "{}", change.path);
            }
        }
        // Done again, nothing is left to do.
        let again: Vec<Present> = tree
            .into_values()
            .zip(1..)
            .map(|(entry, inode)| Present { entry, device: DEVICE, inode, is_mounted: false })
            .collect();
        let second = plan_for(&then, is_full, &again, selection);
        prop_assert_eq!(second.changes, []);
    }
}
