//! `worktree apply`: shown, asked for, told, and taken back.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::ground::{ground, of_git};
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};
use crate::worktree::{exec, only, program};

/// What the commands print that a refusal names for both sides, pasted into a shell at `directory`.
#[track_caller]
pub(crate) fn shown(program: &Program, refused: &Run, directory: &Path) -> [String; 2] {
    let commands = refused.commands();
    let diffs: Vec<&String> =
        commands.iter().filter(|command| command.starts_with("turnpoint diff ")).collect();
    assert_eq!(diffs.len(), 2, "{}", refused.stderr);
    [diffs[0], diffs[1]].map(|command| program.paste(command, directory).ok().stdout)
}

#[test]
fn a_run_is_shown_and_applied_only_with_a_yes() {
    let program = program();
    let before = ground(&program);
    let script = "echo made > made.txt; echo one more >> a.txt; git rm -q src/b.txt c.txt; \
                  git commit -qm 'of the run'; mkdir -p src; echo two > src/b.txt";
    exec(&program, &[], script).ok();
    let (id, _) = only(&program);
    let words = ["worktree", "apply", &id];
    // Nobody is there to be asked: what would be done is said, and nothing is done.
    let refused = program.run(words).exits(3);
    let plan = [
        format!("apply what run {id} changed, as "),
        "1 to create, 1 to overwrite, 1 to delete".to_owned(),
        "create\n  made.txt\n".to_owned(),
        "overwrite\n  a.txt\n".to_owned(),
        "delete\n  c.txt\n".to_owned(),
    ];
    for text in &plan {
        assert!(refused.stdout.contains(text), "{text}: {}", refused.stdout);
    }
    assert!(refused.stderr.contains(&format!("applying what run {id} changed needs a yes")));
    assert!(refused.stderr.contains("add --yes"), "{}", refused.stderr);
    let dry = program.run([&words[..], &["--dry-run"]].concat()).ok();
    assert_eq!(dry.stdout, refused.stdout);
    let planned = program.run([&words[..], &["--dry-run", "--json"]].concat()).ok().json();
    assert_eq!((&planned["run"], &planned["dry_run"]), (&json!(id), &json!(true)));
    assert_eq!(planned["create"], json!([{"path": "made.txt", "kind": "file"}]));
    assert_eq!(planned["safety"], Value::Null);
    assert_eq!(ground(&program), before);
    let listed = program.run(["worktree", "list", "--json"]).ok().json();
    assert_eq!(listed["runs"][0]["applied"], Value::Null);

    // From below the top, too. src/b.txt was changed here and not there: it stays.
    let git = of_git(ground(&program));
    let mut command = program.command([&words[..], &["--yes"]].concat());
    command.current_dir(program.workspace().join("src"));
    let applied = run(&mut command).ok();
    let root = program.workspace();
    let done = format!(
        "applied what run {id} changed to {}: 1 created, 1 overwritten, 1 deleted\n",
        root.display()
    );
    assert!(applied.stdout.starts_with(&done), "{}", applied.stdout);
    assert!(applied.stdout.contains("`turnpoint undo` takes this back"), "{}", applied.stdout);
    assert_eq!(
        applied.stderr,
        format!("hint: `turnpoint worktree remove {id}` removes its work tree\n")
    );
    assert_eq!(fs::read_to_string(root.join("a.txt")).unwrap(), "one\none more\n");
    assert_eq!(fs::read_to_string(root.join("src/b.txt")).unwrap(), "changed\n");
    assert!(root.join("made.txt").exists() && !root.join("c.txt").exists());
    // What is staged stays staged, and no commit comes here.
    assert_eq!(of_git(ground(&program)), git);
    let status = program.git(["--no-optional-locks", "status", "--porcelain"]);
    assert_eq!(status, " M a.txt\n D c.txt\nMM src/b.txt\n?? made.txt\n?? new.txt");

    // Once it was done that is to be seen, also when it is taken back.
    let listed = || program.run(["worktree", "list", "--json"]).ok().json()["runs"][0].clone();
    let target =
        program.run(["operations", "--json"]).ok().json()["operations"][0]["target"].clone();
    assert_eq!((&listed()["applied"], &listed()["state"]), (&target, &json!("ended")));
    let shown = program.run(["worktree", "list"]).ok().stdout;
    assert!(shown.contains(&format!("{id}  ended, applied  ")), "{shown}");

    let again = program.run([&words[..], &["--yes", "--json"]].concat()).ok().json();
    assert_eq!((&again["changed"], &again["safety"]), (&json!(0), &Value::Null));
    let nothing = program.run([&words[..], &["--yes"]].concat()).ok();
    assert_eq!(
        nothing.stdout,
        format!("nothing to apply to {}: it has all that run {id} changed\n", root.display())
    );
    program.run(["undo", "--yes", "-q"]).ok();
    assert_eq!(ground(&program), before);
    assert_eq!(listed()["applied"], target);
    let log = program.run(["operations", "--json"]).ok().json();
    let verbs: Vec<&Value> =
        log["operations"].as_array().unwrap().iter().map(|it| &it["verb"]).collect();
    assert_eq!(verbs, ["apply", "undo"]);
}

