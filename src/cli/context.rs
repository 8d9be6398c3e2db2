//! What a command works with.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use turnpoint::id::{CheckpointId, SessionName};
use turnpoint::path::{RelPath, printable, shell_path, shell_word};
use turnpoint::settings::{Configuration, Settings as Values};
use turnpoint::{
    ConfigurationError, Error, ListQuery, Monitor, Spec, Store, WORKSPACE_FILE, Which,
};

use crate::cli::exit::Exit;
use crate::cli::failure::{Failure, Outcome};
use crate::cli::format;
use crate::cli::interrupt::Interrupt;
use crate::cli::json::NoticeDocument;
use crate::cli::pager::First;
use crate::cli::printer::{self, Kind, Printer, Style};
use crate::cli::settings::{Settings, add_hint};
use crate::cli::target;
use crate::cli::trace::Trace;
use crate::cli::watch::Watch;

/// The store, the settings, and the way to the person.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) printer: Printer,
    pub(crate) interrupt: Interrupt,
    /// What the library had to say and was not printed, for the JSON document.
    pub(crate) notices: Vec<NoticeDocument>,
    /// Whether something was found damaged on the way, and told: what was asked for was done all the
    /// same.
    pub(crate) found_damage: bool,
    /// Whether something in the workspace's settings file was told and not obeyed.
    pub(crate) is_disobedient: bool,
    /// Where it is written down what is done, if that was asked for.
    pub(crate) trace: Option<Trace>,
}

impl Context {
    /// Nothing of the store is looked at.
    pub(crate) fn new(settings: Settings, style: Style) -> Outcome<Self> {
        let interrupt = Interrupt::listen().map_err(|source| Error::Io {
            verb: "listen to signals as",
            path: PathBuf::from("turnpoint"),
            source,
        })?;
        let store = Store::at(&settings.home).with_upkeep(settings.values.upkeep);
        let printer =
            Printer::new(style.configured(&settings.values), settings.values.pager.clone());
        Ok(Self {
            settings,
            store,
            printer,
            interrupt,
            notices: Vec::new(),
            found_damage: false,
            is_disobedient: false,
            trace: None,
        })
    }

    /// Runs one operation of the library with progress, notices and cancellation.
    pub(crate) fn run<T>(
        &mut self,
        operation: impl FnOnce(&Store, &dyn Monitor) -> turnpoint::Result<T>,
    ) -> turnpoint::Result<T> {
        self.run_printing(|store, _, monitor| operation(store, monitor))
    }

    /// As [`Context::run`], for one that writes to the output meanwhile.
    pub(crate) fn run_printing<T>(
        &mut self,
        operation: impl FnOnce(&Store, &mut Printer, &dyn Monitor) -> T,
    ) -> T {
        let style = self.printer.style();
        let is_shown = !style.quiet && !style.json && !self.printer.is_paged();
        let draws = is_shown && io::stderr().is_terminal();
        let watch = Watch::start(style, draws, self.interrupt.clone(), self.trace.clone());
        if self.found_damage {
            watch.expect_damage();
        }
        let result = operation(&self.store, &mut self.printer, &watch);
        self.found_damage |= watch.found_damage();
        self.notices.extend(watch.finish());
        result
    }

    /// Where a file lies that was named: as it was typed, but where another directory than the current one
    /// was named too.
    pub(crate) fn place_of(&self, file: &Path) -> PathBuf {
        if self.settings.is_named { self.settings.directory.join(file) } else { file.to_owned() }
    }

    /// Where a file is, or would be, without symlinks.
    fn real_place(&self, file: &Path) -> Option<PathBuf> {
        let file = self.settings.directory.join(file);
        file.canonicalize().ok().or_else(|| {
            let above = file.parent()?.canonicalize().ok()?;
            Some(above.join(file.file_name()?))
        })
    }

    /// Refuses a file that would be among the store's own, or is one: `what` is to be written to it.
    pub(crate) fn refuse_in_store(&self, file: &Path, what: &str) -> Outcome<()> {
        if let (Some(place), Ok(store)) = (self.real_place(file), self.store.root().canonicalize())
            && place.starts_with(store)
        {
            let message = format!("{what} would lie in the store");
            return Err(Failure::own(Exit::Refused, "inside-store", message)
                .hint("name a file in another directory"));
        }
        Ok(())
    }

