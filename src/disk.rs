//! The lowest edge: directory handles, locks, leases, small files and durability.
//!
//! Everything that other modules do to the file system by name goes through here, so that the rules
//! are in one place: no path is followed through a symlink below a [`Dir`], a lock's holder is known
//! by the kernel and never by a process id or a clock, a file that is reported written is on the disk,
//! and every error names its path. This module knows nothing of blobs, manifests or workspaces.
//!
//! Linux is what it is written for; where a call may be missing (an old kernel, a sandbox, a file
//! system that lacks it) the fallback keeps the same promise or is reported as a value of its own.

mod copy;
mod dir;
mod edit;
mod lease;
mod lock;
mod names;
mod open;
mod small;
mod sync;
mod system;

#[cfg(test)]
mod tests;

/// An open file: what other modules hold of the file system besides a [`Dir`].
pub(crate) use std::fs::File;

pub(crate) use copy::{copy_content, share_content};
pub(crate) use dir::{Dir, Exchange, FileKind, FileStat, Names, Placed, file_stat};
pub(crate) use edit::{edit_durably, make_directories};
pub(crate) use lease::{Lease, is_alive, leases, remove_dead};
pub(crate) use lock::{Lock, LockKind, lock, try_lock, try_lock_directory};
pub(crate) use names::{
    Extent, copy_attributes, copy_file, extent, finish_file, hash_file, is_abandoned, is_directory,
    joined, list_dir, make_directory_if_missing, modified_ns, open_up, overwrite, read_start,
    real_path, remove_abandoned, remove_directory_if_empty, remove_file, remove_tree, replace,
    require_space, reserve, set_file_mode, touch,
};
pub(crate) use small::{
    Created, append_line, append_line_soon, append_missing_line, check_size, create_dir_with,
    create_durably, make_private_dir, open_small, read_range, read_small, remove_durably,
    replace_durably, set_aside, write_whole,
};
pub(crate) use sync::{ToSync, sync_all, sync_file_system};
pub(crate) use system::{
    available_bytes, boot_id, coarse_now_ns, end_group, file_system, is_gone, is_withheld,
    machine_id, mounts_below, processes_that_stay_in, programs_that_stay_in, user,
};
