//! Content names and checksums.
//!
//! Two hashes, two jobs. [`BlobHash`] (BLAKE3) names content: it decides identity, so it must hold
//! against inputs made on purpose. [`Digest`] and [`cut_hash`] (XXH3) find accidental damage and
//! page boundaries, where no stranger's bytes decide identity. `blake3` and `xxhash_rust` are used
//! here and nowhere else.

use std::fmt;
use std::str::FromStr;

/// BLAKE3 of the raw bytes of a file or a page; its name in the store. Written as 64 lower-case hex
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobHash([u8; 32]);

impl BlobHash {
    /// The hash of `bytes`. Cost: one pass.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The 32 raw bytes, as the index stores them.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 raw bytes, as the index stores them.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Content with its hash, which cannot be another's: it is computed here.
#[derive(Debug)]
pub(crate) struct Hashed<T> {
    content: T,
    hash: BlobHash,
}

impl<T: AsRef<[u8]>> Hashed<T> {
    /// Hashes `content`. Cost: one pass.
    pub(crate) fn new(content: T) -> Self {
        let hash = BlobHash::of(content.as_ref());
        Self { content, hash }
    }

    /// The content.
    pub(crate) fn content(&self) -> &[u8] {
        self.content.as_ref()
    }

    /// Its hash.
    pub(crate) fn hash(&self) -> BlobHash {
        self.hash
    }

    /// The content back.
    pub(crate) fn into_content(self) -> T {
        self.content
    }
}

/// Computes a [`BlobHash`] over content that comes in pieces.
#[derive(Debug, Default)]
pub struct BlobHasher(blake3::Hasher);

impl BlobHasher {
    /// Adds the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all pieces in order.
    pub fn finish(&self) -> BlobHash {
        BlobHash(*self.0.finalize().as_bytes())
    }
}

impl fmt::Display for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for BlobHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

/// Text that is not the hex form of a hash of the expected length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a hash: {expected_digits} lower-case hex digits are expected")]
pub struct InvalidHash {
    /// How many digits the text should have had.
    pub expected_digits: usize,
}

impl FromStr for BlobHash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        read_hex(text).map(Self)
    }
}

/// XXH3-128 of a text: a checksum against accidental damage, never an identity. Written as 32
/// lower-case hex digits, most significant first.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(u128);

impl Digest {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(bytes))
    }

    /// The 16 raw bytes, most significant first, as the index stores them.
    pub const fn to_bytes(self) -> [u8; 16] {
        // Written most significant first because it is also the order of the hex digits.
        #[expect(clippy::big_endian_bytes, reason = "the order of the digits in the text form")]
        self.0.to_be_bytes()
    }

    /// The reverse of [`Digest::to_bytes`].
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        #[expect(clippy::big_endian_bytes, reason = "the order of the digits in the text form")]
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.to_bytes())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.to_bytes())
    }
}

impl FromStr for Digest {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        read_hex(text).map(Self::from_bytes)
    }
}

/// The number that decides whether a page begins at `path` on `level` (0 for entries, 1 for pages of
/// entries, and so on): XXH3-64 of the path's bytes, seeded with the level, so that the boundaries
/// of one level say nothing about those of the next.
pub fn cut_hash(path: &[u8], level: u8) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(path, u64::from(level))
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [0u8; 64];
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    f.pad(std::str::from_utf8(&text[..bytes.len() * 2]).unwrap_or_default())
}

fn read_hex<const N: usize>(text: &str) -> Result<[u8; N], InvalidHash> {
    let invalid = InvalidHash { expected_digits: N * 2 };
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return Err(invalid);
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(invalid),
    };
    let mut bytes = [0u8; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip_and_refuse_anything_else() {
        let hash = BlobHash::of(b"turnpoint");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(Digest::from_bytes(Digest::of(b"x").to_bytes()), Digest::of(b"x"));
        assert_eq!(Digest::of(b"x").to_string().parse(), Ok(Digest::of(b"x")));
        for bad in ["", "abc", &hash.to_string().to_uppercase(), &format!("{hash}0")] {
            assert!(bad.parse::<BlobHash>().is_err(), "{bad}");
        }
    }

    #[test]
    fn pieces_hash_like_the_whole() {
        let mut hasher = BlobHasher::default();
        hasher.update(b"turn");
        hasher.update(b"point");
        assert_eq!(hasher.finish(), BlobHash::of(b"turnpoint"));
    }
}
