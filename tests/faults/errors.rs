//! Errors of the kernel, one call at a time.
