//! The examples in `README.md` and `docs/cli.md` are run, and print what the text says they do.
//!
//! Every block marked `console` holds commands after `$ ` and what they print; an exit code other than
//! 0 follows as `? 3`. All blocks of a file run one after the other in one workspace. What differs from
//! run to run (places, times, random ids, stored lengths) is compared after [`settled`] has replaced
//! it. With `TURNPOINT_DOCUMENTS=overwrite` the file gets what was printed.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use turnpoint::settings::{InWorkspace, SETTINGS, Setting};

use crate::support::program::{Program, run};
use crate::support::tree::{build, file};

#[test]
fn the_readme_tells_what_happens() {
    check("README.md");
}

#[test]
fn the_account_of_the_configuration_tells_what_happens_and_has_every_setting() {
    check("docs/configuration.md");
}

#[test]
fn the_account_of_the_command_line_tells_what_happens() {
    check("docs/cli.md");
}

fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let text = fs::read_to_string(&path).unwrap();
    let shown = run_examples(&with_settings(&text));
    if std::env::var_os("TURNPOINT_DOCUMENTS").is_some_and(|value| value == "overwrite") {
        fs::write(&path, shown).unwrap();
        return;
    }
    for (number, (said, seen)) in text.lines().zip(shown.lines()).enumerate() {
        assert_eq!(essence(&settled(said)), essence(seen), "{name}:{}\n{shown}", number + 1);
    }
    assert_eq!(text.lines().count(), shown.lines().count(), "{name}\n{shown}");
}

/// The file's text with the table of settings that the program has, between its two marks.
fn with_settings(text: &str) -> String {
    let (begin, end) = ("<!-- settings: begin -->\n", "<!-- settings: end -->\n");
    let Some((before, rest)) = text.split_once(begin) else { return text.to_owned() };
    let (_, after) = rest.split_once(end).unwrap();
    let mut table = "| setting | value | default | the workspace's file may | for |\n".to_owned();
    table.push_str("| --- | --- | --- | --- | --- |\n");
    for Setting { name, kind, default, in_workspace, about, .. } in SETTINGS {
        let (kind, default) = (kind.expected(), default());
        let may = match in_workspace {
            InWorkspace::Refused => "not name it".to_owned(),
            InWorkspace::Lower => "lower it".to_owned(),
            InWorkspace::Only(value) => format!("only say `{value}`"),
            InWorkspace::Add => "add patterns without `!`".to_owned(),
            other => panic!("{other:?}"),
        };
        let default = default.to_string().replace('|', "\\|");
        writeln!(table, "| `{name}` | {kind} | `{default}` | {may} | {about} |").unwrap();
    }
    format!("{before}{begin}{table}{end}{after}")
}

/// The file's text with what the commands print now.
fn run_examples(text: &str) -> String {
    let program = example();
    let mut shown = String::new();
    let mut inside = false;
    let mut count = 0;
    for line in text.lines() {
        if line.starts_with("```") {
            inside = line == "```console";
        }
        match line.strip_prefix("$ ").filter(|_| inside) {
            Some(command) => {
                count += 1;
                writeln!(shown, "{line}").unwrap();
                shown.push_str(&settled(&output(&program, command)));
            }
            None if inside && line != "```console" => {}
            None => writeln!(shown, "{line}").unwrap(),
        }
    }
    assert!(count > 0, "there are no examples");
    shown
}

