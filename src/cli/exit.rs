//! Exit codes, all of them.

use std::process::ExitCode;

use turnpoint::ErrorClass;

/// How the program ends. `docs/cli.md` lists when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; or whoever read the output has stopped reading.
    Done,
    /// The system failed.
    Failed,
    /// Done, and what was compared differs, where that was asked for.
    Differs,
    /// Malformed, or not found.
    Usage,
    /// Refused so that nothing is lost, or done but for conflicts.
    Refused,
    /// Done, but something is damaged or could not be read.
    Damaged,
    /// Another process is in the way.
    Busy,
    /// Stopped by a signal.
    Interrupted,
    /// As a command that was run, or why it could not be run.
    Command(u8),
}

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed | Self::Differs => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Damaged => 4,
            Self::Busy => 5,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }

    /// Done, or done with damage.
    pub(crate) const fn damaged_if(damaged: bool) -> Self {
        if damaged { Self::Damaged } else { Self::Done }
    }
}

impl From<ErrorClass> for Exit {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Input => Self::Usage,
            ErrorClass::Refused => Self::Refused,
            ErrorClass::Damaged => Self::Damaged,
            ErrorClass::Busy => Self::Busy,
            ErrorClass::Cancelled => Self::Interrupted,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
