//! A moment as people write it: a time, or how long ago it was.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, ZonedDateTime};
use turnpoint::clock::Timestamp;

use crate::cli::format;

/// What can be written.
const FORMS: &str = "these forms are read: 10m, 2h, `2 days ago`, `an hour ago`, now, yesterday, 09:30, \
                     9:30pm, `yesterday 09:30`, 2026-11-29, `2026-11-29 09:30`, 2026-11-29T09:30:00Z";

/// Reads the value of an option, seen from the present moment and the local time zone.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let now = jiff::Timestamp::from_nanosecond(i128::from(Timestamp::now().as_ns()))
        .map_err(|error| error.to_string())?;
    read(text.trim(), &now.to_zoned_datetime(format::local_zone().clone()))
        .ok_or_else(|| FORMS.to_owned())
}

/// RFC 3339; else a local date and time, a date, which means its beginning, or a time of day, which means
/// the last time that the clock showed it; `now`, or `yesterday`, which means this time of that day, as in
/// git; `today` or `yesterday` with a time of day; else how long ago.
fn read(text: &str, now: &ZonedDateTime) -> Option<Timestamp> {
    let timestamp = |at: jiff::Timestamp| i64::try_from(at.as_nanosecond()).ok();
    let zone = now.time_zone();
    let at = if let Ok(exact) = text.parse::<jiff::Timestamp>() {
        exact
    } else if let Some(time) = time_of_day(text) {
        let today = local(now.date().to_datetime(time), zone)?;
        if today <= now.timestamp() {
            today
        } else {
            local(now.date().yesterday().ok()?.to_datetime(time), zone)?
        }
    } else if let Ok(civil) = text.parse::<DateTime>() {
        local(civil, zone)?
    } else {
        let text = text.to_lowercase();
        match text.split_once(' ') {
            None if text == "now" => now.timestamp(),
            None if text == "yesterday" => now.yesterday().ok()?.timestamp(),
            Some(("today", time)) => local(now.date().to_datetime(time_of_day(time)?), zone)?,
            Some(("yesterday", time)) => {
                local(now.date().yesterday().ok()?.to_datetime(time_of_day(time)?), zone)?
            }
            Some(("a" | "an" | "one", unit)) => ago(&format!("1 {unit}"), now)?,
            _ => ago(&text, now)?,
        }
    };
    timestamp(at).map(Timestamp::from_ns)
}

/// `2 days ago` is a span below zero, and `2 days` means the same here.
fn ago(text: &str, now: &ZonedDateTime) -> Option<jiff::Timestamp> {
    let span: Span = text.parse().ok()?;
    Some(now.checked_sub(span.abs()).ok()?.timestamp())
}

/// `09:30`, `9:30`, `09:30:15`, `9:30pm`, `9 pm`; a number alone may be that of a checkpoint.
fn time_of_day(text: &str) -> Option<Time> {
    let text = text.trim().to_lowercase();
    let half = ["am", "pm"].into_iter().find(|half| text.ends_with(half));
    let clock = half.and_then(|half| text.strip_suffix(half)).unwrap_or(&text).trim_end();
    let (hour, rest) = match clock.split_once(':') {
        Some((hour, rest)) => (hour, rest),
        None if half.is_some() => (clock, "00"),
        None => return None,
    };
    if hour.is_empty() || hour.len() > 2 || !hour.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let hour: u8 = hour.parse().ok()?;
    let hour = match half {
        None => hour,
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(half) => hour % 12 + if half == "pm" { 12 } else { 0 },
    };
    format!("{hour:02}:{rest}").parse().ok()
}

fn local(civil: DateTime, zone: &TimeZone) -> Option<jiff::Timestamp> {
    zone.to_timestamp(civil).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Option<String> {
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let now: jiff::Timestamp = "2026-11-30T11:00:00Z".parse().unwrap();
        read(text, &now.to_zoned_datetime(berlin))
            .map(|at| at.to_string().replace(".000000000", ""))
    }

    #[test]
    fn every_form_means_one_moment() {
        for (text, expected) in [
            ("2026-11-29T09:30:00Z", "2026-11-29T09:30:00Z"),
            ("2026-11-29T09:30:00+05:30", "2026-11-29T04:00:00Z"),
            ("2026-11-29 09:30", "2026-11-29T08:30:00Z"),
            ("2026-11-29T09:30:07", "2026-11-29T08:30:07Z"),
            ("2026-11-29", "2026-11-28T23:00:00Z"),
            // Noon here: what is still to come today was last shown yesterday.
            ("09:30", "2026-11-30T08:30:00Z"),
            ("9:30", "2026-11-30T08:30:00Z"),
            ("12:00", "2026-11-30T11:00:00Z"),
            ("12:00:01", "2026-11-29T11:00:01Z"),
            ("23:59", "2026-11-29T22:59:00Z"),
            ("0:05", "2026-11-29T23:05:00Z"),
            ("9:30am", "2026-11-30T08:30:00Z"),
            ("9:30 PM", "2026-11-29T20:30:00Z"),
            ("12am", "2026-11-29T23:00:00Z"),
            ("12pm", "2026-11-30T11:00:00Z"),
            ("now", "2026-11-30T11:00:00Z"),
            ("Yesterday", "2026-11-29T11:00:00Z"),
            ("yesterday 18:15", "2026-11-29T17:15:00Z"),
            ("today 9am", "2026-11-30T08:00:00Z"),
            ("an hour ago", "2026-11-30T10:00:00Z"),
            ("a week ago", "2026-11-23T11:00:00Z"),
            ("2 Hours Ago", "2026-11-30T09:00:00Z"),
            ("1 hour, 30 minutes ago", "2026-11-30T09:30:00Z"),
            ("10m", "2026-11-30T10:50:00Z"),
            ("1h30m", "2026-11-30T09:30:00Z"),
            ("2 days ago", "2026-11-28T11:00:00Z"),
            ("2 days", "2026-11-28T11:00:00Z"),
            ("90 seconds ago", "2026-11-30T10:58:30Z"),
            ("1 week ago", "2026-11-23T11:00:00Z"),
            // The clock shows noon then too, an hour earlier as the world sees it.
            ("2 months ago", "2026-09-30T10:00:00Z"),
            // It is shown twice; the first is meant.
            ("2026-10-25 02:30", "2026-10-25T00:30:00Z"),
        ] {
            assert_eq!(at(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_what_is() {
        for text in [
            "",
            "3",
            "10",
            "latest",
            "2026-11",
            "24:00",
            "9:3",
            ":30",
            "soon",
            "s:3",
            "today",
            "13pm",
            "0am",
            "pm",
            "yesterday soon",
            "a",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
        let forms = moment("soon").unwrap_err();
        assert!(forms.contains("2 days ago") && forms.contains("09:30"), "{forms}");
    }
}
