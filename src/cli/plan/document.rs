//! A plan, and what became of it, as JSON.

use serde::Serialize;
use turnpoint::RestoreOutcome;
use turnpoint::manifest::Entry;
use turnpoint::plan::{Change, ChangeKind, Skip};

use crate::cli::json::{IdDocument, PathDocument, ReasonDocument, RootDocument};
use crate::cli::plan::Verb;

#[derive(Serialize)]
pub(super) struct PlanDocument {
    plan: String,
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(flatten)]
    target: IdDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    predecessor: Option<PredecessorDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    takes_back: Option<TakenBackDocument>,
    #[serde(flatten)]
    root: RootDocument,
    create: Vec<ChangeDocument>,
    overwrite: Vec<ChangeDocument>,
    delete: Vec<ChangeDocument>,
    mode: Vec<ChangeDocument>,
    skip: Vec<ReasonDocument>,
    problems: Vec<ReasonDocument>,
    problem_count: u64,
    changed: u64,
    left: Vec<ReasonDocument>,
    safety: Option<IdDocument>,
    remarks: Vec<String>,
}

/// What a checkpoint that is taken back was compared with.
#[derive(Serialize)]
struct PredecessorDocument {
    #[serde(flatten)]
    checkpoint: IdDocument,
    gone: u64,
}

/// The command that an undo or a redo takes back, and what that goes back to.
#[derive(Serialize)]
struct TakenBackDocument {
    verb: &'static str,
    origin: Option<OriginDocument>,
}

#[derive(Serialize)]
struct OriginDocument {
    verb: &'static str,
    #[serde(flatten)]
    id: IdDocument,
}

#[derive(Serialize)]
struct ChangeDocument {
    #[serde(flatten)]
    path: PathDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_from: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind_to: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_to: Option<String>,
    /// Whether its content is merged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    merged: bool,
}

impl From<&Change> for ChangeDocument {
    fn from(change: &Change) -> Self {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let kind = |entry: Option<&Entry>| entry.map(|entry| entry.kind.name());
        let mode = |entry: Option<&Entry>| entry.map(|entry| entry.mode.to_string());
        let changes_kind = before.is_some() && after.is_some() && kind(before) != kind(after);
        let changes_mode =
            before.is_some() && after.is_some() && !changes_kind && mode(before) != mode(after);
        Self {
            path: PathDocument::from(&change.path),
            kind: if changes_kind { None } else { kind(after.or(before)) },
            kind_from: kind(before).filter(|_| changes_kind),
            kind_to: kind(after).filter(|_| changes_kind),
            mode_from: mode(before).filter(|_| changes_mode),
            mode_to: mode(after).filter(|_| changes_mode),
            merged: false,
        }
    }
}

pub(super) fn document(verb: &Verb, outcome: &RestoreOutcome, dry_run: bool) -> PlanDocument {
    let plan = &outcome.plan;
    let one = |change: &Change| {
        let merged = outcome.merged.binary_search(&change.path).is_ok();
        ChangeDocument { merged, ..ChangeDocument::from(change) }
    };
    let of_kind = |kind| plan.of_kind(kind).map(one).collect();
    let skips = |skips: &[Skip]| {
        skips
            .iter()
            .map(|skip| ReasonDocument {
                path: PathDocument::from(&skip.path),
                reason: skip.reason.as_str().to_owned(),
            })
            .collect()
    };
    PlanDocument {
        plan: plan.id(),
        dry_run,
        run: verb.run().map(|run| run.to_string()),
        target: IdDocument::from(&plan.target),
        predecessor: outcome.predecessor.as_ref().map(|before| PredecessorDocument {
            checkpoint: IdDocument::from(&before.checkpoint.id),
            gone: before.gone,
        }),
        takes_back: outcome.takes_back.as_ref().map(|taken| TakenBackDocument {
            verb: taken.verb.as_str(),
            origin: taken
                .origin
                .as_ref()
                .map(|(verb, id)| OriginDocument { verb: verb.as_str(), id: IdDocument::from(id) }),
        }),
        root: RootDocument::from(outcome.root.as_path()),
        create: of_kind(ChangeKind::Create),
        overwrite: of_kind(ChangeKind::Overwrite),
        delete: of_kind(ChangeKind::Delete),
        mode: of_kind(ChangeKind::Mode),
        skip: skips(&plan.skips),
        problems: outcome.problems.iter().map(ReasonDocument::from).collect(),
        problem_count: outcome.problem_count,
        changed: outcome.changed,
        left: skips(&outcome.left),
        safety: outcome.safety.as_ref().map(IdDocument::from),
        remarks: outcome.remarks.clone(),
    }
}
