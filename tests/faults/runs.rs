//! Runs in work trees of their own, and their removal: killed, and on a disk without room.
//!
//! `TURNPOINT_FAULTS=all` takes 100 points in the place of eight.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::full::{Mounted, noise};
use crate::scene::BINARY;
use crate::steps::{self, Step};
use crate::support::ground::{Ground as Checkout, ground};
use crate::support::program::{Program, Run, run};
use crate::support::tree::{build, file};

/// The runs of git that change something.
const WRITES: [&str; 5] = [
    "worktree add",
    "worktree remove",
    "update-ref --no-deref -d",
    "update-ref --no-deref refs",
    "write-tree",
];

/// How many points.
fn points() -> usize {
    let takes_all = std::env::var("TURNPOINT_FAULTS").is_ok_and(|value| value == "all");
    if takes_all { 100 } else { 8 }
}

/// A command that is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// A run whose command fails.
    Exec,
    Remove,
    Prune,
}

/// Where it is killed.
#[derive(Debug, Clone)]
enum Point {
    /// The program itself, at one of its calls.
    Own(Step),
    /// git below it, at a call of that name, with the program or without.
    Git { words: &'static str, call: String, nth: usize, with_all: bool },
}

impl Point {
    /// Makes it an earlier one; true where it is the first already.
    fn halve(&mut self) -> bool {
        let nth = match self {
            Self::Own(step) => &mut step.nth,
            Self::Git { nth, .. } => nth,
        };
        *nth /= 2;
        *nth == 0
    }
}

/// A repository with runs, and what is to be found of each.
struct Ground {
    program: Program,
    /// How many runs were begun.
    count: u32,
    before: Checkout,
}

impl Ground {
    fn new(program: Program) -> Self {
        let files = (0..30).map(|n| (format!("many/{n}"), file(format!("{n}\n").repeat(50))));
        build(&program.workspace(), files);
        build(&program.workspace(), [(".gitignore", file("*.log\n")), ("a.txt", file("one\n"))]);
        program.git(["init", "-q"]);
        program.git(["add", "."]);
        program.git(["commit", "-q", "-m", "first"]);
        build(&program.workspace(), [("a.txt", file("changed\n")), ("new.txt", file("new\n"))]);
        let before = ground(&program);
        Self { program, count: 0, before }
    }

    /// The words of a run that commits, stages, changes and adds something of its own, and says when it has.
    fn exec(&mut self, status: u8) -> Vec<String> {
        self.count += 1;
        let (n, done) = (self.count, self.done().display().to_string());
        let script = format!(
            "echo {n} > made; git add made; git commit -qm {n}; echo staged {n} > a.txt; \
             git add a.txt; echo later {n} > a.txt; echo {n} > untracked; echo {n} > y.log; \
             touch {done}; exit {status}"
        );
        ["exec", "--worktree", "--", "sh", "-c", &script].map(str::to_owned).to_vec()
    }

    fn done(&self) -> PathBuf {
        self.program.root().join(format!("done-{}", self.count))
    }

    /// Brings everything to where the operation begins; its words.
    fn prepare(&mut self, operation: Operation) -> Vec<String> {
        if operation == Operation::Exec {
            return self.exec(3);
        }
        let exec = self.exec(0);
        self.program.run(exec).ok();
        let listed = self.program.run(["worktree", "list", "--json"]).ok().json();
        let id = listed["runs"][0]["run"].as_str().unwrap().to_owned();
        let words: &[&str] = match operation {
            Operation::Remove => &["worktree", "remove", &id, "--yes"],
            _ => &["worktree", "prune", "--older-than", "0s"],
        };
        words.iter().map(|&word| word.to_owned()).collect()
    }

