//! Values of settings: from text, and back.

use std::fmt;
use std::time::Duration;

use crate::clock;
use crate::id::SessionName;
use crate::limits;
use crate::path::{RelPath, printable};
use crate::settings::{NamePatterns, is_version_control};

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// None: no limit, or nothing named.
    Unset,
    /// On or off.
    Switch(bool),
    /// A number.
    Count(u32),
    /// A number of bytes.
    Size(u64),
    /// A length of time.
    Time(Duration),
    /// A name, a path, a command or a word.
    Text(String),
    /// Patterns of names, or paths.
    List(Vec<String>),
}

/// What values a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A number, from the first to the second.
    Count(u32, u32),
    /// A number of bytes, from the first to the second.
    Size(u64, u64),
    /// As [`Kind::Size`], or none.
    SizeOrNone(u64, u64),
    /// A length of time from the first to the second, or none.
    TimeOrNone(Duration, Duration),
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name of a session.
    Session,
    /// A directory, from `/` or from `~/` on.
    Directory,
    /// A command for the shell; the empty one is one too.
    Command,
    /// Patterns of names; `true`: of directories too, which end in a slash.
    Patterns(bool),
    /// Paths below the root of a workspace.
    Paths,
}

/// A value as it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Written {
    Switch(bool),
    Integer(String),
    Text(String),
    List(Vec<Self>),
    /// What no setting takes, by the name of its type.
    Other(&'static str),
}

impl Written {
    /// As it is shown in an error. What a stranger wrote may be long.
    pub(super) fn shown(&self) -> String {
        const SHOWN_MAX: usize = 60;
        let text = match self {
            Self::Switch(value) => value.to_string(),
            Self::Integer(digits) => digits.clone(),
            Self::Text(text) => format!("\"{}\"", printable(text.as_bytes())),
            Self::List(_) => "a list".to_owned(),
            Self::Other(kind) => (*kind).to_owned(),
        };
        if text.chars().count() <= SHOWN_MAX {
            return text;
        }
        text.chars().take(SHOWN_MAX).chain(['…']).collect()
    }
}

impl Kind {
    /// What a value must be, as in `a number from 1 to 100`.
    pub fn expected(self) -> String {
        match self {
            Self::Switch => "true or false".to_owned(),
            Self::Count(least, most) => format!("a number from {least} to {most}"),
            Self::Size(least, most) => {
                format!("a size from \"{}\" to \"{}\"", Size(least), Size(most))
            }
            Self::SizeOrNone(least, most) => {
                format!("a size from \"{}\" to \"{}\", or \"none\"", Size(least), Size(most))
            }
            Self::TimeOrNone(least, most) => {
                format!("a time from \"{}\" to \"{}\", or \"none\"", Time(least), Time(most))
            }
            Self::Word(words) => {
                words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ")
            }
            Self::Session => "the name of a session".to_owned(),
            Self::Directory => "a directory, written from `/` or from `~/` on".to_owned(),
            Self::Command => "a command".to_owned(),
            Self::Patterns(_) => {
                format!("a list of at most {} patterns", limits::PATTERNS_MAX)
            }
            Self::Paths => {
                format!("a list of at most {} paths below the workspace", limits::EXTRAS_MAX)
            }
        }
    }

    /// Reads what stands in a file.
    ///
    /// # Errors
    /// What the value is, and what is expected.
    pub(super) fn read(self, written: &Written) -> Result<Value, String> {
        let unfit = || format!("is {}; {} is expected", written.shown(), self.expected());
        let because = |reason: String| format!("is {}; {reason}", written.shown());
        match (self, written) {
            (Self::Switch, Written::Switch(value)) => Ok(Value::Switch(*value)),
            (Self::Count(least, most), Written::Integer(digits)) => digits
                .parse()
                .ok()
                .filter(|count| (least..=most).contains(count))
                .map(Value::Count)
                .ok_or_else(unfit),
            (Self::SizeOrNone(..) | Self::TimeOrNone(..), Written::Text(text))
                if text == "none" =>
            {
                Ok(Value::Unset)
            }
            (
                Self::Size(least, most) | Self::SizeOrNone(least, most),
                Written::Integer(text) | Written::Text(text),
            ) => size(text)
                .filter(|bytes| (least..=most).contains(bytes))
                .map(Value::Size)
                .ok_or_else(unfit),
            (Self::TimeOrNone(least, most), Written::Text(text)) => clock::length_of(text)
                .filter(|time| (least..=most).contains(time))
                .map(Value::Time)
                .ok_or_else(unfit),
            (Self::Word(words), Written::Text(text)) if words.contains(&text.as_str()) => {
                Ok(Value::Text(text.clone()))
            }
            (Self::Session, Written::Text(text)) => match SessionName::new(text) {
                Ok(name) => Ok(Value::Text(name.to_string())),
                Err(reason) => Err(because(reason.to_string())),
            },
            (Self::Directory, Written::Text(text))
                if (text.starts_with('/') || text.starts_with("~/")) && !text.contains('\0') =>
            {
                Ok(Value::Text(text.clone()))
            }
            (Self::Command, Written::Text(text)) if !text.contains('\0') => {
                Ok(Value::Text(text.clone()))
            }
            (Self::Patterns(of_directories), Written::List(list))
                if list.len() <= limits::PATTERNS_MAX =>
            {
                let patterns = list.iter().map(|written| pattern(written, of_directories));
                patterns.collect::<Result<_, _>>().map(Value::List)
            }
            (Self::Paths, Written::List(list)) if list.len() <= limits::EXTRAS_MAX => {
                list.iter().map(path).collect::<Result<_, _>>().map(Value::List)
            }
            _ => Err(unfit()),
        }
    }

