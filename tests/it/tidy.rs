//! The rules of the house that a program can check. Each row of a table has its reason.
//!
//! Tests inside `src` (`#[cfg(test)]`) are not looked at: they may use what they like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// From the lowest up. A module uses modules of lower floors; on its own floor only what
/// [`SAME_FLOOR`] allows.
const FLOORS: &[(&str, &[&str])] = &[
    ("for tests only", &["mutation"]),
    ("vocabulary", &["clock", "error", "hash", "id", "limits", "monitor", "path"]),
    ("model", &["bisect", "checkpoint", "compare", "manifest", "operation", "plan", "settings"]),
    ("pools", &["threads"]),
    ("edges", &["blobs", "disk", "git", "index", "walk"]),
    ("files of the user", &["configuration"]),
    ("files of the store", &["journal", "layout", "runs", "sessions", "workspaces"]),
    ("protocol", &["access", "adoption", "registration"]),
    (
        "operations",
        &["capture", "doctor", "isolate", "purge", "quarantine", "restore", "retention", "verify"],
    ),
    ("facade", &["store"]),
];

/// Who may use a module of its own floor, or above it, and why.
const SAME_FLOOR: &[(&str, &str, &str)] = &[
    ("id", "limits", "names have greatest lengths"),
    ("id", "path", "a name that is refused is shown as a path is"),
    ("path", "limits", "paths have a greatest length"),
    ("monitor", "path", "a notice names a path"),
    ("error", "clock", "an error names a time"),
    ("error", "hash", "an error names a blob"),
    ("error", "id", "an error names a checkpoint"),
    ("error", "limits", "an error says how long to wait"),
    ("error", "path", "an error names a path"),
    ("error", "manifest", "lost content says why it was left out: one plain word of the model"),
    ("checkpoint", "manifest", "a checkpoint is what its manifest says"),
    ("compare", "manifest", "a comparison is of entries"),
    ("plan", "checkpoint", "a plan leads from the disk to a checkpoint"),
    ("plan", "manifest", "a plan compares entries"),
    ("plan", "settings", "a plan obeys what the settings exclude"),
    ("journal", "layout", "where journals lie"),
    ("journal", "workspaces", "a journal is of one directory"),
    ("runs", "layout", "where runs lie"),
    ("sessions", "layout", "where sessions lie"),
    ("workspaces", "layout", "where workspaces lie"),
    ("workspaces", "sessions", "a file that is lost is made anew from manifests"),
    ("registration", "access", "an operation is registered in an open store"),
    ("adoption", "access", "rows are added in an open store"),
    ("adoption", "registration", "an operation is dead or alive"),
    ("doctor", "verify", "the kinds of damage; neither calls the other"),
    ("blobs", "disk", "the lowest edge: how bytes become durable"),
    ("git", "disk", "the lowest edge"),
    ("index", "disk", "the lowest edge: moving a damaged index aside"),
    ("walk", "disk", "the lowest edge: directory handles"),
    ("walk", "git", "which paths git tracks is part of what is in scope"),
];

