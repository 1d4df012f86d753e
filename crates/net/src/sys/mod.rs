//! System calls that no library wraps safely, each in a small module of its own.

pub(crate) mod clock;
pub(crate) mod descriptor;
pub(crate) mod heap;
pub(crate) mod mtu;
pub(crate) mod passing;
pub(crate) mod replace;
pub(crate) mod rights;
pub(crate) mod schedule;
pub(crate) mod spawn;
pub(crate) mod syn;
pub(crate) mod tcp_rtt;
pub(crate) mod tun;
pub(crate) mod window;
