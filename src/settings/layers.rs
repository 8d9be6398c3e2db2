//! Which of several places that give a setting a value has the last word.

use std::path::{Path, PathBuf};

use crate::error::{ConfigurationProblem, Place, Position};
use crate::limits;
use crate::path::shell_word;
use crate::settings::edit;
use crate::settings::text::{self, Said};
use crate::settings::value::Value;
use crate::settings::{InWorkspace, SETTINGS, Setting, Settings};

/// A value that a place gives a setting.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Given {
    /// Which setting.
    pub setting: &'static Setting,
    /// Which value.
    pub value: Value,
    /// Where it stands.
    pub place: Place,
}

/// A setting as it counts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InForce {
    /// Which setting.
    pub setting: &'static Setting,
    /// Its value.
    pub value: Value,
    /// What this follows from: nothing for the default, several places only for a list, which is put
    /// together of all.
    pub given: Vec<Given>,
}

/// A settings file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsFile<'a> {
    /// The user's, at this path.
    User(&'a Path),
    /// That of the workspace with this root.
    Workspace(&'a Path),
}

/// What was done to a settings file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SettingChange {
    /// Which setting.
    pub setting: &'static Setting,
    /// Which file, symlinks followed.
    pub path: PathBuf,
    /// What the file said before, as far as it was understood.
    pub before: Option<Value>,
    /// What it says now.
    pub after: Option<Value>,
    /// Whether it was written.
    pub is_written: bool,
}

/// What all places say.
///
/// The environment has the last word, then the user's file, then that of the workspace. A limit that the
/// workspace's file lowers counts all the same, unless the environment says otherwise; lists are put
/// together.
#[derive(Debug, Clone, Default)]
pub struct Configuration {
    workspace: Vec<Given>,
    user: Vec<Given>,
    environment: Vec<Given>,
}

impl Configuration {
    /// Takes what the user's file says.
    pub(crate) fn take_user(&mut self, path: &Path, bytes: &[u8]) -> Vec<ConfigurationProblem> {
        let place = |position| Place::UserFile { path: path.to_owned(), position };
        let mut problems = Vec::new();
        for (setting, value, place) in known(bytes, &place, &mut problems) {
            self.user.push(Given { setting, value, place });
        }
        problems
    }

    /// Takes what the file of a workspace says, as far as it may: what it may not is a problem.
    pub(crate) fn take_workspace(
        &mut self,
        path: &Path,
        bytes: &[u8],
    ) -> Vec<ConfigurationProblem> {
        let place = |position| Place::WorkspaceFile { path: path.to_owned(), position };
        let mut problems = Vec::new();
        for (setting, value, place) in known(bytes, &place, &mut problems) {
            match self.objection(setting, &value) {
                None => self.workspace.push(Given { setting, value, place }),
                Some(objection) => problems.push(ConfigurationProblem {
                    place,
                    reason: format!("`{}` {objection}", setting.name),
                    hint: format!("take it out; {}", who_may_say(setting)),
                }),
            }
        }
        problems
    }

    /// Takes what a variable of the environment says.
    pub(crate) fn take_variable(
        &mut self,
        setting: &'static Setting,
        text: Option<&str>,
    ) -> Option<ConfigurationProblem> {
        let place = Place::Environment { variable: setting.variable() };
        let problem = |reason: String| ConfigurationProblem {
            place: place.clone(),
            reason,
            hint: format!("set {} to {}", setting.variable(), setting.kind.expected()),
        };
        let Some(text) = text else { return Some(problem("it is not UTF-8".to_owned())) };
        let written = setting.kind.written(text).or_else(|| text::read_value(text));
        let Some(written) = written else {
            return Some(problem(not_a_list(text)));
        };
        match setting.kind.read(&written) {
            Ok(value) => {
                self.environment.push(Given { setting, value, place });
                None
            }
            Err(reason) => Some(problem(reason)),
        }
    }

