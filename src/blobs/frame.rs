//! zstd frames: one blob's content, compressed.
//!
//! Contexts and buffers belong to the thread and are used again: making them costs more than
//! compressing a small file.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io::{self, Read, Write};

use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd::zstd_safe::{
    CCtx, CParameter, DCtx, InBuffer, OutBuffer, ResetDirective, compress_bound,
    find_frame_compressed_size, get_error_name, get_frame_content_size,
};

use crate::limits;

/// How hard to try: the fastest of the usual levels. Restores do not depend on it.
const LEVEL: i32 = 1;

/// No frame header is longer (RFC 8878, section 3.1.1: magic, descriptor, window, dictionary, size).
pub(super) const HEADER_BYTES_MAX: usize = 18;

/// How much is read, or decoded, at one time.
const PIECE_BYTES: usize = 128 * 1024;

/// A thread keeps a compressed frame's buffer for the next one if it is not larger than this.
const KEPT_BUFFER_BYTES_MAX: usize = 1024 * 1024;

thread_local! {
    static COMPRESSOR: Cell<Option<Compressor>> = const { Cell::new(None) };
    static DECOMPRESSOR: Cell<Option<Decompressor>> = const { Cell::new(None) };
}

struct Compressor {
    context: CCtx<'static>,
    buffer: Vec<u8>,
}

impl Compressor {
    /// This thread's compressor, or a new one where it is in use further up the stack.
    fn take() -> io::Result<Self> {
        if let Some(compressor) = COMPRESSOR.take() {
            return Ok(compressor);
        }
        let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::ContentSizeFlag(true),
            CParameter::ChecksumFlag(true),
        ] {
            context.set_parameter(parameter).map_err(zstd_error)?;
        }
        Ok(Self { context, buffer: Vec::new() })
    }

    fn give_back(mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BUFFER_BYTES_MAX);
        COMPRESSOR.set(Some(self));
    }
}

struct Decompressor {
    context: DCtx<'static>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Decompressor {
    fn take() -> io::Result<Self> {
        if let Some(decompressor) = DECOMPRESSOR.take() {
            return Ok(decompressor);
        }
        let context = DCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { context, input: vec![0; PIECE_BYTES], output: Vec::with_capacity(PIECE_BYTES) })
    }

    fn give_back(self) {
        DECOMPRESSOR.set(Some(self));
    }
}

fn zstd_error(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

/// Compresses `content` to one frame and hands it to `then`.
pub(super) fn compress<T>(content: &[u8], then: impl FnOnce(&[u8]) -> T) -> io::Result<T> {
    let mut compressor = Compressor::take()?;
    compressor.buffer.clear();
    compressor.buffer.reserve(compress_bound(content.len()));
    compressor.context.compress2(&mut compressor.buffer, content).map_err(zstd_error)?;
    let outcome = then(&compressor.buffer);
    compressor.give_back();
    Ok(outcome)
}

/// Compresses content of a known size that comes in pieces to one frame.
pub(super) struct Encoder {
    compressor: Compressor,
    written_bytes: u64,
}

impl Encoder {
    /// `size` is the sum of all the pieces' lengths, which the caller keeps to.
    pub(super) fn begin(size: u64) -> io::Result<Self> {
        let mut compressor = Compressor::take()?;
        compressor.context.reset(ResetDirective::SessionOnly).map_err(zstd_error)?;
        compressor.context.set_pledged_src_size(Some(size)).map_err(zstd_error)?;
        compressor.buffer.clear();
        compressor.buffer.reserve(PIECE_BYTES);
        Ok(Self { compressor, written_bytes: 0 })
    }

    pub(super) fn push(&mut self, piece: &[u8], output: &mut dyn Write) -> io::Result<()> {
        let mut input = InBuffer::around(piece);
        while input.pos() < piece.len() {
            self.step(&mut input, ZSTD_EndDirective::ZSTD_e_continue, output)?;
        }
        Ok(())
    }

    /// Ends the frame and returns its length.
    pub(super) fn finish(mut self, output: &mut dyn Write) -> io::Result<u64> {
        let mut input = InBuffer::around(&[]);
        while self.step(&mut input, ZSTD_EndDirective::ZSTD_e_end, output)? > 0 {}
        self.compressor.give_back();
        Ok(self.written_bytes)
    }

    fn step(
        &mut self,
        input: &mut InBuffer<'_>,
        directive: ZSTD_EndDirective,
        output: &mut dyn Write,
    ) -> io::Result<usize> {
        let Compressor { context, buffer } = &mut self.compressor;
        buffer.clear();
        let mut into = OutBuffer::around(buffer);
        let left = context.compress_stream2(&mut into, input, directive).map_err(zstd_error)?;
        output.write_all(buffer)?;
        self.written_bytes += buffer.len() as u64;
        Ok(left)
    }
}

/// The size of the content that a frame's header declares, or what is wrong with the header.
pub(super) fn declared_size(header: &[u8]) -> Result<u64, String> {
    match get_frame_content_size(header) {
        Ok(Some(size)) => Ok(size),
        Ok(None) => Err("its frame does not declare the size of the content".to_owned()),
        Err(_) => Err("it does not begin with a zstd frame".to_owned()),
    }
}

/// How long the frame at the beginning of `bytes` is; `None` where there is no whole one.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    find_frame_compressed_size(bytes).ok()
}

