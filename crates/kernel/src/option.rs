//! The program that writes XCP's header into segments, and the memory that it shares with the controls.

use crate::error::KernelError;
use crate::host;
use crate::load::{Log, bpf, refused, require_types};
use crate::state::Lifetime;
use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder, OpenObject};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The program, and the file it is pinned as.
const PROGRAM: &str = "xcp_option";
/// The map of the connections' state, and the file it is pinned as.
const FLOWS: &str = "sh_xcp";
const OBJECT: &[u8] = include_bytes!("../objects/xcp_option.o");

/// XCP's option in this kernel. The first control that needs it attaches it, for every socket of every control
/// group.
#[derive(Debug)]
pub(crate) struct XcpOption {
    flows: MapHandle,
    /// The attachment, if this value made it.
    _attached: Option<(Object, Link)>,
}

impl XcpOption {
    /// The option of this machine, attached if it is not there.
    pub(crate) fn acquire(lifetime: Lifetime) -> Result<Self, KernelError> {
        require_types()?;
        if !host::is_at_least(6, 12) {
            let what = "an option that a congestion control switches on";
            return Err(KernelError::TooOld { release: host::release(), what, needs: "6.12" });
        }
        match Self::found(lifetime)? {
            Some(found) => Ok(found),
            None => Self::attach(lifetime),
        }
    }

    /// Lets a control use the same map.
    pub(crate) fn share(&self, open: &mut OpenObject) -> libbpf_rs::Result<()> {
        let map = open.maps_mut().find(|map| map.name() == FLOWS);
        map.map_or(Ok(()), |mut map| map.reuse_fd(self.flows.as_fd()))
    }

    /// Takes a persistent one away.
    pub(crate) fn unpin() -> Result<(), KernelError> {
        let directory = host::pin_directory()?;
        for name in [PROGRAM, FLOWS] {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(KernelError::system(format!("cannot remove {}", path.display()))(error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// An option that is pinned, or that this very process has attached.
    fn found(lifetime: Lifetime) -> Result<Option<Self>, KernelError> {
        let pin = host::pin_directory()?.join(FLOWS);
        if pin.exists() {
            let flows =
                MapHandle::from_pinned_path(&pin).map_err(bpf(format!("cannot open {}", pin.display())))?;
            return Ok(Some(Self { flows, _attached: None }));
        }
        let programs: Vec<u32> =
            ProgInfoIter::default().filter(|info| info.name == PROGRAM).map(|info| info.id).collect();
        let Some(link) = LinkInfoIter::default().find(|link| programs.contains(&link.prog_id)) else {
            return Ok(None);
        };
        let own = std::process::id();
        match host::holders(link.id).into_iter().find(|&pid| pid != own || lifetime == Lifetime::Persistent) {
            Some(pid) => Err(KernelError::OptionBoundTo { pid }),
            None => Self::in_this_process(),
        }
    }

    fn in_this_process() -> Result<Option<Self>, KernelError> {
        let newest = MapInfoIter::default().filter(|map| map.name == FLOWS).map(|map| map.id).max();
        let open = |id| MapHandle::from_map_id(id).map_err(bpf("cannot open the map of XCP's flows"));
        Ok(newest.map(open).transpose()?.map(|flows| Self { flows, _attached: None }))
    }

    fn attach(lifetime: Lifetime) -> Result<Self, KernelError> {
        let groups = host::control_groups()?;
        let log = Log::begin();
        let failed = |error| refused(PROGRAM, &error, &log);
        let open = ObjectBuilder::default().open_memory(OBJECT).map_err(failed)?;
        let object = open.load().map_err(failed)?;
        let program = object.progs_mut().find(|program| program.name() == PROGRAM);
        let attached = program.map(|program| program.attach_cgroup(groups.as_raw_fd()));
        let mut link = attached.transpose().map_err(failed)?.ok_or_else(|| missing("program"))?;
        let map = object.maps().find(|map| map.name() == FLOWS).ok_or_else(|| missing("map"))?;
        let mut flows = MapHandle::try_from(&map).map_err(bpf("cannot open the map of XCP's flows"))?;
        if lifetime == Lifetime::Persistent {
            let directory = host::pin_directory()?;
            flows.pin(directory.join(FLOWS)).map_err(bpf("cannot pin the map of XCP's flows"))?;
            link.pin(directory.join(PROGRAM)).map_err(bpf("cannot pin XCP's option"))?;
        }
        Ok(Self { flows, _attached: Some((object, link)) })
    }
}

fn missing(part: &str) -> KernelError {
    KernelError::Bpf { what: "the object of XCP's option".to_owned(), cause: format!("has no {part}") }
}
