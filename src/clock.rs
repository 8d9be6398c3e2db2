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
    fn a_time_in_the_future_is_no_age() {
        assert_eq!(Timestamp::from_ns(5).until(Timestamp::from_ns(3)), Duration::ZERO);
        assert_eq!(Timestamp::from_ns(3).until(Timestamp::from_ns(5)), Duration::from_nanos(2));
    }
}
