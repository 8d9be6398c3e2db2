//! `turnpoint redo`.

use crate::cli::arguments::RedoArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::plan::{self, Asked, Verb};
use crate::cli::restore;

/// Takes back the newest undo.
pub(crate) fn run(arguments: &RedoArguments, context: &mut Context) -> Outcome<Exit> {
    let root = context.root()?;
    let options = restore::options(&arguments.change, Vec::new(), context);
    let asked = Asked::of(&arguments.plan, &arguments.change);
    plan::perform(&Verb::Redo, &root, options, asked, context)
}
