//! What the program shows while the library works, and how it is told to stop.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use turnpoint::path::printable;
use turnpoint::{Monitor, Notice, Phase};

use crate::cli::format;
use crate::cli::interrupt::Interrupt;
use crate::cli::json::NoticeDocument;
use crate::cli::printer::{self, Kind, Style};
use crate::cli::trace::Trace;
use crate::cli::worktree;

/// What is done sooner than this shows no progress: a line that flashes up tells nobody anything.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// How often the line is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(100);

/// A [`Monitor`] for one operation.
#[derive(Debug)]
pub(crate) struct Watch {
    progress: Arc<Progress>,
    interrupt: Interrupt,
    style: Style,
    trace: Option<Trace>,
    notices: Mutex<Vec<NoticeDocument>>,
    found_damage: AtomicBool,
    drawer: Option<(Sender<()>, JoinHandle<()>)>,
}

/// What workers count and the drawing thread reads.
#[derive(Debug)]
struct Progress {
    bar: ProgressBar,
    phase: Mutex<Option<PhaseBegun>>,
    items: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct PhaseBegun {
    phase: Phase,
    total: Option<u64>,
    at: Instant,
}

impl Watch {
    /// Begins to watch; draws only where `draws`, and writes down what is done where there is a `trace`.
    pub(crate) fn start(
        style: Style,
        draws: bool,
        interrupt: Interrupt,
        trace: Option<Trace>,
    ) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let progress = Arc::new(Progress {
            bar,
            phase: Mutex::default(),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        });
        let drawer = draws.then(|| {
            let (stop, stopped) = mpsc::channel();
            let progress = Arc::clone(&progress);
            let thread = std::thread::spawn(move || {
                let mut pause = SHOWN_AFTER;
                while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                    if pause == SHOWN_AFTER {
                        progress.show();
                        pause = DRAWN_EVERY;
                    }
                    progress.draw();
                }
                progress.bar.finish_and_clear();
            });
            (stop, thread)
        });
        let found_damage = AtomicBool::new(false);
        let notices = Mutex::default();
        Self { progress, interrupt, style, trace, notices, found_damage, drawer }
    }

    /// Damage was told before in this command: it is not told again.
    pub(crate) fn expect_damage(&self) {
        self.found_damage.store(true, Ordering::Relaxed);
    }

    /// Whether there was a notice of damage that is still there.
    pub(crate) fn found_damage(&self) -> bool {
        self.found_damage.load(Ordering::Relaxed)
    }

    /// Takes the progress line away and gives the notices that were not printed.
    pub(crate) fn finish(mut self) -> Vec<NoticeDocument> {
        if let Some((stop, thread)) = self.drawer.take() {
            drop(stop);
            // A drawing thread that panicked has nothing to say about the operation.
            thread.join().ok();
        }
        let mut begun = self.progress.phase.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_down(begun.take());
        drop(begun);
        std::mem::take(&mut *self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Watch {
    /// A phase has ended; nothing has been counted for another one yet.
    fn write_down(&self, begun: Option<PhaseBegun>) {
        let (Some(trace), Some(begun)) = (&self.trace, begun) else { return };
        let items = self.progress.items.load(Ordering::Relaxed);
        let bytes = self.progress.bytes.load(Ordering::Relaxed);
        let elapsed = begun.at.elapsed();
        // The line of progress would be in its way.
        self.progress.bar.suspend(|| trace.phase(begun.phase, items, bytes, elapsed));
    }
}

impl Progress {
    fn show(&self) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            self.bar.set_style(style);
        }
        self.bar.set_draw_target(ProgressDrawTarget::stderr());
    }

    fn draw(&self) {
        let begun = *self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(begun) = begun else { return };
        let items = self.items.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let text = message(begun.phase, begun.total, items, bytes, begun.at.elapsed());
        // Never up to the edge: there the `^C` that a terminal echoes would begin a new line, and
        // this one would stay.
        let room = printer::width_of(&io::stderr()).unwrap_or(80).saturating_sub(6);
        self.bar.set_message(text.chars().take(room).collect::<String>());
        self.bar.tick();
    }
}