/// Which modules may use which crate, or part of the standard library, and why.
const OWNERS: &[(&str, &[&str], &str)] = &[
    ("anstream", &["cli", "main"], "printing is the program's"),
    ("anstyle", &["cli", "main"], "printing is the program's"),
    ("base64", &["cli", "manifest", "walk"], "bytes that are not text, in JSON"),
    ("blake3", &["hash"], "one place decides what a blob is named by"),
    ("clap", &["cli", "main"], "arguments are the program's"),
    ("clap_mangen", &["cli"], "manual pages are the program's"),
    ("console", &["cli"], "keys are the program's"),
    ("csv", &["cli"], "a form of output"),
    ("etcetera", &["cli", "main"], "the library is told its directories"),
    ("globset", &["compare"], "one meaning of patterns that are typed"),
    ("ignore", &["walk"], "one meaning of ignore rules"),
    ("indicatif", &["cli", "main"], "the library shows nothing"),
    ("jiff", &["cli", "clock"], "one form of time, and its display"),
    ("jwalk", &["walk"], "unmaintained, so behind one door"),
    ("r2d2", &["index"], "SQL stays in one place"),
    ("r2d2_sqlite", &["index"], "SQL stays in one place"),
    (
        "rayon",
        &["blobs", "capture", "restore", "threads", "verify", "walk", "workspaces"],
        "own pools where there is work",
    ),
    ("rustyline", &["cli"], "the prompt is the program's"),
    ("rusqlite", &["index"], "SQL stays in one place"),
    (
        "rustix",
        &["blobs", "cli", "disk", "walk"],
        "system calls are the edges'; signals and the mode of the terminal the program's",
    ),
    (
        "serde",
        &[
            "capture",
            "checkpoint",
            "cli",
            "git",
            "journal",
            "layout",
            "manifest",
            "plan",
            "purge",
            "runs",
            "sessions",
            "settings",
            "store",
            "walk",
            "workspaces",
        ],
        "file formats and JSON output",
    ),
    (
        "serde_json",
        &[
            "capture",
            "checkpoint",
            "cli",
            "git",
            "journal",
            "layout",
            "manifest",
            "plan",
            "purge",
            "runs",
            "sessions",
            "settings",
            "store",
            "walk",
            "workspaces",
        ],
        "file formats and JSON output",
    ),
    ("signal_hook", &["cli", "main"], "signals belong to the process"),
    ("similar", &["compare"], "one place decides which lines differ"),
    ("strsim", &["settings"], "one place finds the nearest name of a setting"),
    ("tar", &["restore"], "one place writes archives"),
    (
        "tempfile",
        &["blobs", "cli", "disk", "walk"],
        "temporary names are the edges'; where a command is tried is the program's",
    ),
    ("terminal_size", &["cli"], "how wide a line may be"),
    ("thiserror", &["*"], "error types"),
    ("toml", &["settings"], "one place reads settings"),
    ("toml_edit", &["settings"], "one place changes them"),
    ("unicode_width", &["cli"], "how wide a cell is"),
    ("uuid", &["disk", "id"], "one place mints ids; the machine's boot id is one too"),
    ("xxhash_rust", &["hash"], "one place decides where a fast hash will do"),
    ("zstd", &["blobs"], "one place decides how content is stored"),
    (
        "std::env",
        &["cli", "clock", "git", "main", "store", "walk"],
        "the library is told; tests shift the clock; git needs its surroundings set; the home \
         directory is not captured by mistake",
    ),
    (
        "std::fs",
        &["blobs", "cli", "disk", "walk"],
        "I/O is the edges'; a list to read is the program's",
    ),
    (
        "std::process",
        &["cli", "disk", "git", "main"],
        "one way to run git; exit codes; the process id in a temporary name",
    ),
    ("SystemTime::now", &["clock"], "one clock"),
    (
        "Instant::now",
        &[
            "capture",
            "cli",
            "disk",
            "git",
            "index",
            "restore",
            "retention",
            "store",
            "verify",
            "walk",
        ],
        "durations, not the time of day",
    ),
];

/// What lies at the top of the repository.
const TOP: &[&str] =
    &["Cargo.lock", "Cargo.toml", "README.md", "benches", "docs", "migrations", "src", "tests"];

/// Hosts that texts may point to: public documentation, and names reserved for examples.
const HOSTS: &[&str] = &[
    "crates.io",
    "docs.rs",
    "example.com",
    "github.com",
    "keepachangelog.com",
    "no-color.org",
    "semver.org",
    "sqlite.org",
    "www.apache.org",
    "www.sqlite.org",
];

const SOURCE_LINES_MAX: usize = 700;

#[test]
fn modules_use_only_lower_floors() {
    let reexports = reexports();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut problems = Vec::new();
    for source in library_sources() {
        let module = &source.module;
        if module == "lib" {
            continue;
        }
        let Some(floor) = floor_of(module) else {
            problems.push(format!("{}: `{module}` is on no floor", source.path.display()));
            continue;
        };
        for used in source.crate_uses() {
            let used = reexports.get(&used).unwrap_or(&used).clone();
            if used == *module {
                continue;
            }
            let allowed = SAME_FLOOR.iter().any(|row| (row.0, row.1) == (module, &used));
            if allowed {
                edges.entry(module.clone()).or_default().insert(used);
                continue;
            }
            match floor_of(&used) {
                Some(below) if below < floor => {
                    edges.entry(module.clone()).or_default().insert(used);
                }
                _ => problems.push(format!("{}: uses `{used}`", source.path.display())),
            }
        }
    }
    // The one row of the table that leads upwards would close a circle by design.
    edges.entry("error".to_owned()).or_default().remove("manifest");
    for start in edges.keys() {
        if let Some(circle) = circle_from(start, &edges) {
            problems.push(format!("a circle: {}", circle.join(" -> ")));
        }
    }
    assert_none(&problems);
}

