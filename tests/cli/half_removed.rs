//! Removals of runs that git came to no end with, and what is done about what is left.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::ground::ground;
use crate::support::packs;
use crate::support::program::{Program, run};
use crate::worktree::{
    assert_cleared, cat, exec, find_record, git_that_removes, only, program, runs,
};
use crate::worktree_removal::bound;

/// Has git come to no end with the removal of the only run: where it is to begin, it does `script` and fails. In
/// that `$tree` is the work tree, and `$kept` what git keeps of all of them.
fn cut(program: &Program, script: &str) -> (String, PathBuf) {
    let (id, path) = only(program);
    let known = "kept=$($git rev-parse --path-format=absolute --git-common-dir)/worktrees; \
                 eval tree=\\${$#}";
    let script = format!("{known}; {script}; exit 128");
    let git = git_that_removes(program, &path, &script);
    run(program.command(["worktree", "remove", &id, "--yes"]).env("PATH", git)).exits(1);
    let text = fs::read(find_record(program, &id)).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&text).unwrap()["state"], "removing");
    (id, path)
}

fn discard(program: &Program, id: &str) {
    program.run(["worktree", "remove", id, "--yes", "--discard"]).ok();
    assert_cleared(program);
}

/// git stops where it may not delete something, and forgets the work tree.
#[test]
fn what_git_could_not_delete_goes_with_the_next_removal_where_it_is_held() {
    let program = program();
    let before = ground(&program);
    for (more, told) in [
        ("", ""),
        ("echo changed > d/made", "  d/made: not as in its checkpoint\n"),
        ("echo new > d/new", "  d/new: in no checkpoint\n"),
        ("echo key > key.pem", "  key.pem: in no checkpoint\n"),
        ("ln -sf made d/link", "  d/link: not as in its checkpoint\n"),
        ("mkfifo d/fifo", "  d/fifo: special\n"),
        ("git init -q d/r", "  d/r/.git: version control of its own\n"),
    ] {
        let script = "mkdir -p d/e; echo made > d/made; ln -s ../a.txt d/link; git add d";
        // Else the commit of an earlier one is this.
        let script = format!("{script}; git commit -qm 'with {}'", more.replace('\'', ""));
        exec(&program, &[], &script).ok();
        let (id, path) = only(&program);
        let close = "eval tree=\\${$#}; chmod 555 \"$tree/d\"";
        let git = git_that_removes(&program, &path, close);
        let words = ["worktree", "remove", &id, "--yes"];
        let failed = run(bound(&program, &words).env("PATH", git)).exits(1);
        assert!(failed.stderr.contains("failed to delete"), "{}", failed.stderr);
        assert!(failed.stderr.contains("`turnpoint worktree prune`"), "{}", failed.stderr);
        assert!(!program.workspace().join(".git/worktrees").exists(), "git still knows it");
        let held = runs(&program, &[])[0]["kept"].clone();
        if !told.is_empty() {
            fs::set_permissions(path.join("d"), fs::Permissions::from_mode(0o755)).unwrap();
            run(program.other("sh").args(["-c", more]).current_dir(&path)).ok();
            fs::set_permissions(path.join("d"), fs::Permissions::from_mode(0o555)).unwrap();
            let refused = run(&mut bound(&program, &["worktree", "prune"])).exits(3);
            assert!(refused.stderr.contains(told), "{}", refused.stderr);
            let next = format!("`turnpoint worktree remove --discard {id}`");
            assert!(refused.stderr.contains(&next), "{}", refused.stderr);
            assert!(path.join("d/made").exists());
            let words = ["worktree", "remove", &id, "--yes", "--discard"];
            run(&mut bound(&program, &words)).ok();
        } else {
            run(&mut bound(&program, &["worktree", "prune"])).ok();
        }
        assert_cleared(&program);
        let removed = runs(&program, &["--removed"]).pop().unwrap();
        assert_eq!(removed["kept"], held);
        assert_eq!(cat(&program, &held, "d/made"), b"made\n");
        let own = format!("refs/turnpoint/removed/{id}/branch:d/made");
        assert_eq!(program.git(["show", &own]), "made");
    }
    assert_eq!(ground(&program), before);
}

