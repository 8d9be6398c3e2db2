//! The phases of a run, in their order. Each round has the peers in an order of its own.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::contest::{Contest, Contestant, SESSION, discard, kilo, mega, settle};
use crate::corpus::{AGENT, Corpus, Edit, Kind};
use crate::fingerprint::{self, Fingerprint};
use crate::operation::{Operation, Phase};
use crate::patch::Patch;
use crate::peer::{Ability, Pace, Task};
use crate::process::{allocated_bytes, can_tell_peak, measure, peak_bytes, succeed};

/// An edit this old is racy for neither: git keeps seconds in places, turnpoint takes two where it
/// does not know the file system.
const SETTLED: Duration = Duration::from_millis(2200);

/// How many checkpoints of a session turnpoint keeps.
const KEPT: usize = 20;

/// How many captures the peers list.
const LISTED: usize = 50;

/// Turns before a collection: the older ones are to be dropped.
const TURNS: usize = KEPT + 10;

/// turnpoint keeps content for a minute after its last name is gone, for a capture that may be about
/// to name it again.
const GRACE: Duration = Duration::from_secs(62);

/// The store that the rounds go on with. It was not counted, so that the first capture of all, which
/// finds nothing in memory, is not either.
const STORE: usize = 0;

/// The store for turns and their collection.
const TURNS_STORE: usize = 1;

/// The store that is collected as the first capture left it.
const FIRST_STORE: usize = 2;

pub(crate) fn run(contest: &mut Contest<'_>) -> Outcome<()> {
    let settings = contest.settings;
    first_captures(contest)?;
    let collects = settings.wants_phase(Phase::Space);
    if collects {
        contest.tell("turns into a store of their own");
        grow(contest)?;
    }
    let grown = Instant::now();
    contest.select(STORE)?;
    fill(contest)?;
    if settings.wants_phase(Phase::Turns) {
        contest.tell("captures");
        turns(contest)?;
    }
    if settings.wants_phase(Phase::History) {
        contest.tell("history");
        history(contest)?;
    }
    if settings.wants_phase(Phase::Back) {
        contest.tell("restoring");
        back(contest)?;
    }
    if settings.wants_phase(Phase::Into) {
        contest.tell("restoring everything");
        into(contest)?;
    }
    if collects {
        contest.tell("collecting");
        thread::sleep(GRACE.saturating_sub(grown.elapsed()));
        collect(contest)?;
    }
    Ok(())
}

/// Each into a new store each time.
fn first_captures(contest: &mut Contest<'_>) -> Outcome<()> {
    let settings = contest.settings;
    let counted = if settings.wants(Operation::First) { settings.first_rounds } else { 0 };
    let last = if settings.wants_phase(Phase::Space) { counted.max(FIRST_STORE) } else { counted };
    thread::sleep(SETTLED);
    for store in 0..=last {
        contest.tell(&format!("first captures, {store} of {last}"));
        let place = contest.place.clone();
        contest.random.shuffle(&mut contest.contestants);
        for contestant in &mut contest.contestants {
            contestant.open_store(store)?;
            if !contestant.peer.keeps_captures() {
                continue;
            }
            let Ability::Runs(mut command) = contestant.capture(store, SESSION) else { continue };
            settle();
            if store > 0 && store <= counted {
                let measured = measure(&mut command)?;
                contestant.record(Operation::First, store, measured.seconds * 1000.0);
            } else if store == 0 && can_tell_peak() {
                let peak = mega(peak_bytes(&command, &place)?);
                contestant.record(Operation::PeakFirst, 1, peak);
            } else {
                succeed(&mut command)?;
            }
            if store == 0 {
                let size = mega(allocated_bytes(&contestant.site(store).store)?);
                contestant.record(Operation::SizeFirst, 1, size);
            }
        }
        let is_used_again =
            store == STORE || (store <= FIRST_STORE && settings.wants_phase(Phase::Space));
        for contestant in &contest.contestants {
            if !is_used_again || contestant.peer.pace() == Pace::Once {
                discard(&contestant.site(store).store, contest.keeps_everything())?;
            }
        }
    }
    Ok(())
}

