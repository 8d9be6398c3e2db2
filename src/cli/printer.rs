//! Standard output and standard error.
//!
//! The one place that knows about colors, the terminal's width, and JSON documents.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use anstream::AutoStream;
use anstyle::{AnsiColor, Style as AnsiStyle};
use serde::Serialize;
use turnpoint::settings::{ColorChoice, Settings};

use crate::cli::arguments::{ColorWhen, GlobalArguments};
use crate::cli::format;
use crate::cli::json::NoticeDocument;
use crate::cli::pager::{First, Pager};

/// The version of the JSON documents.
pub(crate) const SCHEMA: u32 = 1;

const BOLD: AnsiStyle = AnsiStyle::new().bold();
const FAINT: AnsiStyle = AnsiStyle::new().dimmed();
const RED: AnsiStyle = AnsiColor::Red.on_default().bold();
const YELLOW: AnsiStyle = AnsiColor::Yellow.on_default().bold();
const CYAN: AnsiStyle = AnsiColor::Cyan.on_default().bold();
const PLAIN: AnsiStyle = AnsiStyle::new();
const REMOVED: AnsiStyle = AnsiColor::Red.on_default();
const ADDED: AnsiStyle = AnsiColor::Green.on_default();
const PLACE: AnsiStyle = AnsiColor::Cyan.on_default();

/// How to speak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    /// JSON documents and nothing else.
    pub(crate) json: bool,
    /// Results that were asked for, warnings and errors; no progress, no notices, no confirmations.
    pub(crate) quiet: bool,
    /// Lists in full.
    pub(crate) verbose: bool,
    /// Automatic where nothing says when.
    color: Option<ColorWhen>,
}

impl Style {
    /// As asked for.
    pub(crate) fn of(arguments: &GlobalArguments) -> Self {
        Self {
            json: arguments.json,
            quiet: arguments.quiet,
            verbose: arguments.verbose,
            color: arguments.color,
        }
    }

    /// The same with the colors of the settings, where the arguments say nothing of them.
    pub(crate) fn configured(mut self, settings: &Settings) -> Self {
        let choice = match settings.color {
            ColorChoice::Always => ColorWhen::Always,
            ColorChoice::Never => ColorWhen::Never,
            _ => ColorWhen::Auto,
        };
        self.color.get_or_insert(choice);
        self
    }

    /// For what fails before the arguments are understood.
    pub(crate) fn plain(json: bool) -> Self {
        Self { json, quiet: false, verbose: false, color: None }
    }

    fn colors_stdout(self) -> bool {
        self.colors(AutoStream::choice(&io::stdout()))
    }

    fn colors_stderr(self) -> bool {
        self.colors(AutoStream::choice(&io::stderr()))
    }

    fn colors(self, automatic: anstream::ColorChoice) -> bool {
        match self.color {
            Some(ColorWhen::Always) => true,
            Some(ColorWhen::Never) => false,
            Some(ColorWhen::Auto) | None => automatic != anstream::ColorChoice::Never,
        }
    }

    /// Writes `error: …`, and the like, to standard error. That standard error cannot be written is
    /// nothing that could be told to anybody.
    pub(crate) fn complain(self, kind: Kind, text: &str) {
        let (style, word) = match kind {
            Kind::Error => (RED, "error"),
            Kind::Cause => (RED, "caused by"),
            Kind::Warning => (YELLOW, "warning"),
            Kind::Note => (BOLD, "note"),
            Kind::Hint => (CYAN, "hint"),
        };
        let colored = self.colors_stderr();
        let indent = word.len() + 2;
        let room =
            width_of(&io::stderr()).map_or(usize::MAX, |width| width.max(indent + 10) - indent);
        for (at, part) in format::wrapped(text, room).iter().enumerate() {
            if at > 0 {
                aside(&format!("{}{part}", " ".repeat(indent)));
            } else if colored {
                aside(&format!("{style}{word}:{style:#} {part}"));
            } else {
                aside(&format!("{word}: {part}"));
            }
        }
    }
}

