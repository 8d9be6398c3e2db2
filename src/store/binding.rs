//! Plans in files: written for later, read again, and compared with what would be done now.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::access::OpenWorkspace;
use crate::disk::{self, Created, Dir};
use crate::error::{Error, GoingBackError, Result};
use crate::id::CheckpointId;
use crate::limits;
use crate::manifest::{CheckpointRef, RestoreVerb};
use crate::plan::{BoundPlan, Plan};
use crate::restore::{RestoreOptions, RestoreOutcome};
use crate::store::merging::Merge;
use crate::store::target::{Intent, Target};
use crate::store::{Store, real_path, refuse_inside_store};

impl Store {
    /// Writes a plan that was computed under `options` to a new file, for [`RestoreOptions::bind`].
    ///
    /// # Errors
    /// [`GoingBackError::PlanPlace`] where the name is taken; for a file in the workspace, which would be
    /// one more path of it, so that the plan would not be one of that workspace any more; and for a plan
    /// longer than [`limits::PLAN_BYTES_MAX`]. [`GoingBackError::PlanOfOverlay`] and
    /// [`GoingBackError::PlanOfRun`], which the form has no words for. [`Error::InsideStore`], [`Error::Io`].
    ///
    /// # Durability
    /// The file is there whole and survives a power cut, or is not there.
    pub fn write_plan(
        &self,
        planned: &RestoreOutcome,
        options: &RestoreOptions,
        file: &Path,
    ) -> Result<()> {
        let refused = |reason: String| -> Error {
            GoingBackError::PlanPlace { path: file.to_owned(), reason }.into()
        };
        if options.overlay {
            return Err(GoingBackError::PlanOfOverlay { root: planned.root.clone() }.into());
        }
        if planned.verb == RestoreVerb::Apply {
            return Err(GoingBackError::PlanOfRun.into());
        }
        let name = file.file_name().ok_or_else(|| refused("it is no name of a file".to_owned()))?;
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = disk::real_path(parent.unwrap_or(Path::new(".")))?;
        refuse_inside_store(&self.inner.layout, &parent)?;
        if parent.starts_with(real_path(&planned.root)?) {
            return Err(refused("it lies in the workspace that the plan is of".to_owned()));
        }
        let plan = BoundPlan {
            verb: planned.verb,
            workspace: planned.workspace,
            root: planned.root.clone(),
            target: planned.target.clone(),
            before: planned.predecessor.as_ref().map(|before| before.checkpoint.clone()),
            paths: options.paths.clone(),
            thorough: options.thorough,
            preserve_mtime: options.preserve_mtime,
            changes: planned.plan.changes.clone(),
        };
        let text = plan.encode();
        if text.len() as u64 > limits::PLAN_BYTES_MAX {
            return Err(refused(format!("it is longer than {} bytes", limits::PLAN_BYTES_MAX)));
        }
        let dir = Dir::open(&parent)?;
        match disk::create_durably(&dir, name.as_bytes(), &text, &dir)? {
            Created::Done => Ok(()),
            Created::Exists => Err(refused("it is there already".to_owned())),
        }
    }

    /// Reads a plan that [`Store::write_plan`] has written. The file may be anybody's: what it says is
    /// checked here for its form, and where it is carried out for being true.
    ///
    /// # Errors
    /// [`GoingBackError::PlanUnreadable`] where it is no plan, is longer than
    /// [`limits::PLAN_BYTES_MAX`], or is no regular file; [`Error::Io`].
    pub fn read_plan(&self, file: &Path) -> Result<BoundPlan> {
        let unreadable = |reason: String| -> Error {
            GoingBackError::PlanUnreadable { path: file.to_owned(), reason }.into()
        };
        let text = match disk::read_small(file, limits::PLAN_BYTES_MAX) {
            Ok(Some(text)) => text,
            Ok(None) => return Err(unreadable("there is no such file".to_owned())),
            Err(error) if error.is_damage() => return Err(unreadable(error.with_source())),
            Err(error) => return Err(error),
        };
        BoundPlan::decode(&text).map_err(unreadable)
    }
}

/// Refuses a workspace that the plan is not of.
pub(super) fn require_workspace(options: &RestoreOptions, open: &OpenWorkspace) -> Result<()> {
    match &options.bound {
        Some(bound) if bound.workspace != open.workspace.id => Err(Error::OtherWorkspace {
            checkpoint: bound.target.id.clone(),
            root: bound.root.clone(),
        }),
        _ => Ok(()),
    }
}

/// Refuses a target that is not that of the plan. That there is none any more is said in the same way.
pub(super) fn require_target(
    options: &RestoreOptions,
    found: Result<(Target, Intent)>,
) -> Result<(Target, Intent)> {
    let Some(bound) = &options.bound else { return found };
    let changed = || -> Error {
        GoingBackError::PlanTarget { plan: bound.id(), checkpoint: bound.target.id.clone() }.into()
    };
    let predecessor = |before: &CheckpointRef, found: Option<CheckpointId>| -> Error {
        let (plan, checkpoint) = (bound.id(), bound.target.id.clone());
        let before = before.id.clone();
        GoingBackError::PlanPredecessor { plan, checkpoint, before, found }.into()
    };
    match found {
        Ok((target, intent)) => {
            if target.reference != bound.target || intent.verb != bound.verb {
                return Err(changed());
            }
            let found =
                intent.merge.as_ref().and_then(Merge::predecessor).map(|before| before.checkpoint);
            match (&bound.before, found) {
                (Some(before), found) if found.as_ref() != Some(before) => {
                    Err(predecessor(before, found.map(|found| found.id)))
                }
                _ => Ok((target, intent)),
            }
        }
        Err(error @ Error::GoingBack(GoingBackError::NoPredecessor { .. })) => {
            Err(bound.before.as_ref().map_or(error, |before| predecessor(before, None)))
        }
        Err(
            Error::CheckpointNotFound { .. }
            | Error::SessionNotFound { .. }
            | Error::Pruned { .. }
            | Error::NothingToUndo { .. }
            | Error::GoingBack(GoingBackError::NothingToRedo { .. }),
        ) => Err(changed()),
        Err(error) => Err(error),
    }
}

/// Refuses what would be done now where it is not what the plan says.
pub(super) fn require_plan(options: &RestoreOptions, plan: &Plan) -> Result<()> {
    let Some(bound) = &options.bound else { return Ok(()) };
    let paths = bound.differences(plan);
    if paths.is_empty() {
        return Ok(());
    }
    Err(GoingBackError::PlanOutdated { plan: bound.id(), paths }.into())
}