#[test]
fn every_crate_has_its_owners() {
    let mut problems = Vec::new();
    for source in sources("src") {
        for name in source.paths_used() {
            let row = OWNERS.iter().find(|row| row.0 == name);
            let allowed = row.is_none_or(|(_, owners, _)| {
                owners.contains(&"*") || owners.contains(&source.module.as_str())
            });
            if !allowed {
                problems.push(format!("{}: uses `{name}`", source.path.display()));
            }
        }
    }
    for name in dependencies() {
        if !OWNERS.iter().any(|row| row.0 == name.replace('-', "_")) {
            problems.push(format!("Cargo.toml: `{name}` has no row in the table of owners"));
        }
    }
    assert_none(&problems);
}

#[test]
fn every_row_of_the_table_of_owners_is_of_a_dependency() {
    let names: BTreeSet<String> =
        dependencies().into_iter().map(|name| name.replace('-', "_")).collect();
    for (name, _, _) in OWNERS {
        assert!(name.contains("::") || names.contains(*name), "`{name}` is no dependency");
    }
}

#[test]
fn files_lie_where_they_belong() {
    let mut problems = Vec::new();
    for path in tracked() {
        let top = path.components().next().unwrap().as_os_str().to_str().unwrap();
        if !TOP.contains(&top) && !top.starts_with('.') {
            problems.push(format!("{}: `{top}` at the top", path.display()));
        }
        if path.ends_with("mod.rs") {
            problems.push(format!("{}: a module is named by its own file", path.display()));
        }
    }
    for source in sources("src") {
        let lines = source.text.lines().count();
        if lines > SOURCE_LINES_MAX && !is_tests(&source.path) {
            problems.push(format!("{}: {lines} lines", source.path.display()));
        }
    }
    assert_none(&problems);
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here so that this file does not find itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X:"], ["db", "g!("], ["#[ign", "ore"]];
    let words = words.map(|parts| parts.concat());
    let mut problems = Vec::new();
    for path in tracked_text() {
        let text = read(&path);
        for (number, line) in text.lines().enumerate() {
            problems.extend(
                words
                    .iter()
                    .filter(|word| line.contains(word.as_str()))
                    .map(|word| format!("{}:{}: {word}", path.display(), number + 1)),
            );
        }
    }
    assert_none(&problems);
}

#[test]
fn texts_name_no_place_of_one_machine() {
    let places = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"], ["/tmp", "/w/"], ["/mn", "t/"]];
    let places = places.map(|parts| parts.concat());
    let mut problems = Vec::new();
    for path in tracked_text() {
        let text = read(&path);
        for (number, line) in text.lines().enumerate() {
            let at = |what: &str| format!("{}:{}: {what}", path.display(), number + 1);
            let named = |place: &String| {
                line.match_indices(place.as_str()).any(|(start, _)| {
                    // A path that begins there, not a part of a longer one.
                    let before = line.as_bytes()[..start].last();
                    !before
                        .is_some_and(|byte| byte.is_ascii_alphanumeric() || b"}._-".contains(byte))
                })
            };
            problems.extend(places.iter().filter(|place| named(place)).map(|place| at(place)));
            for part in line.split("://").skip(1) {
                let host = part
                    .split(|letter: char| {
                        !(letter.is_ascii_alphanumeric() || ".-".contains(letter))
                    })
                    .next()
                    .unwrap_or_default();
                if !host.is_empty() && !HOSTS.contains(&host) && path != Path::new("Cargo.lock") {
                    problems.push(at(host));
                }
            }
        }
    }
    let lock = read(Path::new("Cargo.lock"));
    let official = r#"source = "registry+https://github.com/rust-lang/crates.io-index""#;
    for line in lock.lines().filter(|line| line.starts_with("source = ") && *line != official) {
        problems.push(format!("Cargo.lock: {line}"));
    }
    assert_none(&problems);
}

#[track_caller]
fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The files that git tracks or would track, relative.
fn tracked() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names = String::from_utf8(output.stdout).unwrap();
    let files: Vec<PathBuf> = names
        .split_terminator('\0')
        .map(PathBuf::from)
        .filter(|path| repository().join(path).is_file())
        .collect();
    assert!(files.len() > 10, "git lists {} files", files.len());
    files
}

