//! `doctor` finds what is wrong, says what to do, and repairs without losing anything. Each thing is
//! brought about from outside, with the tools of the system.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::fingerprint;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// Two checkpoints of session `s`; `a.txt` was `one` in the first.
fn captured() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one\n")), ("sub/b.txt", file("two\n"))]);
    program.run(["capture", "--session", "s"]).ok();
    fs::write(program.workspace().join("a.txt"), "changed\n").unwrap();
    program.run(["capture", "--session", "s"]).ok();
    program
}

/// Runs a script with the store in `$S`, the workspace in `$W` and the program in `$T`.
#[track_caller]
fn sh(program: &Program, script: &str) -> Run {
    let mut command = program.other("sh");
    command.args(["-ec", script]).env("S", program.store()).env("W", program.workspace());
    run(command.env("T", env!("CARGO_BIN_EXE_turnpoint")))
}

#[track_caller]
fn doctor(program: &Program, arguments: &[&str]) -> Value {
    let run = program.run([&["doctor", "--json"], arguments].concat());
    let json = run.json();
    let findings = json["findings"].as_array().unwrap();
    let has_problem = findings.iter().any(|finding| finding["severity"] == "problem");
    assert_eq!(json["ok"], !has_problem);
    run.exits(if has_problem { 4 } else { 0 });
    json
}

fn ids(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

/// What checkpoints `s:0` and `s:1` restore.
#[track_caller]
fn restored(program: &Program) -> [fingerprint::Fingerprint; 2] {
    ["s:0", "s:1"].map(|id| {
        let into = program.root().join("into");
        program.run(["restore", id, "--into", into.to_str().unwrap()]).ok();
        let restored = fingerprint::of(&into);
        fs::remove_dir_all(&into).unwrap();
        restored
    })
}

/// Every name in the store with what a listing shows of it.
fn listing(program: &Program) -> String {
    // SQLite counts its readers in the shared memory.
    let shown = "find \"$S\" ! -name index.db-shm -printf '%P %m %s %T@\\n' | LC_ALL=C sort";
    sh(program, shown).ok().stdout
}

#[test]
fn a_sound_store_is_told_in_one_line_and_is_not_touched() {
    let program = captured();
    program.run(["doctor"]).ok();
    let before = listing(&program);
    let run = program.run(["doctor"]).ok();
    let line = "all is well: 2 checkpoints; `turnpoint verify --read-data` reads every byte\n";
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (line, ""));
    assert!(line.len() <= 80);
    assert_eq!(program.run(["doctor", "--quiet"]).ok().stdout, "");
    let json = doctor(&program, &[]);
    assert_eq!(json["findings"], Value::Array(vec![]));
    assert!(json["sqlite"].as_str().unwrap().starts_with("3."));
    assert_eq!(json["checkpoints"], 2);
    assert_eq!(listing(&program), before);
    let fixed = doctor(&program, &["--fix"]);
    assert_eq!((&fixed["fixed"], &fixed["findings"]), (&json["findings"], &json["findings"]));
    assert_eq!(listing(&program), before);
}

const ID: &str = "0123456789abcdef0123456789abcdef";

