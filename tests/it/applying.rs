//! What a run changed is brought to the checkout that it was made from, or nothing is written.

use std::fs;
use std::path::{Path, PathBuf};

use turnpoint::id::RunId;
use turnpoint::manifest::RestoreVerb;
use turnpoint::settings::{PruneRule, Upkeep};
use turnpoint::{
    CaptureOptions, GoingBackError, IsolateOptions, IsolationError, MergeConflict, RemoveOptions,
    RestoreOptions, RestoreOutcome, Result, Store, VerifyOptions,
};

use crate::isolating::{git, isolation};
use crate::place::skips;
use crate::sides::{lines, one_side, other_side, start};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::tree::{self, Node, dir, file, link};

/// A repository with one commit, and its store.
struct Checkout {
    dir: tempfile::TempDir,
    store: Store,
    top: PathBuf,
}

impl Checkout {
    fn new<P: AsRef<Path>>(nodes: impl IntoIterator<Item = (P, Node)>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap().join("work");
        fs::create_dir(&top).unwrap();
        tree::build(&top, nodes);
        git(&top, &["init", "-q", "-b", "main"]);
        commit(&top, "first");
        let store = Store::at(&dir.path().join("sessions"));
        Self { dir, store, top }
    }

    /// Runs `work` in a work tree of its own.
    fn run(&self, work: impl FnOnce(&Path)) -> (RunId, PathBuf) {
        self.run_as(&IsolateOptions::default(), work)
    }

    fn run_as(&self, options: &IsolateOptions, work: impl FnOnce(&Path)) -> (RunId, PathBuf) {
        let mut run = self.store.isolate(&self.top, options, &()).unwrap();
        work(&run.path());
        self.store.end_run(&mut run, 0, &()).map(drop).unwrap();
        (run.id(), run.path())
    }

    fn apply(&self, id: RunId) -> Result<RestoreOutcome> {
        self.store.apply_run(&self.top, id, &RestoreOptions::default(), &())
    }

    /// All that the run changed comes, is planned as it is done, and git's own is left alone.
    #[track_caller]
    fn bring(&self, id: RunId) -> RestoreOutcome {
        let (before, ground) = (self.look_closely(), self.ground());
        let planned =
            self.store.plan_apply(&self.top, id, &RestoreOptions::default(), &()).unwrap();
        fingerprint::assert_same(&before, &self.look_closely());
        let outcome = self.apply(id).unwrap();
        assert_eq!((&outcome.plan, &outcome.merged), (&planned.plan, &planned.merged));
        assert_eq!((outcome.left.len(), outcome.verb), (0, RestoreVerb::Apply));
        assert_eq!(outcome.changed, outcome.plan.changes.len() as u64);
        assert_eq!(self.ground(), ground);
        outcome
    }

