//! Names of things: sessions, checkpoints, workspaces, operations, stores.

use std::fmt;
use std::str::FromStr;

use crate::limits;
use crate::path::{printable, shell_word};

/// The name of a session: one agent conversation or unit of work. It is also the name of a directory
/// of the store, so it is checked before it touches a path. Kept as first written; two names that
/// differ only in case are the same session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionName(Box<str>);

/// Why a text is not a session name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidSessionName {
    /// Empty or only white space.
    #[error("it is blank")]
    Blank,
    /// Longer than [`limits::SESSION_NAME_BYTES_MAX`].
    #[error("it is longer than {} bytes", limits::SESSION_NAME_BYTES_MAX)]
    TooLong,
    /// Begins with `-` or `.`: it would read as an option or be hidden.
    #[error("it begins with `-` or `.`")]
    LeadingDashOrDot,
    /// Begins or ends with white space, or ends with a dot.
    #[error("it begins or ends with white space, or ends with a dot")]
    LooseEnd,
    /// Holds a character that is a separator, a wildcard or a control character.
    #[error("it holds `{}`, which a session name cannot", .0.escape_default())]
    Character(char),
    /// A device name of Windows, such as `CON`.
    #[error("it is the name of a device on Windows")]
    Device,
    /// The store uses the name for itself, such as `blobs`.
    #[error("the store uses this name for itself")]
    Reserved,
}

/// What lies in the store's directory beside the sessions.
const RESERVED: [&str; 14] = [
    "ballast",
    "blobs",
    "format.json",
    "index.db",
    "index.db-shm",
    "index.db-wal",
    "journal",
    "leases",
    "locks",
    "operations.jsonl",
    "packs",
    "quarantine",
    "tmp",
    "workspaces",
];

impl SessionName {
    /// Checks and takes `text`. The rules are those of the shared record format, plus the names the
    /// store uses itself.
    ///
    /// # Errors
    /// Says which rule is broken; see [`InvalidSessionName`].
    pub fn new(text: &str) -> Result<Self, InvalidSessionName> {
        use InvalidSessionName as Invalid;
        if text.trim().is_empty() {
            return Err(Invalid::Blank);
        }
        if text.len() > limits::SESSION_NAME_BYTES_MAX {
            return Err(Invalid::TooLong);
        }
        if text.starts_with(['-', '.']) {
            return Err(Invalid::LeadingDashOrDot);
        }
        if text.trim() != text || text.ends_with('.') {
            return Err(Invalid::LooseEnd);
        }
        let bad = |character: char| character.is_control() || "/\\:*?[]<>|\"@~".contains(character);
        if let Some(character) = text.chars().find(|&character| bad(character)) {
            return Err(Invalid::Character(character));
        }
        let folded = text.to_lowercase();
        if is_windows_device(&folded) {
            return Err(Invalid::Device);
        }
        // `index.db*` covers what a rebuild moves aside or builds.
        if RESERVED.contains(&folded.as_str()) || folded.starts_with("index.db") {
            return Err(Invalid::Reserved);
        }
        Ok(Self(text.into()))
    }

    /// The name as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The form in which two names are compared.
    pub fn folded(&self) -> String {
        self.0.to_lowercase()
    }
}

/// `folded` is lower case. Compared up to the first dot, without trailing spaces, as Windows does.
fn is_windows_device(folded: &str) -> bool {
    let stem = folded.split('.').next().unwrap_or_default().trim_end();
    if matches!(stem, "con" | "prn" | "aux" | "nul" | "conin$" | "conout$") {
        return true;
    }
    let digit = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    digit.is_some_and(|digit| {
        let mut characters = digit.chars();
        let first = characters.next();
        characters.next().is_none()
            && matches!(first, Some('0'..='9' | '\u{b9}' | '\u{b2}' | '\u{b3}'))
    })
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&printable(self.0.as_bytes()))
    }
}

impl fmt::Debug for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl FromStr for SessionName {
    type Err = InvalidSessionName;

    fn from_str(text: &str) -> Result<Self, InvalidSessionName> {
        Self::new(text)
    }
}

