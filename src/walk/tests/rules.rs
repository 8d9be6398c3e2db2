//! Ignore rules, with git as the oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use super::*;

/// Numbers that are the same in every run (xorshift64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound).unwrap()).unwrap()
    }

    fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }

    fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

const NAMES: [&str; 24] = [
    "a", "b", "ab", "ba", "aab", "foo", "bar", "foobar", "foo.o", "foo.a", "a-b", "a]b", "a b",
    "a ", "[a]", "{a,b}", "a,b", "!a", "#a", "a*b", "a\\b", "\u{e9}", ".hidden", "x\ny",
];

const PARTS: [&str; 40] = [
    "a",
    "b",
    "ab",
    "foo",
    "bar",
    "foo.o",
    "*",
    "?",
    "**",
    "***",
    "*.o",
    "*.[oa]",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "[]a]",
    "[a-]",
    "[!]]",
    "[\\]]",
    "[[:alpha:]]",
    "[[:digit:]]",
    "[[:x]",
    "[a",
    "{a,b}",
    "{a}",
    "\\*",
    "\\a",
    "\\{",
    "\\ ",
    " ",
    ".",
    ".*",
    "\u{e9}",
    "foo*",
    "a**",
    "**b",
    "\\#a",
    "\\!a",
    "a,b",
];

/// One line of an ignore file: names, wildcards and odd bits, in every combination.
fn rule(numbers: &mut Numbers) -> String {
    let mut line = String::new();
    if numbers.one_in(5) {
        line.push('!');
    }
    if numbers.one_in(4) {
        line.push('/');
    }
    for component in 0..=numbers.below(3) {
        if component > 0 {
            line.push('/');
        }
        for _ in 0..=usize::from(numbers.one_in(3)) {
            line.push_str(numbers.one_of(&PARTS));
        }
    }
    if numbers.one_in(4) {
        line.push('/');
    }
    if numbers.one_in(12) {
        line.push_str(numbers.one_of(&[" ", "  ", "\\", "\\ ", "\r", "/**", "//", "#"]));
    }
    line
}

fn rules_file(numbers: &mut Numbers) -> String {
    let mut text = String::new();
    for _ in 0..=numbers.below(6) {
        text.push_str(&rule(numbers));
        text.push_str(if numbers.one_in(6) { "\r\n" } else { "\n" });
    }
    text
}

fn tree(numbers: &mut Numbers, directory: &Path, depth: usize) {
    for _ in 0..=2 + numbers.below(4) {
        let path = directory.join(numbers.one_of(&NAMES));
        if depth < 3 && numbers.one_in(2) {
            if fs::create_dir(&path).is_ok() {
                tree(numbers, &path, depth + 1);
            }
        } else if !path.exists() {
            fs::write(path, "").unwrap();
        }
    }
    if depth > 0 && numbers.one_in(4) {
        fs::write(directory.join(".gitignore"), rules_file(numbers)).unwrap();
    }
}

/// Removes all but the repository.
fn clear(top: &Path) {
    for entry in fs::read_dir(top).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == ".git" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Every path below `directory` but what is in `.git`.
fn all_paths(directory: &Path, below: &str, paths: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name == ".git" {
            continue;
        }
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            all_paths(&entry.path(), &path, paths);
        }
        paths.push(path);
    }
}

