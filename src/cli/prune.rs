//! `turnpoint prune`.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::{KeepReason, PruneOutcome, PruneRule};

use crate::cli::arguments::PruneArguments;
use crate::cli::ask;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::json::IdDocument;
use crate::cli::printer::Printer;
use crate::cli::target;

#[derive(Serialize)]
struct PruneDocument {
    dry_run: bool,
    pruned: Vec<IdDocument>,
    kept: u64,
    kept_because: BTreeMap<&'static str, u64>,
    missing: Vec<IdDocument>,
}

/// What is asked for.
enum Wish {
    Rule(PruneRule),
    Delete { session: SessionName, with_pinned: bool },
}

/// Drops old checkpoints, or a whole session.
pub(crate) fn run(arguments: &PruneArguments, context: &mut Context) -> Outcome<Exit> {
    let session = arguments.session.as_deref().map(target::session_name).transpose()?;
    let remembered = context.settings.values.upkeep.rule;
    let (wish, is_own) = wish(arguments, session.as_ref(), remembered);
    let session = session.as_ref();
    let mut agreed = None;
    if arguments.dry_run || (is_own && !arguments.yes) {
        if !arguments.dry_run {
            // A purge that was interrupted comes to its end first: a plan would refuse until then.
            context.run(|store, monitor| store.complete_purge(monitor))?;
        }
        let planned = context.run(|store, monitor| match &wish {
            Wish::Rule(rule) => store.plan_prune(session, *rule, monitor),
            Wish::Delete { session, with_pinned } => {
                store.plan_session_deletion(session, *with_pinned, monitor)
            }
        })?;
        tell(&planned, true, context)?;
        if arguments.dry_run || (planned.pruned.is_empty() && planned.missing.is_empty()) {
            return Ok(Exit::Done);
        }
        if !ask::can_ask(context) {
            context.printer.flush()?;
            let what = match wish {
                Wish::Rule(_) => "pruning by a rule of your own",
                Wish::Delete { .. } => "deleting a session",
            };
            return Err(ask::needs_yes(what));
        }
        let dropped = planned.pruned.len() + planned.missing.len();
        let count = format::counted(dropped as u64, "checkpoint", "checkpoints");
        if !ask::confirm(context, &format!("Drop {count} for good?"))? {
            return Ok(Exit::Refused);
        }
        agreed = Some(planned);
    }
    // What is captured while the question stands was not shown, nor what that makes one too many.
    let outcome = context.run(|store, monitor| match (&wish, &agreed) {
        (Wish::Rule(rule), None) => store.prune(session, *rule, monitor),
        (Wish::Rule(rule), Some(agreed)) => store.prune_planned(session, *rule, agreed, monitor),
        (Wish::Delete { session, with_pinned }, _) => {
            let shown =
                agreed.iter().flat_map(|agreed| agreed.pruned.iter().chain(&agreed.missing));
            let last = shown.map(|id| id.seq).max();
            store.delete_session(session, *with_pinned, last, monitor)
        }
    })?;
    tell(&outcome, false, context)?;
    Ok(Exit::Done)
}

/// What the arguments ask for, and whether it is another rule than the one that is remembered.
fn wish(
    arguments: &PruneArguments,
    session: Option<&SessionName>,
    remembered: PruneRule,
) -> (Wish, bool) {
    if let Some(session) = session.filter(|_| arguments.delete) {
        return (Wish::Delete { session: session.clone(), with_pinned: arguments.pinned }, true);
    }
    let mut rule = remembered;
    rule.keep = arguments.keep.unwrap_or(rule.keep);
    rule.keep_within = arguments.keep_within.unwrap_or(rule.keep_within);
    rule.keep_hourly = arguments.keep_hourly.unwrap_or(rule.keep_hourly);
    rule.keep_daily = arguments.keep_daily.unwrap_or(rule.keep_daily);
    rule.keep_weekly = arguments.keep_weekly.unwrap_or(rule.keep_weekly);
    let is_own = arguments.keep.is_some() || rule != remembered;
    (Wish::Rule(rule), is_own)
}

