#!/usr/bin/env python3
"""Writes tests/data/format-1, the texts that the crate must read and write to the byte.

  make_golden.py          writes the files
  make_golden.py --check  says which files differ from what it would write, and fails if any does
"""
import json
import pathlib
import sys

sys.dont_write_bytecode = True
import blake3
import format as fmt
import xxh3

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "format-1"
LENGTHS = [0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32, 33, 64, 65, 96, 97, 128, 129, 160, 161, 200, 239, 240,
           241, 255, 256, 512, 1023, 1024, 1025, 1088, 1089, 2047, 2048, 2049, 3073, 5000]


def pattern(length):
    return bytes(i % 251 for i in range(length))


def hashes():
    return [{"length": n, "blake3": blake3.blake3(pattern(n)), "xxh3_128": xxh3.digest(pattern(n)),
             "xxh3_64": ["%016x" % xxh3.xxh3_64(pattern(n), seed) for seed in range(3)]}
            for n in LENGTHS]


def file(path, content, mode="0644", mtime_ns=1_700_000_000_123_456_789, **more):
    return {"path": path, "kind": "file", "mode": mode, "size": len(content), "mtime_ns": mtime_ns,
            "hash": blake3.blake3(content), **more}


def directory(path, listed="whole", mode="0755"):
    return {"path": path, "kind": "dir", "mode": mode, "listed": listed}


def every_kind():
    """One entry of each kind, and names that need care."""
    entries = [
        directory(b""),
        file(b"empty", b""),
        file(b"run.sh", b"#!/bin/sh\n", mode="0755"),
        file(b"set-id", b"x", mode="6755"),
        file(b"before-1970", b"old", mtime_ns=-1),
        file(b"moving", b"half", unstable=True),
        {"path": b"link", "kind": "symlink", "mode": "0777", "target": b"run.sh"},
        {"path": b"link-odd", "kind": "symlink", "mode": "0777", "target": b"to\xffnowhere"},
        directory(b"build", "partial"),
        {"path": b"build/out", "kind": "omitted", "mode": "0755", "reason": "ignored"},
        {"path": b"build/rest", "kind": "omitted", "mode": "0644", "reason": "special", "rest": 12},
        directory("caf\u00e9".encode(), mode="0700"),
        file("caf\u00e9/\u65e5\u672c.txt".encode(), b"text"),
        file(b"name \"quoted\" \\ back", b"q"),
        file(b"name\nwith\tcontrols\x01\x1f\x7f", b"c"),
        file(b"not-utf8-\xff\xfe", b"n"),
        file("line\u2028separator".encode(), b"l"),
    ]
    entries += [{"path": b"omitted-" + reason.encode(), "kind": "omitted", "mode": "0600", "reason": reason}
                for reason in fmt.REASONS]
    return sorted(entries, key=lambda entry: entry["path"])


def after_restore():
    """What a restore leaves: absent paths have no mode."""
    return [{"path": b"gone", "kind": "absent"}, file(b"there", b"there")]


def plain(entry):
    """An entry for JSON: bytes as hex."""
    return {key: value.hex() if isinstance(value, bytes) else value for key, value in entry.items()}


def tree_of(entries):
    root, size, levels, count, pages = fmt.build(entries)
    return {"root": root, "root_size": size, "levels": levels, "entries": count}, pages