/// The content of a frame that is in memory; `None` where it is not one good frame that declares its
/// size, or where that is more than a pack's blobs have.
pub(super) fn decode_whole(frame: &[u8]) -> Option<Vec<u8>> {
    let size = declared_size(frame).ok()?;
    if size > limits::FILE_IN_MEMORY_BYTES_MAX {
        return None;
    }
    let mut content = Vec::with_capacity(usize::try_from(size).ok()?);
    let mut decompressor = Decompressor::take().ok()?;
    let decoded = decompressor.context.decompress(&mut content, frame);
    decompressor.give_back();
    decoded.is_ok_and(|length| length as u64 == size).then_some(content)
}

/// Why a frame could not be decoded.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The file cannot be read, or is not exactly one good frame of the size expected.
    Damaged(String),
    /// The receiver refused the bytes, or there is no memory.
    Output(io::Error),
}

/// Decodes the one frame that `input` holds and hands its content, `size` bytes, to `output` piece by
/// piece. Never more than `size` bytes are handed out, whatever the frame holds.
pub(super) fn decode(
    input: &mut dyn Read,
    size: u64,
    output: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), DecodeError> {
    let mut decompressor = Decompressor::take().map_err(DecodeError::Output)?;
    let reset = decompressor.context.reset(ResetDirective::SessionOnly);
    reset.map_err(|code| DecodeError::Output(zstd_error(code)))?;
    let decoded = decode_with(&mut decompressor, input, size, output);
    decompressor.give_back();
    decoded
}

fn decode_with(
    decompressor: &mut Decompressor,
    file: &mut dyn Read,
    size: u64,
    output: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> Result<(), DecodeError> {
    let damaged = |reason: String| Err(DecodeError::Damaged(reason));
    let Decompressor { context, input, output: decoded } = decompressor;
    let mut left = size;
    let mut ended = false;
    loop {
        let filled = match file.read(input) {
            Ok(0) if !ended => return damaged("its file ends within the frame".to_owned()),
            Ok(0) if left > 0 => return damaged(format!("it lacks {left} bytes of its content")),
            Ok(0) => return Ok(()),
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return damaged(format!("it cannot be read: {error}")),
        };
        let mut piece = InBuffer::around(&input[..filled]);
        let mut more_to_come = false;
        while piece.pos() < filled || more_to_come {
            if ended {
                return damaged("something follows its frame".to_owned());
            }
            decoded.clear();
            let hint = match context.decompress_stream(&mut OutBuffer::around(decoded), &mut piece)
            {
                Ok(hint) => hint,
                Err(code) => return damaged(get_error_name(code).to_lowercase()),
            };
            match left.checked_sub(decoded.len() as u64) {
                Some(rest) => left = rest,
                None => return damaged(format!("it holds more than {size} bytes of content")),
            }
            output(decoded).map_err(DecodeError::Output)?;
            ended = hint == 0;
            // A full buffer may have left decoded bytes behind.
            more_to_come = !ended && decoded.len() == decoded.capacity();
        }
    }
}
