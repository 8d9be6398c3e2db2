//! Changing the workspace as `restore` and the commands like it do it: plan, show, ask, carry out, tell.

mod document;
mod left;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use turnpoint::id::{CheckpointId, RunId, SessionName};
use turnpoint::manifest::{Entry, EntryKind, RestoreVerb};
use turnpoint::path::{RelPath, printable, shell_path, shell_word};
use turnpoint::plan::{Change, ChangeKind, Plan, Skip, SkipReason};
use turnpoint::{Error, Monitor, RestoreOptions, RestoreOutcome, Store};

use crate::cli::arguments::{ChangeArguments, PlanArguments};
use crate::cli::ask;
use crate::cli::capture;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::plan::document::document;
use crate::cli::plan::left::{tell_rest, tell_way_past, warn_of_shortfall};
use crate::cli::printer::{Kind, Printer, Style};

/// How many paths of a kind a plan shows; all with `--verbose`.
const SHOWN_MAX: usize = 50;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Verb {
    Restore(CheckpointId),
    /// To the start of a turn, counted from the last of the session, which is here where it was named or picked.
    Rewind(CheckpointId, NonZeroU32, Option<SessionName>),
    Undo,
    Redo,
    Revert(CheckpointId),
    /// Of a run that is there, or was removed.
    Apply {
        run: RunId,
        /// Whether its work tree is there, and not needed any more then.
        may_go: bool,
    },
}

/// How it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    dry_run: bool,
    plan_out: Option<&'a Path>,
    yes: bool,
}

impl<'a> Asked<'a> {
    pub(crate) const fn new(dry_run: bool, yes: bool) -> Self {
        Self { dry_run, plan_out: None, yes }
    }

    pub(crate) fn of(plan: &'a PlanArguments, change: &ChangeArguments) -> Self {
        Self { dry_run: plan.dry_run, plan_out: plan.plan_out.as_deref(), yes: change.yes }
    }
}

impl Verb {
    fn plan(
        &self,
        store: &Store,
        root: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> turnpoint::Result<RestoreOutcome> {
        match self {
            Self::Restore(checkpoint) | Self::Rewind(checkpoint, ..) => {
                store.plan_restore(root, checkpoint, options, monitor)
            }
            Self::Undo => store.plan_undo(root, options, monitor),
            Self::Redo => store.plan_redo(root, options, monitor),
            Self::Revert(checkpoint) => store.plan_revert(root, checkpoint, options, monitor),
            Self::Apply { run, .. } => store.plan_apply(root, *run, options, monitor),
        }
    }

    fn carry_out(
        &self,
        store: &Store,
        root: &Path,
        options: &RestoreOptions,
        monitor: &dyn Monitor,
    ) -> turnpoint::Result<RestoreOutcome> {
        match self {
            Self::Restore(checkpoint) | Self::Rewind(checkpoint, ..) => {
                store.restore(root, checkpoint, options, monitor)
            }
            Self::Undo => store.undo(root, options, monitor),
            Self::Redo => store.redo(root, options, monitor),
            Self::Revert(checkpoint) => store.revert(root, checkpoint, options, monitor),
            Self::Apply { run, .. } => store.apply_run(root, *run, options, monitor),
        }
    }

    /// What it does, as the object of a sentence.
    fn act(&self, target: &CheckpointId) -> String {
        match self {
            Self::Restore(_) | Self::Rewind(..) => format!("restoring {target}"),
            Self::Undo => format!("taking back what {target} was saved for"),
            Self::Redo => format!("taking back the undo that {target} was saved for"),
            Self::Revert(_) => format!("taking back what {target} changed"),
            Self::Apply { run, .. } => format!("applying what run {run} changed"),
        }
    }

    /// What a path was merged with.
    const fn other_side(&self) -> &'static str {
        match self {
            Self::Apply { .. } => "merged with what was done here",
            _ => "merged with what was done since",
        }
    }

    /// The command that takes it back.
    const fn taken_back_by(&self) -> &'static str {
        match self {
            Self::Undo => "redo",
            _ => "undo",
        }
    }

    const fn run(&self) -> Option<RunId> {
        match self {
            Self::Apply { run, .. } => Some(*run),
            _ => None,
        }
    }
}