/// What is brought about, by which script, whether it is a problem, and what `--fix` leaves of it.
#[rustfmt::skip]
const CASES: &[(&str, &str, &str, &str)] = &[
    ("permissions-open", "problem", "", "chmod 0755 \"$S\" \"$S\"/blobs/00; chmod 0644 \"$S\"/s/0.json"),
    ("permissions-missing", "note", "permissions-missing", "chmod 0400 \"$S\"/s/0.json"),
    ("directory-missing", "problem", "", "rmdir \"$S\"/leases"),
    ("index-missing", "note", "index-aside?", "rm \"$S\"/index.db*"),
    ("index-damaged", "problem", "index-aside", "sqlite3 \"$S\"/index.db 'UPDATE blobs SET refs = refs + 1'"),
    ("index-unfinished", "note", "index-aside", "touch \"$S\"/index.db.new; chmod 0600 \"$S\"/index.db.new"),
    ("checkpoint-unindexed", "note", "",
     "sqlite3 \"$S\"/index.db 'PRAGMA wal_checkpoint(TRUNCATE)'; cp -p \"$S\"/index.db \"$S\"/../old
      echo 3 > \"$W\"/a.txt; \"$T\" capture -q --session s
      rm \"$S\"/index.db*; mv \"$S\"/../old \"$S\"/index.db"),
    ("operation-dead", "note", "",
     "echo 3 > \"$W\"/a.txt
      strace -f -o /dev/null -e trace=renameat2 -e inject=renameat2:signal=KILL:when=1 \
          \"$T\" capture --session s && exit 1; true"),
    ("operation-foreign", "note", "operation-foreign",
     "sqlite3 \"$S\"/index.db \"INSERT INTO operations (id, kind, machine, boot, started_at_ns)
      VALUES (x'0123456789abcdef0123456789abcdef', 'capture', zeroblob(16), x'ffffffffffffffffffffffffffffffff', 1)\""),
    ("lease-dead", "note", "", "umask 077; touch \"$S\"/leases/$ID"),
    ("temporary-left", "note", "", "umask 077; mkdir \"$S\"/tmp/$ID; touch \"$S\"/tmp/$ID/x"),
    ("ballast-missing", "note", "", "rm \"$S\"/ballast"),
    ("format-damaged", "problem", "quarantine-kept", "echo '{' > \"$S\"/format.json"),
    ("session-unreadable", "problem", "damaged-kept", "umask 077; echo x > \"$S\"/s/session.json"),
    ("workspace-unreadable", "problem", "damaged-kept", "for f in \"$S\"/workspaces/*/workspace.json; do echo x > \"$f\"; done"),
    ("workspace-empty", "note", "", "umask 077; mkdir \"$S\"/workspaces/$ID"),
    ("stage-left", "note", "stage-left", "mkdir -p \"$W\"/.turnpoint/stage-00"),
    ("index-aside", "note", "index-aside", "umask 077; touch \"$S\"/index.db.aside"),
    ("damaged-kept", "note", "damaged-kept", "umask 077; touch \"$S\"/s/0.json.damaged-2"),
    ("quarantine-kept", "note", "quarantine-kept", "umask 077; echo kept > \"$S\"/quarantine/x"),
    ("name-unknown", "note", "name-unknown", "umask 077; touch \"$S\"/s/\"$(printf 'a\\033[2J\\nb\\377')\""),
    ("content-unneeded", "note", "content-unneeded",
     "umask 077; H=abababababababababababababababababababababababababababababababab
      echo x > \"$S\"/blobs/ab/$H; touch -d '2 hours ago' \"$S\"/blobs/ab/$H"),
    ("time-ahead", "note", "time-ahead", "touch -d '+2 hours' \"$S\"/s/0.json"),
    ("directory-unreadable", "problem", "directory-unreadable", "umask 077; touch \"$S\"/notes"),
    ("index-unavailable", "problem", "index-unavailable", "sqlite3 \"$S\"/index.db 'PRAGMA application_id = 1'"),
];