/// For each path whether git ignores it, and by which rule.
fn asked_of_git(top: &Path, paths: &[String]) -> BTreeMap<String, (bool, String)> {
    let mut child = git_command(top)
        .args(["check-ignore", "--stdin", "-z", "-v", "-n", "--no-index"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let asked = paths.to_vec();
    let writer = thread::spawn(move || {
        for path in asked {
            stdin.write_all(path.as_bytes()).unwrap();
            stdin.write_all(&[0]).unwrap();
        }
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let fields: Vec<&str> = text.split_terminator('\0').collect();
    let answers: BTreeMap<String, (bool, String)> = fields
        .chunks_exact(4)
        .map(|answer| {
            let [source, line, pattern, path] = answer else { unreachable!() };
            let is_ignored = !pattern.is_empty() && !pattern.starts_with('!');
            ((*path).to_owned(), (is_ignored, format!("{source}:{line}:{pattern:?}")))
        })
        .collect();
    assert_eq!(answers.len(), paths.len(), "{output:?}", output = output.stderr);
    answers
}

/// Whether the walk left out a path, itself or with a directory above it.
fn is_left_out(walked: &Walked, at: &str) -> bool {
    let at = path(at);
    let mut above: Vec<RelPath> = at.ancestors().collect();
    above.push(at);
    above.iter().any(|path| {
        let what = walked.find(path).map(|observed| &observed.what);
        what == Some(&omitted(OmitReason::Ignored))
    })
}

/// A case that leaves out nothing by name.
fn case_by_rules() -> Case {
    let mut case = Case::repository();
    case.settings.secrets = NamePatterns::default();
    case.settings.excluded_directories = NamePatterns::default();
    case.settings.excluded_files = NamePatterns::default();
    case
}

/// Compares each path below `top`, a repository, with what a walk of `workspace` in it says.
fn compare(case: &Case, workspace: &str) -> (usize, usize) {
    let mut paths = Vec::new();
    all_paths(&case.path.join(workspace), "", &mut paths);
    let full = |path: &String| {
        if workspace.is_empty() { path.clone() } else { format!("{workspace}/{path}") }
    };
    let asked: Vec<String> = paths.iter().map(full).collect();
    let answers = asked_of_git(&case.path, &asked);
    let walked = case.walk_at(workspace);
    let mut ignored = 0;
    for at in &paths {
        let (expected, rule) = &answers[&full(at)];
        ignored += usize::from(*expected);
        assert_eq!(is_left_out(&walked, at), *expected, "{at:?}: git says {rule}");
    }
    (paths.len(), ignored)
}

#[test]
fn rules_mean_what_they_mean_to_git() {
    let mut numbers = Numbers(0x7075_726e_706f_696e);
    let (mut decisions, mut ignored) = (0, 0);
    let case = case_by_rules();
    for round in 0..110 {
        clear(&case.path);
        tree(&mut numbers, &case.path, 0);
        case.write(".gitignore", rules_file(&mut numbers));
        let exclude = if round % 3 == 0 { rules_file(&mut numbers) } else { String::new() };
        case.write(".git/info/exclude", exclude);
        let (paths, left_out) = compare(&case, "");
        decisions += paths;
        ignored += left_out;
    }
    // Enough of each that a difference has somewhere to show.
    assert!(
        decisions > 5_000 && ignored > 1_000 && decisions - ignored > 1_000,
        "{decisions} {ignored}"
    );
}

#[test]
fn rules_of_the_directories_above_a_workspace_count_as_they_do_to_git() {
    let mut numbers = Numbers(0x6469_7265_6374_6f72);
    let mut decisions = 0;
    let case = case_by_rules();
    for _ in 0..30 {
        clear(&case.path);
        case.write_all(&["up/down/here/a"]);
        tree(&mut numbers, &case.path.join("up/down/here"), 1);
        case.write(".gitignore", rules_file(&mut numbers));
        case.write("up/.gitignore", rules_file(&mut numbers));
        case.write(".git/info/exclude", "/up/down/here/b\nfoo\n");
        let above = ["up", "up/down", "up/down/here"].map(str::to_owned);
        if asked_of_git(&case.path, &above).values().any(|(is_ignored, _)| *is_ignored) {
            continue;
        }
        decisions += compare(&case, "up/down/here").0;
    }
    assert!(decisions > 500, "{decisions}");
}

/// What the crate cannot be told. Each is said by git and not by us: more is captured, never less.
#[test]
fn the_known_differences_from_git_are_these() {
    let known: [(&[u8], &[u8], &str); 2] = [
        (b"x\xff", b"x\xff", "a line that is not UTF-8"),
        ("[\u{e9}]?".as_bytes(), "\u{e9}".as_bytes(), "bytes beyond ASCII in brackets"),
    ];
    for (rule, name, reason) in known {
        let case = case_by_rules();
        case.write(".gitignore", rule);
        fs::write(case.path.join(std::ffi::OsStr::from_bytes(name)), "").unwrap();
        let status = git(&case.path, &["status", "--porcelain", "--ignored"]);
        assert!(status.contains("!! "), "git no longer ignores {reason}: {status}");
        let walked = case.walk();
        let observed = walked.find(&RelPath::new(name).unwrap()).unwrap();
        assert_eq!(observed.what, What::File, "no longer a difference: {reason}");
    }
}

#[test]
fn an_ignore_file_counts_outside_any_repository_too() {
    let case = Case::new();
    case.write(".gitignore", "\u{feff}*.o\r\nout/\n!keep.o\n")
        .write("sub/.gitignore", "/only-here\n");
    case.write_all(&["a.o", "keep.o", "out/x", "sub/out/x", "sub/only-here", "sub/b/only-here"]);
    assert_lines(
        &case.walk(),
        &[
            "file .gitignore",
            "ignored a.o",
            "file keep.o",
            "ignored out",
            "dir sub",
            "file sub/.gitignore",
            "dir sub/b",
            "file sub/b/only-here",
            "ignored sub/only-here",
            "ignored sub/out",
        ],
    );
}

#[test]
fn a_repository_inside_has_its_own_rules_and_only_those() {
    let case = Case::repository();
    case.write(".gitignore", "*.o\n/ignored/\n");
    for inner in ["inner", "ignored"] {
        fs::create_dir(case.path.join(inner)).unwrap();
        git(&case.path.join(inner), &["init", "-q"]);
    }
    case.write("inner/.git/info/exclude", "/top.tmp\n").write("inner/.gitignore", "*.a\n");
    case.write_all(&[
        "inner/x.o",
        "inner/x.a",
        "inner/top.tmp",
        "inner/d/top.tmp",
        "ignored/x",
        "y.o",
    ]);
    fs::create_dir_all(case.path.join("fake/.git")).unwrap();
    case.write("fake/z.o", "");
    let walked = case.walk();
    assert_lines(
        &walked,
        &[
            "excluded .git",
            "file .gitignore",
            "dir fake",
            "excluded fake/.git",
            "ignored fake/z.o",
            "ignored ignored",
            "dir inner",
            "excluded inner/.git",
            "file inner/.gitignore",
            "dir inner/d",
            "file inner/d/top.tmp",
            "ignored inner/top.tmp",
            "ignored inner/x.a",
            "file inner/x.o",
            "ignored y.o",
        ],
    );
    assert_eq!(walked.nested_repositories, [path("inner")]);
}

#[test]
fn a_workspace_that_the_repository_around_it_ignores_is_captured_by_its_own_rules() {
    let case = Case::repository();
    case.write(".gitignore", "*\n").write("work/here/.gitignore", "*.o\n");
    case.write_all(&["work/here/a", "work/here/a.o", "work/here/sub/b"]);
    assert_lines(
        &case.walk_at("work/here"),
        &["file .gitignore", "file a", "ignored a.o", "dir sub", "file sub/b"],
    );
}

#[test]
fn an_ignore_file_that_is_a_symlink_is_not_followed() {
    let case = Case::repository();
    case.write("rules", "*.o\n").write("a.o", "").write("sub/a.o", "");
    symlink("rules", case.path.join(".gitignore")).unwrap();
    symlink("../rules", case.path.join("sub/.gitignore")).unwrap();
    let walked = case.walk();
    assert_eq!(what(&walked, "a.o"), &What::File);
    assert_eq!(what(&walked, "sub/a.o"), &What::File);
}

#[test]
fn an_ignore_file_beyond_the_bound_is_not_obeyed_and_that_is_told() {
    let case = Case::repository();
    let long = "x\n".repeat(usize::try_from(limits::IGNORE_FILE_BYTES_MAX / 2).unwrap());
    case.write("sub/.gitignore", format!("{long}a\n")).write("sub/a", "");
    let recorder = Recorder::default();
    let walked = case.try_walk_at("", &recorder).unwrap();
    assert_eq!(what(&walked, "sub/a"), &What::File);
    let notices = recorder.notices.into_inner().unwrap();
    let [Notice::IgnoreFileSkipped { path, reason }] = &notices[..] else { panic!("{notices:?}") };
    assert_eq!(*path, case.path.join("sub/.gitignore"));
    assert!(reason.contains("longer than"), "{reason}");
}

#[test]
fn the_digest_follows_every_ignore_file_that_counts_and_nothing_else() {
    let case = Case::repository();
    case.write_all(&["a", "sub/b"]);
    let mut seen = BTreeSet::new();
    let digest = || case.walk().ignore_digest.to_string();
    assert!(seen.insert(digest()));
    case.write("a", "other").write("c", "");
    assert!(!seen.insert(digest()));
    for (name, text) in [
        (".gitignore", "x\n"),
        (".gitignore", "y\n"),
        ("sub/.gitignore", "y\n"),
        (".git/info/exclude", "z\n"),
    ] {
        case.write(name, text);
        assert!(seen.insert(case.walk().ignore_digest.to_string()), "{name} {text}");
    }
    fs::rename(case.path.join("sub"), case.path.join("tub")).unwrap();
    assert!(seen.insert(case.walk().ignore_digest.to_string()));
    // An ignored directory is not entered, so what it says does not count.
    case.write(".gitignore", "tub\n");
    assert!(seen.insert(case.walk().ignore_digest.to_string()));
    case.write("tub/.gitignore", "zz\n");
    assert!(!seen.insert(case.walk().ignore_digest.to_string()));
}

#[test]
fn ignore_files_outside_the_list_are_reported_with_their_hash() {
    let case = Case::repository();
    case.write(".git/info/exclude", "x\n").write("sub/a", "").write(".gitignore", "y\n");
    let exclude = case.path.join(".git/info/exclude");
    let hash = crate::hash::BlobHash::of;
    let files = |walked: Walked| {
        walked.ignore_files.into_iter().map(|file| (file.path, file.hash)).collect::<Vec<_>>()
    };
    assert_eq!(files(case.walk()), [(exclude.clone(), hash(b"x\n"))]);
    let above = (case.path.join(".gitignore"), hash(b"y\n"));
    assert_eq!(files(case.walk_at("sub")), [(exclude, hash(b"x\n")), above]);
}

/// The user's own rules are found by the environment, so the walk runs in a child.
#[test]
fn the_users_own_rules_count_last() {
    const NAME: &str = "walk::tests::rules::the_users_own_rules_count_last";
    if let Some(place) = place_of_child() {
        let root = Dir::open(&place).unwrap();
        let options = WalkOptions { threads: 2, ..WalkOptions::default() };
        let walked = walk(&root, &place, &ScopeSettings::default(), &options, None, &()).unwrap();
        assert_lines(
            &walked,
            &[
                "excluded .git",
                "file .gitignore",
                "ignored a.global",
                "file kept.global",
                "dir sub",
                "ignored sub/anchored",
                "ignored sub/b.global",
            ],
        );
        assert_eq!(walked.ignore_files.len(), 2);
        return;
    }
    let case = Case::repository();
    case.write(".gitignore", "!kept.global\n");
    case.write_all(&["a.global", "kept.global", "sub/b.global", "sub/anchored"]);
    let home = Case::new();
    let rules = "*.global\n/sub/anchored\n";
    home.write("dotfiles/ignore", rules);
    fs::create_dir_all(home.path.join(".config/git")).unwrap();
    symlink("../../dotfiles/ignore", home.path.join(".config/git/ignore")).unwrap();
    let in_home = |command: &mut Command| {
        command.env("HOME", &home.path).env_remove("XDG_CONFIG_HOME");
        command.env_remove("GIT_CONFIG_GLOBAL");
    };
    run_in_child(NAME, &case.path, in_home);

    fs::remove_file(home.path.join(".config/git/ignore")).unwrap();
    home.write(".gitconfig", "[core]\n\texcludesFile = ~/dotfiles/ignore\n");
    run_in_child(NAME, &case.path, in_home);
}
