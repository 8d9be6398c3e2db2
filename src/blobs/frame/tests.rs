//! Frames that are not as they were written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::mutation::{config, near};

/// Content that compresses well, not at all, and in several blocks.
fn any_content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..300),
        (vec(any::<u8>(), 1..40), 0..400_usize).prop_map(|(part, times)| part.repeat(times)),
        (any::<u8>(), 120_000..300_000_usize).prop_map(|(byte, times)| vec![byte; times]),
    ]
}

fn frame(content: &[u8]) -> Vec<u8> {
    compress(content, <[u8]>::to_vec).unwrap()
}

/// As [`decode`], and what was handed out.
fn decoded(bytes: &[u8], size: u64) -> (bool, Vec<u8>) {
    let mut content = Vec::new();
    let mut output = |piece: &[u8]| {
        content.extend_from_slice(piece);
        Ok(())
    };
    let is_good = match decode(&mut &*bytes, size, &mut output) {
        Ok(()) => true,
        Err(DecodeError::Damaged(_)) => false,
        Err(DecodeError::Output(error)) => panic!("{error}"),
    };
    (is_good, content)
}

/// Both ways of reading say the same, and neither gives more than was asked for.
#[track_caller]
fn assert_sound(bytes: &[u8], expected: u64) -> Option<Vec<u8>> {
    let whole = decode_whole(bytes);
    let declared = declared_size(bytes);
    if let Some(length) = length(bytes) {
        assert!((1..=bytes.len()).contains(&length));
    }
    for size in [Ok(expected), declared.clone(), Ok(0), Ok(u64::MAX)].into_iter().flatten() {
        let (is_good, content) = decoded(bytes, size);
        assert!(content.len() as u64 <= size);
        assert!(!is_good || content.len() as u64 == size);
        if is_good && declared == Ok(size) && length(bytes) == Some(bytes.len()) {
            assert_eq!(whole.as_ref(), Some(&content));
        }
    }
    if let Some(content) = &whole {
        assert_eq!(declared, Ok(content.len() as u64));
    }
    whole
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_frame_reads_as_it_was_written(content in any_content()) {
        let frame = frame(&content);
        let size = content.len() as u64;
        prop_assert_eq!(length(&frame), Some(frame.len()));
        prop_assert_eq!(decoded(&frame, size), (true, content.clone()));
        prop_assert!(!decoded(&frame, size + 1).0);
        prop_assert_eq!(assert_sound(&frame, size), Some(content));
    }

    #[test]
    fn no_bytes_in_the_place_of_a_frame_do_harm(
        bytes in near(any_content().prop_map(|content| frame(&content))),
        expected in 0..1_000_u64,
    ) {
        assert_sound(&bytes, expected);
    }
}

/// The header is made up here, by RFC 8878: what follows it cannot be what it says.
#[test]
fn a_length_in_a_header_reserves_nothing_that_is_not_there() {
    let magic = [0x28, 0xb5, 0x2f, 0xfd];
    // A content size of eight bytes, all in one segment; and one in a window of 2 GiB, and of 128 MiB.
    for (descriptor, window) in [(0xe0, &[][..]), (0xc0, &[0xa8]), (0xc0, &[0x88])] {
        for size in [9 << 20, 1 << 40, u64::MAX - 2, u64::MAX] {
            let header = [&magic[..], &[descriptor], window, &size.to_le_bytes()].concat();
            // An empty last block; a block of one byte repeated; nothing.
            for rest in [&[1, 0, 0][..], &[0x0b, 0, 0x10, b'x'], &[]] {
                let bytes = [&header, rest].concat();
                assert_eq!(assert_sound(&bytes, 100), None);
            }
        }
    }
    let bomb = frame(&vec![0; 9 << 20]);
    assert!(bomb.len() < 2_000 && decode_whole(&bomb).is_none());
    let (is_good, content) = decoded(&bomb, 1_000);
    assert!(!is_good && content.len() <= 1_000);
}
