//! What can be typed to ask a question in SQL.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::number;

/// Ask a question in SQL about the history
///
/// One SELECT, given as QUERY or in standard input; on a terminal without QUERY a prompt. It only reads,
/// whatever the text says. --schema shows the views that can be asked; docs/sql.md has ready-made
/// questions.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint sql --schema\n  \
                        turnpoint sql 'SELECT seq, path, change FROM changes'\n  \
                        turnpoint sql --format csv 'SELECT * FROM session_summary' > sessions.csv\n  \
                        turnpoint sql --json --limit 10 < query.sql")]
pub(crate) struct SqlArguments {
    /// The query; `-`: what standard input says
    #[arg(value_name = "QUERY", conflicts_with = "schema")]
    pub(crate) query: Option<String>,
    /// How to print the answer [default: table]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<AnswerFormat>,
    /// Show the views and their columns instead; with --verbose, what each column means
    #[arg(long)]
    pub(crate) schema: bool,
    /// Stop a query after so many seconds; 0: never [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// Only the first rows of the answer
    #[arg(long, value_name = "ROWS", value_parser = number::<u64>)]
    pub(crate) limit: Option<u64>,
}

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnswerFormat {
    /// Columns, for people
    Table,
    /// Comma-separated values, as RFC 4180 has them
    Csv,
    /// One JSON document
    Json,
    /// One JSON object a line for each row
    Ndjson,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds is expected".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "a number of seconds is expected".to_owned())
}
