//! The loaded controls: the kernel's own lists of links and maps are the only record.

use crate::control::{CONTROLS, Control};
use crate::error::KernelError;
use crate::host;
use crate::load::{bpf, pin_of};
use crate::state::{Counters, Registered};
use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, MapInfo, MapInfoIter};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};

/// The controls of ours that the kernel offers now.
///
/// # Errors
/// [`KernelError::NotPermitted`]: only a privileged process sees the loader of each control.
pub fn registered() -> Result<Vec<Registered>, KernelError> {
    if !nix::unistd::geteuid().is_root() && LinkInfoIter::default().next().is_none() {
        return Err(KernelError::NotPermitted);
    }
    let maps: Vec<MapInfo> = MapInfoIter::default().collect();
    let links = LinkInfoIter::default().filter_map(|link| match link.info {
        LinkTypeInfo::StructOps(ops) => Some((link.id, ops.map_id)),
        _ => None,
    });
    let named =
        |id: u32| maps.iter().find(|map| map.id == id).map(|map| map.name.to_string_lossy().into_owned());
    let ours = links.filter_map(|(link, map)| {
        let name = named(map)?;
        CONTROLS.iter().find(|control| control.kernel_name == name).map(|control| (control, link))
    });
    ours.map(|(control, link)| describe(control, link, &maps)).collect()
}

fn describe(control: &'static Control, link: u32, maps: &[MapInfo]) -> Result<Registered, KernelError> {
    let pin = pin_of(control)?;
    let is_pinned = |path: &std::path::PathBuf| {
        let info = Link::open(path).and_then(|pinned| pinned.info());
        info.is_ok_and(|info| info.id == link)
    };
    let mut counters = counters(control, maps)?;
    let newest = counters.pop().unwrap_or_default();
    Ok(Registered {
        control,
        pinned: Some(pin).filter(is_pinned),
        holders: host::holders(link),
        counters: newest,
        sockets_of_earlier: counters.iter().map(|earlier| earlier.sockets).sum(),
    })
}

/// The counters of every instance that a connection still uses, the newest last.
fn counters(control: &Control, maps: &[MapInfo]) -> Result<Vec<Counters>, KernelError> {
    let name = control.counters_map();
    let mut ids: Vec<u32> = maps.iter().filter(|map| map.name == *name).map(|map| map.id).collect();
    ids.sort_unstable();
    // A map that goes in this moment has no connections left.
    let found = ids.into_iter().filter_map(|id| MapHandle::from_map_id(id).ok());
    let read = |map: MapHandle| {
        let value =
            map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY).map_err(bpf(format!("cannot read {name}")))?;
        Ok(value.map_or_else(Counters::default, |bytes| Counters::from_bytes(&bytes)))
    };
    found.map(read).collect()
}
