//! Whole captures against git's shadow repository: the same tree, whole processes, in turn.
//!
//! `cargo bench --bench peers -- --quick`
//!
//! A capture of git is `git add -A && git write-tree && git commit-tree -p && git update-ref` with
//! its own `GIT_DIR` beside the tree, one shell with all its commands. The order is shuffled in each
//! round. Each round begins, once the last edit is old enough not to be taken for a racy one, with
//! one capture by each that does not count. At the end the newest capture of each is restored and
//! compared with the tree by a reading of its own.
//!
//! Quote ratios, never times: they are of one machine and one moment.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its results")]
#![allow(clippy::unwrap_used, reason = "the fingerprint is shared with the tests")]

#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/corpus.rs"]
mod corpus;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/fingerprint.rs"]
mod fingerprint;

use std::error::Error;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use corpus::{AGENT, Corpus, Random, Shape};

/// An edit this old is racy for neither: git keeps seconds in places, turnpoint takes two where it
/// does not know the file system.
const SETTLED: Duration = Duration::from_millis(2200);

/// How many checkpoints of a session turnpoint keeps.
const KEPT: usize = 20;

const USAGE: &str = "\
peers [--quick] [--files N] [--rounds N] [--first-rounds N] [--edits N] [--seed N]
      [--dir DIR] [--program FILE] [--only NAME] [--keep]

  --quick         9 rounds: under three minutes
  --files         size of the tree (10,000)
  --rounds        counted captures for `nothing changed` and for `files changed` (11)
  --first-rounds  counted first captures (3)
  --edits         how many files a turn changes (10)
  --dir           where to work: on the file system to be measured (where temporary files go)
  --program       the turnpoint to run (the one that was built with this bench)
  --only          one peer alone: git or turnpoint
  --keep          leave everything there at the end";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let settings = match Settings::parse(std::env::args().skip(1)) {
        Ok(Some(settings)) => settings,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprintln!("{problem}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match compare(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Settings {
    files: usize,
    rounds: usize,
    first_rounds: usize,
    edits: usize,
    seed: u64,
    dir: PathBuf,
    program: PathBuf,
    only: Option<String>,
    keep: bool,
}

impl Settings {
    /// `None` where help is asked for.
    fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Option<Self>> {
        let mut settings = Self {
            files: 10_000,
            rounds: 11,
            first_rounds: 3,
            edits: 10,
            seed: 1,
            dir: std::env::temp_dir(),
            program: env!("CARGO_BIN_EXE_turnpoint").into(),
            only: None,
            keep: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                // What cargo itself adds.
                "--bench" => {}
                "--quick" => settings.rounds = 9,
                "--files" => settings.files = value()?.parse()?,
                "--rounds" => settings.rounds = value()?.parse()?,
                "--first-rounds" => settings.first_rounds = value()?.parse()?,
                "--edits" => settings.edits = value()?.parse()?,
                "--seed" => settings.seed = value()?.parse()?,
                "--dir" => settings.dir = value()?.into(),
                "--program" => settings.program = fs::canonicalize(value()?)?,
                "--only" => settings.only = Some(value()?),
                "--keep" => settings.keep = true,
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("`{other}` is not known").into()),
            }
        }
        if settings.files < 100 || settings.rounds == 0 || settings.first_rounds == 0 {
            return Err("at least 100 files and one round of each".into());
        }
        Ok(Some(settings))
    }
}

/// A program that captures a tree.
trait Peer {
    fn name(&self) -> &'static str;
    /// One line that says which one it is; `None` where it is not there.
    fn version(&self) -> Option<String>;
    /// Makes what a first capture needs and is not part of it, in the new directory `store`.
    fn prepare(&self, store: &Path) -> Outcome<()>;
    /// Everything that has to be run for one capture of `tree`.
    fn capture(&self, store: &Path, tree: &Path, first: bool) -> Command;
    /// Writes the newest capture to the new directory `out`.
    fn restore(&self, store: &Path, tree: &Path, out: &Path) -> Outcome<()>;
}

struct Turnpoint {
    program: PathBuf,
}

impl Turnpoint {
    fn command(&self, store: &Path, tree: &Path) -> Command {
        let mut command = bare(&self.program, store);
        command.env("TURNPOINT_HOME", store).arg("-C").arg(tree);
        command
    }
}

