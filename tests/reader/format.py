"""Format 1 of turnpoint's manifests and pages, from its description alone.

An entry is a dict with `path` (bytes), `kind`, and the fields of its kind; `target` is bytes.
"""
import base64
import functools
import json

import blake3 as plain
from xxh3 import digest, xxh3_64

# A page that was read is built again to see where it is cut: it need not be hashed twice.
blake3 = functools.lru_cache(maxsize=4096)(plain.blake3)

# A page begins at an item whose cut hash is a multiple of TARGET if the page before it has LEAST
# items, and in any case after MOST.
TARGET, LEAST, MOST = 32, 16, 96

ENTRY_FIELDS = ("path", "path_bytes", "kind", "mode", "size", "mtime_ns", "hash", "unstable", "target",
                "target_bytes", "listed", "reason", "rest")
PAGE_FIELDS = ("first", "first_bytes", "hash", "size", "entries")
MANIFEST_FIELDS = ("format", "op", "session", "seq", "created_at", "workspace", "label", "trigger",
                   "parent", "hash", "scope", "coverage", "complete", "git", "restore", "root",
                   "root_size", "levels", "entries", "counts", "digest")
FIELDS_OF_KIND = {
    "file": {"mode", "size", "mtime_ns", "hash", "unstable"},
    "symlink": {"mode", "target"},
    "dir": {"mode", "listed"},
    "omitted": {"mode", "reason", "rest"},
    "absent": set(),
}
OPTIONAL = {"unstable", "rest"}
REASONS = ("excluded", "ignored", "secret", "store", "mount", "over-file-limit", "over-total-limit",
           "unreadable", "special", "sparse", "io-error", "purged")


class Invalid(Exception):
    """A text that breaks the format."""


def text(value):
    """The canonical JSON of `value`: fields in the order given, no spaces, UTF-8."""
    if value is None:
        return b"null"
    if value is True:
        return b"true"
    if value is False:
        return b"false"
    if isinstance(value, int):
        return str(value).encode()
    if isinstance(value, str):
        return string(value)
    if isinstance(value, list):
        return b"[" + b",".join(map(text, value)) + b"]"
    return b"{" + b",".join(string(key) + b":" + text(item) for key, item in value.items()) + b"}"


def string(value):
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    out = []
    for character in value:
        if character in short:
            out.append(short[character])
        elif character < " ":
            out.append("\\u%04x" % ord(character))
        else:
            out.append(character)
    return ('"' + "".join(out) + '"').encode()


