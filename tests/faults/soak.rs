//! Many at once for a while, with an oracle.
