//! One file per verb: each has `Args` and `run`.

pub(crate) mod sim;