def as_fields(name, raw):
    """A text where `raw` is UTF-8, base64 under another name where it is not."""
    try:
        return {name: raw.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_bytes": base64.b64encode(raw).decode()}


def from_fields(name, item):
    """The reverse of as_fields."""
    plain, encoded = item.get(name), item.get(name + "_bytes")
    if (plain is None) == (encoded is None):
        raise Invalid(f"one of `{name}` and `{name}_bytes` is expected in {item}")
    if plain is not None:
        return plain.encode("utf-8")
    raw = base64.b64decode(encoded, validate=True)
    if as_fields(name, raw) != {name + "_bytes": encoded}:
        raise Invalid(f"`{name}_bytes` holds what is text: {item}")
    return raw


def entry_object(entry):
    item = as_fields("path", entry["path"])
    item["kind"] = entry["kind"]
    for field in ("mode", "size", "mtime_ns", "hash", "unstable"):
        if field in entry:
            item[field] = entry[field]
    if "target" in entry:
        item.update(as_fields("target", entry["target"]))
    for field in ("listed", "reason", "rest"):
        if field in entry:
            item[field] = entry[field]
    return item


def check_path(path):
    parts = path.split(b"/") if path else []
    if b"\0" in path or any(part in (b"", b".", b"..") for part in parts):
        raise Invalid(f"{path!r} is not a path of a workspace")


def entry_of(item):
    expect_order(item, ENTRY_FIELDS)
    kind = item.get("kind")
    if kind not in FIELDS_OF_KIND:
        raise Invalid(f"kind of {item}")
    entry = {"path": from_fields("path", item), "kind": kind}
    check_path(entry["path"])
    if "target" in item or "target_bytes" in item:
        entry["target"] = from_fields("target", item)
    for field in ("mode", "size", "mtime_ns", "hash", "unstable", "listed", "reason", "rest"):
        if field in item:
            entry[field] = item[field]
    given = set(entry) - {"path", "kind"}
    allowed = FIELDS_OF_KIND[kind]
    if not allowed - OPTIONAL <= given <= allowed:
        raise Invalid(f"fields of {item}")
    return entry


def expect_order(item, fields):
    if list(item) != [field for field in fields if field in item]:
        raise Invalid(f"fields or their order in {list(item)}")


def cut(items, level, path_of):
    """`items` of `level` in the stretches that are one page each."""
    stretches, start = [], 0
    for at, item in enumerate(items):
        length = at - start
        if length == MOST or length >= LEAST and xxh3_64(path_of(item), level) % TARGET == 0:
            stretches.append(items[start:at])
            start = at
    return stretches + [items[start:]]


def build(entries):
    """Sorted entries as pages: (root, size of the root, levels, number of entries, pages), pages a
    list of (level, hash, text) from the entries up."""
    pages, references = [], []
    for stretch in cut(entries, 0, lambda entry: entry["path"]):
        page = text({"level": 0, "entries": [entry_object(entry) for entry in stretch]})
        name = blake3(page)
        pages.append((0, name, page))
        first = stretch[0]["path"] if stretch else b""
        references.append((first, name, len(page), len(stretch)))
    level = 0
    while len(references) > 1:
        level += 1
        above = []
        for stretch in cut(references, level, lambda reference: reference[0]):
            items = [{**as_fields("first", first), "hash": name, "size": size, "entries": count}
                     for first, name, size, count in stretch]
            page = text({"level": level, "pages": items})
            name = blake3(page)
            pages.append((level, name, page))
            above.append((stretch[0][0], name, len(page), sum(item[3] for item in stretch)))
        references = above
    _, root, size, count = references[0]
    return root, size, level + 1, count, pages


def parse(raw):
    """JSON without duplicate keys, and canonical to the byte."""
    def pairs(found):
        if len(dict(found)) != len(found):
            raise Invalid("a key is there twice")
        return dict(found)

    try:
        value = json.loads(raw.decode("utf-8"), object_pairs_hook=pairs)
    except ValueError as error:
        raise Invalid(f"not JSON: {error}") from error
    if text(value) != raw:
        raise Invalid("the text is not the canonical one")
    return value


def read_tree(tree, page_of):
    """All entries of a tree {root, root_size, levels, entries}; `page_of(hash, size)` gives a page's
    text, already checked against its name. Checks order, levels, counts and, page by page, that the
    list is cut where it should be."""
    entries, seen = [], []

    def visit(name, size, level, first, count):
        page = parse(page_of(name, size))
        seen.append((level, name))
        if page.get("level") != level:
            raise Invalid(f"page {name} is of level {page.get('level')}, not {level}")
        if level == 0:
            expect_order(page, ("level", "entries"))
            found = [entry_of(item) for item in page["entries"]]
            start, total = (found[0]["path"] if found else b""), len(found)
            entries.extend(found)
        else:
            expect_order(page, ("level", "pages"))
            total, start = 0, from_fields("first", page["pages"][0])
            for item in page["pages"]:
                expect_order(item, PAGE_FIELDS)
                visit(item["hash"], item["size"], level - 1, from_fields("first", item), item["entries"])
                total += item["entries"]
        if first is not None and start != first or total != count:
            raise Invalid(f"page {name} begins or counts otherwise than said")

    visit(tree["root"], tree["root_size"], tree["levels"] - 1, None, tree["entries"])
    paths = [entry["path"] for entry in entries]
    if any(a >= b for a, b in zip(paths, paths[1:])):
        raise Invalid("paths out of order")
    built = build(entries)
    if built[0] != tree["root"] or sorted(seen) != sorted((level, name) for level, name, _ in built[4]):
        raise Invalid("the list is cut elsewhere")
    return entries


def check_list(entries):
    """What the whole list of a checkpoint must show."""
    if not entries or entries[0]["path"] != b"" or entries[0]["kind"] != "dir":
        raise Invalid("the root directory is missing")
    directories = {entry["path"] for entry in entries if entry["kind"] == "dir"}
    for entry in entries[1:]:
        parent = entry["path"].rpartition(b"/")[0]
        if parent not in directories or entry["kind"] == "absent":
            raise Invalid(f"{entry['path']!r} has no directory or is absent")


def manifest_text(manifest):
    """A manifest without `digest` as (text with it, digest)."""
    without = text(manifest)
    checksum = digest(without)
    return text({**manifest, "digest": checksum}), checksum


def read_manifest(raw):
    """A manifest's fields. The digest is the last field; it covers the text without it."""
    manifest = parse(raw)
    if tuple(manifest) != MANIFEST_FIELDS:
        raise Invalid(f"fields of the manifest: {list(manifest)}")
    if manifest["format"] != 1 or manifest["hash"] != "blake3":
        raise Invalid("another format")
    tail = b',"digest":"%s"}' % manifest["digest"].encode()
    if not raw.endswith(tail) or digest(raw[:-len(tail)] + b"}") != manifest["digest"]:
        raise Invalid("the digest does not match")
    return manifest


def read_pack_trailer(raw):
    """(hash, offset, length) of each blob in a pack, from its trailer, which is checked."""
    if raw[-8:] != b"tppack01":
        raise Invalid("it does not end as a pack does")
    count = int.from_bytes(raw[-12:-8], "little")
    payload = 1024 + 44 * count + 28
    start = len(raw) - payload
    if count > 65536 or start < 8:
        raise Invalid("the trailer of a pack says too many blobs")
    head = raw[start - 8:start]
    if head[:4] != b"\x5e\x2a\x4d\x18" or int.from_bytes(head[4:], "little") != payload:
        raise Invalid("the trailer of a pack is not a skippable frame of its length")
    table = raw[start:start + 1024 + 44 * count]
    if digest(table) != raw[-28:-12].hex():
        raise Invalid("the checksum of a pack is wrong")
    counted = [int.from_bytes(table[at:at + 4], "little") for at in range(0, 1024, 4)]
    blobs = []
    for at in range(1024, len(table), 44):
        name, offset = table[at:at + 32].hex(), int.from_bytes(table[at + 32:at + 40], "little")
        length = int.from_bytes(table[at + 40:at + 44], "little")
        if length == 0 or offset + length > start - 8:
            raise Invalid("a blob lies outside of its pack")
        blobs.append((name, offset, length))
    names = [name for name, _, _ in blobs]
    if names != sorted(set(names)):
        raise Invalid("the blobs of a pack are not in order")
    if counted != [sum(int(name[:2], 16) <= first for name in names) for first in range(256)]:
        raise Invalid("the table of a pack is wrong")
    return blobs
