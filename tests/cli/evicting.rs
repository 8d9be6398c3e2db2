//! A store within its budget, and room on its disk.

use std::fs;

use serde_json::{Value, json};

use crate::support::program::{Program, Run, run};

const BUDGET: (&str, &str) = ("TURNPOINT_STORE_BUDGET", "1MiB");

/// Runs the program so many hours from now, with a variable in its environment.
fn later_with(
    program: &Program,
    hours: i64,
    (name, value): (&str, &str),
    arguments: &[&str],
) -> Run {
    let seconds = (hours * 3_600).to_string();
    let mut command = program.command(arguments);
    run(command.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", seconds).env(name, value))
}

/// 300,000 bytes that no compression makes shorter, others for each seed.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..37_500).flat_map(next).collect()
}

/// Captures a workspace of which one file is new each time.
fn turn(program: &Program, number: u64, variable: (&str, &str)) -> Run {
    fs::write(program.workspace().join("same.txt"), "the same in each").unwrap();
    fs::write(program.workspace().join("noise.bin"), noise(number)).unwrap();
    later_with(program, 0, variable, &["capture", "--session", "s"])
}

fn program() -> Program {
    Program::new(env!("CARGO_BIN_EXE_turnpoint"))
}

fn seqs(program: &Program) -> Vec<u64> {
    let json = program.run(["list", "--session", "s", "--json"]).ok().json();
    json["checkpoints"].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap()).collect()
}

fn stored(program: &Program) -> u64 {
    let json = program.run(["stats", "--json"]).ok().json();
    json["all"]["stored_bytes"].as_u64().unwrap()
}

fn evictions(program: &Program) -> Vec<Value> {
    let log = program.run(["operations", "--json"]).ok().json();
    let of_it = |it: &&Value| it["verb"] == "evict";
    log["operations"].as_array().unwrap().iter().filter(of_it).cloned().collect()
}

#[test]
fn a_capture_beyond_the_budget_drops_the_oldest_and_no_more_than_it_takes() {
    let program = program();
    for number in 0..3 {
        let quiet = turn(&program, number, BUDGET).ok();
        assert_eq!(quiet.stderr, "", "{}", quiet.stderr);
    }
    assert_eq!(seqs(&program), [0, 1, 2]);
    let told = turn(&program, 3, BUDGET).ok();
    let note =
        "note: the store holds more than its budget; the oldest went for it: 1 checkpoint, 29";
    assert!(told.stderr.starts_with(note), "{}", told.stderr);
    assert_eq!(seqs(&program), [1, 2, 3]);
    assert!((900_000..1 << 20).contains(&stored(&program)), "{}", stored(&program));
    let logged = evictions(&program);
    assert_eq!(logged.len(), 1);
    assert_eq!(logged[0]["checkpoints"], json!([{"session": "s", "seq": 0}]));
    assert_eq!(logged[0]["why"], "budget");
    // Pinned ones stay, and the next oldest goes.
    program.run(["pin", "s:1"]).ok();
    turn(&program, 4, BUDGET).ok();
    assert_eq!(seqs(&program), [1, 3, 4]);
    // Without what was remembered it is counted.
    fs::remove_file(program.store().join(".tally")).unwrap();
    turn(&program, 5, BUDGET).ok();
    assert_eq!(seqs(&program), [1, 4, 5]);
    fs::write(program.store().join(".tally"), "none\0sense").unwrap();
    turn(&program, 6, BUDGET).ok();
    assert_eq!(seqs(&program), [1, 5, 6]);
    // What was dropped is swept by the usual rules, and what stays is whole.
    later_with(&program, 1, BUDGET, &["gc"]).ok();
    program.run(["verify", "--read-data"]).ok();
    for seq in [1, 5, 6] {
        let noise_of = program.run(["cat", &format!("s:{seq}"), "noise.bin"]).ok();
        assert_eq!(noise_of.stdout_bytes, noise(seq));
    }
    program.run(["doctor"]).ok();
}

#[test]
fn what_cannot_be_met_drops_nothing_that_is_protected_and_is_told_once() {
    let program = program();
    for number in 0..5 {
        turn(&program, number, ("NO_SUCH", "")).ok();
        program.run(["pin", &format!("s:{number}")]).ok();
    }
    let told = turn(&program, 5, BUDGET).ok();
    let warning = "warning: the store holds more than its budget; 7";
    assert!(told.stderr.starts_with(warning), "{}", told.stderr);
    let again = turn(&program, 6, BUDGET).ok();
    assert_eq!(again.stderr, "", "{}", again.stderr);
    assert_eq!(seqs(&program), [0, 1, 2, 3, 4, 5, 6]);
    // The newest is needed by nobody else once there is a newer one, and a collection looks anew.
    let collected = later_with(&program, 0, BUDGET, &["gc"]).ok();
    assert!(collected.stdout.contains("\n  s: 5\n"), "{}", collected.stdout);
    assert!(!collected.stdout.contains("nothing"), "{}", collected.stdout);
    assert!(collected.stderr.starts_with(warning), "{}", collected.stderr);
    assert_eq!(seqs(&program), [0, 1, 2, 3, 4, 6]);
}