impl Peer for Turnpoint {
    fn name(&self) -> &'static str {
        "turnpoint"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new(&self.program).arg("--version"))
    }

    fn prepare(&self, _store: &Path) -> Outcome<()> {
        Ok(())
    }

    fn capture(&self, store: &Path, tree: &Path, _first: bool) -> Command {
        let mut command = self.command(store, tree);
        command.args(["capture", "--session", "bench", "--json"]);
        command
    }

    fn restore(&self, store: &Path, tree: &Path, out: &Path) -> Outcome<()> {
        let list =
            succeed(self.command(store, tree).args(["list", "--session", "bench", "--json"]))?;
        let list: serde_json::Value = serde_json::from_slice(&list)?;
        let checkpoints = list["checkpoints"].as_array().into_iter().flatten();
        let newest = checkpoints.filter_map(|checkpoint| checkpoint["seq"].as_u64()).max();
        let newest = newest.ok_or("turnpoint lists no checkpoint")?.to_string();
        let mut restore = self.command(store, tree);
        succeed(restore.args(["restore", "bench", &newest, "--yes", "--into"]).arg(out))?;
        Ok(())
    }
}

struct Git;

/// `program` with git pointed at `store`.
fn with_git(program: &str, store: &Path, tree: &Path) -> Command {
    let mut command = bare(Path::new(program), store);
    command.env("GIT_DIR", store).env("GIT_WORK_TREE", tree).current_dir(tree);
    command
}

impl Peer for Git {
    fn name(&self) -> &'static str {
        "git"
    }

    fn version(&self) -> Option<String> {
        first_line(Command::new("git").arg("--version"))
    }

    fn prepare(&self, store: &Path) -> Outcome<()> {
        let git = || bare(Path::new("git"), store);
        succeed(git().args(["init", "--quiet", "--bare"]).arg(store))?;
        let settings =
            [("core.bare", "false"), ("user.name", "bench"), ("user.email", "bench@example.com")];
        for (key, value) in settings {
            succeed(git().env("GIT_DIR", store).args(["config", key, value]))?;
        }
        Ok(())
    }

    fn capture(&self, store: &Path, tree: &Path, first: bool) -> Command {
        let parent = if first { "" } else { "-p refs/turns/bench" };
        let mut command = with_git("sh", store, tree);
        command.arg("-c").arg(format!(
            "git add -A && tree=$(git write-tree) && \
             commit=$(git commit-tree {parent} -m turn $tree) && \
             git update-ref refs/turns/bench $commit"
        ));
        command
    }

    fn restore(&self, store: &Path, tree: &Path, out: &Path) -> Outcome<()> {
        let git = |arguments: &[&str]| {
            let mut command = with_git("git", store, tree);
            command.env("GIT_INDEX_FILE", store.join("restore-index")).args(arguments);
            command
        };
        succeed(&mut git(&["read-tree", "refs/turns/bench"]))?;
        let prefix = format!("--prefix={}/", out.display());
        succeed(&mut git(&["checkout-index", "--all", &prefix]))?;
        Ok(())
    }
}

/// A command that sees nothing of the caller's settings.
fn bare(program: &Path, store: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("HOME", store.with_extension("home"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("LC_ALL", "C.UTF-8");
    command
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.stderr(Stdio::null()).output().ok()?;
    let line = String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

/// Runs `command`, which must succeed, and gives its output.
fn succeed(command: &mut Command) -> Outcome<Vec<u8>> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{stderr}", output.status).into());
    }
    Ok(output.stdout)
}

/// One run of a command with all that it started.
#[derive(Clone, Copy)]
struct Measured {
    seconds: f64,
    /// Handed to the file system for writing.
    written_bytes: u64,
}

/// Runs `command`, which must succeed. The bytes are those that the kernel adds to this process's
/// account when it has waited for a child, children of children included.
fn measure(command: &mut Command) -> Outcome<Measured> {
    let before = written_bytes()?;
    let start = Instant::now();
    succeed(command)?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Measured { seconds, written_bytes: written_bytes()? - before })
}

