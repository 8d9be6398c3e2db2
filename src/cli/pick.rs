//! A list of checkpoints or turns on a terminal, of which one is chosen.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroU32;
use std::path::Path;

use console::{Key, Term};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use turnpoint::clock::Timestamp;
use turnpoint::compare::Change;
use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::path::printable;
use turnpoint::{CheckpointSummary, CompareOptions, Error, GoingBackError, ListQuery, Turn};
use unicode_width::UnicodeWidthStr;

use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format::{self, shortened};
use crate::cli::show;

/// How many checkpoints are shown at one time.
const ROWS_MAX: usize = 12;
/// From this width on there is room for how many paths changed, and all of what made it.
const WIDE: usize = 60;

/// So many changed paths are named where there is no label.
const PATHS_NAMED_MAX: usize = 3;

/// What can be pressed.
const KEYS: &str = "Enter shows its plan, q or Esc leaves; arrows, or type to filter";
/// The same where there is less room.
const KEYS_IN_SHORT: &str = "Enter: plan, q: leave, type: filter";

/// So much of what made one is shown there.
const TRIGGER_IN_SHORT: usize = 8;

/// What a key means.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Stay,
    /// That one is chosen.
    Take(usize),
    Leave,
    /// Ctrl-C.
    Stop,
}

/// What can be chosen: a line of the list.
struct Choice {
    checkpoint: CheckpointSummary,
    /// Of which turn it is the start, counted from the last.
    turn: Option<NonZeroU32>,
    /// Between which two checkpoints is counted what changed.
    sides: Option<(CheckpointId, CheckpointId)>,
}

/// Has somebody choose a checkpoint of the workspace at `root`, or of one session of it, to be restored;
/// `None` where nothing is chosen. No lock is held meanwhile. The caller has looked that there is a terminal.
pub(crate) fn checkpoint(
    root: &Path,
    session: Option<&str>,
    context: &mut Context,
) -> Outcome<Option<CheckpointId>> {
    refuse_dumb("no checkpoint is named", "`turnpoint list` shows what there is")?;
    let query = ListQuery::Workspace(root.to_owned());
    let listing = context.run(|store, monitor| store.list(&query, monitor))?;
    // As names of sessions are compared everywhere.
    let folded = session.map(str::to_lowercase);
    let is_meant =
        |name: &SessionName| folded.as_ref().is_none_or(|folded| *folded == name.folded());
    let mut checkpoints: Vec<CheckpointSummary> =
        listing.checkpoints().filter(|it| is_meant(&it.id.session)).cloned().collect();
    checkpoints.reverse();
    if checkpoints.is_empty() {
        let session = session.map(crate::cli::target::session_name).transpose()?;
        let workspace = root.to_owned();
        return Err(Error::NoCheckpoint { workspace, session, existing: 0 }.into());
    }
    let mut before = before(&checkpoints);
    let choice = |checkpoint: CheckpointSummary| {
        let sides = before.remove(&checkpoint.id).map(|before| (before, checkpoint.id.clone()));
        Choice { checkpoint, turn: None, sides }
    };
    let choices = checkpoints.into_iter().map(choice).collect();
    let picked = choose("Restore which checkpoint?", choices, context)?;
    Ok(picked.map(|picked| picked.checkpoint.id))
}

/// As [`checkpoint`], of a turn to be rewound to the start of.
pub(crate) fn turn(
    root: &Path,
    session: Option<&SessionName>,
    context: &mut Context,
) -> Outcome<Option<(CheckpointId, NonZeroU32)>> {
    refuse_dumb("no turn is named", "`turnpoint rewind 1` goes to the start of the last one")?;
    let (session, turns) = context.run(|store, monitor| store.turns(session, root, monitor))?;
    if turns.is_empty() {
        let workspace = root.to_owned();
        return Err(Error::from(GoingBackError::NoTurn { workspace, session, existing: 0 }).into());
    }
    let choice = |(turn, number): (Turn, NonZeroU32)| Choice {
        sides: turn.end.map(|end| (turn.start.id.clone(), end)),
        checkpoint: turn.start,
        turn: Some(number),
    };
    let numbers = (1..).filter_map(NonZeroU32::new);
    let choices = turns.into_iter().zip(numbers).map(choice).collect();
    let picked = choose("Rewind to the start of which turn?", choices, context)?;
    Ok(picked.and_then(|picked| Some((picked.checkpoint.id, picked.turn?))))
}

/// Refuses a terminal that cannot move its cursor.
fn refuse_dumb(missing: &str, hint: &str) -> Outcome<()> {
    if !is_dumb() {
        return Ok(());
    }
    let message = format!("{missing}, and this terminal cannot show a list to choose from");
    Err(Failure::own(Exit::Usage, "invalid-checkpoint", message).hint(hint))
}

