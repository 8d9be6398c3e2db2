//! A list of checkpoints on a terminal, of which one is chosen.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use console::{Key, Term};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use turnpoint::clock::Timestamp;
use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::path::printable;
use turnpoint::{CheckpointSummary, CompareOptions, Error, ListQuery};
use unicode_width::UnicodeWidthStr;

use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format::{self, shortened};

/// How many checkpoints are shown at one time.
const ROWS_MAX: usize = 12;
/// From this width on there is room for the trigger and the number of changes.
const WIDE: usize = 60;

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

/// Has somebody choose a checkpoint of the workspace at `root`, or of one session of it; `None` where
/// nothing is chosen. No lock is held meanwhile. The caller has looked that there is a terminal.
pub(crate) fn pick(
    root: &Path,
    session: Option<&str>,
    context: &mut Context,
) -> Outcome<Option<CheckpointId>> {
    if is_dumb() {
        let message = "no checkpoint is named, and this terminal cannot show a list to choose from";
        return Err(Failure::own(Exit::Usage, "invalid-checkpoint", message)
            .hint("`turnpoint list` shows what there is"));
    }
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
    let mut changes = Changes { before: before(&checkpoints), counted: HashMap::new() };
    let mut list = List::new(checkpoints);
    context.printer.flush()?;
    let terminal = Term::buffered_stdout();
    let _keys = Keys::as_they_come()?;
    let picked = loop {
        let (height, width) = terminal.size();
        let rows = usize::from(height).saturating_sub(4).clamp(1, ROWS_MAX);
        list.scroll(rows);
        for place in list.visible(rows) {
            changes.count(&list.checkpoints[place].id, context);
        }
        let colors = context.printer.colors();
        let lines = list.lines(rows, usize::from(width).max(20), &changes.counted, colors);
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
            Step::Take(place) => break Some(list.checkpoints[place].id.clone()),
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

/// How many paths each checkpoint changed. Counted when it is shown: pages are read for it.
struct Changes {
    before: HashMap<CheckpointId, CheckpointId>,
    counted: HashMap<CheckpointId, u64>,
}

impl Changes {
    fn count(&mut self, id: &CheckpointId, context: &mut Context) {
        let Some(before) = self.before.get(id).filter(|_| !self.counted.contains_key(id)) else {
            return;
        };
        let options = CompareOptions::default();
        let found = context.store.compare(before, id, &options, &());
        // A checkpoint with a damaged page can still be chosen: the restore says what is wrong with it.
        if let Ok(found) = found {
            self.counted.insert(id.clone(), found.changes.len() as u64);
        }
    }
}

/// What is shown, and where in it the person is.
struct List {
    /// The newest first.
    checkpoints: Vec<CheckpointSummary>,
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
    fn new(checkpoints: Vec<CheckpointSummary>) -> Self {
        let matching = (0..checkpoints.len()).collect();
        Self { checkpoints, filter: String::new(), matching, cursor: 0, top: 0 }
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
        let is_match = |it: &CheckpointSummary| {
            if is_number {
                return it.id.seq.to_string().starts_with(&wanted);
            }
            let label = it.label.as_deref().unwrap_or_default();
            [it.id.to_string().as_str(), &it.trigger, label]
                .iter()
                .any(|text| text.to_lowercase().contains(&wanted))
        };
        let places = 0..self.checkpoints.len();
        self.matching = places.filter(|&place| is_match(&self.checkpoints[place])).collect();
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
        changes: &HashMap<CheckpointId, u64>,
        colors: bool,
    ) -> Vec<String> {
        let room = width - 1;
        let now = Timestamp::now();
        let cells = |place: &usize| {
            let it = &self.checkpoints[*place];
            let changed =
                changes.get(&it.id).map(|count| format!("{} changed", format::number(*count)));
            let mut cells = vec![it.id.to_string(), format::age(it.created_at, now)];
            if width >= WIDE {
                cells.push(changed.unwrap_or_default());
                cells.push(it.trigger.clone());
            }
            cells.push(printable(it.label.as_deref().unwrap_or_default().as_bytes()));
            cells
        };
        let table: Vec<Vec<String>> = self.visible(rows).iter().map(cells).collect();
        let columns = table.first().map_or(0, Vec::len);
        let widths: Vec<usize> = (0..columns)
            .map(|at| table.iter().map(|row| row[at].width()).max().unwrap_or(0))
            .collect();
        let mut lines =
            vec![shortened("Which checkpoint? Arrows, or type to filter; Enter, Esc", room)];
        for (at, row) in table.iter().enumerate() {
            let is_chosen = self.top + at == self.cursor;
            let mut line = String::from(if is_chosen { "> " } else { "  " });
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.push_str(&" ".repeat(width - cell.width() + 2));
            }
            let line = shortened(line.trim_end(), room);
            lines.push(if is_chosen && colors {
                format!("\u{1b}[1m{line}\u{1b}[0m")
            } else {
                line
            });
        }
        if table.is_empty() {
            lines.push(shortened("  nothing matches; Backspace takes a letter back", room));
        }
        let hidden = self.matching.len().saturating_sub(table.len());
        let more = if hidden > 0 { format!(" ({hidden} more)") } else { String::new() };
        lines
            .push(shortened(&format!("filter: {}{more}", printable(self.filter.as_bytes())), room));
        lines
    }
}