#[test]
fn a_collection_shows_what_would_go_and_then_drops_just_that() {
    let program = program();
    for number in 0..6 {
        turn(&program, number, ("NO_SUCH", "")).ok();
    }
    let planned = later_with(&program, 0, BUDGET, &["gc", "--dry-run", "--json"]).ok().json();
    let ids = |seqs: &[u64]| {
        seqs.iter().map(|seq| json!({"session": "s", "seq": seq})).collect::<Value>()
    };
    assert_eq!(planned["evicted"], ids(&[0, 1, 2]));
    assert_eq!(planned["evicted_because"], "budget");
    assert_eq!((&planned["kept"], &planned["short_bytes"]), (&json!(3), &json!(0)));
    assert!(planned["released_bytes"].as_u64().unwrap() > 890_000, "{planned}");
    assert_eq!(seqs(&program).len(), 6);
    let done = later_with(&program, 0, BUDGET, &["gc", "--json"]).ok().json();
    assert_eq!(done["evicted"], planned["evicted"]);
    assert_eq!(seqs(&program), [3, 4, 5]);
    let swept = later_with(&program, 1, BUDGET, &["gc", "--json"]).ok().json();
    assert_eq!((&swept["evicted"], &swept["evicted_because"]), (&json!([]), &Value::Null));
    assert!(swept["bytes_removed"].as_u64().unwrap() > 890_000, "{swept}");
    program.run(["verify", "--read-data"]).ok();
}

/// An index that was built anew counts the content as the one before it did: as stored, and not for nothing.
#[test]
fn an_index_that_was_built_anew_counts_what_is_stored() {
    for how in [["doctor", "--rebuild"].as_slice(), &["purge", "by-mistake.txt", "--yes"]] {
        let program = program();
        // As long as it is before compression, all but the newest would have to go.
        fs::write(program.workspace().join("lines.txt"), "a line\n".repeat(500_000)).unwrap();
        fs::write(program.workspace().join("by-mistake.txt"), "a secret").unwrap();
        for number in 0..6 {
            turn(&program, number, ("NO_SUCH", "")).ok();
        }
        let before = stored(&program);
        program.run(how).ok();
        let after = stored(&program);
        assert!(before.abs_diff(after) < 20_000, "{how:?}: {before} and {after}");
        let collected = later_with(&program, 0, BUDGET, &["gc", "--json"]).ok().json();
        let oldest = [0, 1, 2].map(|seq| json!({"session": "s", "seq": seq}));
        assert_eq!(collected["evicted"], json!(oldest), "{how:?}");
        assert_eq!(seqs(&program), [3, 4, 5], "{how:?}");
    }
}

/// What is told once is not told again for a while, and what is stored meanwhile is counted all the same. A
/// time that is yet to come keeps nobody from looking.
#[test]
fn what_is_stored_after_it_was_told_is_counted() {
    let program = program();
    for number in 0..4 {
        turn(&program, number, ("NO_SUCH", "")).ok();
        program.run(["pin", &format!("s:{number}")]).ok();
    }
    let tally = || {
        let text = fs::read_to_string(program.store().join(".tally")).unwrap();
        let numbers = text.split_whitespace().map(|word| word.parse().unwrap());
        numbers.collect::<Vec<i64>>()
    };
    turn(&program, 4, BUDGET).ok();
    let told = tally();
    turn(&program, 5, BUDGET).ok();
    let counted = tally();
    assert!((300_000..310_000).contains(&(counted[0] - told[0])), "{told:?}, {counted:?}");
    assert_eq!(counted[1], told[1]);
    assert_eq!(seqs(&program), [0, 1, 2, 3, 4, 5]);
    let to_come = told[1] + 86_400_000_000_000;
    fs::write(program.store().join(".tally"), format!("{} {to_come}\n", counted[0])).unwrap();
    turn(&program, 6, BUDGET).ok();
    assert_eq!(seqs(&program), [0, 1, 2, 3, 6]);
}

#[test]
fn what_another_checkpoint_names_too_is_not_freed_by_the_first() {
    let program = program();
    for (number, noise_of) in [0, 0, 1, 2, 3].into_iter().enumerate() {
        turn(&program, noise_of, ("NO_SUCH", "")).ok();
        fs::write(program.workspace().join("turn.txt"), number.to_string()).unwrap();
    }
    assert!(stored(&program) > 1 << 20);
    let done = later_with(&program, 0, BUDGET, &["gc", "--json"]).ok().json();
    assert_eq!(done["evicted"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!(seqs(&program), [2, 3, 4]);
    assert!(stored(&program) < 1 << 20);
}

#[test]
fn a_disk_that_something_else_fills_takes_no_history_with_it() {
    let program = program();
    let floor = ("TURNPOINT_STORE_FREE_FLOOR", "1024TiB");
    for number in 0..3 {
        turn(&program, number, ("NO_SUCH", "")).ok();
    }
    let told = turn(&program, 3, floor).ok();
    let warning = "warning: less of the disk is free than is to be left; ";
    assert!(told.stderr.starts_with(warning), "{}", told.stderr);
    let planned = later_with(&program, 0, floor, &["gc", "--dry-run", "--json"]).ok().json();
    assert_eq!(planned["evicted"], json!([]));
    assert_eq!(planned["evicted_because"], "free-space");
    assert_eq!(seqs(&program), [0, 1, 2, 3]);
    assert_eq!(evictions(&program), [Value::Null; 0]);
    // A floor that is kept is silent.
    assert_eq!(turn(&program, 4, (floor.0, "1MiB")).ok().stderr, "");
}
