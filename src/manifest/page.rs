//! Pages: the content-addressed segments of a manifest's entry list, and their canonical text.
//!
//! The list, sorted by path bytes, is cut into pages at boundaries that depend on the paths alone, so
//! that an edit rewrites one page a level and equal stretches of two checkpoints are the same pages.
//! The pages' references form a list that is cut by the same rule, level upon level, until one page
//! is left: the root. `docs/format.md` fixes every byte.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hash::{BlobHash, cut_hash};
use crate::limits;
use crate::manifest::entry::{Entry, EntryKind, Listed, Mode, OmitReason};
use crate::manifest::text;
use crate::path::RelPath;

/// A reference to a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRef {
    /// The path of the first entry below it.
    pub first: RelPath,
    /// The page's name in the store.
    pub hash: BlobHash,
    /// The length of its text in bytes.
    pub size: u64,
    /// How many entries lie below it.
    pub entries: u64,
}

/// A decoded page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Page {
    /// Level 0: entries.
    Leaf(Vec<Entry>),
    /// Level 1 and above: references to pages of the level below.
    Node {
        /// 1 where the pages below hold entries.
        level: u8,
        /// In order of path.
        pages: Vec<PageRef>,
    },
}

/// A page ready to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPage {
    /// How others refer to it.
    pub reference: PageRef,
    /// 0 for entries.
    pub level: u8,
    /// The canonical text.
    pub text: Vec<u8>,
    /// The pages of the level below that it refers to; none on level 0.
    pub children: Vec<BlobHash>,
}

/// The pages of a list of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageTree {
    /// Level by level from the entries up; the last one is the root.
    pub pages: Vec<EncodedPage>,
    /// The root and its measures.
    pub tree: Tree,
}

/// Where a list of entries is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// The root page.
    pub root: BlobHash,
    /// The length of the root page's text in bytes.
    pub root_size: u64,
    /// How many levels there are: 1 where the root page holds the entries.
    pub levels: u8,
    /// How many entries in all.
    pub entries: u64,
}

/// Cuts `entries`, sorted by path without duplicates, into pages. An empty list is one empty page.
///
/// Cost: one hash of each path and of each page's text.
pub fn build(entries: &[Entry]) -> PageTree {
    rebuild(entries, |entry| entry, &Unchanged { leaves: &[], changed: &[] })
}

/// What a list of entries has in common with one whose pages are known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unchanged<'a> {
    /// The references to the known pages of level 0, in order.
    pub(crate) leaves: &'a [PageRef],
    /// Every path whose entry is not to the letter the same in both lists, gone and new ones too; in
    /// order.
    pub(crate) changed: &'a [RelPath],
}

/// As [`build`], but the pages of level 0 that are those of a known list are referred to and not made
/// again; they are not among the pages returned. The result is the same.
///
/// Cost: one hash of each path in pages that have changed, and of their texts; one look at each known
/// page's reference; the pages above level 0.
pub(crate) fn rebuild<T>(
    items: &[T],
    entry: impl Fn(&T) -> &Entry,
    unchanged: &Unchanged<'_>,
) -> PageTree {
    let mut pages = Vec::new();
    let mut references = Vec::new();
    let mut leaves = unchanged.leaves;
    let mut start = 0;
    loop {
        let rest = &items[start..];
        if let Some(first) = rest.first() {
            let path = &entry(first).path;
            leaves = &leaves[leaves.partition_point(|leaf| leaf.first < *path)..];
        }
        if let Some(length) = reusable(rest, &entry, leaves, unchanged.changed) {
            references.push(leaves[0].clone());
            start += length;
        } else {
            let length = stretch(rest, 0, |item| &entry(item).path);
            let segment: Vec<&Entry> = rest[..length].iter().map(&entry).collect();
            let page = leaf(&segment);
            references.push(page.reference.clone());
            pages.push(page);
            start += length;
        }
        if start == items.len() {
            break;
        }
    }
    raise(references, pages)
}