/// Without what was cut off again before it went anywhere: SQLite empties its shared memory file at
/// the first opening.
fn written_bytes() -> Outcome<u64> {
    let account = fs::read_to_string("/proc/self/io")?;
    let field = |name: &str| -> Outcome<u64> {
        let line = account.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.ok_or(format!("/proc/self/io has no {name}"))?.trim().parse()?)
    };
    Ok(field("write_bytes: ")?.saturating_sub(field("cancelled_write_bytes: ")?))
}

/// The greatest resident memory of any process that `command` starts, by GNU time. Runs it.
fn peak_bytes(command: &Command, place: &Path) -> Outcome<Option<u64>> {
    let report = place.join("peak");
    let mut timed = Command::new("/usr/bin/time");
    if !Path::new(timed.get_program()).exists() {
        return Ok(None);
    }
    timed.args(["-f", "%M", "-o"]).arg(&report);
    timed.arg(command.get_program()).args(command.get_args());
    timed.env_clear();
    timed.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    timed.current_dir(command.get_current_dir().unwrap_or(place));
    succeed(&mut timed)?;
    let kib: u64 = fs::read_to_string(&report)?.trim().parse()?;
    Ok(Some(kib * 1024))
}

/// What one peer did, over all rounds.
#[derive(Default)]
struct Results {
    first: Vec<Measured>,
    unchanged: Vec<Measured>,
    edited: Vec<Measured>,
    growth_bytes: Vec<u64>,
    size_first_bytes: u64,
    peak_first_bytes: Option<u64>,
    peak_unchanged_bytes: Option<u64>,
}

/// A peer with what it did.
struct Contestant {
    peer: Box<dyn Peer>,
    /// The store that the rounds go on with.
    store: PathBuf,
    results: Results,
}

fn compare(settings: &Settings) -> Outcome<()> {
    let work = tempfile::Builder::new().prefix("turnpoint-bench-").tempdir_in(&settings.dir)?;
    let place = work.path().canonicalize()?;
    print_surroundings(settings, &place);
    let mut contestants = contestants(settings, &place)?;
    let started = Instant::now();
    let shape = Shape { seed: settings.seed, ..Shape::of(settings.files) };
    let mut corpus = Corpus::generate(&place.join("tree"), shape)?;
    println!(
        "tree: {} files, {} links, {:.1} MB, seed {}, made in {:.1} s",
        corpus.files.len(),
        corpus.links.len(),
        mega(corpus.bytes),
        settings.seed,
        started.elapsed().as_secs_f64()
    );
    let mut random = Random::new(settings.seed);
    first_captures(settings, &place, &mut random, &mut contestants)?;
    rounds(settings, &place, &mut corpus, &mut random, &mut contestants)?;
    check_restored(&contestants, &place, &corpus)?;
    print_results(&contestants, settings);
    println!("\n{:.0} s in all", started.elapsed().as_secs_f64());
    if settings.keep {
        println!("kept: {}", work.keep().display());
    }
    Ok(())
}

fn contestants(settings: &Settings, place: &Path) -> Outcome<Vec<Contestant>> {
    let all: [Box<dyn Peer>; 2] =
        [Box::new(Git), Box::new(Turnpoint { program: settings.program.clone() })];
    let mut found = Vec::new();
    for peer in all {
        let wanted = settings.only.as_deref().is_none_or(|only| only == peer.name());
        match peer.version().filter(|_| wanted) {
            Some(version) => {
                println!("{}: {version}", peer.name());
                let store = store_of(place, &*peer, 0);
                found.push(Contestant { peer, store, results: Results::default() });
            }
            None => println!("{}: missing", peer.name()),
        }
    }
    if found.is_empty() { Err("no peer is there".into()) } else { Ok(found) }
}

fn store_of(place: &Path, peer: &dyn Peer, number: usize) -> PathBuf {
    place.join(format!("{}-{number}", peer.name()))
}

