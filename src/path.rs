//! Paths inside a workspace: bytes, relative, `/`-separated, normalised.
//!
//! Names on Unix are bytes; nothing here assumes UTF-8. A [`RelPath`] that exists is valid: it cannot
//! leave the root, so code that holds one need not check again.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::limits;

/// A path relative to a workspace's root. The root itself is the empty path. No component is empty,
/// `.` or `..`; there is no NUL, no leading and no trailing slash. Ordered by bytes.
///
/// A clone shares the bytes: a capture names each path in several lists. So does the path above it, and
/// paths that were read together have one buffer for all.
#[derive(Clone, Default)]
pub struct RelPath {
    buffer: Arc<[u8]>,
    start: u32,
    length: u32,
}

/// Why bytes are not a [`RelPath`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPath {
    /// It begins with `/`.
    #[error("it is absolute")]
    Absolute,
    /// A component is empty, as in `a//b` or `a/`.
    #[error("it has an empty component")]
    EmptyComponent,
    /// A component is `.` or `..`.
    #[error("it has a `.` or `..` component")]
    DotComponent,
    /// It holds a NUL byte.
    #[error("it holds a NUL byte")]
    Nul,
    /// It is longer than [`limits::PATH_BYTES_MAX`].
    #[error("it is longer than {} bytes", limits::PATH_BYTES_MAX)]
    TooLong,
}

impl RelPath {
    /// The workspace's root.
    pub fn root() -> Self {
        Self::default()
    }

    /// Checks and takes `bytes`.
    ///
    /// # Errors
    /// Says which rule is broken; see [`InvalidPath`].
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, InvalidPath> {
        let bytes = bytes.as_ref();
        if bytes.is_empty() {
            return Ok(Self::root());
        }
        check(bytes)?;
        Ok(Self::whole(bytes.into()))
    }

    /// Checks and takes the bytes of `buffer` from `start` on, which are not copied.
    ///
    /// # Errors
    /// As [`RelPath::new`]; [`InvalidPath::TooLong`] also where the buffer has not that many.
    pub(crate) fn shared(
        buffer: &Arc<[u8]>,
        start: usize,
        length: usize,
    ) -> Result<Self, InvalidPath> {
        if length == 0 {
            return Ok(Self::root());
        }
        let end = start.checked_add(length).ok_or(InvalidPath::TooLong)?;
        check(buffer.get(start..end).ok_or(InvalidPath::TooLong)?)?;
        let number = |number| u32::try_from(number).map_err(|_| InvalidPath::TooLong);
        Ok(Self { buffer: Arc::clone(buffer), start: number(start)?, length: number(length)? })
    }

    /// All of a buffer that is a valid path.
    fn whole(buffer: Arc<[u8]>) -> Self {
        // No valid path has more than `PATH_BYTES_MAX`.
        let length = u32::try_from(buffer.len()).unwrap_or(0);
        Self { buffer, start: 0, length }
    }

    /// The beginning of this path, up to a slash.
    fn above(&self, end: usize) -> Self {
        let length = u32::try_from(end).unwrap_or(0);
        Self { buffer: Arc::clone(&self.buffer), start: self.start, length }
    }

    /// This path with one more component, a name as the file system gave it.
    ///
    /// # Errors
    /// As [`RelPath::new`]; a name from a directory listing can only be too long in all.
    pub fn join(&self, name: &[u8]) -> Result<Self, InvalidPath> {
        if name.contains(&b'/') {
            return Err(InvalidPath::EmptyComponent);
        }
        check_component(name)?;
        if self.is_root() {
            return Self::new(name);
        }
        let own = self.as_bytes();
        let length = own.len() + 1 + name.len();
        if length > limits::PATH_BYTES_MAX {
            return Err(InvalidPath::TooLong);
        }
        // A walk joins every path of the tree: one allocation for each, where it fits.
        let mut short = [0; 512];
        let mut long = Vec::new();
        let bytes = if let Some(short) = short.get_mut(..length) {
            short
        } else {
            long.resize(length, 0);
            &mut long[..]
        };
        let (above, below) = bytes.split_at_mut(own.len());
        above.copy_from_slice(own);
        below[0] = b'/';
        below[1..].copy_from_slice(name);
        Ok(Self::whole((&*bytes).into()))
    }

