//! Starhop lab.
