//! Sets of patterns of names.

use std::borrow::Cow;
use std::str::FromStr;

/// Why a text is not a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPattern {
    /// It, or a part beside its slash, is empty.
    #[error("it is empty, or one side of its `/` is")]
    Empty,
    /// It has more than one slash: patterns are about names, not about paths.
    #[error("it has more than one `/`; a pattern is a name, or a directory's name and a name")]
    Path,
    /// It holds a NUL byte, which no name can.
    #[error("it holds a NUL byte")]
    Nul,
}

/// A set of name patterns. In a pattern `*` stands for any bytes, also none. `parent/name` matches a
/// name in a directory of that name. A pattern that begins with `!` is an exception: a name that it
/// matches is not in the set, whatever the others say.
#[derive(Debug, Clone, Default)]
pub struct NamePatterns {
    texts: Vec<String>,
    included: Buckets,
    exceptions: Buckets,
}

impl PartialEq for NamePatterns {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}

impl Eq for NamePatterns {}

impl NamePatterns {
    /// Checks and takes the patterns.
    ///
    /// # Errors
    /// The first text that is not a pattern, and why.
    pub fn new<T: Into<String>>(
        patterns: impl IntoIterator<Item = T>,
    ) -> Result<Self, (String, InvalidPattern)> {
        let mut set = Self::default();
        for text in patterns {
            let text = text.into();
            match set.insert(&text) {
                Ok(()) => set.texts.push(text),
                Err(reason) => return Err((text, reason)),
            }
        }
        Ok(set)
    }

    /// The patterns of the program, which are patterns: a test reads them with [`NamePatterns::new`].
    pub(super) fn built_in(patterns: &[&str]) -> Self {
        Self::new(patterns.iter().copied()).unwrap_or_default()
    }

    /// Takes one more, if it is one.
    pub(super) fn add(&mut self, text: &str) {
        if self.insert(text).is_ok() {
            self.texts.push(text.to_owned());
        }
    }

    fn insert(&mut self, text: &str) -> Result<(), InvalidPattern> {
        match text.strip_prefix('!') {
            Some(exception) => self.exceptions.insert(exception.parse()?),
            None => self.included.insert(text.parse()?),
        }
        Ok(())
    }

    /// The patterns as they were given.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Whether `name`, in a directory named `parent`, is in the set. Cost: the patterns that share
    /// the name's first or last byte are tried.
    pub fn matches(&self, parent: &[u8], name: &[u8]) -> bool {
        let name = lower(name);
        self.included.matches(parent, &name) && !self.exceptions.matches(parent, &name)
    }
}

/// Patterns by a byte that a matching name must have at one end: a walk asks for every name whether
/// it is a secret, and nearly all are not.
#[derive(Debug, Clone, Default)]
struct Buckets {
    by_first: std::collections::HashMap<u8, Vec<Pattern>>,
    by_last: std::collections::HashMap<u8, Vec<Pattern>>,
    others: Vec<Pattern>,
}

impl Buckets {
    fn insert(&mut self, pattern: Pattern) {
        match (pattern.name.first(), pattern.name.last()) {
            (Some(&first), _) if first != b'*' => {
                self.by_first.entry(first).or_default().push(pattern);
            }
            (_, Some(&last)) if last != b'*' => {
                self.by_last.entry(last).or_default().push(pattern);
            }
            _ => self.others.push(pattern),
        }
    }

    /// `name` in lower case already.
    fn matches(&self, parent: &[u8], name: &[u8]) -> bool {
        let first = name.first().and_then(|first| self.by_first.get(first));
        let last = name.last().and_then(|last| self.by_last.get(last));
        [first, last, Some(&self.others)]
            .into_iter()
            .flatten()
            .flatten()
            .any(|pattern| pattern.matches(parent, name))
    }
}

/// One pattern, in lower case.
#[derive(Debug, Clone)]
struct Pattern {
    parent: Option<Vec<u8>>,
    name: Vec<u8>,
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        if text.contains('\0') {
            return Err(InvalidPattern::Nul);
        }
        let (parent, name) = match text.split_once('/') {
            Some((_, name)) if name.contains('/') => return Err(InvalidPattern::Path),
            Some((parent, name)) => (Some(parent), name),
            None => (None, text),
        };
        if name.is_empty() || parent == Some("") {
            return Err(InvalidPattern::Empty);
        }
        let lower = |text: &str| lower(text.as_bytes()).into_owned();
        Ok(Self { parent: parent.map(lower), name: lower(name) })
    }
}

impl Pattern {
    fn matches(&self, parent: &[u8], name: &[u8]) -> bool {
        has_form(name, &self.name)
            && self.parent.as_ref().is_none_or(|form| has_form(&lower(parent), form))
    }
}