    /// A directory with a git that does `script` where its words have `words` in them. In the script `$git` is
    /// the real one.
    fn git_that(&self, words: &str, script: &str) -> std::ffi::OsString {
        let path = std::env::var_os("PATH").unwrap();
        let real = std::env::split_paths(&path).map(|it| it.join("git")).find(|it| it.exists());
        let directory = self.program.root().join("bin");
        fs::create_dir_all(&directory).unwrap();
        let (real, words) = (real.unwrap().display().to_string(), words.replace(' ', "\\ "));
        let text = format!(
            "#!/bin/sh\ngit={real}\ncase \"$*\" in *{words}*) {script};; esac\nexec $git \"$@\"\n"
        );
        fs::write(directory.join("git"), text).unwrap();
        fs::set_permissions(directory.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut all = directory.into_os_string();
        all.push(":");
        all.push(path);
        all
    }

    /// What git calls to change something below the operation: what it is asked, the call, how often.
    fn calls_of_git(&mut self, operation: Operation) -> Vec<(&'static str, String, usize)> {
        let mut all = Vec::new();
        for words in WRITES {
            let arguments = self.prepare(operation);
            let log = self.program.root().join("calls");
            drop(fs::remove_file(&log));
            let script = format!(
                "exec strace -f -qq -A -o {} -e trace={} $git \"$@\"",
                log.display(),
                steps::CALLS
            );
            let git = self.git_that(words, &script);
            run(self.program.command(arguments).env("PATH", git));
            self.clear("nothing");
            let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
            let mut most: BTreeMap<String, usize> = BTreeMap::new();
            for line in fs::read_to_string(&log).unwrap_or_default().lines() {
                let Some((process, rest)) = line.split_once(' ') else { continue };
                let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
                if call.contains([' ', '<', '+', '-']) {
                    continue;
                }
                let nth = counts.entry((process.to_owned(), call.to_owned())).or_default();
                *nth += 1;
                if !call.starts_with("open") || rest.contains("O_CREAT") {
                    let most = most.entry(call.to_owned()).or_default();
                    *most = (*most).max(*nth);
                }
            }
            all.extend(most.into_iter().map(|(call, most)| (words, call, most)));
        }
        all
    }

    /// Kills an operation there; `None` where it came to its end without.
    fn kill(&mut self, operation: Operation, point: &Point) -> Option<Run> {
        let arguments = self.prepare(operation);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = match point {
            Point::Own(step) => step.kill(&self.program, &arguments),
            Point::Git { words, call, nth, with_all } => {
                let end = if *with_all { "[ $code = 0 ] || kill -KILL $PPID; " } else { "" };
                let died = self.program.root().join("died");
                drop(fs::remove_file(&died));
                let script = format!(
                    "strace -f -qq -o {} -e trace={call} -e inject={call}:signal=KILL:when={nth} \
                     $git \"$@\"; code=$?; {end}exit $code",
                    died.display()
                );
                let git = self.git_that(words, &script);
                let ended = run(self.program.command(&arguments).env("PATH", git));
                let killed = fs::read_to_string(&died).unwrap_or_default();
                killed.contains("killed by SIGKILL").then_some(())?;
                ended
            }
        };
        let is_killed = ended.code == 137 || matches!(point, Point::Git { .. });
        is_killed.then_some(ended)
    }

    /// What a person does next, until nothing is left of any run.
    fn clear(&self, what: &str) {
        let begun = Instant::now();
        loop {
            // What a killed git has left is old by then.
            for lock in locks(&self.program.workspace().join(".git")) {
                run(self.program.other("touch").args(["-d", "1 minute ago"]).arg(lock)).ok();
            }
            let pruned = self.program.run(["worktree", "prune", "--older-than", "0s"]);
            if pruned.stderr.contains("packed-refs.lock': File exists") {
                // The lock of all refs is a person's to remove, once no git is at work, as the hint says.
                assert!(pruned.stderr.contains("remove that file"), "{what}: {}", pruned.stderr);
                drop(fs::remove_file(self.program.workspace().join(".git/packed-refs.lock")));
            }
            let listed = self.program.run(["worktree", "list", "--json"]).ok().json();
            if listed["runs"].as_array().unwrap().is_empty() {
                // So it is where git was killed with it in its hand, and nobody needs refs any more.
                drop(fs::remove_file(self.program.workspace().join(".git/packed-refs.lock")));
                return;
            }
            // The command, or git, goes on where the program alone was killed.
            assert!(
                begun.elapsed() < Duration::from_mins(1),
                "{what}: {}{}",
                pruned.stdout,
                pruned.stderr
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Everything is cleared, the checkout is as it was, and what the newest run did is found.
    fn assert_whole(&self, what: &str) {
        self.assert_cleared(what);
        let n = self.count.to_string();
        if !self.done().exists() {
            return;
        }
        let removed = self.program.run(["worktree", "list", "--removed", "--json"]).ok().json();
        let run = removed["runs"].as_array().unwrap().last().unwrap().clone();
        let held = |path: &str| self.held(&run["kept"], path);
        assert_eq!(held("untracked"), format!("{n}\n"), "{what}");
        assert_eq!(held("a.txt"), format!("later {n}\n"), "{what}");
        let led_to = |name: &str| {
            let id = run["run"].as_str().unwrap();
            self.program.git(["show", &format!("refs/turnpoint/removed/{id}/{name}")])
        };
        assert_eq!(led_to("branch:made"), n, "{what}");
        assert_eq!(led_to("index:a.txt"), format!("staged {n}"), "{what}");
    }

    fn held(&self, checkpoint: &Value, path: &str) -> String {
        let id = format!("{}:{}", checkpoint["session"].as_str().unwrap(), checkpoint["seq"]);
        self.program.run(["cat", &id, path]).ok().stdout
    }

    fn assert_cleared(&self, what: &str) {
        let root = self.program.workspace();
        assert!(!root.join(".turnpoint").exists(), "{what}: a directory is left");
        let left = fs::read_dir(root.join(".git/worktrees")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{what}: git keeps a work tree");
        assert_eq!(locks(&root.join(".git")), Vec::<PathBuf>::new(), "{what}: a lock is left");
        let branches = self.program.git(["for-each-ref", "refs/heads/turnpoint"]);
        assert_eq!(branches, "", "{what}: a branch is left");
        assert_eq!(ground(&self.program), self.before, "{what}");
    }
}

/// The locks that are left of git, of refs.
fn locks(git_dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![git_dir.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("objects") {
                directories.push(path);
            } else if path.extension().is_some_and(|it| it == "lock") {
                found.push(path);
            }
        }
    }
    found
}

/// Every point of an operation: first those of the program, then those of git.
fn points_of(ground: &mut Ground, operation: Operation) -> Vec<Point> {
    let arguments = ground.prepare(operation);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let status = if operation == Operation::Exec { 3 } else { 0 };
    let own = steps::ending(&ground.program, &arguments, steps::CALLS, status);
    ground.clear("nothing");
    let mut all: Vec<Point> = own.into_iter().filter(|it| it.is_main).map(Point::Own).collect();
    for (words, call, most) in ground.calls_of_git(operation) {
        for nth in 1..=most {
            let with_all = (nth + call.len()).is_multiple_of(2);
            all.push(Point::Git { words, call: call.clone(), nth, with_all });
        }
    }
    all
}

#[test]
fn killed_anywhere_a_run_and_its_removal_lose_nothing_and_leave_nothing() {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let mut ground = Ground::new(Program::below(BINARY, &place));
    let mut kinds: Vec<(Operation, Vec<Point>)> = Vec::new();
    for operation in [Operation::Exec, Operation::Remove, Operation::Prune] {
        let is_own = |point: &Point| matches!(point, Point::Own(_));
        let (own, git) = points_of(&mut ground, operation).into_iter().partition(is_own);
        kinds.extend([(operation, own), (operation, git)]);
    }
    assert!(kinds.iter().all(|(_, points)| points.len() > 30), "{kinds:?}");
    let (most, mut killed, mut passed) = (points(), 0, 0);
    for at in 0..most {
        // Of each kind as many, evenly spread.
        let (operation, points) = &kinds[at % kinds.len()];
        let chosen = (2 * (at / kinds.len()) + 1) * points.len() / (2 * most.div_ceil(kinds.len()));
        let mut point = points[chosen].clone();
        loop {
            let what = format!("{operation:?} killed at {point:?}");
            let is_killed = ground.kill(*operation, &point).is_some();
            ground.clear(&what);
            ground.assert_whole(&what);
            // It made fewer such calls than the run before it.
            passed += u32::from(!is_killed);
            if is_killed || point.halve() {
                killed += u32::from(is_killed);
                break;
            }
        }
    }
    let all: usize = kinds.iter().map(|(_, points)| points.len()).sum();
    println!("{killed} killed, of {all} points; {passed} came to their end before");
    assert_eq!(killed as usize, most);
    assert_eq!(ground.program.run(["verify"]).ok().stderr, "");
}

/// Both the store and the repository lie on it.
#[test]
fn a_removal_without_room_says_so_loses_nothing_and_is_done_when_there_is_some() {
    let disk = Mounted::ext4("40M");
    let mut ground = Ground::new(Program::below(BINARY, disk.place()));
    let mut failed = 0;
    for leave in [0, 16, 64, 128, 256, 512, 1024] {
        let what = format!("{leave} KiB left");
        let words = ground.prepare(Operation::Remove);
        let id = words[2].clone();
        let path = ground.program.workspace().join(".turnpoint/worktrees").join(&id);
        let large = noise(&id.as_bytes().repeat(75_000));
        fs::write(path.join("large"), &large).unwrap();
        disk.fill(leave * 1024);
        let removed = ground.program.run(&words);
        let is_told = ["No space left", "bytes more and has", "disk is full", "disk I/O error"];
        let is_told = is_told.iter().any(|text| removed.stderr.contains(text));
        assert!(removed.code == 0 || is_told, "{what}: {}", removed.stderr);
        assert!(!removed.stderr.contains("panicked"), "{what}: {}", removed.stderr);
        ground.program.run(["worktree", "list"]).ok();
        if removed.code != 0 {
            failed += 1;
            assert_eq!(fs::read(path.join("large")).unwrap(), large, "{what}");
            assert_eq!(
                fs::read_to_string(path.join("untracked")).unwrap().trim(),
                ground.count.to_string()
            );
        }
        disk.empty();
        if removed.code != 0 {
            ground.program.run(&words).ok();
        }
        ground.assert_whole(&what);
        let removed = ground.program.run(["worktree", "list", "--removed", "--json"]).ok().json();
        let kept = &removed["runs"].as_array().unwrap().last().unwrap()["kept"];
        let held = format!("{}:{}", kept["session"].as_str().unwrap(), kept["seq"]);
        assert_eq!(ground.program.run(["cat", &held, "large"]).ok().stdout_bytes, large, "{what}");
    }
    assert!(failed > 1, "there was room");
    ground.program.run(["verify", "--read-data"]).ok();
}

#[test]
fn a_run_is_made_although_another_removes_the_directory_of_runs_meanwhile() {
    let ground = Ground::new(Program::new(BINARY));
    let (program, place) = (&ground.program, ground.program.workspace().join(".turnpoint"));
    let words = ["exec", "--worktree", "--", "true"];
    let other = || program.run(["exec", "--worktree", "--", "false"]).exits(1);
    other();
    let is_of_place = |step: &Step| step.call == "mkdir" && step.text.contains("/.turnpoint");
    let all = steps::of(program, &words).into_iter().filter(is_of_place).collect::<Vec<_>>();
    ground.clear("nothing");
    assert_eq!(all.len(), 2, "{all:?}");
    for step in all {
        let stopped = step.hold(program, &words).unwrap();
        assert!(place.exists());
        other();
        assert!(!place.exists(), "it was not removed");
        let made = stopped.go_on();
        assert_eq!(made.code, 0, "{step}: {}", made.stderr);
        ground.clear("it was made");
        ground.assert_cleared("it was made");
    }
}

/// Between the last look at a work tree and its end somebody writes into it, from elsewhere.
#[test]
fn what_is_written_into_a_work_tree_that_is_being_removed_stays() {
    let mut ground = Ground::new(Program::new(BINARY));
    // Another one like it shows where it unlinks.
    let twin = ground.prepare(Operation::Remove);
    let twin: Vec<&str> = twin.iter().map(String::as_str).collect();
    let steps = steps::with(&ground.program, &twin, "unlink,unlinkat");
    let words = ground.prepare(Operation::Remove);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let top = ground.program.workspace().join(".turnpoint/worktrees").join(words[2]);
    let first = steps.iter().find(|step| step.text.contains("\"a.txt\"")).unwrap();
    let held = first.hold(&ground.program, &words).unwrap();
    fs::write(top.join("many/7"), "written\n").unwrap();
    fs::write(top.join("many/come"), "come\n").unwrap();
    fs::write(top.join("y.log"), "ignored\n").unwrap();
    let told = held.go_on();
    assert_eq!(told.code, 3, "{}{}", told.stdout, told.stderr);
    assert!(told.stderr.contains("changing"), "{}", told.stderr);
    assert_eq!(fs::read_to_string(top.join("many/7")).unwrap(), "written\n");
    assert_eq!(fs::read_to_string(top.join("many/come")).unwrap(), "come\n");
    // And then all of it is held, what was taken away before that too.
    ground.program.run(&words).ok();
    assert!(!top.exists());
    let removed = ground.program.run(["worktree", "list", "--removed", "--json"]).ok().json();
    let run = removed["runs"].as_array().unwrap().iter().find(|it| it["run"] == words[2]).unwrap();
    let content = |at: &Value, path: &str| {
        let id = format!("{}:{}", at["session"].as_str().unwrap(), at["seq"]);
        ground.program.run(["cat", &id, path]).ok().stdout
    };
    let further = &run["further"][0];
    assert_eq!(content(further, "many/7"), "written\n", "{removed}");
    assert_eq!(content(further, "many/come"), "come\n");
    assert_eq!(content(&run["kept"], "many/7"), "7\n".repeat(50));
    assert_eq!(content(&run["kept"], "a.txt"), "later 2\n");
    ground.program.git(["fsck", "--strict"]);
}
