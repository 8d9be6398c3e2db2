//! Bytes that are nearly right, for the tests of everything that reads bytes.
//!
//! A reader is tried with noise, and with what a writer wrote after a few small changes: what a disk, a
//! torn write, another program or an enemy may leave. Where a checksum guards the inside, the test
//! makes it right again, or nothing but the checksum would be tried. Compiled for tests only.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A small change. Places are counted modulo the length of what is changed.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// One bit is another.
    Flip { at: usize, bit: u32 },
    /// Bytes come between.
    Insert { at: usize, bytes: Vec<u8> },
    /// Bytes take the place of as many.
    Overwrite { at: usize, bytes: Vec<u8> },
    /// Bytes are gone.
    Remove { at: usize, length: usize },
    /// All that follows is gone.
    Cut { at: usize },
    /// A part is there again, some times.
    Repeat { at: usize, length: usize, times: usize },
    /// The next number in digits is another.
    Number { at: usize, text: &'static str },
}

/// What readers have stumbled over: ends and separators, escapes, paths that lead out, and numbers
/// at their bounds, in digits and as they lie in memory.
const FRAGMENTS: [&[u8]; 24] = [
    b"\0",
    b"\xff",
    b"\n",
    b"\"",
    b",",
    b"{",
    b"}",
    b"[",
    b"]",
    b"/",
    b"..",
    b"../",
    b"null",
    b"true",
    b"\\u0000",
    b"\\ud800",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x01\0\0\0",
    b"\x00\x00\x01\x00\0\0\0\0",
    b"\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
];

const NUMBERS: [&str; 11] = [
    "0",
    "1",
    "2",
    "97",
    "9007199254740991",
    "9007199254740992",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "1e999",
    "007",
];

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len();
        let place = |at: usize| at % (length + 1);
        match self {
            Self::Flip { at, bit } => {
                if let Some(byte) = bytes.get_mut(place(*at)) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Insert { at, bytes: new } => {
                bytes.splice(place(*at)..place(*at), new.iter().copied());
            }
            Self::Overwrite { at, bytes: new } => {
                let at = place(*at);
                bytes.splice(at..length.min(at + new.len()), new.iter().copied());
            }
            Self::Remove { at, length: gone } => {
                let at = place(*at);
                bytes.drain(at..length.min(at + gone));
            }
            Self::Cut { at } => bytes.truncate(place(*at)),
            Self::Repeat { at, length: part, times } => {
                let at = place(*at);
                let part = bytes[at..length.min(at + part)].repeat(*times);
                bytes.splice(at..at, part);
            }
            Self::Number { at, text } => {
                let at = place(*at);
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let Some(start) = bytes[at..].iter().position(is_digit) else { return };
                let start = at + start;
                let digits = bytes[start..].iter().take_while(|byte| is_digit(byte)).count();
                bytes.splice(start..start + digits, text.bytes());
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let at = any::<usize>;
    let fragment =
        || prop_oneof![select(&FRAGMENTS[..]).prop_map(<[u8]>::to_vec), vec(any::<u8>(), 1..9),];
    prop_oneof![
        3 => (at(), 0..8_u32).prop_map(|(at, bit)| Change::Flip { at, bit }),
        2 => (at(), fragment()).prop_map(|(at, bytes)| Change::Insert { at, bytes }),
        3 => (at(), fragment()).prop_map(|(at, bytes)| Change::Overwrite { at, bytes }),
        2 => (at(), 1..40_usize).prop_map(|(at, length)| Change::Remove { at, length }),
        1 => at().prop_map(|at| Change::Cut { at }),
        2 => (at(), 1..60_usize, 1..40_usize)
            .prop_map(|(at, length, times)| Change::Repeat { at, length, times }),
        2 => (at(), select(&NUMBERS[..])).prop_map(|(at, text)| Change::Number { at, text }),
    ]
}

/// A few changes; now and then none.
pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    vec(change(), 0..4)
}

/// `bytes` after the changes, one after another.
pub(crate) fn changed(bytes: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for change in changes {
        change.apply(&mut bytes);
    }
    bytes
}

/// What `valid` gives, a little changed; now and then noise.
pub(crate) fn near(valid: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changed = |(bytes, changes): (Vec<u8>, Vec<Change>)| changed(&bytes, &changes);
    prop_oneof![
        1 => vec(any::<u8>(), 0..600),
        9 => (valid, changes()).prop_map(changed),
    ]
}

/// One of these, as bytes.
pub(crate) fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    select(texts).prop_map(|text| text.as_bytes().to_vec())
}

/// As [`near`], of texts.
pub(crate) fn near_text(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
    near(one_of(texts)).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// How the tests of readers are run: enough cases to meet each kind of change many times.
pub(crate) fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() }
}

/// Asserts that `path` leads nowhere but into the directory that it is relative to: worked out here,
/// apart from what made it.
#[track_caller]
pub(crate) fn assert_stays_inside(path: &[u8]) {
    assert!(path.len() <= 32 * 1024 && !path.contains(&0), "{path:?}");
    let components = path.split(|&byte| byte == b'/');
    let leads_on = |name: &[u8]| !name.is_empty() && name != b"." && name != b"..";
    assert!(path.is_empty() || components.into_iter().all(leads_on), "{path:?}");
}