/// `name` in lower case: of Unicode where it is UTF-8, else of its ASCII letters.
fn lower(name: &[u8]) -> Cow<'_, [u8]> {
    if name.is_ascii() {
        if name.iter().any(u8::is_ascii_uppercase) {
            return Cow::Owned(name.to_ascii_lowercase());
        }
        return Cow::Borrowed(name);
    }
    match std::str::from_utf8(name) {
        Ok(text) => Cow::Owned(text.to_lowercase().into_bytes()),
        Err(_) => Cow::Owned(name.to_ascii_lowercase()),
    }
}

/// Whether `form`, with `*` for any bytes, describes all of `name`. On a mismatch the last `*` takes
/// one byte more, so the cost is at most the product of the lengths.
fn has_form(name: &[u8], form: &[u8]) -> bool {
    let (mut in_name, mut in_form) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        if form.get(in_form) == Some(&b'*') {
            star = Some((in_form, in_name));
            in_form += 1;
        } else if form.get(in_form) == Some(&name[in_name]) {
            in_form += 1;
            in_name += 1;
        } else if let Some((star_in_form, taken_to)) = star {
            star = Some((star_in_form, taken_to + 1));
            in_form = star_in_form + 1;
            in_name = taken_to + 1;
        } else {
            return false;
        }
    }
    form[in_form..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mutation::{config, near_text};
    use crate::settings::{
        EXCLUDED_DIRECTORIES, EXCLUDED_FILES, SECRETS, ScopeSettings, is_version_control,
    };

    fn is_secret(path: &str) -> bool {
        let mut components = path.rsplit('/');
        let name = components.next().unwrap_or_default();
        let parent = components.next().unwrap_or_default();
        ScopeSettings::default().is_secret(parent.as_bytes(), name.as_bytes())
    }

    #[test]
    fn the_built_in_patterns_are_patterns() {
        for list in [&EXCLUDED_DIRECTORIES[..], &EXCLUDED_FILES[..], SECRETS] {
            let set = NamePatterns::new(list.iter().copied()).unwrap();
            assert_eq!(set.texts(), list);
        }
    }

    #[test]
    fn secrets_are_known_by_name_whatever_the_case() {
        for secret in [
            ".env",
            ".ENV",
            ".env.local",
            ".env.example.local",
            ".envrc",
            "server.pem",
            "A.KEY",
            "x.p12",
            "x.pfx",
            "x.jks",
            "x.kdbx",
            "x.keystore",
            "putty.ppk",
            "id_rsa",
            "id_rsa.bak",
            "ID_ED25519",
            "id_dsa",
            "id_ecdsa_sk",
            "credentials.json",
            "Credentials.JSON",
            ".npmrc",
            ".netrc",
            "_netrc",
            ".pypirc",
            ".git-credentials",
            ".htpasswd",
            ".pgpass",
            ".my.cnf",
            "home/.aws/credentials",
            ".AWS/Credentials",
            ".docker/config.json",
            ".kube/config",
            "app-service-account-prod.json",
            "client_secret_123.apps.json",
            "terraform.tfstate",
            "terraform.tfstate.backup",
            ".bash_history",
            ".zsh_history",
            ".vault-token",
            ".ssh",
            ".gnupg",
            "ssh_host_rsa_key",
            "x-firebase-adminsdk-1.json",
            "secrets.toml",
            // The Kelvin sign is a capital k.
            ".b\u{212a}x/x.\u{212a}ey",
        ] {
            assert!(is_secret(secret), "{secret} should be a secret");
        }
    }

    #[test]
    fn templates_public_keys_and_source_files_are_no_secrets() {
        for plain in [
            ".env.example",
            ".env.sample",
            ".ENV.Template",
            "id_rsa.pub",
            "id_ed25519.PUB",
            "env",
            "environment.ts",
            "credentials.rs",
            "credentials",
            "config.json",
            "config",
            "auth.json",
            "kubeconfig.go",
            "kubeconfig",
            "key.rs",
            "keys",
            "pem.go",
            "settings.xml",
            "hosts.yml",
            "main.tf",
            "prod.tfvars",
            "history",
            "history.rs",
            "secrets.rs",
            "secrets",
            "key",
            "serviceaccount.go",
            "wp-config.php",
            "turkey",
            "_history",
            ".history",
        ] {
            assert!(!is_secret(plain), "{plain} should not be a secret");
        }
    }

    #[test]
    fn version_control_is_known_in_every_case_and_only_as_a_whole_name() {
        for name in [".git", ".GIT", ".hg", ".svn", ".jj", ".sl", ".turnpoint", ".vak"] {
            assert!(is_version_control(name.as_bytes()), "{name}");
        }
        for name in [".gitignore", "git", ".github", ".turnpoint.toml", ""] {
            assert!(!is_version_control(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_star_stands_for_any_bytes_anywhere() {
        for (name, form, expected) in [
            ("", "", true),
            ("", "*", true),
            ("a", "", false),
            ("abc", "a*c", true),
            ("abcbd", "a*b*d", true),
            ("abcbd", "a*b*c", false),
            ("aaab", "*aab", true),
            ("aab", "aab*", true),
            ("xaab", "aab*", false),
        ] {
            assert_eq!(has_form(name.as_bytes(), form.as_bytes()), expected, "{name} {form}");
        }
        let stars = "*a".repeat(60);
        assert!(!has_form("a".repeat(255).as_bytes(), format!("{stars}b").as_bytes()));
    }

    #[test]
    fn names_that_are_not_utf8_are_compared_by_their_ascii_letters() {
        let set = NamePatterns::new(["*.PEM"]).unwrap();
        assert!(set.matches(b"", b"\xff\xfe.Pem"));
        assert!(!set.matches(b"", b"\xff\xfe.pe"));
    }

    #[test]
    fn what_is_not_a_pattern_is_refused_by_name() {
        for (text, reason) in [
            ("", InvalidPattern::Empty),
            ("!", InvalidPattern::Empty),
            ("/x", InvalidPattern::Empty),
            ("x/", InvalidPattern::Empty),
            ("a/b/c", InvalidPattern::Path),
            ("a\0", InvalidPattern::Nul),
        ] {
            assert_eq!(NamePatterns::new(["ok", text]), Err((text.to_owned(), reason)), "{text:?}");
        }
    }

    #[test]
    fn settings_that_differ_have_different_digests() {
        let default = ScopeSettings::default();
        let moved = ScopeSettings {
            excluded_directories: NamePatterns::new(["target", "node_modules"]).unwrap(),
            excluded_files: NamePatterns::new(["dist", "store.db", "store.db-wal", "store.db-shm"])
                .unwrap(),
            ..ScopeSettings::default()
        };
        let limited = ScopeSettings { total_limit_bytes: Some(0), ..ScopeSettings::default() };
        assert_ne!(default.digest(), moved.digest());
        let deaf = ScopeSettings { obeys_ignore_files: false, ..ScopeSettings::default() };
        assert_ne!(default.digest(), limited.digest());
        assert_ne!(default.digest(), deaf.digest());
        assert_eq!(default.digest(), ScopeSettings::default().digest());
    }

    /// As [`has_form`] by a table of all pairs of beginnings: slow, and plainly right.
    fn has_form_by_table(name: &[u8], form: &[u8]) -> bool {
        let mut fits: Vec<bool> = (0..=name.len()).map(|length| length == 0).collect();
        for &sign in form {
            let mut next = vec![false; name.len() + 1];
            for at in 0..=name.len() {
                next[at] = match sign {
                    b'*' => fits[at] || (at > 0 && next[at - 1]),
                    _ => at > 0 && fits[at - 1] && name[at - 1] == sign,
                };
            }
            fits = next;
        }
        fits[name.len()]
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_form_describes_what_a_table_of_all_beginnings_says(
            name in "[ab]{0,12}",
            form in "[ab*]{0,12}",
        ) {
            let (name, form) = (name.as_bytes(), form.as_bytes());
            prop_assert_eq!(has_form(name, form), has_form_by_table(name, form));
        }

        /// Whatever a settings file holds: patterns are about names, are kept as given, and any name can
        /// be asked about.
        #[test]
        fn no_text_in_the_place_of_a_pattern_does_harm(
            text in near_text(&[".env*", "!*.pub", ".docker/config.json", "*a*b*", "\u{212a}*", "**"]),
            parent in near_text(&["", ".docker", "\u{212a}"]),
            name in near_text(&[".env.local", "config.json", "xaxbx", "\u{212a}EY"]),
        ) {
            match NamePatterns::new([&*text]) {
                Ok(set) => {
                    prop_assert_eq!(set.texts(), [&*text]);
                    let pattern = text.strip_prefix('!').unwrap_or(&text);
                    prop_assert!(!pattern.is_empty() && !pattern.contains('\0'));
                    prop_assert!(pattern.matches('/').count() <= 1);
                    let is_in = set.matches(parent.as_bytes(), name.as_bytes());
                    let upper = name.to_ascii_uppercase();
                    prop_assert_eq!(set.matches(parent.as_bytes(), upper.as_bytes()), is_in);
                    if text.starts_with('!') {
                        prop_assert!(!is_in);
                    } else if !text.contains('/') {
                        let (name, form) = (lower(name.as_bytes()), lower(text.as_bytes()));
                        prop_assert_eq!(is_in, has_form_by_table(&name, &form));
                    }
                }
                Err((refused, _)) => prop_assert_eq!(refused, text),
            }
        }
    }

    #[test]
    fn a_pattern_of_many_stars_is_tried_in_no_time() {
        let begun = std::time::Instant::now();
        let longest_name = "a".repeat(255);
        for form in ["*a".repeat(20_000), "a*".repeat(20_000), "*".repeat(40_000)] {
            let set = NamePatterns::new([format!("{form}b*"), format!("x/{form}b")]).unwrap();
            assert!(!set.matches(b"x", longest_name.as_bytes()));
        }
        assert!(begun.elapsed().as_secs() < 5);
    }
}
