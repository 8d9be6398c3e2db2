//! Power cuts: the file system under the store and the workspace goes down without writing what was not
//! synchronised, and is mounted again, as the kernel's own tests of file systems do it (`FS_IOC_SHUTDOWN`).
//! After each cut the program sees another boot.
//!
//! Each operation is cut at steps that are named, and at some more, on ext4 or on xfs;
//! `TURNPOINT_EVERY_STEP=1` cuts it at each, on both.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::kills::{CAPTURE, assert_nothing_left, gc, is_long, tree, write_many};
use crate::scene::{BINARY, Scene};
use crate::steps::{self, Step};
use crate::support::fingerprint::{self, Fingerprint};
use crate::support::program::{Program, run};

/// How many more points of each operation.
const POINTS: usize = 2;

/// A file system in a file. It is unmounted, and the file removed, when this is dropped.
#[derive(Debug)]
pub(crate) struct Disk {
    dir: TempDir,
}

impl Disk {
    #[track_caller]
    fn new(kind: &str) -> Self {
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let dir = tempfile::Builder::new().prefix("turnpoint-disk-").tempdir_in(place).unwrap();
        let disk = Self { dir };
        fs::create_dir(disk.mounted()).unwrap();
        let image = fs::File::create(disk.image()).unwrap();
        image.set_len(400 << 20).unwrap();
        let make = ["-q", if kind == "xfs" { "-f" } else { "-F" }];
        run(Command::new(format!("mkfs.{kind}")).args(make).arg(disk.image())).ok();
        disk.mount();
        fs::write(disk.program(), disk.script()).unwrap();
        run(Command::new("chmod").arg("0755").arg(disk.program())).ok();
        disk
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn mounted(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// The program, which sees the boot that the file `boot` names.
    fn program(&self) -> PathBuf {
        self.dir.path().join("turnpoint")
    }

    fn boot(&self) -> PathBuf {
        self.dir.path().join("boot")
    }

    fn script(&self) -> String {
        // In quotes: the directory for temporary files may have any name.
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let (boot, binary) = (quoted(self.boot().to_str().unwrap()), quoted(BINARY));
        format!(
            "#!/bin/sh\n\
             [ -e {boot} ] || exec {binary} \"$@\"\n\
             exec unshare -m sh -c 'mount --bind \"$0\" /proc/sys/kernel/random/boot_id && \
             exec \"$@\"' {boot} {binary} \"$@\"\n"
        )
    }

    /// Fails with the reason where it cannot be mounted.
    #[track_caller]
    fn mount(&self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.mounted())).ok();
    }

    fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.contains(self.mounted().to_str().unwrap())
    }

    fn scene(&self) -> Scene {
        Scene::with(Program::below(self.program().to_str().unwrap(), &self.mounted()))
    }

    /// Makes durable what is there: what the test itself has written, not the program.
    pub(crate) fn sync(&self) {
        run(Command::new("sync").arg("-f").arg(self.mounted())).ok();
    }

    /// From now on nothing reaches the disk.
    fn cut(&self) {
        let down = "import fcntl, os, struct, sys\n\
                    where = os.open(sys.argv[1], os.O_RDONLY)\n\
                    fcntl.ioctl(where, 0x8004587D, struct.pack('I', 2))";
        run(Command::new("python3").args(["-c", down]).arg(self.mounted())).ok();
    }

    /// Comes back after a cut, in another boot. Nobody uses the file system any more.
    #[track_caller]
    fn come_back(&self) {
        run(Command::new("umount").arg(self.mounted())).ok();
        // A process in a mount namespace of its own, of another test too, may still have it mounted: as
        // long as that lives the file system would come back as dead as it is.
        let begun = Instant::now();
        let is_used =
            || !run(Command::new("losetup").arg("-j").arg(self.image())).stdout.is_empty();
        while is_used() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the disk is still in use");
            std::thread::sleep(Duration::from_millis(5));
        }
        fs::write(self.boot(), format!("{}\n", uuid::Uuid::new_v4())).unwrap();
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted() {
            // Whoever still uses it is being killed.
            drop(Command::new("umount").arg("-l").arg(self.mounted()).status());
        }
    }
}

