//! The one binary: `starhop`.
fn main() {}
