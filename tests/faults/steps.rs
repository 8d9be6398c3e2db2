//! The calls with which a run of the program changes something on a disk, one by one, and runs that
//! are killed or held at one of them. `strace` does it: nothing in the program knows of it.
//!
//! strace counts calls for each thread and each name of a call. A step of the main thread is the same
//! in each run from the same state, and is traced alone; those of other threads are shared out anew
//! each time, so a step of theirs is taken by whichever comes first, and may not come at all.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::scene::BINARY;
use crate::support::program::{Program, Run, run};

pub(crate) const CALLS: &str = "write,pwrite64,fsync,fdatasync,syncfs,rename,renameat,renameat2,link,linkat,\
                     unlink,unlinkat,mkdir,mkdirat,rmdir,ftruncate,open,openat,openat2";

/// No step is waited for longer.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// One call of a run.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// Its name.
    pub(crate) call: String,
    /// Which call of that name by its thread, from 1.
    pub(crate) nth: usize,
    /// Whether the main thread made it.
    pub(crate) is_main: bool,
    /// The call as strace shows it.
    pub(crate) text: String,
}

impl std::fmt::Display for Step {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let thread = if self.is_main { "main" } else { "other" };
        write!(formatter, "{thread} {} {}: {}", self.call, self.nth, self.text)
    }
}

/// The steps of a run, in their order, those of other threads last. The program is run to its end.
#[track_caller]
pub(crate) fn of(program: &Program, arguments: &[&str]) -> Vec<Step> {
    with(program, arguments, CALLS)
}

/// As [`of`], of other calls.
#[track_caller]
pub(crate) fn with(program: &Program, arguments: &[&str], calls: &str) -> Vec<Step> {
    ending(program, arguments, calls, 0)
}

/// As [`with`], of a run that ends with `status`.
#[track_caller]
pub(crate) fn ending(program: &Program, arguments: &[&str], calls: &str, status: i32) -> Vec<Step> {
    let log = program.root().join("steps");
    let trace = format!("trace=execve,{calls}");
    let wrapper = ["strace", "-f", "-qq", "-o", log.to_str().unwrap(), "-e", &trace];
    run(&mut traced(program, &wrapper, arguments)).exits(status);
    let text = fs::read_to_string(&log).unwrap();
    let main = text.split_whitespace().next().unwrap();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    let mut steps = Vec::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        // The second half of a call, a signal, an exit.
        if call.contains([' ', '<', '+', '-']) || call == "execve" {
            continue;
        }
        let nth = counts.entry((thread, call)).or_default();
        *nth += 1;
        if call.starts_with("open") && !rest.contains("O_CREAT") {
            continue;
        }
        if thread == main {
            let text = rest.trim_start().to_owned();
            steps.push(Step { call: call.to_owned(), nth: *nth, is_main: true, text });
        } else if !call.starts_with("open") {
            let most = others.entry(call).or_default();
            *most = (*most).max(*nth);
        }
    }
    for (call, most) in others {
        steps.extend((1..=most).map(|nth| Step {
            call: call.to_owned(),
            nth,
            is_main: false,
            text: "of a thread".to_owned(),
        }));
    }
    steps
}

/// At most `most` of `steps`, evenly spread, with the first and the last.
pub(crate) fn spread(steps: Vec<Step>, most: usize) -> Vec<Step> {
    let count = steps.len();
    if count <= most {
        return steps;
    }
    let is_chosen = |at: usize| {
        let slot = |at: usize| at * (most - 1) / (count - 1);
        at == 0 || slot(at) != slot(at - 1)
    };
    let chosen = steps.into_iter().enumerate().filter(|(at, _)| is_chosen(*at));
    chosen.map(|(_, step)| step).collect()
}

impl Step {
    /// Whether a run from the same state may end without it: other threads share out their work anew
    /// each time, and so with the main one the waiting for a disk; and how many pages of the index a
    /// transaction writes depends on what the ids of the run are.
    pub(crate) fn varies(&self) -> bool {
        !self.is_main || ["fsync", "pwrite64"].contains(&self.call.as_str())
    }