/// Runs a test on a file system; where every step is asked for, on the other one too.
pub(crate) fn on(kind: &str, test: impl Fn(&Disk, &mut Scene)) {
    let other = if kind == "xfs" { "ext4" } else { "xfs" };
    for kind in if is_long() { vec![kind, other] } else { vec![kind] } {
        let disk = Disk::new(kind);
        let mut scene = disk.scene();
        test(&disk, &mut scene);
    }
}

pub(crate) fn cut_after(disk: &Disk, what: &str) -> String {
    disk.cut();
    disk.come_back();
    format!("power cut after {what}")
}

#[test]
fn what_was_acknowledged_is_there_after_a_cut() {
    on("ext4", |disk, scene| {
        for seed in 0..if is_long() { 30 } else { 3 } {
            scene.edit(seed);
            scene.capture();
            let what = cut_after(disk, "a capture");
            scene.assert_whole(&what);
        }
        assert_nothing_left(scene, "after power cuts");
    });
}

#[test]
fn a_pin_and_a_label_are_there_after_a_cut() {
    on("xfs", |disk, scene| {
        scene.capture();
        scene.program.run(["pin", "s", "0"]).ok();
        disk.cut();
        disk.come_back();
        scene.program.run(["label", "s", "0", "kept"]).ok();
        disk.cut();
        disk.come_back();
        let shown = scene.program.run(["list", "--session", "s", "--json"]).ok().json();
        let shown = &shown["checkpoints"][0];
        assert_eq!((&shown["label"], &shown["pinned"]), (&"kept".into(), &true.into()), "{shown}");
        scene.assert_whole("after a pin");
    });
}

#[test]
fn a_restore_and_its_undo_are_there_after_a_cut() {
    on("xfs", |disk, scene| {
        scene.capture();
        let target = fingerprint::of(&scene.program.workspace());
        change(scene);
        let before = fingerprint::of(&scene.program.workspace());
        disk.sync();
        scene.program.run(["restore", "s:0", "--yes"]).ok();
        cut_after(disk, "a restore");
        fingerprint::assert_same(&target, &fingerprint::of(&scene.program.workspace()));
        scene.program.run(["undo", "--yes"]).ok();
        let what = cut_after(disk, "an undo");
        fingerprint::assert_same(&before, &fingerprint::of(&scene.program.workspace()));
        scene.assert_whole(&what);
    });
}

/// Changes of several kinds.
fn change(scene: &Scene) {
    scene.edit(1);
    let at = |name: &str| scene.program.workspace().join(name);
    fs::remove_dir_all(at("d/e")).unwrap();
    fs::write(at("d/e"), "a file now").unwrap();
    fs::remove_file(at("empty")).unwrap();
    fs::create_dir_all(at("empty/in")).unwrap();
    fs::write(at("empty/in/file"), "new").unwrap();
}

