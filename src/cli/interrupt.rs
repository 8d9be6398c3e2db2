//! Signals that ask the program to stop, and the one that is a failed write.
//!
//! The first one sets a flag that the running operation looks at; the second one ends the process at
//! once, which the store survives as it survives any death.

use std::fs;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::{SigId, flag, low_level};

use crate::cli::exit::Exit;

/// Whether a signal came.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    at_once: Arc<AtomicBool>,
    /// What ends the process at the second signal.
    second: Arc<Mutex<Vec<Second>>>,
}

/// What is registered for one signal.
#[derive(Debug)]
struct Second {
    signal: i32,
    /// What ends the process, if the flag is set where there is one.
    ending: SigId,
    /// What sets the flag.
    flag: Option<SigId>,
}

/// Signals are the business of a command that was started.
#[derive(Debug)]
pub(crate) struct PassingOn {
    interrupt: Interrupt,
    signals: SignalsInfo<WithRawSiginfo>,
}

impl Interrupt {
    /// Begins to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        let interrupt =
            Self { came: Arc::default(), at_once: Arc::default(), second: Arc::default() };
        let status = i32::from(Exit::Interrupted.code());
        for signal in heeded([SIGINT, SIGTERM, SIGHUP]) {
            flag::register_conditional_shutdown(signal, status, Arc::clone(&interrupt.at_once))?;
        }
        interrupt.end_at_second()?;
        // A write beyond `ulimit -f` then fails, which is told, and does not kill the process. Nobody
        // looks at the flag. A handler ends with `exec`: what git is given is the default again.
        flag::register(SIGXFSZ, Arc::default())?;
        Ok(interrupt)
    }

    /// Has the second signal end the process, and the first set the flag.
    fn end_at_second(&self) -> io::Result<()> {
        let status = i32::from(Exit::Interrupted.code());
        let mut second = self.registered();
        for signal in heeded([SIGINT, SIGTERM, SIGHUP]) {
            // The order matters: the first of these must see the flag as it was before this signal.
            let ending =
                flag::register_conditional_shutdown(signal, status, Arc::clone(&self.came))?;
            let flag = Some(flag::register(signal, Arc::clone(&self.came))?);
            second.push(Second { signal, ending, flag });
        }
        Ok(())
    }

    /// Leaves signals to a command that is about to be started. None that comes from now on is lost or
    /// ends this process.
    pub(crate) fn pass_on(&self) -> io::Result<PassingOn> {
        let signals = SignalsInfo::new(heeded([SIGINT, SIGQUIT, SIGTERM, SIGHUP]))?;
        for Second { ending, flag, .. } in self.registered().drain(..) {
            low_level::unregister(ending);
            flag.map(low_level::unregister);
        }
        Ok(PassingOn { interrupt: self.clone(), signals })
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

    /// The flag is still set by a signal. What ends the process cannot be registered again alone: it would
    /// come after the flag is set, and the first signal would look like the second.
    fn unregister(&self, which: impl Fn(i32) -> bool) {
        for second in self.registered().iter().filter(|second| which(second.signal)) {
            low_level::unregister(second.ending);
        }
    }

    fn registered(&self) -> MutexGuard<'_, Vec<Second>> {
        self.second.lock().unwrap_or_else(PoisonError::into_inner)
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

impl PassingOn {
    /// Waits for the command, and passes on each SIGINT, SIGQUIT, SIGTERM and SIGHUP that a process sent to this
    /// one. Those of the terminal reach the command by themselves, as it is of the same process group; whether
    /// a process sent one to that whole group nobody can know, and the command gets it twice then. From the
    /// end on signals mean what they meant before.
    pub(crate) fn wait(mut self, child: &mut Child) -> io::Result<ExitStatus> {
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("the command has no process id"))?;
        let handle = self.signals.handle();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for sent in &mut self.signals {
                    // The kernel's own, which those of the terminal are, have a positive code (sigaction(2)).
                    let is_of_a_process = sent.si_code <= 0;
                    let signal = Signal::from_named_raw(sent.si_signo);
                    if let Some(signal) = signal.filter(|_| is_of_a_process) {
                        // The command may have given itself rights that this process lacks.
                        rustix::process::kill_process(id, signal).ok();
                    }
                }
            });
            // Not reaped here: as long as it is not, no other process can have its number, and a signal
            // that is just being passed on reaches nobody else.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(error) = rustix::process::waitid(WaitId::Pid(id), options) {
                if error != rustix::io::Errno::INTR {
                    break;
                }
            }
            handle.close();
        });
        let status = child.wait();
        self.end()?;
        status
    }

    /// Gives signals back their meaning, where no command was started or it has ended.
    pub(crate) fn end(self) -> io::Result<()> {
        self.interrupt.end_at_second()?;
        // The handler stays where one has been, also with nothing to do: what there was without it has to be
        // asked for.
        for signal in heeded([SIGQUIT]) {
            let ending = flag::register_conditional_default(signal, Arc::new(true.into()))?;
            self.interrupt.registered().push(Second { signal, ending, flag: None });
        }
        Ok(())
    }
}

/// Those of `signals` that were not ignored when this process was started: whoever started it with
/// `nohup`, or in the background of a script, wants them ignored, by what it starts too.
fn heeded<const N: usize>(signals: [i32; N]) -> impl Iterator<Item = i32> {
    static IGNORED: std::sync::LazyLock<u64> = std::sync::LazyLock::new(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    });
    signals.into_iter().filter(|signal| *IGNORED >> (signal - 1) & 1 == 0)
}
