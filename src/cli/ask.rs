//! Asking a person before something is changed.

use std::io::{self, BufRead, IsTerminal};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::interrupt::Interrupt;
use crate::cli::printer::Kind;

/// How often it is looked whether a signal came.
const LOOKED_EVERY: Duration = Duration::from_millis(20);

/// Whether somebody is there to be asked: both ends are a terminal, and the answer was not asked for
/// as a document.
pub(crate) fn can_ask(context: &Context) -> bool {
    !context.printer.style().json && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Asks for a yes. Nothing else, not even an empty line or the end of the input, counts as one; a signal
/// ends the command.
///
/// No lock is held while the answer is waited for.
pub(crate) fn confirm(context: &mut Context, question: &str) -> Outcome<bool> {
    context.printer.question(&format!("{question} [y/N]"))?;
    let Some(answer) = line(&context.interrupt) else {
        // What is told next begins a line of its own, if the terminal is still there.
        context.printer.gap().and_then(|()| context.printer.flush()).ok();
        let message = "stopped; nothing was changed";
        return Err(Failure::own(Exit::Interrupted, "cancelled", message));
    };
    let is_yes = matches!(answer.trim().to_lowercase().as_str(), "y" | "yes");
    if !is_yes {
        context.printer.style().complain(Kind::Note, "nothing was changed");
    }
    Ok(is_yes)
}

/// What is typed, empty where nothing can be read; none where a signal came first.
fn line(interrupt: &Interrupt) -> Option<String> {
    let (answer, answered) = mpsc::channel();
    // A signal does not end the reading of a line. Where it comes the thread is left behind: the process ends.
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        answer.send(read.map_or_else(|_| String::new(), |_| line)).ok();
    });
    loop {
        match answered.recv_timeout(LOOKED_EVERY) {
            Ok(line) => return Some(line),
            Err(RecvTimeoutError::Timeout) if !interrupt.came() => {}
            Err(_) => return None,
        }
    }
}

/// The refusal where nobody can be asked. `what` continues `nothing was changed: `.
pub(crate) fn needs_yes(what: &str) -> Failure {
    let message =
        format!("nothing was changed: {what} needs a yes, and there is no terminal to ask on");
    Failure::own(Exit::Refused, "confirmation-needed", message).hint("add --yes to do it")
}