/// Makes the pages above those of level 0, which `references` are of; `pages` are those made so far.
pub(super) fn raise(references: Vec<PageRef>, pages: Vec<EncodedPage>) -> PageTree {
    let (mut references, mut pages) = (references, pages);
    let mut level = 0;
    while references.len() > 1 {
        level += 1;
        let mut above = Vec::new();
        for segment in cut(&references, level, |reference| &reference.first) {
            let page = node(level, segment);
            above.push(page.reference.clone());
            pages.push(page);
        }
        references = above;
    }
    let root = &references[0];
    let tree =
        Tree { root: root.hash, root_size: root.size, levels: level + 1, entries: root.entries };
    PageTree { pages, tree }
}

/// How many of `rest`, where a page is to begin, are to the letter the first of the known `leaves`, and
/// would be cut off as that was.
///
/// Nothing between its first path and the next page's may have changed, so that its entries are the
/// same; and the next page's first path must still follow, for it is what ended this one.
fn reusable<T>(
    rest: &[T],
    entry: &impl Fn(&T) -> &Entry,
    leaves: &[PageRef],
    changed: &[RelPath],
) -> Option<usize> {
    let (leaf, behind) = leaves.split_first()?;
    let next = behind.first().map(|next| &next.first);
    if entry(rest.first()?).path != leaf.first {
        return None;
    }
    let changed = &changed[changed.partition_point(|path| *path < leaf.first)..];
    if changed.first().is_some_and(|path| next.is_none_or(|next| path < next)) {
        return None;
    }
    let length = usize::try_from(leaf.entries).ok()?;
    if length > rest.len() {
        return None;
    }
    let follows = rest.get(length).map(|item| &entry(item).path);
    (follows == next).then_some(length)
}

/// The page of these entries.
pub(super) fn leaf(entries: &[&Entry]) -> EncodedPage {
    let text = encode_leaf(entries);
    let first = entries.first().map_or_else(RelPath::root, |entry| entry.path.clone());
    let reference = reference_to(first, &text, entries.len() as u64);
    EncodedPage { reference, level: 0, text, children: Vec::new() }
}

/// The page of `level` that refers to these.
pub(super) fn node(level: u8, pages: &[PageRef]) -> EncodedPage {
    let text = encode_node(level, pages);
    let first = pages.first().map_or_else(RelPath::root, |page| page.first.clone());
    let reference = reference_to(first, &text, pages.iter().map(|page| page.entries).sum());
    let children = pages.iter().map(|page| page.hash).collect();
    EncodedPage { reference, level, text, children }
}

fn reference_to(first: RelPath, text: &[u8], entries: u64) -> PageRef {
    PageRef { first, hash: BlobHash::of(text), size: text.len() as u64, entries }
}

/// Cuts `items` of `level` into the stretches that each become one page; at least one stretch.
fn cut<T>(items: &[T], level: u8, path: impl Fn(&T) -> &RelPath) -> Vec<&[T]> {
    let mut stretches = Vec::new();
    let mut rest = items;
    loop {
        let (first, behind) = rest.split_at(stretch(rest, level, &path));
        stretches.push(first);
        if behind.is_empty() {
            return stretches;
        }
        rest = behind;
    }
}

/// How many of `items` of `level` become one page.
///
/// A page ends before an item whose cut hash is a multiple of the target, if it has the least number of
/// items, and in any case after the greatest number. The least number bounds the levels even for paths
/// chosen so that every one is a boundary.
pub(super) fn stretch<T>(items: &[T], level: u8, path: impl Fn(&T) -> &RelPath) -> usize {
    let most = items.len().min(limits::PAGE_ENTRIES_MAX);
    let least = most.min(limits::PAGE_ENTRIES_MIN);
    (least..most).find(|&at| is_boundary(path(&items[at]), level)).unwrap_or(most)
}

/// Whether a page of `level` that is long enough ends before `path`.
pub(super) fn is_boundary(path: &RelPath, level: u8) -> bool {
    cut_hash(path.as_bytes(), level).is_multiple_of(limits::PAGE_ENTRIES_TARGET)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireLeaf<'a> {
    level: u8,
    #[serde(borrow)]
    entries: Vec<WireEntry<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireNode<'a> {
    level: u8,
    #[serde(borrow)]
    pages: Vec<WirePageRef<'a>>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WireEntry<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    path: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    kind: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtime_ns: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unstable: Option<bool>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listed: Option<Listed>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<OmitReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePageRef<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    first: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_bytes: Option<String>,
    hash: String,
    size: u64,
    entries: u64,
}

