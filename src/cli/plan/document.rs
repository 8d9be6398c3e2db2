//! A plan, and what became of it, as JSON.

use serde::Serialize;
use turnpoint::RestoreOutcome;
use turnpoint::plan::{Change, ChangeKind};

use crate::cli::json::{
    DifferenceDocument, IdDocument, PathDocument, ReasonDocument, RootDocument,
};
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
    earlier: Option<IdDocument>,
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
    #[serde(flatten)]
    difference: DifferenceDocument,
    /// Whether its content is merged.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    merged: bool,
}

impl From<&Change> for ChangeDocument {
    fn from(change: &Change) -> Self {
        let (before, after) = (change.before.as_ref(), change.after.as_ref());
        let difference = DifferenceDocument::between(before, after);
        let kind = after.or(before).map(|entry| entry.kind.name());
        Self {
            path: PathDocument::from(&change.path),
            kind: kind.filter(|_| !difference.is_of_kind()),
            difference,
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
            earlier: taken.earlier.as_ref().map(IdDocument::from),
        }),
        root: RootDocument::from(outcome.root.as_path()),
        create: of_kind(ChangeKind::Create),
        overwrite: of_kind(ChangeKind::Overwrite),
        delete: of_kind(ChangeKind::Delete),
        mode: of_kind(ChangeKind::Mode),
        skip: plan.skips.iter().map(ReasonDocument::from).collect(),
        problems: outcome.problems.iter().map(ReasonDocument::from).collect(),
        problem_count: outcome.problem_count,
        changed: outcome.changed,
        left: outcome.left.iter().map(ReasonDocument::from).collect(),
        safety: outcome.safety.as_ref().map(IdDocument::from),
        remarks: outcome.remarks.clone(),
    }
}