    /// Nothing comes, also of what stands against nothing.
    #[track_caller]
    fn refused(&self, id: RunId) -> Vec<String> {
        let (before, ground) = (self.look_closely(), self.ground());
        let options = RestoreOptions::default();
        let planned = self.store.plan_apply(&self.top, id, &options, &()).unwrap_err();
        let error = isolation(self.apply(id).unwrap_err());
        assert_eq!(isolation(planned), error);
        fingerprint::assert_same(&before, &self.look_closely());
        assert_eq!(self.ground(), ground);
        let IsolationError::ApplyConflicts { id: named, conflicts, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(named, id);
        let told = |conflict: &MergeConflict| format!("{}: {}", conflict.path, conflict.reason);
        conflicts.against.iter().map(told).collect()
    }

    fn record(&self, id: RunId) -> PathBuf {
        let workspaces = fs::read_dir(self.store.root().join("workspaces")).unwrap();
        let name = format!("runs/{id}.json");
        let mut records = workspaces.map(|it| it.unwrap().path().join(&name));
        records.find(|it| it.exists()).unwrap()
    }

    fn look(&self) -> Fingerprint {
        fingerprint::without(&fingerprint::of(&self.top), &[".git", ".turnpoint"])
    }

    fn look_closely(&self) -> Fingerprint {
        fingerprint::without(&fingerprint::with_stamps(&self.top), &[".git", ".turnpoint"])
    }

    /// What of git must stay as it is.
    fn ground(&self) -> (Vec<String>, String, String) {
        let hash = |name: &str| {
            blake3::hash(&fs::read(self.top.join(".git").join(name)).unwrap()).to_string()
        };
        let files = ["config", "index", "HEAD", "info/exclude"].iter().map(|it| hash(it)).collect();
        let refs = git(&self.top, &["for-each-ref"]);
        (files, refs, git(&self.top, &["fsck", "--no-dangling", "--no-progress"]))
    }

    fn status(&self) -> String {
        git(&self.top, &["--no-optional-locks", "status", "--porcelain", "--untracked-files=all"])
    }

    #[track_caller]
    fn unknown(&self, id: RunId) -> String {
        let before = self.look_closely();
        let error = isolation(self.apply(id).unwrap_err());
        fingerprint::assert_same(&before, &self.look_closely());
        match error {
            IsolationError::ChangesUnknown { reason, .. } => reason,
            error => panic!("{error}"),
        }
    }

    #[track_caller]
    fn verify_clean(&self) {
        let mut options = VerifyOptions::default();
        options.read_data = true;
        assert_eq!(self.store.verify(options, &()).unwrap().findings, []);
    }
}

fn commit(top: &Path, message: &str) {
    git(top, &["add", "-A"]);
    git(top, &["commit", "-q", "-m", message]);
}

fn read(top: &Path, name: &str) -> String {
    fs::read_to_string(top.join(name)).unwrap()
}

#[test]
fn what_a_run_changed_comes_as_git_merges_it_and_is_taken_back() {
    let checkout = Checkout::new(start());
    let (id, path) = checkout.run(|top| {
        // Some of it is committed there, and that counts by what it holds.
        one_side(top);
        fs::write(top.join("edited"), "committed").unwrap();
        commit(top, "of the run");
        fs::write(top.join("edited"), b"\0binary").unwrap();
        tree::build(top, [("made/empty", dir())]);
    });
    other_side(&checkout.top);
    let here = checkout.look();
    // git, where both sides are commits.
    let oracle = checkout.dir.path().join("oracle");
    git(checkout.dir.path(), &["clone", "-q", "work", "oracle"]);
    git(&oracle, &["checkout", "-q", "-b", "run"]);
    one_side(&oracle);
    commit(&oracle, "theirs");
    git(&oracle, &["checkout", "-q", "main"]);
    other_side(&oracle);
    commit(&oracle, "ours");
    git(&oracle, &["merge", "-q", "-m", "both", "run"]);
    let expected = fingerprint::without(&fingerprint::of(&oracle), &[".git"]);

    let outcome = checkout.bring(id);
    let merged: Vec<String> = outcome.merged.iter().map(ToString::to_string).collect();
    assert_eq!((merged, skips(&outcome)), (vec!["text".to_owned()], vec![]));
    assert!(checkout.top.join("made/empty").is_dir());
    let at_last = checkout.look();
    fingerprint::assert_same(&expected, &fingerprint::without(&at_last, &["made/empty"]));
    assert_eq!(read(&checkout.top, "text"), lines(&[(2, "two"), (19, "nineteen")]));
    assert!(checkout.status().contains(" M text"), "{}", checkout.status());
    assert_eq!(read(&path, "text"), lines(&[(2, "two")]), "the run stays as it is");

    // Once it is done there is nothing to do; taken back, it can be had again.
    let again = checkout.apply(id).unwrap();
    assert_eq!((again.plan.changes.len(), again.safety), (0, None));
    let options = RestoreOptions::default();
    assert_eq!(checkout.store.undo(&checkout.top, &options, &()).unwrap().left, []);
    fingerprint::assert_same(&here, &checkout.look());
    assert_eq!(checkout.store.redo(&checkout.top, &options, &()).unwrap().left, []);
    fingerprint::assert_same(&at_last, &checkout.look());
    checkout.verify_clean();
}

#[test]
fn where_both_changed_the_same_nothing_is_written_and_everything_is_named() {
    let checkout = Checkout::new([
        ("lines", file(lines(&[]))),
        ("binary", file(b"\0 0")),
        ("deleted here", file("0")),
        ("deleted there", file("0")),
        ("kind", file("0")),
        ("mode", file("0")),
        ("folder/x", file("0")),
        ("fine", file("0")),
    ]);
    let set_mode = |top: &Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(top.join("mode"), fs::Permissions::from_mode(mode)).unwrap();
    };
    let (id, _) = checkout.run(|top| {
        fs::remove_file(top.join("deleted there")).unwrap();
        fs::remove_file(top.join("kind")).unwrap();
        fs::remove_dir_all(top.join("folder")).unwrap();
        set_mode(top, 0o755);
        tree::build(
            top,
            [
                ("lines", file(lines(&[(7, "seven there")]))),
                ("binary", file(b"\0 there")),
                ("deleted here", file("1")),
                ("kind", link("fine")),
                ("made", file("1")),
                ("folder", file("1")),
                ("fine", file("1")),
                ("new", file("1")),
                ("under/file", file("1")),
            ],
        );
    });
    fs::remove_file(checkout.top.join("deleted here")).unwrap();
    set_mode(&checkout.top, 0o600);
    tree::build(
        &checkout.top,
        [
            ("lines", file(lines(&[(7, "seven here")]))),
            ("binary", file(b"\0 here")),
            ("deleted there", file("2")),
            ("kind", file("2")),
            ("made", file("2")),
            ("folder/y", file("2")),
            ("under", file("2")),
        ],
    );
    let told = checkout.refused(id);
    assert_eq!(
        told,
        [
            "binary: it was changed here too, and is not text that could be merged",
            "deleted here: it was changed there, and deleted here",
            "deleted there: it was deleted there, and changed here",
            "folder: something in it was made or changed here",
            "kind: it was changed here too",
            "lines: the same lines were changed here, or lines beside them",
            "made: it was made there, and something else here",
            "mode: its mode was changed here too",
            "under: it was made there, and something else here",
        ]
    );
    checkout.verify_clean();
}

