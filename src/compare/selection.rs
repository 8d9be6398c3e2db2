//! Which paths are meant. The crate `globset` is used here and nowhere else.

use globset::{GlobBuilder, GlobMatcher};

use crate::path::RelPath;

/// Paths, each with everything below it, and patterns; all paths where there is none of either.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    paths: Vec<RelPath>,
    patterns: Vec<GlobMatcher>,
}

/// The pattern that a path is, if it is one; in it `*` and `?` match a slash only if `crosses`. What does
/// not hold together as a pattern, such as a bracket that is not closed, is a name and nothing else.
fn pattern(path: &[u8], crosses: bool) -> Option<GlobMatcher> {
    let text = std::str::from_utf8(path).ok().filter(|text| text.contains(['*', '?', '[']))?;
    let mut builder = GlobBuilder::new(text);
    let glob = builder.literal_separator(!crosses).backslash_escape(true).build();
    glob.ok().map(|glob| glob.compile_matcher())
}

impl Selection {
    /// Takes paths of the workspace. One with `*`, `?` or `[` in it is a pattern as well: it matches a
    /// path as a whole, or a directory with everything below it, and `*` matches slashes too, as in git.
    pub fn new(paths: Vec<RelPath>) -> Self {
        let patterns = paths.iter().filter_map(|path| pattern(path.as_bytes(), true)).collect();
        Self { paths, patterns }
    }

    /// Whether nothing is left out.
    pub fn is_all(&self) -> bool {
        self.paths.is_empty()
    }

    /// Whether a path is meant.
    pub fn includes(&self, path: &RelPath) -> bool {
        self.is_all()
            || self.paths.iter().any(|selected| path.is_at_or_below(selected))
            || self.patterns.iter().any(|pattern| {
                pattern.is_match(path.as_os())
                    || path
                        .ancestors()
                        .any(|above| !above.is_root() && pattern.is_match(above.as_os()))
            })
    }

    /// The paths that are no patterns.
    pub fn plain(&self) -> impl Iterator<Item = &RelPath> {
        self.paths.iter().filter(|path| pattern(path.as_bytes(), true).is_none())
    }
}

/// What to find: a name, or a pattern of names.
#[derive(Debug, Clone)]
pub struct NamePattern {
    text: Vec<u8>,
    /// Whether it is compared with whole paths.
    is_path: bool,
    pattern: Option<GlobMatcher>,
}

impl NamePattern {
    /// Takes what was typed. With a slash in it, it is compared with whole paths, seen from the
    /// workspace's root; else with the last name of each. `*` and `?` match no slash, `**` does.
    pub fn new(text: &[u8]) -> Self {
        let text = text.strip_prefix(b"./").unwrap_or(text);
        let text = text.strip_suffix(b"/").unwrap_or(text);
        let pattern = pattern(text, false);
        Self { text: text.to_vec(), is_path: text.contains(&b'/'), pattern }
    }

    /// Whether a path is one of those that are looked for.
    pub fn matches(&self, path: &RelPath) -> bool {
        let name = if self.is_path { path.as_bytes() } else { path.name() };
        if path.is_root() {
            return false;
        }
        let as_os = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name);
        name == self.text || self.pattern.as_ref().is_some_and(|it| it.is_match(as_os))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    fn selection(texts: &[&str]) -> Selection {
        Selection::new(texts.iter().map(|text| path(text)).collect())
    }

    #[test]
    fn paths_mean_what_is_below_and_patterns_cross_slashes() {
        let included = |texts: &[&str], tried: &str| selection(texts).includes(&path(tried));
        assert!(included(&[], "a") && included(&[""], "a/b"));
        assert!(included(&["src"], "src/a.rs") && included(&["src"], "src"));
        assert!(!included(&["src"], "src2/a.rs"));
        assert!(included(&["*.rs"], "src/deep/a.rs") && !included(&["*.rs"], "a.rst"));
        assert!(included(&["s*"], "src/a.txt"), "a directory that matches");
        assert!(included(&["a[1].txt"], "a[1].txt"), "a name that looks like a pattern");
        assert!(included(&["a[1].txt"], "a1.txt"));
        assert!(!included(&["*.RS"], "a.rs"));
        let both = selection(&["src", "*.md"]);
        assert_eq!(both.plain().collect::<Vec<_>>(), [&path("src")]);
    }

    #[test]
    fn a_pattern_that_does_not_hold_together_is_a_name() {
        let selection = selection(&["a[b"]);
        assert!(selection.includes(&path("a[b/c")) && !selection.includes(&path("ab")));
        assert_eq!(selection.plain().count(), 1);
    }

    #[test]
    fn names_are_found_wherever_they_are_and_paths_only_there() {
        let matches =
            |text: &str, tried: &str| NamePattern::new(text.as_bytes()).matches(&path(tried));
        assert!(matches("a.rs", "a.rs") && matches("a.rs", "src/a.rs"));
        assert!(!matches("a.rs", "a.rs/b") && !matches("a.rs", "ba.rs"));
        assert!(matches("*.rs", "src/deep/a.rs") && matches("s?c", "x/src"));
        assert!(matches("src/*.rs", "src/a.rs") && !matches("src/*.rs", "src/deep/a.rs"));
        assert!(matches("**/deep/*.rs", "src/deep/a.rs") && !matches("src/a.rs", "x/src/a.rs"));
        assert!(matches("./src/a.rs", "src/a.rs") && matches("src/", "x/src"));
    }
}