    /// Refuses a log that would lie in a workspace, one that is about to be captured for the first time
    /// included: it is another one after each command, so each capture would hold it anew, and a restore
    /// would be about it.
    pub(crate) fn refuse_log(&self, file: &Path, is_capture: bool) -> Outcome<()> {
        self.refuse_in_store(file, "the log")?;
        let Some(place) = self.real_place(file) else { return Ok(()) };
        let known = place.parent().and_then(|above| self.store.known_root(above));
        let own = || self.root().ok().filter(|root| is_capture && place.starts_with(root));
        let Some(root) = known.or_else(own) else { return Ok(()) };
        let root = printable(root.as_os_str().as_encoded_bytes());
        let message = format!("the log would lie in the workspace {root}");
        Err(Failure::own(Exit::Refused, "inside-workspace", message).hint(
            "name a file in another directory: unless a rule leaves it out, each capture would hold it anew",
        ))
    }

    /// Shows what is printed from here on with a pager, if a person looks at it.
    pub(crate) fn page(&mut self) -> io::Result<()> {
        self.page_seeing(First::Beginning)
    }

    /// As [`Context::page`] for a list whose newest line is the last, where so many lines are more than a
    /// screen shows: its end is seen first.
    pub(crate) fn page_list(&mut self, lines: usize) -> io::Result<()> {
        if printer::is_more_than_a_screen(lines) {
            self.page_seeing(First::End)?;
        }
        Ok(())
    }

    fn page_seeing(&mut self, first: First) -> io::Result<()> {
        if self.printer.page(first)? {
            self.interrupt.outlive_the_terminal();
        }
        Ok(())
    }

    /// The workspace that is meant: the directory that was named, else what is found from the
    /// current one.
    pub(crate) fn root(&self) -> turnpoint::Result<PathBuf> {
        if self.settings.is_named {
            Ok(self.settings.directory.clone())
        } else {
            self.store.locate(&self.settings.directory)
        }
    }

    /// What the settings say of the workspace at `root`, whose own file counts too.
    ///
    /// What that file says and may not, or what is not understood, stops the command: going on without
    /// it, a restore would take paths for its own that the file leaves out.
    pub(crate) fn values(&self, root: &Path) -> Outcome<Values> {
        let (configuration, mut problems) = self.settings.configuration.of_workspace(root);
        let Some(first) = problems.first_mut() else { return Ok(configuration.settings()) };
        add_hint(first, &self.way_out(root));
        Err(Error::from(ConfigurationError { problems }).into())
    }

    /// What works beside a workspace's settings file that cannot be obeyed.
    fn way_out(&self, root: &Path) -> String {
        let (place, file) = (self.place(), self.as_typed_here(root, Path::new(WORKSPACE_FILE)));
        format!(
            "`turnpoint {place}restore CHECKPOINT {file}` brings an earlier one back; `cat` and `restore --into DIR` \
             work whatever it says"
        )
    }

    /// What a command that is to be typed next begins with, for it to start from the same place: nothing, or the
    /// option `-C`.
    pub(crate) fn place(&self) -> String {
        let directory = &self.settings.directory;
        if self.settings.is_named {
            format!("-C {} ", shell_word(directory))
        } else {
            String::new()
        }
    }

    /// A path of the workspace, as it is typed where relative paths start: one word for a shell.
    pub(crate) fn as_typed_here(&self, root: &Path, path: &Path) -> String {
        let Ok(below) = self.settings.directory.strip_prefix(root) else {
            return shell_word(root.join(path));
        };
        let up = PathBuf::from("../".repeat(below.components().count()));
        let typed = up.join(path);
        if typed.as_os_str().is_empty() { ".".to_owned() } else { shell_path(typed) }
    }