fn message(phase: Phase, total: Option<u64>, items: u64, bytes: u64, elapsed: Duration) -> String {
    let (doing, unit) = match phase {
        Phase::Walk => ("listing", "names"),
        Phase::Store => ("storing", "files"),
        Phase::Commit => ("making it durable", ""),
        Phase::Plan => ("comparing", ""),
        Phase::Stage => ("staging", "paths"),
        Phase::Apply => ("changing", "paths"),
        Phase::Rebuild => ("building the index", "checkpoints"),
        Phase::Sweep => ("sweeping", "of 256 parts"),
        Phase::Purge => ("reading what checkpoints hold", "checkpoints"),
        Phase::Verify => ("checking", "objects"),
        Phase::Query => ("asking the index", ""),
        _ => ("working", ""),
    };
    if items == 0 || unit.is_empty() {
        return doing.to_owned();
    }
    let mut text = match total.filter(|&total| total > 0 && phase != Phase::Sweep) {
        Some(total) => {
            let (items, total) = (format::number(items), format::number(total));
            format!("{doing}: {items} of {total} {unit}")
        }
        None => format!("{doing}: {} {unit}", format::number(items)),
    };
    if phase != Phase::Sweep {
        text.push_str(", ");
        text.push_str(&format::rate(items, elapsed));
    }
    if bytes > 0 {
        text.push_str(", ");
        text.push_str(&format::size(bytes));
    }
    text
}

impl Monitor for Watch {
    fn phase(&self, phase: Phase, total: Option<u64>) {
        let mut begun = self.progress.phase.lock().unwrap_or_else(PoisonError::into_inner);
        self.write_down(begun.take());
        self.progress.items.store(0, Ordering::Relaxed);
        self.progress.bytes.store(0, Ordering::Relaxed);
        *begun = Some(PhaseBegun { phase, total, at: Instant::now() });
    }

