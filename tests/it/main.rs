//! Tests of the library, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../support/all.rs"]
mod support;

mod applying;
mod damage;
mod going_back;
mod golden;
mod hashing;
mod hints;
mod interrupted;
mod isolating;
mod late;
mod model;
mod mounts;
mod moved;
mod packs;
mod place;
mod plans;
mod protocol;
mod purging;
mod querying;
mod restoring;
mod reverting;
mod round_trip;
mod scaffolding;
mod sides;
mod tidy;
mod upkeep;
