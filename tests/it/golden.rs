//! The format to the byte: what an independent implementation in Python wrote
//! (`tests/reader/make_golden.py`), the crate must read, and write again the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use turnpoint::clock::Timestamp;
use turnpoint::hash::{BlobHash, Digest, cut_hash};
use turnpoint::limits;
use turnpoint::manifest::{
    Coverage, Entry, EntryKind, Listed, Manifest, Mode, OmitReason, Page, PageSource,
    ParsedManifest, RestoreVerb, Tracked, Tree, Trigger, build, decode, read_entries, validate,
};
use turnpoint::path::RelPath;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/format-1")
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&fs::read(data().join(name)).unwrap()).unwrap()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("{field} of {value}"))
}

fn tree(value: &Value) -> Tree {
    Tree {
        root: text(value, "root").parse().unwrap(),
        root_size: value["root_size"].as_u64().unwrap(),
        levels: u8::try_from(value["levels"].as_u64().unwrap()).unwrap(),
        entries: value["entries"].as_u64().unwrap(),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| String::from_utf8(pair.to_vec()).unwrap();
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(&digits(pair), 16).unwrap()).collect()
}

fn entry(value: &Value) -> Entry {
    let kind = match text(value, "kind") {
        "file" => EntryKind::File {
            size: value["size"].as_u64().unwrap(),
            mtime_ns: value["mtime_ns"].as_i64().unwrap(),
            hash: text(value, "hash").parse().unwrap(),
            unstable: value["unstable"].as_bool().unwrap_or(false),
        },
        "symlink" => EntryKind::Symlink { target: bytes(text(value, "target")).into() },
        "dir" if text(value, "listed") == "whole" => EntryKind::Dir { listed: Listed::Whole },
        "dir" => EntryKind::Dir { listed: Listed::Partial },
        "omitted" => EntryKind::Omitted {
            reason: reason(text(value, "reason")),
            rest: value["rest"].as_u64().unwrap_or(0),
        },
        "absent" => EntryKind::Absent,
        other => panic!("{other}"),
    };
    let mode = value["mode"].as_str().map_or(0, |mode| u32::from_str_radix(mode, 8).unwrap());
    let path = RelPath::new(bytes(text(value, "path"))).unwrap();
    Entry { path, mode: Mode::from_st_mode(mode), kind }
}

fn reason(word: &str) -> OmitReason {
    use OmitReason::{
        Excluded, Ignored, IoError, Mount, OverFileLimit, OverTotalLimit, Purged, Secret, Sparse,
        Special, Store, Unreadable,
    };
    match word {
        "excluded" => Excluded,
        "ignored" => Ignored,
        "secret" => Secret,
        "store" => Store,
        "mount" => Mount,
        "over-file-limit" => OverFileLimit,
        "over-total-limit" => OverTotalLimit,
        "unreadable" => Unreadable,
        "special" => Special,
        "sparse" => Sparse,
        "io-error" => IoError,
        "purged" => Purged,
        other => panic!("{other}"),
    }
}

/// The pages of the golden files.
struct Pages;

impl PageSource for Pages {
    fn page(&self, hash: BlobHash, size: u64) -> turnpoint::Result<Vec<u8>> {
        let text = fs::read(data().join("pages").join(hash.to_string())).unwrap();
        assert_eq!(text.len() as u64, size);
        assert_eq!(BlobHash::of(&text), hash);
        Ok(text)
    }
}

#[test]
fn the_golden_files_are_what_the_independent_program_writes() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reader/make_golden.py");
    let output = Command::new("python3").arg(script).arg("--check").output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn hashes_agree_on_every_path_through_the_algorithms() {
    let vectors = json("hashes.json");
    for vector in vectors.as_array().unwrap() {
        let length = usize::try_from(vector["length"].as_u64().unwrap()).unwrap();
        let content: Vec<u8> = (0..=250).cycle().take(length).collect();
        assert_eq!(BlobHash::of(&content).to_string(), text(vector, "blake3"), "{length}");
        assert_eq!(Digest::of(&content).to_string(), text(vector, "xxh3_128"), "{length}");
        for level in 0..3 {
            let expected = vector["xxh3_64"][usize::from(level)].as_str().unwrap();
            assert_eq!(format!("{:016x}", cut_hash(&content, level)), expected, "{length}");
        }
    }
}

#[test]
fn pages_are_written_and_read_to_the_byte() {
    let trees = json("trees.json");
    for (name, case) in trees.as_object().unwrap() {
        let entries: Vec<Entry> = case["entries"].as_array().unwrap().iter().map(entry).collect();
        let built = build(&entries);
        assert_eq!(built.tree, tree(&case["tree"]), "{name}");
        let names: Vec<String> =
            built.pages.iter().map(|page| page.reference.hash.to_string()).collect();
        assert_eq!(serde_json::to_value(&names).unwrap(), case["pages"], "{name}");
        for page in &built.pages {
            let golden = Pages.page(page.reference.hash, page.reference.size).unwrap();
            assert_eq!(String::from_utf8_lossy(&page.text), String::from_utf8_lossy(&golden));
        }
        assert_eq!(read_entries(&Pages, &built.tree).unwrap(), entries, "{name}");
    }
    let every_kind = read_entries(&Pages, &tree(&trees["every-kind"]["tree"])).unwrap();
    assert_eq!(validate(&every_kind), Ok(()));
}