/// Each into a new store each time; nothing is deleted in between, because deleting slows down what
/// comes after it on a file system without a journal. Store 0 does not count and is the one that
/// goes on.
fn first_captures(
    settings: &Settings,
    place: &Path,
    random: &mut Random,
    contestants: &mut [Contestant],
) -> Outcome<()> {
    let tree = place.join("tree");
    thread::sleep(SETTLED);
    for number in 0..=settings.first_rounds {
        random.shuffle(contestants);
        for Contestant { peer, results, .. } in &mut *contestants {
            let store = store_of(place, &**peer, number);
            fs::create_dir(&store)?;
            fs::create_dir(store.with_extension("home"))?;
            peer.prepare(&store)?;
            let mut capture = peer.capture(&store, &tree, true);
            if number == 0 {
                results.peak_first_bytes = peak_bytes(&capture, place)?;
                if results.peak_first_bytes.is_none() {
                    succeed(&mut capture)?;
                }
                results.size_first_bytes = allocated_bytes(&store)?;
            } else {
                results.first.push(measure(&mut capture)?);
            }
        }
    }
    Ok(())
}

fn rounds(
    settings: &Settings,
    place: &Path,
    corpus: &mut Corpus,
    random: &mut Random,
    contestants: &mut [Contestant],
) -> Outcome<()> {
    let tree = place.join("tree");
    let capture =
        |contestant: &Contestant| contestant.peer.capture(&contestant.store, &tree, false);
    // A session as long as it is kept, so that each later capture prunes one too.
    for _ in 0..KEPT {
        for contestant in &*contestants {
            succeed(&mut capture(contestant))?;
        }
    }
    for turn in 1..=settings.rounds as u64 {
        thread::sleep(SETTLED);
        random.shuffle(contestants);
        for contestant in &*contestants {
            succeed(&mut capture(contestant))?;
        }
        random.shuffle(contestants);
        for contestant in &mut *contestants {
            let measured = measure(&mut capture(contestant))?;
            contestant.results.unchanged.push(measured);
        }
        corpus.turn(turn, settings.edits, AGENT)?;
        random.shuffle(contestants);
        for contestant in &mut *contestants {
            let before = allocated_bytes(&contestant.store)?;
            let measured = measure(&mut capture(contestant))?;
            let after = allocated_bytes(&contestant.store)?;
            contestant.results.edited.push(measured);
            contestant.results.growth_bytes.push(after.saturating_sub(before));
        }
    }
    thread::sleep(SETTLED);
    for contestant in &mut *contestants {
        succeed(&mut capture(contestant))?;
        contestant.results.peak_unchanged_bytes = peak_bytes(&capture(contestant), place)?;
    }
    contestants.sort_by_key(|contestant| contestant.peer.name());
    Ok(())
}

/// Every file and link that was captured is there again, with its content and mode, and no other.
fn check_restored(contestants: &[Contestant], place: &Path, corpus: &Corpus) -> Outcome<()> {
    let listed = |path: &Path| {
        path.to_str().is_some_and(|path| corpus.files.contains(path) || corpus.links.contains(path))
    };
    let mut expected = fingerprint::of(&corpus.root);
    expected.retain(|path, _| listed(path));
    for Contestant { peer, store, .. } in contestants {
        let out = place.join(format!("{}-restored", peer.name()));
        fs::create_dir(&out)?;
        peer.restore(store, &corpus.root, &out)?;
        let mut restored = fingerprint::of(&out);
        restored.retain(|_, node| node.kind != fingerprint::Kind::Dir);
        let differences = fingerprint::differences(&expected, &restored);
        if !differences.is_empty() {
            let shown: Vec<&str> = differences.lines().take(10).collect();
            let shown = shown.join("\n");
            return Err(format!("{} restored something else:\n{shown}", peer.name()).into());
        }
        println!("{}: restored {} files and links, all equal", peer.name(), restored.len());
    }
    Ok(())
}

/// What a store takes on disk, in whole blocks.
fn allocated_bytes(dir: &Path) -> io::Result<u64> {
    let mut sum = fs::symlink_metadata(dir)?.blocks() * 512;
    for name in fs::read_dir(dir)? {
        let name = name?;
        sum += if name.file_type()?.is_dir() {
            allocated_bytes(&name.path())?
        } else {
            name.metadata()?.blocks() * 512
        };
    }
    Ok(sum)
}

fn print_surroundings(settings: &Settings, place: &Path) {
    let line = |command: &mut Command| first_line(command).unwrap_or_else(|| "unknown".to_owned());
    println!("date: {}", line(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])));
    println!("kernel: {}", line(Command::new("uname").args(["-srm"])));
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("processor: {}, {cores} cores", model.map_or("unknown", |(_, model)| model));
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load: {}", load.split(' ').next().unwrap_or("unknown"));
    println!("file system: {}", file_system(place));
    println!("program: {}", settings.program.display());
}

