//! Runs the program as a user would: a process of its own, in a home of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use tempfile::TempDir;

/// No single run in a test takes longer; one that does is killed and the test fails.
const RUN_MAX: Duration = Duration::from_mins(2);

/// A program with a home, a sessions home and an empty workspace, all in one directory that goes
/// away with it.
#[derive(Debug)]
pub(crate) struct Program {
    binary: PathBuf,
    root: PathBuf,
    _dir: TempDir,
}

impl Program {
    /// `binary` is `env!("CARGO_BIN_EXE_turnpoint")`, which only the test itself can name.
    #[track_caller]
    pub(crate) fn new(binary: &str) -> Self {
        Self::below(binary, &std::env::temp_dir())
    }

    /// As [`Program::new`] with the directory made in `place`.
    #[track_caller]
    pub(crate) fn below(binary: &str, place: &Path) -> Self {
        let dir = tempfile::Builder::new().prefix("turnpoint-test-").tempdir_in(place).unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["home", "work"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        let identity =
            "[user]\n\tname = Test\n\temail = test@example.com\n[init]\n\tdefaultBranch = main\n";
        fs::write(root.join("home/.gitconfig"), identity).unwrap();
        Self { binary: binary.into(), root, _dir: dir }
    }

    /// The directory that holds everything else; removed at the end.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The workspace; empty at first, and the current directory of every run.
    pub(crate) fn workspace(&self) -> PathBuf {
        self.root.join("work")
    }

    /// What `TURNPOINT_HOME` names; not made before the program makes it.
    pub(crate) fn sessions_home(&self) -> PathBuf {
        self.root.join("sessions")
    }

    /// The store of checkpoints.
    pub(crate) fn store(&self) -> PathBuf {
        self.sessions_home().join("checkpoints")
    }

    /// Runs the program and waits for it.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Run {
        run(&mut self.command(arguments))
    }

    /// The command that [`Program::run`] runs, to be changed first.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.other(&self.binary);
        command.args(arguments);
        command
    }

    /// The program under another one, as in `strace -f -o trace turnpoint capture`.
    pub(crate) fn under<S: AsRef<OsStr>>(
        &self,
        wrapper: &[&str],
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = self.other(wrapper[0]);
        command.args(&wrapper[1..]).arg(&self.binary).args(arguments);
        command
    }

    /// Runs a command that was told, as it stands, in a shell at `directory`.
    #[track_caller]
    pub(crate) fn paste(&self, command: &str, directory: &Path) -> Run {
        let own = self.binary.parent().unwrap().to_owned();
        let paths = std::env::var_os("PATH").unwrap();
        let paths = std::iter::once(own).chain(std::env::split_paths(&paths));
        let mut shell = self.other("bash");
        shell.env("PATH", std::env::join_paths(paths).unwrap());
        run(shell.args(["-c", command]).current_dir(directory))
    }

    /// Copies the program to where another user may run it. Another process does it: what this one has open
    /// for writing is inherited by whatever another thread starts at that moment, and a program that is
    /// open for writing cannot be run.
    pub(crate) fn copy_binary(&self, to: &Path) {
        run(self.other("cp").arg(&self.binary).arg(to)).ok();
    }

    /// Any command in the same surroundings: nothing of the caller's environment but `PATH` and
    /// `TMPDIR`.
    pub(crate) fn other(&self, name: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(name);
        command
            .env_clear()
            .envs(["PATH", "TMPDIR"].iter().filter_map(|&key| Some((key, std::env::var_os(key)?))))
            .env("HOME", self.root.join("home"))
            .env("TURNPOINT_HOME", self.sessions_home())
            .env("LC_ALL", "C.UTF-8")
            .env("TZ", "UTC")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_AUTHOR_DATE", "2001-02-03T04:05:06Z")
            .env("GIT_COMMITTER_DATE", "2001-02-03T04:05:06Z")
            .current_dir(self.workspace());
        command
    }

    /// Runs git in the workspace; it must succeed. Its output without the final newline.
    #[track_caller]
    pub(crate) fn git<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> String {
        let run = run(self.other("git").args(arguments)).ok();
        run.stdout.trim_end_matches('\n').to_owned()
    }
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit code; 128 and the signal's number where one ended it.
    pub(crate) code: i32,
    /// Standard output, lossy where it is not UTF-8.
    pub(crate) stdout: String,
    /// The same in bytes.
    pub(crate) stdout_bytes: Vec<u8>,
    /// Standard error.
    pub(crate) stderr: String,
    shown: String,
}

impl Run {
    /// What stands between backticks on standard output, then on standard error, and is a command.
    pub(crate) fn commands(&self) -> Vec<String> {
        let told = [&self.stdout, &self.stderr];
        let quoted = told.iter().flat_map(|text| text.split('`').skip(1).step_by(2));
        quoted.filter(|it| it.starts_with("turnpoint ")).map(str::to_owned).collect()
    }

    /// Fails unless the exit code is `code`.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}", self.account());
        self
    }

    /// Fails unless it exited with 0.
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.exits(0)
    }

    /// The one JSON document on standard output.
    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        match serde_json::from_str(&self.stdout) {
            Ok(value) => value,
            Err(error) => panic!("standard output is not JSON: {error}\n{}", self.account()),
        }
    }

    /// What `shown` has left behind.
    pub(crate) fn of(output: Output, shown: &str) -> Self {
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        Self {
            code: output.status.code().or(signal.map(|signal| 128 + signal)).unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stdout_bytes: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            shown: shown.to_owned(),
        }
    }

    fn account(&self) -> String {
        let Self { code, stdout, stderr, shown, .. } = self;
        format!("{shown}\nexit code {code}\nstdout:\n{stdout}\nstderr:\n{stderr}")
    }
}

/// Runs `command` to its end with nothing on standard input, and kills it after two minutes.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Run {
    let shown = format!("{command:?}");
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    let pid = child.id();
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver is gone only if the test has failed already.
        sender.send(child.wait_with_output()).ok();
    });
    let Ok(output) = receiver.recv_timeout(RUN_MAX) else {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        }
        panic!("{shown} took longer than {} s and was killed", RUN_MAX.as_secs());
    };
    Run::of(output.unwrap(), &shown)
}
