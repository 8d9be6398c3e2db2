//! What to do about what the system says.

use std::io;

/// Where a disk is full.
pub(super) const FREE_SOME_SPACE: &str = "free some space there; where the store is on the same disk, `turnpoint gc` \
                               frees what no checkpoint needs";

/// What to do about an error of the system, where there is something.
pub(super) fn hint_of_system(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(FREE_SOME_SPACE),
        io::ErrorKind::FileTooLarge => Some("raise the limit on the size of a file (`ulimit -f`)"),
        io::ErrorKind::ReadOnlyFilesystem => {
            Some("mount the file system so that it can be written; reading commands work without")
        }
        _ => None,
    }
}