/// Type of the file system under `place`, and a warning where the figures are not to be trusted.
fn file_system(place: &Path) -> String {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let (mut longest, mut kind, mut source) = (0, "unknown", "");
    for line in mounts.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (Some(point), mut right) = (left.split(' ').nth(4), right.split(' ')) else { continue };
        // Of two mounts on one place the later lies on top.
        if place.starts_with(point) && point.len() >= longest {
            longest = point.len();
            kind = right.next().unwrap_or("unknown");
            source = right.next().unwrap_or_default();
        }
    }
    let device = format!("{}-", source.rsplit('/').next().unwrap_or_default());
    let mut journals = fs::read_dir("/proc/fs/jbd2").into_iter().flatten().flatten();
    let has_journal =
        journals.any(|name| name.file_name().to_string_lossy().starts_with(device.as_str()));
    if kind == "ext4" && !has_journal {
        return format!(
            "{kind} on {source} WITHOUT A JOURNAL. For minutes after many files were deleted, making \
             one takes up to 30 times as long there. Use --dir with another file system, or quote \
             ratios of one run only."
        );
    }
    format!("{kind} on {source}")
}

fn print_results(contestants: &[Contestant], settings: &Settings) {
    let columns = |of: &dyn Fn(&Results) -> Vec<f64>| {
        contestants.iter().map(|contestant| of(&contestant.results)).collect::<Vec<_>>()
    };
    let times = |measured: &[Measured]| {
        measured.iter().map(|measured| measured.seconds * 1000.0).collect::<Vec<_>>()
    };
    let edits = settings.edits;
    print!("\n{:<36}", "median (least - most)");
    for contestant in contestants {
        print!("{:>28}", contestant.peer.name());
    }
    println!("{:>10}{:>5}", "ratio", "n");
    print_row("first capture, ms", &columns(&|results| times(&results.first)));
    print_row("nothing changed, ms", &columns(&|results| times(&results.unchanged)));
    print_row(&format!("{edits} files changed, ms"), &columns(&|results| times(&results.edited)));
    let written = |measured: &[Measured]| {
        measured.iter().map(|measured| kilo(measured.written_bytes)).collect::<Vec<_>>()
    };
    print_row("written, nothing changed, KB", &columns(&|results| written(&results.unchanged)));
    print_row(
        &format!("store grows, {edits} files changed, KB"),
        &columns(&|results| results.growth_bytes.iter().map(|&bytes| kilo(bytes)).collect()),
    );
    print_row(
        "store after first capture, MB",
        &columns(&|results| vec![mega(results.size_first_bytes)]),
    );
    let peak = |bytes: Option<u64>| bytes.map(mega).into_iter().collect::<Vec<_>>();
    print_row(
        "peak memory, first capture, MB",
        &columns(&|results| peak(results.peak_first_bytes)),
    );
    print_row(
        "peak memory, nothing changed, MB",
        &columns(&|results| peak(results.peak_unchanged_bytes)),
    );
    println!(
        "\nThe ratio is turnpoint's median divided by git's. Stores are counted in whole blocks.\n\
         Peak memory is that of the largest process, by GNU time. Written is the kernel's account\n\
         of bytes handed to the file system, all processes of a capture together."
    );
}

fn print_row(name: &str, columns: &[Vec<f64>]) {
    print!("{name:<36}");
    let medians: Vec<Option<f64>> = columns.iter().map(|values| median(values)).collect();
    for (values, median) in columns.iter().zip(&medians) {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let text = match median {
            None => "missing".to_owned(),
            Some(median) if values.len() == 1 => format!("{median:.1}"),
            Some(median) => format!("{median:.1} ({least:.1} - {most:.1})"),
        };
        print!("{text:>28}");
    }
    let ratio = match medians[..] {
        [Some(git), Some(ours)] if git > 0.0 => format!("{:.2}x", ours / git),
        _ => "-".to_owned(),
    };
    println!("{ratio:>10}{:>5}", columns.iter().map(Vec::len).max().unwrap_or(0));
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn kilo(bytes: u64) -> f64 {
    bytes as f64 / 1e3
}

fn mega(bytes: u64) -> f64 {
    kilo(bytes) / 1e3
}
