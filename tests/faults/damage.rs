//! What is damaged in the store, one file and one way at a time.