fn grow(contest: &mut Contest<'_>) -> Outcome<()> {
    contest.select(TURNS_STORE)?;
    for turn in 1..=TURNS {
        contest.edit(contest.settings.edits, AGENT)?;
        for contestant in contest.shuffled(turn) {
            if !contestant.peer.keeps_captures() {
                continue;
            }
            let store = contestant.site(TURNS_STORE).store;
            let before = allocated_bytes(&store)?;
            contestant.capture_quietly(TURNS_STORE, SESSION)?;
            let growth = kilo(allocated_bytes(&store)?) - kilo(before);
            contestant.record(Operation::Growth, turn, growth);
        }
    }
    Ok(())
}

/// A session as long as it is kept, so that each later capture prunes one too; and if it is to be
/// listed, others before it.
fn fill(contest: &mut Contest<'_>) -> Outcome<()> {
    let settings = contest.settings;
    let count = if settings.wants(Operation::List) {
        LISTED
    } else if settings.wants_phase(Phase::Turns) || settings.wants(Operation::Views) {
        KEPT
    } else {
        1
    };
    for left in (0..count).rev() {
        contest.edit(1, &[(Kind::Modify, 1)])?;
        let session = match left / KEPT {
            0 => SESSION.to_owned(),
            older => format!("{SESSION}-{older}-before"),
        };
        // The slow take part in the last ones.
        for contestant in contest.shuffled(left + 1) {
            contestant.capture_quietly(STORE, &session)?;
        }
    }
    Ok(())
}

fn turns(contest: &mut Contest<'_>) -> Outcome<()> {
    let settings = contest.settings;
    for round in 1..=settings.rounds {
        thread::sleep(SETTLED);
        contest.capture_all(STORE, round)?;
        if settings.wants(Operation::Unchanged) || settings.wants(Operation::Written) {
            time_captures(contest, Operation::Unchanged, round)?;
        }
        if settings.wants(Operation::Void) {
            contest.touch_directories()?;
            thread::sleep(SETTLED);
            time_captures(contest, Operation::Void, round)?;
        }
        if settings.wants(Operation::Edited) {
            contest.edit(settings.edits, AGENT)?;
            time_captures(contest, Operation::Edited, round)?;
        }
        if settings.wants(Operation::Hinted) {
            hinted(contest, round)?;
        }
    }
    if !settings.wants(Operation::PeakUnchanged) || !can_tell_peak() {
        return Ok(());
    }
    let place = contest.place.clone();
    for round in 1..=settings.rounds.min(3) {
        thread::sleep(SETTLED);
        contest.capture_all(STORE, round)?;
        for contestant in contest.shuffled(round) {
            if let Ability::Runs(command) = contestant.capture(STORE, SESSION) {
                let peak = mega(peak_bytes(&command, &place)?);
                contestant.record(Operation::PeakUnchanged, round, peak);
            }
        }
    }
    Ok(())
}

fn time_captures(contest: &mut Contest<'_>, operation: Operation, round: usize) -> Outcome<()> {
    for contestant in contest.shuffled(round) {
        let capture = contestant.capture(STORE, SESSION);
        contestant.time(operation, round, capture)?;
    }
    Ok(())
}

/// A turn of which each is told what has changed, who can be; the others capture as always. The
/// slow cannot be told, and are not asked again. Nothing is done where turnpoint cannot be told.
fn hinted(contest: &mut Contest<'_>, round: usize) -> Outcome<()> {
    let changed = contest.place.join("changed");
    for contestant in &mut contest.contestants {
        if contestant.lacks_hints(STORE, &changed) {
            contestant.missing.insert(Operation::Hinted);
            return Ok(());
        }
    }
    thread::sleep(SETTLED);
    contest.capture_all(STORE, contest.settings.slow_rounds + 1)?;
    let edits = contest.edit(contest.settings.edits, AGENT)?;
    fs::write(&changed, changed_paths(&edits))?;
    for contestant in contest.shuffled(round) {
        if contestant.peer.pace() == Pace::Every {
            let capture = contestant.hinted_capture(STORE, &changed);
            contestant.time(Operation::Hinted, round, capture)?;
        }
    }
    Ok(())
}

