//! Files made to collide under the fast checksum, through the whole program.

use std::fs;

use crate::support::collision::{Pair, long, short};
use crate::support::fingerprint;
use crate::support::program::Program;
use crate::support::tree::{build, file};

#[test]
fn files_made_to_collide_are_kept_apart() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let work = program.workspace();
    for (name, Pair { first, second }) in [("short", short(64)), ("long", long(4096))] {
        build(&work, [(format!("{name}-1"), file(first)), (format!("{name}-2"), file(second))]);
    }
    // In a second capture too, where the first of a pair is in the store already.
    program.run(["capture", "--session", "s"]).ok();
    let Pair { first, second } = short(128);
    build(&work, [("late-1", file(first))]);
    program.run(["capture", "--session", "s"]).ok();
    build(&work, [("late-2", file(second))]);
    let captured = program.run(["capture", "--session", "s", "--json"]).ok().json();
    let out = program.root().join("out");
    fs::create_dir(&out).unwrap();
    let seq = captured["seq"].to_string();
    program.run(["restore", "s", &seq, "--yes", "--into", out.to_str().unwrap()]).ok();
    fingerprint::assert_same(&fingerprint::of(&work), &fingerprint::of(&out));
}