/// Plans, shows the plan, asks where that was not waived, carries out exactly that plan, and tells
/// what was done.
pub(crate) fn perform(
    verb: &Verb,
    root: &Path,
    mut options: RestoreOptions,
    asked: Asked<'_>,
    context: &mut Context,
) -> Outcome<Exit> {
    let values = context.values_to_restore(root, &options.paths)?;
    options.scope = values.scope;
    options.session = options.session.or(values.session);
    let is_shown = asked.dry_run || asked.plan_out.is_some() || !asked.yes;
    if is_shown {
        if !asked.dry_run && asked.plan_out.is_none() {
            // A purge that was interrupted comes to its end first: a plan would refuse until then.
            context.run(|store, monitor| store.complete_purge(monitor))?;
        }
        let planned = context.run(|store, monitor| verb.plan(store, root, &options, monitor));
        let planned = planned.map_err(|error| seen_from_here(error, root, context))?;
        let nothing = planned.plan.changes.is_empty();
        if let Some(file) = asked.plan_out {
            let place = context.settings.directory.join(file);
            context.run(|store, _| store.write_plan(&planned, &options, &place))?;
        }
        // It changes no file, and is recorded: the next one goes further back.
        let is_recorded = nothing
            && matches!(verb, Verb::Undo | Verb::Redo)
            && !planned.is_short()
            && !asked.dry_run
            && asked.plan_out.is_none();
        // A document is given once, by what was done.
        if !(is_recorded && context.is_json()) {
            show_plan(verb, &planned, &options, context)?;
        }
        if let Some(file) = asked.plan_out {
            tell_written(file, context)?;
            return Ok(Exit::Done);
        }
        if asked.dry_run {
            return Ok(Exit::Done);
        }
        if nothing && !is_recorded {
            return Ok(exit_of(&planned));
        }
        if !is_recorded {
            let target = &planned.plan.target;
            if !ask::can_ask(context) {
                context.printer.flush()?;
                return Err(ask::needs_yes(&verb.act(target)));
            }
            context.printer.gap()?;
            if !ask::confirm(context, &question(&planned.plan))? {
                return Ok(Exit::Refused);
            }
        }
        options.expected_plan = Some(planned.plan.id());
    }
    match context.run(|store, monitor| verb.carry_out(store, root, &options, monitor)) {
        Ok(outcome) => {
            if context.is_json() {
                context.document(&document(verb, &outcome, false))?;
            } else {
                tell(verb, &outcome, &options, is_shown, context)?;
            }
            Ok(exit_of(&outcome))
        }
        Err(error @ Error::PlanChanged { .. }) => {
            options.expected_plan = None;
            let planned = context.run(|store, monitor| verb.plan(store, root, &options, monitor));
            let planned = planned.map_err(|error| seen_from_here(error, root, context))?;
            context.printer.gap()?;
            context.printer.prose("The disk has changed meanwhile. The plan is now:")?;
            show_plan(verb, &planned, &options, context)?;
            context.printer.flush()?;
            Err(Failure::from(error))
        }
        Err(error) => Err(seen_from_here(error, root, context)),
    }
}

/// A hint of the library names the workspace, since it does not know where somebody stands. Whoever stands at its
/// root need not.
fn seen_from_here(error: Error, root: &Path, context: &Context) -> Failure {
    let place = format!("-C {} ", shell_word(root));
    let is_here = !context.settings.is_named && context.settings.directory == root;
    let hint = error.hint().filter(|hint| is_here && hint.contains(&place));
    let failure = Failure::from(error);
    match hint {
        Some(hint) => failure.hint(hint.replace(&place, "")),
        None => failure,
    }
}

/// What a command that is to be typed next begins with, for it to be about the workspace that this was about.
fn place(outcome: &RestoreOutcome, context: &Context) -> String {
    if context.root().is_ok_and(|root| root == outcome.root) {
        context.place()
    } else {
        format!("-C {} ", shell_word(&outcome.root))
    }
}

