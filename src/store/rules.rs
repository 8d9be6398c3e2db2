//! The rules of git that a removal of a run which was cut off has taken away.

use std::collections::BTreeMap;

use crate::disk::{self, Dir, FileKind, FileStat};
use crate::error::{Error, Result};
use crate::manifest::Entry;
use crate::monitor::Monitor;
use crate::path::RelPath;
use crate::runs::RunRecord;
use crate::store::Store;
use crate::store::removing::is_lost;

impl Store {
    /// Puts back the ignore files and attributes that a killed git has taken away, as they were at last: without
    /// them git takes what it ignores for new, and what it has for changed.
    pub(super) fn put_back_rules(&self, record: &RunRecord, monitor: &dyn Monitor) -> Result<()> {
        let mut rules: BTreeMap<RelPath, Entry> = BTreeMap::new();
        for entries in self.held_of(record, monitor)? {
            let is_rule = |it: &Entry| matches!(it.path.name(), b".gitignore" | b".gitattributes");
            let found = entries.into_iter().filter(is_rule);
            rules.extend(found.map(|entry| (entry.path.clone(), entry)));
        }
        if rules.is_empty() {
            return Ok(());
        }
        let reading = self.reading(&record.session, monitor)?;
        let top = Dir::open(&record.path())?;
        for entry in rules.values() {
            let name = entry.path.name();
            let put_back = || -> Result<()> {
                let above = top.try_open_dir(&entry.path.parent().unwrap_or_default())?;
                let (Some(above), Some((hash, size))) = (above, entry.blob()) else {
                    return Ok(());
                };
                let is_empty = |it: FileStat| it.kind == FileKind::File && it.size == 0 && size > 0;
                let is_wanted = || Ok::<_, Error>(above.stat(name)?.is_none_or(is_empty));
                if !is_wanted()? {
                    return Ok(());
                }
                let (content, path) = (reading.blobs.read(hash, size)?, above.path_of(name));
                // One that is empty was begun here, by who was killed over it. Looked at again right before it
                // goes: somebody may have written there while the content was read.
                if !is_wanted()? {
                    return Ok(());
                }
                above.try_unlink(name)?;
                let mut file = above.create_file(name)?;
                let written = disk::write_whole(&mut file, &content, &path)
                    .and_then(|()| disk::set_file_mode(&file, entry.mode, &path));
                // A part of it would be taken for what somebody has made of it.
                written.inspect_err(|_| drop(above.try_unlink(name)))
            };
            match put_back() {
                // What it would have had git leave out is judged as anything else.
                Err(error) if disk::is_withheld(&error) || is_lost(&error) => {}
                ended => ended?,
            }
        }
        Ok(())
    }
}
