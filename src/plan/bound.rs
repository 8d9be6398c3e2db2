//! A plan as a file: looked at now, carried out later or not at all.
//!
//! Nothing of a file is believed. It says which checkpoint and which paths are meant, and what the plan
//! was; the plan is computed anew, and the two must be one.

use std::borrow::Cow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::hash::Digest;
use crate::id::{CheckpointId, Seq, SessionName, WorkspaceId};
use crate::manifest::{
    CheckpointRef, Entry, EntryKind, EntryText, RestoreVerb, from_fields, to_fields,
};
use crate::path::RelPath;
use crate::plan::{Change, ChangeKind, Plan};

/// The version of the form that is written and read.
const SCHEMA: u64 = 1;

/// A plan that a later run is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BoundPlan {
    /// Of which command.
    pub verb: RestoreVerb,
    /// The workspace.
    pub workspace: WorkspaceId,
    /// Where it was. For people.
    pub root: PathBuf,
    /// The checkpoint that the command is about.
    pub target: CheckpointRef,
    /// For a revert: the checkpoint that this one is compared with.
    pub before: Option<CheckpointRef>,
    /// Only these paths, each with everything below it; all where empty.
    pub paths: Vec<RelPath>,
    /// Whether every file was compared by content.
    pub thorough: bool,
    /// Whether recorded modification times are put back.
    pub preserve_mtime: bool,
    /// The changes, in order of path: each as it was found, and as it will be.
    pub changes: Vec<Change>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePlan<'a> {
    schema: u64,
    plan: String,
    verb: RestoreVerb,
    workspace: String,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    root: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root_bytes: Option<String>,
    target: WireTarget,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<WireTarget>,
    #[serde(borrow)]
    paths: Vec<WirePath<'a>>,
    thorough: bool,
    preserve_mtime: bool,
    #[serde(borrow)]
    changes: Vec<WireChange<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTarget {
    session: String,
    seq: u64,
    digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WirePath<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    path: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireChange<'a> {
    action: String,
    #[serde(borrow)]
    before: Option<EntryText<'a>>,
    #[serde(borrow)]
    after: Option<EntryText<'a>>,
}

impl BoundPlan {
    /// The id of the plan, as [`Plan::id`] has it.
    pub fn id(&self) -> String {
        let (target, changes) = (self.target.id.clone(), self.changes.clone());
        Plan { target, changes, skips: Vec::new() }.id()
    }

    /// The paths at which `plan` does something else, or to something else, in order.
    pub fn differences(&self, plan: &Plan) -> Vec<RelPath> {
        let mut paths = Vec::new();
        let (mut ours, mut theirs) =
            (self.changes.iter().peekable(), plan.changes.iter().peekable());
        loop {
            match (ours.peek(), theirs.peek()) {
                (None, None) => return paths,
                (Some(own), Some(other)) if own.path == other.path => {
                    if !is_same(own, other) {
                        paths.push(own.path.clone());
                    }
                    ours.next();
                    theirs.next();
                }
                (Some(own), other) if other.is_none_or(|other| own.path < other.path) => {
                    paths.push(own.path.clone());
                    ours.next();
                }
                (_, Some(other)) => {
                    paths.push(other.path.clone());
                    theirs.next();
                }
                (Some(_), None) => return paths,
            }
        }
    }

    /// The text of the file.
    pub fn encode(&self) -> Vec<u8> {
        let (root, root_bytes) = to_fields(self.root.as_os_str().as_bytes());
        let path = |path: &RelPath| {
            let (path, path_bytes) = to_fields(path.as_bytes());
            WirePath { path: path.map(|text| text.into_owned().into()), path_bytes }
        };
        let entry = |entry: &Option<Entry>| {
            entry.as_ref().map(|entry| EntryText(Cow::Owned(entry.clone())))
        };
        let change = |change: &Change| WireChange {
            action: action(change.kind()).to_owned(),
            before: entry(&change.before),
            after: entry(&change.after),
        };
        let wire = WirePlan {
            schema: SCHEMA,
            plan: self.id(),
            verb: self.verb,
            workspace: self.workspace.to_string(),
            root,
            root_bytes,
            target: WireTarget::from(&self.target),
            before: self.before.as_ref().map(WireTarget::from),
            paths: self.paths.iter().map(path).collect(),
            thorough: self.thorough,
            preserve_mtime: self.preserve_mtime,
            changes: self.changes.iter().map(change).collect(),
        };
        // Strings, integers and vectors always have a JSON form.
        let mut text = serde_json::to_vec(&wire).unwrap_or_default();
        text.push(b'\n');
        text
    }