/// The number of a checkpoint in its session, from 0. Gaps are normal; a number is never given twice.
/// At most 2^53 - 1, so that every JSON reader holds it exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(u64);

impl Seq {
    /// The highest number.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// `number` as a sequence number; `None` above [`Seq::MAX`].
    pub fn new(number: u64) -> Option<Self> {
        (number <= Self::MAX.0).then_some(Self(number))
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Text that is not a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a sequence number: digits without a leading zero are expected")]
pub struct InvalidSeq;

impl FromStr for Seq {
    type Err = InvalidSeq;

    /// Strict, since it also reads file names: no sign, no leading zero.
    fn from_str(text: &str) -> Result<Self, InvalidSeq> {
        let canonical = text == "0" || !text.starts_with('0');
        if text.is_empty() || !canonical || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidSeq);
        }
        text.parse().ok().and_then(Self::new).ok_or(InvalidSeq)
    }
}

/// Which checkpoint: `session:seq`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId {
    /// The session it belongs to.
    pub session: SessionName,
    /// Its number there.
    pub seq: Seq,
}

impl CheckpointId {
    /// As it is typed after a command: one word for a shell.
    pub fn shell_word(&self) -> String {
        shell_word(format!("{}:{}", self.session.as_str(), self.seq))
    }

    /// The file of its manifest, below the directory of the sessions, as one word of a shell.
    pub fn manifest_word(&self) -> String {
        shell_word(format!("{}/{}.json", self.session.as_str(), self.seq))
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.session, self.seq)
    }
}

/// Text that is not 32 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id: 32 lower-case hex digits are expected")]
pub struct InvalidId;

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(uuid::Uuid);

        impl $name {
            /// A new one from the system's random source.
            pub fn random() -> Self {
                Self(uuid::Uuid::new_v4())
            }

            /// The 16 raw bytes, as the index stores them.
            pub fn to_bytes(self) -> [u8; 16] {
                self.0.into_bytes()
            }

            /// The reverse of `to_bytes`.
            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(uuid::Uuid::from_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = [0u8; 32];
                f.pad(self.0.simple().encode_lower(&mut text))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let id = uuid::Uuid::try_parse(text).map(Self).map_err(|_| InvalidId)?;
                // One text form only, since these are also file names.
                if id.to_string() == text { Ok(id) } else { Err(InvalidId) }
            }
        }
    };
}

random_id! {
    /// A workspace: the directory tree that is captured, wherever it is moved.
    WorkspaceId
}
random_id! {
    /// One capture, restore or sweep; also the name of its lease.
    OperationId
}
random_id! {
    /// One pack: the file that holds the content of many blobs.
    PackId
}
random_id! {
    /// One store; caches name it so that they cannot be taken for another's.
    StoreId
}

/// Text that is not 8 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a run: 8 lower-case hex digits are expected")]
pub struct InvalidRunId;

/// A run in a work tree of its own; part of the name of its directory and of its branch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(u32);

impl RunId {
    /// One from the system's random source; that it is new is the caller's to find out.
    pub fn random() -> Self {
        Self(uuid::Uuid::new_v4().as_fields().0)
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:08x}", self.0))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for RunId {
    type Err = InvalidRunId;