    /// Whether this is the workspace's root.
    pub fn is_root(&self) -> bool {
        self.length == 0
    }

    /// The bytes, for comparing, hashing and system calls.
    pub fn as_bytes(&self) -> &[u8] {
        let start = self.start as usize;
        // Within the buffer since it was made.
        self.buffer.get(start..start + self.length as usize).unwrap_or_default()
    }

    /// The path as the operating system takes it; empty for the root.
    pub fn as_os(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.as_bytes()))
    }

    /// The last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }

    /// The directory that holds this path; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let end = self.as_bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        Some(self.above(end))
    }

    /// The components from the top; none for the root.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.as_bytes().split(|&byte| byte == b'/').filter(|name| !name.is_empty())
    }

    /// The directories above this path, from the root down, itself excluded.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> + '_ {
        let root = (!self.is_root()).then(Self::root);
        let inner = self.as_bytes().iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        root.into_iter().chain(inner.map(|(end, _)| self.above(end)))
    }

    /// Whether this is `ancestor` or lies below it.
    pub fn is_at_or_below(&self, ancestor: &Self) -> bool {
        let (own, above) = (self.as_bytes(), ancestor.as_bytes());
        above.is_empty()
            || own == above
            || (own.starts_with(above) && own.get(above.len()) == Some(&b'/'))
    }
}

/// Where in a list, sorted by path, `path` and everything below it is.
///
/// Between the two may lie others: `a-b` sorts after `a` and before `a/b`.
pub(crate) fn at_or_below<T>(
    sorted: &[T],
    path: &RelPath,
    path_of: impl Fn(&T) -> &RelPath,
) -> impl Iterator<Item = usize> {
    let mut prefix = path.as_bytes().to_vec();
    if !path.is_root() {
        prefix.push(b'/');
    }
    let own = sorted.binary_search_by(|it| path_of(it).cmp(path)).ok();
    // What is below the root begins after it, if it is in the list.
    let begins = |it: &T| path_of(it).as_bytes() < prefix.as_slice() || path_of(it) == path;
    let first = sorted.partition_point(begins);
    let is_below = |it: &T| path_of(it).as_bytes().starts_with(&prefix);
    let count = sorted[first..].partition_point(is_below);
    own.into_iter().chain(first..first + count)
}

/// Whether `bytes`, not empty, are a path.
fn check(bytes: &[u8]) -> Result<(), InvalidPath> {
    if bytes.len() > limits::PATH_BYTES_MAX {
        return Err(InvalidPath::TooLong);
    }
    if bytes.first() == Some(&b'/') {
        return Err(InvalidPath::Absolute);
    }
    bytes.split(|&byte| byte == b'/').try_for_each(check_component)
}

/// Whether `name` can stand between two slashes.
fn check_component(name: &[u8]) -> Result<(), InvalidPath> {
    match name {
        b"" => Err(InvalidPath::EmptyComponent),
        b"." | b".." => Err(InvalidPath::DotComponent),
        name if name.contains(&0) => Err(InvalidPath::Nul),
        _ => Ok(()),
    }
}

impl Borrow<[u8]> for RelPath {
    fn borrow(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for RelPath {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for RelPath {}

impl PartialOrd for RelPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RelPath {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for RelPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

/// Shows the path for people: `.` for the root, and every byte that could move a terminal's cursor
/// or that is not UTF-8 as an escape.
impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.pad(".");
        }
        f.pad(&printable(self.as_bytes()))
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", printable(self.as_bytes()))
    }
}

/// `bytes` as text that is safe on a terminal: control characters (a newline in a name, an escape
/// sequence) and bytes that are not UTF-8 are written as `\n`, `\u{1b}` or `\xFF`.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || is_format_control(character) {
                text.extend(character.escape_default());
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            text.push_str("\\x");
            let digits = [byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16));
            text.extend(digits.into_iter().flatten().map(|digit| digit.to_ascii_uppercase()));
        }
    }
    text
}

