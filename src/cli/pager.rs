//! Showing long output page by page, as git does.

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

/// What of the output a person sees first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Beginning,
    /// Where the newest is last. `less` alone knows how.
    End,
}

/// A program that shows what it reads.
#[derive(Debug)]
pub(crate) struct Pager {
    child: Child,
    input: Option<ChildStdin>,
}

impl Pager {
    /// Starts the one that the settings name, else `$PAGER`, else `less`; none where that is empty or
    /// `cat`, on a terminal that can do nothing, and where it cannot be started.
    pub(crate) fn start(named: Option<&str>, first: First) -> Option<Self> {
        // Nothing can be scrolled there.
        if std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb") {
            return None;
        }
        let named = named.map(OsString::from).or_else(|| std::env::var_os("PAGER"));
        let mut command = match named {
            Some(named) if named.is_empty() || named == "cat" => return None,
            // It may have arguments.
            Some(named) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(named);
                command
            }
            None => Command::new("less"),
        };
        // One screen is not paged, colors are shown, and what was shown stays.
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", if first == First::End { "FRX+G" } else { "FRX" });
        }
        let mut child = command.stdin(Stdio::piped()).spawn().ok()?;
        let input = child.stdin.take();
        Some(Self { child, input })
    }

    /// Ends the output, and waits until whoever reads it has seen enough.
    pub(crate) fn wait(&mut self) {
        drop(self.input.take());
        // How the pager ended says nothing about what was to be shown.
        self.child.wait().ok();
    }
}

impl Write for Pager {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.input {
            Some(input) => input.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.input.as_mut().map_or(Ok(()), Write::flush)
    }
}
