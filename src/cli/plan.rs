//! Changing the workspace as `restore` and the commands like it do it: plan, show, ask, carry out, tell.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use turnpoint::id::CheckpointId;
use turnpoint::manifest::{Entry, EntryKind};
use turnpoint::path::{RelPath, printable};
use turnpoint::plan::{Change, ChangeKind, Plan, Skip, SkipReason};
use turnpoint::{Error, Monitor, RestoreOptions, RestoreOutcome, Store};

use crate::cli::arguments::{ChangeArguments, PlanArguments};
use crate::cli::ask;
use crate::cli::capture;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::json::{IdDocument, PathDocument, ReasonDocument, RootDocument};
use crate::cli::printer::{Kind, Printer};

/// How many paths of a kind a plan shows; all with `--verbose`.
const SHOWN_MAX: usize = 50;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Verb {
    Restore(CheckpointId),
    /// To the start of a turn, counted from the last.
    Rewind(CheckpointId, NonZeroU32),
    Undo,
    Redo,
    Revert(CheckpointId),
}

/// How it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    dry_run: bool,
    plan_out: Option<&'a Path>,
    yes: bool,
}

impl<'a> Asked<'a> {
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
            Self::Restore(checkpoint) | Self::Rewind(checkpoint, _) => {
                store.plan_restore(root, checkpoint, options, monitor)
            }
            Self::Undo => store.plan_undo(root, options, monitor),
            Self::Redo => store.plan_redo(root, options, monitor),
            Self::Revert(checkpoint) => store.plan_revert(root, checkpoint, options, monitor),
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
            Self::Restore(checkpoint) | Self::Rewind(checkpoint, _) => {
                store.restore(root, checkpoint, options, monitor)
            }
            Self::Undo => store.undo(root, options, monitor),
            Self::Redo => store.redo(root, options, monitor),
            Self::Revert(checkpoint) => store.revert(root, checkpoint, options, monitor),
        }
    }

    /// What it does, as the object of a sentence.
    fn act(&self, target: &CheckpointId) -> String {
        match self {
            Self::Restore(_) | Self::Rewind(..) => format!("restoring {target}"),
            Self::Undo => format!("taking back the restore that {target} was saved for"),
            Self::Redo => format!("taking back the undo that {target} was saved for"),
            Self::Revert(_) => format!("taking back what {target} changed"),
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
    let values = context.values(root)?;
    options.scope = values.scope;
    options.session = options.session.or(values.session);
    let is_shown = asked.dry_run || asked.plan_out.is_some() || !asked.yes;
    if is_shown {
        if !asked.dry_run && asked.plan_out.is_none() {
            // A purge that was interrupted comes to its end first: a plan would refuse until then.
            context.run(|store, monitor| store.complete_purge(monitor))?;
        }
        let planned = context.run(|store, monitor| verb.plan(store, root, &options, monitor))?;
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
                context.document(&document(&outcome, false))?;
            } else {
                tell(verb, &outcome, &options, is_shown, context)?;
            }
            Ok(exit_of(&outcome))
        }
        Err(error @ Error::PlanChanged { .. }) => {
            options.expected_plan = None;
            let planned =
                context.run(|store, monitor| verb.plan(store, root, &options, monitor))?;
            context.printer.gap()?;
            context.printer.prose("The disk has changed meanwhile. The plan is now:")?;
            show_plan(verb, &planned, &options, context)?;
            context.printer.flush()?;
            Err(Failure::from(error))
        }
        Err(error) => Err(error.into()),
    }
}