    /// Reads the text of a file, which may be anybody's.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence. No input panics; memory is in proportion to the text.
    pub fn decode(text: &[u8]) -> Result<Self, String> {
        let wire: WirePlan<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if wire.schema != SCHEMA {
            return Err(format!("its schema is {}; this program knows {SCHEMA}", wire.schema));
        }
        if wire.verb == RestoreVerb::Apply {
            return Err("a plan of `apply` is not kept in files".to_owned());
        }
        let path = |wire: WirePath<'_>| {
            let bytes = from_fields(wire.path, wire.path_bytes.as_deref())?;
            RelPath::new(&bytes).map_err(|error| error.to_string())
        };
        let root = from_fields(wire.root, wire.root_bytes.as_deref())?;
        let plan = Self {
            verb: wire.verb,
            workspace: wire.workspace.parse().map_err(|_| "its workspace is no id".to_owned())?,
            root: PathBuf::from(std::ffi::OsString::from_vec(root)),
            target: target(&wire.target)?,
            before: wire.before.as_ref().map(target).transpose()?,
            paths: wire.paths.into_iter().map(path).collect::<Result<_, _>>()?,
            thorough: wire.thorough,
            preserve_mtime: wire.preserve_mtime,
            changes: wire.changes.into_iter().map(change).collect::<Result<_, _>>()?,
        };
        if (plan.verb == RestoreVerb::Revert) != plan.before.is_some() {
            return Err("a revert, and nothing else, names the checkpoint before".to_owned());
        }
        if let Some(pair) = plan.changes.windows(2).find(|pair| pair[0].path >= pair[1].path) {
            return Err(format!("`{}` is out of order or there twice", pair[1].path));
        }
        if plan.id() != wire.plan {
            return Err("its id is not that of its changes".to_owned());
        }
        Ok(plan)
    }
}

impl From<&CheckpointRef> for WireTarget {
    fn from(reference: &CheckpointRef) -> Self {
        Self {
            session: reference.id.session.as_str().to_owned(),
            seq: reference.id.seq.get(),
            digest: reference.digest.to_string(),
        }
    }
}

fn target(wire: &WireTarget) -> Result<CheckpointRef, String> {
    let session = SessionName::new(&wire.session).map_err(|error| error.to_string())?;
    let seq = Seq::new(wire.seq).ok_or("the number of its checkpoint is too large")?;
    let digest: Digest =
        wire.digest.parse().map_err(|_| "the digest of its checkpoint is not one".to_owned())?;
    Ok(CheckpointRef { id: CheckpointId { session, seq }, digest })
}

fn change(wire: WireChange<'_>) -> Result<Change, String> {
    let before = wire.before.map(|entry| entry.0.into_owned());
    let after = wire.after.map(|entry| entry.0.into_owned());
    let path = before.as_ref().or(after.as_ref()).map(|entry| entry.path.clone());
    let path = path.ok_or("a change is from nothing to nothing")?;
    if before.iter().chain(&after).any(|entry| entry.path != path) {
        return Err(format!("the change of `{path}` is of two paths"));
    }
    let is_nothing =
        |entry: &Entry| matches!(entry.kind, EntryKind::Absent | EntryKind::Omitted { .. });
    if before.iter().chain(&after).any(is_nothing) {
        return Err(format!("the change of `{path}` is of something that is not held"));
    }
    let change = Change { path, before, after };
    let expected = action(change.kind());
    if wire.action != expected {
        return Err(format!("the action of `{}` is {expected}", change.path));
    }
    Ok(change)
}

fn is_same(own: &Change, other: &Change) -> bool {
    Entry::are_same_state(own.before.as_ref(), other.before.as_ref())
        && Entry::are_same_state(own.after.as_ref(), other.after.as_ref())
}

