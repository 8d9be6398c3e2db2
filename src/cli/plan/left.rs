//! What a restore, an undo or a redo left as it was, and how it is had all the same.

use std::io;

use turnpoint::id::CheckpointId;
use turnpoint::plan::Skip;
use turnpoint::{RestoreOptions, RestoreOutcome};

use crate::cli::context::Context;
use crate::cli::format;
use crate::cli::plan::{place, print_skips};
use crate::cli::printer::Kind;

/// How many paths a command names.
const NAMED_MAX: usize = 5;

/// Whether a command names the paths, or leaves that to whoever types it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Paths {
    Named,
    Open,
}

/// What was wanted otherwise, and why it was left.
fn left(outcome: &RestoreOutcome) -> Vec<Skip> {
    let short = outcome.plan.skips.iter().filter(|skip| skip.reason.is_shortfall());
    short.chain(&outcome.left).cloned().collect()
}

/// The command that restores just what was left: a restore of all would take along what came since.
fn restoring(outcome: &RestoreOutcome, context: &Context) -> (String, Paths) {
    let (place, target) = (place(outcome, context), outcome.plan.target.shell_word());
    let left = left(outcome);
    let (words, paths) = if left.len() > NAMED_MAX {
        ("PATH...".to_owned(), Paths::Open)
    } else {
        let typed = |skip: &Skip| context.as_typed_here(&outcome.root, skip.path.as_os());
        (left.iter().map(typed).collect::<Vec<_>>().join(" "), Paths::Named)
    };
    (format!("turnpoint {place}restore {target} {words}"), paths)
}

/// Tells how what an undo or a redo left is had: the next one takes back what came before.
pub(super) fn tell_rest(outcome: &RestoreOutcome, context: &mut Context) {
    let (command, paths) = restoring(outcome, context);
    let what = if paths == Paths::Named { "the rest" } else { "what you name of the rest" };
    let text =
        format!("`{command}` brings back {what}, over what is there now, which is saved first");
    context.printer.style().complain(Kind::Hint, &text);
}

/// Tells how to go on where all that an undo or a redo is about was changed since: nothing is recorded, so the
/// same command again would be about the same. Nothing is told where a restore would leave something too.
pub(super) fn tell_way_past(
    outcome: &RestoreOutcome,
    options: &RestoreOptions,
    context: &mut Context,
) {
    let Some(taken) = outcome.takes_back.as_ref().filter(|_| outcome.is_short()) else { return };
    let mut options = options.clone();
    options.expected_plan = None;
    options.paths = left(outcome).into_iter().map(|skip| skip.path).collect();
    let (root, target) = (&outcome.root, &outcome.plan.target);
    let mut is_whole = |options: &RestoreOptions| {
        context
            .run(|store, monitor| store.plan_restore(root, target, options, monitor))
            .is_ok_and(|planned| !planned.is_short())
    };
    let is_whole_of_these = is_whole(&options);
    options.paths.clear();
    if !is_whole_of_these && !is_whole(&options) {
        return;
    }
    let place = place(outcome, context);
    let (command, paths) = if is_whole_of_these {
        restoring(outcome, context)
    } else {
        (format!("turnpoint {place}restore {}", target.shell_word()), Paths::Named)
    };
    let earlier = taken.earlier.as_ref().map(CheckpointId::shell_word);
    let earlier = earlier.map_or_else(String::new, |earlier| {
        format!(
            ", `turnpoint {place}restore {earlier}` all that was there before the one before it"
        )
    });
    let what = if paths == Paths::Named { "it" } else { "what you name of it" };
    let text = format!(
        "`{command}` brings {what} back all the same{earlier}; what is there now is saved first"
    );
    context.printer.style().complain(Kind::Hint, &text);
}

/// Names what should have been changed and was not.
pub(super) fn warn_of_shortfall(outcome: &RestoreOutcome, context: &mut Context) -> io::Result<()> {
    let left = left(outcome);
    let style = context.printer.style();
    let count = format::counted(left.len() as u64, "path was", "paths were");
    style.complain(
        Kind::Warning,
        &format!("{count} left as before although something else was wanted"),
    );
    print_skips(&left, &mut context.printer)?;
    context.printer.flush()
}
