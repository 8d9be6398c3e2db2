//! The command line: arguments in, text or JSON out.
//!
//! What was typed ([`arguments`]) becomes a few settings ([`settings`]); one function for each
//! command, in a file of its own, calls the public interface of the library and prints the answer.
//! Data goes to standard output, everything else to standard error. Exit codes are in [`exit`].

mod arguments;
mod ask;
mod bisect;
mod capture;
mod cat;
mod complete;
mod completions;
mod config;
mod context;
mod diff;
mod doctor;
mod exec;
mod exit;
mod export;
mod failure;
mod find;
mod format;
mod gc;
mod interrupt;
mod json;
mod label;
mod list;
mod log;
mod ls;
mod man;
mod moment;
mod operations;
mod orphans;
mod pager;
mod patch;
mod pick;
mod pin;
mod plan;
mod printer;
mod propose;
mod prune;
mod purge;
mod quarantine;
mod redo;
mod restore;
mod revert;
mod rewind;
mod scratch;
mod settings;
mod show;
mod sql;
mod stat;
mod stats;
mod table;
mod target;
mod trace;
mod undo;
mod verify;
mod watch;
mod worktree;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, CheckpointsCommand, Command};
use context::Context;
use exit::Exit;
use failure::Outcome;
use settings::{Settings, UserFile};

/// Runs the program to its end.
pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return failure::usage(error).into(),
    };
    if let Command::Complete(words) = &arguments.command {
        return complete::run(words, arguments.global.directory).into();
    }
    let style = printer::Style::of(&arguments.global);
    let user = match &arguments.command {
        Command::Config(arguments) => arguments.user_file(),
        _ => UserFile::Obeyed,
    };
    let mut context = match Settings::resolve(&arguments.global, user)
        .and_then(|settings| Context::new(settings, style))
    {
        Ok(context) => context,
        Err(failure) => return failure::report(&failure, style, &[], Exit::Damaged).into(),
    };
    let style = context.printer.style();
    let log_file = arguments.global.log_file.as_deref().map(|file| context.place_of(file));
    let log_file = log_file.as_deref();
    let is_capture =
        matches!(arguments.command, Command::Capture(_) | Command::Exec(_) | Command::Plan(_));
    let opened = log_file.map_or(Ok(()), |file| context.refuse_log(file, is_capture));
    context.trace = match opened.and_then(|()| trace::Trace::open(log_file)) {
        Ok(trace) => trace,
        Err(failure) => return failure::report(&failure, style, &[], Exit::Failed).into(),
    };
    context.trace.iter().for_each(trace::Trace::begin);
    let on_damage = exit_on_damage(&arguments.command);
    if is_of_workspace(&arguments.command) {
        context.tell_of_workspace_above();
    }
    let outcome = run(arguments.command, &mut context).and_then(|exit| {
        context.printer.close()?;
        Ok(exit)
    });
    let exit = match outcome {
        Ok(Exit::Done) => Exit::damaged_if(context.found_damage || context.is_disobedient),
        Ok(exit) => exit,
        Err(failure) => {
            // What was printed before the failure belongs before it. If it cannot be written, the
            // failure is still the thing to tell.
            context.printer.close().ok();
            let failure = failure.seen_from(&context.place());
            failure::report(&failure, style, &context.notices, on_damage)
        }
    };
    context.trace.iter().for_each(|trace| trace.end(exit));
    exit.into()
}

