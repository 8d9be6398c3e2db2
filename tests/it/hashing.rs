//! Names of content hold against files made to collide.

use turnpoint::hash::{BlobHash, Digest};

use crate::support::collision::{Pair, long, short};

#[test]
fn blob_names_differ_where_the_fast_checksum_collides() {
    let short = [32, 64, 100, 128, 129, 160, 200, 240].map(short);
    let long = [1025, 4096, 100_000].map(long);
    for Pair { first, second } in short.into_iter().chain(long) {
        let size = first.len();
        assert_eq!(first.len(), second.len());
        assert_ne!(first, second);
        assert_eq!(Digest::of(&first), Digest::of(&second), "{size} bytes should collide");
        assert_ne!(BlobHash::of(&first), BlobHash::of(&second), "{size} bytes");
    }
}
