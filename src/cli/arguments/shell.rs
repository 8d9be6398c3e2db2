//! What `turnpoint completions`, `turnpoint man`, and what a shell calls while somebody types are told.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Print the script with which a shell completes what is typed
///
/// Tab then offers commands, options, sessions, the checkpoints of a session, labels behind `@`, the
/// paths that a checkpoint holds, and names of settings. The script asks turnpoint each time; that reads files of the store and
/// changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint completions bash > ~/.local/share/bash-completion/completions/turnpoint\n  \
                        turnpoint completions zsh > ~/.zfunc/_turnpoint\n  \
                        turnpoint completions fish > ~/.config/fish/completions/turnpoint.fish")]
pub(crate) struct CompletionsArguments {
    /// Which shell
    #[arg(value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// A shell that can be told how to complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Print the manual page, or write a page for each command
///
/// Without DIR: the page of turnpoint itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
                        turnpoint man | man -l -\n  \
                        turnpoint man ~/.local/share/man/man1")]
pub(crate) struct ManArguments {
    /// Write all pages into this directory, which must be there, over those that are in it
    #[arg(value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
}

/// What can be typed next
///
/// For the scripts of `turnpoint completions`.
#[derive(Debug, Args)]
pub(crate) struct CompleteArguments {
    /// For which shell
    #[arg(long, value_enum, value_name = "SHELL")]
    pub(crate) shell: Shell,
    /// The line up to the cursor, for a shell that cuts words as it likes
    #[arg(long, value_name = "TEXT", conflicts_with = "words", allow_hyphen_values = true)]
    pub(crate) line: Option<OsString>,
    /// The words after the name of the program, the unfinished one last
    #[arg(last = true, value_name = "WORD")]
    pub(crate) words: Vec<OsString>,
}
