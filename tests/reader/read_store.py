#!/usr/bin/env python3
"""Reads a store of checkpoints from the description of its format alone, with none of turnpoint's code.

  read_store.py STORE list                        every checkpoint, one JSON document
  read_store.py STORE ls SESSION SEQ              its entries, one JSON document
  read_store.py STORE cat SESSION SEQ PATH        the content of one file
  read_store.py STORE check [--tree DIR SESSION SEQ]
      checks every manifest, page and blob; with --tree also that the files of a checkpoint are those
      of a directory. Prints one line for each problem and fails if there is one.

STORE is the directory that holds format.json. Content is unpacked by the `zstd` command.
"""
import json
import os
import pathlib
import stat
import subprocess
import sys

sys.dont_write_bytecode = True
import format as fmt

HEX = set("0123456789abcdef")


class Store:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        # Content by the name that it was found to have.
        self.right = {}
        # Where each packed blob is, once that was read.
        self.packs = None

    def manifests(self):
        """(session, seq, path) of everything that is named like a manifest, sorted."""
        found = []
        for directory in self.root.iterdir():
            if directory.name in ("blobs", "packs", "tmp", "leases", "locks", "workspaces", "journal",
                                  "quarantine") or not directory.is_dir():
                continue
            for path in directory.iterdir():
                if path.suffix == ".json" and path.stem.isdigit():
                    found.append((directory.name, int(path.stem), path))
        return sorted(found)

    def manifest(self, session, seq):
        raw = (self.root / session / f"{seq}.json").read_bytes()
        manifest = fmt.read_manifest(raw)
        if (manifest["session"], manifest["seq"]) != (session, seq):
            raise fmt.Invalid("it says another session or number than its place")
        return manifest

    def blob(self, name, size):
        """The content of a blob, checked against its name and size."""
        if len(name) != 64 or not set(name) <= HEX:
            raise fmt.Invalid(f"{name} is not a hash")
        path = self.root / "blobs" / name[:2] / name
        raw = path.read_bytes() if path.exists() else self.packed(name)
        check_frame(raw, size)
        content = subprocess.run(["zstd", "-dcq"], input=raw, stdout=subprocess.PIPE, check=True).stdout
        if len(content) != size:
            raise fmt.Invalid(f"blob {name} has {len(content)} bytes, not {size}")
        # Hashing is slow here: content that was hashed once is only compared.
        if self.right.get(name) != content and fmt.blake3(content) != name:
            raise fmt.Invalid(f"blob {name} has another content")
        self.right[name] = content
        return content

    def packed(self, name):
        """The frame of a blob that lies in a pack."""
        if self.packs is None:
            self.packs = {}
            for path in sorted((self.root / "packs").glob("*.pack")):
                raw = path.read_bytes()
                for found, offset, length in fmt.read_pack_trailer(raw):
                    self.packs.setdefault(found, (path, offset, length))
        if name not in self.packs:
            raise fmt.Invalid(f"blob {name} is not there")
        path, offset, length = self.packs[name]
        with open(path, "rb") as pack:
            pack.seek(offset)
            return pack.read(length)

    def entries(self, manifest):
        entries = fmt.read_tree(manifest, self.blob)
        fmt.check_list(entries)
        return entries

    def after(self, manifest):
        """What a safety checkpoint says about the paths as the restore leaves them."""
        return fmt.read_tree(manifest["restore"]["after"], self.blob) if manifest["restore"] else []


def check_frame(raw, size):
    """One zstd frame that declares its size and ends with a checksum."""
    if len(raw) < 9 or raw[:4] != b"\x28\xb5\x2f\xfd":
        raise fmt.Invalid("not a zstd frame")
    descriptor = raw[4]
    single_segment, checksum, dictionary = descriptor >> 5 & 1, descriptor >> 2 & 1, descriptor & 3
    size_bytes = {0: 1 if single_segment else 0, 1: 2, 2: 4, 3: 8}[descriptor >> 6]
    at = 5 + (0 if single_segment else 1)
    declared = int.from_bytes(raw[at:at + size_bytes], "little") + (256 if size_bytes == 2 else 0)
    if not checksum or dictionary or size_bytes == 0 or declared != size:
        raise fmt.Invalid("the frame does not declare its size, or has no checksum")
    at += size_bytes
    while True:
        header = int.from_bytes(raw[at:at + 3], "little")
        last, kind, length = header & 1, header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == 1 else length)
        if last or at >= len(raw):
            break
    if at + 4 != len(raw):
        raise fmt.Invalid("something follows the frame")