/// The word for a kind of change: the list of a plan that it stands in.
const fn action(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Create => "create",
        ChangeKind::Overwrite => "overwrite",
        ChangeKind::Delete => "delete",
        ChangeKind::Mode => "mode",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::hash::BlobHash;
    use crate::manifest::{Listed, Mode};
    use crate::mutation::{assert_stays_inside, config, near};

    fn sample() -> BoundPlan {
        let entry = |path: &[u8], mode, kind| Entry {
            path: RelPath::new(path).unwrap(),
            mode: Mode::from_st_mode(mode),
            kind,
        };
        let file = |path: &[u8], mode, text: &[u8]| {
            let (size, hash) = (text.len() as u64, BlobHash::of(text));
            Some(entry(path, mode, EntryKind::File { size, mtime_ns: -7, hash, unstable: false }))
        };
        let dir = Some(entry(b"d", 0o755, EntryKind::Dir { listed: Listed::Partial }));
        let link = Some(entry(b"l", 0o777, EntryKind::Symlink { target: (*b"\xff/..").into() }));
        let change = |before: Option<Entry>, after: Option<Entry>| {
            let path = before.as_ref().or(after.as_ref()).unwrap().path.clone();
            Change { path, before, after }
        };
        BoundPlan {
            verb: RestoreVerb::Undo,
            workspace: "0123456789abcdef0123456789abcdef".parse().unwrap(),
            root: "/src/app".into(),
            target: CheckpointRef {
                id: CheckpointId {
                    session: SessionName::new("s").unwrap(),
                    seq: "3".parse().unwrap(),
                },
                digest: Digest::of(b"s:3"),
            },
            before: None,
            paths: vec![RelPath::new(b"bad\xff").unwrap(), RelPath::root()],
            thorough: true,
            preserve_mtime: false,
            changes: vec![
                change(file(b"a", 0o644, b"a"), file(b"a", 0o644, b"b")),
                change(dir, None),
                change(None, link),
                change(file(b"m", 0o644, b"m"), file(b"m", 0o4755, b"m")),
            ],
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn no_bytes_in_the_place_of_a_plan_do_harm(text in near(Just(sample().encode()))) {
            if let Ok(plan) = BoundPlan::decode(&text) {
                let changed = plan.changes.iter().map(|change| &change.path);
                changed.chain(&plan.paths).for_each(|path| assert_stays_inside(path.as_bytes()));
                prop_assert_eq!(BoundPlan::decode(&plan.encode()), Ok(plan));
            }
        }
    }

    #[test]
    fn a_plan_of_a_run_is_not_read() {
        // What it is bound to is a work tree, of which a file says nothing.
        let plan = BoundPlan { verb: RestoreVerb::Apply, ..sample() };
        let refused = BoundPlan::decode(&plan.encode()).unwrap_err();
        assert!(refused.contains("`apply`"), "{refused}");
    }

    #[test]
    fn the_id_of_a_plan_stays_what_it_is() {
        // Plans in files have it: another one would make all of them unreadable.
        assert_eq!(sample().id(), "265f3022a8caa23417e89f5ef4d4ddb3");
    }

    #[test]
    fn a_revert_and_nothing_else_names_the_checkpoint_before() {
        let before = Some(CheckpointRef { digest: Digest::of(b"s:2"), ..sample().target });
        let revert = BoundPlan { verb: RestoreVerb::Revert, before, ..sample() };
        assert_eq!(BoundPlan::decode(&revert.encode()), Ok(revert.clone()));
        for wrong in [
            BoundPlan { before: None, ..revert.clone() },
            BoundPlan { verb: RestoreVerb::Restore, ..revert },
        ] {
            let reason = BoundPlan::decode(&wrong.encode()).unwrap_err();
            assert!(reason.contains("names the checkpoint before"), "{reason}");
        }
    }

    #[test]
    fn a_plan_comes_back_from_its_text() {
        let plan = sample();
        assert_eq!(BoundPlan::decode(&plan.encode()), Ok(plan.clone()));
        let same =
            Plan { target: plan.target.id.clone(), changes: plan.changes.clone(), skips: vec![] };
        assert_eq!(plan.differences(&same), []);
        assert_eq!(plan.id(), same.id());
        // At each path another change, one that is lacking, and one too many.
        let paths = |plan: &[RelPath]| plan.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut other = same.clone();
        other.changes[0].after = None;
        other.changes.remove(1);
        other.changes[1].path = RelPath::new(b"z").unwrap();
        other.changes.swap(1, 2);
        assert_eq!(paths(&plan.differences(&other)), ["a", "d", "l", "z"]);
        other.changes.clear();
        assert_eq!(paths(&plan.differences(&other)), ["a", "d", "l", "m"]);
    }
}
