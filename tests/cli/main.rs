//! Tests of the program, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../support/all.rs"]
mod support;

mod reader;
mod scaffolding;
