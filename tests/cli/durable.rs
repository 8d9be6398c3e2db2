//! What a capture makes durable, in which order and how often it waits for that, as the kernel is told.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::program::{Program, run};
use crate::support::tree::{build, file};

/// Waits without a name being given between them: in which order they come does not matter.
type Barrier = Vec<&'static str>;

const CALLS: &str =
    "trace=fsync,fdatasync,syncfs,sync_file_range,rename,renameat,renameat2,link,linkat";

/// What a capture into session `s` asks of the kernel.
fn trace_of_a_capture(program: &Program) -> String {
    let trace = program.root().join("trace");
    let wrapper = ["strace", "-f", "-y", "-o", trace.to_str().unwrap(), "-e", CALLS];
    run(&mut program.under(&wrapper, ["capture", "--session", "s"])).ok();
    fs::read_to_string(trace).unwrap()
}

/// How many calls a capture makes that wait for the disk, but for those of the index, which waits where
/// retention drops something.
fn syncs_of_a_capture(program: &Program) -> usize {
    let trace = trace_of_a_capture(program);
    let calls = trace.lines().filter(|line| !line.contains("<...") && line.contains("sync"));
    calls.filter(|line| !line.contains("rename") && !line.contains("index.db")).count()
}

/// The barriers of a capture into session `s`, each with the kinds of places that it makes durable.
fn barriers_of_a_capture(program: &Program) -> Vec<Barrier> {
    let trace = trace_of_a_capture(program);
    let mut barriers: Vec<Barrier> = Vec::new();
    let mut is_open = false;
    // The second half of a call that was told in two parts begins with its process and `<...`.
    for call in trace.lines().filter_map(|line| line.split_once(' ')).map(|(_, call)| call.trim()) {
        if call.starts_with("<...") || call.starts_with("+++") || call.starts_with("---") {
            continue;
        }
        if call.starts_with("rename") || call.starts_with("link") {
            is_open = false;
            continue;
        }
        let (_, place) = call.split_once('<').unwrap();
        let place = kind_of(program, Path::new(place.split_once('>').unwrap().0));
        if !is_open {
            barriers.push(Barrier::new());
        }
        is_open = true;
        let barrier = barriers.last_mut().unwrap();
        if !barrier.contains(&place) {
            barrier.push(place);
        }
    }
    barriers
}

fn kind_of(program: &Program, place: &Path) -> &'static str {
    let inside = place.strip_prefix(program.store()).unwrap();
    let mut parts = inside.iter().map(|part| part.to_str().unwrap());
    match (parts.next(), parts.next()) {
        (Some("tmp"), Some(name)) if name.starts_with("write-") => "a new file",
        (Some("tmp"), Some(_)) => "new blobs",
        (Some("blobs"), Some(_)) => "names of blobs",
        (Some("packs"), None) => "names of packs",
        (Some("s"), None) => "names of the session",
        (Some("index.db-wal"), None) => "the index",
        other => panic!("{other:?} was made durable"),
    }
}

/// Captures until the stamps of all files are old enough to vouch for them: what is read again is made
/// durable again.
fn settle(program: &Program) {
    for _ in 0..200 {
        let run = program.run(["capture", "--session", "s", "--json"]).ok();
        if run.json()["counts"]["files_read"] == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("files that nobody touches are read again and again");
}

#[test]
fn content_is_durable_before_its_names_and_these_before_the_manifest_and_nothing_is_waited_for_twice()
 {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one")), ("d/b.txt", file("two"))]);
    settle(&program);

    let unchanged = [vec!["a new file"], vec!["names of the session"]];
    assert_eq!(barriers_of_a_capture(&program), unchanged, "the manifest, and its name");

    for name in ["a.txt", "d/b.txt", "d/c.txt", "e/f.txt"] {
        fs::create_dir_all(program.workspace().join(name).parent().unwrap()).unwrap();
        fs::write(program.workspace().join(name), format!("new {name}")).unwrap();
    }
    let changed = [
        vec!["new blobs"],
        // The manifest has no name yet.
        vec!["names of blobs", "a new file"],
        vec!["names of the session"],
    ];
    assert_eq!(barriers_of_a_capture(&program), changed);
}

#[test]
fn many_new_blobs_are_one_file_so_that_there_is_no_more_to_wait_for() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let write = |text: &str| {
        for number in 0..40 {
            let path = program.workspace().join(number.to_string());
            fs::write(path, format!("{text} {number}")).unwrap();
        }
    };
    write("first");
    settle(&program);
    write("second");
    let packed =
        [vec!["new blobs"], vec!["names of packs", "a new file"], vec!["names of the session"]];
    assert_eq!(barriers_of_a_capture(&program), packed);
    settle(&program);
    write("third");
    assert_eq!(syncs_of_a_capture(&program), 4, "the pack, its name, the manifest, its name");
}

