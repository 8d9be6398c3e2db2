//! `turnpoint operations`.

use std::io;

use serde::Serialize;
use serde_json::{Map, Value};
use turnpoint::path::printable;
use turnpoint::{Logged, OperationLog};

use crate::cli::arguments::OperationsArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::printer::Kind;
use crate::cli::prune::runs;
use crate::cli::table::{Align, Table};

use std::collections::BTreeMap;

#[derive(Serialize)]
struct OperationsDocument<'a> {
    operations: Vec<LoggedDocument<'a>>,
    skipped: u64,
}

#[derive(Serialize)]
struct LoggedDocument<'a> {
    at: String,
    verb: &'a str,
    #[serde(flatten)]
    details: &'a Map<String, Value>,
}

/// Shows what was done to the store and to workspaces.
pub(crate) fn run(arguments: &OperationsArguments, context: &mut Context) -> Outcome<Exit> {
    let log = context.run(|store, _| store.operations(arguments.limit))?;
    if context.is_json() {
        context.document(&document(&log))?;
    } else {
        print(&log, context)?;
    }
    Ok(Exit::Done)
}

fn document(log: &OperationLog) -> OperationsDocument<'_> {
    OperationsDocument {
        operations: log.entries.iter().map(LoggedDocument::from).collect(),
        skipped: log.skipped,
    }
}

impl<'a> From<&'a Logged> for LoggedDocument<'a> {
    fn from(logged: &'a Logged) -> Self {
        let at = logged.at.to_string();
        Self { at, verb: &logged.verb, details: &logged.details }
    }
}

fn print(log: &OperationLog, context: &mut Context) -> io::Result<()> {
    let printer = &mut context.printer;
    if log.entries.is_empty() && log.skipped == 0 {
        printer.style().complain(Kind::Note, "nothing was restored, dropped or repaired yet");
        return Ok(());
    }
    let mut table = Table::new([("TIME", Align::Left), ("WHAT", Align::Left), ("", Align::Left)]);
    for logged in &log.entries {
        let verb = printable(logged.verb.as_bytes());
        table.row(vec![format::minute(logged.at), verb, printable(told(logged).as_bytes())]);
    }
    table.print(printer)?;
    printer.flush()?;
    if log.skipped > 0 {
        let lines = format::counted(log.skipped, "line", "lines");
        printer.style().complain(Kind::Note, &format!("{lines} of the log cannot be understood"));
    }
    Ok(())
}

/// What a line says, for people. What is not known here is shown as it is.
fn told(logged: &Logged) -> String {
    let details = &logged.details;
    let text = |name: &str| details.get(name).and_then(Value::as_str).unwrap_or_default();
    let number = |name: &str| details.get(name).and_then(Value::as_u64).unwrap_or_default();
    let id = |name: &str| details.get(name).and_then(id_of);
    match logged.verb.as_str() {
        "restore" | "undo" | "redo" | "revert" | "apply" => {
            let target = id("target").map(|id| format!("{id} ")).unwrap_or_default();
            let safety = id("safety").map(|id| format!("; before it was {id}")).unwrap_or_default();
            format!("{target}in {}{safety}", text("root"))
        }
        "restore-abort" => format!("in {}", text("root")),
        "prune" => format!("{} ({})", ids(details.get("checkpoints")), text("why")),
        "evict" => {
            let released = format::size(number("bytes"));
            format!("{} ({}, {released})", ids(details.get("checkpoints")), text("why"))
        }
        "sweep" => {
            let blobs = format::counted(number("blobs"), "blob", "blobs");
            format!("{blobs}, {}", format::size(number("bytes")))
        }
        "purge" => {
            let paths = details.get("paths").and_then(Value::as_array).into_iter().flatten();
            let paths: Vec<&str> = paths.filter_map(Value::as_str).collect();
            format!("{} from {}", paths.join(", "), ids(details.get("checkpoints")))
        }
        "worktree-remove" => {
            let gone =
                details.get("left_out").and_then(|it| it.get("files")).and_then(Value::as_u64);
            let but = match gone.unwrap_or(0) {
                0 => String::new(),
                gone => format!(" but for {}", format::counted(gone, "file", "files")),
            };
            let kept = id("kept").map(|id| format!("; {id} holds its files{but}"));
            let kept = kept.unwrap_or_default();
            format!("{} in {}{kept}", text("run"), text("path"))
        }
        "quarantine" => format!("{}: {}", text("file"), text("why")),
        "doctor-rebuild" => {
            format!(
                "index of {}",
                format::counted(number("checkpoints"), "checkpoint", "checkpoints")
            )
        }
        "doctor-fix" => mended(details.get("mended")),
        "forget-operation" => format!("{}, a {}", text("operation"), text("kind")),
        _ => Value::Object(details.clone()).to_string(),
    }
}

fn id_of(value: &Value) -> Option<String> {
    Some(format!("{}:{}", value.get("session")?.as_str()?, value.get("seq")?.as_u64()?))
}

/// `s: 0-4, t: 7`.
fn ids(value: Option<&Value>) -> String {
    let mut sessions: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for id in value.and_then(Value::as_array).into_iter().flatten() {
        let (Some(session), Some(seq)) =
            (id.get("session").and_then(Value::as_str), id.get("seq").and_then(Value::as_u64))
        else {
            continue;
        };
        sessions.entry(session).or_default().push(seq);
    }
    let of_session = |(session, numbers)| format!("{session}: {}", runs(numbers));
    sessions.into_iter().map(of_session).collect::<Vec<_>>().join("; ")
}

fn mended(value: Option<&Value>) -> String {
    let all = value.and_then(Value::as_array).into_iter().flatten();
    let what = all.filter_map(|it| it.get("what").and_then(Value::as_str));
    what.collect::<Vec<_>>().join(", ")
}
