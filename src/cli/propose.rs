//! `turnpoint plan`: a run whose outcome is a proposal. How a workspace is changed by a plan is in `plan.rs`.

use std::ffi::OsString;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::diff;
use crate::cli::exec::{self, Account, FAILED, Isolated};
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::patch::{self, AfterIs};
use crate::cli::stat;

/// Run a command in a work tree of its own, and show what it would change
///
/// As `turnpoint exec --worktree`, but what the command changed is the answer, on standard output; what the
/// command itself prints goes to standard error. Nothing of it is here until `turnpoint worktree apply`
/// brings it. Exit codes are those of `exec`: the command's own, and 125 also if what it changed cannot be
/// told. If the command fails there is no proposal, and its work tree is removed once all in it is held.
/// The work tree is made from the commit of HEAD: what is not committed here is not in it, unless
/// `--from latest` lays the newest checkpoint over it.
#[derive(Debug, Args)]
#[command(override_usage = "turnpoint plan --worktree [OPTIONS] -- COMMAND [ARGUMENT]...")]
#[command(after_help = "Examples:\n  \
                        turnpoint plan --worktree -- ./agent 'fix the login'\n  \
                        turnpoint plan --worktree --patch -- cargo fix > fix.patch\n  \
                        turnpoint plan --worktree --from fix-login:3 -- make generate")]
pub(crate) struct ProposeArguments {
    /// Run it in a work tree of its own: there is no other way
    #[arg(long)]
    worktree: bool,
    /// Lay this checkpoint over the commit first: what it holds is created or overwritten, and nothing is
    /// deleted
    #[arg(long, value_name = "CHECKPOINT")]
    from: Option<OsString>,
    /// The session to add to [default: one for all such runs of the repository]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// A name for people, for the checkpoint before the command
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Show the changes line by line, in a form that `git apply` takes
    #[arg(long)]
    patch: bool,
    /// Show how many lines of each file changed
    #[arg(long, conflicts_with = "patch")]
    stat: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command, and shows what it changed if it succeeds. What it ended with is what the program ends
/// with.
pub(crate) fn run(arguments: &ProposeArguments, context: &mut Context) -> Outcome<Exit> {
    if !arguments.worktree {
        let message = "a plan is made in a work tree of its own, and --worktree is not there";
        let hint = "add --worktree; `turnpoint exec` runs a command here";
        return Err(Failure::own(Exit::Usage, "usage", message).hint(hint));
    }
    if context.is_json() && (arguments.patch || arguments.stat) {
        let message = "--patch and --stat are no JSON; leave them out, or --json";
        return Err(Failure::own(Exit::Usage, "usage", message));
    }
    Ok(propose(arguments, context).unwrap_or_else(|failure| exec::give_up(failure, context)))
}

fn propose(arguments: &ProposeArguments, context: &mut Context) -> Outcome<Exit> {
    let isolated = Isolated {
        command: &arguments.command,
        session: arguments.session.as_ref(),
        label: arguments.label.as_ref(),
        from: arguments.from.as_ref(),
        is_kept_always: false,
        holds_ignored: false,
        output_is_aside: true,
    };
    let (account, failure) = exec::isolated(&isolated, context)?;
    // Where the work tree is counts, too, where nobody goes on reading the answer.
    let shown = show(&account, arguments, context);
    if !context.is_json() {
        exec::tell(&account, context);
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    shown?;
    let is_told = account.compared.is_some() || account.code != 0;
    Ok(Exit::Command(if is_told { account.code } else { FAILED }))
}

/// Prints the proposal, if there is one.
fn show(account: &Account<'_>, arguments: &ProposeArguments, context: &mut Context) -> Outcome<()> {
    if context.is_json() {
        return Ok(context.document(&exec::document(account))?);
    }
    let Some(found) = account.compared.as_ref().filter(|_| account.code == 0) else {
        return Ok(());
    };
    if arguments.patch {
        patch::print(&found.changes, AfterIs::of(found), context)?;
    } else {
        let counted = if arguments.stat { Some(stat::count(found, context)?.0) } else { None };
        diff::listing(found, counted.as_deref(), &mut context.printer)?;
    }
    Ok(context.printer.flush()?)
}
