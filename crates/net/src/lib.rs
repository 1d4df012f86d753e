//! Starhop net.