/// What git keeps out of the checkout it would take for unchanged, whatever is put there.
#[test]
fn what_a_sparse_checkout_leaves_out_stands_against_it_and_comes_once_it_is_added() {
    let nodes = [
        ("in/a", file("0")),
        ("out/changed", file("0")),
        ("out/deleted", file("0")),
        ("out/same", file("0")),
        ("out too/deep/x", file("0")),
    ];
    for cone in ["--cone", "--no-cone"] {
        let checkout = Checkout::new(nodes.clone());
        let (id, _) = checkout.run(|top| {
            fs::remove_file(top.join("out/deleted")).unwrap();
            let nodes = [
                ("in/a", file("1")),
                ("out/changed", file("1")),
                ("out/made", file("1")),
                ("out too/deep/x", file("1")),
            ];
            tree::build(top, nodes);
        });
        git(&checkout.top, &["sparse-checkout", "set", cone, "in"]);
        assert!(!checkout.top.join("out").exists());
        let top = checkout.top.display();
        let told = |path: &str, add: &str| {
            format!(
                "{path}: a sparse checkout leaves it out here; `git -C {top} sparse-checkout add {add}` \
                 brings it"
            )
        };
        assert_eq!(
            checkout.refused(id),
            [
                told("out too/deep/x", "'out too/deep'"),
                told("out/changed", "out"),
                told("out/deleted", "out"),
                told("out/made", "out"),
            ]
        );
        // As the reasons say.
        git(&checkout.top, &["sparse-checkout", "add", "out too/deep", "out"]);
        assert_eq!(checkout.bring(id).changed, 5);
        assert_eq!(
            checkout.status(),
            " M in/a\n M \"out too/deep/x\"\n M out/changed\n D out/deleted\n?? out/made"
        );
        checkout.verify_clean();
    }
}

/// What git merges there it writes to the index alone, and no checkpoint has seen it.
#[test]
fn what_the_sparse_checkout_of_the_run_leaves_out_is_named_and_comes_by_its_commits() {
    let nodes = [("in/a", file("0")), ("out/changed", file("0")), ("out/same", file("0"))];
    for (is_own, is_merged) in [(false, false), (false, true), (true, true)] {
        let checkout = Checkout::new(nodes.clone());
        git(&checkout.top, &["switch", "-q", "-c", "other"]);
        fs::write(checkout.top.join("out/changed"), "1").unwrap();
        commit(&checkout.top, "other");
        git(&checkout.top, &["switch", "-q", "main"]);
        if !is_own {
            // A work tree that is made from it is one, too.
            git(&checkout.top, &["sparse-checkout", "set", "in"]);
        }
        let (id, path) = checkout.run(|top| {
            if is_own {
                git(top, &["sparse-checkout", "set", "in"]);
            }
            if is_merged {
                git(top, &["merge", "-q", "--no-edit", "other"]);
            }
            fs::write(top.join("in/a"), "1").unwrap();
        });
        assert!(!path.join("out").exists());
        if is_merged {
            let told = format!(
                "out/changed: a sparse checkout leaves it out there; once it is committed there `git -C {} \
                 merge turnpoint/{id}` brings it",
                checkout.top.display()
            );
            assert_eq!(checkout.refused(id), [told]);
            // As the reason says.
            git(&checkout.top, &["merge", "-q", &format!("turnpoint/{id}")]);
            assert_eq!(git(&checkout.top, &["show", "HEAD:out/changed"]), "1");
        }
        assert_eq!(checkout.bring(id).changed, 1);
        assert_eq!(checkout.status(), " M in/a");
        checkout.verify_clean();
    }
}