/// What a command prints, both streams as a terminal shows them.
fn output(program: &Program, command: &str) -> String {
    let path = format!("{}/bin:{}", program.root().display(), std::env::var("PATH").unwrap());
    let run =
        run(program.other("sh").args(["-c", &format!("{{ {command}; }} 2>&1")]).env("PATH", path));
    let places = [
        (program.sessions_home().display().to_string(), "~/.local/share/turnpoint"),
        (program.workspace().display().to_string(), "/src/app"),
        (program.root().join("home").display().to_string(), "~"),
        ("work-".to_owned(), "app-"),
    ];
    let mut text = run.stdout;
    for (from, to) in places {
        text = text.replace(&from, to);
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if run.code != 0 {
        writeln!(text, "? {}", run.code).unwrap();
    }
    text
}

/// A small repository with something of every kind in it.
fn example() -> Program {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let root = program.workspace();
    build(
        &root,
        [
            (".env", file("API_KEY=not-a-real-one\n")),
            (".gitignore", file("*.log\n")),
            ("README.md", file("# app\n")),
            ("debug.log", file("started\n")),
            ("src/main.rs", file("mod parser;\n\nfn main() {}\n")),
            ("src/parser.rs", file("pub fn parse() {}\n")),
            ("target/debug/app", file("binary\n")),
        ],
    );
    program.git(["init", "-q"]);
    program.git(["add", ".gitignore", "README.md", "src"]);
    program.git(["commit", "-q", "-m", "first"]);
    // A stamp of the present would change the length of what is stored.
    let stamp = SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    for name in [".gitignore", "README.md", "src/main.rs", "src/parser.rs"] {
        fs::File::options().write(true).open(root.join(name)).unwrap().set_modified(stamp).unwrap();
    }
    fs::create_dir(program.root().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_turnpoint"), program.root().join("bin/turnpoint")).unwrap();
    program
}

/// The words of a line: columns are as wide as what is in them today. How many files a capture must
/// read again depends on how long ago they were written.
fn essence(line: &str) -> Vec<&str> {
    let rereading = ["\"files_reused\":", "\"files_read\":", "\"bytes_read\":"];
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let is_about_reading = words.first().is_some_and(|first| rereading.contains(first))
        || (line.contains(" files, ") && line.contains(" stored, "));
    if is_about_reading {
        words.truncate(1);
    }
    // A row of `list`: number, date, time, age of two words, files, files read.
    let is_count = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    if words.len() > 7 && [0, 5, 6].iter().all(|&at| is_count(&words[at])) {
        words.remove(6);
    }
    words
}

/// `text` with everything replaced that differs from run to run. Each rule is a pattern, in which `9`
/// stands for one digit or more and `x` for a run of hex digits of that length, and what takes its
/// place.
pub(crate) fn settled(text: &str) -> String {
    let id = "x".repeat(32);
    let rules = [
        ("9-9-9T9:9:9.9Z", "2026-11-29T18:15:24.123456789Z"),
        ("9-9-9 9:9:9 +9:9", "2026-11-29 18:15:24 +00:00"),
        ("9-9-9 9:9", "2026-11-29 18:15"),
        ("app-xxxxxxxx", "app-3f9c2ab1"),
        ("app-runs-xxxxxxxx", "app-runs-5d0c41e2"),
        ("run xxxxxxxx", "run 7b1e40c9"),
        ("remove xxxxxxxx", "remove 7b1e40c9"),
        ("apply xxxxxxxx", "apply 7b1e40c9"),
        ("turnpoint/xxxxxxxx", "turnpoint/7b1e40c9"),
        ("worktrees/xxxxxxxx", "worktrees/7b1e40c9"),
        (id.as_str(), "3f9c2ab17d5e4c8a9b06e1d2f4a7c835"),
        (" 9 s ago", " just now"),
        ("(9 s ago)", "(just now)"),
        (" 9 ms", " 24 ms"),
        (" 9.9 s", " 24 ms"),
        (" 9 B stored", " 612 B stored"),
        (" 9.9 KiB stored", " 612 B stored"),
        (" 9 B as stored", " 612 B as stored"),
        ("9 B freed", "612 B freed"),
        ("9.9 KiB freed", "612 B freed"),
        ("\"bytes_stored\": 9", "\"bytes_stored\": 612"),
        ("\"elapsed_ms\": 9", "\"elapsed_ms\": 24"),
        ("stored        9 B", "stored        612 B"),
    ];
    let mut text = text.to_owned();
    for (pattern, settled) in rules {
        let mut rest = &*text;
        let mut done = String::new();
        while let Some(first) = rest.chars().next() {
            let length = matched(pattern, rest, done.chars().last());
            let (this, after) = rest.split_at(length.unwrap_or(first.len_utf8()));
            // Nothing is nothing every time.
            let is_settled = length.is_some() && !is_nothing(this);
            done.push_str(if is_settled { settled } else { this });
            rest = after;
        }
        text = done;
    }
    text
}

/// A length of zero.
fn is_nothing(text: &str) -> bool {
    text.contains(" 0 B") || text.ends_with("bytes_stored\": 0")
}

/// How long the part of `text` is that the pattern describes, if it begins here.
fn matched(pattern: &str, text: &str, before: Option<char>) -> Option<usize> {
    let is_name = |character: char| character.is_ascii_alphanumeric();
    if pattern.starts_with(['9', 'x']) && before.is_some_and(is_name) {
        return None;
    }
    let mut rest = text;
    for expected in pattern.chars() {
        let length = match expected {
            '9' => rest.chars().take_while(char::is_ascii_digit).count(),
            'x' => usize::from(rest.starts_with(|c: char| matches!(c, '0'..='9' | 'a'..='f'))),
            _ => usize::from(rest.starts_with(expected)),
        };
        if length == 0 {
            return None;
        }
        rest = rest.split_at(length).1;
    }
    let ends = !pattern.ends_with(['9', 'x']) || !rest.starts_with(is_name);
    ends.then_some(text.len() - rest.len())
}

#[test]
fn what_differs_from_run_to_run_is_settled() {
    let row = |read: &str| format!("  1  2026-11-29 18:15  just now  4  {read}  pre-restore");
    assert_eq!(essence(&row("2")), essence(&row("4")));
    assert_ne!(essence(&row("2")), essence(&row("2").replace("  4  ", "  5  ")));
    assert_eq!(
        settled("app-00aa11bb:3 at 2027-01-02 03:04, 7 ms, 1.5 KiB stored"),
        "app-3f9c2ab1:3 at 2026-11-29 18:15, 24 ms, 612 B stored"
    );
    assert_eq!(settled("7 files, 12 B read, 0 B stored"), "7 files, 12 B read, 0 B stored");
    let hash = "a".repeat(64);
    assert_eq!(settled(&hash), hash);
}