fn tracked_text() -> Vec<PathBuf> {
    tracked()
        .into_iter()
        .filter(|path| fs::read_to_string(repository().join(path)).is_ok())
        .collect()
}

/// The names of the crates in `[dependencies]`.
fn dependencies() -> Vec<String> {
    let manifest = read(Path::new("Cargo.toml"));
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap();
    let section = section.split("\n[").next().unwrap();
    let names: Vec<String> = section
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().to_owned())
        .collect();
    assert!(names.len() > 10);
    names
}

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|(_, modules)| modules.contains(&module))
}

/// What `lib.rs` re-exports, with the module it comes from.
fn reexports() -> BTreeMap<String, String> {
    let lib = Source::new("src/lib.rs".into());
    let mut found = BTreeMap::new();
    for (at, token) in lib.tokens.iter().enumerate() {
        if token == "use" {
            let end = lib.tokens[at..].iter().position(|token| token == ";").unwrap();
            let module = &lib.tokens[at + 1];
            for name in &lib.tokens[at + 2..at + end] {
                found.insert(name.clone(), module.clone());
            }
        }
    }
    found
}

fn circle_from(start: &str, edges: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    let mut paths = vec![vec![start.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(path) = paths.pop() {
        for next in edges.get(path.last()?).into_iter().flatten() {
            let mut longer = path.clone();
            longer.push(next.clone());
            if next == start {
                return Some(longer);
            }
            if seen.insert(next) {
                paths.push(longer);
            }
        }
    }
    None
}

/// A source file as tokens: names, numbers and single signs; `::` is one; no comments, no strings,
/// no tests.
struct Source {
    path: PathBuf,
    /// The module at the top of the crate that it belongs to.
    module: String,
    text: String,
    tokens: Vec<String>,
}

fn sources(under: &str) -> Vec<Source> {
    let rust =
        |path: &PathBuf| path.starts_with(under) && path.extension().is_some_and(|e| e == "rs");
    tracked().into_iter().filter(rust).map(Source::new).collect()
}

/// Whether a file under `src` is a module's tests: `tests.rs`, or below `tests/`.
fn is_tests(path: &Path) -> bool {
    path.ends_with("tests.rs") || path.parent().is_some_and(|parent| parent.ends_with("tests"))
}

/// The library alone: the program is a crate of its own that sees what is public.
fn library_sources() -> Vec<Source> {
    sources("src")
        .into_iter()
        .filter(|source| !["main", "cli"].contains(&&*source.module))
        .collect()
}

impl Source {
    fn new(path: PathBuf) -> Self {
        let text = read(&path);
        let inside = path.strip_prefix("src").unwrap_or(&path);
        let first = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs").to_owned();
        let mut tokens = without_tests(&tokens(&text));
        if is_tests(&path) {
            tokens.clear();
        }
        Self { path, module, text, tokens }
    }

    /// The first names after `crate::`, and after `super::` in a file at the top.
    fn crate_uses(&self) -> BTreeSet<String> {
        let mut roots = vec!["crate"];
        if self.path.components().count() == 2 {
            roots.push("super");
        }
        let mut found = BTreeSet::new();
        for (at, pair) in self.tokens.windows(2).enumerate() {
            if roots.contains(&pair[0].as_str()) && pair[1] == "::" {
                found.extend(heads(&self.tokens[at + 2..]));
            }
        }
        found
    }

    /// Names of crates, and the paths of the standard library that [`OWNERS`] lists.
    fn paths_used(&self) -> BTreeSet<String> {
        let mut found = self.crate_names();
        for (at, token) in self.tokens.iter().enumerate() {
            if self.tokens.get(at + 1).is_none_or(|next| next != "::") {
                continue;
            }
            if ["std", "SystemTime", "Instant"].contains(&token.as_str()) {
                found.extend(
                    heads(&self.tokens[at + 2..])
                        .into_iter()
                        .map(|head| format!("{token}::{head}")),
                );
            }
        }
        found
    }

    /// Names at the beginning of a path.
    fn crate_names(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for (at, token) in self.tokens.iter().enumerate() {
            let begins = at == 0 || self.tokens[at - 1] != "::";
            let ends = self.tokens.get(at + 1).is_some_and(|next| next == "::");
            let imported = at > 0 && self.tokens[at - 1] == "use";
            if begins && (ends || imported) && *token != "crate" {
                found.insert(token.clone());
            }
        }
        found
    }
}

/// The names with which the paths at the start of `tokens` begin: one, or those of a group.
fn heads(tokens: &[String]) -> Vec<String> {
    if tokens.first().is_none_or(|token| token != "{") {
        return tokens.first().cloned().into_iter().collect();
    }
    let mut found = Vec::new();
    let mut depth = 0;
    let mut fresh = true;
    for token in tokens {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => fresh = depth == 1,
            _ if depth == 1 && fresh => {
                found.push(token.clone());
                fresh = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// Leaves out every item after `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].starts_with(&marker.map(str::to_owned)) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        at += marker.len();
        while at < tokens.len() {
            match tokens[at].as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            at += 1;
            if depth == 0 && ["}", ";"].contains(&tokens[at - 1].as_str()) {
                break;
            }
        }
    }
    kept
}

fn tokens(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    let starts = |at: usize, what: &str| {
        what.chars().enumerate().all(|(i, l)| letters.get(at + i) == Some(&l))
    };
    let mut found = Vec::new();
    let mut at = 0;
    while at < letters.len() {
        let letter = letters[at];
        if starts(at, "//") {
            at += letters[at..].iter().position(|&l| l == '\n').unwrap_or(letters.len() - at);
        } else if starts(at, "/*") {
            at += 2;
            while at < letters.len() && !starts(at, "*/") {
                at += 1;
            }
            at += 2;
        } else if let Some(hashes) = raw_string(&letters[at..]) {
            let end = format!("\"{}", "#".repeat(hashes));
            at += letters[at..].iter().position(|&l| l == '"').unwrap_or(0) + 1;
            while at < letters.len() && !starts(at, &end) {
                at += 1;
            }
            at += end.len();
        } else if letter == '"' {
            at += 1;
            while at < letters.len() && letters[at] != '"' {
                at += if letters[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if letter == '\'' {
            // A character, or a lifetime, which has no closing quote.
            at += match (letters.get(at + 1), letters.get(at + 2)) {
                (Some('\\'), _) => {
                    3 + letters[at + 3..].iter().position(|&l| l == '\'').map_or(0, |end| end + 1)
                }
                (Some(_), Some('\'')) => 3,
                _ => 1,
            };
        } else if is_name(letter) {
            let length = letters[at..].iter().take_while(|&&l| is_name(l)).count();
            found.push(letters[at..at + length].iter().collect());
            at += length;
        } else if starts(at, "::") {
            found.push("::".to_owned());
            at += 2;
        } else {
            if !letter.is_whitespace() {
                found.push(letter.to_string());
            }
            at += 1;
        }
    }
    found
}

/// With how many `#` a raw string begins here, if one does.
fn raw_string(letters: &[char]) -> Option<usize> {
    let (['b', 'r', after @ ..] | ['r', after @ ..]) = letters else { return None };
    let hashes = after.iter().take_while(|&&letter| letter == '#').count();
    (after.get(hashes) == Some(&'"')).then_some(hashes)
}

#[test]
fn the_reader_of_sources_sees_what_it_should() {
    let text = r##"
        use crate::{a::b, c, d::{e, f}}; // crate::no
        /* crate::no */ fn x<'a>() { crate::g::h("crate::no \" crate::no", '"', '\'', r#"crate::no"#) }
        use std::{fs, io}; use zstd::bulk;
        #[cfg(test)] mod tests { use crate::no; fn y() { no::z() } }
        #[cfg(test)] use crate::no;
        fn z() { crate::i() }
    "##;
    let source = Source {
        path: "src/x/y.rs".into(),
        module: "x".to_owned(),
        text: String::new(),
        tokens: without_tests(&tokens(text)),
    };
    let names = |found: BTreeSet<String>| found.into_iter().collect::<Vec<_>>().join(" ");
    assert_eq!(names(source.crate_uses()), "a c d g i");
    assert_eq!(names(source.paths_used()), "a d std std::fs std::io zstd");
    let edges = |pairs: &[(&str, &str)]| {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in pairs {
            edges.entry((*from).to_owned()).or_default().insert((*to).to_owned());
        }
        edges
    };
    assert!(circle_from("a", &edges(&[("a", "b"), ("b", "c"), ("c", "a")])).is_some());
    assert!(circle_from("a", &edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_none());
}
