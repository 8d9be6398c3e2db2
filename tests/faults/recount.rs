//! What the manifests of a store need, counted from manifests, pages and packs alone, by the description
//! of the format. The index only repeats it, and is compared with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Seek, Write};
use std::ops::Range;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Deserializer, Value};

use crate::kills::three_turns;
use crate::support::program::run;

/// How often each blob is named: content by entries, a page once.
type Counts = BTreeMap<String, u64>;

/// Everything that a manifest needs is there, loose or in a pack; nothing else is loose; and the index
/// counts as the pages do. Nobody is at work, and a collection has ended what is dead.
pub(crate) fn assert_counted(store: &Path, what: &str) {
    let packs = packs(store);
    let counts = count(store, &packs, what);
    let loose = loose(store);
    for name in counts.keys() {
        let is_there =
            loose.contains_key(name) || packs.iter().any(|it| it.frames.contains_key(name));
        assert!(is_there, "{what}: {name} is needed and nowhere");
    }
    for name in loose.keys() {
        assert!(counts.contains_key(name), "{what}: nobody needs {name}");
    }
    let question = "SELECT lower(hex(hash)), refs FROM blobs WHERE refs <> 0 ORDER BY hash";
    let mut sqlite = Command::new("sqlite3");
    let answer = run(sqlite.arg("-readonly").arg(store.join("index.db")).arg(question)).ok().stdout;
    let answer: BTreeSet<&str> = answer.lines().collect();
    let expected: Vec<String> = counts.iter().map(|it| format!("{}|{}", it.0, it.1)).collect();
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    let differ: Vec<_> = answer.symmetric_difference(&expected).collect();
    assert!(differ.is_empty(), "{what}: the index and the pages count otherwise: {differ:#?}");
}

fn count(store: &Path, packs: &[Pack], what: &str) -> Counts {
    let mut counts = Counts::new();
    let mut wanted = roots(store);
    while !wanted.is_empty() {
        let names: Vec<String> = std::mem::take(&mut wanted).into_iter().collect();
        let pages = unpacked(names.iter().map(|name| frame(store, packs, name, what)));
        assert_eq!(pages.len(), names.len(), "{what}");
        for (name, page) in names.into_iter().zip(pages) {
            *counts.entry(name).or_default() += 1;
            for entry in page["entries"].as_array().into_iter().flatten() {
                if entry["kind"] == "file" {
                    *counts.entry(text(&entry["hash"])).or_default() += 1;
                }
            }
            let below = page["pages"].as_array().into_iter().flatten();
            wanted.extend(below.map(|page| text(&page["hash"])));
        }
        // A page that another one has named already was counted with all below it.
        wanted.retain(|name| !counts.contains_key(name));
    }
    counts
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The root pages of all manifests, and of what restores leave.
fn roots(store: &Path) -> BTreeSet<String> {
    let mut roots = BTreeSet::new();
    for directory in fs::read_dir(store).unwrap().map(|it| it.unwrap().path()) {
        for path in files_in(&directory) {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if path.extension().is_some_and(|end| end == "json") && stem.parse::<u64>().is_ok() {
                let manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                roots.insert(text(&manifest["root"]));
                roots.extend(manifest["restore"]["after"]["root"].as_str().map(str::to_owned));
            }
        }
    }
    roots
}

fn files_in(directory: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(directory).into_iter().flatten();
    names.map(|name| name.unwrap().path()).filter(|path| path.is_file()).collect()
}

/// The blobs that are a file each.
fn loose(store: &Path) -> BTreeMap<String, PathBuf> {
    let shards = fs::read_dir(store.join("blobs")).unwrap();
    let files = shards.flat_map(|shard| files_in(&shard.unwrap().path()));
    files.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path)).collect()
}

/// A pack, and where in it each blob is.
struct Pack {
    bytes: Vec<u8>,
    frames: BTreeMap<String, Range<usize>>,
}

fn packs(store: &Path) -> Vec<Pack> {
    files_in(&store.join("packs")).iter().map(|path| pack(fs::read(path).unwrap())).collect()
}

/// Reads the trailer: at its end `n`, before that a checksum, and before that `n` rows of 44 bytes.
fn pack(bytes: Vec<u8>) -> Pack {
    let number = |at: usize, length: usize| {
        bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let end = bytes.len();
    assert!(bytes.ends_with(b"tppack01"));
    let count = number(end - 12, 4);
    let row = |nth: usize| {
        let at = end - 28 - 44 * (count - nth);
        let hash = blake3::Hash::from_slice(&bytes[at..at + 32]).unwrap();
        let offset = number(at + 32, 8);
        (hash.to_hex().to_string(), offset..offset + number(at + 40, 4))
    };
    let frames = (0..count).map(row).collect();
    Pack { bytes, frames }
}

/// The frame of a blob, from wherever it is.
fn frame(store: &Path, packs: &[Pack], name: &str, what: &str) -> Vec<u8> {
    let packed =
        packs.iter().find_map(|pack| Some(pack.bytes[pack.frames.get(name)?.clone()].to_vec()));
    packed.unwrap_or_else(|| {
        let path = store.join("blobs").join(name.split_at(2).0).join(name);
        fs::read(path).unwrap_or_else(|error| panic!("{what}: page {name}: {error}"))
    })
}

/// JSON texts, unpacked by `zstd`.
fn unpacked(frames: impl Iterator<Item = Vec<u8>>) -> Vec<Value> {
    let mut input = tempfile::tempfile().unwrap();
    frames.for_each(|frame| input.write_all(&frame).unwrap());
    input.rewind().unwrap();
    let output = Command::new("zstd").arg("-dcq").stdin(input).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_count_that_is_wrong_is_noticed() {
    let mut scene = three_turns();
    let mut saved = scene.save();
    let store = scene.program.store();
    let notices = |what: &str| catch_unwind(|| assert_counted(&store, what)).is_err();
    for change in ["refs = refs + 1", "refs = 0, zero_since_ns = 1"] {
        assert!(!notices("as it was"));
        let statement = format!("UPDATE blobs SET {change} WHERE refs = 1");
        run(Command::new("sqlite3").arg(store.join("index.db")).arg(statement)).ok();
        assert!(notices(change));
        scene.put_back(&mut saved);
    }
    let stray = store.join("blobs/00").join("0".repeat(64));
    fs::write(&stray, "stray").unwrap();
    assert!(notices("a blob that nobody needs"));
    fs::remove_file(stray).unwrap();
    assert!(!notices("as it was"));
    let (_, needed) = loose(&store).pop_first().unwrap();
    fs::remove_file(needed).unwrap();
    assert!(notices("a blob that is not there"));
}
