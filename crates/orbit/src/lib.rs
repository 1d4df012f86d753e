//! Starhop orbit.
