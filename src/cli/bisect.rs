//! `turnpoint bisect`.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::Serialize;
use turnpoint::bisect::{Bisection, Verdict};
use turnpoint::id::CheckpointId;
use turnpoint::manifest::Coverage;
use turnpoint::path::printable;
use turnpoint::{
    CheckpointSummary, CompareOptions, Comparison, Error, ErrorClass, RestoreOptions, Spec,
};

use crate::cli::arguments::BisectArguments;
use crate::cli::context::Context;
use crate::cli::diff::{self, ChangeDocument};
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::interrupt::Interrupt;
use crate::cli::json::{CheckpointDocument, IdDocument, UnreadableDocument};
use crate::cli::log::tell_unreadable;
use crate::cli::orphans;
use crate::cli::printer::Kind;
use crate::cli::scratch::Scratch;

/// How long a command may take to end after a signal asked this program to stop.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether a command has ended, or a signal came.
const LOOKED_EVERY: Duration = Duration::from_millis(20);

#[derive(Serialize)]
struct BisectDocument<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    first_bad: Option<CheckpointDocument<'a>>,
    last_good: IdDocument,
    suspects: Vec<IdDocument>,
    steps: &'a [StepDocument],
    changes: Vec<ChangeDocument>,
    unreadable: Vec<UnreadableDocument<'a>>,
}

#[derive(Serialize)]
struct StepDocument {
    #[serde(flatten)]
    id: IdDocument,
    verdict: &'static str,
    /// None where the checkpoint could not be written out.
    exit_code: Option<i32>,
}

/// Searches.
pub(crate) fn run(arguments: &BisectArguments, context: &mut Context) -> Outcome<Exit> {
    context.report_open_restore();
    let (good, bad) = ends(arguments, context)?;
    let root = context.root()?;
    let between = context.run(|store, monitor| store.states_between(&good, &bad, monitor))?;
    let unreadable = between.unreadable;
    tell_unreadable(&unreadable, context);
    context.interrupt.outlive_signals();
    let scratch = Scratch::new(&root)?;
    let mut trial = Trial { command: &arguments.command, root: &root, scratch, steps: Vec::new() };
    let searched = search(between.states, &mut trial, context);
    let Trial { scratch, steps, .. } = trial;
    // What was found stands, whether or not the directory can be removed.
    let closed = scratch.close();
    let bisection = match (searched, &closed) {
        (Ok(bisection), _) => bisection,
        (Err(failure), Ok(())) => return Err(failure),
        (Err(failure), Err(error)) => {
            // The failure is told last, and is what the exit code is about.
            context.printer.style().complain(Kind::Warning, &error.message());
            return Err(failure);
        }
    };
    let exit = tell(&bisection, &steps, &unreadable, context)?;
    closed?;
    let is_whole = unreadable.is_empty();
    Ok(if exit == Exit::Done { Exit::damaged_if(!is_whole) } else { exit })
}

/// Reads `[SESSION] GOOD BAD` in every form of a checkpoint.
fn ends(
    arguments: &BisectArguments,
    context: &mut Context,
) -> Outcome<(CheckpointId, CheckpointId)> {
    let session = arguments.session.as_deref();
    let (good, Some(bad), []) =
        diff::sides(&arguments.words, session, None, Some(context), |_, _| false)?
    else {
        let message = "two checkpoints are expected, a good one and a bad one";
        return Err(Failure::own(Exit::Usage, "usage", message)
            .hint("as in `turnpoint bisect fix-login 0 12 -- cargo test`"));
    };
    let good = context.resolve(&good)?;
    // Two sessions have nothing between them, so whatever names no other is of that of GOOD.
    let session = bad.session.or_else(|| Some(good.session.clone()));
    let bad = context.resolve(&Spec { session, ..bad })?;
    Ok((good, bad))
}

/// A command to be tried on checkpoints.
struct Trial<'a> {
    command: &'a [OsString],
    root: &'a Path,
    scratch: Scratch,
    steps: Vec<StepDocument>,
}

