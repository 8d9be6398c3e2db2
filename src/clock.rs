//! The time of day, and its one text form.
//!
//! Time is for people and for the grace; order comes from sequence numbers. `jiff` is used here and
//! in the program's display of times, nowhere else.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Nanoseconds since 1970-01-01 UTC; negative before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// Text that is not an RFC 3339 time between the years 1678 and 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a time: RFC 3339 in UTC with nine digits of the second is expected")]
pub struct InvalidTimestamp;

impl Timestamp {
    /// The present time. With the `testing` feature the environment can shift it, so that a test of
    /// an hour's grace does not take an hour.
    pub fn now() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = match since {
            Ok(since) => i64::try_from(since.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => {
                i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |before_ns| -before_ns)
            }
        };
        Self(now_ns.saturating_add(shift_ns()))
    }

    /// From nanoseconds since 1970.
    pub const fn from_ns(ns: i64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since 1970.
    pub const fn as_ns(self) -> i64 {
        self.0
    }

    /// How long before `later` this is; zero if it is not before.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_nanos(u64::try_from(i128::from(later.0) - i128::from(self.0)).unwrap_or(0))
    }
}

/// A stretch of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Period {
    /// An hour of the clock.
    Hour,
    /// A day.
    Day,
    /// A week, which begins on Monday.
    Week,
}

/// Where the day begins: a time zone.
#[derive(Debug, Clone)]
pub(crate) struct Zone(jiff::tz::TimeZone);

impl Zone {
    /// That of this machine, or what `TZ` says; UTC where neither is known.
    pub(crate) fn local() -> Self {
        Self(jiff::tz::TimeZone::system())
    }

    #[cfg(test)]
    pub(crate) const fn utc() -> Self {
        Self(jiff::tz::TimeZone::UTC)
    }

    /// The number of the period that a time is in: equal numbers, same period. An hour that a clock goes
    /// through twice counts twice.
    pub(crate) fn period(&self, time: Timestamp, period: Period) -> i64 {
        let Ok(time) = jiff::Timestamp::from_nanosecond(i128::from(time.0)) else {
            return i64::MIN;
        };
        let days = || {
            let since = jiff::civil::Date::constant(1970, 1, 1);
            let today = self.0.to_datetime(time).date();
            since.until(today).map_or(i64::MIN, |span| i64::from(span.get_days()))
        };
        match period {
            Period::Hour => {
                let offset = i64::from(self.0.to_offset(time).seconds());
                (time.as_second() + offset.rem_euclid(3600)).div_euclid(3600)
            }
            Period::Day => days(),
            // The first of January 1970 was a Thursday.
            Period::Week => days().saturating_add(3).div_euclid(7),
        }
    }
}

/// A length of time as people write it: `7d`, `36h`, `1h30m`; a day is 24 hours. `None` where it is
/// none.
pub fn length_of(text: &str) -> Option<Duration> {
    let span: jiff::Span = text.parse().ok()?;
    let length = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(length).ok()
}

#[cfg(feature = "testing")]
fn shift_ns() -> i64 {
    std::env::var("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS")
        .ok()
        .and_then(|text| text.parse::<i64>().ok())
        .map_or(0, |seconds| seconds.saturating_mul(1_000_000_000))
}

#[cfg(not(feature = "testing"))]
const fn shift_ns() -> i64 {
    0
}

/// RFC 3339 in UTC, always with nine digits: `2026-11-29T08:15:00.123456789Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(time) => write!(f, "{time:.9}"),
            Err(_) => Err(fmt::Error),
        }
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        let time: jiff::Timestamp = text.parse().map_err(|_| InvalidTimestamp)?;
        i64::try_from(time.as_nanosecond()).map(Self).map_err(|_| InvalidTimestamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_keeps_every_nanosecond() {
        let time = Timestamp::from_ns(1_796_038_500_123_456_789);
        assert_eq!(time.to_string(), "2026-11-30T11:35:00.123456789Z");
        assert_eq!(time.to_string().parse(), Ok(time));
        assert_eq!(Timestamp::from_ns(0).to_string(), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(Timestamp::from_ns(-1).to_string().parse(), Ok(Timestamp::from_ns(-1)));
    }

    #[test]
    fn a_period_is_one_of_the_zone() {
        let zone = |name: &str| Zone(jiff::tz::TimeZone::posix(name).unwrap());
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let same = |zone: &Zone, period, a: &str, b: &str| {
            zone.period(at(a), period) == zone.period(at(b), period)
        };
        let (utc, india) = (zone("UTC0"), zone("IST-5:30"));
        let midnight = ("2026-11-30T18:29:59Z", "2026-11-30T18:30:00Z");
        assert!(same(&utc, Period::Day, midnight.0, midnight.1));
        assert!(!same(&india, Period::Day, midnight.0, midnight.1));
        assert!(same(&utc, Period::Hour, midnight.0, midnight.1));
        assert!(!same(&india, Period::Hour, midnight.0, midnight.1));
        // A Sunday and the Monday after it; the Monday before it.
        assert!(!same(&utc, Period::Week, "2026-11-29T23:59:59Z", "2026-11-30T00:00:00Z"));
        assert!(same(&utc, Period::Week, "2026-11-23T00:00:00Z", "2026-11-29T23:59:59Z"));
        assert!(same(&utc, Period::Week, "1969-12-29T00:00:00Z", "1970-01-01T00:00:00Z"));
        // Where the clock is set back an hour is gone through twice.
        let berlin = zone("CET-1CEST,M3.5.0,M10.5.0/3");
        assert!(!same(&berlin, Period::Hour, "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"));
    }

    #[test]
    fn a_time_in_the_future_is_no_age() {
        assert_eq!(Timestamp::from_ns(5).until(Timestamp::from_ns(3)), Duration::ZERO);
        assert_eq!(Timestamp::from_ns(3).until(Timestamp::from_ns(5)), Duration::from_nanos(2));
    }
}
