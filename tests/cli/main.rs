//! Tests of the program, one binary.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../support/all.rs"]
mod support;

mod accounting;
mod applying;
mod at;
mod bisect;
mod collision;
mod configuration;
mod damage;
mod diff;
mod doctor;
mod documents;
mod durable;
mod evicting;
mod exec;
mod exits;
mod export;
mod extras;
mod half_removed;
mod help;
mod hints;
mod index;
mod interrupted;
mod json;
mod list;
mod log;
mod long_walk;
mod packs;
mod pick;
mod proposing;
mod purge;
mod quarantine;
mod questions;
mod reader;
mod retention;
mod scaffolding;
mod sessions;
mod shell;
mod sql;
mod storm;
mod terminal;
mod trace;
mod unwritable;
mod worktree;
mod worktree_removal;