fn tell_written(file: &Path, context: &mut Context) -> io::Result<()> {
    if context.is_json() || context.is_quiet() {
        return Ok(());
    }
    let file = printable(file.as_os_str().as_bytes());
    context.printer.gap()?;
    context.printer.prose(&format!(
        "The plan is in {file}; `turnpoint restore --apply {file}` carries it out."
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

#[derive(Serialize)]
struct PlanDocument {
    plan: String,
    dry_run: bool,
    #[serde(flatten)]
    target: IdDocument,
    #[serde(flatten)]
    root: RootDocument,
    create: Vec<ChangeDocument>,
    overwrite: Vec<ChangeDocument>,
    delete: Vec<ChangeDocument>,
    mode: Vec<ChangeDocument>,
    skip: Vec<ReasonDocument>,
    problems: Vec<ReasonDocument>,
    problem_count: u64,
    changed: u64,
    left: Vec<ReasonDocument>,
    safety: Option<IdDocument>,
    remarks: Vec<String>,
}

#[derive(Serialize)]
struct ChangeDocument {
    #[serde(flatten)]
    path: PathDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_to: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_to: Option<String>,
    /// Whether its content is merged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    merged: bool,
}

impl From<&Change> for ChangeDocument {
    fn from(change: &Change) -> Self {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let kind = |entry: Option<&Entry>| entry.map(|entry| entry.kind.name());
        let mode = |entry: Option<&Entry>| entry.map(|entry| entry.mode.to_string());
        let changes_kind = before.is_some() && after.is_some() && kind(before) != kind(after);
        let changes_mode =
            before.is_some() && after.is_some() && !changes_kind && mode(before) != mode(after);
        Self {
            path: PathDocument::from(&change.path),
            kind: if changes_kind { None } else { kind(after.or(before)) },
            kind_from: kind(before).filter(|_| changes_kind),
            kind_to: kind(after).filter(|_| changes_kind),
            mode_from: mode(before).filter(|_| changes_mode),
            mode_to: mode(after).filter(|_| changes_mode),
            merged: false,
        }
    }
}

fn document(outcome: &RestoreOutcome, dry_run: bool) -> PlanDocument {
    let plan = &outcome.plan;
    let one = |change: &Change| {
        let merged = outcome.merged.binary_search(&change.path).is_ok();
        ChangeDocument { merged, ..ChangeDocument::from(change) }
    };
    let of_kind = |kind| plan.of_kind(kind).map(one).collect();
    let skips = |skips: &[Skip]| {
        skips
            .iter()
            .map(|skip| ReasonDocument {
                path: PathDocument::from(&skip.path),
                reason: skip.reason.as_str().to_owned(),
            })
            .collect()
    };
    PlanDocument {
        plan: plan.id(),
        dry_run,
        target: IdDocument::from(&plan.target),
        root: RootDocument::from(outcome.root.as_path()),
        create: of_kind(ChangeKind::Create),
        overwrite: of_kind(ChangeKind::Overwrite),
        delete: of_kind(ChangeKind::Delete),
        mode: of_kind(ChangeKind::Mode),
        skip: skips(&plan.skips),
        problems: outcome.problems.iter().map(ReasonDocument::from).collect(),
        problem_count: outcome.problem_count,
        changed: outcome.changed,
        left: skips(&outcome.left),
        safety: outcome.safety.as_ref().map(IdDocument::from),
        remarks: outcome.remarks.clone(),
    }
}

fn show_plan(
    verb: &Verb,
    planned: &RestoreOutcome,
    options: &RestoreOptions,
    context: &mut Context,
) -> io::Result<()> {
    if context.is_json() {
        return context.document(&document(planned, true));
    }
    if planned.plan.changes.is_empty() {
        return tell_nothing(verb, planned, options, context);
    }
    let printer = &mut context.printer;
    let plan = &planned.plan;
    let root = printable(planned.root.as_os_str().as_bytes());
    printer.prose(&match verb {
        Verb::Restore(_) => format!("restore {} in {root}", plan.target),
        Verb::Rewind(_, turn) => {
            format!("rewind to {}, the start of {}, in {root}", plan.target, turn_word(*turn))
        }
        Verb::Undo => {
            format!("take back the restore that {} was saved for, in {root}", plan.target)
        }
        Verb::Redo => format!("take back the undo that {} was saved for, in {root}", plan.target),
        Verb::Revert(_) => {
            format!("take back what {} changed and keep later work, in {root}", plan.target)
        }
    })?;
    printer.prose(&counts(plan))?;
    for (kind, heading) in [
        (ChangeKind::Create, "create"),
        (ChangeKind::Overwrite, "overwrite"),
        (ChangeKind::Delete, "delete"),
        (ChangeKind::Mode, "change the mode of"),
    ] {
        let line = |change| change_line(change, &planned.merged);
        let lines: Vec<String> = plan.of_kind(kind).map(line).collect();
        if !lines.is_empty() {
            printer.gap()?;
            printer.heading(heading)?;
            print_some(printer, lines)?;
        }
    }
    print_skips(&plan.skips, printer)?;
    printer.gap()?;
    printer.prose(match verb {
        Verb::Restore(_) | Verb::Rewind(..) | Verb::Redo | Verb::Revert(_) => {
            "The present state is saved first as a safety checkpoint; `turnpoint undo` takes this \
             back."
        }
        Verb::Undo => {
            "The present state is saved first as a safety checkpoint; `turnpoint redo` takes this back."
        }
    })?;
    printer.flush()?;
    warn_of_problems(planned, context);
    Ok(())
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

fn change_line(change: &Change, merged: &[RelPath]) -> String {
    let path = named(&change.path, change.after.as_ref().or(change.before.as_ref()));
    match (&change.before, &change.after) {
        (Some(before), Some(after)) if before.kind.name() != after.kind.name() => {
            format!("{path} (a {} now, then a {})", kind_word(before), kind_word(after))
        }
        (Some(before), Some(after)) if before.mode != after.mode => {
            format!("{path} (mode {} to {})", before.mode, after.mode)
        }
        _ if merged.binary_search(&change.path).is_ok() => {
            format!("{path} (merged with what was done since)")
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
    let printer = &mut context.printer;
    let text = match (verb, plan.skips.is_empty(), options.paths.is_empty()) {
        (Verb::Restore(_), true, true) => {
            format!("nothing to restore: {root} is as {target} holds it")
        }
        (Verb::Restore(_), true, false) => {
            format!("nothing to restore: these paths of {root} are as {target} holds them")
        }
        (Verb::Rewind(_, turn), true, _) => format!(
            "nothing to rewind: {root} is as {target} holds it, the start of {}; `turnpoint rewind {}` \
             goes one turn further back",
            turn_word(*turn),
            turn.saturating_add(1)
        ),
        (Verb::Restore(_) | Verb::Rewind(..), false, _) => {
            format!("nothing to restore in {root}: what differs from {target} stays as it is")
        }
        (Verb::Revert(_), true, _) => {
            format!("nothing to take back in {root}: nothing is left of what {target} changed")
        }
        (Verb::Revert(_), false, _) => {
            format!("nothing to take back in {root}: what is left of {target} stays as it is")
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
    let style = context.printer.style();
    let printer = &mut context.printer;
    if !style.quiet {
        let root = printable(outcome.root.as_os_str().as_bytes());
        let done = done(outcome);
        printer.prose(&match verb {
            Verb::Restore(_) | Verb::Rewind(..) => {
                format!("restored {} in {root}: {done}", plan.target)
            }
            Verb::Undo => format!("took back a restore in {root}: {done}"),
            Verb::Redo => format!("took back an undo in {root}: {done}"),
            Verb::Revert(_) => format!("took back what {} changed in {root}: {done}", plan.target),
        })?;
        printer.prose(&match verb {
            Verb::Restore(_) | Verb::Rewind(..) | Verb::Redo | Verb::Revert(_) => {
                format!("what was there before is {safety}; `turnpoint undo` takes this back")
            }
            Verb::Undo => {
                format!("what was there before is {safety}; `turnpoint redo` takes this back")
            }
        })?;
        if !was_shown {
            let by_rule: Vec<Skip> =
                plan.skips.iter().filter(|skip| !skip.reason.is_shortfall()).cloned().collect();
            print_skips(&by_rule, printer)?;
        }
        printer.flush()?;
        for remark in &outcome.remarks {
            style.complain(Kind::Note, &printable(remark.as_bytes()));
        }
    }
    if outcome.is_short() {
        warn_of_shortfall(outcome, context)?;
    }
    warn_of_problems(outcome, context);
    Ok(())
}

/// Names what should have been changed and was not.
fn warn_of_shortfall(outcome: &RestoreOutcome, context: &mut Context) -> io::Result<()> {
    let short = outcome.plan.skips.iter().filter(|skip| skip.reason.is_shortfall());
    let left: Vec<Skip> = short.chain(&outcome.left).cloned().collect();
    let style = context.printer.style();
    let count = format::counted(left.len() as u64, "path was", "paths were");
    style.complain(
        Kind::Warning,
        &format!("{count} left as before although something else was wanted"),
    );
    print_skips(&left, &mut context.printer)?;
    context.printer.flush()
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
