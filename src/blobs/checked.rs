//! Frames whose content is compared with their names.

use std::io::{self, Read as _};

use crate::blobs::frame::{self, DecodeError};
use crate::blobs::pack::Section;
use crate::hash::{BlobHash, BlobHasher};

/// A frame up to this length is read at once.
const SHORT_FRAME_BYTES_MAX: u64 = 128 * 1024;

/// Decodes a frame and compares size and hash. The bytes go to `output` before they can all be compared.
pub(super) fn decode_checked(
    frame: &mut Section<'_>,
    hash: BlobHash,
    size: Option<u64>,
    output: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), DecodeError> {
    let unreadable = |error| DecodeError::Damaged(format!("it cannot be read: {error}"));
    // Most frames are short: one read gives the header too.
    let mut short = Vec::new();
    let mut in_memory: &[u8];
    let (declared, input): (_, &mut dyn io::Read) = if frame.left() <= SHORT_FRAME_BYTES_MAX {
        short.reserve_exact(usize::try_from(frame.left()).unwrap_or(0));
        frame.read_to_end(&mut short).map_err(unreadable)?;
        in_memory = &short;
        (frame::declared_size(&short[..short.len().min(frame::HEADER_BYTES_MAX)]), &mut in_memory)
    } else {
        (declared_size(frame), frame)
    };
    let declared = declared.map_err(DecodeError::Damaged)?;
    if let Some(size) = size
        && size != declared
    {
        return Err(DecodeError::Damaged(other_size(declared, size)));
    }
    let mut hasher = BlobHasher::default();
    frame::decode(input, declared, &mut |piece| {
        hasher.update(piece);
        output(piece)
    })?;
    let found = hasher.finish();
    if found != hash {
        return Err(DecodeError::Damaged(format!("its content has the hash {found}")));
    }
    Ok(())
}

/// Whether `bytes` is one frame whose content has that hash. Only for content short enough for a pack.
pub(crate) fn is_frame_of(bytes: &[u8], hash: BlobHash) -> bool {
    frame::decode_whole(bytes).is_some_and(|content| BlobHash::of(&content) == hash)
}

/// The size of the content that a frame declares, or what is wrong.
pub(super) fn declared_size(frame: &Section<'_>) -> Result<u64, String> {
    let mut header = [0; frame::HEADER_BYTES_MAX];
    let filled = frame.peek(&mut header).map_err(|error| format!("it cannot be read: {error}"))?;
    frame::declared_size(&header[..filled])
}

pub(super) fn other_size(declared: u64, expected: u64) -> String {
    format!("it declares {declared} bytes of content where {expected} are expected")
}