#[test]
fn what_git_was_told_not_to_look_at_stands_against_it_and_comes_once_that_is_taken_back() {
    // With the directory, in which nothing else is, and without.
    for is_alone in [false, true] {
        let checkout = Checkout::new([("d/a b", file("0")), ("c", file("0"))]);
        let (id, _) = checkout.run(|top| fs::write(top.join("d/a b"), "1").unwrap());
        git(&checkout.top, &["update-index", "--skip-worktree", "d/a b"]);
        fs::remove_file(checkout.top.join("d/a b")).unwrap();
        if !is_alone {
            fs::remove_dir(checkout.top.join("d")).unwrap();
        }
        let told = format!(
            "d/a b: git leaves it out here; `git -C {0} update-index --no-skip-worktree 'd/a b' && git -C {0} \
             checkout -- 'd/a b'` brings it",
            checkout.top.display()
        );
        assert_eq!(checkout.refused(id), [told]);
        git(&checkout.top, &["update-index", "--no-skip-worktree", "d/a b"]);
        git(&checkout.top, &["checkout", "--", "d/a b"]);
        assert_eq!(checkout.bring(id).changed, 1);
        assert_eq!(checkout.status(), " M \"d/a b\"");
    }
}

#[test]
fn what_is_ignored_or_secret_stays_where_it_is_and_is_named() {
    let nodes = [(".gitignore", file("*.log\nbuild/\n")), ("big", file(vec![b'0'; 9 << 20]))];
    let checkout = Checkout::new(nodes);
    fs::write(checkout.top.join("own.log"), "mine").unwrap();
    let (id, _) = checkout.run(|top| {
        tree::build(
            top,
            [
                ("own.log", file("theirs")),
                ("build/x", file("1")),
                (".env", file("SECRET")),
                ("large", file(vec![b'1'; 9 << 20])),
                ("fine", file("1")),
            ],
        );
        fs::write(top.join("big"), vec![b'1'; 9 << 20]).unwrap();
    });
    let outcome = checkout.bring(id);
    // What is new is taken whatever its size. Of what the first checkpoint did not hold nobody knows whether
    // it was changed here too.
    let changed = outcome.plan.changes.iter().map(|change| change.path.to_string());
    assert_eq!(changed.collect::<Vec<_>>(), ["fine", "large"]);
    let left = [".env secret", "big over-file-limit", "build ignored"];
    assert_eq!(skips(&outcome), left);
    assert_eq!(read(&checkout.top, "own.log"), "mine");
    assert_eq!(fs::metadata(checkout.top.join("large")).unwrap().len(), 9 << 20);
    assert!(!checkout.top.join(".env").exists() && !checkout.top.join("build").exists());
    checkout.verify_clean();
}

#[test]
fn what_was_laid_over_the_commit_is_not_of_the_run() {
    let checkout = Checkout::new([("a", file("0"))]);
    fs::write(checkout.top.join("draft"), "draft").unwrap();
    let captured = checkout.store.capture(&checkout.top, &CaptureOptions::default(), &()).unwrap();
    fs::remove_file(checkout.top.join("draft")).unwrap();
    let mut options = IsolateOptions::default();
    options.from = Some(captured.checkpoint);
    let (id, path) = checkout.run_as(&options, |top| fs::write(top.join("a"), "1").unwrap());
    // What is done there after the command counts as well.
    fs::write(path.join("by hand"), "1").unwrap();
    let outcome = checkout.bring(id);
    assert_eq!((outcome.changed, skips(&outcome)), (2, vec![]));
    assert_eq!(
        (read(&checkout.top, "a"), read(&checkout.top, "by hand")),
        ("1".into(), "1".into())
    );
    assert!(!checkout.top.join("draft").exists());
}

