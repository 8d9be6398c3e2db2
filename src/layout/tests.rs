//! Files in the place of `format.json`.

use std::fs;

use proptest::prelude::*;

use super::*;
use crate::mutation::{config, near};

const GOOD: &str =
    r#"{"turnpoint_store":1,"id":"00112233445566778899aabbccddeeff","hash":"blake3"}"#;

thread_local! {
    static PLACE: tempfile::TempDir = tempfile::tempdir().unwrap();
}

/// What a store with this file is taken for.
fn read(text: &[u8]) -> Result<Option<StoreId>> {
    PLACE.with(|place| {
        let layout = Layout::new(place.path());
        fs::create_dir_all(layout.root()).unwrap();
        fs::write(layout.format_file(), text).unwrap();
        layout.read_format()
    })
}

proptest! {
    #![proptest_config(config())]

    /// It is this version's store, or the command stops; it is never taken for one that is yet to be made.
    #[test]
    fn no_bytes_in_the_place_of_the_format_do_harm(
        text in near(Just(GOOD.as_bytes().to_vec())),
    ) {
        match read(&text) {
            Ok(id) => {
                let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
                prop_assert_eq!(&value["turnpoint_store"], &serde_json::json!(1));
                prop_assert_eq!(&value["hash"], &serde_json::json!("blake3"));
                prop_assert_eq!(value["id"].as_str().map(str::to_owned), id.map(|id| id.to_string()));
            }
            Err(Error::StoreTooNew { found, .. }) => prop_assert!(found > LAYOUT),
            Err(Error::StoreForeign { .. } | Error::FormatDamaged { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn what_is_not_said_as_the_format_says_it_is_refused() {
    let kind = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        match read(GOOD.replacen(from, to, 1).as_bytes()) {
            Ok(Some(_)) => "this one",
            Ok(None) => "none",
            Err(Error::StoreTooNew { .. }) => "newer",
            Err(Error::StoreForeign { .. }) => "foreign",
            Err(Error::FormatDamaged { .. }) => "damaged",
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_eq!(kind("{", " {"), "this one");
    assert_eq!(kind(":1,", ":2,\"more\":[1],"), "newer");
    assert_eq!(kind(":1,", ":18446744073709551615,"), "newer");
    assert_eq!(kind(":1,", ":0,"), "foreign");
    assert_eq!(kind("blake3", "sha1"), "foreign");
    for (from, to) in [
        (":1,", ":-1,"),
        (":1,", ":18446744073709551616,"),
        (":1,", ":1,\"turnpoint_store\":1,"),
        (":1,", ":1,\"more\":1,"),
        ("00112233", "00112233-"),
        ("aabb", "AABB"),
        ("aabb", "\\u0000"),
        ("{", ""),
        ("}", ""),
        (GOOD, ""),
        (GOOD, "null"),
        (GOOD, &"[".repeat(100_000)),
    ] {
        assert_eq!(kind(from, to), "damaged", "{from} {to}");
    }
}