    /// As [`Context::values`] for a restore of these paths. That file itself is brought back whatever is in its
    /// place: nothing else can be lost by it.
    pub(crate) fn values_to_restore(&self, root: &Path, paths: &[RelPath]) -> Outcome<Values> {
        let is_the_file = |path: &RelPath| path.as_bytes() == WORKSPACE_FILE.as_bytes();
        if paths.is_empty() || !paths.iter().all(is_the_file) {
            return self.values(root);
        }
        Ok(self.settings.configuration.of_workspace(root).0.settings())
    }

    /// As [`Context::values`] for a capture: a file that is broken, perhaps by the very turn that is to
    /// be kept, stops none. It could only have made the capture hold less. What of it is understood
    /// counts; the rest is told, and the exit code says so.
    pub(crate) fn configuration_as_understood(&mut self, root: &Path) -> Configuration {
        let (configuration, problems) = self.settings.configuration.of_workspace(root);
        let is_told = self.is_disobedient || problems.is_empty();
        for problem in &problems {
            self.is_disobedient = true;
            let message = printable(format!("{problem}; {}", problem.hint).as_bytes());
            if self.is_json() {
                self.notices.push(NoticeDocument { code: "workspace-settings", message });
            } else {
                self.printer.style().complain(Kind::Warning, &message);
            }
        }
        if !is_told && !self.is_json() && !self.is_quiet() {
            let way_out = self.way_out(root);
            let text = format!(
                "until it is mended `restore`, `undo` and the like refuse, and `diff` against the disk; {way_out}"
            );
            self.printer.style().complain(Kind::Hint, &text);
        }
        configuration
    }

    /// The session that counts where a command names none: that of the settings.
    pub(crate) fn default_session(&self) -> Outcome<Option<SessionName>> {
        self.settings.values.session.as_deref().map(target::session_name).transpose()
    }

    /// The checkpoint that is meant, seen from the workspace.
    pub(crate) fn resolve(&mut self, spec: &Spec) -> Outcome<CheckpointId> {
        let root = self.root()?;
        if spec.session.is_some() {
            return self.resolve_at(spec, &root);
        }
        let Some(session) = self.default_session()? else {
            let id = self.resolve_at(spec, &root)?;
            if matches!(spec.which, Which::Seq(_)) {
                self.tell_of_namesakes(&id, &root);
            }
            return Ok(id);
        };
        let spec = Spec { session: Some(session), which: spec.which.clone() };
        let resolved = self.resolve_at(&spec, &root);
        if let (Err(_), Some(session)) = (&resolved, &spec.session) {
            self.remark(format!(
                "no session is named, so the one of the setting `session` is meant, {session}"
            ));
        }
        resolved
    }

    /// As [`Context::resolve`], to look whether there is one: nothing is told.
    pub(crate) fn resolved(&self, spec: &Spec) -> Option<CheckpointId> {
        let session = spec.session.clone().or(self.default_session().ok()?);
        let spec = Spec { session, which: spec.which.clone() };
        self.store.resolve(&spec, &self.root().ok()?, &()).ok()
    }

    fn resolve_at(&mut self, spec: &Spec, root: &Path) -> Outcome<CheckpointId> {
        let id = self.run(|store, monitor| store.resolve(spec, root, monitor))?;
        if let Which::At(at) = spec.which {
            let made = self.run(|store, monitor| store.show(&id, monitor))?.manifest.created_at;
            let (at, made) = (format::second(at), format::second(made));
            self.remark(format!("the newest at {at} was {id}, made {made}"));
        }
        Ok(id)
    }

    /// Tells which session a number alone was taken to be of, where another one here has that number too:
    /// the newest session may be one that somebody else has just added to. That they cannot be looked for is
    /// no reason not to do what was asked for.
    fn tell_of_namesakes(&mut self, id: &CheckpointId, root: &Path) {
        const NAMED_MAX: usize = 3;
        let others = self.run(|store, monitor| store.namesakes(id, root, monitor));
        let others = others.unwrap_or_default();
        if !others.is_empty() {
            let named: Vec<String> =
                others.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let named = named.join(", ");
            let more = match others.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let are = if others.len() == 1 { "is" } else { "are" };
            self.remark(format!(
                "{} is taken as {id}, of the newest session of this workspace; there {are} also \
                 {named}{more}",
                id.seq
            ));
        }
    }