fn tell_written(file: &Path, context: &mut Context) -> io::Result<()> {
    if context.is_json() || context.is_quiet() {
        return Ok(());
    }
    let shown = printable(file.as_os_str().as_bytes());
    context.printer.gap()?;
    context.printer.prose(&format!(
        "The plan is in {shown}; `turnpoint restore --apply {}` carries it out.",
        shell_path(file)
    ))
}

fn exit_of(outcome: &RestoreOutcome) -> Exit {
    if outcome.is_short() { Exit::Refused } else { Exit::Done }
}

/// `Create 1, overwrite 2, delete 3?`
fn question(plan: &Plan) -> String {
    let mut parts = Vec::new();
    for (kind, what) in [
        (ChangeKind::Create, "create"),
        (ChangeKind::Overwrite, "overwrite"),
        (ChangeKind::Delete, "delete"),
        (ChangeKind::Mode, "change the mode of"),
    ] {
        let count = plan.of_kind(kind).count() as u64;
        if count > 0 {
            parts.push(format!("{what} {}", format::number(count)));
        }
    }
    let text = parts.join(", ");
    let mut characters = text.chars();
    let first: String = characters.next().into_iter().flat_map(char::to_uppercase).collect();
    format!("{first}{}?", characters.as_str())
}

fn show_plan(
    verb: &Verb,
    planned: &RestoreOutcome,
    options: &RestoreOptions,
    context: &mut Context,
) -> io::Result<()> {
    if context.is_json() {
        return context.document(&document(verb, planned, true));
    }
    if planned.plan.changes.is_empty() {
        return tell_nothing(verb, planned, options, context);
    }
    let place = place(planned, context);
    let printer = &mut context.printer;
    let plan = &planned.plan;
    let root = printable(planned.root.as_os_str().as_bytes());
    printer.prose(&match verb {
        Verb::Restore(_) => format!("restore {} in {root}", plan.target),
        Verb::Rewind(_, turn, _) => {
            format!("rewind to {}, the start of {}, in {root}", plan.target, turn_word(*turn))
        }
        Verb::Undo | Verb::Redo => {
            let what = taken_back(verb, planned);
            format!("take back {what} that {} was saved for, in {root}", plan.target)
        }
        Verb::Revert(_) if !options.paths.is_empty() => format!(
            "take back what {} changed at these paths and keep later work, in {root}",
            plan.target
        ),
        Verb::Revert(_) => {
            format!("take back what {} changed and keep later work, in {root}", plan.target)
        }
        Verb::Apply { run, .. } => {
            let at = if options.paths.is_empty() { "" } else { " at these paths" };
            format!("apply what run {run} changed{at}, as {} holds it, to {root}", plan.target)
        }
    })?;
    printer.prose(&counts(plan))?;
    for (kind, heading) in [
        (ChangeKind::Create, "create"),
        (ChangeKind::Overwrite, "overwrite"),
        (ChangeKind::Delete, "delete"),
        (ChangeKind::Mode, "change the mode of"),
    ] {
        let line = |change| change_line(verb, change, &planned.merged);
        let lines: Vec<String> = plan.of_kind(kind).map(line).collect();
        if !lines.is_empty() {
            printer.gap()?;
            printer.heading(heading)?;
            print_some(printer, lines)?;
        }
    }
    print_skips(&plan.skips, printer)?;
    printer.gap()?;
    printer.prose(&format!(
        "The present state is saved first as a safety checkpoint; `turnpoint {place}{}` takes this back.",
        verb.taken_back_by()
    ))?;
    printer.flush()?;
    warn_of_problems(planned, context);
    warn_of_gap(planned, context);
    Ok(())
}

