//! `turnpoint rewind`.

use std::num::NonZeroU32;

use crate::cli::arguments::RewindArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::plan::{self, Asked, Verb};
use crate::cli::printer::Kind;
use crate::cli::{ask, pick, restore, target};

/// Restores the start of a turn.
pub(crate) fn run(arguments: &RewindArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let change = &arguments.change;
    let named = change.session.as_deref().map(target::session_name).transpose()?;
    let session = match &named {
        Some(session) => Some(session.clone()),
        None => context.default_session()?,
    };
    // Who has said yes beforehand is asked nothing.
    let is_asked = arguments.turns.is_none() && !change.yes && ask::can_ask(context);
    let (checkpoint, turn, named) = if is_asked {
        let Some((start, turn)) = pick::turn(&root, session.as_ref(), context)? else {
            context.printer.style().complain(Kind::Note, "nothing was changed");
            return Ok(Exit::Refused);
        };
        let picked = start.session.clone();
        (start, turn, Some(picked))
    } else {
        let turn = arguments.turns.unwrap_or(NonZeroU32::MIN);
        let start = context
            .run(|store, monitor| store.start_of_turn(session.as_ref(), turn, &root, monitor))?;
        if session.is_none() {
            context.tell_of_other_sessions(&start.session, &root);
        }
        (start, turn, named)
    };
    let options = restore::options(change, Vec::new(), context);
    let asked = Asked::of(&arguments.plan, &arguments.change);
    plan::perform(&Verb::Rewind(checkpoint, turn, named), &root, options, asked, context)
}