    /// What the text of a variable of the environment is: numbers, words and texts stand there as they
    /// are, lists as in a file.
    pub(super) fn written(self, text: &str) -> Option<Written> {
        match self {
            Self::Switch => Some(match text.parse() {
                Ok(value) => Written::Switch(value),
                Err(_) => Written::Text(text.to_owned()),
            }),
            Self::Count(..) => Some(match text.parse::<i64>() {
                Ok(number) => Written::Integer(number.to_string()),
                Err(_) => Written::Text(text.to_owned()),
            }),
            Self::Patterns(_) | Self::Paths => None,
            _ => Some(Written::Text(text.to_owned())),
        }
    }
}

fn pattern(written: &Written, of_directories: bool) -> Result<String, String> {
    let Written::Text(text) = written else {
        return Err(format!("holds {}; a pattern is a text", written.shown()));
    };
    if text.len() > limits::PATTERN_BYTES_MAX {
        let most = limits::PATTERN_BYTES_MAX;
        return Err(format!("holds {}; a pattern has at most {most} bytes", written.shown()));
    }
    let name = if of_directories { text.strip_suffix('/').unwrap_or(text) } else { text };
    match NamePatterns::new([name]) {
        Ok(_) => Ok(text.clone()),
        Err((_, reason)) => Err(format!("holds {}: {reason}", written.shown())),
    }
}

fn path(written: &Written) -> Result<String, String> {
    let Written::Text(text) = written else {
        return Err(format!("holds {}; a path is a text", written.shown()));
    };
    let text = text.strip_suffix('/').unwrap_or(text);
    let unfit = |reason: &str| Err(format!("holds {}: {reason}", written.shown()));
    match RelPath::new(text) {
        Err(reason) => unfit(&reason.to_string()),
        Ok(path) if path.is_root() => unfit("it is the workspace itself"),
        Ok(path) if path.components().any(is_version_control) => {
            unfit("it belongs to a version-control system, or to turnpoint")
        }
        Ok(path) => Ok(path.to_string()),
    }
}

/// The units of sizes, the largest of each kind first.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// A number of bytes as people write it: `8MiB`, `1.5 GB`, `4096`.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let unit = if unit.is_empty() { "B" } else { unit };
    let (_, bytes) = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    // A size is exact or none: 0.1 of something is not rounded away.
    let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let whole: u128 = whole.parse().ok()?;
    let part: u128 = part.parse().ok()?;
    let total = whole.checked_mul(scale)?.checked_add(part)?.checked_mul(u128::from(*bytes))?;
    if total % scale != 0 {
        return None;
    }
    u64::try_from(total / scale).ok()
}

/// A number of bytes in the largest unit of powers of two that shows all of it.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(name, bytes): &&(&str, u64)| {
            (name.contains('i') || *name == "B")
                && self.0 >= *bytes
                && self.0.is_multiple_of(*bytes)
        };
        let (name, bytes) = UNITS.iter().find(fits).unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / bytes)
    }
}

/// A length of time in the largest unit that shows all of it.
struct Time(Duration);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let units = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
        let fits = |(_, length): &&(&str, u64)| seconds > 0 && seconds.is_multiple_of(*length);
        let (name, length) = units.iter().find(fits).unwrap_or(&("s", 1));
        write!(f, "{}{name}", seconds / length)
    }
}

/// As a file would have it, but for the quotes.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unset => f.write_str("none"),
            Self::Switch(value) => value.fmt(f),
            Self::Count(count) => count.fmt(f),
            Self::Size(bytes) => Size(*bytes).fmt(f),
            Self::Time(time) => Time(*time).fmt(f),
            Self::Text(text) => f.write_str(text),
            Self::List(texts) => {
                let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
                write!(f, "[{}]", quoted.join(", "))
            }
        }
    }
}
