//! What the tests share. Nothing here uses turnpoint's own code to look at a tree: what checks the
//! program must not repeat its errors.
#![allow(dead_code, reason = "each test binary uses its part of this")]

pub(crate) mod collision;
pub(crate) mod corpus;
pub(crate) mod fingerprint;
pub(crate) mod ground;
pub(crate) mod packs;
pub(crate) mod program;
pub(crate) mod traces;
pub(crate) mod tree;
