//! `turnpoint stats`.

use std::io;

use serde::Serialize;
use turnpoint::{Account, Accounts, Error, Store};

use crate::cli::arguments::StatsArguments;
use crate::cli::context::Context;
use crate::cli::exit::Exit;
use crate::cli::failure::Outcome;
use crate::cli::format;
use crate::cli::printer::Kind;
use crate::cli::table::{Align, Table};
use crate::cli::target;

#[derive(Serialize)]
struct StatsDocument {
    sessions: Vec<AccountDocument>,
    all: Option<AccountDocument>,
    unneeded_blobs: u64,
    unneeded_bytes: u64,
    waiting_blobs: u64,
    disk: DiskDocument,
}

#[derive(Serialize)]
struct AccountDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    checkpoints: u64,
    logical_bytes: u64,
    stored_bytes: u64,
    unique_bytes: u64,
    shared_bytes: u64,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit is part of the name")]
struct DiskDocument {
    content_bytes: u64,
    manifests_bytes: u64,
    index_bytes: u64,
    workspaces_bytes: u64,
    other_bytes: u64,
    total_bytes: u64,
}

impl From<&Account> for AccountDocument {
    fn from(account: &Account) -> Self {
        Self {
            session: account.session.as_ref().map(ToString::to_string),
            checkpoints: account.checkpoints,
            logical_bytes: account.logical_bytes,
            stored_bytes: account.stored_bytes,
            unique_bytes: account.unique_bytes,
            shared_bytes: account.shared_bytes,
        }
    }
}

/// Shows what holds the space.
pub(crate) fn run(arguments: &StatsArguments, context: &mut Context) -> Outcome<Exit> {
    let mut accounts = context.run(Store::accounts)?;
    if let Some(asked) = &arguments.session {
        let asked = target::session_name(asked)?;
        let is_asked = |account: &Account| {
            account.session.as_ref().is_none_or(|session| session.folded() == asked.folded())
        };
        accounts.accounts.retain(is_asked);
        if accounts.accounts.iter().all(|account| account.session.is_none()) {
            let session = asked.to_string();
            return Err(Error::SessionNotFound { session, nearest: Vec::new() }.into());
        }
    }
    if context.is_json() {
        context.document(&document(&accounts))?;
    } else {
        print(&accounts, context)?;
    }
    Ok(Exit::Done)
}

fn document(accounts: &Accounts) -> StatsDocument {
    let (sessions, all): (Vec<&Account>, Vec<&Account>) =
        accounts.accounts.iter().partition(|account| account.session.is_some());
    let disk = accounts.disk;
    StatsDocument {
        sessions: sessions.into_iter().map(AccountDocument::from).collect(),
        all: all.first().map(|all| AccountDocument::from(*all)),
        unneeded_blobs: accounts.unneeded_blobs,
        unneeded_bytes: accounts.unneeded_bytes,
        waiting_blobs: accounts.waiting_blobs,
        disk: DiskDocument {
            content_bytes: disk.content_bytes,
            manifests_bytes: disk.manifests_bytes,
            index_bytes: disk.index_bytes,
            workspaces_bytes: disk.workspaces_bytes,
            other_bytes: disk.other_bytes,
            total_bytes: disk.total_bytes(),
        },
    }
}

fn print(accounts: &Accounts, context: &mut Context) -> io::Result<()> {
    let printer = &mut context.printer;
    if accounts.accounts.is_empty() {
        printer.style().complain(Kind::Note, "there is no checkpoint yet");
        printer.style().complain(Kind::Hint, "`turnpoint capture` makes the first");
        return Ok(());
    }
    let mut table = Table::new([
        ("CHECKPOINTS", Align::Right),
        ("COPIES", Align::Right),
        ("STORED", Align::Right),
        ("OWN", Align::Right),
        ("SESSION", Align::Left),
    ]);
    for account in &accounts.accounts {
        table.row(vec![
            format::number(account.checkpoints),
            format::size(account.logical_bytes),
            format::size(account.stored_bytes),
            format::size(account.unique_bytes),
            account.session.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string),
        ]);
    }
    table.print(printer)?;
    printer.gap()?;
    if let Some(all) = accounts.accounts.iter().find(|account| account.session.is_none()) {
        printer.prose(&ratio(all))?;
    }
    let disk = accounts.disk;
    printer.prose(&format!(
        "{} on the disk: {} content, {} index, {} manifests, {} of workspaces, {} other (what gc gives up on \
         a full disk, locks, log, quarantine)",
        format::size(disk.total_bytes()),
        format::size(disk.content_bytes),
        format::size(disk.index_bytes),
        format::size(disk.manifests_bytes),
        format::size(disk.workspaces_bytes),
        format::size(disk.other_bytes),
    ))?;
    let unneeded = format::size(accounts.unneeded_bytes);
    if accounts.unneeded_blobs > 0 {
        let blobs = format::counted(accounts.unneeded_blobs, "blob", "blobs");
        printer.prose(&format!("`turnpoint gc` would free {unneeded} now, in {blobs}"))?;
    } else {
        printer.prose("`turnpoint gc` would free nothing now")?;
    }
    Ok(())
}

/// How much less is stored than as many copies would take.
#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn ratio(all: &Account) -> String {
    let copies = format::size(all.logical_bytes);
    if all.stored_bytes == 0 || all.logical_bytes <= all.stored_bytes {
        return format!("copies would take {copies}");
    }
    let times = all.logical_bytes as f64 / all.stored_bytes as f64;
    format!("copies would take {copies}, {times:.1} times what is stored")
}