/// The command that is taken back: `the undo of the restore of agent:1`.
fn taken_back(verb: &Verb, planned: &RestoreOutcome) -> String {
    let origin = planned.takes_back.as_ref().and_then(|taken| taken.origin.as_ref());
    let origin = origin.map(|(verb, id)| format!("the {} of {id}", verb.as_str()));
    let done = planned.takes_back.as_ref().map(|taken| taken.verb);
    match (verb, origin, done) {
        (Verb::Redo, Some(origin), _) => format!("the undo of {origin}"),
        (Verb::Redo, None, _) => "the undo".to_owned(),
        (_, Some(origin), Some(RestoreVerb::Redo)) => format!("the redo of {origin}"),
        (_, Some(origin), _) => origin,
        (_, None, done) => format!("the {}", done.unwrap_or(RestoreVerb::Restore).as_str()),
    }
}

/// That a checkpoint is compared with one that was not the last before it: what it changed cannot be told
/// from what those between changed.
fn warn_of_gap(outcome: &RestoreOutcome, context: &Context) {
    let Some(before) = outcome.predecessor.as_ref().filter(|before| before.gone > 0) else {
        return;
    };
    let (target, gone) = (&outcome.plan.target, before.gone);
    let gone = match gone {
        1 => "1 checkpoint between them is gone, and what it changed is taken back too".to_owned(),
        count => format!(
            "{} checkpoints between them are gone, and what they changed is taken back too",
            format::number(count)
        ),
    };
    let text = format!("{target} is compared with {}: {gone}", before.checkpoint.id);
    context.printer.style().complain(Kind::Warning, &text);
}

/// What of the present cannot be saved; the plan leaves it alone.
fn warn_of_problems(outcome: &RestoreOutcome, context: &Context) {
    if !outcome.problems.is_empty() {
        let style = context.printer.style();
        let text = "some paths cannot be saved as they are now; they are left alone";
        style.complain(Kind::Warning, text);
        capture::name_problems(&outcome.problems, outcome.problem_count, style);
    }
}

/// `1 to create, 2 to overwrite; 3 left as they are`.
fn counts(plan: &Plan) -> String {
    let mut parts = Vec::new();
    for (kind, what) in [
        (ChangeKind::Create, "to create"),
        (ChangeKind::Overwrite, "to overwrite"),
        (ChangeKind::Delete, "to delete"),
        (ChangeKind::Mode, "to change the mode of"),
    ] {
        let count = plan.of_kind(kind).count() as u64;
        if count > 0 {
            parts.push(format!("{} {what}", format::number(count)));
        }
    }
    let changes = parts.join(", ");
    match plan.skips.len() as u64 {
        0 => changes,
        1 => format!("{changes}; 1 left as it is"),
        left => format!("{changes}; {} left as they are", format::number(left)),
    }
}

fn change_line(verb: &Verb, change: &Change, merged: &[RelPath]) -> String {
    let path = named(&change.path, change.after.as_ref().or(change.before.as_ref()));
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if before.kind.name() != after.kind.name() => {
            format!("{path} (a {} now, then a {})", kind_word(before), kind_word(after))
        }
        (Some(before), Some(after)) if before.mode != after.mode => {
            format!("{path} (mode {} to {})", before.mode, after.mode)
        }
        _ if merged.binary_search(&change.path).is_ok() => {
            format!("{path} ({})", verb.other_side())
        }
        _ => path,
    }
}

fn kind_word(entry: &Entry) -> &'static str {
    match entry.kind {
        EntryKind::Dir { .. } => "directory",
        _ => entry.kind.name(),
    }
}

/// A directory's name ends with a slash.
fn named(path: &RelPath, entry: Option<&Entry>) -> String {
    match entry.map(|entry| &entry.kind) {
        Some(EntryKind::Dir { .. }) if !path.is_root() => format!("{path}/"),
        _ => path.to_string(),
    }
}

fn print_some(printer: &mut Printer, lines: Vec<String>) -> io::Result<()> {
    let most = if printer.style().verbose { usize::MAX } else { SHOWN_MAX };
    let more = lines.len().saturating_sub(most) as u64;
    for line in lines.into_iter().take(most) {
        printer.item(&line)?;
    }
    if more > 0 {
        printer.line(format_args!("  and {} more (--verbose shows all)", format::number(more)))?;
    }
    Ok(())
}