    fn advanced(&self, items: u64, bytes: u64) {
        self.progress.items.fetch_add(items, Ordering::Relaxed);
        self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn notice(&self, notice: &Notice) {
        let (kind, document) = describe(notice);
        if let Some(trace) = &self.trace {
            self.progress.bar.suspend(|| trace.notice(&document));
        }
        match notice {
            // Several readings of one command find the same.
            Notice::IndexDamaged { .. } if self.found_damage.swap(true, Ordering::Relaxed) => {
                return;
            }
            Notice::Unlisted { .. } | Notice::Unread { .. } => {
                self.found_damage.store(true, Ordering::Relaxed);
            }
            _ => {}
        }
        if self.style.json {
            self.notices.lock().unwrap_or_else(PoisonError::into_inner).push(document);
        } else if !self.style.quiet || kind == Kind::Warning {
            self.progress.bar.suspend(|| self.style.complain(kind, &document.message));
        }
    }

    fn is_cancelled(&self) -> bool {
        self.interrupt.came()
    }
}

fn describe(notice: &Notice) -> (Kind, NoticeDocument) {
    let (kind, code, message) = match notice {
        Notice::Waiting { lock, waited } => (
            Kind::Note,
            "waiting",
            format!("waiting: {lock} is in use by another process ({} s so far)", waited.as_secs()),
        ),
        Notice::RestoreDiscarded
        | Notice::RestoreCompleted { .. }
        | Notice::RestoreLeftOpen { .. }
        | Notice::PurgeCompleted { .. }
        | Notice::PurgeLeftOpen { .. } => describe_interrupted(notice),
        Notice::Remark { text } => (Kind::Note, "remark", text.clone()),
        Notice::LeftOut { path, paths, files, bytes } => (
            // Said to whoever wants to hear of nothing else, too: it is gone then.
            Kind::Warning,
            "left-out",
            format!(
                "no checkpoint holds {} ({}) in {}, which is removed: {}",
                format::counted(*files, "file", "files"),
                format::size(*bytes),
                path.display(),
                worktree::named(paths)
            ),
        ),
        Notice::IndexRebuilt { damage, checkpoints } => (
            Kind::Note,
            "index-rebuilt",
            format!(
                "the index was {} and was built anew from the manifests ({})",
                match damage {
                    Some(reason) => format!("damaged ({reason})"),
                    None => "missing".to_owned(),
                },
                format::counted(*checkpoints, "checkpoint", "checkpoints")
            ),
        ),
        Notice::IndexDamaged { path, reason } => (
            Kind::Warning,
            "index-damaged",
            format!(
                "the index {} is damaged ({reason}); the files were read in its place; `turnpoint \
                 doctor --rebuild` builds it anew",
                path.display()
            ),
        ),
        Notice::Unlisted { path, reason } => (
            Kind::Warning,
            "unlisted",
            format!("{} is left out: {reason}; `turnpoint verify` says more", path.display()),
        ),
        Notice::Unread { reason } => (
            Kind::Warning,
            "unread",
            format!(
                "not all that the checkpoint builds on could be looked at: {reason}; `turnpoint verify` \
                 says more"
            ),
        ),
        Notice::Repaired { path, reason, aside } => (
            Kind::Warning,
            "repaired",
            match aside {
                Some(aside) => format!(
                    "{} was damaged ({reason}) and was made anew; the damaged one is kept as {}",
                    path.display(),
                    aside.display()
                ),
                None => format!("{} was missing and was made anew: {reason}", path.display()),
            },
        ),
        Notice::AfterCommit { reason } => {
            (Kind::Warning, "after-commit", format!("the checkpoint stands, but {reason}"))
        }
        Notice::Evicted { checkpoints, because, released_bytes, short_bytes } => (
            if *short_bytes > 0 { Kind::Warning } else { Kind::Note },
            "evicted",
            evicted(*checkpoints, because, *released_bytes, *short_bytes),
        ),
        Notice::TrackedStale { reason } => (
            Kind::Warning,
            "tracked-stale",
            format!("git could not say what it tracks; what it tracked before counts: {reason}"),
        ),
        Notice::IgnoreFileSkipped { path, reason } => (
            Kind::Warning,
            "ignore-file-skipped",
            format!("{} was not obeyed: {reason}", path.display()),
        ),
        Notice::WorkspaceChanged { what } => (Kind::Note, "workspace-changed", what.clone()),
        other => (Kind::Note, "notice", format!("{other:?}")),
    };
    let message = printable(message.as_bytes());
    (kind, NoticeDocument { code, message })
}

/// What became of something that another process had begun.
fn describe_interrupted(notice: &Notice) -> (Kind, &'static str, String) {
    match notice {
        Notice::RestoreDiscarded => (
            Kind::Note,
            "restore-discarded",
            "an interrupted restore had not changed anything and was discarded".to_owned(),
        ),
        Notice::RestoreCompleted { paths } => (
            Kind::Note,
            "restore-completed",
            format!(
                "an interrupted restore was completed first ({}); `turnpoint undo` takes it back",
                format::counted(*paths, "change", "changes")
            ),
        ),
        Notice::RestoreLeftOpen { reason } => (
            Kind::Warning,
            "restore-open",
            format!(
                "an interrupted restore is still open: {reason}; `turnpoint restore --continue` \
                 tries again, `turnpoint restore --abort` ends it as it is"
            ),
        ),
        Notice::PurgeCompleted { .. } => {
            (Kind::Note, "purge-completed", "an interrupted purge was completed first".to_owned())
        }
        Notice::PurgeLeftOpen { reason } => (
            Kind::Warning,
            "purge-open",
            format!(
                "an interrupted purge is not at its end, and content that it is to remove is still in the \
                 store: {reason}"
            ),
        ),
        other => (Kind::Note, "notice", format!("{other:?}")),
    }
}

/// What went because there was too much, and what is too much all the same.
pub(crate) fn evicted(checkpoints: u64, because: &str, released: u64, short: u64) -> String {
    let (what, setting) = match because {
        "budget" => ("the store holds more than its budget", "store.budget"),
        _ => ("less of the disk is free than is to be left", "store.free_floor"),
    };
    let mut parts = vec![what.to_owned()];
    if checkpoints > 0 {
        let count = format::counted(checkpoints, "checkpoint", "checkpoints");
        parts.push(format!("the oldest went for it: {count}, {}", format::size(released)));
    }
    if short > 0 {
        parts.push(format!(
            "{} too much are left, and what is left is pinned, needed or the newest, or would not do: \
             unpin some, or change `{setting}`",
            format::size(short)
        ));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_how_much_and_how_fast() {
        let second = Duration::from_secs(1);
        let walk = message(Phase::Walk, None, 12_000, 0, second);
        assert_eq!(walk, "listing: 12,000 names, 12,000/s");
        let store = message(Phase::Store, Some(90), 30, 2_048, second);
        assert_eq!(store, "storing: 30 of 90 files, 30/s, 2.0 KiB");
        assert_eq!(message(Phase::Commit, None, 0, 0, second), "making it durable");
    }

    #[test]
    fn a_notice_is_one_line_that_a_terminal_can_show() {
        let (kind, document) =
            describe(&Notice::IgnoreFileSkipped { path: "a\x1b[2J\nb".into(), reason: "x".into() });
        assert_eq!(kind, Kind::Warning);
        assert_eq!(document.message, "a\\u{1b}[2J\\nb was not obeyed: x");
    }
}
