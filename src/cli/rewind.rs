//! `turnpoint rewind`.

use crate::cli::arguments::RewindArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::plan::{self, Asked, Verb};
use crate::cli::{restore, target};

/// Restores the start of a turn.
pub(crate) fn run(arguments: &RewindArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let change = &arguments.change;
    let session = match &change.session {
        Some(session) => Some(target::session_name(session)?),
        None => context.default_session()?,
    };
    let turn = arguments.turns;
    let checkpoint = context
        .run(|store, monitor| store.start_of_turn(session.as_ref(), turn, &root, monitor))?;
    let options = restore::options(change, Vec::new(), context);
    let asked = Asked::of(&arguments.plan, &arguments.change);
    plan::perform(&Verb::Rewind(checkpoint, turn), &root, options, asked, context)
}