/// git waits neither for the objects of a commit nor for refs.
#[test]
fn commits_are_durable_before_a_record_says_that_they_are_held() {
    let program = crate::worktree::program();
    let script = "echo 1 > one; git add one; git commit -qm one; \
                  echo staged > a.txt; git add a.txt; echo later > a.txt";
    crate::worktree::exec(&program, &[], script).ok();
    let (id, _) = crate::worktree::only(&program);
    let trace = program.root().join("trace");
    let calls = "trace=execve,syncfs,rename,renameat,renameat2";
    let wrapper = ["strace", "-f", "-y", "-s", "300", "-o", trace.to_str().unwrap(), "-e", calls];
    run(&mut program.under(&wrapper, ["worktree", "remove", &id, "--yes"])).ok();
    let trace = fs::read_to_string(trace).unwrap();
    let places = |what: &[&str]| -> Vec<usize> {
        let lines = trace.lines().enumerate();
        let found = lines.filter(|(_, line)| what.iter().all(|text| line.contains(text)));
        found.map(|(place, _)| place).collect()
    };
    let run_to_its_end = ["execve(", ") = 0", "core.fsync=all"];
    let written =
        places(&[&run_to_its_end[..], &["\"update-ref\"", "refs/turnpoint/removed"]].concat());
    assert_eq!(written.len(), 2, "of the branch and of the index\n{trace}");
    for word in ["\"write-tree\"", "\"commit-tree\""] {
        assert!(!places(&[&run_to_its_end[..], &[word]].concat()).is_empty(), "{trace}");
    }
    let common = format!("<{}>", program.workspace().join(".git").display());
    let synced = places(&["syncfs(", &common]);
    assert!(!synced.is_empty(), "{trace}");
    let recorded = places(&["rename", &format!("{id}.json")]);
    assert!(written.iter().all(|place| *place < synced[0]), "{trace}");
    assert!(synced[0] < recorded[0], "{trace}");
}

/// A row that outlived the name of its manifest in a power cut would say that it is missing.
#[test]
fn the_name_of_a_manifest_that_another_process_left_is_durable_before_it_has_a_row() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    build(&program.workspace(), [("a.txt", file("one"))]);
    program.run(["capture", "--session", "s"]).ok();
    let kept = program.root().join("kept");
    fs::create_dir(&kept).unwrap();
    let index = ["index.db", "index.db-wal"];
    for name in index {
        fs::copy(program.store().join(name), kept.join(name)).unwrap();
    }
    program.run(["capture", "--session", "s"]).ok();
    for name in index {
        fs::copy(kept.join(name), program.store().join(name)).unwrap();
    }
    let trace = program.root().join("trace");
    let wrapper = ["strace", "-f", "-y", "-o", trace.to_str().unwrap(), "-e", CALLS];
    let collected = run(&mut program.under(&wrapper, ["gc", "--json"])).ok().json();
    assert_eq!(collected["adopted"], 1);
    let trace = fs::read_to_string(trace).unwrap();
    let session = format!("<{}>", program.store().join("s").display());
    assert!(
        trace.lines().any(|call| call.contains("fsync(") && call.contains(&session)),
        "{trace}"
    );
}

#[test]
fn content_that_is_found_in_a_pack_alone_has_no_name_of_its_own_to_be_waited_for() {
    let program = Program::new(env!("CARGO_BIN_EXE_turnpoint"));
    let write = |name: &str, text: &str| {
        let path = program.workspace().join(name);
        fs::write(&path, text).unwrap();
        // The pages are the same in each run, and in no directory by chance.
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    };
    for number in 0..20 {
        write(&format!("f{number}"), &format!("content {number}"));
    }
    program.run(["capture", "--session", "s"]).ok();
    write("copy", "content 7");
    let trace = trace_of_a_capture(&program);
    let hash = blake3::hash(b"content 7").to_hex();
    let is_synced = |place: &str| {
        let place = format!("{place}>");
        trace.lines().any(|call| call.contains("sync(") && call.contains(&place))
    };
    assert!(is_synced("/packs"), "{trace}");
    assert!(!is_synced(&format!("/blobs/{}", hash.split_at(2).0)), "{trace}");
}
