//! The one table of settings, from which everything else about them follows.

use std::time::Duration;

use crate::limits;
use crate::path::RelPath;
use crate::settings::value::{Kind, Value};
use crate::settings::{ColorChoice, Settings};

/// What the file of a workspace may do with a setting. It comes with the files of others, so it may
/// make less be captured, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InWorkspace {
    /// Nothing.
    Refused,
    /// Lower it.
    Lower,
    /// Only this value.
    Only(bool),
    /// Add patterns, but no exceptions.
    Add,
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name, as in `capture.file_limit`.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// Its value where nobody says anything.
    pub default: fn() -> Value,
    /// What the file of a workspace may do with it.
    pub in_workspace: InWorkspace,
    /// What it is for, in a sentence or two that need no other.
    pub about: &'static str,
    /// Puts a value of its kind in its place.
    pub(super) set: fn(&mut Settings, &Value),
}

impl Setting {
    /// The variable of the environment that gives it a value.
    pub fn variable(&self) -> String {
        format!("TURNPOINT_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// The setting of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.name == name)
    }

    /// The name most like `name`, if one is like it at all.
    pub fn nearest(name: &str) -> Option<&'static str> {
        /// Below this two names have hardly more in common than letters.
        const ALIKE: f64 = 0.75;
        let likeness = |setting: &Self| {
            let last = setting.name.rsplit('.').next().unwrap_or(setting.name);
            let asked = name.rsplit('.').next().unwrap_or(name);
            strsim::jaro_winkler(setting.name, name).max(strsim::jaro_winkler(last, asked) * 0.99)
        };
        SETTINGS
            .iter()
            .map(|setting| (likeness(setting), setting.name))
            .filter(|(likeness, _)| *likeness >= ALIKE)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, name)| name)
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// All settings there are.
pub static SETTINGS: &[Setting] = &[
    Setting {
        name: "home",
        kind: Kind::Directory,
        default: || Value::Unset,
        in_workspace: InWorkspace::Refused,
        about: "The directory of the store; without one it is `turnpoint` in the XDG data directory.",
        set: |settings, value| settings.home = text(value),
    },
    Setting {
        name: "session",
        kind: Kind::Session,
        default: || Value::Unset,
        in_workspace: InWorkspace::Refused,
        about: "The session that is meant where a command names none: the one that a capture goes to, and the one of a number or `latest` alone. Without it a capture goes to that of the workspace.",
        set: |settings, value| settings.session = text(value),
    },
    Setting {
        name: "color",
        kind: Kind::Word(&["auto", "always", "never"]),
        default: || Value::Text("auto".to_owned()),
        in_workspace: InWorkspace::Refused,
        about: "When to use colors; `auto`: on a terminal, unless `NO_COLOR` is set.",
        set: |settings, value| {
            settings.color = match text(value).as_deref() {
                Some("always") => ColorChoice::Always,
                Some("never") => ColorChoice::Never,
                _ => ColorChoice::Auto,
            };
        },
    },
    Setting {
        name: "pager",
        kind: Kind::Command,
        default: || Value::Unset,
        in_workspace: InWorkspace::Refused,
        about: "What shows long output on a terminal; without one `$PAGER`, else `less`; none where it is empty or `cat`.",
        set: |settings, value| settings.pager = text(value),
    },
    Setting {
        name: "capture.file_limit",
        kind: Kind::Size(KIB, TIB),
        default: || Value::Size(limits::FILE_BYTES_DEFAULT),
        in_workspace: InWorkspace::Lower,
        about: "The content of a larger file is not held.",
        set: |settings, value| {
            if let Value::Size(bytes) = value {
                settings.scope.file_limit_bytes = *bytes;
            }
        },
    },
    Setting {
        name: "capture.total_limit",
        kind: Kind::SizeOrNone(MIB, 1024 * TIB),
        default: || Value::Unset,
        in_workspace: InWorkspace::Lower,
        about: "Content beyond this sum, over all files of a checkpoint, is not held.",
        set: |settings, value| settings.scope.total_limit_bytes = bytes(value),
    },
    Setting {
        name: "capture.cross_mounts",
        kind: Kind::Switch,
        default: || Value::Switch(false),
        in_workspace: InWorkspace::Only(false),
        about: "Whether other file systems mounted below the workspace are captured with it.",
        set: |settings, value| settings.scope.cross_mounts = is_on(value),
    },
    Setting {
        name: "capture.ignore_files",
        kind: Kind::Switch,
        default: || Value::Switch(true),
        in_workspace: InWorkspace::Only(true),
        about: "Whether what git's ignore files name is left out.",
        set: |settings, value| settings.scope.obeys_ignore_files = is_on(value),
    },
    Setting {
        name: "capture.exclude",
        kind: Kind::Patterns(true),
        default: || Value::List(Vec::new()),
        in_workspace: InWorkspace::Add,
        about: "Names left out unless git tracks them, beside `target/`, `node_modules/`, `dist/` and `store.db`; `name/` is of directories only, `!name/` takes one of these back.",
        set: |settings, value| settings.scope.exclude(texts(value)),
    },
    Setting {
        name: "capture.secrets",
        kind: Kind::Patterns(false),
        default: || Value::List(Vec::new()),
        in_workspace: InWorkspace::Add,
        about: "Names whose content is never held, tracked or not, beside those built in; `!name` takes one of these back.",
        set: |settings, value| settings.scope.add_secrets(texts(value)),
    },
    Setting {
        name: "extras.copy",
        kind: Kind::Paths,
        default: || Value::List(Vec::new()),
        in_workspace: InWorkspace::Refused,
        about: "What git ignores, and a run in a work tree of its own gets a copy of.",
        set: |settings, value| settings.extras.copied = paths(value),
    },
    Setting {
        name: "extras.symlink",
        kind: Kind::Paths,
        default: || Value::List(Vec::new()),
        in_workspace: InWorkspace::Refused,
        about: "What git ignores, and a run in a work tree of its own gets a symlink to: it is the same thing for both.",
        set: |settings, value| settings.extras.linked = paths(value),
    },
    Setting {
        name: "retention.keep",
        kind: Kind::Count(1, 1_000_000),
        default: || Value::Count(limits::KEEP_DEFAULT),
        in_workspace: InWorkspace::Refused,
        about: "The newest so many checkpoints of a session stay, and as many safety checkpoints.",
        set: |settings, value| set_count(&mut settings.upkeep.rule.keep, value),
    },
    Setting {
        name: "retention.keep_within",
        kind: Kind::TimeOrNone(Duration::from_mins(1), Duration::from_hours(24 * 36_500)),
        default: || Value::Unset,
        in_workspace: InWorkspace::Refused,
        about: "Checkpoints that are no older than that stay too.",
        set: |settings, value| settings.upkeep.rule.keep_within = time(value).unwrap_or_default(),
    },
    Setting {
        name: "retention.keep_hourly",
        kind: Kind::Count(0, 1_000_000),
        default: || Value::Count(0),
        in_workspace: InWorkspace::Refused,
        about: "The newest checkpoint of each of the last so many hours that have one stays too.",
        set: |settings, value| set_count(&mut settings.upkeep.rule.keep_hourly, value),
    },
    Setting {
        name: "retention.keep_daily",
        kind: Kind::Count(0, 1_000_000),
        default: || Value::Count(0),
        in_workspace: InWorkspace::Refused,
        about: "The newest checkpoint of each of the last so many days that have one stays too.",
        set: |settings, value| set_count(&mut settings.upkeep.rule.keep_daily, value),
    },
    Setting {
        name: "retention.keep_weekly",
        kind: Kind::Count(0, 1_000_000),
        default: || Value::Count(0),
        in_workspace: InWorkspace::Refused,
        about: "The newest checkpoint of each of the last so many weeks that have one stays too; they begin on Monday.",
        set: |settings, value| set_count(&mut settings.upkeep.rule.keep_weekly, value),
    },
    Setting {
        name: "retention.keep_first",
        kind: Kind::Switch,
        default: || Value::Switch(false),
        in_workspace: InWorkspace::Refused,
        about: "Whether the first checkpoint of a session stays too.",
        set: |settings, value| settings.upkeep.rule.keep_first = is_on(value),
    },
    Setting {
        name: "retention.automatic",
        kind: Kind::Switch,
        default: || Value::Switch(true),
        in_workspace: InWorkspace::Refused,
        about: "Whether each capture drops those of its session that no rule keeps; `gc` and `prune` do in any case.",
        set: |settings, value| settings.upkeep.prunes = is_on(value),
    },
    Setting {
        name: "gc.every",
        kind: Kind::TimeOrNone(Duration::from_hours(1), Duration::from_hours(24 * 365)),
        default: || Value::Time(limits::SWEEP_EVERY_DEFAULT),
        in_workspace: InWorkspace::Refused,
        about: "How long after the last time a capture removes the content that no checkpoint needs; `none`: only `gc` does.",
        set: |settings, value| settings.upkeep.sweep_every = time(value),
    },
    Setting {
        name: "store.budget",
        kind: Kind::SizeOrNone(MIB, 1024 * TIB),
        default: || Value::Unset,
        in_workspace: InWorkspace::Refused,
        about: "The content of all checkpoints together, as stored; beyond it the oldest go.",
        set: |settings, value| settings.upkeep.budget_bytes = bytes(value),
    },
    Setting {
        name: "store.free_floor",
        kind: Kind::SizeOrNone(MIB, 1024 * TIB),
        default: || Value::Unset,
        in_workspace: InWorkspace::Refused,
        about: "What is to be free of the store's file system; below it the oldest checkpoints go, if that is enough.",
        set: |settings, value| settings.upkeep.floor_bytes = bytes(value),
    },
];

fn set_count(place: &mut u32, value: &Value) {
    if let Value::Count(count) = value {
        *place = *count;
    }
}

fn time(value: &Value) -> Option<Duration> {
    match value {
        Value::Time(time) => Some(*time),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn bytes(value: &Value) -> Option<u64> {
    match value {
        Value::Size(bytes) => Some(*bytes),
        _ => None,
    }
}

fn is_on(value: &Value) -> bool {
    *value == Value::Switch(true)
}

fn texts(value: &Value) -> &[String] {
    match value {
        Value::List(texts) => texts,
        _ => &[],
    }
}

fn paths(value: &Value) -> Vec<RelPath> {
    texts(value).iter().filter_map(|text| RelPath::new(text).ok()).collect()
}
