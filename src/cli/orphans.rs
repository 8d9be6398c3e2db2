//! What a command has started, and left behind when it ended.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpgrp, getpid};

/// How long they may take to end once they are killed.
const ENDS_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether they have.
const LOOKED_EVERY: Duration = Duration::from_millis(10);

/// From here on what loses its parent below this process becomes its child, and can be found. Where the kernel
/// does not do that, they are not.
pub(crate) fn adopt() {
    rustix::process::set_child_subreaper(Some(getpid())).ok();
}

/// Kills the children of this process that are of its group, those that become its children by that too, and waits
/// until they have ended. What has made itself a group of its own, as a daemon does, goes on.
pub(crate) fn end() {
    let begun = Instant::now();
    while begun.elapsed() < ENDS_WITHIN {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            // Nobody but this process reaps it, so its number is nobody else's.
            rustix::process::kill_process(child, Signal::KILL).ok();
        }
        std::thread::sleep(LOOKED_EVERY);
    }
}

/// The children of this process, of its group, that have not ended.
fn children() -> Vec<Pid> {
    let Ok(names) = fs::read_dir("/proc") else { return Vec::new() };
    let own = (getpid().as_raw_nonzero().get(), getpgrp().as_raw_nonzero().get());
    let is_one = |stat: &str| {
        // The name, in parentheses, may hold anything; then come state, parent and group.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let state = fields.next();
        let mut number = || fields.next().and_then(|field| field.parse::<i32>().ok());
        state.is_some_and(|state| state != "Z")
            && (number(), number()) == (Some(own.0), Some(own.1))
    };
    let numbers = names.filter_map(|name| name.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|id| fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| is_one(&stat)))
        .filter_map(Pid::from_raw)
        .collect()
}
