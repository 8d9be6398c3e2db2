//! `turnpoint revert`.

use crate::cli::arguments::RevertArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::plan::{self, Asked, Verb};
use crate::cli::{restore, target};

/// Takes back what a checkpoint changed.
pub(crate) fn run(arguments: &RevertArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let change = &arguments.change;
    let spec = target::parse_alone(&arguments.words, change.session.as_deref(), arguments.time.at)?;
    let checkpoint = context.resolve(&spec)?;
    let options = restore::options(change, Vec::new(), context);
    let asked = Asked::of(&arguments.plan, change);
    plan::perform(&Verb::Revert(checkpoint), &root, options, asked, context)
}
