//! Programs for the Linux kernel: congestion controls that any process' sockets can choose, loaded by eBPF.
//!
//! `bpf/` has the programs in C, `objects/` their compiled form by `make bpf`; a build needs no clang. One object
//! runs on every kernel with type information (CO-RE).
//!
//! | module | owns |
//! |---|---|
//! | `control` | the controls by name, their options and counters |
//! | `load` | loading a control, keeping it, taking it away |
//! | `option` | the program that writes XCP's header into segments, shared by all controls that speak XCP |
//! | `router` | XCP's router at the egress of a device |
//! | `registry` | the controls that are loaded now, their loaders, and the number of sockets that use each |
//! | `host` | the offers of the kernel, read from its files; the directory of pins |
//!
//! `load`, `option`, `router` and `registry` need libbpf (feature `loader`).

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod control;
mod error;
mod host;
#[cfg(feature = "loader")]
mod load;
#[cfg(not(feature = "loader"))]
#[path = "absent.rs"]
mod load;
#[cfg(feature = "loader")]
mod option;
#[cfg(feature = "loader")]
mod registry;
#[cfg(feature = "loader")]
mod router;
#[cfg(not(feature = "loader"))]
use load as router;
mod state;

pub use control::{CONTROLS, Control, OptionSpec, Options};
pub use error::KernelError;
pub use host::{default_control, offered, set_default};
pub use load::{Loaded, load, registered, unload};
pub use router::Router;
pub use state::{Counters, Lifetime, Registered, RouterSettings, RouterState};
