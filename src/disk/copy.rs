//! The content of one file as that of another.

use std::path::Path;

use crate::disk::File;
use crate::error::{IoContext, Result};

/// Gives `to`, which is empty, the content of `from`, shared on the disk until one of them is written to.
/// `false` where the file system does not do that, and nothing was changed.
pub(crate) fn share_content(from: &File, to: &File) -> bool {
    #[cfg(target_os = "linux")]
    return rustix::fs::ioctl_ficlone(to, from).is_ok();
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// Copies the content of `from` to `to`, which is empty and lies at `path`.
pub(crate) fn copy_content(mut from: &File, mut to: &File, path: &Path) -> Result<()> {
    std::io::copy(&mut from, &mut to).at("write", path).map(drop)
}
