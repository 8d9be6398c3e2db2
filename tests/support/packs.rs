//! Packs taken apart, by what `docs/format.md` says of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The store's packs, none where it is not made yet.
pub(crate) fn all(store: &Path) -> BTreeSet<PathBuf> {
    let packs = fs::read_dir(store.join("packs")).into_iter().flatten();
    packs.map(|pack| pack.unwrap().path()).collect()
}

/// Makes a loose blob of each frame in the store's packs, and removes these.
pub(crate) fn make_loose(store: &Path) {
    make_loose_of(store, &all(store));
}

/// The same with some of them.
pub(crate) fn make_loose_of(store: &Path, packs: &BTreeSet<PathBuf>) {
    for pack in packs {
        let bytes = fs::read(pack).unwrap();
        // A checksum, how many there are, a magic word.
        let names_end = bytes.len() - (16 + 4 + 8);
        let count = u32::from_le_bytes(*bytes[names_end + 16..].first_chunk().unwrap());
        let names = names_end - count as usize * (32 + 8 + 4);
        for name in bytes[names..names_end].chunks(32 + 8 + 4) {
            let hash = blake3::Hash::from_bytes(*name.first_chunk().unwrap()).to_string();
            let offset = u64::from_le_bytes(*name[32..].first_chunk().unwrap());
            let length = u32::from_le_bytes(*name[40..].first_chunk().unwrap());
            let frame = &bytes[usize::try_from(offset).unwrap()..][..length as usize];
            fs::write(store.join("blobs").join(hash.split_at(2).0).join(&hash), frame).unwrap();
        }
        fs::remove_file(pack).unwrap();
    }
}