#[test]
fn a_page_that_breaks_the_format_is_refused() {
    let trees = json("trees.json");
    let tree = tree(&trees["every-kind"]["tree"]);
    let page = &build(&read_entries(&Pages, &tree).unwrap()).pages[0];
    let text = String::from_utf8(page.text.clone()).unwrap();
    for (from, to) in [
        (r#""level":0"#, r#""level":1"#),
        (r#""mode":"0644""#, r#""mode":"644""#),
        (r#""kind":"file""#, r#""kind":"fifo""#),
        (r#""path":"empty""#, r#""path":"../empty""#),
        (r#""path":"empty""#, r#""path":"zzz""#),
        (r#""listed":"whole""#, r#""listed":"whole","extra":1"#),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert!(decode(changed.as_bytes(), 0).is_err(), "{to}");
    }
}

#[test]
fn lists_are_cut_where_the_independent_program_cuts_them() {
    let cuts = json("cuts.json");
    let paths = |count: usize| {
        let mut paths: Vec<RelPath> = (0..count)
            .map(|n| format!("packages/p{:03}/src/module_{:05}.rs", n / 20, n * 7919 % 100_000))
            .map(|path| RelPath::new(path.into_bytes()).unwrap())
            .collect();
        paths.sort();
        paths
    };
    let absent = |path: RelPath| Entry { path, mode: Mode::default(), kind: EntryKind::Absent };
    for list in cuts["lists"].as_array().unwrap() {
        let count = usize::try_from(list["count"].as_u64().unwrap()).unwrap();
        let built = build(&paths(count).into_iter().map(absent).collect::<Vec<_>>());
        let mut items = vec![Vec::new(); usize::from(built.tree.levels)];
        for page in &built.pages {
            items[usize::from(page.level)].push(match decode(&page.text, page.level).unwrap() {
                Page::Leaf(entries) => entries.len(),
                Page::Node { pages, .. } => pages.len(),
            });
        }
        assert_eq!(serde_json::to_value(&items).unwrap(), list["items"], "{count}");
        assert_eq!(built.tree, tree(list), "{count}");
    }
    let lengths = |paths: Vec<RelPath>| {
        let built = build(&paths.into_iter().map(absent).collect::<Vec<_>>());
        let leaves = built.pages.iter().filter(|page| page.level == 0);
        serde_json::to_value(leaves.map(|page| page.reference.entries).collect::<Vec<_>>()).unwrap()
    };
    let boundary =
        |path: &RelPath| cut_hash(path.as_bytes(), 0).is_multiple_of(limits::PAGE_ENTRIES_TARGET);
    let stubborn = paths(4000).into_iter().filter(|path| !boundary(path)).take(200).collect();
    assert_eq!(lengths(stubborn), cuts["no_boundary"]);
    let eager = paths(40_000).into_iter().filter(boundary).take(100).collect();
    assert_eq!(lengths(eager), cuts["all_boundaries"]);
}

#[test]
fn manifests_are_read_and_written_to_the_byte() {
    let read = |name: &str| {
        let text = fs::read(data().join(name)).unwrap();
        let Ok(ParsedManifest::Valid(manifest, digest)) = Manifest::decode(&text) else {
            panic!("{name}: {:?}", Manifest::decode(&text));
        };
        let (written, computed) = manifest.encode();
        assert_eq!(String::from_utf8(written).unwrap(), String::from_utf8(text).unwrap());
        assert_eq!(computed, digest);
        *manifest
    };
    let trees = json("trees.json");
    let minimal = read("manifest-minimal.json");
    assert_eq!(minimal.id.to_string(), "s:0");
    assert_eq!(minimal.trigger, Trigger::MANUAL);
    assert_eq!(minimal.coverage, Coverage::Full);
    assert_eq!((minimal.scope.tracked, minimal.complete), (Tracked::None, true));
    assert!(minimal.parent.is_none() && minimal.restore.is_none() && minimal.git.is_none());
    assert_eq!(minimal.tree, tree(&trees["every-kind"]["tree"]));
    let full = read("manifest-full.json");
    assert_eq!(full.id.to_string(), "A session \u{e9}:7");
    // 946684799 s is the last second of 1999.
    assert_eq!(full.created_at, Timestamp::from_ns(946_684_799_999_999_999));
    assert_eq!(full.root_path.as_os_str().as_encoded_bytes(), b"/w\xff");
    assert_eq!(full.coverage, Coverage::Hinted(vec!["src".to_owned(), "docs".to_owned()]));
    assert_eq!(full.counts.omitted.values().sum::<u64>(), 6);
    assert_eq!(full.parent.as_ref().unwrap().digest, Digest::of(b"parent"));
    let restore = full.restore.unwrap();
    assert_eq!(restore.verb, RestoreVerb::Undo);
    assert_eq!(
        (restore.target.id.seq.get(), restore.undoes.unwrap().id.session.as_str()),
        (3, "t")
    );
    assert_eq!(restore.after, tree(&trees["after-restore"]["tree"]));
}

#[test]
fn a_manifest_with_any_byte_changed_is_not_valid() {
    let text = fs::read(data().join("manifest-full.json")).unwrap();
    for at in 0..text.len() {
        let mut changed = text.clone();
        changed[at] ^= 1;
        let read = Manifest::decode(&changed);
        assert!(!matches!(read, Ok(ParsedManifest::Valid(..))), "byte {at}");
        assert!(Manifest::decode(&text[..at]).is_err(), "cut at {at}");
    }
}