def many_paths(count):
    return sorted(b"packages/p%03d/src/module_%05d.rs" % (n // 20, n * 7919 % 100_000) for n in range(count))


def cuts():
    """Where long lists are cut: for each level the number of items on each of its pages."""
    found = []
    for count in (15, 16, 17, 96, 97, 500, 4000):
        entries = [{"path": path, "kind": "absent"} for path in many_paths(count)]
        tree, pages = tree_of(entries)
        levels = []
        for level in range(tree["levels"]):
            key = "entries" if level == 0 else "pages"
            levels.append([len(json.loads(text)[key]) for at, _, text in pages if at == level])
        found.append({"count": count, **tree, "items": levels})
    # The paths of one page that nothing but the upper bound ends: none is a boundary.
    stubborn = [path for path in many_paths(4000) if xxh3.xxh3_64(path, 0) % fmt.TARGET][:200]
    lengths = [len(part) for part in fmt.cut(stubborn, 0, lambda path: path)]
    # And of pages as short as they may be: every path is a boundary.
    eager = [path for path in many_paths(40_000) if xxh3.xxh3_64(path, 0) % fmt.TARGET == 0][:100]
    shortest = [len(part) for part in fmt.cut(eager, 0, lambda path: path)]
    return {"lists": found, "no_boundary": lengths, "all_boundaries": shortest}


def manifests(tree, after):
    zero_uuid = "0" * 32
    minimal = {
        "format": 1, "op": zero_uuid, "session": "s", "seq": 0,
        "created_at": "2026-01-02T03:04:05.000000000Z",
        "workspace": {"id": zero_uuid, "root": "/w"}, "label": None, "trigger": "manual", "parent": None,
        "hash": "blake3",
        "scope": {"file_limit_bytes": 8388608, "total_limit_bytes": None, "cross_mounts": False,
                  "excluded": [], "secrets": [], "ignore_files": [], "ignore_digest": xxh3.digest(b""),
                  "tracked": "none"},
        "coverage": "full", "complete": True, "git": None, "restore": None, **tree,
        "counts": {"files_observed": 0, "files_reused": 0, "files_read": 0, "bytes_read": 0,
                   "bytes_stored": 0, "omitted": {}},
    }
    parent = {"session": "s", "seq": 6, "digest": xxh3.digest(b"parent")}
    full = {
        **minimal, "op": "0123456789abcdef0123456789abcdef", "session": "A session \u00e9", "seq": 7,
        "created_at": "1999-12-31T23:59:59.999999999Z",
        "workspace": {"id": "f" * 32, "root_bytes": "L3f/"},
        "label": "tab\there, \"quotes\"", "trigger": "pre-restore", "parent": parent,
        "scope": {"file_limit_bytes": 1, "total_limit_bytes": 2, "cross_mounts": True,
                  "excluded": ["node_modules/"], "secrets": ["*.pem", "!*.pub"],
                  "ignore_files": [{"path": "/etc/ignore", "hash": blake3.blake3(b"*.o\n")},
                                   {"path_bytes": "L/8=", "hash": blake3.blake3(b"")}],
                  "ignore_digest": xxh3.digest(b"rules"), "tracked": "stale"},
        "coverage": {"hinted": ["src", "docs"]}, "complete": False,
        "git": {"head": "a" * 40, "branch": None},
        "restore": {"verb": "undo", "target": {**parent, "seq": 3},
                    "undoes": {**parent, "session": "t"}, "after": after},
        "counts": {"files_observed": 5, "files_reused": 1, "files_read": 4, "bytes_read": 1000,
                   "bytes_stored": 400, "omitted": {"ignored": 1, "secret": 2, "unreadable": 3}},
    }
    return {"manifest-minimal.json": fmt.manifest_text(minimal)[0], "manifest-full.json": fmt.manifest_text(full)[0]}


def shown(value):
    return (json.dumps(value, indent=1) + "\n").encode()


def golden():
    """Every file by its name below DATA."""
    files = {"hashes.json": shown(hashes()), "cuts.json": shown(cuts())}
    trees = {}
    for name, entries in [("every-kind", every_kind()), ("empty", []), ("after-restore", after_restore())]:
        tree, pages = tree_of(entries)
        trees[name] = {"entries": [plain(entry) for entry in entries], "tree": tree,
                       "pages": [page_name for _, page_name, _ in pages]}
        for _, page_name, text in pages:
            files[f"pages/{page_name}"] = text
    files["trees.json"] = shown(trees)
    files.update(manifests(trees["every-kind"]["tree"], trees["after-restore"]["tree"]))
    return files


def main():
    files = golden()
    if sys.argv[1:] == ["--check"]:
        present = {str(path.relative_to(DATA)) for path in DATA.rglob("*") if path.is_file()}
        wrong = sorted(present ^ set(files))
        wrong += sorted(name for name in present & set(files) if (DATA / name).read_bytes() != files[name])
        for name in wrong:
            print(f"{name} is not what make_golden.py writes")
        return 1 if wrong else 0
    for name, content in files.items():
        (DATA / name).parent.mkdir(parents=True, exist_ok=True)
        (DATA / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
