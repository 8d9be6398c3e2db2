//! What can be asked.

use std::io;

use serde::Serialize;
use turnpoint::{VIEWS, View};

use crate::cli::arguments::AnswerFormat;
use crate::cli::context::Context;
use crate::cli::printer::Printer;
use crate::cli::table::{Align, Table};

#[derive(Serialize)]
struct SchemaDocument {
    views: Vec<ViewDocument>,
}

#[derive(Serialize)]
struct ViewDocument {
    name: &'static str,
    about: &'static str,
    columns: Vec<ColumnDocument>,
}

#[derive(Serialize)]
struct ColumnDocument {
    name: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    about: &'static str,
}

/// Prints the views: names in short, with `--verbose` what each column means.
pub(super) fn print(format: AnswerFormat, context: &mut Context) -> io::Result<()> {
    if format == AnswerFormat::Json {
        return context.document(&document());
    }
    for (at, view) in VIEWS.iter().enumerate() {
        if at > 0 {
            context.printer.gap()?;
        }
        if context.printer.style().verbose {
            in_full(view, &mut context.printer)?;
        } else {
            in_short(view, &mut context.printer)?;
        }
    }
    Ok(())
}

/// A view, its columns by name.
fn in_short(view: &View, printer: &mut Printer) -> io::Result<()> {
    printer.heading(view.name)?;
    printer.hanging("  ", view.about)?;
    let names: Vec<&str> = view.columns.iter().map(|column| column.name).collect();
    printer.hanging("  ", &names.join(", "))
}

/// A view with what its columns mean.
pub(super) fn in_full(view: &View, printer: &mut Printer) -> io::Result<()> {
    printer.heading(view.name)?;
    printer.hanging("  ", view.about)?;
    let mut table = Table::new([("", Align::Left), ("", Align::Left), ("", Align::Left)]);
    for column in view.columns {
        table.row(vec![
            format!("  {}", column.name),
            column.kind.to_owned(),
            column.about.replace('`', ""),
        ]);
    }
    table.print(printer)
}

fn document() -> SchemaDocument {
    let column = |column: &turnpoint::ViewColumn| ColumnDocument {
        name: column.name,
        kind: column.kind,
        about: column.about,
    };
    let view = |view: &View| ViewDocument {
        name: view.name,
        about: view.about,
        columns: view.columns.iter().map(column).collect(),
    };
    SchemaDocument { views: VIEWS.iter().map(view).collect() }
}