/// Tries both ends, then what is in the middle of what is left.
fn search(
    states: Vec<CheckpointSummary>,
    trial: &mut Trial<'_>,
    context: &mut Context,
) -> Outcome<Bisection<CheckpointSummary>> {
    let (good, bad) = (states.first().cloned(), states.last().cloned());
    let (Some(mut bisection), Some(good), Some(bad)) = (Bisection::new(states), good, bad) else {
        return Err(Failure::own(Exit::Usage, "usage", "two checkpoints are expected"));
    };
    for (end, expected, word) in [(good, Verdict::Good, "good"), (bad, Verdict::Bad, "bad")] {
        let (verdict, status) = trial.tried(&end, context)?;
        trial.note(&end.id, verdict, Some(status), context);
        if verdict != expected {
            return Err(unexpected(&end.id, status, word));
        }
    }
    while let Some(next) = bisection.next().cloned() {
        let (verdict, status) = match trial.tried(&next, context) {
            Ok((verdict, status)) => (verdict, Some(status)),
            Err(failure) => {
                let reason = lost(failure)?;
                context.found_damage = true;
                let text = format!("{} is passed over: {reason}", next.id);
                if !context.is_json() {
                    context.printer.style().complain(Kind::Warning, &text);
                }
                (Verdict::Skip, None)
            }
        };
        bisection.judge(verdict);
        trial.note(&next.id, verdict, status, context);
        if !context.is_json() && !context.is_quiet() && bisection.left() > 0 {
            let left = format::counted(bisection.left() as u64, "checkpoint", "checkpoints");
            context.printer.style().complain(Kind::Note, &format!("{left} left"));
        }
    }
    Ok(bisection)
}

/// Why a checkpoint in the middle cannot be tried, where that is no reason to end the search: what is
/// lost or was pruned meanwhile concerns it alone.
fn lost(failure: Failure) -> Outcome<String> {
    match failure {
        Failure::Library { error, .. } => match *error {
            Error::Pruned { .. } | Error::CheckpointNotFound { .. } | Error::ContentLost { .. } => {
                Ok(error.to_string())
            }
            error if error.class() == ErrorClass::Damaged => Ok(error.to_string()),
            error => Err(error.into()),
        },
        failure => Err(failure),
    }
}

fn unexpected(end: &CheckpointId, status: i32, word: &str) -> Failure {
    let (message, hint) = match (status, word) {
        (125, _) => (
            format!("the command cannot tell whether {end} is {word}"),
            "125 says that; the search begins with one that is good and one that is bad",
        ),
        (126 | 127, "good") => (
            format!("{end} was to be good, but the command could not be run there ({status})"),
            "what the checkpoint does not hold is not there: see `turnpoint ls --omitted`",
        ),
        _ => (
            format!("{end} was to be {word}, but the command says otherwise ({status})"),
            "0 says good and 1 to 127 say bad; what the checkpoint does not hold is not there: see \
             `turnpoint ls --omitted`",
        ),
    };
    let code = if word == "good" { "not-good" } else { "not-bad" };
    Failure::own(Exit::Usage, code, message).hint(hint)
}