/// git was killed at the end of a removal, or somebody has put back a part of what it had taken away.
#[test]
fn what_is_left_of_what_git_kept_is_cleared() {
    let program = program();
    let worktrees = program.workspace().join(".git/worktrees");
    for (script, parts) in [
        ("rm -r \"$kept\" \"$tree/.git\"", &[][..]),
        ("rm -r \"$kept\"", &["gitdir", "commondir"]),
        ("rm -r \"$kept\" \"$tree/.git\"", &["gitdir", "commondir", "HEAD"]),
        ("rm -r \"$tree\" \"$kept\"/*/gitdir", &[]),
        ("rm -r \"$tree\" \"$kept\"/*/commondir", &[]),
        ("rm -r \"$tree\" \"$kept\"/*/gitdir \"$kept\"/*/HEAD", &[]),
        (": > \"$tree/.git\"", &[]),
        ("rm \"$tree/.git\"", &[]),
    ] {
        exec(&program, &[], "echo made > made; git add .; git commit -qm made").ok();
        let saved = program.root().join("saved");
        let (id, _) = only(&program);
        run(program.other("cp").arg("-r").arg(worktrees.join(&id)).arg(&saved)).ok();
        cut(&program, script);
        let held = runs(&program, &[])[0]["kept"].clone();
        fs::create_dir_all(worktrees.join(&id)).unwrap();
        for part in parts {
            fs::copy(saved.join(part), worktrees.join(&id).join(part)).unwrap();
        }
        fs::remove_dir_all(saved).unwrap();
        let pruned = program.run(["worktree", "prune", "--json"]).ok().json();
        assert_cleared(&program);
        assert_eq!(pruned["removed"][0]["kept"], held, "{script} {parts:?}");
        assert_eq!(pruned["removed"][0]["further"], serde_json::json!([]), "{script} {parts:?}");
        assert_eq!(cat(&program, &held, "made"), b"made\n");
    }
}

/// What git had deleted by then was not deleted by the run.
#[test]
fn what_comes_into_what_is_left_is_held_beside_what_was_and_nothing_of_that_is_applied() {
    let program = program();
    exec(&program, &[], "echo made > made; echo two > two").ok();
    let (id, path) = cut(&program, "rm \"$tree\"/a.txt \"$tree\"/c.txt \"$tree\"/made");
    let held = runs(&program, &[])[0]["kept"].clone();
    fs::write(path.join("two"), "changed\n").unwrap();
    fs::write(path.join("later"), "later\n").unwrap();
    // Cut once more, with nothing new in between.
    cut(&program, "rm \"$tree\"/two");
    program.run(["worktree", "prune"]).ok();
    assert_cleared(&program);
    let removed = &runs(&program, &["--removed"])[0];
    assert_eq!(removed["kept"], held);
    let further = removed["further"].as_array().unwrap();
    assert_eq!(further.len(), 1, "{further:?}");
    assert_eq!(cat(&program, &held, "two"), b"two\n");
    assert_eq!(cat(&program, &further[0], "two"), b"changed\n");
    assert_eq!(cat(&program, &further[0], "later"), b"later\n");
    let id_of = |it: &Value| format!("{}:{}", it["session"].as_str().unwrap(), it["seq"]);
    let listed = program.run(["worktree", "list", "--removed"]).ok();
    let line = format!("  {} holds what came while it was being removed\n", id_of(&further[0]));
    assert!(listed.stdout.contains(&line), "{}", listed.stdout);
    let before = ground(&program);
    let refused = program.run(["worktree", "apply", &id, "--yes"]).exits(3);
    assert!(refused.stderr.contains(&id_of(&further[0])), "{}", refused.stderr);
    assert!(refused.stderr.contains(&format!("restore {} --into", id_of(&held))));
    assert_eq!(ground(&program), before);
    // No rule drops either.
    let session = held["session"].as_str().unwrap();
    program.run(["prune", "--session", session, "--keep", "1", "--yes"]).ok();
    assert_eq!(cat(&program, &held, "made"), b"made\n");
    assert_eq!(cat(&program, &further[0], "later"), b"later\n");
}

