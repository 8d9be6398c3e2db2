//! Lines of an ignore file, written again so that the crate `ignore` means by them what git does.
//!
//! The crate follows gitignore(5); git follows its `wildmatch.c`. Where the two differ (`a**b`, braces,
//! escapes and classes inside brackets, lines that cannot match) the line is put in other words. A
//! line that the crate has no words for is left out, which ignores less, never more.

/// One line of an ignore file in the crate's terms: anchored lines, with every byte that is only itself
/// escaped where it could be taken for more. More than one where the crate has no single one that says
/// the same; none where the line is empty, a comment, cannot match anything, or cannot be said: it is
/// not UTF-8, or has bytes beyond ASCII in brackets.
pub(super) fn translate(line: &[u8]) -> Vec<String> {
    lines(line).unwrap_or_default()
}

fn lines(line: &[u8]) -> Option<Vec<String>> {
    let line = std::str::from_utf8(line).ok()?;
    if line.starts_with('#') {
        return None;
    }
    let line = trim_spaces(line);
    let (negation, line) = line.strip_prefix('!').map_or(("", line), |line| ("!", line));
    let (only_dir, line) = line.strip_suffix('/').map_or(("", line), |line| ("/", line));
    // With a slash anywhere but at its end the pattern is for the whole path, else for the name.
    let is_path = line.contains('/');
    let line = if is_path { line.strip_prefix('/').unwrap_or(line) } else { line };
    if line.is_empty() || line.starts_with('/') || line.ends_with('/') {
        return None;
    }
    let bodies = if is_path {
        let literal_bytes = line.bytes().take_while(|byte| !b"*?[\\".contains(byte)).count();
        let (literal, rest) = line.split_at_checked(literal_bytes)?;
        after_literal(literal, rest.as_bytes())?
    } else {
        vec![format!("**/{}", body(line.as_bytes())?)]
    };
    Some(bodies.into_iter().map(|body| format!("{negation}/{body}{only_dir}")).collect())
}

/// The bodies for a path pattern that begins with the text `start`. git compares that text by itself
/// and then takes the rest for a pattern of its own: two stars there are at a beginning, and stand
/// for directories, although no slash is before them. So `a**/b` matches `ab`, `ax/b` and `a/x/b`.
fn after_literal(start: &str, rest: &[u8]) -> Option<Vec<String>> {
    let literal = body(start.as_bytes())?;
    let count = stars_at(rest);
    let behind = &rest[count..];
    if start.is_empty() || start.ends_with('/') || count < 2 {
        return Some(vec![format!("{literal}{}", body(rest)?)]);
    }
    match below_directories(rest) {
        Some(mut below) => {
            // Directories below directories are directories: said once, or a line of many would be
            // written again for each of them.
            while let Some(further) = below_directories(below) {
                below = further;
            }
            let mut bodies = after_literal(start, below)?;
            bodies.push(format!("{literal}*/**/{}", body(below)?));
            Some(bodies)
        }
        None if behind.is_empty() => Some(vec![format!("{literal}*"), format!("{literal}*/**")]),
        None => Some(vec![format!("{literal}{}", body(rest)?)]),
    }
}

/// What follows the stars for any number of directories at the beginning of a pattern.
fn below_directories(pattern: &[u8]) -> Option<&[u8]> {
    let count = stars_at(pattern);
    let behind = &pattern[count..];
    let below = behind.strip_prefix(b"\\").unwrap_or(behind).strip_prefix(b"/");
    below.filter(|_| count >= 2)
}

fn stars_at(pattern: &[u8]) -> usize {
    pattern.iter().take_while(|&&byte| byte == b'*').count()
}

/// Without the spaces at the end, unless a backslash keeps them.
fn trim_spaces(line: &str) -> &str {
    let mut end = 0;
    let mut bytes = line.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b' ' => {}
            b'\\' => match bytes.next() {
                Some((next, _)) => end = next + 1,
                None => return line,
            },
            _ => end = at + 1,
        }
    }
    line.get(..end).unwrap_or(line)
}

