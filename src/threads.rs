//! The thread pools of this crate. The global pool of rayon is never used: an embedder's own work
//! may be on it.

use crate::error::{Error, Result};
use crate::limits;

/// A pool of as many threads as there are cores, at most [`limits::THREADS_MAX`], named after what
/// they do. Its threads end when it is dropped.
pub(crate) fn pool(purpose: &'static str) -> Result<rayon::ThreadPool> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    rayon::ThreadPoolBuilder::new()
        .num_threads(cores.min(limits::THREADS_MAX))
        .thread_name(move |number| format!("turnpoint-{purpose}-{number}"))
        .build()
        .map_err(|error| Error::Io {
            verb: "start threads for",
            path: std::path::PathBuf::from(purpose),
            source: std::io::Error::other(error),
        })
}