    /// The text of the file at `path`, now `bytes`, once it gives `setting` the value that `text` stands for
    /// as it would in a variable of the environment, or none; and what it says of it before and after.
    ///
    /// # Errors
    /// What cannot be obeyed: in the value, or in the file as it is now.
    pub(crate) fn changed(
        &self,
        (file, path): (SettingsFile<'_>, &Path),
        bytes: &[u8],
        setting: &'static Setting,
        text: Option<&str>,
    ) -> Result<(String, SettingChange), Vec<ConfigurationProblem>> {
        let place = || match file {
            SettingsFile::User(_) => Place::UserFile { path: path.to_owned(), position: None },
            SettingsFile::Workspace(_) => {
                Place::WorkspaceFile { path: path.to_owned(), position: None }
            }
        };
        let problem = |reason: String, hint: String| {
            let reason = format!("`{}` {reason}", setting.name);
            vec![ConfigurationProblem { place: place(), reason, hint }]
        };
        let (old, old_problems) = self.taking(file, path, bytes);
        // What is no text is a problem of the file, and nothing of it could be written back as it is.
        let Ok(old_text) = std::str::from_utf8(bytes) else { return Err(old_problems) };
        let (mark, old_text) = match old_text.strip_prefix(text::BYTE_ORDER_MARK) {
            Some(rest) => (text::BYTE_ORDER_MARK, rest),
            None => ("", old_text),
        };
        let edited = match text {
            None => edit::without(old_text, setting.name),
            Some(text) => {
                let expected = || format!("give it {}", setting.kind.expected());
                let written = setting.kind.written(text).or_else(|| text::read_value(text));
                let written = written.ok_or_else(|| problem(not_a_list(text), expected()))?;
                let value = setting.kind.read(&written);
                let value = value.map_err(|reason| problem(reason, expected()))?;
                let objection = match file {
                    SettingsFile::User(_) => None,
                    SettingsFile::Workspace(_) => self.objection(setting, &value),
                };
                if let Some(objection) = objection {
                    let hint = format!(
                        "it comes with the files of others, and may only make less be captured; \
                         `turnpoint config set {} {}` sets it in your own file, for every workspace",
                        setting.name,
                        shell_word(text)
                    );
                    return Err(problem(objection, hint));
                }
                edit::with(old_text, setting.name, &written).map(Some)
            }
        };
        let new_text = match edited {
            Ok(Some(text)) => mark.to_owned() + &text,
            Ok(None) => mark.to_owned() + old_text,
            Err(_) if !old_problems.is_empty() => return Err(old_problems),
            Err(reason) => return Err(problem(reason, MEND.to_owned())),
        };
        let most = limits::CONFIGURATION_BYTES_MAX;
        if new_text.len() as u64 > most {
            let reason =
                format!("it would be {} bytes long, and is read up to {most}", new_text.len());
            let hint = "take something out of it".to_owned();
            return Err(vec![ConfigurationProblem { place: place(), reason, hint }]);
        }
        // One that would still not be obeyed is not written. Places are those of the present file.
        let (new, problems) = self.taking(file, path, new_text.as_bytes());
        if !problems.is_empty() {
            return Err(if old_problems.is_empty() { problems } else { old_problems });
        }
        let of = |configuration: &Self| match file {
            SettingsFile::User(_) => last(&configuration.user, setting).cloned(),
            SettingsFile::Workspace(_) => last(&configuration.workspace, setting).cloned(),
        };
        let (before, after) = (of(&old), of(&new));
        let is_written = new_text.as_bytes() != bytes;
        let path = path.to_owned();
        Ok((new_text, SettingChange { setting, path, before, after, is_written }))
    }

    /// The same with other content of one file.
    fn taking(
        &self,
        file: SettingsFile<'_>,
        path: &Path,
        bytes: &[u8],
    ) -> (Self, Vec<ConfigurationProblem>) {
        let mut new = self.clone();
        let problems = match file {
            SettingsFile::User(_) => {
                new.user.clear();
                new.take_user(path, bytes)
            }
            SettingsFile::Workspace(_) => {
                new.workspace.clear();
                new.take_workspace(path, bytes)
            }
        };
        (new, problems)
    }

    /// Why the file of a workspace may not say this.
    fn objection(&self, setting: &Setting, value: &Value) -> Option<String> {
        let refused = match (setting.in_workspace, value) {
            (InWorkspace::Refused, _) => "is not for the file of a workspace".to_owned(),
            (InWorkspace::Only(allowed), Value::Switch(value)) if allowed != *value => {
                format!("is {value}; the file of a workspace may only say {allowed}")
            }
            (InWorkspace::Add, Value::List(patterns)) => {
                let exception = patterns.iter().find(|pattern| pattern.starts_with('!'))?;
                format!(
                    "holds {exception:?}; the file of a workspace may leave out more, and take \
                     nothing back"
                )
            }
            (InWorkspace::Lower, value) => {
                let own = last(&self.user, setting);
                let default = (setting.default)();
                let highest = own.filter(|own| is_lower(&default, own)).unwrap_or(&default);
                if !is_lower(highest, value) {
                    return None;
                }
                format!(
                    "is {value}; the file of a workspace may lower it, and {highest} holds here"
                )
            }
            _ => return None,
        };
        Some(refused)
    }

    /// Every setting as it counts, in the order of the table.
    pub fn in_force(&self) -> Vec<InForce> {
        SETTINGS.iter().map(|setting| self.of(setting)).collect()
    }

    fn of(&self, setting: &'static Setting) -> InForce {
        let of = |given: &&Given| std::ptr::eq(given.setting, setting);
        if let Value::List(_) = (setting.default)() {
            let all = self.workspace.iter().chain(&self.user).chain(&self.environment);
            let given: Vec<Given> = all.filter(of).cloned().collect();
            let texts = given.iter().filter_map(|given| match &given.value {
                Value::List(texts) => Some(texts.clone()),
                _ => None,
            });
            let value = Value::List(texts.flatten().collect());
            return InForce { setting, value, given };
        }
        let newest = |layer: &[Given]| layer.iter().rev().find(of).cloned();
        let own = newest(&self.environment).or_else(|| {
            let own = newest(&self.user);
            let lower = newest(&self.workspace).filter(|lower| {
                let own = own.as_ref().map_or_else(|| (setting.default)(), |own| own.value.clone());
                match setting.in_workspace {
                    InWorkspace::Lower => is_lower(&lower.value, &own),
                    _ => lower.value != own,
                }
            });
            lower.or(own)
        });
        let value = own.as_ref().map_or_else(|| (setting.default)(), |own| own.value.clone());
        InForce { setting, value, given: own.into_iter().collect() }
    }

    /// What follows from it all.
    pub fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        for InForce { setting, value, .. } in self.in_force() {
            (setting.set)(&mut settings, &value);
        }
        settings
    }
}