/// The width of a terminal; none for anything else.
pub(crate) fn width_of(stream: &(impl IsTerminal + AsFd)) -> Option<usize> {
    let is_terminal = stream.is_terminal();
    let size = is_terminal.then(|| terminal_size::terminal_size_of(stream)).flatten();
    size.map(|(width, _)| usize::from(width.0).max(20))
}

/// Whether so many lines are more than the terminal shows; where there is none they are not.
pub(crate) fn is_more_than_a_screen(lines: usize) -> bool {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| terminal_size::terminal_size_of(&stdout)).flatten();
    // The last line is for what is typed next.
    size.is_some_and(|(_, height)| lines >= usize::from(height.0))
}

/// What is to be told when the pager has ended; nothing is held where none runs.
static HELD: Mutex<Option<String>> = Mutex::new(None);

/// Writes one line to standard error; where a pager has the terminal, when it has ended.
pub(crate) fn aside(text: &str) {
    match &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(held) => {
            held.push_str(text);
            held.push('\n');
        }
        None => {
            writeln!(io::stderr(), "{text}").ok();
        }
    }
}

/// As [`aside`] for a line of a list below a heading.
pub(crate) fn aside_item(text: &str) {
    for line in item_lines(text, width_of(&io::stderr())) {
        aside(&line);
    }
}

/// A line of a list below a heading; what has no room goes below it, indented deeper than the next item.
fn item_lines(text: &str, width: Option<usize>) -> Vec<String> {
    const INDENT: &str = "  ";
    const DEEPER: &str = "      ";
    let Some(width) = width.filter(|width| INDENT.len() + text.chars().count() > *width) else {
        return vec![format!("{INDENT}{text}")];
    };
    let room = width.saturating_sub(DEEPER.len()).max(10);
    let parts = format::wrapped(text, room);
    let indents = std::iter::once(INDENT).chain(std::iter::repeat(DEEPER));
    parts.iter().zip(indents).map(|(part, indent)| format!("{indent}{part}")).collect()
}

fn hold_asides() {
    *HELD.lock().unwrap_or_else(PoisonError::into_inner) = Some(String::new());
}

fn release_asides() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    io::stderr().write_all(held.unwrap_or_default().as_bytes()).ok();
}

/// What a line on standard error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Error,
    Cause,
    Warning,
    Note,
    Hint,
}

/// What a part of a comparison is, for its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Header,
    Place,
    Added,
    Removed,
}

impl Paint {
    fn style(self) -> AnsiStyle {
        match self {
            Self::Plain => PLAIN,
            Self::Header => BOLD,
            Self::Place => PLACE,
            Self::Added => ADDED,
            Self::Removed => REMOVED,
        }
    }
}

/// Where the output goes.
#[derive(Debug)]
enum Output {
    Stdout(Stdout),
    Pager(Pager),
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(stdout) => stdout.write(bytes),
            Self::Pager(pager) => pager.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(stdout) => stdout.flush(),
            Self::Pager(pager) => pager.flush(),
        }
    }
}

/// Standard output.
#[derive(Debug)]
pub(crate) struct Printer {
    out: BufWriter<Output>,
    style: Style,
    width: Option<usize>,
    is_terminal: bool,
    colors: bool,
    pager: Option<String>,
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: u32,
    #[serde(flatten)]
    body: &'a T,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    notices: &'a [NoticeDocument],
}

/// A document of `schema`, the fields of `body`, and notices where there are any.
pub(crate) fn document<T: Serialize>(body: &T, notices: &[NoticeDocument]) -> io::Result<String> {
    let document = Document { schema: SCHEMA, body, notices };
    serde_json::to_string_pretty(&document).map_err(io::Error::from)
}

impl Printer {
    /// Prints to standard output; lines are wrapped where that is a terminal.
    pub(crate) fn new(style: Style, pager: Option<String>) -> Self {
        let stdout = io::stdout();
        let width = width_of(&stdout);
        let is_terminal = stdout.is_terminal();
        let out = BufWriter::new(Output::Stdout(stdout));
        Self { out, style, width, is_terminal, colors: style.colors_stdout(), pager }
    }