fn encode_leaf(entries: &[&Entry]) -> Vec<u8> {
    encode(&WireLeaf { level: 0, entries: entries.iter().map(|entry| wire_entry(entry)).collect() })
}

fn encode_node(level: u8, pages: &[PageRef]) -> Vec<u8> {
    let wire = |page: &'_ PageRef| {
        let (first, first_bytes) = text::to_fields(page.first.as_bytes());
        let first = first.map(|text| Cow::Owned(text.into_owned()));
        WirePageRef {
            first,
            first_bytes,
            hash: page.hash.to_string(),
            size: page.size,
            entries: page.entries,
        }
    };
    encode(&WireNode { level, pages: pages.iter().map(wire).collect() })
}

fn encode(value: &impl Serialize) -> Vec<u8> {
    // Strings, integers and vectors always have a JSON form.
    serde_json::to_vec(value).unwrap_or_default()
}

fn wire_entry(entry: &Entry) -> WireEntry<'_> {
    let (path, path_bytes) = text::to_fields(entry.path.as_bytes());
    let kind = Cow::Borrowed(entry.kind.name());
    let mut wire = WireEntry { path, path_bytes, kind, ..WireEntry::default() };
    if entry.kind != EntryKind::Absent {
        wire.mode = Some(entry.mode.to_string());
    }
    match &entry.kind {
        EntryKind::File { size, mtime_ns, hash, unstable } => {
            wire.size = Some(*size);
            wire.mtime_ns = Some(*mtime_ns);
            wire.hash = Some(hash.to_string());
            wire.unstable = unstable.then_some(true);
        }
        EntryKind::Symlink { target } => {
            (wire.target, wire.target_bytes) = text::to_fields(target);
        }
        EntryKind::Dir { listed } => wire.listed = Some(*listed),
        EntryKind::Omitted { reason, rest } => {
            wire.reason = Some(*reason);
            wire.rest = (*rest > 0).then_some(*rest);
        }
        EntryKind::Absent => {}
    }
    wire
}

/// A list of entries of any length as one text: the form of a leaf, for files other than pages.
pub(crate) fn encode_entries(entries: &[Entry]) -> Vec<u8> {
    encode_leaf(&entries.iter().collect::<Vec<_>>())
}

/// An entry alone, in the form that it has in a page.
#[derive(Debug)]
pub(crate) struct EntryText<'a>(pub(crate) Cow<'a, Entry>);

impl Serialize for EntryText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        wire_entry(&self.0).serialize(serializer)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for EntryText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireEntry::deserialize(deserializer)?;
        entry(wire).map(|entry| Self(Cow::Owned(entry))).map_err(D::Error::custom)
    }
}

/// The reverse of [`encode_entries`].
///
/// # Errors
/// The rule that is broken, as a sentence.
pub(crate) fn decode_entries(bytes: &[u8]) -> Result<Vec<Entry>, String> {
    let wire: WireLeaf<'_> = parse(bytes)?;
    expect_level(wire.level, 0)?;
    let entries = wire.entries.into_iter().map(entry).collect::<Result<Vec<_>, _>>()?;
    expect_sorted(entries.iter().map(|entry| &entry.path))?;
    Ok(entries)
}

/// Reads a page's text and checks what one page can show: the level that is expected, sorted paths
/// without duplicates, fields that fit the kind.
///
/// # Errors
/// The rule that is broken, as a sentence. No input panics; memory is in proportion to the text.
pub fn decode(bytes: &[u8], level: u8) -> Result<Page, String> {
    let page = if level == 0 {
        Page::Leaf(decode_entries(bytes)?)
    } else {
        let wire: WireNode<'_> = parse(bytes)?;
        expect_level(wire.level, level)?;
        let pages = wire.pages.into_iter().map(page_ref).collect::<Result<Vec<_>, _>>()?;
        if pages.is_empty() {
            return Err("it refers to no page".to_owned());
        }
        expect_sorted(pages.iter().map(|page| &page.first))?;
        Page::Node { level, pages }
    };
    let items = match &page {
        Page::Leaf(entries) => entries.len(),
        Page::Node { pages, .. } => pages.len(),
    };
    if items > limits::PAGE_ENTRIES_MAX {
        return Err(format!("it holds {items} items, more than {}", limits::PAGE_ENTRIES_MAX));
    }
    Ok(page)
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn expect_level(found: u8, expected: u8) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("it is of level {found} where level {expected} is expected"))
    }
}