impl Trial<'_> {
    /// Writes a checkpoint out and runs the command there.
    ///
    /// Each time the whole of it, into an empty directory: what an earlier run left or changed would
    /// decide otherwise, and nobody has kept watch over what that was.
    fn tried(
        &self,
        checkpoint: &CheckpointSummary,
        context: &mut Context,
    ) -> Outcome<(Verdict, i32)> {
        let id = &checkpoint.id;
        let place = self.scratch.place();
        self.scratch.empty()?;
        let options = RestoreOptions::default();
        context.run(|store, monitor| store.restore_into(id, place, &options, monitor))?;
        context.printer.flush()?;
        let status = self.run(id, context)?;
        match status.code() {
            Some(0) => Ok((Verdict::Good, 0)),
            Some(125) => Ok((Verdict::Skip, 125)),
            Some(code @ 1..=127) => Ok((Verdict::Bad, code)),
            _ => {
                let how = match (status.code(), status.signal()) {
                    (Some(code), _) => format!("with {code}"),
                    (None, Some(signal)) => format!("by signal {signal}"),
                    (None, None) => "without saying how".to_owned(),
                };
                let message = format!("the command ended {how} in {id}, which ends the search");
                Err(Failure::own(Exit::Failed, "command-aborted", message)
                    .hint("0 says good, 1 to 127 say bad, and 125 that nobody can tell"))
            }
        }
    }

    fn run(&self, id: &CheckpointId, context: &Context) -> Outcome<ExitStatus> {
        let Some((program, arguments)) = self.command.split_first() else {
            return Err(Failure::own(Exit::Usage, "usage", "a command is expected after `--`"));
        };
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.scratch.place())
            .env("TURNPOINT_BISECT_CHECKPOINT", id.to_string())
            .env("TURNPOINT_BISECT_SESSION", id.session.as_str())
            .env("TURNPOINT_BISECT_SEQ", id.seq.to_string())
            .env("TURNPOINT_BISECT_WORKSPACE", self.root);
        if context.is_json() {
            // Standard output is for the document.
            command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
        }
        // With a group of its own all that it starts can be ended with it. From a terminal it stays in the
        // foreground with this program, or it could not read from there; this program's group may be that of
        // others too, and is not signalled, so there what it leaves behind is looked for.
        let has_group = !io::stdin().is_terminal();
        if has_group {
            command.process_group(0);
        } else {
            orphans::adopt();
        }
        let mut child = command.spawn().map_err(|error| {
            let message = format!("cannot run `{}`: {error}", printable(program.as_bytes()));
            Failure::own(Exit::Usage, "command-not-run", message)
        })?;
        let status = wait(&mut child, has_group, &context.interrupt)
            .map_err(|source| Error::Io { verb: "wait for", path: program.into(), source })?;
        status.ok_or_else(|| Error::Cancelled.into())
    }

    fn note(
        &mut self,
        id: &CheckpointId,
        verdict: Verdict,
        exit_code: Option<i32>,
        context: &Context,
    ) {
        let verdict = match verdict {
            Verdict::Good => "good",
            Verdict::Bad => "bad",
            Verdict::Skip => "skip",
        };
        self.steps.push(StepDocument { id: IdDocument::from(id), verdict, exit_code });
        if let Some(code) = exit_code.filter(|_| !context.is_json() && !context.is_quiet()) {
            let verdict = if verdict == "skip" { "neither good nor bad" } else { verdict };
            context.printer.style().complain(Kind::Note, &format!("{id} is {verdict} ({code})"));
        }
    }
}

/// Waits for a command; `None` where a signal came meanwhile. The command is told to end then, and killed if
/// it goes on, at once if another signal comes; and all that it has started with it. This program outlives
/// it: there is a directory to remove.
fn wait(
    child: &mut Child,
    has_group: bool,
    interrupt: &Interrupt,
) -> io::Result<Option<ExitStatus>> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| io::Error::other("the command has no process id"))?;
    // That nobody is left to be told is no failure.
    let tell = |signal| {
        let told = if has_group {
            rustix::process::kill_process_group(id, signal)
        } else {
            rustix::process::kill_process(id, signal)
        };
        told.ok();
    };
    let mut asked: Option<Instant> = None;
    loop {
        // Not reaped here: as long as it is not, its number is nobody else's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        if rustix::process::waitid(WaitId::Pid(id), options)?.is_some() {
            let is_stopped = asked.is_some() || interrupt.came();
            // What it started would write into the directory while that is removed.
            if is_stopped && has_group {
                tell(Signal::KILL);
            } else if is_stopped {
                orphans::end();
            }
            interrupt.forget();
            return Ok(Some(child.wait()?).filter(|_| !is_stopped));
        }
        if interrupt.came() {
            interrupt.forget();
            tell(if asked.is_some() { Signal::KILL } else { Signal::TERM });
            asked.get_or_insert_with(Instant::now);
        }
        if asked.is_some_and(|asked| asked.elapsed() > ENDS_WITHIN) {
            tell(Signal::KILL);
        }
        std::thread::sleep(LOOKED_EVERY);
    }
}