#[test]
fn a_checkpoint_that_is_gone_holds_nothing_of_what_is_left() {
    let program = program();
    for (script, code) in [("rm -r \"$kept\" \"$tree/.git\"", 3), ("rm \"$tree/.git\"", 0)] {
        exec(&program, &["--session", "s"], "echo made > made").ok();
        let (id, path) = cut(&program, script);
        program.run(["prune", "--session", "s", "--delete", "--yes"]).ok();
        let pruned = program.run(["worktree", "prune"]).exits(code);
        if code == 0 {
            let removed = runs(&program, &["--removed"]).pop().unwrap();
            assert_eq!(cat(&program, &removed["further"][0], "made"), b"made\n");
            assert_cleared(&program);
        } else {
            assert!(pruned.stderr.contains("  made: in no checkpoint\n"), "{}", pruned.stderr);
            assert_eq!(fs::read_to_string(path.join("made")).unwrap(), "made\n");
            discard(&program, &id);
        }
    }
}

#[test]
fn content_that_the_store_has_lost_is_not_held() {
    let program = program();
    exec(&program, &[], "echo made > made").ok();
    let (id, path) = cut(&program, "rm -r \"$kept\" \"$tree/.git\"");
    let hash = blake3::hash(b"made\n").to_hex().to_string();
    let (shard, _) = hash.split_at(2);
    fs::remove_file(program.store().join("blobs").join(shard).join(&hash)).unwrap();
    let refused = program.run(["worktree", "prune"]).exits(3);
    assert!(refused.stderr.contains("  made: lost from its checkpoint\n"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(path.join("made")).unwrap(), "made\n");
    discard(&program, &id);
}

/// Has the store lose a content, or all of it but for its length.
fn lose(program: &Program, content: &[u8], is_damaged: bool) {
    let hash = blake3::hash(content).to_hex().to_string();
    let (shard, _) = hash.split_at(2);
    let blob = program.store().join("blobs").join(shard).join(&hash);
    let mut bytes = fs::read(&blob).unwrap();
    fs::remove_file(&blob).unwrap();
    if is_damaged {
        // What a look reads of it stays as it is.
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(blob, bytes).unwrap();
    }
}

/// Where git knows the work tree nobody reads all that is in it: a checkpoint takes it over from the one before.
#[test]
fn content_that_the_store_has_lost_is_held_anew_before_it_goes() {
    let program = program();
    // What git has, too, is not read.
    let cases = [("made", &b"made\n"[..], true), ("a.txt", b"one\n", false)];
    for ((name, content, is_damaged), is_cut) in
        cases.into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let what = format!("{name}, {is_damaged}, {is_cut}");
        exec(&program, &["--session", "s"], "echo made > made").ok();
        let (id, _) = only(&program);
        if is_cut {
            cut(&program, ":");
        }
        lose(&program, content, is_damaged);
        program.run(["worktree", "remove", &id, "--yes"]).ok();
        assert_cleared(&program);
        let removed = runs(&program, &["--removed"]).pop().unwrap();
        assert_eq!(cat(&program, &removed["kept"], name), content, "{what}");
        // What came after the first is nothing new.
        program.run(["worktree", "apply", &id, "--dry-run"]).ok();
    }
    assert_eq!(program.run(["verify", "--read-data"]).ok().stderr, "");
}

/// Of one that has not changed only what is above the lowest pages is read to compare it with the disk.
#[test]
fn a_checkpoint_of_which_pages_are_lost_is_stored_again() {
    let program = program();
    let script = "echo made > made; mkdir many; cd many; seq 800 | xargs touch";
    exec(&program, &["--session", "s"], script).ok();
    let (id, _) = only(&program);
    cut(&program, ":");
    // Its pages are many enough for a pack.
    packs::make_loose(&program.store());
    let kept = runs(&program, &[])[0]["kept"].clone();
    let manifest = program.store().join(format!("s/{}.json", kept["seq"]));
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let contents = ["", "made\n", "one\n", "two\n", "three\n", "*.log\n.env\nbuild/\n"];
    let mut spared = contents.map(|it| blake3::hash(it.as_bytes()).to_hex().to_string()).to_vec();
    spared.push(manifest["root"].as_str().unwrap().to_owned());
    let mut lost = 0;
    for shard in fs::read_dir(program.store().join("blobs")).unwrap() {
        for blob in fs::read_dir(shard.unwrap().path()).unwrap() {
            let blob = blob.unwrap();
            if !spared.iter().any(|it| blob.file_name().to_str() == Some(it.as_str())) {
                fs::remove_file(blob.path()).unwrap();
                lost += 1;
            }
        }
    }
    assert!(lost > 5, "{lost}");
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
    let removed = runs(&program, &["--removed"]).pop().unwrap();
    assert_eq!(removed["kept"], kept);
    assert_eq!(cat(&program, &kept, "made"), b"made\n");
    assert_eq!(cat(&program, &kept, "many/800"), b"");
}