    /// Tells which session was taken to be meant, where this workspace has others: the newest may be one that
    /// somebody else has just added to. Safety checkpoints alone make none.
    pub(crate) fn tell_of_other_sessions(&mut self, session: &SessionName, root: &Path) {
        const NAMED_MAX: usize = 3;
        let query = ListQuery::Workspace(root.to_owned());
        let Ok(listing) = self.run(|store, monitor| store.list(&query, monitor)) else { return };
        let mut others: Vec<&SessionName> = Vec::new();
        for id in listing.checkpoints().filter(|it| !it.is_safety()).map(|it| &it.id) {
            if id.session != *session && !others.contains(&&id.session) {
                others.push(&id.session);
            }
        }
        if others.is_empty() {
            return;
        }
        let named = others.iter().rev().take(NAMED_MAX).map(|name| shell_word(name.as_str()));
        let named = named.collect::<Vec<_>>().join(", ");
        let more = match others.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.remark(format!(
            "of session {session}, the newest of this workspace; --session names another: {named}{more}"
        ));
    }

    /// Tells of a directory that was named and is none of the workspaces that are known, where it lies in
    /// one, or in a repository: there without -C another one is meant.
    pub(crate) fn tell_of_workspace_above(&mut self) {
        let directory = self.settings.directory.clone();
        let located = self.store.locate(&directory).ok();
        if let Some(above) = located.filter(|above| self.settings.is_named && *above != directory) {
            let [directory, above] =
                [&directory, &above].map(|path| printable(path.as_os_str().as_bytes()));
            self.remark(format!(
                "-C makes {directory} the workspace; from there without -C it would be {above}"
            ));
        }
    }

    /// Tells of a restore of the workspace that has not ended: what a reading command shows of the
    /// disk may change under the reader. That it cannot be looked for is no reason not to read.
    pub(crate) fn report_open_restore(&mut self) {
        let Ok(root) = self.root() else { return };
        let open = match self.store.open_restore(&root, &()) {
            Ok(Some(open)) => open,
            Err(error @ Error::JournalUnreadable { .. }) => return self.report_journal(&error),
            _ => return,
        };
        let place = self.place();
        let message = match (open.is_running, open.has_begun) {
            (true, _) => format!("a restore of {} is running", open.target),
            (false, true) => format!(
                "a restore of {} was interrupted while it changed files; `turnpoint {place}restore \
                 --continue` completes it, `turnpoint {place}restore --abort` ends it as it is",
                open.target
            ),
            (false, false) => format!(
                "a restore of {} was interrupted before it changed anything; the next capture or \
                 restore discards it",
                open.target
            ),
        };
        if self.is_json() {
            self.notices.push(NoticeDocument { code: "restore-open", message });
        } else if open.is_running || !open.has_begun {
            if !self.is_quiet() {
                self.printer.style().complain(Kind::Note, &message);
            }
        } else {
            self.printer.style().complain(Kind::Warning, &message);
        }
    }

    fn report_journal(&mut self, error: &Error) {
        let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
        let message = printable(format!("{error}{hint}").as_bytes());
        if self.is_json() {
            self.notices.push(NoticeDocument { code: "journal-unreadable", message });
        } else {
            self.printer.style().complain(Kind::Warning, &message);
        }
        self.found_damage = true;
    }

    /// Something to know about the answer.
    pub(crate) fn remark(&mut self, message: String) {
        if self.is_json() {
            self.notices.push(NoticeDocument { code: "remark", message });
        } else if !self.is_quiet() {
            self.printer.style().complain(Kind::Note, &message);
        }
    }

    /// Prints a JSON document with the notices so far.
    pub(crate) fn document<T: serde::Serialize>(&mut self, body: &T) -> io::Result<()> {
        self.printer.document(body, &self.notices)
    }

    /// Whether answers are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.printer.style().json
    }

    /// Whether confirmations are left out.
    pub(crate) fn is_quiet(&self) -> bool {
        self.printer.style().quiet
    }
}
