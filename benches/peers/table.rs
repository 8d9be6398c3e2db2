//! The results, as tables in Markdown.

use crate::contest::Contestant;
use crate::operation::Operation;
use crate::settings::Settings;

/// Whose ratios count first.
const FIRST_TABLE: &[&str] = &["git", "jj", "walk"];

/// Columns of others in one table.
const WIDTH: usize = 3;

/// A column: a peer that is there, or the name of one that is not.
pub(crate) enum Column<'a> {
    There(&'a Contestant),
    Missing(&'static str),
}

impl Column<'_> {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::There(contestant) => contestant.name(),
            Self::Missing(name) => name,
        }
    }

    fn figures(&self, operation: Operation) -> &[(usize, f64)] {
        match self {
            Self::There(contestant) => {
                contestant.figures.get(&operation).map_or(&[], Vec::as_slice)
            }
            Self::Missing(_) => &[],
        }
    }

    /// The median (or mean), its range, and of how many runs.
    fn cell(&self, operation: Operation) -> String {
        let figures = self.figures(operation);
        let Some(middle) = middle(operation, figures.iter().map(|&(_, figure)| figure)) else {
            let missing = match self {
                Self::There(contestant) => contestant.missing.contains(&operation),
                Self::Missing(_) => true,
            };
            return if missing { "missing" } else { "-" }.to_owned();
        };
        let least = figures.iter().map(|&(_, figure)| figure).fold(f64::INFINITY, f64::min);
        let most = figures.iter().map(|&(_, figure)| figure).fold(f64::NEG_INFINITY, f64::max);
        match figures.len() {
            1 => format!("{middle:.1}, n=1"),
            runs => format!("{middle:.1} ({least:.1} - {most:.1}), n={runs}"),
        }
    }

    /// `ours` divided by this one, both of the rounds that this one took part in. Means are of all
    /// rounds: a step in the first one would stand for all that few took part in.
    fn ratio(&self, ours: &Column<'_>, operation: Operation) -> String {
        let figures = self.figures(operation);
        let takes_part =
            |round: usize| operation.is_mean() || figures.iter().any(|&(other, _)| other == round);
        let same_rounds = ours.figures(operation).iter().filter(|&&(round, _)| takes_part(round));
        let ours = middle(operation, same_rounds.map(|&(_, figure)| figure));
        let theirs = middle(operation, figures.iter().map(|&(_, figure)| figure));
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if theirs > 0.0 => format!("{:.2}", ours / theirs),
            _ => "-".to_owned(),
        }
    }
}

pub(crate) fn print(columns: &[Column<'_>], settings: &Settings) {
    let ours = columns.iter().find(|column| column.name() == "turnpoint");
    let (first, others): (Vec<_>, Vec<_>) = columns
        .iter()
        .filter(|column| column.name() != "turnpoint")
        .partition(|column| FIRST_TABLE.contains(&column.name()));
    let mut tables: Vec<Vec<&Column<'_>>> = first.chunks(WIDTH).map(<[_]>::to_vec).collect();
    tables.extend(others.chunks(WIDTH).map(<[_]>::to_vec));
    if tables.is_empty() {
        tables.push(Vec::new());
    }
    for table in tables {
        print_table(ours, &table, settings);
    }
    println!(
        "\nMedian (least - most), n = counted runs. `of X` is turnpoint's median divided by X's, of\n\
         the rounds that X took part in. `missing`: this version, or this machine, does not have\n\
         it; `-`: there is no such thing. The slow list what they have. restic, rustic, rsync and cp\n\
         hold ignored files too. Stores are counted in whole blocks. Growth that gc leaves is\n\
         what a store with turns has more than one with the first capture alone, both collected, by\n\
         the captures that it keeps: git and git-tuned keep all, since they are a chain. Peak memory\n\
         is that of the largest process, by GNU time. Written is the kernel's account of bytes\n\
         handed to the file system, all processes of a capture together."
    );
}

fn print_table(ours: Option<&Column<'_>>, others: &[&Column<'_>], settings: &Settings) {
    let mut rows = vec![vec![String::new()]];
    rows[0].extend(ours.map(|ours| ours.name().to_owned()));
    for column in others {
        rows[0].push(column.name().to_owned());
        rows[0].extend(ours.map(|_| format!("of {}", column.name())));
    }
    for &operation in &settings.operations {
        let mut row = vec![operation.title(settings.edits)];
        row.extend(ours.map(|ours| ours.cell(operation)));
        for column in others {
            row.push(column.cell(operation));
            row.extend(ours.map(|ours| column.ratio(ours, operation)));
        }
        rows.push(row);
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3))
        .collect();
    println!();
    for (number, row) in rows.iter().enumerate() {
        for (cell, &width) in row.iter().zip(&widths) {
            print!("| {cell:<width$} ");
        }
        println!("|");
        if number == 0 {
            for width in &widths {
                print!("| {:-<width$} ", "");
            }
            println!("|");
        }
    }
}

fn middle(operation: Operation, figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.collect();
    if operation.is_mean() {
        let count = u32::try_from(sorted.len()).ok().filter(|&count| count > 0)?;
        return Some(sorted.iter().sum::<f64>() / f64::from(count));
    }
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        length if length % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}
