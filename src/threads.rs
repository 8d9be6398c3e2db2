//! The thread pools of this crate. The global pool of rayon is never used: an embedder's own work
//! may be on it.

use crate::error::{IoContext, Result};
use crate::limits;

/// A pool of as many threads as there are cores, at most [`limits::THREADS_MAX`], named after what
/// they do. Its threads end when it is dropped.
pub(crate) fn pool(purpose: &'static str) -> Result<rayon::ThreadPool> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    pool_of(cores.min(limits::THREADS_MAX), purpose)
}

/// As [`pool`], of so many threads, at least one.
pub(crate) fn pool_of(threads: usize, purpose: &'static str) -> Result<rayon::ThreadPool> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.max(1))
        .thread_name(move |number| format!("turnpoint-{purpose}-{number}"))
        .build()
        .map_err(std::io::Error::other)
        .at("start threads for", purpose)
}