#[test]
fn each_thing_is_found_and_repaired_as_far_as_nothing_is_lost() {
    for (id, severity, left, script) in CASES {
        let program = captured();
        let before = restored(&program);
        sh(&program, &format!("ID={ID}\n{script}")).ok();
        let found = doctor(&program, &[]);
        assert_eq!(ids(&found["findings"]), [*id], "{found:#}");
        let finding = &found["findings"][0];
        assert_eq!(finding["severity"], *severity);
        let path = finding["path"].as_str().unwrap();
        assert!(path.starts_with(program.root().to_str().unwrap()), "{path}");
        for field in ["message", "next"] {
            let text = finding[field].as_str().unwrap();
            assert!(!text.is_empty() && !text.ends_with('.'), "{id}: {text}");
        }
        // Whoever only looks has changed nothing, and is told the same again.
        assert_eq!(doctor(&program, &[]), found);
        if *id == "index-unavailable" {
            // Not ours to decide: the file may be another program's.
            program.run(["doctor", "--fix"]).exits(4);
            continue;
        }
        let fixed = doctor(&program, &["--fix"]);
        let is_fixed = !left.starts_with(id);
        assert_eq!(ids(&fixed["fixed"]).contains(&(*id).to_owned()), is_fixed, "{fixed:#}");
        let kept = ids(&fixed["findings"]);
        assert!(kept.iter().all(|kept| left.starts_with(kept.as_str())), "{id}: {fixed:#}");
        // The second finds nothing that the first could have repaired.
        let again = doctor(&program, &["--fix"]);
        assert_eq!(again["fixed"], Value::Array(vec![]), "{id}");
        assert_eq!(again["findings"], fixed["findings"]);
        assert_eq!(restored(&program), before, "{id}");
        if is_fixed {
            program.run(["verify", "--read-data"]).ok();
            program.run(["capture", "--session", "s"]).ok();
        }
    }
}

#[test]
fn what_others_may_do_is_taken_away_everywhere() {
    let program = captured();
    sh(&program, "chmod -R a+rwX \"$S\"").ok();
    program.run(["capture"]).exits(3);
    let found = doctor(&program, &[]);
    assert_eq!(ids(&found["findings"]), ["permissions-open"]);
    doctor(&program, &["--fix"]);
    let open = sh(&program, "find \"$S\" -perm /077; find \"$S\" ! -perm -600").ok();
    assert_eq!(open.stdout, "");
    program.run(["capture"]).ok();
}

#[test]
fn what_belongs_to_somebody_else_is_told() {
    let program = captured();
    // Only root can give a file away.
    if sh(&program, "chown 12345 \"$S\"/s/0.json").code != 0 {
        return;
    }
    let found = doctor(&program, &["--fix"]);
    assert_eq!(ids(&found["findings"]), ["owner-foreign"]);
    assert_eq!(found["findings"][0]["message"], "it belongs to user 12345, not to user 0");
}

#[test]
fn a_name_that_a_terminal_would_act_on_is_shown_harmless() {
    let program = captured();
    sh(&program, "umask 077; touch \"$S\"/s/\"$(printf 'a\\033[2J\\nb\\377')\"").ok();
    let shown = program.run(["doctor"]).ok();
    assert!(!shown.stdout.contains('\u{1b}'), "{}", shown.stdout);
    assert!(shown.stdout.contains("\n  s/a\\u{1b}[2J\\nb\\xFF\n"), "{}", shown.stdout);
    // The command that is named is one that finds it.
    let json = doctor(&program, &[]);
    let next = json["findings"][0]["next"].as_str().unwrap();
    let command = next.split('`').nth(1).unwrap();
    run(program.other("bash").args(["-c", command])).ok();
}

#[test]
fn a_process_that_has_the_store_to_itself_is_not_waited_for() {
    let program = captured();
    let begun = Instant::now();
    let script = "flock -x \"$S\"/locks/store.lock \"$T\" doctor --json";
    let json = sh(&program, script).ok().json();
    assert_eq!(ids(&json["findings"]), ["store-busy"]);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn little_room_is_told() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one\n"))]);
    let script = "mkdir -m 0700 \"$TURNPOINT_HOME\"
        mount -t tmpfs -o size=40m,mode=0700 tmpfs \"$TURNPOINT_HOME\"
        \"$T\" capture -q
        \"$T\" doctor --json || test $? = 4";
    let mut command = program.other("unshare");
    command.args(["--mount", "--propagation", "private"]);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["sh", "-ec", script]).env("T", env!("CARGO_BIN_EXE_turnpoint"));
    let json = run(&mut command).ok().json();
    assert_eq!(ids(&json["findings"]), ["space-low"], "{json:#}");
    assert!(json["findings"][0]["bytes"].as_u64().unwrap() < 40 << 20);
}

