//! What git tracks although rules leave it out, and what it keeps out of the work tree.

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use super::*;

/// A repository whose rules leave out some of what it tracks.
fn tracked_and_ignored() -> Case {
    let case = Case::repository();
    case.write(".gitignore", "*.log\nout/\n");
    case.write_all(&["kept.log", "out/a", "out/deep/b", "target/t", "target/sub/u", "src/x"]);
    case.write_all(&["store.db", "target/.env", "out/gone/c"]);
    git(&case.path, &["add", "-f", "-A"]);
    git(&case.path, &["commit", "-q", "-m", "all"]);
    case.write_all(&["other.log", "out/new", "out/deep/new", "target/new", "target/sub/.git/x"]);
    fs::remove_dir_all(case.path.join("out/gone")).unwrap();
    case
}

/// What a walk of that says.
const EXPECTED: [&str; 16] = [
    "excluded .git",
    "file .gitignore",
    "file kept.log",
    "ignored other.log",
    "partial out",
    "file out/a",
    "partial out/deep",
    "file out/deep/b",
    "dir src",
    "file src/x",
    "file store.db",
    "partial target",
    "secret target/.env",
    "partial target/sub",
    "file target/sub/u",
    "file target/t",
];

/// Walks until git's index is old enough to be told from a later one; a change time cannot be set.
fn settled(case: &mut Case) -> Walked {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let walked = case.walk_on();
        if !serde_json::to_string(&walked.tracked_cache).unwrap().contains("\"stamp\":null") {
            return walked;
        }
        assert!(Instant::now() < deadline, "the index never grows old");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn tracked_paths_are_held_although_rules_leave_them_out() {
    let case = tracked_and_ignored();
    let walked = case.walk();
    assert_lines(&walked, &EXPECTED);
    assert_eq!(walked.tracked, Tracked::Fresh);
}

#[test]
fn a_tracked_secret_is_still_a_secret_and_a_tracked_giant_is_over_the_limit() {
    let mut case = Case::repository();
    case.settings.file_limit_bytes = 20;
    case.write(".gitignore", "out/\n").write("out/giant", "x".repeat(21));
    case.write_all(&[".env", "out/id_rsa", "out/.ssh/known", "a"]);
    git(&case.path, &["add", "-f", "-A"]);
    assert_lines(
        &case.walk(),
        &[
            "secret .env",
            "excluded .git",
            "file .gitignore",
            "file a",
            "partial out",
            "over-file-limit out/giant",
            "secret out/id_rsa",
        ],
    );
}

#[test]
fn a_rule_written_later_does_not_take_away_what_is_tracked() {
    let mut case = Case::repository();
    case.write_all(&["build/a", "b"]);
    commit_all(&case.path);
    assert_lines(&settled(&mut case), &["excluded .git", "file b", "dir build", "file build/a"]);
    case.write(".gitignore", "build/\n*.x\n").write("build/new", "");
    let expected = ["excluded .git", "file .gitignore", "file b", "partial build", "file build/a"];
    assert_lines(&case.walk_on(), &expected);
    // The directory goes and comes back while the index stays as it is.
    fs::rename(case.path.join("build"), case.path.join("away.x")).unwrap();
    assert_lines(
        &case.walk_on(),
        &["excluded .git", "file .gitignore", "ignored away.x", "file b"],
    );
    fs::rename(case.path.join("away.x"), case.path.join("build")).unwrap();
    assert_lines(&case.walk_on(), &expected);
}

#[test]
fn a_workspace_below_the_top_sees_what_is_tracked_in_it() {
    let case = tracked_and_ignored();
    assert_lines(
        &case.walk_at("out"),
        &["file a", "dir deep", "file deep/b", "file deep/new", "file new"],
    );
    case.write("sub/.gitignore", "*.tmp\n").write("sub/in/a.tmp", "").write("sub/in/b.log", "");
    git(&case.path, &["add", "-f", "sub"]);
    case.write("sub/in/c.tmp", "");
    assert_lines(
        &case.walk_at("sub"),
        &["file .gitignore", "dir in", "file in/a.tmp", "file in/b.log", "ignored in/c.tmp"],
    );
}

#[test]
fn repositories_inside_are_asked_too_whatever_their_kind() {
    let case = Case::repository();
    let origin = Case::repository();
    origin.write(".gitignore", "*.log\n").write("kept.log", "");
    git(&origin.path, &["add", "-f", "-A"]);
    git(&origin.path, &["commit", "-q", "-m", "all"]);
    let from = origin.path.to_str().unwrap();
    git(&case.path, &["clone", "-q", from, "clone"]);
    git(&case.path, &["submodule", "--quiet", "add", from, "module"]);
    let linked = case.path.join("linked");
    git(&origin.path, &["worktree", "add", "-q", "-b", "other", linked.to_str().unwrap()]);
    git(&case.path, &["submodule", "--quiet", "add", from, "out/module"]);
    case.write(".gitignore", "/out/\n");
    for inner in ["clone", "module", "linked", "out/module"] {
        case.write(&format!("{inner}/other.log"), "");
    }
    let walked = case.walk();
    for inner in ["clone", "module", "linked"] {
        assert_eq!(what(&walked, &format!("{inner}/kept.log")), &What::File, "{inner}");
        let other = what(&walked, &format!("{inner}/other.log"));
        assert_eq!(other, &omitted(OmitReason::Ignored), "{inner}");
        assert_eq!(what(&walked, &format!("{inner}/.git")), &omitted(OmitReason::Excluded));
    }
    assert_eq!(walked.nested_repositories, ["clone", "linked", "module"].map(path));
    // The outer repository tracks the module although it ignores the directory around it.
    assert_eq!(what(&walked, "out"), &What::Dir { listed: Listed::Partial });
    assert_eq!(what(&walked, "out/module/.gitignore"), &What::File);
    assert_eq!(what(&walked, "out/module/other.log"), &omitted(OmitReason::Ignored));
    assert_eq!(walked.tracked, Tracked::Fresh);
    git(&origin.path, &["worktree", "remove", "--force", linked.to_str().unwrap()]);
}

#[test]
fn what_cannot_be_listed_below_what_git_tracks_is_told() {
    let case = Case::repository();
    let origin = Case::repository();
    commit_all(&origin.write("x", "").path);
    let from = origin.path.to_str().unwrap();
    git(&case.path, &["submodule", "--quiet", "add", from, "out/module"]);
    case.write(".gitignore", "/out/\n");
    drop(deep(&case.path.join("out/module"), b"d", limits::DEPTH_MAX));
    let walked = case.walk();
    let [unfinished] = &*walked.unfinished else { panic!("{:?}", walked.unfinished) };
    assert!(unfinished.is_at_or_below(&path("out/module/d")), "{unfinished}");
    remove_deep(&case.path.join("out/module/d"));
}

#[test]
fn what_a_sparse_checkout_leaves_out_is_named() {
    let case = Case::repository();
    case.write_all(&["in/a", "in/sub/b", "out/c", "out/deep/d", "mixed/e", "mixed/f/g", "top"]);
    commit_all(&case.path);
    git(&case.path, &["sparse-checkout", "set", "--no-cone", "/top", "/in/", "/mixed/e"]);
    assert!(!case.path.join("out").exists());
    let walked = case.walk();
    assert_eq!(walked.observations[0].what, What::Dir { listed: Listed::Partial });
    let expected = [
        "excluded .git",
        "dir in",
        "file in/a",
        "dir in/sub",
        "file in/sub/b",
        "partial mixed",
        "file mixed/e",
        "sparse mixed/f",
        "sparse out",
        "file top",
    ];
    assert_lines(&walked, &expected);

    // A file of the user's own where git has some that are left out.
    case.write("out/mine", "").write("out/deep/mine", "");
    assert_lines(
        &case.walk(),
        &[
            &expected[..8],
            &["partial out", "partial out/deep", "file out/deep/mine", "file out/mine", "file top"],
        ]
        .concat(),
    );

    git(&case.path, &["sparse-checkout", "disable"]);
    let walked = case.walk();
    assert_eq!(walked.observations[0].what, What::Dir { listed: Listed::Whole });
    assert!(lines(&walked).iter().all(|line| !line.starts_with("sparse")));
}

#[test]
fn git_is_asked_again_only_when_its_index_or_the_rules_have_changed() {
    const NAME: &str =
        "walk::tests::tracked::git_is_asked_again_only_when_its_index_or_the_rules_have_changed";
    if let Some(place) = place_of_child() {
        // There is no git here: what is fresh was not asked for.
        let text = fs::read(place.join(".git/cache-of-the-test")).unwrap();
        let tracked: TrackedCache = serde_json::from_slice(&text).unwrap();
        let root = Dir::open(&place).unwrap();
        let settings = ScopeSettings::default();
        let walk = |tracked: &TrackedCache| {
            let options =
                WalkOptions { tracked: tracked.clone(), threads: 2, ..WalkOptions::default() };
            let recorder = Recorder::default();
            let walked = walk(&root, &place, &settings, &options, None, &recorder).unwrap();
            check(&walked);
            (walked, recorder.notices.into_inner().unwrap())
        };
        let (walked, notices) = walk(&tracked);
        assert_lines(&walked, &EXPECTED);
        assert_eq!((walked.tracked, notices), (Tracked::Fresh, vec![]));
        assert_eq!(walked.tracked_cache, tracked);

        let stale = Notice::TrackedStale { reason: "git is not installed".to_owned() };
        fs::write(place.join(".gitignore"), "*.log\nout/\n*.none\n").unwrap();
        let (walked, notices) = walk(&tracked);
        assert_lines(&walked, &EXPECTED);
        assert_eq!((walked.tracked, notices), (Tracked::Stale, vec![stale.clone()]));
        // What is stale stays in force and is not taken for fresh later.
        let (walked, _) = walk(&walked.tracked_cache);
        assert_lines(&walked, &EXPECTED);
        assert_eq!(walked.tracked, Tracked::Stale);

        let (walked, notices) = walk(&TrackedCache::default());
        assert_eq!((walked.tracked, notices), (Tracked::None, vec![stale]));
        assert_eq!(what(&walked, "out"), &omitted(OmitReason::Ignored));
        assert_eq!(what(&walked, "src/x"), &What::File);
        return;
    }
    let mut case = tracked_and_ignored();
    let cache = settled(&mut case).tracked_cache;
    case.write(".git/cache-of-the-test", serde_json::to_vec(&cache).unwrap());
    run_in_child(NAME, &case.path, |command| {
        command.env("PATH", "/nonexistent");
    });
}

#[test]
fn a_change_of_the_index_is_seen_at_once() {
    let mut case = Case::repository();
    case.write(".gitignore", "*.log\n").write_all(&["a.log", "b.log"]);
    git(&case.path, &["add", "-f", "a.log"]);
    let is_held = |walked: &Walked| ["a.log", "b.log"].map(|name| walked.is_in_scope(&path(name)));
    assert_eq!(is_held(&case.walk_on()), [true, false]);
    git(&case.path, &["add", "-f", "b.log"]);
    assert_eq!(is_held(&case.walk_on()), [true, true]);
    git(&case.path, &["rm", "-q", "--cached", "a.log"]);
    assert_eq!(is_held(&case.walk_on()), [false, true]);
    fs::remove_file(case.path.join(".git/index")).unwrap();
    assert_eq!(is_held(&case.walk_on()), [false, false]);
}

#[test]
fn a_broken_index_leaves_what_was_known_in_force() {
    let mut case = tracked_and_ignored();
    assert_eq!(case.walk_on().tracked, Tracked::Fresh);
    case.write(".git/index", "this is no index");
    let recorder = Recorder::default();
    let walked = case.try_walk_at("", &recorder).unwrap();
    assert_lines(&walked, &EXPECTED);
    assert_eq!(walked.tracked, Tracked::Stale);
    assert_eq!(recorder.notices.into_inner().unwrap().len(), 1);
}

#[test]
fn outside_a_repository_nothing_is_tracked() {
    let case = Case::new();
    case.write("a", "");
    let walked = case.walk();
    assert_eq!(walked.tracked, Tracked::None);
}

#[test]
fn a_cache_that_was_not_written_by_us_is_refused() {
    let mut case = tracked_and_ignored();
    let text = serde_json::to_string(&case.walk_on().tracked_cache).unwrap();
    assert_eq!(serde_json::from_str::<TrackedCache>(&text).unwrap(), case.options.tracked);
    for (from, to) in
        [("\"excluded\":\"", "\"excluded\":\"!"), ("\"excluded\":\"", "\"excluded\":\"Ly8A")]
    {
        assert!(text.contains(from));
        assert!(serde_json::from_str::<TrackedCache>(&text.replace(from, to)).is_err(), "{to}");
    }
}

#[test]
fn a_monitor_program_of_the_repository_does_not_run() {
    let case = tracked_and_ignored();
    let witness = case.path.join(".git/ran");
    case.write(".git/hook", format!("#!/bin/sh\ntouch '{}'\n", witness.display()));
    let hook = case.path.join(".git/hook");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    git(&case.path, &["config", "core.fsmonitor", hook.to_str().unwrap()]);
    git(&case.path, &["status"]);
    assert!(witness.exists(), "git itself no longer runs it");
    fs::remove_file(&witness).unwrap();
    assert_lines(&case.walk(), &EXPECTED);
    assert!(!witness.exists());
}

#[test]
fn what_a_hook_of_git_exports_changes_nothing() {
    const NAME: &str = "walk::tests::tracked::what_a_hook_of_git_exports_changes_nothing";
    if let Some(place) = place_of_child() {
        let root = Dir::open(&place).unwrap();
        let options = WalkOptions { threads: 2, ..WalkOptions::default() };
        let walked = walk(&root, &place, &ScopeSettings::default(), &options, None, &()).unwrap();
        assert_lines(&walked, &EXPECTED);
        assert_eq!(walked.tracked, Tracked::Fresh);
        return;
    }
    let case = tracked_and_ignored();
    let other = Case::repository();
    other.write("foreign", "").write("other.log", "");
    commit_all(&other.path);
    run_in_child(NAME, &case.path, |command| {
        command
            .env("GIT_DIR", other.path.join(".git"))
            .env("GIT_COMMON_DIR", other.path.join(".git"))
            .env("GIT_WORK_TREE", &other.path)
            .env("GIT_INDEX_FILE", other.path.join(".git/index"))
            .env("GIT_PREFIX", "src/")
            .env("GIT_CEILING_DIRECTORIES", "/");
    });
}

#[test]
fn a_submodule_that_was_not_there_when_git_was_asked_is_held_when_it_is() {
    let upstream = Case::repository();
    upstream.write("f", "content");
    commit_all(&upstream.path);
    let mut case = Case::repository();
    let from = upstream.path.to_str().unwrap();
    git(&case.path, &["submodule", "--quiet", "add", from, "dist"]);
    commit_all(&case.path);
    fs::remove_dir_all(case.path.join("dist")).unwrap();
    case.write("n", "");
    git(&case.path, &["add", "n"]);
    let without = settled(&mut case);
    assert!(without.find(&path("dist")).is_none());

    git(&case.path, &["submodule", "--quiet", "update", "--init"]);
    case.write("dist/new", "work");
    let with = case.walk_on();
    assert_eq!(what(&with, "dist/f"), &What::File);
    assert_eq!(what(&with, "dist/new"), &What::File);
}

#[test]
fn what_is_tracked_in_a_directory_that_stops_being_a_repository_is_held() {
    let mut case = Case::repository();
    case.write(".gitignore", "*.log\n").write("n/x.log", "");
    git(&case.path, &["add", "-f", "n/x.log"]);
    commit_all(&case.path);
    git(&case.path.join("n"), &["init", "-q", "--template="]);
    case.write("n/y", "");
    git(&case.path.join("n"), &["add", "y"]);
    settled(&mut case);
    fs::remove_dir_all(case.path.join("n/.git")).unwrap();
    assert_eq!(what(&case.walk_on(), "n/x.log"), &What::File);
}
