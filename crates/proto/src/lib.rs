//! Starhop proto.