fn body(pattern: &[u8]) -> Option<String> {
    let mut text = Vec::with_capacity(pattern.len() + 8);
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        at += 1;
        match byte {
            b'\\' => {
                // Nothing to escape: git never matches such a pattern.
                literal(*pattern.get(at)?, &mut text);
                at += 1;
            }
            b'?' => text.push(b'?'),
            b'*' => {
                let end = at + pattern[at..].iter().take_while(|&&next| next == b'*').count();
                text.extend_from_slice(stars(pattern, at - 1, end));
                at = end;
            }
            b'[' => {
                let (class, end) = Class::parse(pattern, at)?;
                class.write(&mut text)?;
                at = end;
            }
            other => literal(other, &mut text),
        }
    }
    String::from_utf8(text).ok()
}

/// Two stars or more between slashes stand for any number of directories; anywhere else for what one
/// star stands for.
fn stars(pattern: &[u8], start: usize, end: usize) -> &'static [u8] {
    let after_slash = start == 0 || pattern[start - 1] == b'/';
    let rest = &pattern[end..];
    let before_slash = matches!(rest, [] | [b'/', ..] | [b'\\', b'/', ..]);
    if end - start > 1 && after_slash && before_slash { b"**" } else { b"*" }
}

fn literal(byte: u8, text: &mut Vec<u8>) {
    if matches!(byte, b'*' | b'?' | b'[' | b']' | b'{' | b'}' | b',' | b'\\' | b' ') {
        text.push(b'\\');
    }
    text.push(byte);
}

/// The ASCII characters between brackets.
struct Class {
    negated: bool,
    members: [bool; 128],
}

impl Class {
    /// Reads as `dowild` in git's `wildmatch.c` does; `at` is behind the bracket, and so is the index
    /// returned behind the other. `None` where git never matches, or a byte is not ASCII.
    fn parse(pattern: &[u8], mut at: usize) -> Option<(Self, usize)> {
        let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
        at += usize::from(negated);
        let mut class = Self { negated, members: [false; 128] };
        let mut previous: Option<u8> = None;
        let first = at;
        loop {
            let byte = *pattern.get(at)?;
            if byte == b']' && at > first {
                return Some((class, at + 1));
            }
            at += 1;
            match byte {
                b'\\' => {
                    let escaped = *pattern.get(at)?;
                    at += 1;
                    class.add(escaped, escaped)?;
                    previous = Some(escaped);
                }
                b'-' if previous.is_some() && !matches!(pattern.get(at), None | Some(b']')) => {
                    if pattern.get(at) == Some(&b'\\') {
                        at += 1;
                    }
                    class.add(previous?, *pattern.get(at)?)?;
                    at += 1;
                    previous = None;
                }
                b'[' if pattern.get(at) == Some(&b':') => {
                    let end = at + 1 + pattern.get(at + 1..)?.iter().position(|&b| b == b']')?;
                    if let Some(name) = pattern[at + 1..end].strip_suffix(b":") {
                        class.add_named(name)?;
                        previous = None;
                        at = end + 1;
                    } else {
                        class.add(b'[', b'[')?;
                        previous = Some(b'[');
                    }
                }
                other => {
                    class.add(other, other)?;
                    previous = Some(other);
                }
            }
        }
    }

    fn add(&mut self, from: u8, to: u8) -> Option<()> {
        if !from.is_ascii() || !to.is_ascii() {
            return None;
        }
        for byte in from..=to {
            self.members[usize::from(byte)] = true;
        }
        Some(())
    }

