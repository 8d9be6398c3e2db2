//! What is held and what is not, by every reason.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicU32;

use super::*;

#[test]
fn paths_come_in_byte_order_with_their_kinds() {
    let case = Case::new();
    case.write_all(&["a/x", "a-b", "a.b", "z/y/w"]);
    fs::create_dir(case.path.join("empty")).unwrap();
    symlink("../away", case.path.join("link")).unwrap();
    assert_lines(
        &case.walk(),
        &[
            "dir a",
            "file a-b",
            "file a.b",
            "file a/x",
            "dir empty",
            "symlink link -> ../away",
            "dir z",
            "dir z/y",
            "file z/y/w",
        ],
    );
}

#[test]
fn stats_are_those_of_the_file_system() {
    use std::os::unix::fs::MetadataExt;
    let case = Case::new();
    case.write("run", "four");
    fs::set_permissions(case.path.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    let walked = case.walk();
    let stat = walked.find(&path("run")).unwrap().stat;
    let metadata = fs::metadata(case.path.join("run")).unwrap();
    assert_eq!((stat.size, stat.ino, stat.dev), (4, metadata.ino(), metadata.dev()));
    assert_eq!(stat.mode.bits(), 0o755);
    assert_eq!(stat.mtime_ns, metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec());
    assert_eq!(walked.observations[0].stat.ino, fs::metadata(&case.path).unwrap().ino());
}

#[test]
fn version_control_is_omitted_wherever_it_is_and_whatever_it_is() {
    let case = Case::new();
    case.write_all(&[".git/HEAD", "a/.hg/x", "a/.jj/x", "b/.svn", ".vak/x", ".turnpoint/stage/x"]);
    case.write_all(&["sub/.GIT/config", ".sl/x", ".gitattributes"]);
    assert_lines(
        &case.walk(),
        &[
            "excluded .git",
            "file .gitattributes",
            "excluded .sl",
            "excluded .turnpoint",
            "excluded .vak",
            "dir a",
            "excluded a/.hg",
            "excluded a/.jj",
            "dir b",
            "excluded b/.svn",
            "dir sub",
            "excluded sub/.GIT",
        ],
    );
}

#[test]
fn secrets_are_omitted_by_name_files_and_directories() {
    let case = Case::new();
    case.write_all(&[".env", ".env.example", "a/ID_RSA", "a/id_rsa.pub", "home/.ssh/config"]);
    case.write_all(&["home/.aws/credentials", "home/credentials"]);
    assert_lines(
        &case.walk(),
        &[
            "secret .env",
            "file .env.example",
            "dir a",
            "secret a/ID_RSA",
            "file a/id_rsa.pub",
            "dir home",
            "dir home/.aws",
            "secret home/.aws/credentials",
            "secret home/.ssh",
            "file home/credentials",
        ],
    );
    // The workspace's own name counts too.
    assert_lines(&case.walk_at("home/.aws"), &["secret credentials"]);
}

#[test]
fn build_directories_and_old_databases_are_excluded_but_not_the_root_nor_other_kinds() {
    let case = Case::new();
    case.write_all(&["target/target/debug/x", "target/a", "node_modules/x", "b/dist", "c/dist/x"]);
    case.write_all(&["store.db", "store.db-wal", "store.db-shm", "d/store.db/x"]);
    symlink("elsewhere", case.path.join("c/node_modules")).unwrap();
    assert_lines(
        &case.walk(),
        &[
            "dir b",
            "file b/dist",
            "dir c",
            "excluded c/dist",
            "symlink c/node_modules -> elsewhere",
            "dir d",
            "dir d/store.db",
            "file d/store.db/x",
            "excluded node_modules",
            "excluded store.db",
            "excluded store.db-shm",
            "excluded store.db-wal",
            "excluded target",
        ],
    );
    assert_lines(&case.walk_at("target"), &["file a", "excluded target"]);
}

#[test]
fn settings_decide_what_is_excluded() {
    let mut case = Case::new();
    case.settings.excluded_directories = NamePatterns::new(["build*"]).unwrap();
    case.settings.secrets = NamePatterns::new(["*.private", "!ok.private"]).unwrap();
    case.settings.file_limit_bytes = 4;
    case.write_all(&["build-1/x", "target/x", "a.private", "ok.private", ".env"]);
    case.write("four", "1234").write("five", "12345");
    assert_lines(
        &case.walk(),
        &[
            "file .env",
            "secret a.private",
            "excluded build-1",
            "over-file-limit five",
            "file four",
            "over-file-limit ok.private",
            "dir target",
            "over-file-limit target/x",
        ],
    );
}

#[test]
fn a_store_is_never_entered_known_by_inode_or_by_its_format() {
    use std::os::unix::fs::MetadataExt;
    let mut case = Case::new();
    case.write_all(&["ours/checkpoints/index.db", "plain/x", "broken/x", "linked/x"]);
    case.write("theirs/format.json", r#"{"turnpoint_store":7,"id":"x","new":true}"#);
    case.write("theirs/index.db", "");
    case.write("plain/format.json", r#"{"format":1}"#);
    case.write("broken/format.json", r#"{"turnpoint_store":"#);
    symlink(case.path.join("theirs/format.json"), case.path.join("linked/format.json")).unwrap();
    let metadata = fs::metadata(case.path.join("ours")).unwrap();
    case.options.stores = vec![InodeId { dev: metadata.dev(), ino: metadata.ino() }];
    let walked = case.walk();
    assert_eq!(what(&walked, "ours"), &omitted(OmitReason::Store));
    assert_eq!(what(&walked, "theirs"), &omitted(OmitReason::Store));
    assert_eq!(walked.find(&path("theirs/index.db")), None);
    assert_eq!(what(&walked, "plain/x"), &What::File);
    assert_eq!(what(&walked, "broken/x"), &What::File);
    assert_eq!(what(&walked, "linked/x"), &What::File);

    for store in ["ours", "theirs"] {
        let refused = case.try_walk_at(store, &()).unwrap_err();
        assert!(matches!(refused, Error::WorkspaceTooWide { .. }), "{refused}");
    }
}

#[test]
fn special_files_are_seen_and_never_opened() {
    let case = Case::new();
    for name in ["pipe", ".gitignore", "sub/.gitignore", "sub/format.json"] {
        let at = case.path.join(name);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at, 0o600.into()).unwrap();
    }
    let _socket = UnixListener::bind(case.path.join("socket")).unwrap();
    // Opening a FIFO would wait for ever for a writer.
    assert_lines(
        &case.walk(),
        &[
            "special .gitignore",
            "special pipe",
            "special socket",
            "dir sub",
            "special sub/.gitignore",
            "special sub/format.json",
        ],
    );
}

#[test]
fn symlinks_are_text_whatever_they_lead_to() {
    let case = Case::new();
    case.write("dir/x", "");
    for (target, name) in [
        ("/etc", "absolute"),
        ("..", "dir/up"),
        (".", "loop"),
        ("nowhere", "dangling"),
        ("self", "self"),
        ("dir", "to-dir"),
    ] {
        symlink(target, case.path.join(name)).unwrap();
    }
    assert_lines(
        &case.walk(),
        &[
            "symlink absolute -> /etc",
            "symlink dangling -> nowhere",
            "dir dir",
            "symlink dir/up -> ..",
            "file dir/x",
            "symlink loop -> .",
            "symlink self -> self",
            "symlink to-dir -> dir",
        ],
    );
}

#[test]
fn more_omitted_names_than_are_listed_are_counted_in_the_last() {
    let case = Case::new();
    case.write(".gitignore", "*.o\n");
    for number in 0..1_005 {
        case.write(&format!("many/{number:04}.o"), "");
    }
    for number in 0..1_001 {
        case.write(&format!("enough/{number:04}.o"), "");
    }
    case.write("many/zzz", "");
    let walked = case.walk();
    let rest = |reason, rest| What::Omitted { reason, rest };
    assert_eq!(what(&walked, "many"), &What::Dir { listed: Listed::Partial });
    assert_eq!(what(&walked, "many/0999.o"), &omitted(OmitReason::Ignored));
    assert_eq!(what(&walked, "many/1000.o"), &rest(OmitReason::Ignored, 4));
    assert_eq!(walked.find(&path("many/1001.o")), None);
    assert_eq!(what(&walked, "many/zzz"), &What::File);
    assert_eq!(what(&walked, "enough"), &What::Dir { listed: Listed::Whole });
    assert_eq!(what(&walked, "enough/1000.o"), &omitted(OmitReason::Ignored));
}

/// Needs `setpriv` (util-linux) because root can read everything: the walk runs as another user in a
/// child.
#[test]
fn unreadable_directories_are_named_and_make_no_evidence() {
    const NAME: &str = "walk::tests::scope::unreadable_directories_are_named_and_make_no_evidence";
    if let Some(place) = place_of_child() {
        let root = Dir::open(&place).unwrap();
        let options = WalkOptions { threads: 2, ..WalkOptions::default() };
        let walked = walk(&root, &place, &ScopeSettings::default(), &options, None, &()).unwrap();
        check(&walked);
        assert_lines(
            &walked,
            &[
                "file a",
                "unreadable closed",
                "dir deep",
                "unreadable deep/closed",
                "dir listable",
                "secret listable/.env",
                "excluded listable/.git",
                "unreadable listable/x",
                "unreadable searchable",
            ],
        );
        return;
    }
    let case = Case::new();
    case.write_all(&["a", "closed/x", "deep/closed/x", "listable/x", "listable/.git/x"]);
    case.write_all(&["listable/.env", "searchable/x"]);
    let mode = |name: &str, mode| {
        fs::set_permissions(case.path.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("", 0o755);
    mode("closed", 0o000);
    mode("deep/closed", 0o000);
    mode("listable", 0o744);
    mode("searchable", 0o711);
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    setpriv.arg(std::env::current_exe().unwrap());
    run_in_child_by(setpriv, NAME, &case.path, |_| {});
}

#[test]
fn mounts_are_named_and_entered_only_if_asked_for() {
    let mut case = Case::new();
    case.write_all(&["a", "mount/hidden"]);
    let at = case.path.join("mount");
    let mount = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&at).output().unwrap();
    if !mount.status.success() {
        // Only a privileged user can mount; anywhere else this cannot be tried.
        return;
    }
    fs::write(at.join("x"), "").unwrap();
    case.write("bound", "hidden");
    let bound = case.path.join("bound");
    let bind = Command::new("mount").arg("--bind").arg(at.join("x")).arg(&bound).status().unwrap();
    assert!(bind.success());
    let apart = lines(&case.walk());
    case.settings.cross_mounts = true;
    let across = lines(&case.walk());
    for at in [&bound, &at] {
        assert!(Command::new("umount").arg(at).status().unwrap().success());
    }
    assert_eq!(apart, ["file a", "mount bound", "mount mount"]);
    assert_eq!(across, ["file a", "file bound", "dir mount", "file mount/x"]);
}

#[test]
fn a_root_that_is_not_there_is_an_error_that_names_it() {
    let case = Case::new();
    case.write("file", "");
    for name in ["missing", "file"] {
        let error = case.try_walk_at(name, &()).unwrap_err();
        assert!(matches!(&error, Error::Io { path, .. } if path.ends_with(name)), "{error}");
    }
}

/// Cancels when it has been asked that many times.
struct CancelAfter(AtomicU32);

impl Monitor for CancelAfter {
    fn is_cancelled(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err()
    }
}

#[test]
fn a_cancelled_walk_says_so_and_ends_its_threads() {
    let case = Case::repository();
    for number in 0..500 {
        case.write(&format!("{number}/x/y"), "");
    }
    for asked in [0, 1, 3] {
        let cancelled = case.try_walk_at("", &CancelAfter(AtomicU32::new(asked)));
        assert!(matches!(cancelled, Err(Error::Cancelled)), "after {asked}");
    }
    assert_eq!(case.walk().observations.len(), 1 + 1 + 500 * 3);
}

#[test]
fn one_thread_is_enough_also_within_a_busy_pool() {
    let mut case = Case::new();
    for number in 0..50 {
        case.write(&format!("{number}/x/y"), "");
    }
    case.options.threads = 1;
    let expected = lines(&case.walk());
    assert_eq!(expected.len(), 150);
    let outer = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let (sender, receiver) = mpsc::channel();
    outer.spawn(move || sender.send(lines(&case.walk())).unwrap());
    // A stall would be for ever; a walk of 150 paths is not.
    let walked = receiver.recv_timeout(Duration::from_mins(1)).unwrap();
    assert_eq!(walked, expected);
}

#[test]
fn what_a_restore_forces_is_held_whatever_the_rules_say() {
    let mut case = Case::repository();
    case.settings.file_limit_bytes = 12;
    case.write(".gitignore", "out/\n*.log\n").write("big", "1234567890123");
    case.write_all(&["out/a", "out/deep/b", "out/deep/.env", "x.log", "target/t", "sub/.git/x"]);
    rustix::fs::mkfifoat(rustix::fs::CWD, case.path.join("pipe"), 0o600.into()).unwrap();
    let mut walked = case.walk();
    let before = lines(&walked);
    let asked =
        ["out/a", "big", "x.log", "target", "out/deep", "missing", "out/deep/.env/x", "pipe"];
    let asked = asked.map(path);
    let left = |at: &str, reason| Forced::Left { path: path(at), reason };
    assert_eq!(
        walked.force(&asked, &()).unwrap(),
        [
            Forced::Held,
            Forced::Held,
            Forced::Held,
            Forced::Held,
            left("out/deep/.env", OmitReason::Secret),
            Forced::Missing,
            left("out/deep/.env", OmitReason::Secret),
            left("pipe", OmitReason::Special),
        ]
    );
    check(&walked);
    assert_lines(
        &walked,
        &[
            "excluded .git",
            "file .gitignore",
            "file big",
            "partial out",
            "file out/a",
            "dir out/deep",
            "secret out/deep/.env",
            "file out/deep/b",
            "special pipe",
            "dir sub",
            "excluded sub/.git",
            "dir target",
            "file target/t",
            "file x.log",
        ],
    );
    assert!(walked.is_in_scope(&path("out/a")) && !walked.is_in_scope(&path("out/deep/.env")));

    // What has gone meanwhile is not there any more, and neither is what was below it.
    fs::remove_dir_all(case.path.join("target")).unwrap();
    assert_eq!(walked.force(&[path("target")], &()).unwrap(), [Forced::Missing]);
    assert_eq!(walked.find(&path("target/t")), None);
    assert_eq!(
        walked.force(&[RelPath::root()], &()).unwrap(),
        [left(".git", OmitReason::Excluded)]
    );
    check(&walked);
    assert_eq!(
        lines(&case.walk()),
        before.into_iter().filter(|l| !l.ends_with("target")).collect::<Vec<_>>()
    );
}

#[test]
fn a_forced_path_is_found_among_those_that_were_only_counted() {
    let case = Case::new();
    case.write(".gitignore", "*.o\n");
    for number in 0..1_005 {
        case.write(&format!("{number:04}.o"), "");
    }
    let mut walked = case.walk();
    let asked = [path("0000.o"), path("1000.o"), path("1003.o")];
    assert_eq!(walked.force(&asked, &()).unwrap(), [Forced::Held, Forced::Held, Forced::Held]);
    check(&walked);
    for held in &asked {
        assert!(walked.is_in_scope(held), "{held}");
    }
    let rest = What::Omitted { reason: OmitReason::Ignored, rest: 1 };
    assert_eq!(what(&walked, "1001.o"), &omitted(OmitReason::Ignored));
    assert_eq!(what(&walked, "1002.o"), &rest);
    assert_eq!(walked.find(&path("1004.o")), None);
    assert_eq!(walked.observations[0].what, What::Dir { listed: Listed::Partial });
}

#[test]
fn many_forced_paths_are_found_each_and_so_is_what_is_missing() {
    let case = Case::new();
    case.write(".gitignore", "*.o\nd/out/\n");
    for number in 0..400 {
        case.write(&format!("d/{number:03}.o"), "").write(&format!("d/{number:03}-kept"), "");
    }
    case.write("d/out/in/x", "").write("d-", "").write("d/gone/x", "");
    let mut walked = case.walk();
    fs::remove_dir_all(case.path.join("d/gone")).unwrap();
    let missing = (0..3_000).map(|number| path(&format!("d/{number}-missing")));
    let held = (0..400).map(|number| path(&format!("d/{number:03}.o")));
    // Some twice, some below others, in no order.
    let asked: Vec<RelPath> = missing
        .chain(held)
        .chain(["d/out/in", "d/out", "d/out/in/x", "d/gone", "d/000.o"].map(path))
        .collect();
    let outcomes = walked.force(&asked, &()).unwrap();
    for (asked, outcome) in asked.iter().zip(outcomes) {
        let is_there = case.path.join(asked.as_os()).exists();
        let expected = if is_there { Forced::Held } else { Forced::Missing };
        assert_eq!(outcome, expected, "{asked}");
        assert_eq!(walked.is_in_scope(asked), is_there, "{asked}");
    }
    check(&walked);
    assert_eq!(walked.find(&path("d/gone/x")), None);
    assert_eq!(what(&walked, "d-"), &What::File);
    // The root, `.gitignore`, `d-`, `d`; two for each number; `d/out` with what is in it.
    assert_eq!(walked.observations.len(), 4 + 800 + 3);
}

#[test]
fn threads_of_the_walk_do_not_outlive_a_panic_of_the_caller() {
    struct Panics;
    impl Monitor for Panics {
        fn phase(&self, _phase: Phase, _total: Option<u64>) {
            panic!("the monitor's own");
        }
    }
    let case = Case::new();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        case.try_walk_at("", &Panics).map(drop)
    }));
    assert!(panicked.is_err());
    assert_eq!(case.walk().observations.len(), 1);
}