/// git takes away what is in a directory in whatever order; and who is killed over putting a rule back leaves an
/// empty one.
#[test]
fn what_is_ignored_stays_ignored_where_the_rules_went_first() {
    let program = program();
    for more in ["", "; rm \"$tree/.git\"", "; : > \"$tree/.gitignore\""] {
        exec(&program, &[], "echo made > made.txt; mkdir build; echo 1 > build/x; echo 2 > y.log")
            .ok();
        let (id, _) = cut(&program, &format!("rm \"$tree/.gitignore\" \"$tree/c.txt\"{more}"));
        let removed = program.run(["worktree", "prune", "--json"]).ok().json();
        assert_cleared(&program);
        let removed = &removed["removed"][0];
        assert_eq!(removed["further"], serde_json::json!([]));
        assert_eq!(removed["left_out"]["files"], 2);
        let planned = program.run(["worktree", "apply", &id, "--dry-run", "--json"]).ok().json();
        assert_eq!(planned["create"], serde_json::json!([{ "path": "made.txt", "kind": "file" }]));
        assert_eq!(planned["delete"], serde_json::json!([]));
    }
}

#[test]
fn of_rules_that_were_changed_in_what_is_left_the_last_count() {
    let program = program();
    exec(&program, &[], "echo made > made").ok();
    let (_, path) = cut(&program, ":");
    fs::write(path.join(".gitignore"), "*.log\n*.tmp\n").unwrap();
    fs::write(path.join("x.tmp"), "1\n").unwrap();
    cut(&program, "rm \"$tree/.gitignore\"");
    let removed = program.run(["worktree", "prune", "--json"]).ok().json()["removed"][0].clone();
    assert_cleared(&program);
    assert_eq!(removed["further"].as_array().unwrap().len(), 1);
    assert_eq!(removed["left_out"]["paths"][0]["path"], "x.tmp");
    assert_eq!(cat(&program, &removed["further"][0], ".gitignore"), b"*.log\n*.tmp\n");
}

/// A later removal was asked to hold what is ignored, and was cut off, too.
#[test]
fn what_is_ignored_goes_on_to_be_held_once_it_was() {
    let program = program();
    exec(&program, &[], "echo made > made; mkdir build; echo 1 > build/x").ok();
    let (id, path) = cut(&program, ":");
    assert_eq!(runs(&program, &[])[0]["state"], "removing");
    assert!(program.run(["worktree", "list"]).ok().stdout.contains(" removing "));
    let git = git_that_removes(&program, &path, "exit 128");
    let words = ["worktree", "remove", &id, "--yes", "--ignored"];
    run(program.command(words).env("PATH", git)).exits(1);
    fs::write(path.join("build/x"), "2\n").unwrap();
    let removed = program.run(["worktree", "remove", &id, "--yes", "--json"]).ok().json();
    assert_cleared(&program);
    assert_eq!(removed["left_out"]["files"], 0);
    let further = removed["further"].as_array().unwrap();
    assert_eq!(cat(&program, &further[0], "build/x"), b"1\n");
    assert_eq!(cat(&program, &further[1], "build/x"), b"2\n");
}

/// More was asked of the second removal, and the first had opened a directory: all is in the first checkpoint.
#[test]
fn what_is_held_twice_is_applied() {
    let program = program();
    let script = "echo made > made.txt; mkdir closed; echo 1 > closed/x; chmod 555 closed";
    exec(&program, &[], script).ok();
    let (id, path) = only(&program);
    let script = "eval tree=\\${$#}; rm \"$tree/c.txt\"; exit 128";
    let git = git_that_removes(&program, &path, script);
    let words = ["worktree", "remove", &id, "--yes", "--discard"];
    run(program.command(words).env("PATH", git)).exits(1);
    program.run(["worktree", "remove", &id, "--yes"]).ok();
    assert_cleared(&program);
    let removed = runs(&program, &["--removed"]).pop().unwrap();
    assert_eq!(removed["further"].as_array().unwrap().len(), 1);
    program.run(["worktree", "apply", &id, "--yes"]).ok();
    for name in ["made.txt", "c.txt", "closed/x"] {
        assert!(program.workspace().join(name).exists(), "{name}");
    }
}