/// Kills a restore of `s:0` at one call of renameat2 after the other until doctor finds `wanted`.
fn killed_restore(wanted: &str) -> (Program, Value) {
    for at in 1..40 {
        let program = captured();
        let inject = format!("inject=renameat2:signal=KILL:when={at}");
        let strace = ["strace", "-f", "-o", "/dev/null", "-e", "trace=renameat2", "-e", &inject];
        if run(&mut program.under(&strace, ["restore", "s:0", "--yes"])).code == 0 {
            break;
        }
        let found = doctor(&program, &[]);
        if ids(&found["findings"]).iter().any(|id| id == wanted) {
            return (program, found);
        }
    }
    panic!("no death of a restore left {wanted}");
}

#[test]
fn a_restore_that_changed_nothing_is_discarded_and_another_is_not() {
    let (program, _) = killed_restore("restore-discardable");
    let workspace = || fs::read_to_string(program.workspace().join("a.txt")).unwrap();
    let before = workspace();
    let fixed = doctor(&program, &["--fix"]);
    assert!(ids(&fixed["fixed"]).contains(&"restore-discardable".to_owned()), "{fixed:#}");
    assert_eq!((&fixed["findings"], workspace()), (&Value::Array(vec![]), before));
    assert!(!program.workspace().join(".turnpoint").exists());
    program.run(["undo", "--yes"]).exits(2);

    let (program, found) = killed_restore("restore-half-applied");
    let kind = "restore-half-applied";
    let tree = || fingerprint::of(&program.workspace());
    let before = tree();
    let fixed = doctor(&program, &["--fix"]);
    assert_eq!(ids(&fixed["findings"]), [kind], "{fixed:#}");
    assert_eq!(tree(), before);
    let of = |json: &Value| {
        let all = json["findings"].as_array().unwrap().iter();
        all.clone().find(|it| it["id"] == kind).unwrap()["next"].as_str().unwrap().to_owned()
    };
    assert_eq!(of(&fixed), of(&found));
    let text = of(&fixed);
    let command = text.split('`').nth(1).unwrap().strip_prefix("turnpoint ").unwrap();
    sh(&program, &format!("\"$T\" {command}")).ok();
    assert_eq!(fs::read_to_string(program.workspace().join("a.txt")).unwrap(), "one\n");
    assert_eq!(doctor(&program, &[])["findings"], Value::Array(vec![]));
}

#[test]
fn a_restore_whose_workspace_is_elsewhere_is_told_and_left() {
    let (program, _) = killed_restore("restore-half-applied");
    let away = program.root().join("away");
    fs::rename(program.workspace(), &away).unwrap();
    fs::create_dir(program.workspace()).unwrap();
    let fixed = doctor(&program, &["--fix"]);
    assert_eq!(ids(&fixed["findings"]), ["restore-out-of-reach"], "{fixed:#}");
    fs::remove_dir(program.workspace()).unwrap();
    let mut command = program.command(["doctor", "--json"]);
    let gone = run(command.current_dir(program.root())).ok().json();
    assert_eq!(ids(&gone["findings"]), ["restore-out-of-reach"]);
    fs::rename(&away, program.workspace()).unwrap();
    program.run(["restore", "--continue"]).ok();
    assert_eq!(doctor(&program, &[])["findings"], Value::Array(vec![]));
}

#[test]
fn lost_content_is_named_with_what_heals_it() {
    let program = captured();
    fs::write(program.workspace().join("a.txt"), "one\n").unwrap();
    let lose = "for f in \"$S\"/blobs/*/*; do if zstd -dcq \"$f\" | grep -qx one; then rm \"$f\"; fi; done";
    sh(&program, lose).ok();
    let found = doctor(&program, &["--fix"]);
    assert_eq!(ids(&found["findings"]), ["blob-missing"], "{found:#}");
    assert_eq!(found["findings"][0]["checkpoints"][0]["seq"], 0);
    assert!(found["findings"][0]["message"].as_str().unwrap().contains("`a.txt`"));
    program.run(["capture"]).ok();
    assert_eq!(doctor(&program, &[])["findings"], Value::Array(vec![]));
    restored(&program);
}

