//! What may happen to a store, done to it: kills, power cuts, errors of the kernel, full disks, damage,
//! races. Not part of `cargo test`: `cargo test --test faults` needs root and what docs/testing.md names.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../support/all.rs"]
mod support;

mod scene;
mod steps;

mod busy;
mod clock;
mod damage;
mod errors;
mod full;
mod kills;
mod places;
mod power;
mod purge;
mod races;
mod recount;
mod refused;
mod runs;
mod soak;