/// One a line.
fn changed_paths(edits: &[Edit]) -> String {
    let mut lines = String::new();
    for edit in edits {
        let paths: &[&String] = match edit {
            Edit::Modify(path)
            | Edit::ModifySilently(path)
            | Edit::Add(path)
            | Edit::Delete(path)
            | Edit::Chmod { path, .. }
            | Edit::Swap { path, .. } => &[path],
            Edit::Rename { from, to } => &[from, to],
        };
        for path in paths {
            lines.push_str(path);
            lines.push('\n');
        }
    }
    lines
}

fn history(contest: &mut Contest<'_>) -> Outcome<()> {
    let settings = contest.settings;
    for round in 1..=settings.rounds {
        if settings.wants(Operation::List) {
            for contestant in contest.shuffled(round) {
                let list = contestant.peer.command(&contestant.site(STORE), &Task::List);
                contestant.time(Operation::List, round, list)?;
            }
        }
        if settings.wants(Operation::Views) {
            for contestant in contest.shuffled(round) {
                let views = contestant.peer.command(&contestant.site(STORE), &Task::Views);
                contestant.time(Operation::Views, round, views)?;
            }
        }
        if settings.wants(Operation::Diff) {
            let before = newest_of_each(contest, round)?;
            contest.edit(settings.edits, AGENT)?;
            let after = newest_of_each(contest, round)?;
            for contestant in contest.shuffled(round) {
                let name = contestant.name();
                let (Some(from), Some(to)) = (find(&before, name), find(&after, name)) else {
                    continue;
                };
                let diff = Task::Diff { from, to };
                let diff = contestant.peer.command(&contestant.site(STORE), &diff);
                contestant.time(Operation::Diff, round, diff)?;
            }
        }
    }
    Ok(())
}

type Named = Vec<(&'static str, String)>;

fn find<'a>(named: &'a Named, name: &str) -> Option<&'a str> {
    named.iter().find(|(of, _)| *of == name).map(|(_, id)| id.as_str())
}

/// Captures, and asks for the name of that; of those that keep captures.
fn newest_of_each(contest: &mut Contest<'_>, round: usize) -> Outcome<Named> {
    contest.capture_all(STORE, round)?;
    let mut named = Named::new();
    for contestant in contest.shuffled(round) {
        if contestant.peer.keeps_captures() {
            let newest = contestant.peer.newest(&contestant.site(STORE))?;
            named.push((contestant.name(), newest));
        }
    }
    Ok(named)
}

/// Each has the same change before it, which it has captured, and takes it back.
fn back(contest: &mut Contest<'_>) -> Outcome<()> {
    let settings = contest.settings;
    for round in 1..=settings.rounds {
        for operation in [Operation::PathsBack, Operation::WholeBack] {
            if !settings.wants(operation) {
                continue;
            }
            // git would take them for something to clean, and the others then for something to
            // bring back.
            contest.remove_empty_directories()?;
            let from = newest_of_each(contest, round)?;
            let corpus = contest.corpus().clone();
            let patch = match operation {
                Operation::PathsBack => {
                    Patch::modify(&corpus, &mut contest.random, settings.edits)?
                }
                _ => Patch::mix(&corpus, &mut contest.random, settings.edits)?,
            };
            // Reading everything takes long: once.
            let whole = (round == 1).then(|| {
                let mut whole = fingerprint::of(&corpus.root);
                whole.retain(|_, node| node.kind != fingerprint::Kind::Dir);
                whole
            });
            for contestant in contest.shuffled(round) {
                if let Some(from) = find(&from, contestant.name()) {
                    take_back(contestant, operation, round, from, &patch)?;
                    if let Some(expected) = &whole {
                        check_tree(contestant, expected)?;
                    }
                }
            }
        }
    }
    Ok(())
}

fn take_back(
    contestant: &mut Contestant,
    operation: Operation,
    round: usize,
    from: &str,
    patch: &Patch,
) -> Outcome<()> {
    let paths = patch.paths();
    let site = contestant.site(STORE);
    let task = match operation {
        Operation::PathsBack => Task::PathsBack { from, paths: &paths },
        _ => Task::WholeBack { from },
    };
    let ability = contestant.peer.command(&site, &task);
    if !matches!(ability, Ability::Runs(_)) {
        contestant.time(operation, round, ability)?;
        return Ok(());
    }
    patch.apply(&site.tree)?;
    contestant.capture_quietly(STORE, SESSION)?;
    contestant.time(operation, round, ability)?;
    let left = patch.not_taken_back(&site.tree)?;
    if !left.is_empty() {
        return Err(format!("{} left {left:?} as they were", contestant.name()).into());
    }
    Ok(())
}