fn expect_sorted<'a>(paths: impl Iterator<Item = &'a RelPath>) -> Result<(), String> {
    let mut previous: Option<&RelPath> = None;
    for path in paths {
        if previous.is_some_and(|previous| previous >= path) {
            return Err(format!("`{path}` is out of order or there twice"));
        }
        previous = Some(path);
    }
    Ok(())
}

fn page_ref(wire: WirePageRef<'_>) -> Result<PageRef, String> {
    Ok(PageRef {
        first: rel_path(wire.first, wire.first_bytes.as_deref())?,
        hash: wire.hash.parse().map_err(|error| format!("{error}"))?,
        size: wire.size,
        entries: wire.entries,
    })
}

fn rel_path(text: Option<Cow<'_, str>>, base64: Option<&str>) -> Result<RelPath, String> {
    let bytes = text::from_fields(text, base64)?;
    RelPath::new(bytes.clone())
        .map_err(|error| format!("`{}`: {error}", crate::path::printable(&bytes)))
}

fn entry(wire: WireEntry<'_>) -> Result<Entry, String> {
    let path = rel_path(wire.path, wire.path_bytes.as_deref())?;
    let in_entry = |problem: &str| format!("`{path}`: {problem}");
    let need = |what: &str| in_entry(&format!("`{what}` is missing"));
    // Which optional fields are there, as a set, compared with what the kind allows.
    let has_target = wire.target.is_some() || wire.target_bytes.is_some();
    let file_fields = wire.size.is_some() || wire.mtime_ns.is_some() || wire.hash.is_some();
    let fits = match &*wire.kind {
        "file" => {
            !has_target && wire.listed.is_none() && wire.reason.is_none() && wire.rest.is_none()
        }
        "symlink" => {
            !file_fields
                && wire.unstable.is_none()
                && wire.listed.is_none()
                && wire.reason.is_none()
                && wire.rest.is_none()
        }
        "dir" => {
            !file_fields
                && wire.unstable.is_none()
                && !has_target
                && wire.reason.is_none()
                && wire.rest.is_none()
        }
        "omitted" => {
            !file_fields && wire.unstable.is_none() && !has_target && wire.listed.is_none()
        }
        "absent" => {
            !file_fields
                && wire.unstable.is_none()
                && !has_target
                && wire.listed.is_none()
                && wire.reason.is_none()
                && wire.rest.is_none()
                && wire.mode.is_none()
        }
        other => return Err(in_entry(&format!("`{other}` is not a kind"))),
    };
    if !fits {
        return Err(in_entry("it has a field that its kind does not have"));
    }
    let kind = match &*wire.kind {
        "file" => EntryKind::File {
            size: wire.size.ok_or_else(|| need("size"))?,
            mtime_ns: wire.mtime_ns.ok_or_else(|| need("mtime_ns"))?,
            hash: wire
                .hash
                .ok_or_else(|| need("hash"))?
                .parse()
                .map_err(|error| in_entry(&format!("{error}")))?,
            unstable: match wire.unstable {
                None => false,
                Some(true) => true,
                Some(false) => return Err(in_entry("`unstable` is only written when true")),
            },
        },
        "symlink" => {
            let target = text::from_fields(wire.target, wire.target_bytes.as_deref())
                .map_err(|problem| in_entry(&problem))?;
            if target.is_empty() || target.contains(&0) {
                return Err(in_entry("the target of a link is never empty and holds no NUL"));
            }
            EntryKind::Symlink { target: target.into() }
        }
        "dir" => EntryKind::Dir { listed: wire.listed.ok_or_else(|| need("listed"))? },
        "omitted" => EntryKind::Omitted {
            reason: wire.reason.ok_or_else(|| need("reason"))?,
            rest: match wire.rest {
                Some(0) => return Err(in_entry("`rest` is only written when not zero")),
                rest => rest.unwrap_or(0),
            },
        },
        _ => EntryKind::Absent,
    };
    let mode = match (&kind, wire.mode) {
        (EntryKind::Absent, _) => Mode::default(),
        (_, Some(mode)) => mode.parse().map_err(|problem: String| in_entry(&problem))?,
        (_, None) => return Err(need("mode")),
    };
    Ok(Entry { path, mode, kind })
}