/// In a directory of somebody else's.
#[test]
fn what_cannot_be_removed_of_what_is_left_stops_nothing_else_and_is_named() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("NOT TESTED: only root can give a directory to somebody else");
        return;
    }
    let program = program();
    let script = "mkdir -p d/e f g/h; for n in d/1 d/e/2 f/3 g/h/4 z; do echo $n > $n; done";
    exec(&program, &[], script).ok();
    let (id, path) = cut(&program, "rm -r \"$kept\" \"$tree/.git\"");
    let held = runs(&program, &[])[0]["kept"].clone();
    let give = |user: u32| {
        for name in ["d", "g/h"] {
            std::os::unix::fs::chown(path.join(name), Some(user), None).unwrap();
        }
    };
    give(12_345);
    let failed = run(&mut bound(&program, &["worktree", "remove", &id, "--yes"])).exits(1);
    assert!(failed.stderr.contains("3 paths in "), "{}", failed.stderr);
    for name in ["d/1", "d/e", "g/h/4"] {
        let told = format!("  {name}: Permission denied");
        assert!(failed.stderr.contains(&told), "{name}: {}", failed.stderr);
        assert!(path.join(name).exists());
    }
    assert!(failed.stderr.contains("`turnpoint worktree prune` removes the rest"));
    for name in ["d/e/2", "f", "z", "a.txt"] {
        assert!(!path.join(name).exists(), "{name}");
    }
    give(0);
    run(&mut bound(&program, &["worktree", "prune"])).ok();
    assert_cleared(&program);
    let removed = runs(&program, &["--removed"]).pop().unwrap();
    assert_eq!((&removed["kept"], &removed["further"]), (&held, &serde_json::json!([])));
    assert_eq!(cat(&program, &held, "g/h/4"), b"g/h/4\n");
}

/// A link of its own is not taken away, nor what it leads to.
#[test]
fn what_leads_elsewhere_in_what_is_left_is_refused() {
    let program = program();
    for (script, is_link) in
        [("rm -r \"$kept\" \"$tree/.git\"", false), ("rm \"$tree/.git\"", false), (":", true)]
    {
        exec(&program, &[], "echo made > made").ok();
        let (id, path) = cut(&program, script);
        let other = program.root().join("other");
        if is_link {
            fs::rename(path.join(".git"), program.root().join("own")).unwrap();
            fs::create_dir(&other).unwrap();
            symlink(&other, path.join(".git")).unwrap();
        } else {
            let words = ["init", "-q", "--separate-git-dir", other.to_str().unwrap()];
            run(program.other("git").args(words).current_dir(&path)).ok();
        }
        let link = path.join(".git").symlink_metadata().unwrap().ino_and_kind();
        let refused = program.run(["worktree", "prune"]).exits(3);
        let told = "  .git: version control of its own\n";
        assert!(refused.stderr.contains(told), "{script}: {}", refused.stderr);
        assert_eq!(path.join(".git").symlink_metadata().unwrap().ino_and_kind(), link);
        discard(&program, &id);
        assert!(other.exists());
        fs::remove_dir_all(other).unwrap();
    }
}

trait InoAndKind {
    fn ino_and_kind(&self) -> (u64, bool);
}

impl InoAndKind for fs::Metadata {
    fn ino_and_kind(&self) -> (u64, bool) {
        (std::os::unix::fs::MetadataExt::ino(self), self.is_symlink())
    }
}

/// Of one repository git has the commit that is checked out in it.
#[test]
fn a_repository_that_git_tracks_as_one_commit_is_not_held_by_that() {
    let program = program();
    let own = "git add -f .jj && git commit -qm own";
    let repository = "mkdir .jj && cd .jj && git init -q && git commit -qm 1 --allow-empty && \
                      git checkout -qb b && git commit -qm 2 --allow-empty && git checkout -q - && cd ..";
    let run_below = "mkdir -p .turnpoint/worktrees && git init -q .turnpoint/worktrees/b && \
                     git -C .turnpoint/worktrees/b commit -qm 1 --allow-empty && \
                     git add -f .turnpoint && git commit -qm run";
    for (script, name, inside) in [
        (format!("{repository} && {own}"), ".jj", ".jj/.git/refs/heads/b"),
        (run_below.to_owned(), ".turnpoint", ".turnpoint/worktrees/b/.git/HEAD"),
    ] {
        exec(&program, &[], &script).ok();
        let (id, path) = only(&program);
        assert!(path.join(inside).exists());
        let refused = program.run(["worktree", "remove", &id, "--yes"]).exits(3);
        let told = format!("  {name}: version control of its own\n");
        assert!(refused.stderr.contains(&told), "{}", refused.stderr);
        assert!(path.join(inside).exists());
        discard(&program, &id);
    }
}

