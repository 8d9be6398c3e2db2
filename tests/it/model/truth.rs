//! The store read without the library: manifests and pages as JSON through `zstd -dc`, packs by a
//! parser of their trailers made from the description of the format, the index through `sqlite3`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{Seek, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use base64::Engine as _;
use serde_json::Value;

use super::oracle::{Then, Thens};
use crate::support::fingerprint::{Kind, Node};

/// Session and number.
pub(crate) type Id = (String, u64);

/// What manifests and pages say.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    pub(crate) checkpoints: BTreeMap<Id, Thens>,
    /// How often each page is named by pages and manifests.
    pub(crate) page_references: BTreeMap<String, u64>,
    /// How often each blob is named: content by entries, pages once.
    pub(crate) references: BTreeMap<String, u64>,
}

/// Reads every manifest with all its pages and contents. Fails where anything is missing or is not
/// what its name says.
pub(crate) fn read(store: &Path) -> Truth {
    let mut truth = Truth::default();
    let mut manifests = Vec::new();
    let packs = packs(store);
    let mut pages: BTreeMap<String, Value> = BTreeMap::new();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for (id, manifest) in manifests_in(store) {
        let mut roots = vec![hash_of(&manifest["root"])];
        if !manifest["restore"].is_null() {
            roots.push(hash_of(&manifest["restore"]["after"]["root"]));
        }
        for root in &roots {
            *truth.page_references.entry(root.clone()).or_default() += 1;
        }
        wanted.extend(roots.iter().cloned());
        manifests.push((id, roots.swap_remove(0)));
    }
    while !wanted.is_empty() {
        let hashes = every_copy(store, &packs, std::mem::take(&mut wanted));
        let text = decompress(&hashes);
        let values: Vec<Value> = serde_json::Deserializer::from_slice(&text)
            .into_iter::<Value>()
            .map(Result::unwrap)
            .collect();
        assert_eq!(values.len(), hashes.len());
        for ((hash, _), page) in hashes.into_iter().zip(values) {
            // The other copies of a page that was taken.
            if let Some(taken) = pages.get(&hash) {
                assert_eq!(*taken, page);
                continue;
            }
            for child in page["pages"].as_array().into_iter().flatten() {
                let child = hash_of(&child["hash"]);
                *truth.page_references.entry(child.clone()).or_default() += 1;
                wanted.insert(child);
            }
            *truth.references.entry(hash.clone()).or_default() += 1;
            pages.insert(hash, page);
        }
        wanted.retain(|hash| !pages.contains_key(hash));
    }
    check_contents(store, &packs, &pages, &mut truth.references);
    for (id, root) in manifests {
        let mut thens = Thens::new();
        collect(&pages, &root, &mut thens);
        truth.checkpoints.insert(id, thens);
    }
    truth
}

fn manifests_in(store: &Path) -> Vec<(Id, Value)> {
    let mut found = Vec::new();
    for directory in fs::read_dir(store).unwrap().map(Result::unwrap) {
        if !directory.path().join("session.json").exists() && !directory.path().is_dir() {
            continue;
        }
        let session = directory.file_name().into_string().unwrap();
        for file in fs::read_dir(directory.path()).unwrap().map(Result::unwrap) {
            let name = file.file_name().into_string().unwrap();
            let seq = name.strip_suffix(".json").and_then(|stem| stem.parse().ok());
            if let Some(seq) = seq {
                let value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
                found.push(((session.clone(), seq), value));
            }
        }
    }
    found
}

fn hash_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn blob(store: &Path, hash: &str) -> PathBuf {
    store.join("blobs").join(hash.get(..2).unwrap()).join(hash)
}

/// A pack, as its trailer describes it.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    /// Where the frame of each blob is.
    pub(crate) frames: BTreeMap<String, Range<usize>>,
    modified: SystemTime,
}

/// Every pack, the oldest first. Fails where one is not as the format says.
pub(crate) fn packs(store: &Path) -> Vec<Pack> {
    let mut packs: Vec<Pack> = packs_on_disk(store).into_iter().map(read_pack).collect();
    packs.sort_by(|a, b| (a.modified, &a.path).cmp(&(b.modified, &b.path)));
    packs
}

