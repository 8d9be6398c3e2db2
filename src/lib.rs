//! Checkpoints of a coding agent's workspace, one per turn.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

mod access;
mod adoption;
pub mod bisect;
mod blobs;
mod capture;
pub mod checkpoint;
pub mod clock;
pub mod compare;
mod configuration;
mod disk;
mod doctor;
mod error;
mod git;
pub mod hash;
pub mod id;
mod index;
mod isolate;
mod journal;
mod layout;
pub mod limits;
pub mod manifest;
pub mod monitor;
#[cfg(test)]
mod mutation;
pub mod operation;
pub mod path;
pub mod plan;
mod purge;
mod quarantine;
mod registration;
mod restore;
mod retention;
mod runs;
mod sessions;
pub mod settings;
mod store;
mod threads;
mod verify;
mod walk;
mod workspaces;

pub use capture::{CaptureOptions, CaptureOutcome};
pub use checkpoint::{Account, CaptureProblem};
pub use configuration::WORKSPACE_FILE;
pub use doctor::{Condition, Diagnosis, Severity};
pub use error::{
    BadFile, ConfigurationError, ConfigurationProblem, Error, ErrorClass, GoingBackError,
    InvalidRange, IsolationError, LostContent, MergeConflict, MergeConflicts, NoneSoOld, Place,
    Position, PurgeError, QueryError, Repair, Result,
};
pub use index::{QueryOptions, QueryOutcome, QueryRow, VIEWS, Value, View, ViewColumn};
pub use isolate::{BroughtAlong, Extra, ExtraKind, LeftOut, RemoveOptions, RemovedRun, RunContent};
pub use monitor::{Monitor, Notice, Phase};
pub use purge::{
    Holder, KeptContent, PurgeOutcome, PurgePlan, PurgeRequest, PurgedCheckpoint, PurgedPath,
    Removed,
};
pub use quarantine::{Quarantined, QuarantinedKind};
pub use restore::{Predecessor, RestoreOptions, RestoreOutcome, TakenBack};
pub use retention::{EvictOutcome, GcOutcome, KeepReason, PruneOutcome, SweepOutcome, Tightness};
pub use runs::RunState;
pub use settings::PruneRule;
pub use store::{
    Accounts, Answer, CheckpointSummary, CompareOptions, Compared, Comparison, DiskUse,
    EndedRestore, Examination, ForgottenOperation, FoundPath, FoundPaths, InvalidSpec,
    IsolateOptions, KeptRun, ListItem, ListQuery, Listing, Logged, Mended, OpenRestore,
    OperationLog, PathHistory, PathStep, PrunedRuns, Run, RunListing, RunSummary, SessionSummary,
    ShownCheckpoint, Spec, StatesBetween, Store, Treatment, Turn, Which,
};
pub use verify::{Finding, FindingKind, RebuildOutcome, VerifyOptions, VerifyReport};