fn tell(outcome: &PruneOutcome, dry_run: bool, context: &mut Context) -> io::Result<()> {
    if context.is_json() {
        let pruned = outcome.pruned.iter().map(IdDocument::from).collect();
        let missing = outcome.missing.iter().map(IdDocument::from).collect();
        let reasons = outcome.kept_by_reason().into_iter();
        let kept_because = reasons.map(|(reason, count)| (reason.as_str(), count)).collect();
        let kept = outcome.kept.len() as u64;
        let document = PruneDocument { dry_run, pruned, kept, kept_because, missing };
        return context.document(&document);
    }
    if context.is_quiet() && !dry_run {
        return Ok(());
    }
    let kept = format::counted(outcome.kept.len() as u64, "stays", "stay");
    let count = format::counted(outcome.pruned.len() as u64, "checkpoint", "checkpoints");
    let printer = &mut context.printer;
    if !outcome.missing.is_empty() {
        let count = format::counted(outcome.missing.len() as u64, "checkpoint", "checkpoints");
        let verb = if dry_run { "would give up" } else { "gave up" };
        printer.prose(&format!("{verb} {count} without a manifest"))?;
        print_by_session(&outcome.missing, printer)?;
    }
    if outcome.pruned.is_empty() {
        printer.prose(&format!("nothing to prune; {kept}"))?;
        return print_reasons(outcome, printer);
    }
    let verb = if dry_run { "would drop" } else { "dropped" };
    printer.prose(&format!("{verb} {count}; {kept}"))?;
    print_by_session(&outcome.pruned, printer)?;
    print_reasons(outcome, printer)?;
    if !dry_run {
        printer.prose("`turnpoint gc` frees the space of what no other checkpoint needs")?;
    }
    Ok(())
}

/// Why those stay that do, where it is not only the rule.
fn print_reasons(outcome: &PruneOutcome, printer: &mut Printer) -> io::Result<()> {
    let reasons = outcome.kept_by_reason();
    if reasons.keys().all(|reason| *reason == KeepReason::Rule) {
        return Ok(());
    }
    printer.prose("of those that stay")?;
    for (reason, count) in reasons {
        let why = match reason {
            KeepReason::Rule => "by the rule",
            KeepReason::Safety => "saved by a restore: younger than a day, or by the rule",
            KeepReason::Pinned => "pinned",
            KeepReason::Newest => "the newest of a workspace in its session",
            KeepReason::Needed => "needed by a running operation or an interrupted restore",
            KeepReason::Run => "the beginning of a run whose work tree is there",
            KeepReason::Undo => {
                "saved by an undo: it says that a restore which stays was taken back"
            }
            KeepReason::Newer => "made, or one too many only, since this was decided",
            other => other.as_str(),
        };
        printer.item(&format!("{} {why}", format::number(count)))?;
    }
    Ok(())
}

/// One line for each session, with runs of numbers drawn together.
pub(crate) fn print_by_session(ids: &[CheckpointId], printer: &mut Printer) -> io::Result<()> {
    let mut sessions: BTreeMap<&SessionName, Vec<u64>> = BTreeMap::new();
    for id in ids {
        sessions.entry(&id.session).or_default().push(id.seq.get());
    }
    for (session, numbers) in sessions {
        printer.hanging("  ", &format!("{session}: {}", runs(numbers)))?;
    }
    Ok(())
}

/// `0-4, 7`.
pub(crate) fn runs(mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |&(first, last): &(u64, u64)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    runs.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_numbers_are_drawn_together() {
        assert_eq!(runs(vec![7, 0, 1, 2, 9, 10]), "0-2, 7, 9-10");
        assert_eq!(runs(vec![3]), "3");
    }
}
