#!/usr/bin/env python3
"""Checks the licence and the source of every crate that is built or tested with.

Prints each crate at fault and exits with 1; checks its own reading of licence expressions first.
"""
import json
import re
import subprocess
import sys

OFFICIAL = "registry+https://github.com/rust-lang/crates.io-index"

# Licences that ask for no more than their text to be kept, or less.
ALLOWED = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}

# (crate, licence expression): reason. For expressions that the list above does not allow.
EXCEPTIONS = {}


def allowed(expression):
    """Whether the terms of `expression` can be met with ALLOWED licences alone."""
    # An old form writes OR as a slash.
    tokens = re.findall(r"[()]|[A-Za-z0-9.+-]+", expression.replace("/", " OR "))
    if not tokens:
        return False
    position = 0

    def peek():
        return tokens[position] if position < len(tokens) else None

    def take():
        nonlocal position
        position += 1
        return tokens[position - 1]

    def either():
        result = both()
        while peek() == "OR":
            take()
            result = both() or result
        return result

    def both():
        result = one()
        while peek() == "AND":
            take()
            result = one() and result
        return result

    def one():
        if peek() is None:
            raise ValueError(expression)
        name = take()
        if name == "(":
            result = either()
            if peek() != ")":
                raise ValueError(expression)
            take()
            return result
        if peek() == "WITH":
            take()
            if peek() is None:
                raise ValueError(expression)
            name = f"{name} WITH {take()}"
        return name in ALLOWED

    result = either()
    if peek() is not None:
        raise ValueError(expression)
    return result


def self_test():
    for expression, expected in [
        ("MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("MIT/Apache-2.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", True),
        ("(MIT AND GPL-3.0-only) OR LGPL-2.1-or-later", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("", False),
    ]:
        assert allowed(expression) == expected, expression
    for expression in ["MIT OR", "(MIT", "MIT Apache-2.0", "MIT WITH"]:
        try:
            allowed(expression)
        except ValueError:
            continue
        raise AssertionError(expression)


def main():
    self_test()
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    members = set(metadata["workspace_members"])
    problems, used = [], set()
    for package in metadata["packages"]:
        name = f"{package['name']} {package['version']}"
        if package["id"] in members:
            continue
        if package["source"] != OFFICIAL:
            problems.append(f"{name}: from {package['source']}")
        expression = package["license"] or ""
        try:
            fits = allowed(expression)
        except ValueError:
            fits = False
        if not fits:
            key = (package["name"], expression)
            if key not in EXCEPTIONS:
                problems.append(f"{name}: licence `{expression}`")
            used.add(key)
    problems += [f"exception for {key} is not needed" for key in EXCEPTIONS.keys() - used]
    for problem in problems:
        print(problem)
    print(f"{len(metadata['packages']) - len(members)} crates, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
