//! Disks that are full: a small file system for the store, or for the workspace.
//!
//! Needs root: file systems are mounted.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scene::{BINARY, Scene};
use crate::steps;
use crate::support::fingerprint::{self, differences};
use crate::support::packs;
use crate::support::program::{Program, Run, run};

/// A small file system, unmounted at the end whatever happens.
#[derive(Debug)]
pub(crate) struct Mounted {
    place: PathBuf,
    dir: tempfile::TempDir,
}

impl Mounted {
    /// In memory, of so many bytes and inodes.
    fn memory(size: &str, inodes: u32) -> Self {
        Self::mount(|place, _| {
            let options = format!("size={size},nr_inodes={inodes}");
            ["-t", "tmpfs", "-o", &options, "tmpfs", place].map(str::to_owned).to_vec()
        })
    }

    /// ext4 with a journal, in a file of so many bytes.
    pub(crate) fn ext4(size: &str) -> Self {
        Self::mount(|place, dir| Self::make_ext4(size, place, dir))
    }

    /// As [`Mounted::ext4`], over a directory. It must be gone before the directory is removed.
    pub(crate) fn ext4_over(size: &str, place: PathBuf) -> Self {
        Self::mount_at(Some(place), |place, dir| Self::make_ext4(size, place, dir))
    }

    fn make_ext4(size: &str, place: &str, dir: &Path) -> Vec<String> {
        let image = image_in(dir);
        done(Command::new("truncate").args(["-s", size]).arg(&image));
        done(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        ["-o", OPTIONS, image.to_str().unwrap(), place].map(str::to_owned).to_vec()
    }

    fn mount(arguments: impl FnOnce(&str, &Path) -> Vec<String>) -> Self {
        Self::mount_at(None, arguments)
    }

    fn mount_at(
        place: Option<PathBuf>,
        arguments: impl FnOnce(&str, &Path) -> Vec<String>,
    ) -> Self {
        let dir = tempfile::Builder::new().prefix("turnpoint-mount-").tempdir().unwrap();
        let place = place.unwrap_or_else(|| {
            let place = dir.path().canonicalize().unwrap().join("disk");
            fs::create_dir(&place).unwrap();
            place
        });
        done(Command::new("mount").args(arguments(place.to_str().unwrap(), dir.path())));
        Self { place, dir }
    }

    /// Where it is mounted.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Mounts it so that it can only be read, or written again. Refused while a file is open to be written.
    pub(crate) fn remount(&self, mode: &str) {
        done(Command::new("mount").args(["-o", &format!("remount,{mode}")]).arg(&self.place));
    }

    /// What ext4 does by itself where it finds an error: nothing can be written from now on, and what was
    /// not synchronised is lost.
    pub(crate) fn go_read_only(&self) {
        let mut losetup = Command::new("losetup");
        losetup.args(["--noheadings", "--output", "NAME", "-j"]).arg(image_in(self.dir.path()));
        let device = run(&mut losetup).ok().stdout;
        let name = Path::new(device.trim()).file_name().unwrap();
        let trigger = Path::new("/sys/fs/ext4").join(name).join("trigger_fs_error");
        fs::write(trigger, "for a test").unwrap();
    }

    /// Repairs and mounts it anew, after [`Mounted::go_read_only`].
    pub(crate) fn come_back(&self) {
        done(Command::new("umount").arg(&self.place));
        let image = image_in(self.dir.path());
        let checked = run(Command::new("e2fsck").arg("-p").arg(&image));
        // 1 is that something was repaired: that there had been an error.
        assert_eq!(checked.code, 1, "{}{}", checked.stdout, checked.stderr);
        done(Command::new("mount").args(["-o", OPTIONS]).arg(&image).arg(&self.place));
    }

    /// Writes a file until there is no room, but for so many bytes.
    pub(crate) fn fill(&self, leave: u64) {
        let filler = self.place.join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 16_384]).is_ok() {}
        file.set_len(file.metadata().unwrap().len().saturating_sub(leave)).unwrap();
    }

    /// Removes that file.
    pub(crate) fn empty(&self) {
        fs::remove_file(self.place.join("filler")).unwrap();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Also while a test fails, with somebody still in it: a second panic would end all of them.
        drop(Command::new("umount").arg("-l").arg(&self.place).status());
    }
}

const OPTIONS: &str = "loop,errors=remount-ro";

fn image_in(dir: &Path) -> PathBuf {
    dir.join("image")
}

pub(crate) fn done(command: &mut Command) {
    let shown = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {shown}: {error}"));
    assert!(output.status.success(), "{shown}: {}", String::from_utf8_lossy(&output.stderr));
}