    /// Runs the program, which dies at the beginning of the call. The code is 137 if it did.
    #[track_caller]
    pub(crate) fn kill(&self, program: &Program, arguments: &[&str]) -> Run {
        let inject = format!("inject={}:signal=KILL:when={}", self.call, self.nth);
        let trace = format!("trace={}", self.call);
        let mut wrapper = vec!["strace", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        if !self.is_main {
            wrapper.insert(1, "-f");
        }
        run(&mut traced(program, &wrapper, arguments))
    }

    /// Runs the program, which stops at the end of the call; `None` if it ended without.
    #[track_caller]
    pub(crate) fn hold(&self, program: &Program, arguments: &[&str]) -> Option<Stopped> {
        let log = program.root().join("held");
        drop(fs::remove_file(&log));
        let inject = format!("inject={}:signal=STOP:when={}", self.call, self.nth);
        let trace = format!("trace={}", self.call);
        let mut wrapper = vec!["strace", "-o", log.to_str().unwrap(), "-e", &trace, "-e", &inject];
        if !self.is_main {
            wrapper.insert(1, "-f");
        }
        Stopped::start(traced(program, &wrapper, arguments), log).ok()
    }
}

/// As [`Step::hold`] at two calls of different names, the second after it was let go at the first.
#[track_caller]
pub(crate) fn hold_at_two(
    program: &Program,
    arguments: &[&str],
    steps: [&Step; 2],
) -> Option<Stopped> {
    let log = program.root().join("held");
    drop(fs::remove_file(&log));
    let inject = steps.map(|it| format!("inject={}:signal=STOP:when={}", it.call, it.nth));
    let trace = format!("trace={},{}", steps[0].call, steps[1].call);
    let log_name = log.to_str().unwrap();
    let wrapper = ["strace", "-o", log_name, "-e", &trace, "-e", &inject[0], "-e", &inject[1]];
    Stopped::start(traced(program, &wrapper, arguments), log).ok()
}

/// A command that may be a collection, which comes an hour later.
pub(crate) fn at_its_time(mut command: Command, arguments: &[&str]) -> Command {
    if arguments[0] == "gc" {
        command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600");
    }
    command
}

fn traced(program: &Program, wrapper: &[&str], arguments: &[&str]) -> Command {
    at_its_time(program.under(wrapper, arguments), arguments)
}

/// A run that stands still until it is let go or killed; killed at the latest when this is dropped.
#[derive(Debug)]
pub(crate) struct Stopped {
    strace: Option<Child>,
    log: PathBuf,
    /// How often it has stopped.
    stops: usize,
}

impl Stopped {
    /// Runs the program until the `at`-th call of one of `calls` by any of its threads; `Err` with how it
    /// ended where it never got there.
    #[track_caller]
    pub(crate) fn at(
        program: &Program,
        calls: &str,
        at: usize,
        arguments: &[&str],
    ) -> Result<Self, Run> {
        let log = program.root().join("held");
        drop(fs::remove_file(&log));
        let trace = format!("trace={calls}");
        let inject = format!("inject={calls}:signal=STOP:when={at}");
        let wrapper = ["strace", "-f", "-o", log.to_str().unwrap(), "-e", &trace, "-e", &inject];
        Self::start(traced(program, &wrapper, arguments), log)
    }

    fn start(mut command: Command, log: PathBuf) -> Result<Self, Run> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.process_group(0).spawn().unwrap();
        let mut stopped = Self { strace: Some(child), log, stops: 0 };
        if stopped.wait() { Ok(stopped) } else { Err(stopped.end()) }
    }

    /// Waits until it has stopped once more; false if it ended without.
    fn wait(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            let text = fs::read_to_string(&self.log).unwrap_or_default();
            let stops = text.matches("stopped by SIGSTOP").count();
            if stops > self.stops {
                self.stops = stops;
                return true;
            }
            if self.strace.as_mut().is_none_or(|it| it.try_wait().unwrap().is_some()) {
                return false;
            }
            assert!(begun.elapsed() < WAIT_MAX, "it never stopped: {text}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Lets it go on to its second step.
    #[track_caller]
    pub(crate) fn go_to_next(&mut self) {
        self.signal(Signal::CONT);
        assert!(self.wait(), "it ended before its next step");
    }

    /// To strace and to what it traces, which are a group of their own: if strace alone died, the other
    /// would stand still for ever.
    fn signal(&self, signal: Signal) {
        let strace = self.strace.as_ref().map(Pid::from_child);
        strace.map(|group| kill_process_group(group, signal).ok());
    }

    /// Lets it go on, and waits for its end. Each of its threads stops when it comes to such a call.
    pub(crate) fn go_on(mut self) -> Run {
        let group = Pid::from_child(self.strace.as_ref().unwrap());
        std::thread::scope(|scope| {
            // There is nobody to be let go when strace has ended and was waited for.
            scope.spawn(|| {
                while kill_process_group(group, Signal::CONT).is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            self.end()
        })
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(mut self) -> Run {
        self.signal(Signal::KILL);
        self.end()
    }

    fn end(&mut self) -> Run {
        Run::of(self.strace.take().unwrap().wait_with_output().unwrap(), "held")
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if self.strace.is_some() {
            self.signal(Signal::KILL);
            if let Some(mut strace) = self.strace.take() {
                drop(strace.wait());
            }
        }
    }
}

/// Waits until `count` runs of the program in the workspace wait for a lock, or for the index. Those
/// that stand still do not count. False where `has_ended` comes first.
#[track_caller]
pub(crate) fn wait_for_waiting(
    program: &Program,
    count: usize,
    has_ended: impl Fn() -> bool,
) -> bool {
    let begun = Instant::now();
    // One look may meet a short sleep between two calls: several in a row do not.
    let mut looks = 0;
    while looks < 5 {
        if has_ended() {
            return false;
        }
        looks = if waiting(program) == count { looks + 1 } else { 0 };
        assert!(begun.elapsed() < WAIT_MAX, "nobody waits and nobody ends");
        std::thread::sleep(Duration::from_millis(3));
    }
    true
}

/// How many processes of the program with the workspace as their directory sleep for a time, which it
/// does only between two tries to get a lock.
fn waiting(program: &Program) -> usize {
    let is_waiting = |process: &PathBuf| {
        let leads_to = |name: &str, path: &Path| {
            fs::read_link(process.join(name)).is_ok_and(|found| found == path)
        };
        leads_to("cwd", &program.workspace())
            && leads_to("exe", Path::new(BINARY))
            && fs::read_to_string(process.join("wchan")).is_ok_and(|it| it.contains("nanosleep"))
    };
    let processes = fs::read_dir("/proc").unwrap().map(|process| process.unwrap().path());
    processes.filter(is_waiting).count()
}