/// A path as [`shell_word`], which no command takes for an option.
pub fn shell_path(path: impl AsRef<OsStr>) -> String {
    let bytes = path.as_ref().as_bytes();
    if bytes.starts_with(b"-") {
        return shell_word(OsStr::from_bytes(&[b"./", bytes].concat()));
    }
    shell_word(path)
}

/// `word` as bash, zsh or ksh takes it for one word, and a terminal can show it: what is to be typed after a
/// command. Without control characters, backticks and the like any shell does.
pub fn shell_word(word: impl AsRef<OsStr>) -> String {
    let bytes = word.as_ref().as_bytes();
    let text = printable(bytes);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+,:@%".contains(&byte);
    if text.as_bytes() == bytes && !text.is_empty() && text.bytes().all(is_plain) {
        return text;
    }
    // A backtick would end what is shown as a command.
    if text.as_bytes() == bytes && !text.contains('`') {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    // With the escapes of POSIX's dollar-single-quotes.
    let escaped = |&byte: &u8| match byte {
        b'\'' | b'\\' => format!(r"\{}", char::from(byte)),
        b' '..=b'~' if byte != b'`' => char::from(byte).to_string(),
        _ => format!(r"\{byte:03o}"),
    };
    format!("$'{}'", bytes.iter().map(escaped).collect::<String>())
}

/// Characters that are not controls by category but change how the rest of a line is shown
/// (bidirectional overrides, line and paragraph separators).
const fn is_format_control(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::{assert_stays_inside, config, near, one_of};

    fn path(text: &str) -> RelPath {
        RelPath::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_name_is_one_word_of_a_shell_whatever_is_in_it() {
        for (name, word) in [
            ("s/3.json", "s/3.json"),
            ("my session/3.json", "'my session/3.json'"),
            ("it's/3.json", r"'it'\''s/3.json'"),
            ("$(reboot)/3.json", "'$(reboot)/3.json'"),
            ("a\n\u{1b}[2J\u{e9}'", r"$'a\012\033[2J\303\251\''"),
            ("a `b`", r"$'a \140b\140'"),
            ("=x", "'=x'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(name), word);
        }
        assert_eq!((shell_path("-x y"), shell_path("a/-x")), ("'./-x y'".into(), "a/-x".into()));
    }

    #[test]
    fn only_paths_that_stay_below_the_root_are_accepted() {
        for (text, problem) in [
            ("/a", InvalidPath::Absolute),
            ("a//b", InvalidPath::EmptyComponent),
            ("a/", InvalidPath::EmptyComponent),
            (".", InvalidPath::DotComponent),
            ("a/../b", InvalidPath::DotComponent),
            ("a\0b", InvalidPath::Nul),
        ] {
            assert_eq!(RelPath::new(text.as_bytes()), Err(problem), "{text:?}");
        }
        assert_eq!(RelPath::new(vec![b'x'; limits::PATH_BYTES_MAX + 1]), Err(InvalidPath::TooLong));
        assert!(RelPath::new("..a/...".as_bytes()).is_ok());
        assert!(path("a").join(b"b/c").is_err());
        assert!(path("a").join(b"..").is_err());
    }

    #[test]
    fn a_word_for_a_shell_is_read_back_by_one() {
        for word in [
            &b"two words"[..],
            b"it's",
            b"$(x) `y` \\ \" *",
            b"~",
            b"",
            b"a\nb\xff'",
            "\u{202e}ü".as_bytes(),
        ] {
            let script = format!("printf %s {}", shell_word(OsStr::from_bytes(word)));
            let read = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(read.stdout, word, "{script}");
        }
    }

    #[test]
    fn parts_of_a_path() {
        let deep = path("a/b/c");
        assert_eq!(deep.name(), b"c");
        assert_eq!(deep.parent(), Some(path("a/b")));
        assert_eq!(path("a").parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
        assert_eq!(deep.ancestors().collect::<Vec<_>>(), [RelPath::root(), path("a"), path("a/b")]);
        assert_eq!(RelPath::root().ancestors().count(), 0);
        assert!(deep.is_at_or_below(&path("a/b")) && deep.is_at_or_below(&RelPath::root()));
        assert!(!path("a/bc").is_at_or_below(&path("a/b")));
    }

    #[test]
    fn what_a_terminal_would_act_on_is_escaped() {
        assert_eq!(printable(b"a\n\x1b[2J\xff\xc3\xa9"), "a\\n\\u{1b}[2J\\xFF\u{e9}");
        assert_eq!(RelPath::root().to_string(), ".");
    }

    #[test]
    fn what_is_at_or_below_a_path_is_found_where_it_is_sorted() {
        let paths: Vec<RelPath> = ["", "a", "a-b", "a/b", "a/b/c", "a0", "b/c", "b/d", "c"]
            .iter()
            .map(|path| RelPath::new(path).unwrap())
            .collect();
        for list in [&paths[..], &paths[1..], &[]] {
            for path in ["", "a", "a-b", "a/b", "b", "c", "d", "0"] {
                let path = RelPath::new(path).unwrap();
                let found: Vec<usize> = at_or_below(list, &path, |it| it).collect();
                let one_by_one = (0..list.len()).filter(|it| list[*it].is_at_or_below(&path));
                assert_eq!(found, one_by_one.collect::<Vec<_>>(), "{path}");
            }
        }
    }

    fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
        near(one_of(&["", "a", "a/b/c", "a-b/..a/...", "\u{e9}/x y", ".git/config"]))
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn whatever_is_taken_for_a_path_stays_below_the_root(bytes in any_bytes()) {
            let path = RelPath::new(&bytes);
            let leads_out = |name: &[u8]| matches!(name, b"" | b"." | b"..") || name.contains(&0);
            let is_path = bytes.is_empty()
                || (bytes.len() <= 32 * 1024 && !bytes.split(|&byte| byte == b'/').any(leads_out));
            prop_assert_eq!(path.is_ok(), is_path, "{:?}", bytes);
            let Ok(path) = path else { return Ok(()) };
            assert_stays_inside(path.as_bytes());
            prop_assert_eq!(path.as_bytes(), &*bytes);
            prop_assert_eq!(path.components().collect::<Vec<_>>().join(&b'/'), bytes);
            for above in path.ancestors() {
                assert_stays_inside(above.as_bytes());
                prop_assert!(path.is_at_or_below(&above) && above != path);
            }
            prop_assert_eq!(path.parent(), path.ancestors().last());
            if let Some(parent) = path.parent() {
                prop_assert_eq!(parent.join(path.name()), Ok(path.clone()));
            }
            prop_assert!(!path.to_string().contains(char::is_control));
        }

        #[test]
        fn a_part_of_a_buffer_is_a_path_as_if_it_were_alone(
            bytes in any_bytes(),
            start in prop_oneof![0..12_usize, Just(usize::MAX)],
            length in prop_oneof![0..12_usize, Just(usize::MAX)],
        ) {
            let buffer: Arc<[u8]> = bytes.into();
            let part = start.checked_add(length).and_then(|end| buffer.get(start..end));
            let alone = part.map(RelPath::new);
            let shared = RelPath::shared(&buffer, start, length);
            match alone {
                Some(alone) => prop_assert_eq!(shared, alone),
                None => prop_assert!(shared.is_err() || length == 0),
            }
        }

        #[test]
        fn a_joined_name_is_one_component_or_refused(
            bytes in any_bytes(),
            name in any_bytes(),
        ) {
            let Ok(path) = RelPath::new(&bytes) else { return Ok(()) };
            if let Ok(joined) = path.join(&name) {
                assert_stays_inside(joined.as_bytes());
                prop_assert_eq!((joined.name(), joined.parent()), (&*name, Some(path)));
            } else {
                prop_assert!(matches!(&*name, b"" | b"." | b"..") || name.contains(&0)
                    || name.contains(&b'/'));
            }
        }
    }
}