/// It said that there is no room, or did its work.
fn assert_told(run: &Run, what: &str) {
    let said = format!("{}{}", run.stdout, run.stderr);
    assert!(
        matches!(run.code, 0..=4) && !said.contains("panicked"),
        "{what}: {}: {said}",
        run.code
    );
    let is_told = ["No space left", "bytes more and has", "disk is full", "disk I/O error"];
    assert!(run.code == 0 || is_told.iter().any(|text| said.contains(text)), "{what}: {said}");
}

#[test]
fn a_store_without_room_says_so_and_goes_on_when_there_is_some() {
    for disk in [Mounted::memory("24m", 0), Mounted::ext4("40M")] {
        let mut scene = Scene::below(&disk.place);
        scene.capture();
        let mut failed = 0;
        // From nothing to about what a capture needs.
        for (turn, leave) in (1..).zip([0, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512]) {
            let big = vec![turn; 300_000];
            fs::write(scene.program.workspace().join("grows"), noise(&big)).unwrap();
            scene.edit(u64::from(turn));
            disk.fill(leave * 1024);
            let what = format!("{leave} KiB left");
            let captured = scene.program.run(["capture", "--session", "s"]);
            assert_told(&captured, &what);
            if captured.code == 0 {
                scene.acknowledge_newest();
            }
            failed += u32::from(captured.code != 0);
            // Reading needs no room.
            scene.program.run(["list"]).ok();
            let gc = scene.program.run(["gc"]);
            assert_told(&gc, &format!("{what}, gc"));
            disk.empty();
            scene.assert_newest(&what);
        }
        assert!(failed > 2, "the disk was not full");
        scene.assert_whole("after all");
    }
}

/// Bytes that no compression makes shorter, another sequence for each seed.
pub(crate) fn noise(seed: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(seed.len());
    blake3::Hasher::new().update(seed).finalize_xof().fill({
        bytes.resize(seed.len(), 0);
        &mut bytes
    });
    bytes
}

#[test]
fn a_store_without_inodes_says_so_and_goes_on_when_there_are_some() {
    let disk = Mounted::memory("64m", 700);
    let mut scene = Scene::below(&disk.place);
    scene.capture();
    let litter = disk.place.join("litter");
    let mut failed = 0;
    for turn in 1..10u64 {
        scene.edit(turn);
        fs::create_dir(&litter).unwrap();
        let mut made = 0;
        while fs::write(litter.join(made.to_string()), "").is_ok() {
            made += 1;
        }
        for number in 0..(turn - 1).min(made) {
            fs::remove_file(litter.join(number.to_string())).unwrap();
        }
        let captured = scene.program.run(["capture", "--session", "s"]);
        assert_told(&captured, &format!("{} inodes left", turn - 1));
        if captured.code == 0 {
            scene.acknowledge_newest();
        }
        failed += u32::from(captured.code != 0);
        fs::remove_dir_all(&litter).unwrap();
        scene.assert_newest(&format!("{} inodes left", turn - 1));
    }
    assert!(failed > 2, "there were inodes left");
    scene.assert_whole("after all");
}

/// Fills the disk and collects, which gives back more than so many bytes.
#[track_caller]
fn assert_frees(disk: &Mounted, program: &Program, bytes: u64) {
    disk.fill(0);
    let available = || {
        let stat = rustix::fs::statvfs(&disk.place).unwrap();
        stat.f_bfree * stat.f_frsize
    };
    let before = available();
    let mut gc = program.command(["gc"]);
    let gc = run(gc.env("TURNPOINT_TEST_CLOCK_SHIFT_SECONDS", "3600"));
    assert_eq!(gc.code, 0, "{}{}", gc.stdout, gc.stderr);
    assert!(available() > before + bytes, "{before} and then {}: {}", available(), gc.stdout);
}

#[test]
fn a_collection_frees_room_on_a_disk_without_any() {
    let disk = Mounted::ext4("40M");
    let program = Program::below(BINARY, &disk.place);
    for turn in 0..12u8 {
        fs::write(program.workspace().join("big"), noise(&vec![turn; 1_000_000])).unwrap();
        program.run(["capture", "--session", "s"]).ok();
    }
    program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
    assert_frees(&disk, &program, 9_000_000);
    program.run(["capture", "--session", "s"]).ok();
    program.run(["verify", "--read-data"]).ok();
}

