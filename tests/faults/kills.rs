//! The program killed at each call that changes something on a disk.