/// Cuts the power at some steps of an operation, each time from the same state: after each step whose
/// text holds one of `named`, and after some others.
pub(crate) fn cut_at_steps(
    disk: &Disk,
    scene: &mut Scene,
    arguments: &[&str],
    named: &[&str],
    after: impl Fn(&mut Scene, &str),
) {
    let mut saved = scene.save();
    let steps = steps::of(&scene.program, arguments);
    let steps: Vec<Step> = steps.into_iter().filter(|step| step.is_main).collect();
    let count = steps.len();
    let mut chosen: BTreeSet<usize> = BTreeSet::new();
    if is_long() {
        chosen.extend(0..count);
    }
    for name in named {
        let is_named = |step: &Step| step.text.contains(name);
        let first = steps.iter().position(is_named);
        chosen.insert(first.unwrap_or_else(|| panic!("no {name} in {steps:#?}")));
        chosen.extend(steps.iter().rposition(is_named));
    }
    let sure: Vec<usize> = (0..count).filter(|at| !steps[*at].varies()).collect();
    chosen.extend((1..=POINTS).map(|point| sure[point * sure.len() / (POINTS + 1)]));
    let mut cuts = 0;
    for step in chosen.iter().map(|at| &steps[*at]) {
        scene.put_back(&mut saved);
        disk.sync();
        let what = format!("power cut in {} after {step}", arguments.join(" "));
        let Some(held) = step.hold(&scene.program, arguments) else {
            assert!(step.varies(), "{what}: it never came");
            continue;
        };
        disk.cut();
        held.kill();
        disk.come_back();
        cuts += 1;
        after(scene, &what);
    }
    assert!(cuts >= named.len() && cuts * 5 >= chosen.len() * 4, "{cuts} of {}", chosen.len());
}

#[test]
fn a_capture_is_cut() {
    on("ext4", |disk, scene| {
        for seed in 1..3 {
            scene.capture();
            scene.edit(seed);
        }
        write_many(scene, 0);
        // The name of the pack, and the manifest's, which is not durable yet.
        let named = [".pack\") = 0", "\"2.json\", RENAME_NOREPLACE"];
        cut_at_steps(disk, scene, &CAPTURE, &named, |scene, what| {
            scene.assert_whole(what);
            assert_nothing_left(scene, what);
        });
    });
}

#[test]
fn a_capture_that_prunes_is_cut() {
    on("xfs", |disk, scene| {
        for seed in 0..21 {
            scene.edit(seed);
            scene.capture();
        }
        scene.edit(21);
        // Marked before, and unlinked while this one commits; marked by this one; and unlinked. The name of a
        // loose blob comes first of those that take no place.
        let named = [
            "RENAME_NOREPLACE",
            "/s/0.json",
            "\"21.json\", RENAME_NOREPLACE",
            "/s/1.pin",
            "/s/1.json",
        ];
        cut_at_steps(disk, scene, &CAPTURE, &named, |scene, what| {
            scene.assert_whole(what);
            assert_nothing_left(scene, what);
        });
    });
}

#[test]
fn a_collection_is_cut() {
    on("ext4", |disk, scene| {
        write_many(scene, 0);
        scene.capture();
        gc(scene).ok();
        for number in 30..90 {
            fs::remove_file(scene.program.workspace().join(format!("f{number}"))).unwrap();
        }
        scene.capture();
        write_many(scene, 1);
        let newest = scene.capture();
        scene.program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
        (0..newest).for_each(|seq| scene.forget(seq));
        // Packs get their names; loose blobs, and packs that were written anew, lose theirs.
        let named = [".pack\") = 0", "unlinkat(", ".pack\", 0)"];
        cut_at_steps(disk, scene, &["gc"], &named, |scene, what| {
            scene.assert_whole(what);
            assert_nothing_left(scene, what);
            scene.assert_restores(what);
        });
    });
}

#[test]
fn a_restore_is_cut() {
    on("ext4", |disk, scene| {
        scene.capture();
        let target = fingerprint::of(&scene.program.workspace());
        change(scene);
        let before = fingerprint::of(&scene.program.workspace());
        let restore = ["restore", "s:0", "--yes"];
        let named =
            [".json\") = 0", "RENAME_EXCHANGE", "\"old-", ".json\", 0)", "\".turnpoint\", AT"];
        cut_at_steps(disk, scene, &restore, &named, |scene, what| {
            assert_restored(scene, &before, &target, what);
        });
    });
}

