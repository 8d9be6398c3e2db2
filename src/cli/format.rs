//! Numbers, sizes and times as people read them.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::tz::TimeZone;
use turnpoint::clock::Timestamp;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for what was cut off.
const ELLIPSIS: char = '…';

/// `1204` as `1,204`.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `1,204 files`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// A length in bytes with a binary unit: `0 B`, `12.4 KiB`.
#[expect(clippy::cast_precision_loss, reason = "one decimal of a unit is shown")]
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be shown as 1024.0 is one of the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// How long something took: `8 ms`, `1.2 s`, `2 min 5 s`.
pub(crate) fn elapsed(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1_000, milliseconds % 1_000 / 100),
        _ => format!("{} min {} s", milliseconds / 60_000, milliseconds % 60_000 / 1_000),
    }
}

/// How long before `now` something was: `2 h ago`.
pub(crate) fn age(then: Timestamp, now: Timestamp) -> String {
    let seconds = then.until(now).as_secs();
    let (count, unit) = match seconds {
        0 => return "just now".to_owned(),
        1..60 => (seconds, "s"),
        60..3_600 => (seconds / 60, "min"),
        3_600..86_400 => (seconds / 3_600, "h"),
        86_400..5_184_000 => (seconds / 86_400, "d"),
        5_184_000..63_072_000 => (seconds / 2_592_000, "mo"),
        _ => (seconds / 31_536_000, "y"),
    };
    format!("{count} {unit} ago")
}

/// The minute, in the local time zone: `2026-11-29 18:15`.
pub(crate) fn minute(time: Timestamp) -> String {
    local(time, "%Y-%m-%d %H:%M")
}

/// The second, in the local time zone, which is named: `2026-11-29 18:15:24 +01:00`.
pub(crate) fn second(time: Timestamp) -> String {
    local(time, "%Y-%m-%d %H:%M:%S %:z")
}

fn local(time: Timestamp, form: &str) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(time.as_ns())) {
        Ok(utc) => utc.to_zoned_datetime(LOCAL.clone()).strftime(form).to_string(),
        Err(_) => time.to_string(),
    }
}

/// Where the day begins here.
pub(crate) fn local_zone() -> &'static TimeZone {
    &LOCAL
}

/// The local time zone. Where the environment does not name one the system's file is enough; to find its
/// name as well, which is not shown, a list of all zones would be made first.
static LOCAL: LazyLock<TimeZone> = LazyLock::new(|| {
    let file = std::env::var_os("TZ").is_none().then(|| std::fs::read("/etc/localtime").ok());
    let zone = file.flatten().and_then(|rules| TimeZone::tzif("Local", &rules).ok());
    zone.unwrap_or_else(TimeZone::system)
});

/// How many in a second: `45,120/s`.
pub(crate) fn rate(count: u64, elapsed: Duration) -> String {
    let milliseconds = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    format!("{}/s", number(count.saturating_mul(1_000) / milliseconds))
}

/// `text` in lines of at most `width` characters, broken at spaces; a longer word stays whole, and so does
/// what is between backticks: a command is to be copied in one piece.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in words(text) {
        let word_length = word.chars().count();
        if length > 0 && length + 1 + word_length > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        line.push_str(&word);
        length += word_length;
    }
    lines.push(line);
    lines
}

/// The parts between spaces, but for those within a pair of backticks. One without a partner means nothing.
pub(crate) fn words(text: &str) -> Vec<String> {
    let is_open = |part: &&str| !part.matches('`').count().is_multiple_of(2);
    let parts: Vec<&str> = text.split(' ').collect();
    let (mut rest, mut words) = (&*parts, Vec::new());
    while let Some((first, others)) = rest.split_first() {
        let partner = if is_open(first) { others.iter().position(is_open) } else { None };
        let (more, after) = others.split_at(partner.map_or(0, |at| at + 1));
        words.push([&[*first], more].concat().join(" "));
        rest = after;
    }
    words
}

/// `text`, or as much of it as takes `room` columns with the ellipsis.
pub(crate) fn shortened(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut taken = 1;
    for character in text.chars() {
        taken += character.width().unwrap_or(0);
        if taken > room {
            break;
        }
        cut.push(character);
    }
    cut.push(ELLIPSIS);
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sizes_are_short() {
        let numbers = [0, 7, 999, 1_000, 1_234_567];
        assert_eq!(numbers.map(number), ["0", "7", "999", "1,000", "1,234,567"]);
        let sizes = [0, 1023, 1024, 12_700, 1_048_575, 1_048_576, u64::MAX];
        let shown = ["0 B", "1023 B", "1.0 KiB", "12.4 KiB", "1.0 MiB", "1.0 MiB", "16.0 EiB"];
        assert_eq!(sizes.map(size), shown);
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(counted(2_000, "file", "files"), "2,000 files");
        let times = [8, 1_250, 59_999, 125_000];
        assert_eq!(times.map(elapsed), ["8 ms", "1.2 s", "59.9 s", "2 min 5 s"]);
        assert_eq!(rate(500, Duration::from_millis(250)), "2,000/s");
        assert_eq!(rate(5, Duration::ZERO), "5,000/s");
    }

    #[test]
    fn an_age_has_one_unit() {
        let second = 1_000_000_000;
        let at = |seconds: i64| Timestamp::from_ns(seconds * second);
        let age_after = |seconds| age(at(0), at(seconds));
        assert_eq!(
            [0, 59, 60, 7_199, 86_400, 5_183_999, 5_184_000, 63_072_000].map(age_after),
            [
                "just now",
                "59 s ago",
                "1 min ago",
                "1 h ago",
                "1 d ago",
                "59 d ago",
                "2 mo ago",
                "2 y ago"
            ]
        );
        assert_eq!(age(at(9), at(0)), "just now");
    }

    #[test]
    fn lines_break_at_spaces() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("a longer-than-the-line b", 6), ["a", "longer-than-the-line", "b"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(
            wrapped("so `turnpoint list -n 5`, or `ls`", 12),
            ["so", "`turnpoint list -n 5`,", "or `ls`"]
        );
        assert_eq!(wrapped("it is a ` alone", 6), ["it is", "a `", "alone"]);
        assert_eq!(wrapped("`a b` `c", 3), ["`a b`", "`c"]);
    }
}
