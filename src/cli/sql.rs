//! `turnpoint sql`.

mod answer;
mod grid;
mod prompt;
mod schema;
mod statement;

use std::io::{self, IsTerminal, Read};
use std::time::Duration;

use turnpoint::{QueryOptions, limits};

use crate::cli::arguments::{AnswerFormat, SqlArguments};
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::printer::Kind;

/// Answers a question in SQL, or several at a prompt.
pub(crate) fn run(arguments: &SqlArguments, context: &mut Context) -> Outcome<Exit> {
    let format = format(arguments, context)?;
    if arguments.schema {
        schema::print(format, context)?;
        return Ok(Exit::Done);
    }
    let mut options = QueryOptions::default();
    options.row_limit = arguments.limit;
    if let Some(limit) = arguments.timeout {
        options.time_limit = Some(limit).filter(|limit| *limit != Duration::ZERO);
    }
    let sql = match arguments.query.as_deref() {
        Some("-") => from_input(context)?,
        Some(text) => text.to_owned(),
        None if !io::stdin().is_terminal() => from_input(context)?,
        None if io::stdout().is_terminal() && !context.is_json() => {
            return prompt::run(format, &options, context);
        }
        None => {
            return Err(Failure::own(Exit::Usage, "no-query", "there is no query").hint(
                "write it after `turnpoint sql`, or into standard input; `turnpoint sql --schema` shows \
                 what can be asked",
            ));
        }
    };
    let outcome = answer::print(&sql, &options, format, context)?;
    if outcome.has_more && !context.is_json() && !context.is_quiet() {
        context.printer.style().complain(Kind::Note, &answer::told_of_more(&outcome));
    }
    Ok(Exit::Done)
}

fn format(arguments: &SqlArguments, context: &Context) -> Outcome<AnswerFormat> {
    match (arguments.format, context.is_json()) {
        (Some(AnswerFormat::Json) | None, true) => Ok(AnswerFormat::Json),
        (Some(_), true) => {
            let message = "--json and another --format exclude each other";
            Err(Failure::own(Exit::Usage, "usage", message))
        }
        (Some(format), false) => Ok(format),
        (None, false) => Ok(AnswerFormat::Table),
    }
}

/// What standard input says, to its end.
fn from_input(context: &Context) -> Outcome<String> {
    let unreadable = |message: String| Failure::own(Exit::Usage, "query-unreadable", message);
    // One byte more than is allowed, so that what is too long is not cut in silence.
    let most = limits::QUERY_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let read = context
        .interrupt
        .ending_at_once(|| io::stdin().lock().take(most).read_to_end(&mut bytes))
        .ok_or(turnpoint::Error::Cancelled)?;
    read.map_err(|error| unreadable(format!("standard input cannot be read: {error}")))?;
    if bytes.len() > limits::QUERY_BYTES_MAX {
        let most = limits::QUERY_BYTES_MAX >> 20;
        return Err(unreadable(format!("the query is longer than {most} MiB")));
    }
    String::from_utf8(bytes).map_err(|_| unreadable("the query is not UTF-8".to_owned()))
}