#[test]
fn what_stands_against_it_is_named_and_nothing_is_written() {
    let program = program();
    exec(&program, &[], "echo theirs > src/b.txt; echo made > made.txt").ok();
    let (id, _) = only(&program);
    let before = ground(&program);
    for words in [vec!["--dry-run"], vec!["--yes"]] {
        let refused = program.run([&["worktree", "apply", &id], &words[..]].concat()).exits(3);
        let told = "src/b.txt: the same lines were changed here, or lines beside them";
        assert!(refused.stderr.contains(told), "{}", refused.stderr);
        assert!(refused.stderr.contains("nothing was written"), "{}", refused.stderr);
        assert!(refused.stderr.contains("`turnpoint cat "), "{}", refused.stderr);
    }
    // As they are told: at the root of the workspace, and for whoever stands elsewhere.
    let root = program.workspace();
    let apply = ["worktree", "apply", &id, "--yes"];
    let refused = program.run(apply).exits(3);
    let named = [&["-C", root.to_str().unwrap()][..], &apply].concat();
    let elsewhere = run(program.command(named).current_dir("/")).exits(3);
    for (refused, directory) in [(refused, &*root), (elsewhere, Path::new("/"))] {
        let [there, here] = shown(&program, &refused, directory);
        assert!(there.contains("\n-two\n+theirs\n"), "{there}");
        assert!(here.contains("\n-two\n+changed\n"), "{here}");
    }
    let refused = program.run(["worktree", "apply", &id, "--yes", "--json"]).exits(3);
    let error: Value = serde_json::from_str(&refused.stderr).unwrap();
    assert_eq!(error["code"], "apply-conflicts");
    assert_eq!(error["paths"][0]["path"], "src/b.txt");
    assert_eq!(error["free"], json!([{"path": "made.txt"}]));
    assert_eq!(ground(&program), before);
    assert!(!program.workspace().join("made.txt").exists());
    // The rest comes by the command that is told, and all of it is not taken for applied then.
    let rest = |refused: Run| {
        let mut commands = refused.commands().into_iter();
        commands.find(|command| command.contains(" worktree apply ")).unwrap()
    };
    let here = rest(program.run(apply).exits(3));
    assert_eq!(here, format!("turnpoint worktree apply {id} made.txt"));
    let named = [&["-C", root.to_str().unwrap()][..], &apply].concat();
    let rest = rest(run(program.command(named).current_dir("/")).exits(3));
    assert_eq!(rest, format!("turnpoint -C {} worktree apply {id} made.txt", root.display()));
    program.paste(&format!("{rest} --yes"), Path::new("/")).ok();
    assert_eq!(fs::read_to_string(root.join("made.txt")).unwrap(), "made\n");
    assert_eq!(fs::read_to_string(root.join("src/b.txt")).unwrap(), "changed\n");
    let listed = program.run(["worktree", "list", "--json"]).ok().json();
    assert_eq!(listed["runs"][0]["applied"], Value::Null);
    program.run(["undo", "--yes", "-q"]).ok();
    assert_eq!(ground(&program), before);
    // From below the work tree of the run too, as it is named there.
    let mut below = program.command(["worktree", "apply", &id, "../made.txt", "--dry-run"]);
    let below = run(below.current_dir(root.join(format!(".turnpoint/worktrees/{id}/src")))).ok();
    assert!(below.stdout.contains("changed at these paths, as "), "{}", below.stdout);
    assert!(below.stdout.contains("\ncreate\n  made.txt\n"), "{}", below.stdout);
    let none = program.run(["worktree", "apply", &id, "c.txt", "--yes"]).ok().stdout;
    assert!(none.ends_with("changed at these paths\n"), "{none}");
    let gone = program.run(["worktree", "apply", &id, "gone.txt", "--yes", "--json"]).exits(2);
    assert!(gone.stderr.contains("\"code\": \"path-not-found\""), "{}", gone.stderr);
    assert_eq!(ground(&program), before);
    // With the change of here given up all of it comes.
    build(&program.workspace(), [("src/b.txt", file("two\n"))]);
    program.run(["worktree", "apply", &id, "--yes"]).ok();
    let read = fs::read_to_string(program.workspace().join("src/b.txt")).unwrap();
    assert_eq!(read, "theirs\n");
}