/// Says which one it is, what it changed, and what can be done about it.
fn tell(
    bisection: &Bisection<CheckpointSummary>,
    steps: &[StepDocument],
    unreadable: &[turnpoint::ListItem],
    context: &mut Context,
) -> Outcome<Exit> {
    let (good, suspects) = (bisection.last_good(), bisection.suspects());
    let Some(bad) = suspects.last() else { return Ok(Exit::Failed) };
    let first_bad = Some(bad).filter(|_| suspects.len() == 1);
    let options = CompareOptions::default();
    let found =
        context.run(|store, monitor| store.compare(&good.id, &bad.id, &options, monitor))?;
    if first_bad.is_some() {
        tell_doubts(good, bad, context)?;
    }
    if context.is_json() {
        context.document(&BisectDocument {
            first_bad: first_bad.map(CheckpointDocument::from),
            last_good: IdDocument::from(&good.id),
            suspects: suspects.iter().map(|it| IdDocument::from(&it.id)).collect(),
            steps,
            changes: found.changes.iter().map(ChangeDocument::from).collect(),
            unreadable: unreadable.iter().filter_map(UnreadableDocument::of).collect(),
        })?;
    } else {
        print(good, suspects, &found, context)?;
    }
    Ok(if first_bad.is_some() { Exit::Done } else { Exit::Failed })
}

/// What could have misled the command.
fn tell_doubts(
    good: &CheckpointSummary,
    bad: &CheckpointSummary,
    context: &mut Context,
) -> Outcome<()> {
    if !bad.complete {
        context.remark(format!(
            "{} is incomplete: that something could not be read when it was made may be all that is bad",
            bad.id
        ));
    }
    let parent = context.run(|store, monitor| store.show(&bad.id, monitor))?.manifest.parent;
    if let Some(parent) = parent.map(|parent| parent.id)
        && parent.session == bad.id.session
        && parent.seq > good.id.seq
        && context
            .run(|store, monitor| store.show(&parent, monitor))
            .is_err_and(|error| is_gone(&error))
    {
        context.remark(format!(
            "{parent}, the one before {}, is gone: what it changed, and what else was between {} and {}, counts \
             as changed by {}",
            bad.id, good.id, bad.id, bad.id
        ));
    }
    let shown = context.run(|store, monitor| store.show(&good.id, monitor))?;
    if matches!(shown.manifest.coverage, Coverage::Hinted(_)) {
        context.remark(format!(
            "{} was made where it was told to look: what was changed elsewhere before it counts as \
             changed by {}",
            good.id, bad.id
        ));
    }
    Ok(())
}

const fn is_gone(error: &Error) -> bool {
    matches!(error, Error::CheckpointNotFound { .. } | Error::Pruned { .. })
}

fn print(
    good: &CheckpointSummary,
    suspects: &[CheckpointSummary],
    found: &Comparison,
    context: &mut Context,
) -> io::Result<()> {
    let place = context.place();
    let printer = &mut context.printer;
    let (good, Some(bad)) = (&good.id, suspects.last()) else { return Ok(()) };
    let time = format::second(bad.created_at);
    if suspects.len() == 1 {
        let label = bad.label.as_deref().map(|label| format!(": {}", printable(label.as_bytes())));
        let label = label.unwrap_or_default();
        printer.prose(&format!("the first bad one is {}, made {time}{label}", bad.id))?;
    } else {
        printer.prose("the first bad one is one of these, since nobody can tell:")?;
        for suspect in suspects {
            printer.line(format_args!("  {}", suspect.id))?;
        }
    }
    if printer.style().quiet {
        return Ok(());
    }
    printer.gap()?;
    printer.prose(&format!("changes from {good} to {}", bad.id))?;
    diff::summary(found, printer)?;
    printer.gap()?;
    let (good, bad) = (good.shell_word(), bad.id.shell_word());
    printer.prose(&format!("look at it: `turnpoint diff {good} {bad} --patch`"))?;
    if suspects.len() == 1 {
        printer.prose(&format!(
            "take back what it did, and nothing later: `turnpoint {place}revert {bad}`"
        ))?;
    }
    printer.prose(&format!("go back to before it: `turnpoint {place}restore {good}`"))
}