#[test]
fn what_the_run_has_ignored_since_is_not_taken_for_deleted() {
    let checkout = Checkout::new([("a", file("0"))]);
    tree::build(&checkout.top, [("draft/x", file("draft")), ("draft/y", file("draft"))]);
    let captured = checkout.store.capture(&checkout.top, &CaptureOptions::default(), &()).unwrap();
    let mut options = IsolateOptions::default();
    options.from = Some(captured.checkpoint);
    let (id, _) = checkout.run_as(&options, |top| {
        tree::build(top, [(".gitignore", file("draft/\n"))]);
        fs::remove_file(top.join("draft/y")).unwrap();
    });
    // Nor is what was changed here meanwhile a conflict.
    fs::write(checkout.top.join("draft/x"), "changed").unwrap();
    let outcome = checkout.bring(id);
    assert_eq!((outcome.changed, skips(&outcome)), (1, vec!["draft ignored".to_owned()]));
    assert_eq!(read(&checkout.top, ".gitignore"), "draft/\n");
    assert_eq!(read(&checkout.top, "draft/x"), "changed");
    assert_eq!(read(&checkout.top, "draft/y"), "draft");
}

#[test]
fn what_is_in_the_place_of_the_checkout_by_now_is_left_alone() {
    let checkout = Checkout::new([("a", file("0"))]);
    let (id, _) = checkout.run(|top| fs::write(top.join("a"), "1").unwrap());
    let removal = RemoveOptions::default();
    checkout.store.remove_run_of(&checkout.top, id, &removal, &()).map(drop).unwrap();
    let moved = checkout.dir.path().canonicalize().unwrap().join("moved");
    fs::rename(&checkout.top, &moved).unwrap();
    checkout.store.capture(&moved, &CaptureOptions::default(), &()).map(drop).unwrap();
    git(checkout.dir.path(), &["clone", "-q", "moved", "work"]);
    let refused = isolation(checkout.apply(id).unwrap_err());
    let path = checkout.top.clone();
    assert_eq!(refused, IsolationError::OtherCheckout { id, path });
    assert_eq!((read(&checkout.top, "a"), read(&moved, "a")), ("0".into(), "0".into()));
}

#[test]
fn a_run_is_applied_to_the_checkout_that_it_was_made_from_wherever_one_stands() {
    let checkout = Checkout::new([("a", file("0")), ("sub/b", file("0"))]);
    let linked = checkout.dir.path().join("linked");
    git(&checkout.top, &["worktree", "add", "-q", "-b", "other", linked.to_str().unwrap()]);
    let (id, _) = checkout.run(|top| fs::write(top.join("a"), "1").unwrap());
    let options = RestoreOptions::default();
    let outcome = checkout.store.apply_run(&linked, id, &options, &()).unwrap();
    assert_eq!((outcome.root, outcome.changed), (checkout.top.clone(), 1));
    assert_eq!((read(&checkout.top, "a"), read(&linked, "a")), ("1".into(), "0".into()));
    let below = checkout.top.join("sub");
    let again = checkout.store.apply_run(&below, id, &options, &()).unwrap();
    assert_eq!(again.plan.changes, []);

    // A run of the linked one is for that.
    let mut run = checkout.store.isolate(&linked, &IsolateOptions::default(), &()).unwrap();
    fs::write(run.path().join("a"), "2").unwrap();
    checkout.store.end_run(&mut run, 0, &()).map(drop).unwrap();
    let id = run.id();
    let alive = checkout.store.apply_run(&linked, id, &options, &()).unwrap_err();
    assert_eq!(isolation(alive), IsolationError::RunAlive { id });
    drop(run);
    let outcome = checkout.store.apply_run(&checkout.top, id, &options, &()).unwrap();
    assert_eq!(outcome.root, linked.canonicalize().unwrap());
    assert_eq!((read(&checkout.top, "a"), read(&linked, "a")), ("1".into(), "2".into()));
}

#[test]
fn of_a_run_that_was_removed_what_was_held_is_applied() {
    let checkout = Checkout::new([("a", file("0")), (".gitignore", file("build/\n"))]);
    let (id, _) = checkout.run(|top| fs::write(top.join("a"), "1").unwrap());
    let mut removal = RemoveOptions::default();
    checkout.store.remove_run_of(&checkout.top, id, &removal, &()).map(drop).unwrap();
    assert_eq!(checkout.bring(id).changed, 1);
    assert_eq!(read(&checkout.top, "a"), "1");

    // What is ignored was held with the rest, and cannot be told from it.
    let work = |top: &Path| tree::build(top, [("a", file("2")), ("build/x", file("2"))]);
    let (id, _) = checkout.run(work);
    removal.ignored = true;
    checkout.store.remove_run_of(&checkout.top, id, &removal, &()).map(drop).unwrap();
    assert!(checkout.unknown(id).contains("ignored"));

    // Nothing was run in this one.
    let run = checkout.store.isolate(&checkout.top, &IsolateOptions::default(), &()).unwrap();
    let (id, path) = (run.id(), run.path());
    drop(run);
    git(&checkout.top, &["worktree", "remove", path.to_str().unwrap()]);
    assert_eq!(checkout.unknown(id), "its work tree is gone");
}

