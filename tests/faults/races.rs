//! Two at once, held where it matters.