/// Nobody but root can say how much is in such a directory.
#[test]
fn a_directory_that_may_not_be_looked_into_stays_unless_it_is_given_up() {
    let program = program();
    for (script, told) in [
        ("mkdir d; echo 1 > d/x; chmod 000 d", "  d: unreadable\n"),
        ("mkdir d; echo 1 > d/x; chmod 300 d", "  d: unreadable\n"),
        ("mkdir build; echo 1 > build/x; chmod 000 build", "  build: unreadable\n"),
        ("mkdir target; echo 1 > target/x; chmod 000 target", "  target: excluded\n"),
    ] {
        exec(&program, &[], "true").ok();
        let (id, path) = only(&program);
        run(program.other("sh").args(["-c", script]).current_dir(&path)).ok();
        let words = ["worktree", "remove", &id, "--yes"];
        let refused = run(&mut bound(&program, &words)).exits(3);
        assert!(refused.stderr.contains(told), "{script}: {}", refused.stderr);
        assert!(refused.stderr.contains("gives all of it up"), "{}", refused.stderr);
        assert!(Path::new(&path).join("a.txt").exists());
        let words = ["worktree", "remove", &id, "--yes", "--discard"];
        run(&mut bound(&program, &words)).ok();
        assert_cleared(&program);
    }
}

/// git says nothing of what it may not look into, and tracks something there.
#[test]
fn a_directory_that_may_not_be_looked_into_hides_nothing_beside_what_git_tracks() {
    let program = program();
    for mode in ["000", "300"] {
        let script = format!("mkdir t; echo {mode} > t/a; git add t; git commit -qm t");
        exec(&program, &[], &script).ok();
        let (id, path) = only(&program);
        let script = format!("echo 2 > t/a; echo 2 > t/new; chmod {mode} t");
        run(program.other("sh").args(["-c", &script]).current_dir(&path)).ok();
        let words = ["worktree", "remove", &id, "--yes"];
        let refused = run(&mut bound(&program, &words)).exits(3);
        assert!(refused.stderr.contains("  t: unreadable\n"), "{mode}: {}", refused.stderr);
        fs::set_permissions(path.join("t"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(fs::read_to_string(path.join("t/new")).unwrap(), "2\n");
        run(&mut bound(&program, &words)).ok();
        assert_cleared(&program);
        let removed = runs(&program, &["--removed"]).pop().unwrap();
        for name in ["t/a", "t/new"] {
            assert_eq!(cat(&program, &removed["kept"], name), b"2\n", "{mode} {name}");
        }
    }
}

/// Not even git can say then whether it is a work tree.
#[test]
fn a_work_tree_that_may_not_be_looked_into_stays_until_it_may() {
    let program = program();
    for (script, mode) in
        [("", 0o000), ("", 0o300), (":", 0o000), ("rm -r \"$kept\" \"$tree/.git\"", 0o000)]
    {
        exec(&program, &[], "echo made > made").ok();
        let (id, path) = only(&program);
        if !script.is_empty() {
            cut(&program, script);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let remove = ["worktree", "remove", &id, "--yes"];
        let discard = [&remove[..], &["--discard"]].concat();
        let apply = ["worktree", "apply", &id, "--yes"];
        let all = [&remove[..], &discard, &["worktree", "prune", "--older-than", "0s"], &apply];
        for words in all.into_iter().take(if script.is_empty() { 4 } else { 3 }) {
            let refused = run(&mut bound(&program, words)).exits(3);
            let told = format!("{} may not be looked into\n", path.display());
            assert!(refused.stderr.contains(&told), "{}", refused.stderr);
            let told = format!("`chmod u+rwx {}`, and try again", path.display());
            assert!(refused.stderr.contains(&told), "{}", refused.stderr);
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(fs::read_to_string(path.join("made")).unwrap(), "made\n");
        run(&mut bound(&program, &remove)).ok();
        assert_cleared(&program);
        let removed = runs(&program, &["--removed"]).pop().unwrap();
        assert_eq!(cat(&program, &removed["kept"], "made"), b"made\n");
    }
}
