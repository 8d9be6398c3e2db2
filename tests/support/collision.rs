//! Pairs of different files with one XXH3-128. What names content must tell them apart: dedup by
//! XXH3 would keep the first file's bytes and restore them in the place of the second.
//!
//! XXH3 multiplies the input, combined with a public secret, word by word. Where one factor is made
//! zero the other does not matter, and the plain sums that are added beside the products can be kept
//! equal.

/// The first words of XXH3's default secret, little-endian.
const SECRET: [u64; 2] = [0xbe4b_a423_396c_feb8, 0x1cad_21f7_2c81_017c];

/// Two different files of the same size.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) first: Vec<u8>,
    pub(crate) second: Vec<u8>,
}

/// A pair of 32, or of 64 to 240, bytes: in between the windows of the hash overlap.
pub(crate) fn short(size: usize) -> Pair {
    assert!(size == 32 || (64..=240).contains(&size));
    let rest = filling(size - 16);
    let other = 0x6574_6f6e_6e61_6321_u64;
    // (s0, x): the first factor is zero. (s0 + x - s1, s1): the second is. The sums agree.
    let with = |words: [u64; 2]| {
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        bytes.extend_from_slice(&rest);
        bytes
    };
    Pair {
        first: with([SECRET[0], other]),
        second: with([SECRET[0].wrapping_add(other).wrapping_sub(SECRET[1]), SECRET[1]]),
    }
}

/// A pair of any size above 1,024 bytes.
pub(crate) fn long(size: usize) -> Pair {
    assert!(size > 1024);
    // The same lane of the first two stripes, whose secrets are one word apart: with the low half of
    // each product's factors zero the high half counts only in a sum, and so can move between them.
    let with = |high: [u32; 2]| {
        let mut bytes = filling(size);
        for (stripe, high) in high.into_iter().enumerate() {
            let low = SECRET[stripe] & 0xffff_ffff;
            let word = u64::from(high) << 32 | low;
            bytes[stripe * 64..stripe * 64 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    };
    Pair { first: with([0x6161_6161, 0x7a7a_7a7a]), second: with([0x6262_6262, 0x7979_7979]) }
}

fn filling(size: usize) -> Vec<u8> {
    b"the rest of the file is the same in both of them\n"
        .iter()
        .copied()
        .cycle()
        .take(size)
        .collect()
}