/// By reason.
pub(crate) fn print_skips(skips: &[Skip], printer: &mut Printer) -> io::Result<()> {
    let mut by_reason: BTreeMap<SkipReason, Vec<String>> = BTreeMap::new();
    for skip in skips {
        by_reason.entry(skip.reason).or_default().push(skip.path.to_string());
    }
    for (reason, paths) in by_reason {
        printer.gap()?;
        printer.heading(&format!(
            "left as {}: {}",
            if paths.len() == 1 { "it is" } else { "they are" },
            why(reason)
        ))?;
        print_some(printer, paths)?;
    }
    Ok(())
}

fn why(reason: SkipReason) -> String {
    match reason {
        SkipReason::NotCaptured(reason) => format!("the checkpoint does not hold it ({reason})"),
        SkipReason::Rule(reason) => format!("never saved, so never replaced ({reason})"),
        SkipReason::NotSaved => "its present content could not be saved".to_owned(),
        SkipReason::NoEvidence => "nothing shows that it was not there then".to_owned(),
        SkipReason::NotEmpty => "something in it stays".to_owned(),
        SkipReason::OtherName => "another name of a file that stays".to_owned(),
        SkipReason::Blocked => "what is above it stays as it is".to_owned(),
        SkipReason::SetId => "set-user-id and set-group-id bits are not restored".to_owned(),
        SkipReason::Conflict => "it was changed since".to_owned(),
        SkipReason::Failed => "the system refused".to_owned(),
        other => other.as_str().to_owned(),
    }
}

fn turn_word(turn: NonZeroU32) -> String {
    match turn.get() {
        1 => "the last turn".to_owned(),
        2 => "the last turn but one".to_owned(),
        turn => format!("the last turn but {}", turn - 1),
    }
}

/// The turn before the one that is rewound to, where there is one.
fn turn_before(verb: &Verb, outcome: &RestoreOutcome, context: &mut Context) -> Option<NonZeroU32> {
    let Verb::Rewind(start, turn, _) = verb else { return None };
    let before = turn.checked_add(1)?;
    let (session, root) = (Some(&start.session), &outcome.root);
    context.run(|store, monitor| store.start_of_turn(session, before, root, monitor)).ok()?;
    Some(before)
}

/// Says why there is nothing to do.
fn tell_nothing(
    verb: &Verb,
    outcome: &RestoreOutcome,
    options: &RestoreOptions,
    context: &mut Context,
) -> io::Result<()> {
    let plan = &outcome.plan;
    let root = printable(outcome.root.as_os_str().as_bytes());
    let target = &plan.target;
    let (place, further) = (place(outcome, context), turn_before(verb, outcome, context));
    let printer = &mut context.printer;
    let text = match (verb, plan.skips.is_empty(), options.paths.is_empty()) {
        (Verb::Restore(_), true, true) => {
            format!("nothing to restore: {root} is as {target} holds it")
        }
        (Verb::Restore(_), true, false) => {
            format!("nothing to restore: these paths of {root} are as {target} holds them")
        }
        (Verb::Rewind(_, turn, session), true, _) => {
            let session = session.as_ref().map_or_else(String::new, |session| {
                format!(" --session {}", shell_word(session.as_str()))
            });
            let further = further.map_or_else(String::new, |further| {
                format!("; `turnpoint {place}rewind {further}{session}` goes one turn further back")
            });
            let turn = turn_word(*turn);
            format!(
                "nothing to rewind: {root} is as {target} holds it, the start of {turn}{further}"
            )
        }
        (Verb::Restore(_) | Verb::Rewind(..), false, _) => {
            format!("nothing to restore in {root}: what differs from {target} stays as it is")
        }
        (Verb::Revert(_), true, true) => {
            format!("nothing to take back in {root}: nothing is left of what {target} changed")
        }
        (Verb::Revert(_), true, false) => format!(
            "nothing to take back in {root}: nothing is left of what {target} changed at these paths"
        ),
        (Verb::Revert(_), false, _) => {
            format!("nothing to take back in {root}: what is left of {target} stays as it is")
        }
        (Verb::Apply { run, .. }, true, true) => {
            format!("nothing to apply to {root}: it has all that run {run} changed")
        }
        (Verb::Apply { run, .. }, true, false) => {
            format!("nothing to apply to {root}: it has all that run {run} changed at these paths")
        }
        (Verb::Apply { run, .. }, false, _) => {
            format!("nothing to apply to {root}: what is left of run {run} stays as it is")
        }
        (Verb::Undo | Verb::Redo, true, _) => {
            format!("nothing to take back in {root}: every path is as {target} saved it")
        }
        (Verb::Undo | Verb::Redo, false, _) => {
            format!("nothing to take back in {root}: what differs from {target} stays as it is")
        }
    };
    printer.prose(&text)?;
    print_skips(&plan.skips, printer)?;
    printer.flush()?;
    if !context.is_quiet() {
        tell_what_is_left(verb, &place, context.printer.style());
    }
    tell_way_past(outcome, options, context);
    warn_of_problems(outcome, context);
    Ok(())
}

