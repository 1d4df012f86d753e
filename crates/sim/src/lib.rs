//! Starhop sim.