#[test]
fn a_run_that_is_not_there_is_said_to_be_none_or_applied_from_what_is_held() {
    let program = program();
    let none = program.run(["worktree", "apply", "01234567", "--yes"]).exits(2);
    assert!(none.stderr.contains("there is no run 01234567"), "{}", none.stderr);
    // It failed, so its work tree is gone; what it made is held, and may be wanted all the same.
    exec(&program, &[], "echo made > made.txt; exit 3").exits(3);
    let removed = program.run(["worktree", "list", "--removed", "--json"]).ok().json();
    let id = removed["runs"][0]["run"].as_str().unwrap();
    assert_eq!(removed["runs"][0]["checkout"]["path"], program.workspace().to_str().unwrap());
    let applied = program.run(["worktree", "apply", id, "--yes"]).ok();
    assert_eq!(applied.stderr, "");
    assert!(program.workspace().join("made.txt").exists());
    let listed = program.run(["worktree", "list", "--removed"]).ok().stdout;
    let kept = &removed["runs"][0]["kept"];
    let line =
        format!("\n  {}:{} of it was applied\n", kept["session"].as_str().unwrap(), kept["seq"]);
    assert!(listed.contains(&line), "{listed}");
}

#[test]
fn what_there_is_of_a_removed_run_is_told_where_it_is_asked_for() {
    let program = program();
    exec(&program, &[], "echo made > made.txt; exit 3").exits(3);
    let removed = program.run(["worktree", "list", "--removed", "--json"]).ok().json();
    let [kept, before] = ["kept", "before"].map(|which| removed["runs"][0][which].clone());
    let session = kept["session"].as_str().unwrap();
    let kept = format!("{session}:{}", kept["seq"]);
    let found = program.run(["find", "made.txt"]).ok();
    let next = format!("`turnpoint find made.txt --session {session}`");
    assert!(found.stderr.contains(&next), "{}", found.stderr);
    let found = program.run(["find", "made.txt", "--session", session]).ok();
    assert!(found.stdout.contains(&kept), "{}", found.stdout);
    assert!(!found.stderr.contains("removed runs"), "{}", found.stderr);
    let refused = program.run(["restore", &kept, "made.txt", "--yes"]).exits(3);
    assert!(!refused.stderr.contains("run it with -C"), "{}", refused.stderr);
    let next = format!("turnpoint restore {kept} PATH --into . --overlay");
    assert!(refused.stderr.contains(&next), "{}", refused.stderr);
    let next = ["restore", &kept, "made.txt", "--into", ".", "--overlay", "--yes"];
    program.run(next).ok();
    let made = program.workspace().join("made.txt");
    assert_eq!(fs::read_to_string(made).unwrap(), "made\n");

    let listed = program.run(["worktree", "list", "--removed"]).ok();
    assert!(!listed.stdout.contains("cannot be applied"), "{}", listed.stdout);
    assert!(listed.stderr.contains("worktree apply RUN"), "{}", listed.stderr);
    fs::remove_file(program.store().join(format!("{session}/{}.json", before["seq"]))).unwrap();
    let listed = program.run(["worktree", "list", "--removed"]).ok();
    assert!(listed.stdout.contains("it cannot be applied any more"), "{}", listed.stdout);
    assert!(!listed.stderr.contains("worktree apply"), "{}", listed.stderr);
}