fn read_pack(path: PathBuf) -> Pack {
    let bytes = fs::read(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let number = |at: Range<usize>| {
        let digits = bytes[at].iter().rev();
        digits.fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let end = bytes.len();
    assert_eq!(&bytes[end - 8..], b"tppack01");
    let count = number(end - 12..end - 8);
    let trailer = end - 8 - (1024 + 44 * count + 28);
    assert_eq!(bytes[trailer..trailer + 4], [0x5e, 0x2a, 0x4d, 0x18]);
    assert_eq!(number(trailer + 4..trailer + 8), 1024 + 44 * count + 28);
    let (table, names) = (trailer + 8, trailer + 8 + 1024);
    let checksum = xxhash_rust::xxh3::xxh3_128(&bytes[table..names + 44 * count]);
    let digits = bytes[end - 28..end - 12].iter();
    assert_eq!(digits.fold(0, |number, byte| number << 8 | u128::from(*byte)), checksum);
    let named: Vec<(&[u8], Range<usize>)> = (0..count)
        .map(|nth| names + 44 * nth)
        .map(|at| {
            let offset = number(at + 32..at + 40);
            (&bytes[at..at + 32], offset..offset + number(at + 40..at + 44))
        })
        .collect();
    assert!(named.is_sorted_by(|a, b| a.0 < b.0), "{}", path.display());
    for first in 0..256 {
        let most = named.iter().filter(|(hash, _)| usize::from(hash[0]) <= first).count();
        assert_eq!(number(table + 4 * first..table + 4 * first + 4), most);
    }
    // Frames, one after another, and nothing else before the trailer.
    let mut places: Vec<Range<usize>> = named.iter().map(|(_, place)| place.clone()).collect();
    places.sort_by_key(|place| place.start);
    let covered = places.iter().fold(0, |before, place| {
        assert!(place.start == before && !place.is_empty());
        place.end
    });
    assert_eq!(covered, trailer);
    let hex = |hash: &[u8]| blake3::Hash::from_slice(hash).unwrap().to_hex().to_string();
    let frames = named.iter().map(|(hash, place)| (hex(hash), place.clone())).collect();
    Pack { path, bytes, frames, modified }
}

/// The frames of some blobs in all places where they are. Fails where one is nowhere.
fn every_copy(
    store: &Path,
    packs: &[Pack],
    hashes: impl IntoIterator<Item = String>,
) -> Vec<(String, Vec<u8>)> {
    let mut copies = Vec::new();
    for hash in hashes {
        let loose = fs::read(blob(store, &hash)).ok();
        let packed = packs.iter().filter_map(|pack| {
            let place = pack.frames.get(&hash)?;
            Some(pack.bytes[place.clone()].to_vec())
        });
        let before = copies.len();
        copies.extend(loose.into_iter().chain(packed).map(|frame| (hash.clone(), frame)));
        assert!(copies.len() > before, "{hash} is nowhere");
    }
    copies
}

fn decompress(frames: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut input = tempfile::tempfile().unwrap();
    for (_, frame) in frames {
        input.write_all(frame).unwrap();
    }
    input.rewind().unwrap();
    let output = Command::new("zstd").arg("-dcq").stdin(input).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Counts what the entries name, and compares each content with its name.
fn check_contents(
    store: &Path,
    packs: &[Pack],
    pages: &BTreeMap<String, Value>,
    references: &mut BTreeMap<String, u64>,
) {
    let mut contents: BTreeMap<String, usize> = BTreeMap::new();
    for entry in pages.values().flat_map(|page| page["entries"].as_array().into_iter().flatten()) {
        if entry["kind"] == "file" {
            let hash = hash_of(&entry["hash"]);
            *references.entry(hash.clone()).or_default() += 1;
            contents.insert(hash, usize::try_from(entry["size"].as_u64().unwrap()).unwrap());
        }
    }
    if contents.is_empty() {
        return;
    }
    let copies = every_copy(store, packs, contents.keys().cloned());
    let bytes = decompress(&copies);
    let mut rest = &bytes[..];
    for (hash, _) in copies {
        let (content, after) = rest.split_at(contents[&hash]);
        assert_eq!(blake3::hash(content).to_hex().as_str(), hash);
        rest = after;
    }
    assert!(rest.is_empty());
}

fn collect(pages: &BTreeMap<String, Value>, hash: &str, thens: &mut Thens) {
    let page = &pages[hash];
    for child in page["pages"].as_array().into_iter().flatten() {
        collect(pages, child["hash"].as_str().unwrap(), thens);
    }
    for entry in page["entries"].as_array().into_iter().flatten() {
        thens.insert(text_or_bytes(entry, "path"), then(entry));
    }
}

fn text_or_bytes(entry: &Value, field: &str) -> PathBuf {
    if let Some(text) = entry[field].as_str() {
        return PathBuf::from(text);
    }
    let bytes = entry[format!("{field}_bytes")].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).unwrap();
    PathBuf::from(OsStr::from_bytes(&bytes))
}

fn then(entry: &Value) -> Then {
    let mode = entry["mode"].as_str().map_or(0o777, |mode| u32::from_str_radix(mode, 8).unwrap());
    let kind = match entry["kind"].as_str().unwrap() {
        "file" => {
            let content = blake3::Hash::from_hex(entry["hash"].as_str().unwrap()).unwrap();
            Kind::File { size: entry["size"].as_u64().unwrap(), content }
        }
        "symlink" => Kind::Link { target: text_or_bytes(entry, "target") },
        "dir" => return Then::Dir { mode, whole: entry["listed"] == "whole" },
        "omitted" => return Then::Omitted(entry["reason"].as_str().unwrap().to_owned()),
        other => panic!("{other}"),
    };
    Then::Held(Node { kind, mode, stamps: None })
}

/// The files of the blobs that have one of their own.
pub(crate) fn blobs_on_disk(store: &Path) -> Vec<PathBuf> {
    let shards = fs::read_dir(store.join("blobs")).unwrap().map(|shard| shard.unwrap().path());
    shards.flat_map(|shard| fs::read_dir(shard).unwrap()).map(|file| file.unwrap().path()).collect()
}

/// The files of the packs.
pub(crate) fn packs_on_disk(store: &Path) -> Vec<PathBuf> {
    fs::read_dir(store.join("packs")).unwrap().map(|file| file.unwrap().path()).collect()
}

/// Makes everything that nothing names older than the grace.
pub(crate) fn age(store: &Path) {
    if store.join("index.db").exists() {
        sql(store, "UPDATE blobs SET zero_since_ns = zero_since_ns - 3600000000000 WHERE refs = 0");
    }
    for file in blobs_on_disk(store).into_iter().chain(packs_on_disk(store)) {
        let file = fs::File::open(file).unwrap();
        // By as much each, so that the order of packs stays.
        let before = file.metadata().unwrap().modified().unwrap();
        file.set_modified(before - std::time::Duration::from_hours(1)).unwrap();
    }
}

/// Runs SQL on the index; the rows as lists separated by `|`.
pub(crate) fn sql(store: &Path, statement: &str) -> Vec<String> {
    let output = Command::new("sqlite3")
        .args(["-cmd", ".timeout 10000"])
        .arg(store.join("index.db"))
        .arg(statement)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The counters that are not what the rows say, and rows that should not be.
const CONTRADICTIONS: &str = "
    SELECT 'blob', hex(hash), refs FROM blobs WHERE refs <>
        (SELECT count(*) FROM pages WHERE blob = blobs.id)
        + (SELECT count(*) FROM entries WHERE blob = blobs.id);
    SELECT 'page', blob, refs FROM pages WHERE refs < 1 OR refs <>
        (SELECT count(*) FROM checkpoints WHERE root_blob = pages.blob)
        + (SELECT count(*) FROM checkpoints WHERE after_root_blob = pages.blob)
        + (SELECT count(*) FROM page_links WHERE child = pages.blob);
    SELECT 'operation', hex(id) FROM operations;
    SELECT 'pin', hex(hash) FROM pins;
    SELECT 'protected', checkpoint FROM pinned_checkpoints;
    SELECT 'state', session, seq FROM checkpoints WHERE state <> 'live';
    SELECT 'foreign key', * FROM pragma_foreign_key_check;
    SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok';
    SELECT 'page of', lower(hex(hash)), pages.refs FROM pages JOIN blobs ON blobs.id = pages.blob
        ORDER BY hash;
    SELECT lower(hex(hash)), refs FROM blobs WHERE refs > 0 ORDER BY hash;
    SELECT 'checkpoint', sessions.name, seq FROM checkpoints
        JOIN sessions ON sessions.id = checkpoints.session ORDER BY sessions.name, seq";

/// Fails unless the index says exactly what manifests and pages say.
pub(crate) fn assert_index_is(store: &Path, truth: &Truth) {
    let page = |(hash, count): (&String, &u64)| format!("page of|{hash}|{count}");
    let mut expected: Vec<String> = truth.page_references.iter().map(page).collect();
    expected.extend(truth.references.iter().map(|(hash, count)| format!("{hash}|{count}")));
    expected.extend(truth.checkpoints.keys().map(|(name, seq)| format!("checkpoint|{name}|{seq}")));
    assert_eq!(sql(store, CONTRADICTIONS), expected);
}