/// What to do about a file that is no settings file.
const MEND: &str = "mend it with an editor, or move the file away";

fn who_may_say(setting: &Setting) -> String {
    let (name, variable) = (setting.name, setting.variable());
    format!("only `{name}` in the user's file, or {variable}, may say this")
}

fn not_a_list(text: &str) -> String {
    format!("a list such as [\"build/\", \"*.iso\"] is expected, not `{text}`")
}

fn last<'a>(layer: &'a [Given], setting: &Setting) -> Option<&'a Value> {
    let given = layer.iter().rev().find(|given| std::ptr::eq(given.setting, setting))?;
    Some(&given.value)
}

/// Whether one limit is lower than another; none is the highest.
fn is_lower(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Size(one), Value::Size(other)) => one < other,
        (Value::Size(_), Value::Unset) => true,
        _ => false,
    }
}

/// The settings that a file names, with values that they take. What else is in it is a problem.
fn known(
    bytes: &[u8],
    place: &dyn Fn(Option<Position>) -> Place,
    problems: &mut Vec<ConfigurationProblem>,
) -> Vec<(&'static Setting, Value, Place)> {
    let said: Said = match text::read(bytes) {
        Ok(said) => said,
        Err((reason, position)) => {
            let hint = MEND.to_owned();
            problems.push(ConfigurationProblem { place: place(position), reason, hint });
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for (name, written, position) in said {
        let place = place(Some(position));
        let Some(setting) = Setting::named(&name) else {
            let is_section = |setting: &Setting| {
                setting.name.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.'))
            };
            let reason = if SETTINGS.iter().any(is_section) {
                format!("`{name}` is a section of settings, not a setting")
            } else {
                format!("there is no setting `{}`", cut(&name))
            };
            let hint = match Setting::nearest(&name) {
                Some(nearest) if !SETTINGS.iter().any(is_section) => {
                    format!("did you mean `{nearest}`?")
                }
                _ => "`turnpoint config list` shows all settings".to_owned(),
            };
            problems.push(ConfigurationProblem { place, reason, hint });
            continue;
        };
        match setting.kind.read(&written) {
            Ok(value) => found.push((setting, value, place)),
            Err(reason) => problems.push(ConfigurationProblem {
                place,
                reason: format!("`{name}` {reason}"),
                hint: format!("give it {}", setting.kind.expected()),
            }),
        }
    }
    found
}

/// The beginning of a name that a stranger may have made long.
fn cut(name: &str) -> String {
    name.chars().take(100).collect()
}
