//! One file per verb: each has `Args` and `run`.

pub(crate) mod report;
pub(crate) mod sim;