fn choose(
    question: &'static str,
    choices: Vec<Choice>,
    context: &mut Context,
) -> Outcome<Option<Choice>> {
    let mut seen = HashMap::new();
    let mut list = List::new(question, choices);
    context.printer.flush()?;
    let terminal = Term::buffered_stdout();
    let _keys = Keys::as_they_come()?;
    let picked = loop {
        let (height, width) = terminal.size();
        let rows = usize::from(height).saturating_sub(6).clamp(1, ROWS_MAX);
        list.scroll(rows);
        for place in list.visible(rows) {
            look_at(&list.choices[place], &mut seen, context);
        }
        let colors = context.printer.colors();
        let lines = list.lines(rows, usize::from(width).max(20), &seen, colors);
        for line in &lines {
            terminal.write_line(line)?;
        }
        terminal.flush()?;
        let step = match terminal.read_key_raw() {
            Ok(key) => list.press(&key),
            // The terminal is gone, or a signal came.
            Err(_) => Step::Stop,
        };
        terminal.clear_last_lines(lines.len())?;
        match step {
            Step::Stay => {}
            Step::Take(place) => break Some(list.choices.swap_remove(place)),
            Step::Leave => break None,
            Step::Stop => {
                terminal.flush()?;
                return Err(Error::Cancelled.into());
            }
        }
    };
    terminal.flush()?;
    Ok(picked)
}

/// As long as it is there, keys are given to the program one by one, Ctrl-C too, and not shown. Reading a
/// key does the same, but only for that key: one that comes between two would be shown, or would send a
/// signal that nobody waits for.
struct Keys {
    before: Termios,
}

impl Keys {
    fn as_they_come() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        // Lines go on to begin at the left.
        raw.output_modes = before.output_modes;
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        tcsetattr(io::stdin(), OptionalActions::Drain, &self.before).ok();
    }
}

/// A terminal that cannot move its cursor.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// The checkpoint that each is compared with: the next lower number of its session.
fn before(checkpoints: &[CheckpointSummary]) -> HashMap<CheckpointId, CheckpointId> {
    let mut before = HashMap::new();
    for one in checkpoints {
        let lower = checkpoints
            .iter()
            .filter(|it| it.id.session == one.id.session && it.id.seq < one.id.seq)
            .max_by_key(|it| it.id.seq);
        before.extend(lower.map(|lower| (one.id.clone(), lower.id.clone())));
    }
    before
}

/// What a line says beside what is known of its checkpoint already.
struct Seen {
    /// How many paths it is about.
    changed: Option<u64>,
    /// What tells which state that is, where it has no label: what a safety checkpoint was made before, else the
    /// first paths that changed.
    about: String,
}

impl Seen {
    fn of(changes: &[Change]) -> Self {
        let mut named: Vec<String> =
            changes.iter().take(PATHS_NAMED_MAX).map(|it| it.path().to_string()).collect();
        if changes.len() > PATHS_NAMED_MAX {
            named.push("…".to_owned());
        }
        Self { changed: Some(changes.len() as u64), about: named.join(", ") }
    }
}

/// Looks at what a choice is about. Only when it is shown: a manifest and pages are read for it.
fn look_at(choice: &Choice, seen: &mut HashMap<CheckpointId, Seen>, context: &mut Context) {
    let id = &choice.checkpoint.id;
    if seen.contains_key(id) {
        return;
    }
    let mut found = Seen { changed: None, about: String::new() };
    // A checkpoint with a damaged page can still be chosen: the restore says what is wrong with it.
    if let Some((before, after)) = &choice.sides
        && let Ok(compared) = context.store.compare(before, after, &CompareOptions::default(), &())
    {
        found = Seen::of(&compared.changes);
    }
    if choice.checkpoint.is_safety()
        && let Some(restore) =
            context.store.show(id, &()).ok().and_then(|shown| shown.manifest.restore)
    {
        found.about = show::before(&restore);
    }
    seen.insert(id.clone(), found);
}

/// What is shown, and where in it the person is.
struct List {
    question: &'static str,
    /// The newest first.
    choices: Vec<Choice>,
    /// What was typed: only what matches it is shown.
    filter: String,
    /// The places of those that match.
    matching: Vec<usize>,
    /// The chosen one among them.
    cursor: usize,
    /// The first of them that is shown.
    top: usize,
}

impl List {
    fn new(question: &'static str, choices: Vec<Choice>) -> Self {
        let matching = (0..choices.len()).collect();
        Self { question, choices, filter: String::new(), matching, cursor: 0, top: 0 }
    }

    fn press(&mut self, key: &Key) -> Step {
        let last = self.matching.len().saturating_sub(1);
        match key {
            Key::ArrowUp => self.cursor = self.cursor.saturating_sub(1),
            Key::ArrowDown => self.cursor = (self.cursor + 1).min(last),
            Key::PageUp => self.cursor = self.cursor.saturating_sub(ROWS_MAX),
            Key::PageDown => self.cursor = (self.cursor + ROWS_MAX).min(last),
            Key::Home => self.cursor = 0,
            Key::End => self.cursor = last,
            Key::Enter => {
                return self.matching.get(self.cursor).map_or(Step::Stay, |&it| Step::Take(it));
            }
            Key::Escape => return Step::Leave,
            // Within a word that is typed it is a letter.
            Key::Char('q') if self.filter.is_empty() => return Step::Leave,
            // Ctrl-D, as it ends other input.
            Key::Char('\u{4}') => return Step::Leave,
            Key::CtrlC => return Step::Stop,
            Key::Backspace => {
                self.filter.pop();
                self.find();
            }
            Key::Char(typed) if !typed.is_control() => {
                self.filter.push(*typed);
                self.find();
            }
            _ => {}
        }
        Step::Stay
    }

