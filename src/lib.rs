//! Checkpoints of a coding agent's workspace, one per turn.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod blobs;
pub mod checkpoint;
pub mod clock;
mod disk;
mod error;
mod git;
pub mod hash;
pub mod id;
mod index;
pub mod limits;
pub mod manifest;
pub mod monitor;
pub mod operation;
pub mod path;
pub mod settings;
mod walk;

pub use error::{BadFile, Error, ErrorClass, LostContent, Result};
pub use monitor::{Monitor, Notice, Phase};
