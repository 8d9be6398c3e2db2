//! Ignore files of all kinds: nothing harms, and nothing takes long.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::mutation::{config, near, one_of};

/// The rules of one file.
fn rules_of(bytes: &[u8]) -> Rules {
    level(Arc::new(compile(bytes).unwrap()), 0, None)
}

fn any_file() -> impl Strategy<Value = Vec<u8>> {
    near(one_of(&[
        "\u{feff}# first\n*.o\n!keep.o\r\n/build/\n\\!a\\ \nfoo[a-c!]?/**/x\n",
        "**/a**/b\na**/**/b\n{a,b}/[[:alpha:]]*\n[!]-]x[\\]]\n",
        "a/***/b\n*\n!*/\n[^a-\\z]**\n\u{e9}*[\u{e9}]\n",
    ]))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_bytes_in_the_place_of_an_ignore_file_do_harm(
        bytes in any_file(),
        path in near(one_of(&["a/x/b", "foo.o", "build", "aaab", "\u{e9}/\n"])),
        is_dir in any::<bool>(),
    ) {
        if is_dir {
            ignores(&rules_of(&bytes), &path, is_dir);
        } else {
            // The last line that matches decides, whatever comes before.
            let kept = rules_of(&[&bytes[..], b"\n!**"].concat());
            prop_assert!(!ignores(&kept, &path, is_dir));
        }
    }

    /// Nobody can make a line so that what is made of it is long.
    #[test]
    fn a_line_becomes_few_of_about_its_length(
        line in near(one_of(&["a**/**/b", "/a**", "**/x/**", "a**/**/**/**/**", "[a-c]**\\/x"])),
    ) {
        let lines = translate(&line);
        prop_assert!(lines.len() <= 3, "{:?}", lines);
        prop_assert!(lines.iter().all(|made| made.len() <= 40 * line.len() + 16), "{:?}", lines);
    }
}

const UNITS: [&str; 12] =
    ["**/", "*a", "a*", "?*", "a**/", "**/a", "[a-z]*", "a/**/", "***/", "{a,", "\\a", "["];

/// Parts again and again: lines for which a matcher that goes back takes exponential time.
fn long_lines(bytes: usize) -> impl Iterator<Item = String> {
    let around = [("", "b"), ("a", "b"), ("a**/", "**"), ("!/", "/")];
    UNITS.into_iter().flat_map(move |unit| {
        let middle = unit.repeat(bytes / unit.len());
        around.map(|(start, end)| format!("{start}{middle}{end}"))
    })
}

/// What a line of many stars is tried against costs at most the product of the lengths.
#[test]
fn no_line_takes_long_to_be_matched() {
    let begun = Instant::now();
    let paths = ["a".repeat(255), "a/".repeat(200), "a/b".to_owned()];
    for line in [30, 300].into_iter().flat_map(long_lines) {
        let rules = rules_of(line.as_bytes());
        for path in &paths {
            ignores(&rules, path.as_bytes(), false);
        }
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// A file of one line as long as a file may be: neither the stack nor the memory grows beyond it.
#[test]
fn no_line_takes_long_to_be_read() {
    let begun = Instant::now();
    let most = usize::try_from(limits::IGNORE_FILE_BYTES_MAX).unwrap();
    let longest = format!("a{}b", "**/".repeat(most / 3));
    for line in long_lines(10_000).chain([longest]) {
        let made: usize = translate(line.as_bytes()).iter().map(String::len).sum();
        assert!(made <= 6 * line.len(), "{made} bytes of {}", line.len());
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