#[test]
fn what_is_found_fits_a_terminal_of_eighty_columns() {
    let program = captured();
    sh(&program, "umask 077; rm \"$S\"/ballast; touch \"$S\"/s/x; chmod 0755 \"$S\"").ok();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/terminal.py");
    let mut command = program.other("python3");
    command.arg(script).args(["80", "", "", "", env!("CARGO_BIN_EXE_turnpoint"), "doctor"]);
    let shown = run(command.env("TERM", "xterm")).exits(4).stdout;
    // A path is one word, and is not broken; nor is a command.
    let is_one = |line: &str| {
        let command = line.strip_prefix('`').and_then(|line| line.strip_suffix('`'));
        command.is_some_and(|command| !command.contains('`')) || !line.contains(' ')
    };
    let long = |line: &&str| line.chars().count() > 80 && !is_one(line.trim());
    let plain = shown.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "").replace('\r', "");
    let lines: Vec<&str> = plain.lines().collect();
    assert!(lines.contains(&"problem: permissions-open"), "{plain}");
    assert_eq!(lines.iter().copied().filter(|line| long(line)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn every_kind_of_finding_is_described() {
    let text = include_str!("../../docs/cli.md");
    let described: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
        .filter_map(|(id, rest)| Some((id, rest.split(" | ").next()?)))
        .collect();
    for (id, severity, ..) in CASES {
        assert_eq!(described.get(id), Some(severity), "{id}");
    }
}

/// What is in the store's directory and not of the store is nobody's to change.
#[test]
fn what_is_no_part_of_the_store_is_left_alone() {
    let program = captured();
    let script = "mkdir -m 755 \"$S\"/blobs/notes; printf mine > \"$S\"/blobs/notes/a; \
                  chmod 755 \"$S\"/blobs/notes/a; printf mine > \"$S\"/packs/README; \
                  chmod 755 \"$S\"/packs/README; stat -c '%a %n' \"$S\"/blobs/notes/a \"$S\"/packs/README";
    let before = sh(&program, script).ok().stdout;
    sh(&program, "chmod 755 \"$S\"/s/0.json").ok();
    let fixed = doctor(&program, &["--fix"]);
    assert_eq!(ids(&fixed["fixed"]), ["permissions-open"], "{fixed:#}");
    sh(&program, "test $(stat -c %a \"$S\"/s/0.json) = 600").ok();
    let after =
        sh(&program, "stat -c '%a %n' \"$S\"/blobs/notes/a \"$S\"/packs/README").ok().stdout;
    assert_eq!(after, before);
    assert!(before.starts_with("755 "), "{before}");
}

/// What is in the place of one of the store's directories is told, and nobody waits for it.
#[test]
fn what_is_in_the_place_of_a_directory_is_told_and_left() {
    let put = ["mkfifo", "umask 077; touch", "ln -s /nowhere"];
    for (directory, put) in
        ["packs", "tmp", "blobs", "quarantine"].into_iter().zip(put.into_iter().cycle())
    {
        let program = captured();
        let before = restored(&program);
        sh(&program, &format!("mv \"$S\"/{directory} \"$W\"/../aside; {put} \"$S\"/{directory}"))
            .ok();
        for fix in [&[][..], &["--fix"]] {
            let found = doctor(&program, fix);
            assert_eq!(ids(&found["findings"]), ["directory-unreadable"], "{found:#}");
            let path = program.store().join(directory);
            assert_eq!(found["findings"][0]["path"], path.to_str().unwrap());
        }
        if directory != "quarantine" {
            program.run(["capture", "--session", "s"]).exits(1);
        }
        sh(&program, &format!("rm \"$S\"/{directory}; mv \"$W\"/../aside \"$S\"/{directory}")).ok();
        program.run(["doctor"]).ok();
        assert_eq!(restored(&program), before);
    }
}