#[test]
fn what_a_killed_removal_left_of_a_work_tree_is_not_taken_for_what_was_deleted_in_it() {
    let checkout = Checkout::new([("a", file("0")), ("b", file("0"))]);
    let (id, path) = checkout.run(|top| fs::write(top.join("a"), "1").unwrap());
    // As a removal leaves it that is killed while git deletes.
    let listed = checkout.store.run(&checkout.top, id, &()).unwrap();
    let record = checkout.record(id);
    let mut seen: serde_json::Value = serde_json::from_slice(&fs::read(&record).unwrap()).unwrap();
    let after = listed.before.clone().unwrap().seq.get() + 1;
    seen["state"] = "removing".into();
    seen["kept"] = serde_json::json!({"session": listed.session.as_str(), "seq": after});
    seen["holds"] = serde_json::json!({"ignored": false, "all": true});
    fs::write(&record, serde_json::to_vec(&seen).unwrap()).unwrap();
    fs::remove_file(path.join("b")).unwrap();
    assert_eq!(checkout.bring(id).changed, 1);
    assert_eq!((read(&checkout.top, "a"), read(&checkout.top, "b")), ("1".into(), "0".into()));
}

#[test]
fn the_checkpoint_that_a_run_began_with_stays_as_long_as_the_run() {
    let checkout = Checkout::new([("a", file("0"))]);
    let mut options = IsolateOptions::default();
    options.session = Some("runs".to_owned());
    let (id, path) = checkout.run_as(&options, |top| fs::write(top.join("a"), "1").unwrap());
    let before = checkout.store.run(&checkout.top, id, &()).unwrap().before.unwrap();
    let mut capture = CaptureOptions::default();
    capture.session = options.session.clone();
    for round in 0..3 {
        fs::write(path.join("b"), round.to_string()).unwrap();
        checkout.store.capture(&path, &capture, &()).map(drop).unwrap();
    }
    let mut rule = PruneRule::default();
    rule.keep = 1;
    let session = "runs".parse().unwrap();
    let is_there = || checkout.store.show(&before, &()).is_ok();
    let pruned = checkout.store.prune(Some(&session), rule, &()).unwrap();
    assert_eq!((pruned.pruned.len(), is_there()), (3, true));
    let mut upkeep = Upkeep::default();
    upkeep.budget_bytes = Some(0);
    let evicted = checkout.store.with_upkeep(upkeep).gc(&()).unwrap().evict;
    assert_eq!((evicted.evicted, is_there()), (vec![], true));
    assert!(evicted.short_bytes > 0, "nothing else could go");
    // Of which run it is the beginning nobody can tell where a record is damaged.
    let record = checkout.record(id);
    let text = fs::read(&record).unwrap();
    fs::write(&record, "{").unwrap();
    let evicted = checkout.store.with_upkeep(upkeep).gc(&()).unwrap().evict;
    assert_eq!((evicted.evicted, is_there()), (vec![], true));
    fs::write(&record, text).unwrap();
    assert_eq!(checkout.bring(id).changed, 2);
    let removal = RemoveOptions::default();
    checkout.store.remove_run_of(&checkout.top, id, &removal, &()).map(drop).unwrap();
    let pruned = checkout.store.prune(Some(&session), rule, &()).unwrap();
    assert_eq!((pruned.pruned.len(), is_there()), (1, false));
    assert!(checkout.unknown(id).contains(&before.to_string()));
}

#[test]
fn a_plan_of_a_run_is_not_kept_in_a_file() {
    let checkout = Checkout::new([("a", file("0"))]);
    let (id, _) = checkout.run(|top| fs::write(top.join("a"), "1").unwrap());
    let options = RestoreOptions::default();
    let planned = checkout.store.plan_apply(&checkout.top, id, &options, &()).unwrap();
    let place = checkout.dir.path().join("plan");
    let refused = checkout.store.write_plan(&planned, &options, &place).unwrap_err();
    assert!(matches!(refused, turnpoint::Error::GoingBack(GoingBackError::PlanOfRun)));
    assert!(!place.exists());
}