    fn add_named(&mut self, name: &[u8]) -> Option<()> {
        let is_member: fn(&u8) -> bool = match name {
            b"alnum" => u8::is_ascii_alphanumeric,
            b"alpha" => u8::is_ascii_alphabetic,
            b"blank" => |byte| matches!(byte, b' ' | b'\t'),
            b"cntrl" => u8::is_ascii_control,
            b"digit" => u8::is_ascii_digit,
            b"graph" => u8::is_ascii_graphic,
            b"lower" => u8::is_ascii_lowercase,
            b"print" => |byte| matches!(byte, b' '..=b'~'),
            b"punct" => u8::is_ascii_punctuation,
            b"space" => |byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'),
            b"upper" => u8::is_ascii_uppercase,
            b"xdigit" => u8::is_ascii_hexdigit,
            _ => return None,
        };
        for byte in (0..128).filter(is_member) {
            self.members[usize::from(byte)] = true;
        }
        Some(())
    }

    /// Writes it in the crate's form, which has no escapes: a closing bracket first, a dash last, the
    /// signs of negation not first. A slash is never matched by a class, so it can stand first.
    fn write(&self, text: &mut Vec<u8>) -> Option<()> {
        let member = |byte: u8| self.members[usize::from(byte)];
        if !self.members.contains(&true) {
            return None;
        }
        text.extend_from_slice(if self.negated { b"[!" } else { b"[" });
        text.push(if member(b']') { b']' } else { b'/' });
        let mut byte = 0u8;
        while byte < 128 {
            let run = (byte..128).take_while(|&b| member(b) && b.is_ascii_alphanumeric()).count();
            match (byte, run) {
                (first, 3..) => {
                    let last = first + u8::try_from(run).ok()? - 1;
                    text.extend_from_slice(&[first, b'-', last]);
                    byte = last;
                }
                (b']' | b'-' | b'/', _) => {}
                (only, _) if member(only) => text.push(only),
                _ => {}
            }
            byte += 1;
        }
        if member(b'-') {
            text.push(b'-');
        }
        text.push(b']');
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_match_nothing_are_left_out() {
        for line in [
            "",
            "   ",
            "# x",
            "!",
            "/",
            "!/",
            "//",
            "//a",
            "a//",
            "a\\",
            "a\\/",
            "[a",
            "[[:nope:]]",
            "a[",
            "[]",
            "[!]",
        ] {
            assert_eq!(translate(line.as_bytes()), [""; 0], "{line:?}");
        }
        assert_eq!(translate(b"\xff"), [""; 0]);
        assert_eq!(translate("[\u{e9}]".as_bytes()), [""; 0]);
    }

    #[test]
    fn what_is_only_itself_is_escaped_and_what_git_reads_otherwise_is_rewritten() {
        for (line, expected) in [
            ("a", &["/**/a"][..]),
            ("a/", &["/**/a/"]),
            ("!a", &["!/**/a"]),
            ("\\!a", &["/**/!a"]),
            ("\\#a", &["/**/#a"]),
            ("/a", &["/a"]),
            ("a/b", &["/a/b"]),
            ("a  ", &["/**/a"]),
            ("a\\  ", &["/**/a\\ "]),
            ("a**b", &["/**/a*b"]),
            ("**/a", &["/**/a"]),
            ("a/***/b", &["/a/**/b"]),
            ("a/**", &["/a/**"]),
            ("{a,b}", &["/**/\\{a\\,b\\}"]),
            ("[a-d]", &["/**/[/a-d]"]),
            ("[!\\]]", &["/**/[!]]"]),
            ("[^^]", &["/**/[!/^]"]),
            ("[a\\-c]", &["/**/[/ac-]"]),
            ("[[:digit:]x]", &["/**/[/0-9x]"]),
            ("[[:x]", &["/**/[/:[x]"]),
            ("a**/b", &["/ab", "/a*/**/b"]),
            ("!/a**", &["!/a*", "!/a*/**"]),
            ("?a**/b", &["/?a*/b"]),
            ("a**/**/***/b", &["/ab", "/a*/**/b"]),
            ("a**/**", &["/a*", "/a*/**", "/a*/**/**"]),
        ] {
            assert_eq!(translate(line.as_bytes()), expected, "{line:?}");
        }
    }
}
