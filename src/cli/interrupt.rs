//! Signals that ask the program to stop, and the one that is a failed write.
//!
//! The first one sets a flag that the running operation looks at; the second one ends the process at
//! once, which the store survives as it survives any death.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{SigId, flag, low_level};

use crate::cli::exit::Exit;

/// Whether a signal came.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
    /// What ends the process at the second signal, by signal.
    second: Vec<(i32, SigId)>,
}

impl Interrupt {
    /// Begins to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        let mut interrupt =
            Self { came: Arc::default(), at_once: Arc::default(), second: Vec::new() };
        let status = i32::from(Exit::Interrupted.code());
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // The order matters: the second of these must see the flag as it was before this signal.
            flag::register_conditional_shutdown(signal, status, Arc::clone(&interrupt.at_once))?;
            let came = Arc::clone(&interrupt.came);
            let second = flag::register_conditional_shutdown(signal, status, came)?;
            interrupt.second.push((signal, second));
            flag::register(signal, Arc::clone(&interrupt.came))?;
        }
        // A write beyond `ulimit -f` then fails, which is told, and does not kill the process. Nobody
        // looks at the flag. A handler ends with `exec`: what git is given is the default again.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(interrupt)
    }

    /// Whether a signal came.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::SeqCst)
    }

    /// From here on Ctrl-C ends the process no more: there is another one at work on the terminal, which
    /// takes the key for itself, and must not be left behind there.
    pub(crate) fn outlive_the_terminal(&self) {
        self.unregister(|signal| signal == SIGINT);
    }

    /// From here on no signal of these ends the process: there is something to clean up.
    pub(crate) fn outlive_signals(&self) {
        self.unregister(|_| true);
    }

    /// Does it anew not: it would come after the flag is set, and the first signal would look like the
    /// second.
    fn unregister(&self, which: impl Fn(i32) -> bool) {
        for (_, second) in self.second.iter().filter(|(signal, _)| which(*signal)) {
            low_level::unregister(*second);
        }
    }

    /// What was stopped is over: the next signal is about something else.
    pub(crate) fn forget(&self) {
        self.came.store(false, Ordering::SeqCst);
    }

    /// Does something during which nothing is held, so that a signal may end the process at once: a
    /// question would otherwise go on waiting for its answer. Nothing is done where a signal has come
    /// already.
    pub(crate) fn ending_at_once<T>(&self, action: impl FnOnce() -> T) -> Option<T> {
        // First the flag, then the look: a signal in between finds the flag and ends the process.
        self.at_once.store(true, Ordering::SeqCst);
        let result = if self.came() { None } else { Some(action()) };
        self.at_once.store(false, Ordering::SeqCst);
        result
    }
}
