//! XCP's router at the egress of a device.
#![allow(unsafe_code, reason = "libbpf-rs has no call for TCX links")]

use crate::error::KernelError;
use crate::host;
use crate::load::{Log, bpf, refused, require_types, set_options};
use crate::state::{RouterSettings, RouterState};
use libbpf_rs::{AsRawLibbpf, Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramMut, libbpf_sys};
use std::ptr::{NonNull, null};

const PROGRAM: &str = "xcp_router";
const STATE: &str = "xcp_router_state";
const OBJECT: &[u8] = include_bytes!("../objects/xcp_router.o");

/// A router that works as long as this value.
#[derive(Debug)]
pub struct Router {
    object: Object,
    _link: Link,
}

impl Router {
    /// Attaches a router to a device of the caller's network namespace.
    ///
    /// # Errors
    /// Names the missing condition, and the remedy.
    pub fn attach(device: &str, settings: &RouterSettings) -> Result<Self, KernelError> {
        require_types()?;
        if !host::is_at_least(6, 6) {
            let what = "a program at a device's egress that goes with its loader (TCX)";
            return Err(KernelError::TooOld { release: host::release(), what, needs: "6.6" });
        }
        let index = nix::net::if_::if_nametoindex(device);
        let index = index.map_err(|_| KernelError::NoDevice { name: device.to_owned() })?;
        let log = Log::begin();
        let failed = |error| refused(PROGRAM, &error, &log);
        let mut open = ObjectBuilder::default().open_memory(OBJECT).map_err(failed)?;
        set_options(&mut open, &settings.values());
        let object = open.load().map_err(failed)?;
        let program = object.progs_mut().find(|program| program.name() == PROGRAM);
        let link = match program {
            Some(mut program) => {
                attach_tcx(&mut program, index).map_err(bpf(format!("cannot attach to {device}")))?
            }
            None => return Err(missing("program")),
        };
        Ok(Self { object, _link: link })
    }

    /// Its counters.
    ///
    /// # Errors
    /// [`KernelError::Bpf`].
    pub fn state(&self) -> Result<RouterState, KernelError> {
        let map = self.object.maps().find(|map| map.name() == STATE).ok_or_else(|| missing("map"))?;
        let value =
            map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(bpf("cannot read the router's state"))?;
        Ok(value.map_or_else(RouterState::default, |bytes| parse(&bytes)))
    }
}

/// Parses `struct router`: a lock, and eight bytes for each field of `struct xcp_state`.
fn parse(bytes: &[u8]) -> RouterState {
    let field = |index: usize| {
        let bytes = bytes.get(8 + index * 8..16 + index * 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_ne_bytes)
    };
    RouterState {
        interval_us: field(0),
        standing_bytes: field(14),
        packets: field(18),
        headers: field(19),
        intervals: field(20),
        input_bps: field(21) * 8,
    }
}

fn attach_tcx(program: &mut ProgramMut<'_>, index: u32) -> libbpf_rs::Result<Link> {
    let index = i32::try_from(index).map_err(|_| libbpf_rs::Error::from_raw_os_error(nix::libc::ENODEV))?;
    // SAFETY: the program is loaded, and lives longer than the call; without options it is added behind others.
    let link =
        unsafe { libbpf_sys::bpf_program__attach_tcx(program.as_libbpf_object().as_ptr(), index, null()) };
    let error = || libbpf_rs::Error::from(std::io::Error::last_os_error());
    let link = NonNull::new(link).ok_or_else(error)?;
    // SAFETY: libbpf has just made it, and there is no other pointer to it.
    Ok(unsafe { Link::from_ptr(link) })
}

fn missing(part: &str) -> KernelError {
    KernelError::Bpf { what: "the router's object".to_owned(), cause: format!("has no {part}") }
}
