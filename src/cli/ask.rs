//! Asking a person before something is changed.

use std::io::{self, BufRead, IsTerminal};

use turnpoint::Error;

use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::printer::Kind;

/// Whether somebody is there to be asked: both ends are a terminal, and the answer was not asked for
/// as a document.
pub(crate) fn can_ask(context: &Context) -> bool {
    !context.printer.style().json && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks for a yes. Nothing else, not even an empty line or the end of the input, counts as one.
///
/// No lock is held while the answer is waited for.
pub(crate) fn confirm(context: &mut Context, question: &str) -> Outcome<bool> {
    let mut answer = String::new();
    let Context { printer, interrupt, .. } = context;
    let read = interrupt.ending_at_once(|| {
        printer.question(&format!("{question} [y/N]"))?;
        io::stdin().lock().read_line(&mut answer)
    });
    let read = read.ok_or(Error::Cancelled)?;
    let is_yes = read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if !is_yes {
        context.printer.style().complain(Kind::Note, "nothing was changed");
    }
    Ok(is_yes)
}

/// The refusal where nobody can be asked. `what` continues `nothing was changed: `.
pub(crate) fn needs_yes(what: &str) -> Failure {
    let message =
        format!("nothing was changed: {what} needs a yes, and there is no terminal to ask on");
    Failure::own(Exit::Refused, "confirmation-needed", message).hint("add --yes to do it")
}