    fn from_str(text: &str) -> Result<Self, InvalidRunId> {
        let id = u32::from_str_radix(text, 16).map(Self).map_err(|_| InvalidRunId)?;
        // One text form only, since these are also file names.
        if id.to_string() == text { Ok(id) } else { Err(InvalidRunId) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::{assert_stays_inside, config, near_text};

    #[test]
    fn names_that_would_harm_a_path_are_refused() {
        for bad in [
            "",
            "  ",
            "../x",
            "a/b",
            "a\\b",
            "..",
            ".hidden",
            "-x",
            "a:b",
            "a*",
            "a?",
            "a[",
            "CON",
            "con.txt",
            "Com1",
            "LPT\u{b9}",
            "nul ",
            "blobs",
            "BLOBS",
            "index.db-wal",
            "tmp",
            "a\nb",
            "a\0b",
            " a",
            "a ",
            "a.",
            "format.json",
            "quarantine",
        ] {
            assert!(SessionName::new(bad).is_err(), "{bad:?}");
        }
        for good in [
            "a",
            "9f1c2a3e-0b6d-4e55-8f00-aa0000000001",
            "my session",
            "\u{65e5}\u{672c}",
            "com",
            "console",
        ] {
            assert_eq!(SessionName::new(good).unwrap().as_str(), good);
        }
        assert!(SessionName::new(&"x".repeat(129)).is_err());
    }

    #[test]
    fn sequence_numbers_have_one_text_form() {
        assert_eq!("0".parse(), Ok(Seq(0)));
        assert_eq!("17".parse(), Ok(Seq(17)));
        for bad in
            ["", "00", "01", "+1", "-1", " 1", "1 ", "9007199254740992", "99999999999999999999"]
        {
            assert_eq!(bad.parse::<Seq>(), Err(InvalidSeq), "{bad:?}");
        }
    }

    #[test]
    fn ids_have_one_text_form() {
        let id = OperationId::random();
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().len(), 32);
        assert!(
            id.to_string().to_uppercase().parse::<OperationId>().is_err()
                || id.to_string().bytes().all(|b| b.is_ascii_digit())
        );
        assert!("9f1c2a3e-0b6d-4e55-8f00-aa0000000001".parse::<OperationId>().is_err());
    }

    /// By the words of the format alone, apart from the code above.
    fn is_session_name(text: &str) -> bool {
        let folded = text.to_lowercase();
        let stem = folded.split('.').next().unwrap().trim_end();
        let is_port = |name: &str| {
            let digits =
                ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "\u{b9}", "\u{b2}", "\u{b3}"];
            digits.iter().any(|digit| stem == format!("{name}{digit}"))
        };
        let is_device = ["con", "prn", "aux", "nul", "conin$", "conout$"].contains(&stem)
            || is_port("com")
            || is_port("lpt");
        let is_own = "blobs packs index.db index.db-wal index.db-shm index.db.aside operations.jsonl \
                      workspaces journal leases locks tmp quarantine ballast format.json";
        (1..=128).contains(&text.len())
            && text.trim() == text
            && !text.trim().is_empty()
            && !text.ends_with('.')
            && !text.starts_with(['-', '.'])
            && !text.contains(|sign: char| sign.is_control() || "/\\:*?[]<>|\"@~".contains(sign))
            && !is_device
            && !is_own.split(' ').any(|own| folded == own)
    }

    fn any_name() -> impl Strategy<Value = String> {
        prop_oneof![
            1 => any::<String>(),
            4 => near_text(&[
                "9f1c2a3e-0b6d-4e55-8f00-aa0000000001", "my session", "CON.txt", "lpt\u{b9}", "Blobs",
                "operations.jsonl", "a.b", "\u{65e5}\u{672c}", "nul ", "conin$.x", "format.json",
                "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            ]),
        ]
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_session_name_is_what_the_format_says_and_reads_as_it_is_written(text in any_name()) {
            let name = SessionName::new(&text);
            let is_reserved_besides = text.to_lowercase().starts_with("index.db");
            prop_assert_eq!(name.is_ok(), is_session_name(&text) && !is_reserved_besides, "{:?}", text);
            if let Ok(name) = name {
                prop_assert_eq!(name.as_str(), &*text);
                prop_assert_eq!(name.as_str().parse(), Ok(name.clone()));
                assert_stays_inside(name.as_str().as_bytes());
                prop_assert!(!name.to_string().contains(char::is_control));
            }
        }

        #[test]
        fn numbers_and_ids_have_one_text_form_each(text in near_text(&[
            "0", "17", "9007199254740991", "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeeff", "{00112233445566778899aabbccddeeff}",
        ])) {
            if let Ok(seq) = text.parse::<Seq>() {
                prop_assert_eq!(seq.to_string(), &*text);
                prop_assert!(seq <= Seq::MAX);
            }
            if let Ok(id) = text.parse::<OperationId>() {
                prop_assert_eq!(id.to_string(), &*text);
                prop_assert_eq!(OperationId::from_bytes(id.to_bytes()), id);
            }
        }
    }
}