/// How a command ends that failed because something is damaged. Only what reads may say with it that
/// the answer is damaged: of what was to be done nothing was done.
const fn exit_on_damage(command: &Command) -> Exit {
    match command {
        Command::List(_)
        | Command::Show(_)
        | Command::Ls(_)
        | Command::Cat(_)
        | Command::Stats(_)
        | Command::Operations(_)
        | Command::Diff(_)
        | Command::Log(_)
        | Command::Find(_)
        | Command::Bisect(_)
        | Command::Verify(_)
        | Command::Sql(_)
        | Command::Config(_)
        | Command::Checkpoints { command: CheckpointsCommand::List(_) } => Exit::Damaged,
        Command::Restore(_)
        | Command::Export(_)
        | Command::Rewind(_)
        | Command::Undo(_)
        | Command::Redo(_)
        | Command::Revert(_)
        | Command::Checkpoints { command: CheckpointsCommand::Restore(_) } => Exit::Refused,
        Command::Worktree(arguments) if arguments.applies() => Exit::Refused,
        Command::Capture(_)
        | Command::Pin(_)
        | Command::Unpin(_)
        | Command::Label(_)
        | Command::Prune(_)
        | Command::Purge(_)
        | Command::Gc(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Complete(_)
        | Command::Doctor(_)
        | Command::Exec(_)
        | Command::Plan(_)
        | Command::Worktree(_)
        | Command::Quarantine(_) => Exit::Failed,
    }
}

/// Whether a command is about one workspace, and not about the store or a repository.
const fn is_of_workspace(command: &Command) -> bool {
    if let Command::Exec(arguments) = command {
        return !arguments.is_isolated();
    }
    !matches!(
        command,
        Command::Plan(_)
            | Command::Worktree(_)
            | Command::Prune(_)
            | Command::Gc(_)
            | Command::Stats(_)
            | Command::Operations(_)
            | Command::Verify(_)
            | Command::Doctor(_)
            | Command::Quarantine(_)
            | Command::Sql(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Complete(_)
    )
}

fn run(command: Command, context: &mut Context) -> Outcome<Exit> {
    match command {
        Command::Capture(arguments) => capture::run(&arguments, context),
        Command::List(arguments)
        | Command::Checkpoints { command: CheckpointsCommand::List(arguments) } => {
            list::run(&arguments, context)
        }
        Command::Show(arguments) => show::run(&arguments, context),
        Command::Ls(arguments) => ls::run(&arguments, context),
        Command::Cat(arguments) => cat::run(&arguments, context),
        Command::Diff(arguments) => diff::run(&arguments, context),
        Command::Log(arguments) => log::run(&arguments, context),
        Command::Find(arguments) => find::run(&arguments, context),
        Command::Bisect(arguments) => bisect::run(&arguments, context),
        Command::Export(arguments) => export::run(&arguments, context),
        Command::Restore(arguments)
        | Command::Checkpoints { command: CheckpointsCommand::Restore(arguments) } => {
            restore::run(&arguments, context)
        }
        Command::Rewind(arguments) => rewind::run(&arguments, context),
        Command::Undo(arguments) => undo::run(&arguments, context),
        Command::Redo(arguments) => redo::run(&arguments, context),
        Command::Exec(arguments) => exec::run(&arguments, context),
        Command::Plan(arguments) => propose::run(&arguments, context),
        Command::Revert(arguments) => revert::run(&arguments, context),
        Command::Worktree(arguments) => worktree::run(&arguments, context),
        Command::Pin(arguments) => pin::pin(&arguments, context),
        Command::Unpin(arguments) => pin::unpin(&arguments, context),
        Command::Label(arguments) => label::run(&arguments, context),
        Command::Prune(arguments) => prune::run(&arguments, context),
        Command::Purge(arguments) => purge::run(&arguments, context),
        Command::Gc(arguments) => gc::run(&arguments, context),
        Command::Stats(arguments) => stats::run(&arguments, context),
        Command::Operations(arguments) => operations::run(&arguments, context),
        Command::Verify(arguments) => verify::run(&arguments, context),
        Command::Doctor(arguments) => doctor::run(&arguments, context),
        Command::Quarantine(arguments) => quarantine::run(&arguments, context),
        Command::Sql(arguments) => sql::run(&arguments, context),
        Command::Completions(arguments) => completions::run(&arguments, context),
        Command::Man(arguments) => man::run(&arguments, context),
        Command::Complete(arguments) => Ok(complete::run(&arguments, None)),
        Command::Config(arguments) => config::run(&arguments, context),
    }
}
