//! turnpoint against what a user would take instead: the same tree, whole processes, in turn.
//!
//! `cargo bench --bench peers -- --quick`, `cargo bench --bench peers -- --full`
//!
//! A capture of a peer is everything that has to be run for it: for git's shadow repository the one
//! shell that runs `git add -A && git write-tree && git commit-tree -p && git update-ref`. The order
//! is shuffled in each round. Each round begins, once the last edit is old enough not to be taken
//! for a racy one, with one capture by each that does not count. What is restored is compared with
//! the tree by a reading of its own.
//!
//! Quote ratios, never times: they are of one machine and one moment.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints its results")]
#![allow(clippy::unwrap_used, reason = "the fingerprint is shared with the tests")]

#[path = "peers/backup.rs"]
mod backup;
#[path = "peers/contest.rs"]
mod contest;
#[path = "peers/copies.rs"]
mod copies;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/corpus.rs"]
mod corpus;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/support/fingerprint.rs"]
mod fingerprint;
#[path = "peers/git.rs"]
mod git;
#[path = "peers/jj.rs"]
mod jj;
#[path = "peers/operation.rs"]
mod operation;
#[path = "peers/patch.rs"]
mod patch;
#[path = "peers/peer.rs"]
mod peer;
#[path = "peers/phases.rs"]
mod phases;
#[path = "peers/process.rs"]
mod process;
#[path = "peers/settings.rs"]
mod settings;
#[path = "peers/surroundings.rs"]
mod surroundings;
#[path = "peers/table.rs"]
mod table;
#[path = "peers/turnpoint.rs"]
mod turnpoint;
#[path = "peers/walk.rs"]
mod walk;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use backup::{Restic, Rustic};
use contest::{Contest, Contestant, mega};
use copies::{Copy, Rsync};
use git::{Git, Style};
use jj::Jj;
use peer::Peer;
use settings::{Settings, USAGE};
use surroundings::FileSystem;
use table::Column;
use turnpoint::Turnpoint;
use walk::Walk;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == walk::ARGUMENT).is_some() {
        return match walk::run(Path::new(&arguments.next().unwrap_or_default())) {
            Ok(names) => {
                println!("{names} names");
                ExitCode::SUCCESS
            }
            Err(error) => fail(&*error),
        };
    }
    let settings = match Settings::parse(arguments) {
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
        Err(error) => fail(&*error),
    }
}

fn fail(error: &dyn Error) -> ExitCode {
    eprintln!("peers: {error}");
    ExitCode::FAILURE
}

/// In the order of the tables.
fn all_peers(settings: &Settings) -> Vec<Box<dyn Peer>> {
    vec![
        Box::new(Turnpoint::new(settings.program.clone())),
        Box::new(Git(Style::Shadow)),
        Box::new(Jj),
        Box::new(Walk),
        Box::new(Git(Style::Tuned)),
        Box::new(Git(Style::Ghost)),
        Box::new(Copy),
        Box::new(Restic),
        Box::new(Rustic),
        Box::new(Rsync),
    ]
}

fn compare(settings: &Settings) -> Outcome<()> {
    let work = tempfile::Builder::new().prefix("turnpoint-bench-").tempdir_in(&settings.dir)?;
    let place = work.path().canonicalize()?;
    let file_system = FileSystem::of(&place);
    surroundings::print(settings, &file_system);
    let peers = all_peers(settings);
    let order: Vec<&'static str> = peers.iter().map(|peer| peer.name()).collect();
    let (there, missing) = choose(peers, settings, &place)?;
    if !process::can_tell_peak() {
        println!("GNU time: missing, so peak memory is not told");
    }
    let started = Instant::now();
    let mut contest = Contest::new(settings, &place, file_system, there)?;
    let corpus = contest.corpus();
    println!(
        "tree: {} files, {} links, {:.1} MB, seed {}, made in {:.1} s",
        corpus.files.len(),
        corpus.links.len(),
        mega(corpus.bytes),
        settings.seed,
        started.elapsed().as_secs_f64()
    );
    phases::run(&mut contest)?;
    let mut columns: Vec<Column<'_>> = contest.contestants.iter().map(Column::There).collect();
    columns.extend(missing.into_iter().map(Column::Missing));
    columns.sort_by_key(|column| order.iter().position(|name| *name == column.name()));
    table::print(&columns, settings);
    println!("\n{:.0} s in all, load {}", started.elapsed().as_secs_f64(), surroundings::load());
    if settings.keep {
        println!("kept: {}", work.keep().display());
    }
    Ok(())
}

/// Those that are wanted: the ones that are there, and the names of the others.
fn choose(
    peers: Vec<Box<dyn Peer>>,
    settings: &Settings,
    place: &Path,
) -> Outcome<(Vec<Contestant>, Vec<&'static str>)> {
    for name in settings.peers.iter().flatten() {
        if !peers.iter().any(|peer| peer.name() == name) {
            return Err(format!("there is no peer `{name}`").into());
        }
    }
    let (mut there, mut missing) = (Vec::new(), Vec::new());
    for peer in peers {
        let wanted = |names: &Vec<String>| names.iter().any(|name| name == peer.name());
        if !settings.peers.as_ref().is_none_or(wanted) {
            continue;
        }
        if let Some(version) = peer.version() {
            println!("{}: {version}", peer.name());
            there.push(Contestant::new(peer, place));
        } else {
            println!("{}: missing", peer.name());
            missing.push(peer.name());
        }
    }
    if there.is_empty() { Err("no peer is there".into()) } else { Ok((there, missing)) }
}
