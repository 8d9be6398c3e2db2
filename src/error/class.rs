//! What can be done about an error.

/// What a caller can do about an error; the program's exit code follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The system failed: disk full, no permission, I/O error.
    Failed,
    /// What was asked for is malformed or does not exist.
    Input,
    /// Refused so that nothing is lost.
    Refused,
    /// Something in the store is damaged.
    Damaged,
    /// Another process is in the way; try again.
    Busy,
    /// Stopped by the caller.
    Cancelled,
}
