//! Two sides that set out from one tree, for what is merged.

use std::fs;
use std::path::Path;

use crate::support::tree::{self, Node, executable, file, link};

/// Lines `1` to `20`, some of them others.
pub(crate) fn lines(others: &[(usize, &str)]) -> String {
    let line = |number: usize| {
        let other = others.iter().find(|(at, _)| *at == number);
        other.map_or_else(|| format!("{number}\n"), |(_, text)| format!("{text}\n"))
    };
    (1..=20).map(line).collect()
}

/// From which both set out.
pub(crate) fn start() -> [(&'static str, Node); 9] {
    [
        ("text", file(lines(&[]))),
        ("edited", file("0")),
        ("deleted/deep/x", executable("0")),
        ("mode", file("0")),
        ("link", link("edited")),
        ("kind", file("0")),
        ("folder/x", file("0")),
        ("old name", file(lines(&[(3, "name")]))),
        ("later", file("0")),
    ]
}

/// Does everything there is to do.
pub(crate) fn one_side(top: &Path) {
    for name in ["deleted", "folder"] {
        fs::remove_dir_all(top.join(name)).unwrap();
    }
    fs::remove_file(top.join("kind")).unwrap();
    fs::rename(top.join("old name"), top.join("new name")).unwrap();
    tree::build(
        top,
        [
            ("text", file(lines(&[(2, "two")]))),
            ("edited", file(b"\0binary")),
            ("mode", executable("0")),
            ("link", link("mode")),
            ("kind/below", file("1")),
            ("folder", link("kind")),
            ("made/x", file("1")),
        ],
    );
}

/// Works beside that, and in the same text.
pub(crate) fn other_side(top: &Path) {
    tree::build(
        top,
        [
            ("text", file(lines(&[(19, "nineteen")]))),
            ("later", file("2")),
            ("made/later", file("2")),
            ("new/x", file("2")),
        ],
    );
}