    /// Shows what is printed from here on with a pager, if a person looks at it, and says whether it does.
    /// [`Printer::close`] waits for the person.
    pub(crate) fn page(&mut self, first: First) -> io::Result<bool> {
        if !self.is_terminal || self.style.json {
            return Ok(false);
        }
        self.out.flush()?;
        if let Some(pager) = Pager::start(self.pager.as_deref(), first) {
            hold_asides();
            self.out = BufWriter::new(Output::Pager(pager));
        }
        Ok(self.is_paged())
    }

    /// Whether a pager has the terminal.
    pub(crate) fn is_paged(&self) -> bool {
        matches!(self.out.get_ref(), Output::Pager(_))
    }

    /// Everything printed so far is written, and has been read where a pager shows it.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        if let Output::Pager(pager) = self.out.get_mut() {
            pager.wait();
            release_asides();
        }
        flushed
    }

    /// Whether a person sees the output, directly or in a pager.
    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Bytes in a color; the line goes on.
    pub(crate) fn paint(&mut self, paint: Paint, bytes: &[u8]) -> io::Result<()> {
        if !self.colors || paint == Paint::Plain {
            return self.out.write_all(bytes);
        }
        let style = paint.style();
        write!(self.out, "{style}")?;
        self.out.write_all(bytes)?;
        write!(self.out, "{style:#}")
    }

    /// Whether there are colors.
    pub(crate) fn colors(&self) -> bool {
        self.colors
    }

    /// How to speak.
    pub(crate) fn style(&self) -> Style {
        self.style
    }

    /// The width of the terminal; none where lines may have any length.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// One line.
    pub(crate) fn line(&mut self, text: impl Display) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// A line above others, wrapped if it must be.
    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        let room = self.width.unwrap_or(usize::MAX);
        // The headings of columns fit, and begin where they begin.
        let fits = text.chars().count() <= room;
        let lines = if fits { vec![text.to_owned()] } else { format::wrapped(text, room) };
        for line in lines {
            if self.colors {
                writeln!(self.out, "{BOLD}{line}{BOLD:#}")?;
            } else {
                writeln!(self.out, "{line}")?;
            }
        }
        Ok(())
    }

    /// A line of a list below a heading.
    pub(crate) fn item(&mut self, text: &str) -> io::Result<()> {
        item_lines(text, self.width).iter().try_for_each(|line| self.line(format_args!("{line}")))
    }

    /// Text that is there and says nothing, where there are colors.
    pub(crate) fn faint(&self, text: &str) -> String {
        if self.colors { format!("{FAINT}{text}{FAINT:#}") } else { text.to_owned() }
    }

    /// A sentence or two, wrapped.
    pub(crate) fn prose(&mut self, text: &str) -> io::Result<()> {
        self.hanging("", text)
    }

    /// `start` and a sentence, wrapped so that what follows the first line is indented as deep as
    /// `start` is long.
    pub(crate) fn hanging(&mut self, start: &str, text: &str) -> io::Result<()> {
        let indent = start.chars().count();
        let room = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(10));
        let mut before = start.to_owned();
        for part in format::wrapped(text, room) {
            self.line(format_args!("{before}{part}"))?;
            before = " ".repeat(indent);
        }
        Ok(())
    }

    /// What follows the `indent` characters that are on the line already, wrapped below itself.
    pub(crate) fn hanging_after(&mut self, indent: usize, text: &str) -> io::Result<()> {
        let Some(width) = self.width else { return self.line(text) };
        let room = width.saturating_sub(indent).max(10);
        for (at, part) in format::wrapped(text, room).iter().enumerate() {
            let before = if at == 0 { String::new() } else { " ".repeat(indent) };
            self.line(format_args!("{before}{part}"))?;
        }
        Ok(())
    }

    /// A question, without a new line; flushed, since an answer is waited for.
    pub(crate) fn question(&mut self, text: &str) -> io::Result<()> {
        write!(self.out, "{text} ")?;
        self.out.flush()
    }

    /// One JSON document.
    pub(crate) fn document<T: Serialize>(
        &mut self,
        body: &T,
        notices: &[NoticeDocument],
    ) -> io::Result<()> {
        let text = document(body, notices)?;
        self.line(text)
    }

    /// Bytes as they are.
    pub(crate) fn bytes(&mut self) -> &mut dyn Write {
        &mut self.out
    }

    /// Everything printed so far is written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
