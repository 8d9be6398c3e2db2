//! A moment as people write it: a time, or how long ago it was.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, ZonedDateTime};
use turnpoint::clock::Timestamp;

use crate::cli::format;

/// What can be written.
const FORMS: &str = "these forms are read: 10m, 2h, `2 days ago`, 09:30, 2026-11-29, `2026-11-29 09:30`, \
                     2026-11-29T09:30:00Z";

/// Reads the value of an option, seen from the present moment and the local time zone.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let now = jiff::Timestamp::from_nanosecond(i128::from(Timestamp::now().as_ns()))
        .map_err(|error| error.to_string())?;
    read(text.trim(), &now.to_zoned_datetime(format::local_zone().clone()))
        .ok_or_else(|| FORMS.to_owned())
}

/// RFC 3339; else a local date and time, a date, which means its beginning, or a time of day, which means
/// the last time that the clock showed it; else how long ago.
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
        // `2 days ago` is a span below zero, and `2 days` means the same here.
        let span: Span = text.parse().ok()?;
        now.checked_sub(span.abs()).ok()?.timestamp()
    };
    timestamp(at).map(Timestamp::from_ns)
}

/// `09:30`, `9:30`, `09:30:15`; with a colon, since a number alone may be that of a checkpoint.
fn time_of_day(text: &str) -> Option<Time> {
    let (hour, _) = text.split_once(':')?;
    if hour.is_empty() || hour.len() > 2 || !hour.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{text:0>width$}", width = text.len() + 2 - hour.len()).parse().ok()
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
        for text in ["", "3", "10", "latest", "2026-11", "24:00", "9:3", ":30", "soon", "s:3"] {
            assert_eq!(at(text), None, "{text}");
        }
        let forms = moment("soon").unwrap_err();
        assert!(forms.contains("2 days ago") && forms.contains("09:30"), "{forms}");
    }
}