/// Tells what was done. The plan has been shown where somebody was asked.
fn tell(
    verb: &Verb,
    outcome: &RestoreOutcome,
    options: &RestoreOptions,
    was_shown: bool,
    context: &mut Context,
) -> io::Result<()> {
    let plan = &outcome.plan;
    let Some(safety) = &outcome.safety else {
        return tell_nothing(verb, outcome, options, context);
    };
    let place = place(outcome, context);
    let style = context.printer.style();
    let printer = &mut context.printer;
    if !style.quiet {
        let root = printable(outcome.root.as_os_str().as_bytes());
        let done = done(outcome);
        printer.prose(&match verb {
            Verb::Restore(_) | Verb::Rewind(..) => {
                format!("restored {} in {root}: {done}", plan.target)
            }
            Verb::Undo | Verb::Redo => {
                format!("took back {} in {root}: {done}", taken_back(verb, outcome))
            }
            Verb::Revert(_) => format!("took back what {} changed in {root}: {done}", plan.target),
            Verb::Apply { run, .. } => {
                format!("applied what run {run} changed to {root}: {done}")
            }
        })?;
        printer.prose(&format!(
            "what was there before is {safety}; `turnpoint {place}{}` takes this back",
            verb.taken_back_by()
        ))?;
        if !was_shown {
            let by_rule: Vec<Skip> =
                plan.skips.iter().filter(|skip| !skip.reason.is_shortfall()).cloned().collect();
            print_skips(&by_rule, printer)?;
        }
        printer.flush()?;
        for remark in &outcome.remarks {
            style.complain(Kind::Note, &printable(remark.as_bytes()));
        }
        tell_what_is_left(verb, &place, style);
    }
    if outcome.is_short() {
        warn_of_shortfall(outcome, context)?;
        if matches!(verb, Verb::Undo | Verb::Redo) {
            tell_rest(outcome, context);
        }
    }
    warn_of_problems(outcome, context);
    if !was_shown {
        warn_of_gap(outcome, context);
    }
    Ok(())
}

/// How to remove the work tree of which all was applied: it stays as it is.
fn tell_what_is_left(verb: &Verb, place: &str, style: Style) {
    if let Verb::Apply { run, may_go: true } = verb {
        let text = format!("`turnpoint {place}worktree remove {run}` removes its work tree");
        style.complain(Kind::Hint, &text);
    }
}

/// `1 created, 2 overwritten`: the planned changes but for those that were left.
fn done(outcome: &RestoreOutcome) -> String {
    let is_left = |change: &&Change| outcome.left.iter().any(|skip| skip.path == change.path);
    let mut parts = Vec::new();
    for (kind, what) in [
        (ChangeKind::Create, "created"),
        (ChangeKind::Overwrite, "overwritten"),
        (ChangeKind::Delete, "deleted"),
        (ChangeKind::Mode, "with another mode"),
    ] {
        let count = outcome.plan.of_kind(kind).filter(|change| !is_left(change)).count() as u64;
        if count > 0 {
            parts.push(format!("{} {what}", format::number(count)));
        }
    }
    if parts.is_empty() { "nothing was changed".to_owned() } else { parts.join(", ") }
}
