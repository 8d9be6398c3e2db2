//! Settings: who has the last word, what a workspace may say, and what a broken file does.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::support::fingerprint;
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

fn program() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(
        &program.workspace(),
        [
            ("a.txt", file("a")),
            ("large.txt", file("x".repeat(5_000))),
            ("build/out.txt", file("made")),
            ("log/x.log", file("noise")),
        ],
    );
    program
}

/// Writes the user's settings file.
fn configure(program: &Program, text: &str) {
    let directory = program.root().join("home/.config/turnpoint");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("config.toml"), text).unwrap();
}

fn workspace_file(program: &Program) -> std::path::PathBuf {
    program.workspace().join(".turnpoint.toml")
}

/// Runs the program with a variable in its environment.
fn with(program: &Program, variable: &str, value: &str, arguments: &[&str]) -> Run {
    run(program.command(arguments).env(variable, value))
}

/// The names that the newest checkpoint does not hold, each with the reason.
fn not_held(program: &Program) -> Vec<(String, String)> {
    let json = program.run(["ls", "latest", "--omitted", "--json"]).ok().json();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    json["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (text(&it["path"]), text(&it["reason"])))
        .collect()
}

fn omitted(program: &Program, path: &str) -> Option<String> {
    not_held(program).into_iter().find(|(omitted, _)| omitted == path).map(|(_, reason)| reason)
}

fn count(program: &Program) -> usize {
    let json = program.run(["list", "--json"]).ok().json();
    json["checkpoints"].as_array().unwrap().len()
}

#[test]
fn the_environment_beats_the_user_and_the_user_the_default_and_a_workspace_lowers_both() {
    let program = program();
    let capture = ["capture", "--json"];
    program.run(capture).ok();
    assert_eq!(omitted(&program, "large.txt"), None);
    configure(&program, "[capture]\nfile_limit = \"4KiB\"\n");
    program.run(capture).ok();
    assert_eq!(omitted(&program, "large.txt").as_deref(), Some("over-file-limit"));
    with(&program, "TURNPOINT_CAPTURE_FILE_LIMIT", "1MiB", &capture).ok();
    assert_eq!(omitted(&program, "large.txt"), None);
    configure(&program, "[capture]\nfile_limit = \"1MiB\"\n");
    fs::write(workspace_file(&program), "capture.file_limit = 4096\n").unwrap();
    program.run(capture).ok();
    assert_eq!(omitted(&program, "large.txt").as_deref(), Some("over-file-limit"));
    // It holds for whatever looks at the disk.
    let diff = program.run(["diff", "latest"]).ok();
    assert!(diff.stdout.contains("1 over-file-limit"), "{}", diff.stdout);
    let shown = program.run(["show", "latest", "--json"]).ok().json();
    assert_eq!(shown["scope"]["file_limit_bytes"], 4096);
}

#[test]
fn what_settings_exclude_is_named_makes_a_new_checkpoint_and_is_left_alone_by_a_restore() {
    let program = program();
    program.run(["capture"]).ok();
    fs::write(workspace_file(&program), "capture.exclude = [\"build/\"]\n").unwrap();
    // The stamps of directories tell nothing of other rules.
    let again = program.run(["capture", "--if-changed", "--json"]).ok().json();
    assert_eq!(again["created"], true);
    assert_eq!(omitted(&program, "build").as_deref(), Some("excluded"));
    let shown = program.run(["show", "latest", "--json"]).ok().json();
    assert!(shown["scope"]["excluded"].as_array().unwrap().iter().any(|it| it == "build/"));
    assert_eq!(program.run(["capture", "--if-changed", "--json"]).ok().json()["created"], false);
    // What was made since in an excluded directory is not known to the target, and stays.
    fs::write(program.workspace().join("build/new.txt"), "new").unwrap();
    fs::write(program.workspace().join("b.txt"), "b").unwrap();
    program.run(["restore", "latest", "--yes"]).ok();
    assert!(!program.workspace().join("b.txt").exists());
    assert_eq!(fs::read(program.workspace().join("build/new.txt")).unwrap(), b"new");
    // The settings go away, and all of it is captured again.
    fs::remove_file(workspace_file(&program)).unwrap();
    program.run(["capture"]).ok();
    assert_eq!(omitted(&program, "build"), None);
    let cat = program.run(["cat", "latest", "build/new.txt"]).ok();
    assert_eq!(cat.stdout, "new");
}

#[test]
fn the_user_takes_back_what_is_excluded_and_hides_what_is_secret() {
    let program = program();
    build(
        &program.workspace(),
        [("dist/d.txt", file("d")), ("my.token", file("t")), (".env", file("e"))],
    );
    configure(&program, "[capture]\nexclude = [\"!dist/\"]\nsecrets = [\"*.token\", \"!.env\"]\n");
    program.run(["capture"]).ok();
    assert_eq!(not_held(&program), [("my.token".to_owned(), "secret".to_owned())]);
    assert_eq!(program.run(["cat", "latest", ".env"]).ok().stdout, "e");
}

#[test]
fn ignore_files_are_obeyed_unless_the_user_says_no() {
    let program = program();
    program.git(["init", "-q"]);
    // Nothing but the setting itself makes the rules other ones.
    fs::remove_file(program.workspace().join(".git/info/exclude")).unwrap();
    fs::write(program.workspace().join(".gitignore"), "log/\n").unwrap();
    program.run(["capture"]).ok();
    assert_eq!(omitted(&program, "log").as_deref(), Some("ignored"));
    with(&program, "TURNPOINT_CAPTURE_IGNORE_FILES", "false", &["capture"]).ok();
    assert_eq!(omitted(&program, "log"), None);
    program.run(["capture"]).ok();
    assert_eq!(omitted(&program, "log").as_deref(), Some("ignored"));
}

#[test]
fn a_total_limit_from_the_settings_counts() {
    let program = program();
    fs::write(program.workspace().join("huge.bin"), vec![7; 1_200_000]).unwrap();
    fs::write(workspace_file(&program), "capture.total_limit = \"1MiB\"\n").unwrap();
    program.run(["capture"]).ok();
    assert_eq!(omitted(&program, "huge.bin").as_deref(), Some("over-total-limit"));
}

/// Everything that could stand in the file's place, but no settings.
fn break_file(program: &Program, how: &str) {
    let path = workspace_file(program);
    match how {
        "conflict" => fs::write(path, "<<<<<<< ours\ncapture.exclude = []\n=======\n").unwrap(),
        "unknown" => fs::write(path, "capture.exlude = [\"a.txt\"]\n").unwrap(),
        "refused" => fs::write(path, "home = \"/elsewhere\"\n").unwrap(),
        "long" => fs::write(path, "#".repeat(65_537)).unwrap(),
        "directory" => fs::create_dir(path).unwrap(),
        "fifo" => {
            let made = rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RUSR);
            made.unwrap();
        }
        "symlink" => {
            let target = program.root().join("elsewhere.toml");
            fs::write(&target, "capture.exclude = [\"a.txt\"]\n").unwrap();
            symlink(target, path).unwrap();
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_broken_workspace_file_stops_no_capture_and_is_told() {
    for how in ["conflict", "unknown", "refused", "long", "directory", "fifo", "symlink"] {
        let program = program();
        break_file(&program, how);
        let captured = program.run(["capture", "--json"]).exits(4).json();
        let notices = captured["notices"].as_array().unwrap();
        assert_eq!(notices[0]["code"], "workspace-settings", "{how}: {notices:?}");
        assert!(notices[0]["message"].as_str().unwrap().contains(".turnpoint.toml"), "{notices:?}");
        let into = program.root().join("into");
        program.run(["restore", "latest", "--into", into.to_str().unwrap()]).ok();
        for name in ["a.txt", "large.txt", "build/out.txt", "log/x.log"] {
            let held = fs::read(into.join(name)).unwrap();
            assert_eq!(held, fs::read(program.workspace().join(name)).unwrap(), "{how}: {name}");
        }
    }
}

#[test]
fn a_broken_workspace_file_stops_what_would_change_the_workspace_by_it() {
    let program = program();
    program.run(["capture"]).ok();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    break_file(&program, "conflict");
    let before = fingerprint::of(&program.workspace());
    for arguments in [
        &["restore", "latest", "--yes"][..],
        &["undo", "--yes"],
        &["diff", "latest"],
        &["capture", "--strict"],
    ] {
        let refused = program.run(arguments).exits(2);
        let expected =
            format!("error: {}:1:9: it is not TOML: ", workspace_file(&program).display());
        assert!(refused.stderr.starts_with(&expected), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("\nhint: mend it with an editor, or move the file away"),
            "{}",
            refused.stderr
        );
    }
    // What is to be typed is seen from where one stands.
    let mut below = program.command(["undo", "--yes"]);
    let refused = run(below.current_dir(program.workspace().join("build"))).exits(2);
    let way_out = "`turnpoint restore CHECKPOINT ../.turnpoint.toml` brings an earlier one back";
    assert!(refused.stderr.contains(way_out), "{}", refused.stderr);
    assert_eq!(fingerprint::of(&program.workspace()), before);
    assert_eq!(count(&program), 1);
    // What does not look at the disk by it goes on.
    program.run(["show", "latest"]).ok();
    program.run(["diff", "0", "latest"]).ok();
}

/// What docs/configuration.md says of each verb.
#[test]
fn a_broken_workspace_file_keeps_nobody_from_their_files() {
    let program = program();
    program.git(["init", "-q"]);
    program.git(["commit", "-q", "--allow-empty", "-m", "first"]);
    let good = "capture.exclude = [\"coverage/\"]\n";
    fs::write(workspace_file(&program), good).unwrap();
    let capture = ["capture", "--session", "s"];
    program.run(capture).ok();
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    program.run(capture).ok();
    program.run(["revert", "s:1", "--plan-out", "../plan"]).ok();
    program.run(["restore", "s:0", "--yes", "--session", "safe"]).ok();
    break_file(&program, "conflict");
    let into = program.root().join("into");
    let into = into.to_str().unwrap();
    let before = fingerprint::of(&program.workspace());
    for (code, arguments) in [
        (2, "restore s:0 --yes"),
        (2, "restore s:0 a.txt --yes"),
        (2, "restore s:0 .turnpoint.toml a.txt --yes"),
        (2, "rewind 1 --yes --session s"),
        (2, "undo --yes"),
        (2, "redo --yes"),
        (2, "revert s:1 --yes"),
        (2, "restore --apply ../plan --yes"),
        (2, "diff s:0"),
        (2, "capture --strict"),
        (2, "config set --local capture.file_limit 4KiB"),
        (4, "config list"),
        (4, "config get color"),
        (4, "config set color never"),
        (4, "config unset color"),
        (0, "list"),
        (0, "show s:0"),
        (0, "ls s:0"),
        (0, "cat s:0 a.txt"),
        (0, "diff s:0 s:1"),
        (0, "log a.txt"),
        (0, "find a.txt"),
        (0, "stats"),
        (0, "operations"),
        (0, "verify"),
        (0, "doctor"),
        (0, "sql SELECT+1"),
        (0, "export s:0 --tar ../tar"),
        (0, "restore s:0 --into"),
        (0, "bisect s:0 s:1 -- grep -q ^a$ a.txt"),
        (0, "pin s:0"),
        (0, "label s:0 first"),
        (0, "prune --session s"),
        (0, "gc"),
        (0, "purge build/out.txt --yes"),
        (0, "worktree list"),
        (0, "exec --worktree --session w -- true"),
        (0, "plan --worktree --session w -- true"),
        (0, "worktree prune --older-than 0s"),
    ] {
        let words = arguments.split(' ').map(|word| word.replace('+', " "));
        let words: Vec<String> =
            words.chain((arguments.ends_with("--into")).then(|| into.to_owned())).collect();
        let run = program.run(&words).exits(code);
        let is_told = run.stderr.contains(".turnpoint.toml:1:9: it is not TOML");
        assert_eq!(
            is_told,
            code != 0 || arguments.starts_with("exec") || arguments.starts_with("plan"),
            "{arguments}: {}",
            run.stderr
        );
        if code == 2 {
            let way_out =
                "`turnpoint restore CHECKPOINT .turnpoint.toml` brings an earlier one back";
            let is_change = arguments.starts_with("config");
            assert_eq!(run.stderr.contains(way_out), !is_change, "{arguments}: {}", run.stderr);
        }
    }
    let ignoring =
        |tree: &fingerprint::Fingerprint| fingerprint::without(tree, &[".git", ".turnpoint"]);
    fingerprint::assert_same(&ignoring(&before), &ignoring(&fingerprint::of(&program.workspace())));
    let made = ["exec", "--worktree", "--session", "w", "--", "sh", "-c", "echo b > b.txt"];
    program.run(made).ok();
    let runs = program.run(["worktree", "list", "--json"]).ok().json();
    let id = runs["runs"][0]["run"].as_str().unwrap();
    for apply in [&["worktree", "apply", id, "--dry-run"][..], &["worktree", "apply", id, "--yes"]]
    {
        let refused = program.run(apply).exits(2);
        assert!(
            refused.stderr.contains(".turnpoint.toml:1:9: it is not TOML"),
            "{}",
            refused.stderr
        );
    }
    assert!(!program.workspace().join("b.txt").exists());
    program.run(["worktree", "remove", id, "--yes"]).ok();
    // Of a run the file at the top of its checkout counts, wherever one stands.
    let below = ["-C", "build", "exec", "--worktree", "--session", "w", "--", "true"];
    let told = program.run(below).ok().stderr;
    assert!(told.contains("work/.turnpoint.toml:1:9: it is not TOML"), "{told}");
    let back = fs::read(Path::new(into).join("a.txt")).unwrap();
    assert_eq!(back, b"a");
    program.run(["exec", "--session", "s", "--", "true"]).ok();
    program.run(capture).exits(4);
}

#[test]
fn whatever_is_in_the_place_of_the_workspace_file_an_earlier_one_comes_back() {
    for how in ["conflict", "unknown", "long", "directory", "symlink"] {
        let program = program();
        let good = "capture.exclude = [\"coverage/\"]\n";
        fs::write(workspace_file(&program), good).unwrap();
        program.run(["capture", "--session", "s"]).ok();
        fs::remove_file(workspace_file(&program)).unwrap();
        break_file(&program, how);
        if how == "directory" {
            fs::write(workspace_file(&program).join("inside"), "work").unwrap();
        }
        fs::write(program.workspace().join("a.txt"), "changed").unwrap();
        program.run(["restore", "s:0", ".turnpoint.toml", "--yes"]).ok();
        assert_eq!(fs::read_to_string(workspace_file(&program)).unwrap(), good, "{how}");
        assert_eq!(fs::read(program.workspace().join("a.txt")).unwrap(), b"changed");
        program.run(["restore", "s:0", "--yes"]).ok();
        assert_eq!(fs::read(program.workspace().join("a.txt")).unwrap(), b"a");
    }
}

#[test]
fn a_part_that_is_understood_counts_beside_one_that_is_not() {
    let program = program();
    fs::write(workspace_file(&program), "capture.exclude = [\"build/\"]\nhome = \"/x\"\n").unwrap();
    let captured = program.run(["capture"]).exits(4);
    let expected = format!(
        "warning: {}:2:8: `home` is not for the file of a workspace; take it out; only `home` in the \
         user's file, or TURNPOINT_HOME, may say this",
        workspace_file(&program).display()
    );
    assert!(captured.stderr.contains(&expected), "{}", captured.stderr);
    assert_eq!(omitted(&program, "build").as_deref(), Some("excluded"));
    assert!(!Path::new("/x").exists());
}

#[test]
fn a_broken_file_of_the_user_stops_everything_before_anything_is_done() {
    let program = program();
    configure(&program, "color = \"auto\"\ncapture.file_limit = \"lots\"\nretension.keep = 3\n");
    for command in ["capture", "list", "gc", "config list"] {
        let stopped = program.run(command.split(' ')).exits(2);
        let path = program.root().join("home/.config/turnpoint/config.toml");
        let expected = format!(
            "error: {0}:2:22: `capture.file_limit` is \"lots\"; a size from \"1KiB\" to \"1TiB\" is \
             expected, and 1 more\n  {0}:3:18: there is no setting `retension.keep`\n",
            path.display()
        );
        assert!(stopped.stderr.starts_with(&expected), "{}", stopped.stderr);
    }
    assert!(!program.sessions_home().exists());
    // Another file, or none, in its place.
    with(&program, "TURNPOINT_CONFIG", "", &["capture"]).ok();
    let other = program.root().join("other.toml");
    with(&program, "TURNPOINT_CONFIG", other.to_str().unwrap(), &["list"]).exits(1);
    fs::write(&other, "session = \"of-the-other\"\n").unwrap();
    with(&program, "TURNPOINT_CONFIG", other.to_str().unwrap(), &["capture"]).ok();
    let json = with(&program, "TURNPOINT_CONFIG", "", &["list", "--json"]).ok().json();
    assert_eq!(json["checkpoints"][1]["session"], "of-the-other");
    let wrong = with(&program, "TURNPOINT_CAPTURE_CROSS_MOUNTS", "maybe", &["list"]);
    assert!(
        wrong.exits(2).stderr.contains("TURNPOINT_CAPTURE_CROSS_MOUNTS: is \"maybe\"; true or")
    );
}

#[test]
fn the_store_and_the_session_are_where_the_user_says() {
    let program = program();
    configure(&program, "home = \"~/elsewhere\"\nsession = \"daily\"\n");
    let without = |arguments: &[&str]| run(program.command(arguments).env_remove("TURNPOINT_HOME"));
    let captured = without(&["capture", "--json"]).ok().json();
    assert_eq!(captured["session"], "daily");
    assert!(program.root().join("home/elsewhere/checkpoints/daily/0.json").is_file());
    fs::write(program.workspace().join("a.txt"), "changed").unwrap();
    let restored = without(&["restore", "latest", "--yes", "--json"]).ok().json();
    assert_eq!(restored["safety"]["session"], "daily");
    let mut named = program.command(["capture", "--session", "mine", "--json"]);
    named.env_remove("TURNPOINT_HOME").env("TURNPOINT_SESSION", "of-a-variable");
    assert_eq!(run(&mut named).ok().json()["session"], "mine");
    let mut unnamed = program.command(["capture", "--json"]);
    unnamed.env_remove("TURNPOINT_HOME").env("TURNPOINT_SESSION", "of-a-variable");
    assert_eq!(run(&mut unnamed).ok().json()["session"], "of-a-variable");
    assert!(!program.sessions_home().exists());
    // TURNPOINT_HOME may be relative, as always.
    let relative = with(&program, "TURNPOINT_HOME", "../near", &["config", "get", "home"]).ok();
    assert_eq!(relative.stdout, format!("{}\n", program.workspace().join("../near").display()));
    with(&program, "TURNPOINT_HOME", "../near", &["capture"]).ok();
    assert!(program.root().join("near/checkpoints/format.json").is_file());
}

#[test]
fn colors_are_as_the_settings_say_unless_the_command_line_does() {
    let program = program();
    let is_colored = |run: Run| run.exits(2).stderr.contains('\u{1b}');
    assert!(!is_colored(program.run(["show"])));
    assert!(is_colored(with(&program, "TURNPOINT_COLOR", "always", &["show"])));
    assert!(!is_colored(with(
        &program,
        "TURNPOINT_COLOR",
        "always",
        &["show", "--color", "never"]
    )));
    configure(&program, "color = \"always\"\n");
    assert!(is_colored(program.run(["show"])));
    assert!(!is_colored(with(&program, "TURNPOINT_COLOR", "never", &["show"])));
}

#[test]
fn config_shows_what_counts_and_where_it_stands() {
    let program = program();
    configure(&program, "[capture]\nexclude = [\"build/\"]\n");
    fs::write(workspace_file(&program), "capture.exclude = [\"*.iso\"]\n").unwrap();
    let list = program.run(["config", "list", "--json"]).ok().json();
    let settings = list["settings"].as_array().unwrap();
    let of = |name: &str| settings.iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(of("capture.file_limit")["value"], 8_388_608);
    // All that `--long` says is there.
    let long = program.run(["config", "list", "--long"]).ok().stdout;
    let long = long.split_whitespace().collect::<Vec<_>>().join(" ");
    for setting in settings {
        let (about, expected) = (&setting["about"], setting["expected"].as_str().unwrap());
        let may = setting["in_workspace"].as_str();
        let may = may.map_or(String::new(), |may| format!("; the file of a workspace may {may}"));
        let told = format!("{} value: {expected}{may} from: ", about.as_str().unwrap());
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(long.contains(&told), "{told:?} is not in {long}");
    }
    assert_eq!(of("capture.file_limit")["in_workspace"], "lower it");
    assert_eq!(of("capture.file_limit")["origins"], serde_json::json!([]));
    assert_eq!(of("capture.total_limit")["value"], serde_json::Value::Null);
    assert_eq!(of("capture.exclude")["value"], serde_json::json!(["*.iso", "build/"]));
    let origins = of("capture.exclude")["origins"].as_array().unwrap();
    let layers: Vec<_> =
        origins.iter().map(|it| (it["layer"].as_str().unwrap(), it["line"].as_u64())).collect();
    assert_eq!(layers, [("workspace", Some(1)), ("user", Some(2))]);
    assert_eq!(program.run(["config", "get", "capture.exclude"]).ok().stdout, "*.iso\nbuild/\n");
    assert_eq!(program.run(["config", "get", "session"]).ok().stdout, "");
    let unknown = program.run(["config", "get", "capture.exclud"]).exits(2);
    assert!(unknown.stderr.contains("did you mean `capture.exclude`?"), "{}", unknown.stderr);
    break_file(&program, "unknown");
    let told = program.run(["config", "list"]).exits(4);
    assert!(told.stderr.contains("did you mean `capture.exclude`?"), "{}", told.stderr);
}

fn user_file(program: &Program) -> std::path::PathBuf {
    program.root().join("home/.config/turnpoint/config.toml")
}

#[test]
fn a_setting_is_set_and_unset_in_the_file_of_the_user_and_nothing_else_in_it_changes() {
    let program = program();
    // Neither file nor directory is there.
    let set = program.run(["config", "set", "capture.file_limit", "4KiB"]).ok();
    let path = user_file(&program);
    assert_eq!(
        set.stdout,
        format!("capture.file_limit is 4KiB in {}; it was not there\n", path.display())
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "[capture]\nfile_limit = \"4KiB\"\n");
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    program.run(["capture"]).ok();
    assert_eq!(omitted(&program, "large.txt").as_deref(), Some("over-file-limit"));

    let text = "# Mine.\n\n[capture] # what is held\nfile_limit = \"4KiB\" # small\n\n[gc]\n";
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let set = program.run(["config", "set", "capture.file_limit", "1MiB", "--json"]).ok().json();
    assert_eq!(
        serde_json::json!([set["name"], set["layer"], set["before"], set["after"], set["value"]]),
        serde_json::json!(["capture.file_limit", "user", 4096, 1_048_576, 1_048_576])
    );
    assert_eq!(set["path"], path.to_str().unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), text.replace("4KiB", "1MiB"));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let unset = program.run(["config", "unset", "capture.file_limit"]).ok();
    assert_eq!(
        unset.stdout,
        format!(
            "capture.file_limit is not in {} any more; it was 1MiB, and 8MiB counts now\n",
            path.display()
        )
    );
    let without = "# Mine.\n\n[capture] # what is held\n\n[gc]\n";
    assert_eq!(fs::read_to_string(&path).unwrap(), without);
    let again = program.run(["config", "unset", "capture.file_limit"]).exits(2);
    assert!(again.stderr.contains("`capture.file_limit` is not in "), "{}", again.stderr);
    assert_eq!(fs::read_to_string(&path).unwrap(), without);
    // Lists, and what begins with a dash.
    program.run(["config", "set", "capture.exclude", r#"["coverage/", "*.iso"]"#]).ok();
    program.run(["config", "set", "session", "daily"]).ok();
    let exclude = program.run(["config", "get", "capture.exclude"]).ok();
    assert_eq!(exclude.stdout, "coverage/\n*.iso\n");
    program.run(["config", "set", "pager", "-x"]).ok();
    assert_eq!(program.run(["config", "get", "pager"]).ok().stdout, "-x\n");
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn what_could_not_be_obeyed_is_not_written() {
    let program = program();
    configure(&program, "color = \"never\" # quiet\n");
    let before = fingerprint::of(program.root());
    for (arguments, expected) in [
        ("set capture.file_limt 1MiB", "did you mean `capture.file_limit`?"),
        ("unset capture.file_limt", "did you mean `capture.file_limit`?"),
        ("set capture.file_limit lots", "`capture.file_limit` is \"lots\"; a size from"),
        ("set retention.keep 0", "`retention.keep` is 0; a number from 1 to 1000000 is expected"),
        ("set capture.exclude build/", "a list such as [\"build/\", \"*.iso\"] is expected"),
        ("set --local home /elsewhere", "`home` is not for the file of a workspace"),
        ("set --local capture.file_limit 1GiB", "the file of a workspace may lower it, and 8MiB"),
        ("set --local capture.exclude [\"!dist/\"]", "may leave out more, and take nothing back"),
    ] {
        let refused = program.run(["config"].into_iter().chain(arguments.split(' '))).exits(2);
        assert!(refused.stderr.contains(expected), "{arguments}: {}", refused.stderr);
        assert_eq!(fingerprint::of(program.root()), before, "{arguments}");
    }
    let new = program.root().join("new/config.toml");
    let purple = ["config", "set", "color", "purple"];
    with(&program, "TURNPOINT_CONFIG", new.to_str().unwrap(), &purple).exits(2);
    assert_eq!(fingerprint::of(program.root()), before, "no directory was made for it");
    let none = with(&program, "TURNPOINT_CONFIG", "", &["config", "set", "color", "auto"]).exits(2);
    assert!(none.stderr.contains("there is no settings file of the user"), "{}", none.stderr);
    // What is no text could not be written back as it is.
    for text in
        [&b"# caf\xe9\ncapture.file_limit = 4096\n"[..], b"capture.exclude = [\"caf\xe9/\"]\n"]
    {
        fs::write(workspace_file(&program), text).unwrap();
        for arguments in [
            &["set", "--local", "capture.file_limit", "8KiB"][..],
            &["unset", "--local", "capture.file_limit"],
            &["unset", "--local", "capture.total_limit"],
        ] {
            let refused = program.run([&["config"], arguments].concat()).exits(2);
            assert!(refused.stderr.contains("it is not UTF-8"), "{}", refused.stderr);
            assert_eq!(fs::read(workspace_file(&program)).unwrap(), text, "{arguments:?}");
        }
    }
    // What else is wrong with the file is told as it stands there now.
    break_file(&program, "unknown");
    let text = fs::read_to_string(workspace_file(&program)).unwrap();
    let refused = program.run(["config", "set", "--local", "capture.file_limit", "4KiB"]).exits(2);
    let place = format!("{}:1:18: there is no setting", workspace_file(&program).display());
    assert!(refused.stderr.contains(&place), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(workspace_file(&program)).unwrap(), text);
}

#[test]
fn the_file_of_the_workspace_is_changed_where_it_stands_and_that_of_the_user_behind_its_link() {
    let program = program();
    // A value that may not stand there is replaced by one that may.
    fs::write(workspace_file(&program), "capture.file_limit = \"1GiB\" # too much\n").unwrap();
    // A file of that name is the workspace's own.
    let lock = program.workspace().join(".turnpoint.toml.lock");
    fs::write(&lock, "theirs").unwrap();
    let set = program.run(["config", "set", "--local", "capture.file_limit", "4KiB"]).ok();
    assert!(set.stdout.starts_with("capture.file_limit is 4KiB in "), "{}", set.stdout);
    assert_eq!(
        fs::read_to_string(workspace_file(&program)).unwrap(),
        "capture.file_limit = \"4KiB\" # too much\n"
    );
    assert_eq!(fs::read(lock).unwrap(), b"theirs");
    program.run(["capture"]).ok();
    assert_eq!(omitted(&program, "large.txt").as_deref(), Some("over-file-limit"));
    fs::remove_file(workspace_file(&program)).unwrap();
    for how in ["symlink", "directory", "fifo"] {
        break_file(&program, how);
        let before = fingerprint::of(program.root());
        program.run(["config", "set", "--local", "capture.file_limit", "4KiB"]).exits(1);
        assert_eq!(fingerprint::of(program.root()), before, "{how}");
        let path = workspace_file(&program);
        if how == "directory" { fs::remove_dir(path) } else { fs::remove_file(path) }.unwrap();
    }

    let elsewhere = program.root().join("dotfiles.toml");
    fs::write(&elsewhere, "color = \"never\"\n").unwrap();
    let path = user_file(&program);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    symlink(&elsewhere, &path).unwrap();
    program.run(["config", "set", "color", "auto"]).ok();
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "color = \"auto\"\n");
    assert!(path.symlink_metadata().unwrap().is_symlink());
    // A link that leads to nothing yet is one to the file that is made; so is a name in the environment.
    fs::remove_file(&path).unwrap();
    symlink("../../../dotfiles/turnpoint.toml", &path).unwrap();
    program.run(["config", "set", "color", "never"]).ok();
    let made = program.root().join("dotfiles/turnpoint.toml");
    assert_eq!(fs::read_to_string(&made).unwrap(), "color = \"never\"\n");
    assert!(path.symlink_metadata().unwrap().is_symlink());
    let named = program.root().join("named.toml");
    let named = named.to_str().unwrap();
    with(&program, "TURNPOINT_CONFIG", named, &["config", "unset", "color"]).exits(1);
    with(&program, "TURNPOINT_CONFIG", named, &["config", "set", "color", "auto"]).ok();
    assert_eq!(fs::read_to_string(named).unwrap(), "color = \"auto\"\n");
    // Who has the last word is told.
    let set = ["config", "set", "retention.keep", "7"];
    let overruled = with(&program, "TURNPOINT_RETENTION_KEEP", "9", &set).ok();
    assert!(
        overruled.stderr.contains("9 counts here, because of TURNPOINT_RETENTION_KEEP"),
        "{}",
        overruled.stderr
    );
}

#[test]
fn the_example_in_the_help_is_a_file_of_settings() {
    let program = program();
    let help = program.run(["config", "--help"]).ok().stdout;
    let (_, example) = help.split_once("A file of settings:\n").unwrap();
    configure(&program, example);
    for (name, value) in [("capture.file_limit", "32MiB\n"), ("retention.keep", "50\n")] {
        assert_eq!(program.run(["config", "get", name]).ok().stdout, value);
    }
    let patterns = program.run(["config", "get", "capture.exclude"]).ok().stdout;
    assert_eq!(patterns, "build/\n*.iso\n");
}

#[test]
fn what_each_setting_is_for_is_told() {
    let program = program();
    configure(&program, "[capture]\nfile_limit = \"32MiB\"\n");
    let long = program.run(["config", "list", "--long", "capture"]).ok().stdout;
    let expected = format!(
        "capture.file_limit = 32MiB\n  The content of a larger file is not held.\n  value: a size from \
         \"1KiB\" to \"1TiB\"; the file of a workspace may lower it\n  from: {}:2:14; the default is 8MiB\n\n\
         capture.total_limit = none\n",
        user_file(&program).display()
    );
    assert!(long.starts_with(&expected), "{long}");
    assert_eq!(long.matches(" = ").count(), 6, "those of one section: {long}");
    let all = program.run(["config", "list", "--json"]).ok().json();
    for setting in all["settings"].as_array().unwrap() {
        let about = setting["about"].as_str().unwrap();
        assert!(about.ends_with('.') && !about.contains("]("), "{setting}");
    }
    let one = program.run(["config", "list", "retention.keep", "--json"]).ok().json();
    assert_eq!(one["settings"].as_array().unwrap().len(), 1);
    let none = program.run(["config", "list", "retention.kep"]).exits(2).stderr;
    assert!(none.contains("did you mean `retention.keep`?"), "{none}");
}

#[test]
fn what_a_workspace_may_not_say_is_said_elsewhere_with_one_command() {
    let program = program();
    for (value, arguments) in [
        ("50", &["retention.keep", "50"][..]),
        ("!dist/", &["capture.exclude", r#"["!dist/"]"#]),
        ("less -R", &["pager", "less -R"]),
    ] {
        let refused = program.run([&["config", "set", "--local"], arguments].concat()).exits(2);
        let told = refused.stderr;
        assert!(
            told.contains("it comes with the files of others, and may only make less be"),
            "{told}"
        );
        let command =
            told.split('`').find(|part| part.starts_with("turnpoint config set")).unwrap();
        let command = command.replacen("turnpoint", env!("CARGO_BIN_EXE_turnpoint"), 1);
        run(program.other("sh").args(["-c", &command])).ok();
        let counts = program.run(["config", "get", arguments[0]]).ok().stdout;
        assert_eq!(counts, format!("{value}\n"));
    }
    assert!(!workspace_file(&program).exists());
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_setting_and_stays() {
    let program = program();
    configure(&program, "\u{feff}color = \"never\"\r\npager = \"less\"\r\n");
    let origin = program.run(["config", "list", "--origin", "color"]).ok().stdout;
    assert!(origin.contains("config.toml:1:9"), "as editors count: {origin}");
    let text = || fs::read_to_string(user_file(&program)).unwrap();
    program.run(["config", "set", "pager", "more"]).ok();
    assert_eq!(text(), "\u{feff}color = \"never\"\r\npager = \"more\"\r\n");
    program.run(["config", "set", "color", "auto"]).ok();
    assert_eq!(text(), "\u{feff}color = \"auto\"\r\npager = \"more\"\r\n");
    program.run(["config", "unset", "color"]).ok();
    assert_eq!(text(), "\u{feff}pager = \"more\"\r\n");
    let wide: Vec<u8> =
        "\u{feff}color = \"never\"\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(user_file(&program), wide).unwrap();
    let told = program.run(["list"]).exits(2).stderr;
    assert!(told.contains(":1:1: it is UTF-16, not UTF-8"), "{told}");
}

#[test]
fn a_file_is_not_made_longer_than_it_is_read() {
    let program = program();
    // As long as may be, to the byte.
    let text = format!("color = \"auto\" #{}\n", "x".repeat(64 * 1024 - 17));
    assert_eq!(text.len(), 64 * 1024);
    configure(&program, &text);
    let refused = program.run(["config", "set", "color", "never"]).exits(2).stderr;
    let expected = format!(
        "error: {}: it would be 65537 bytes long, and is read up to 65536\n\nhint: take something out of it\n",
        user_file(&program).display()
    );
    assert_eq!(refused, expected);
    assert_eq!(fs::read_to_string(user_file(&program)).unwrap(), text);
    program.run(["config", "unset", "color"]).ok();
    assert_eq!(fs::read_to_string(user_file(&program)).unwrap(), "");
}

#[test]
fn what_is_wrong_in_the_users_file_can_be_set_right() {
    let program = program();
    let file = "color = 3\n[retention]\nkeep = \"many\"\n";
    configure(&program, file);
    // Half of it would still not be obeyed.
    let refused = program.run(["config", "set", "retention.keep", "7"]).exits(2).stderr;
    assert!(refused.contains("color"), "{refused}");
    configure(&program, "[retention]\nkeep = \"many\"\n");
    program.run(["config", "set", "retention.keep", "7"]).ok();
    assert_eq!(program.run(["config", "get", "retention.keep"]).ok().stdout, "7\n");
    configure(&program, "[retention]\nkeep = \"many\"\n");
    program.run(["config", "unset", "retention.keep"]).ok();
    assert_eq!(program.run(["config", "get", "retention.keep"]).ok().stdout, "20\n");
}

#[test]
fn beside_a_broken_file_it_is_told_what_works() {
    let program = program();
    program.run(["capture", "--session", "s"]).ok();
    fs::write(workspace_file(&program), "broken").unwrap();
    let way_out = "hint: until it is mended `restore`, `undo` and the like refuse, and `diff` against the disk; `turnpoint restore CHECKPOINT \
                   .turnpoint.toml` brings an earlier one back; `cat` and `restore --into DIR` work";
    for arguments in [&["capture"][..], &["exec", "--session", "s", "--", "true"]] {
        let told = program.run(arguments).stderr;
        assert_eq!(told.matches(way_out).count(), 1, "{told}");
    }
    configure(&program, "color = 3\n");
    let told = program.run(["list"]).exits(2).stderr;
    let way_out = "; meanwhile `TURNPOINT_CONFIG= turnpoint COMMAND` goes without that file";
    assert!(told.contains(way_out), "{told}");
    with(&program, "TURNPOINT_CONFIG", "", &["list"]).ok();
    let told = with(&program, "TURNPOINT_COLOR", "3", &["list"]).exits(2).stderr;
    assert!(told.contains(way_out), "the file is named first: {told}");
    configure(&program, "");
    let told = with(&program, "TURNPOINT_COLOR", "3", &["list"]).exits(2).stderr;
    assert!(!told.contains(way_out), "{told}");
}