    fn find(&mut self) {
        let wanted = self.filter.to_lowercase();
        let is_number = wanted.bytes().all(|byte| byte.is_ascii_digit());
        let is_match = |Choice { checkpoint, turn, .. }: &Choice| {
            if is_number {
                let number = turn.map_or(checkpoint.id.seq.get(), |turn| turn.get().into());
                return number.to_string().starts_with(&wanted);
            }
            let label = checkpoint.label.as_deref().unwrap_or_default();
            [checkpoint.id.to_string().as_str(), &checkpoint.trigger, label]
                .iter()
                .any(|text| text.to_lowercase().contains(&wanted))
        };
        let places = 0..self.choices.len();
        self.matching = places.filter(|&place| is_match(&self.choices[place])).collect();
        self.cursor = 0;
    }

    /// Brings the chosen one into view.
    fn scroll(&mut self, rows: usize) {
        let least = (self.cursor + 1).saturating_sub(rows);
        self.top = self.top.clamp(least, self.cursor.max(least));
    }

    fn visible(&self, rows: usize) -> Vec<usize> {
        self.matching.iter().skip(self.top).take(rows).copied().collect()
    }

    /// All lines, none of which is as wide as the terminal.
    fn lines(
        &self,
        rows: usize,
        width: usize,
        seen: &HashMap<CheckpointId, Seen>,
        colors: bool,
    ) -> Vec<String> {
        let room = width - 1;
        let now = Timestamp::now();
        let is_wide = width >= WIDE;
        let of_turns = self.choices.iter().any(|choice| choice.turn.is_some());
        let cells = |place: &usize| {
            let Choice { checkpoint: it, turn, .. } = &self.choices[*place];
            let mut cells: Vec<String> = turn.iter().map(ToString::to_string).collect();
            cells.push(it.id.to_string());
            let seen = seen.get(&it.id);
            // Where there is little room it is for the words by which a state is known.
            if is_wide {
                let changed = seen.and_then(|seen| seen.changed);
                cells.push(format::age(it.created_at, now));
                cells.push(changed.map_or(String::new(), format::number));
            }
            let of_trigger = if is_wide { usize::MAX } else { TRIGGER_IN_SHORT };
            cells.extend((!of_turns).then(|| shortened(&it.trigger, of_trigger)));
            let about = seen.map(|seen| &seen.about).filter(|about| !about.is_empty());
            cells.push(match (&it.label, about) {
                (Some(label), _) => printable(label.as_bytes()),
                (None, Some(about)) => format!("[{about}]"),
                (None, None) => String::new(),
            });
            cells
        };
        let mut header = if of_turns { vec!["TURN", "GOES BACK TO"] } else { vec!["CHECKPOINT"] };
        if is_wide {
            header.extend(["AGE", "CHANGED"]);
        }
        header.extend((!of_turns).then_some("TRIGGER"));
        header.push(if of_turns { "ITS LABEL, OR [CHANGED]" } else { "LABEL, OR [DETAILS]" });
        let table: Vec<Vec<String>> = self.visible(rows).iter().map(cells).collect();
        let widths: Vec<usize> = header
            .iter()
            .enumerate()
            .map(|(at, name)| table.iter().map(|row| row[at].width()).fold(name.len(), usize::max))
            .collect();
        let padded = |cells: &mut dyn Iterator<Item = &str>| -> String {
            let cell = |(cell, width): (&str, &usize)| {
                format!("{cell}{}", " ".repeat(width - cell.width() + 2))
            };
            cells.zip(&widths).map(cell).collect()
        };
        let mut lines = vec![
            shortened(self.question, room),
            shortened(if is_wide { KEYS } else { KEYS_IN_SHORT }, room),
            shortened(format!("  {}", padded(&mut header.iter().copied())).trim_end(), room),
        ];
        for (at, row) in table.iter().enumerate() {
            let is_chosen = self.top + at == self.cursor;
            let mark = if is_chosen { "> " } else { "  " };
            let line = format!("{mark}{}", padded(&mut row.iter().map(String::as_str)));
            let line = shortened(line.trim_end(), room);
            lines.push(if is_chosen && colors {
                format!("\u{1b}[1m{line}\u{1b}[0m")
            } else {
                line
            });
        }
        if table.is_empty() {
            lines.push(shortened("  nothing matches: Backspace", room));
        }
        let hidden = self.matching.len().saturating_sub(table.len());
        let more = if hidden > 0 { format!(" ({hidden} more)") } else { String::new() };
        lines
            .push(shortened(&format!("filter: {}{more}", printable(self.filter.as_bytes())), room));
        lines
    }
}
