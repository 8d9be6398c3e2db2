//! `turnpoint revert`.

use crate::cli::arguments::RevertArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::plan::{self, Asked, Verb};
use crate::cli::restore;
use crate::cli::target::{self, Target};

/// Takes back what a checkpoint changed, everywhere or at the given paths.
pub(crate) fn run(arguments: &RevertArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let change = &arguments.change;
    let words = &arguments.target;
    let Target { spec, rest } =
        target::parse_at(&words.words, change.session.as_deref(), words.time.at, Some(context))?;
    let paths = target::paths(context, &root, rest.iter().chain(&words.paths))?;
    let checkpoint = context.resolve(&spec)?;
    let options = restore::options(change, paths, context);
    let asked = Asked::of(&arguments.plan, change);
    plan::perform(&Verb::Revert(checkpoint), &root, options, asked, context)
}
