//! Files as a Producer's [`Source`](starhop_proto::producer::Source).
//!
//! A thread of its own walks the served paths, hashes the files that it finds and publishes a
//! [`Catalogue`](catalogue::Catalogue); the source reads from it without waiting. A file that changes is withdrawn
//! at once and comes back under its new hash.

mod catalogue;
mod hashing;
mod readers;
mod root;
mod scan;
mod source;
mod watch;

pub use catalogue::Progress;
pub use root::{Root, RootError};
pub use source::Files;