/// Nothing else was touched. Directories are not compared: git knows of none.
fn check_tree(contestant: &Contestant, expected: &Fingerprint) -> Outcome<()> {
    let mut tree = contestant.fingerprint(&contestant.tree());
    tree.retain(|_, node| node.kind != fingerprint::Kind::Dir);
    agree(contestant, expected, &tree)
}

fn into(contest: &mut Contest<'_>) -> Outcome<()> {
    let settings = contest.settings;
    contest.edit(settings.edits, AGENT)?;
    thread::sleep(SETTLED);
    let from = newest_of_each(contest, 1)?;
    let expected = listed(contest.corpus());
    let keeps = contest.keeps_everything();
    for round in 1..=settings.first_rounds {
        contest.random.shuffle(&mut contest.contestants);
        let place = contest.place.clone();
        for contestant in &mut contest.contestants {
            let name = contestant.name();
            if contestant.peer.pace() != Pace::Every && round > 1 {
                continue;
            }
            let from = find(&from, name).unwrap_or_default();
            let out = place.join(format!("{name}-restored-{round}"));
            fs::create_dir(&out)?;
            let task = Task::Into { from, out: &out };
            let ability = contestant.peer.command(&contestant.site(STORE), &task);
            settle();
            if contestant.time(Operation::Into, round, ability)? {
                check_restored(contestant, &expected, &out)?;
            }
            discard(&out, keeps)?;
        }
    }
    Ok(())
}

/// Every file and link that was captured.
fn listed(corpus: &Corpus) -> Fingerprint {
    let mut tree = fingerprint::of(&corpus.root);
    tree.retain(|path, _| {
        path.to_str().is_some_and(|path| corpus.files.contains(path) || corpus.links.contains(path))
    });
    tree
}

/// Every file and link is there again, with its content and mode, and no other.
fn check_restored(contestant: &Contestant, expected: &Fingerprint, out: &Path) -> Outcome<()> {
    let mut restored = contestant.fingerprint(out);
    restored.retain(|_, node| node.kind != fingerprint::Kind::Dir);
    if !contestant.peer.obeys_ignore_files() {
        restored.retain(|path, _| expected.contains_key(path));
    }
    agree(contestant, expected, &restored)?;
    eprintln!("    {}: restored {} files and links, all equal", contestant.name(), restored.len());
    Ok(())
}

fn agree(contestant: &Contestant, expected: &Fingerprint, found: &Fingerprint) -> Outcome<()> {
    let differences = fingerprint::differences(expected, found);
    if differences.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> = differences.lines().take(10).collect();
    let shown = shown.join("\n");
    Err(format!("{} restored something else:\n{shown}", contestant.name()).into())
}

/// Of a store with turns, which counts; and of one without, for comparison.
fn collect(contest: &mut Contest<'_>) -> Outcome<()> {
    contest.random.shuffle(&mut contest.contestants);
    for contestant in &mut contest.contestants {
        if contestant.peer.pace() == Pace::Once {
            continue;
        }
        let task = Task::Collect { keep: KEPT };
        let site = contestant.site(TURNS_STORE);
        contestant.peer.select(&site)?;
        settle();
        let ability = contestant.peer.command(&site, &task);
        if !contestant.time(Operation::Collect, 1, ability)? {
            continue;
        }
        let size = allocated_bytes(&site.store)?;
        contestant.record(Operation::SizeCollected, 1, mega(size));
        let site = contestant.site(FIRST_STORE);
        contestant.peer.select(&site)?;
        if let Ability::Runs(mut command) = contestant.peer.command(&site, &task) {
            succeed(&mut command)?;
        }
        let turns = contestant.figures.get(&Operation::Growth).map_or(0, Vec::len);
        let held = if contestant.peer.drops_captures() { turns.min(KEPT) } else { turns };
        let base = allocated_bytes(&site.store)?;
        if held > 0 {
            let growth = (kilo(size) - kilo(base)) / f64::from(u32::try_from(held)?);
            contestant.record(Operation::GrowthCollected, 1, growth);
        }
    }
    Ok(())
}
