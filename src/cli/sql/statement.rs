//! Where a statement ends: at a semicolon that is in no text, name or comment.

/// Cuts `text` after each such semicolon. The second part is what follows the last: without a
/// statement in it, or one that goes on.
pub(super) fn split(text: &str) -> (Vec<&str>, &str) {
    let mut statements = Vec::new();
    let mut rest = text;
    while let Some(end) = end(rest) {
        let (statement, after) = rest.split_at(end);
        statements.push(statement);
        rest = after;
    }
    (statements, rest)
}

/// Whether nothing is left to be typed.
pub(super) fn is_complete(text: &str) -> bool {
    split(text).1.trim().is_empty()
}

/// How long the first statement is, its semicolon included.
fn end(text: &str) -> Option<usize> {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let after = rest.split_at(first.len_utf8()).1;
        rest = match first {
            ';' => return Some(text.len() - after.len()),
            '\'' | '"' | '`' => past(after, &first.to_string())?,
            '[' => past(after, "]")?,
            '-' if after.starts_with('-') => past(after, "\n")?,
            '/' if after.starts_with('*') => past(after.split_at(1).1, "*/")?,
            _ => after,
        };
    }
    None
}

/// What follows `closing`. A quote that is doubled closes and opens again, which comes to the same.
fn past<'a>(text: &'a str, closing: &str) -> Option<&'a str> {
    text.split_once(closing).map(|(_, after)| after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semicolon_ends_a_statement_unless_it_is_quoted() {
        for (text, statements, rest) in [
            ("", &[][..], ""),
            ("SELECT 1", &[], "SELECT 1"),
            ("SELECT 1;", &["SELECT 1;"], ""),
            ("SELECT ';';", &["SELECT ';';"], ""),
            ("SELECT 'it''s; so';x", &["SELECT 'it''s; so';"], "x"),
            ("SELECT \";\", `;`, [;];", &["SELECT \";\", `;`, [;];"], ""),
            ("a; -- b; c\nd; ", &["a;", " -- b; c\nd;"], " "),
            ("a /* ; */; b /* ;", &["a /* ; */;"], " b /* ;"),
            ("a - b / c * d;", &["a - b / c * d;"], ""),
            ("SELECT 'é;", &[], "SELECT 'é;"),
        ] {
            assert_eq!(split(text), (statements.to_vec(), rest), "{text}");
        }
        assert!(is_complete("SELECT 1; "));
        assert!(!is_complete("SELECT 1; SELECT"));
    }
}