/// After a restore that was cut the next capture finds or makes one of the two trees.
fn assert_restored(scene: &mut Scene, before: &Fingerprint, target: &Fingerprint, what: &str) {
    let is_open = fs::read_dir(scene.program.store().join("journal")).unwrap().count() > 0;
    let found = tree(scene);
    let is_one = &found == before || &found == target;
    assert!(is_open || is_one, "{what}: {}", fingerprint::differences(target, &found));
    scene.program.run(["capture", "--session", "s"]).ok();
    let found = fingerprint::of(&scene.program.workspace());
    let is_one = &found == before || &found == target;
    assert!(is_one, "{what}: {}", fingerprint::differences(target, &found));
    if &found == target {
        scene.program.run(["undo", "--yes"]).ok();
        fingerprint::assert_same(before, &fingerprint::of(&scene.program.workspace()));
    }
    scene.assert_whole(what);
    assert_nothing_left(scene, what);
}

#[test]
fn an_index_built_anew_is_cut() {
    on("xfs", |disk, scene| {
        for seed in 1..3 {
            scene.capture();
            scene.edit(seed);
        }
        let named = ["index.db.new\""];
        cut_at_steps(disk, scene, &["doctor", "--rebuild"], &named, |scene, what| {
            scene.assert_whole(what);
            assert_nothing_left(scene, what);
        });
    });
}

#[test]
fn a_disk_that_lies_costs_what_it_lied_about_and_never_gives_wrong_bytes() {
    let mut lost = 0;
    for kind in ["ext4", "xfs"] {
        // Nothing that is to be made durable is, or every second or third thing is not.
        for lies in ["1+", "1+2", "2+2", "1+3"] {
            let disk = Disk::new(kind);
            let mut scene = disk.scene();
            scene.capture();
            disk.sync();
            for seed in 1..4 {
                scene.edit(seed);
                capture_on_a_disk_that_lies(&mut scene, lies);
            }
            disk.cut();
            disk.come_back();
            lost += assert_found(&mut scene, &format!("{kind} that lies at {lies}"));
        }
    }
    assert!(lost > 0, "a disk that lies must lose something, or nothing is tested here");
}

/// `lies` says which calls of each thread do nothing and say that all is durable.
fn capture_on_a_disk_that_lies(scene: &mut Scene, lies: &str) {
    let now = fingerprint::of(&scene.program.workspace());
    let calls = "fsync,fdatasync,syncfs";
    let (trace, inject) =
        (format!("trace={calls}"), format!("inject={calls}:retval=0:when={lies}"));
    let wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
    let captured = run(&mut scene.program.under(&wrapper, CAPTURE)).ok().json();
    scene.acknowledge(captured["seq"].as_u64().unwrap(), now);
}

/// Whatever was lost is told and nothing is made up; and the way out is open. Returns how many of the
/// acknowledged checkpoints are lost.
fn assert_found(scene: &mut Scene, what: &str) -> usize {
    let into = scene.program.root().join("looked-at");
    let told = |command: &[&str]| {
        let run = scene.program.run(command);
        assert!((0..=4).contains(&run.code), "{what}: {command:?}: {} {}", run.code, run.stderr);
        assert!(!run.stderr.contains("panicked"), "{what}: {command:?}: {}", run.stderr);
        run
    };
    let mut lost = Vec::new();
    for (seq, content) in scene.acknowledged() {
        let name = format!("s:{seq}");
        let run = told(&["restore", &name, "--into", into.to_str().unwrap(), "--yes"]);
        if run.code == 0 {
            fingerprint::assert_same(content, &fingerprint::of(&into));
        } else {
            lost.push(seq);
        }
        drop(fs::remove_dir_all(&into));
    }
    for command in [&["list"][..], &["verify", "--read-data"], &["gc"], &["doctor", "--rebuild"]] {
        told(command);
    }
    let count = lost.len();
    for seq in lost {
        scene.forget(seq);
    }
    let now = fingerprint::of(&scene.program.workspace());
    let captured = scene.program.run(CAPTURE);
    assert_eq!(captured.code, 0, "{what}: {}{}", captured.stdout, captured.stderr);
    let seq = captured.json()["seq"].as_u64().unwrap();
    assert!(scene.restored(&format!("s:{seq}")) == now, "{what}");
    count
}