/// The packs of turns each hold something that is still needed: that is written anew, in what room there is.
#[test]
fn a_collection_frees_what_turns_have_packed_on_a_disk_without_any_room() {
    let disk = Mounted::ext4("40M");
    let program = Program::below(BINARY, &disk.place);
    let write = |name: String, turn: u8, bytes: usize| {
        fs::write(program.workspace().join(name), noise(&vec![turn; bytes])).unwrap();
    };
    for turn in 0..12u8 {
        for number in 0..8 {
            write(format!("edited{number}"), 8 * turn + number, 100_000);
        }
        write(format!("kept{turn}"), 200 + turn, 30_000);
        program.run(["capture", "--session", "s"]).ok();
    }
    assert_eq!(packs::all(&program.store()).len(), 12);
    program.run(["prune", "--session", "s", "--keep", "1", "--yes"]).ok();
    assert_frees(&disk, &program, 8_000_000);
    let elsewhere = tempfile::tempdir().unwrap();
    let into = elsewhere.path().join("into");
    program.run(["restore", "s:11", "--into", into.to_str().unwrap()]).ok();
    assert_eq!(fingerprint::of(&into), fingerprint::of(&program.workspace()));
    program.run(["verify", "--read-data"]).ok();
}

/// Also one that was decided before the disk became full: every command that writes brings it to its end first,
/// the one that would make room included.
#[test]
fn a_purge_comes_to_its_end_on_a_disk_without_any_room() {
    for is_decided in [false, true] {
        let disk = Mounted::ext4("40M");
        let mut scene = Scene::below(&disk.place);
        let secret = noise(&vec![7; 100_000]);
        let path = scene.program.workspace().join("secret");
        fs::write(&path, &secret).unwrap();
        fs::write(scene.program.workspace().join("other"), "kept").unwrap();
        scene.program.run(["capture", "--session", "s"]).ok();
        fs::remove_file(path).unwrap();
        scene.program.run(["capture", "--session", "s"]).ok();
        let ballast = scene.program.store().join("ballast");
        assert!(ballast.exists());
        let purge = ["purge", "secret", "--yes"];
        if is_decided {
            let mut saved = scene.save();
            let steps = steps::of(&scene.program, &purge);
            scene.put_back(&mut saved);
            let decided = steps.iter().position(|step| step.text.contains("purge.json\") = 0"));
            let next = &steps[decided.unwrap() + 1];
            assert_eq!(next.kill(&scene.program, &purge).code, 137, "{next}");
            assert!(scene.program.store().join("journal/purge.json").exists());
        }
        let program = &scene.program;
        disk.fill(0);
        let run = if is_decided { program.run(["gc"]) } else { program.run(purge) };
        assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
        assert!(!program.store().join("journal/purge.json").exists());
        let purged = program.run(["ls", "s:0", "--omitted", "--json"]).ok().json();
        assert_eq!(purged["entries"][0]["reason"], "purged");
        assert_eq!(program.run(["cat", "s:0", "other"]).ok().stdout, "kept");
        disk.empty();
        program.run(["gc"]).ok();
        assert!(ballast.exists(), "it is kept again");
        program.run(["verify", "--read-data"]).ok();
    }
}

#[test]
fn a_workspace_without_room_is_not_touched_by_a_restore() {
    let disk = Mounted::ext4("40M");
    // The store has room: it lies elsewhere.
    let program = Program::new(BINARY);
    let root = disk.place.join("work");
    fs::create_dir(&root).unwrap();
    let command = |arguments: &[&str]| {
        let mut command = program.command(arguments);
        run(command.current_dir(&root))
    };
    for number in 0..40u8 {
        fs::write(root.join(format!("f{number}")), noise(&vec![number; 200_000])).unwrap();
    }
    command(&["capture", "--session", "s"]).ok();
    let wanted = fingerprint::of(&root);
    for number in 0..40u8 {
        fs::write(root.join(format!("f{number}")), format!("short {number}")).unwrap();
    }
    disk.fill(1_000_000);
    let present = fingerprint::with_stamps(&root);
    let refused = command(&["restore", "s", "0", "--yes"]);
    assert_ne!(refused.code, 0, "{}", refused.stdout);
    assert_told(&refused, "restore");
    let found = fingerprint::with_stamps(&root);
    let without_root = |tree: &fingerprint::Fingerprint| fingerprint::without(tree, &[]);
    let mut expected = without_root(&present);
    let mut after = without_root(&found);
    // A stage was made in it and removed.
    expected.remove(Path::new(""));
    after.remove(Path::new(""));
    assert!(expected == after, "{}", differences(&expected, &after));
    disk.empty();
    command(&["restore", "s", "0", "--yes"]).ok();
    let found = fingerprint::of(&root);
    assert!(found == wanted, "{}", differences(&wanted, &found));
}
