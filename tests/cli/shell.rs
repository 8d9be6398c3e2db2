//! Completion in bash, and manual pages.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::fingerprint;
use crate::support::program::{Program, run};
use crate::support::tree::{build, file};

/// A workspace with two sessions and one more that is another's; turnpoint is on the PATH of `bash`.
fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    let files = [
        ("a.txt", file("one")),
        ("src/main.rs", file("m")),
        ("src/with space$x.rs", file("s")),
        ("gone.txt", file("g")),
        (".env", file("KEY=1")),
    ];
    build(&root, files);
    program.run(["capture", "--session", "fix-login", "--label", "before it"]).ok();
    fs::remove_file(root.join("gone.txt")).unwrap();
    program.run(["capture", "--session", "fix-login"]).ok();
    program.run(["capture", "--session", "feature", "--label", "later"]).ok();
    fs::create_dir(program.root().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_turnpoint"), program.root().join("bin/turnpoint")).unwrap();
    program
}

/// What bash would put in place of the word under the cursor, at the end of `line`.
fn completed(program: &Program, line: &str) -> Vec<String> {
    let script = r#"
        source <(turnpoint completions bash)
        complete -p turnpoint | grep -q -- '-F _turnpoint turnpoint' || exit 9
        COMP_LINE=$1 COMP_POINT=${#1}
        _turnpoint turnpoint 2>/dev/null
        (( ${#COMPREPLY[@]} )) && printf '%s\n' "${COMPREPLY[@]}"
        exit 0
    "#;
    let path = format!("{}/bin:{}", program.root().display(), std::env::var("PATH").unwrap());
    let mut bash = program.other("bash");
    bash.args(["--norc", "-c", script, "bash", line]).env("PATH", path);
    run(&mut bash).ok().stdout.lines().map(str::to_owned).collect()
}

#[test]
fn bash_offers_what_can_come_next() {
    let program = program();
    for (line, expected) in [
        ("turnpoint unp", &["unpin"][..]),
        ("turnpoint checkpoints ", &["list", "restore", "help"]),
        ("turnpoint diff --st", &["--stat"]),
        ("turnpoint --color ", &["auto", "always", "never"]),
        ("turnpoint list --color=al", &["always"]),
        ("turnpoint completions ", &["bash", "zsh", "fish"]),
        ("turnpoint show ", &["latest", "feature", "fix-login"]),
        ("turnpoint show fi", &["fix-login"]),
        ("turnpoint show late", &["latest"]),
        ("turnpoint show latest", &["latest", "latest~1", "latest~2"]),
        ("turnpoint show latest~", &["latest~1", "latest~2"]),
        ("turnpoint show --session fix-login latest", &["latest", "latest~1"]),
        ("turnpoint config get capture.f", &["capture.file_limit"]),
        ("turnpoint config get capture.file_limit ", &[]),
        ("turnpoint config list --long capture.f", &["capture.file_limit"]),
        ("turnpoint show fix-login ", &["1", "0"]),
        ("turnpoint show fix-login:", &["1", "0"]),
        ("turnpoint show FIX-LOGIN ", &["1", "0"]),
        ("turnpoint show nothing:", &[]),
        ("turnpoint show @", &["@later", "@before\\ it"]),
        ("turnpoint list --session f", &["feature", "fix-login"]),
        ("turnpoint list fe", &["feature"]),
        ("turnpoint restore --session=fi", &["fix-login"]),
        ("turnpoint show --session fix-login ", &["1", "0"]),
        ("turnpoint diff fix-login 0 ", &["1", "0", "a.txt", "gone.txt", "src/"]),
        ("turnpoint cat fix-login 0 ", &["a.txt", "gone.txt", "src/"]),
        ("turnpoint cat fix-login:1 ", &["a.txt", "src/"]),
        ("turnpoint cat latest src/m", &["src/main.rs"]),
        ("turnpoint cat latest src/w", &["src/with\\ space\\$x.rs"]),
        ("turnpoint cat latest src/with\\ s", &["src/with\\ space\\$x.rs"]),
        ("turnpoint restore --at 1s ./src/", &["./src/main.rs", "./src/with\\ space\\$x.rs"]),
        ("turnpoint restore latest -- g", &[]),
        ("turnpoint -C .. restore latest ", &[]),
        ("turnpoint log s", &[]),
        ("turnpoint cat latest 'src/", &[]),
        ("turnpoint nonsense ", &[]),
    ] {
        assert_eq!(completed(&program, line), expected, "{line}");
    }
    let commands = completed(&program, "turnpoint ");
    assert!(commands.len() > 20 && !commands.contains(&"complete".to_owned()), "{commands:?}");
}

#[test]
fn the_other_shells_get_words_and_what_they_are() {
    let program = program();
    let offered = |shell: &str, words: &[&str]| {
        program.run([&["complete", "--shell", shell, "--"], words].concat()).ok().stdout
    };
    for shell in ["zsh", "fish"] {
        assert_eq!(offered(shell, &["unp"]), "unpin\tUnpin a checkpoint\n");
        // A period within a word ends no sentence.
        let about = "Names left out unless git tracks them, beside `target/`, `node_modules/`, `dist/` and \
                     `store.db`";
        let settings = offered(shell, &["config", "get", "capture.exclu"]);
        assert_eq!(settings, format!("capture.exclude\t{about}\n"));
        let seqs = offered(shell, &["show", "fix-login:"]);
        let mut lines = seqs.lines();
        assert!(lines.next().unwrap().starts_with("fix-login:1\t"), "{seqs}");
        assert!(lines.next().unwrap().ends_with("manual, before it"), "{seqs}");
        assert_eq!(offered(shell, &["cat", "latest", "src/with"]), "src/with space$x.rs\n");
        let script = program.run(["completions", shell]).ok().stdout;
        assert!(script.contains(&format!("turnpoint complete --shell {shell} -- ")), "{script}");
    }
    // A number alone is of the session that the variable names.
    let words = ["complete", "--shell", "fish", "--", "cat", "0", "go"];
    let mut named = program.command(words);
    assert_eq!(run(named.env("TURNPOINT_SESSION", "fix-login")).ok().stdout, "gone.txt\n");
    assert_eq!(program.run(words).ok().stdout, "");
    let document = program.run(["completions", "zsh", "--json"]).ok().json();
    assert_eq!(document["script"], program.run(["completions", "zsh"]).ok().stdout);
}

#[test]
fn runs_are_offered_where_one_is_named_and_checkpoints_to_begin_with() {
    let program = program();
    program.git(["init", "-q"]);
    program.git(["commit", "-q", "--allow-empty", "-m", "first"]);
    let run = |script: &str, code: i32| {
        program.run(["exec", "--worktree", "-q", "--", "sh", "-c", script]).exits(code);
    };
    run("exit 3", 3);
    run("exit 0", 0);
    let of = |options: &[&str]| -> Vec<String> {
        let listed = program.run([&["worktree", "list", "--json"], options].concat()).ok().json();
        let runs = listed["runs"].as_array().unwrap().clone();
        runs.iter().map(|run| run["run"].as_str().unwrap().to_owned()).collect()
    };
    let (there, removed) = (of(&[]), of(&["--removed"]));
    assert_eq!((there.len(), removed.len()), (1, 1));
    assert_eq!(completed(&program, "turnpoint worktree remove "), there);
    let all = [there.clone(), removed].concat();
    assert_eq!(completed(&program, "turnpoint worktree apply "), all);
    assert_eq!(completed(&program, &format!("turnpoint worktree apply {} ", all[0])), [""; 0]);
    let zsh = ["complete", "--shell", "zsh", "--", "worktree", "remove", ""];
    assert_eq!(program.run(zsh).ok().stdout, format!("{}\tsh -c exit 0\n", there[0]));
    for (line, expected) in [
        ("turnpoint exec --worktree --from fix-login:", &["1", "0"][..]),
        ("turnpoint exec --worktree --from @l", &["@later"]),
        ("turnpoint plan --worktree --from=fi", &["fix-login"]),
    ] {
        assert_eq!(completed(&program, line), expected, "{line}");
    }
}

#[test]
fn it_changes_nothing_and_says_nothing_of_what_goes_wrong() {
    let program = program();
    // No index is made, no lock is taken, and no file is touched.
    for name in ["index.db", "index.db-wal", "index.db-shm"] {
        fs::remove_file(program.store().join(name)).ok();
    }
    let damaged = program.store().join("fix-login/0.json");
    fs::write(&damaged, "nothing").unwrap();
    let before = fingerprint::with_stamps(&program.sessions_home());
    for line in ["turnpoint show fix-login ", "turnpoint cat latest ", "turnpoint show @"] {
        assert!(!completed(&program, line).is_empty(), "{line}");
    }
    assert_eq!(completed(&program, "turnpoint show fix-login "), ["1"]);
    assert_eq!(completed(&program, "turnpoint cat fix-login:0 "), [""; 0]);
    fingerprint::assert_same(&before, &fingerprint::with_stamps(&program.sessions_home()));
    fs::remove_dir_all(program.sessions_home()).unwrap();
    for words in [&["show", ""][..], &["show", "s:"], &["cat", "latest", ""], &["-C", "x", "sh"]] {
        let run = program.run([&["complete", "--shell", "fish", "--"], words].concat()).ok();
        assert_eq!(run.stderr, "");
    }
    assert!(!program.sessions_home().exists());
}

#[test]
fn each_command_has_a_manual_page() {
    let program = program();
    let page = program.run(["man"]).ok().stdout;
    assert!(page.contains(".TH turnpoint 1") && page.contains("turnpoint\\-restore(1)"), "{page}");
    let missing = program.run(["man", "../none"]).exits(2);
    assert!(missing.stderr.contains("`mkdir -p ../none`"), "{}", missing.stderr);
    let directory = program.root().join("man");
    fs::create_dir(&directory).unwrap();
    program.run(["man", "../man"]).ok();
    let mut names: Vec<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let help = program.run(["--help"]).ok().stdout;
    for name in &names {
        let command = name.trim_start_matches("turnpoint").trim_end_matches(".1");
        let command = command.split('-').nth(1).unwrap_or("Commands");
        assert!(help.contains(command), "{name}");
        let page = fs::read_to_string(directory.join(name)).unwrap();
        for section in ["NAME", "SYNOPSIS", "\"EXIT STATUS\"", "\"ENVIRONMENT\"", "\"FILES\""] {
            assert!(page.contains(&format!(".SH {section}\n")), "{name} {section}: {page}");
        }
        let synopsis = page.split(".SH ").find(|it| it.starts_with("SYNOPSIS")).unwrap();
        let words = name.trim_end_matches(".1").split('-').skip(1).chain(["-h"]);
        let short = program.run(words).ok().stdout;
        let usage = short.split("\n\n").find(|it| it.starts_with("Usage:")).unwrap();
        for line in short.lines() {
            // An option as the short help has it: `-y, --yes`, `--keep <N>`.
            let line = line.trim_start().split("  ").next().unwrap();
            let Some((_, option)) = line.split_once("--").filter(|_| line.starts_with('-')) else {
                continue;
            };
            let (option, value) = option.split_once(' ').unwrap_or((option, ""));
            let value = value.trim_matches(['<', '>']);
            let value =
                if value.is_empty() { "]".to_owned() } else { format!("\\ \\fI{value}\\fR]") };
            let shown = format!("\\fB\\-\\-{}\\fR{value}", option.replace('-', "\\-"));
            // What one of the ways to call it names is not named for another one.
            let is_of_one_way = usage
                .split(|it: char| !it.is_ascii_alphanumeric() && it != '-')
                .any(|word| word.strip_prefix("--") == Some(option));
            assert_eq!(synopsis.contains(&shown), !is_of_one_way, "{name}: {shown}: {synopsis}");
        }
        // Whoever reads of a CHECKPOINT finds what that is.
        let names_one = page.contains("CHECKPOINT");
        assert_eq!(page.contains(".SH \"VALUES\""), names_one, "{name}: {page}");
    }
    assert!(names.contains(&"turnpoint-restore.1".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("complete.1")), "{names:?}");
    assert_eq!(fs::read_to_string(directory.join("turnpoint.1")).unwrap(), page);
    let again = program.run(["man", "../man", "--json"]).ok().json();
    assert_eq!(again["directory"]["path"], "../man");
    assert_eq!(program.run(["man", "--json"]).ok().json()["page"], page);
}