def shown(entry):
    """An entry as JSON, as in a page."""
    return fmt.entry_object(entry)


def check(store):
    problems = []
    for session, seq, _ in store.manifests():
        try:
            manifest = store.manifest(session, seq)
            entries = store.entries(manifest) + store.after(manifest)
        except (fmt.Invalid, OSError, subprocess.CalledProcessError) as error:
            problems.append(f"{session}:{seq}: {error}")
            continue
        for entry in entries:
            if entry["kind"] != "file":
                continue
            try:
                store.blob(entry["hash"], entry["size"])
            except (fmt.Invalid, OSError, subprocess.CalledProcessError) as error:
                problems.append(f"{session}:{seq}: {entry['path']!r}: {error}")
    return problems


def check_tree(store, tree, session, seq):
    """Compares a checkpoint with a directory: what it holds is there and equal, and what is there is
    an entry or lies in a directory that is not listed whole."""
    problems = []
    top = os.fsencode(tree)
    entries = {entry["path"]: entry for entry in store.entries(store.manifest(session, seq))}
    for path, entry in entries.items():
        full = os.path.join(top, path) if path else top
        try:
            problems += compare(store, full, entry)
        except FileNotFoundError:
            problems.append(f"{path!r}: not in the tree")
        if entry["kind"] == "dir" and entry["listed"] == "whole" and os.path.isdir(full):
            for name in os.listdir(full):
                inside = path + b"/" + name if path else name
                if inside not in entries:
                    problems.append(f"{inside!r}: not in the checkpoint")
    return problems


def compare(store, full, entry):
    status = os.lstat(full)
    kind = {stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFDIR: "dir"}.get(stat.S_IFMT(status.st_mode))
    if entry["kind"] == "omitted":
        return []
    problems = []
    if kind != entry["kind"]:
        return [f"{entry['path']!r}: is a {kind}, was a {entry['kind']}"]
    if kind != "symlink" and "%04o" % stat.S_IMODE(status.st_mode) != entry["mode"]:
        problems.append(f"{entry['path']!r}: has another mode than {entry['mode']}")
    if kind == "symlink" and os.readlink(full) != entry["target"]:
        problems.append(f"{entry['path']!r}: leads elsewhere")
    if kind == "file":
        with open(full, "rb") as file:
            if file.read() != store.blob(entry["hash"], entry["size"]):
                problems.append(f"{entry['path']!r}: has another content")
    return problems


def main(arguments):
    if len(arguments) < 2:
        sys.exit(__doc__)
    store, command, rest = Store(arguments[0]), arguments[1], arguments[2:]
    if command == "list":
        found = [store.manifest(session, seq) for session, seq, _ in store.manifests()]
        print(json.dumps({"checkpoints": found}))
        return 0
    if command == "ls":
        manifest = store.manifest(rest[0], int(rest[1]))
        print(json.dumps({"entries": [shown(entry) for entry in store.entries(manifest)]}))
        return 0
    if command == "cat":
        wanted = os.fsencode(rest[2])
        for entry in store.entries(store.manifest(rest[0], int(rest[1]))):
            if entry["path"] == wanted and entry["kind"] == "file":
                sys.stdout.buffer.write(store.blob(entry["hash"], entry["size"]))
                return 0
        sys.exit(f"{rest[2]} is not a file of that checkpoint")
    if command == "check":
        problems = check(store)
        if rest:
            problems += check_tree(store, rest[1], rest[2], int(rest[3]))
        for problem in problems:
            print(problem)
        return 1 if problems else 0
    sys.exit(__doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
