//! Loads a control into the kernel, keeps it there, takes it away.

use crate::control::{Control, Options};
use crate::error::KernelError;
use crate::host;
use crate::option::XcpOption;
use crate::state::Lifetime;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::query::ProgInfoIter;
use libbpf_rs::{ErrorKind, Link, MapCore, MapType, Object, ObjectBuilder, OpenObject, PrintLevel, Program};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

pub use crate::registry::registered;

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// The map of a program's options: an array of u64 that is read-only to the program.
const OPTIONS: &str = ".rodata.options";
/// So many lines of libbpf's and the verifier's log are shown.
const LOG_LINES: usize = 12;

/// A control in the kernel. Dropped, it is gone unless it is pinned; connections that use it go on with it.
#[derive(Debug)]
pub struct Loaded {
    object: Object,
    _link: Link,
    _option: Option<XcpOption>,
}

impl Loaded {
    /// The instructions that the verifier walked through for each callback, and the callback's name.
    ///
    /// # Errors
    /// [`KernelError::Bpf`].
    pub fn callbacks(&self) -> Result<Vec<(String, u32)>, KernelError> {
        let infos: Vec<_> = ProgInfoIter::default().collect();
        let callback = |program: Program<'_>| {
            let id =
                Program::id_from_fd(program.as_fd()).map_err(bpf("cannot ask for a program's number"))?;
            let walked = infos.iter().find(|info| info.id == id).map_or(0, |info| info.verified_insns);
            Ok((program.name().to_string_lossy().into_owned(), walked))
        };
        self.object.progs().map(callback).collect()
    }
}

/// Loads a control. Any user's sockets in any namespace can choose it as soon as this returns.
///
/// # Errors
/// Names the missing condition, and the remedy.
pub fn load(control: &'static Control, options: &Options, lifetime: Lifetime) -> Result<Loaded, KernelError> {
    require_types()?;
    if host::offered()?.iter().any(|name| name == control.kernel_name) {
        return Err(in_use(control));
    }
    let option = if control.speaks_xcp { Some(XcpOption::acquire(lifetime)?) } else { None };
    let log = Log::begin();
    let open = prepare(control, options, option.as_ref());
    let open = open.map_err(|error| refused(control.name, &error, &log))?;
    let mut object = open.load().map_err(|error| refused(control.name, &error, &log))?;
    let mut maps = object.maps_mut();
    let mut map = maps.find(|map| map.map_type() == MapType::StructOps).ok_or(KernelError::Bpf {
        what: format!("the object of `{}`", control.name),
        cause: "has no struct_ops".to_owned(),
    })?;
    let mut link = map.attach_struct_ops().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => in_use(control),
        _ => refused(control.name, &error, &log),
    })?;
    drop(maps);
    if lifetime == Lifetime::Persistent {
        let path = pin_of(control)?;
        link.pin(&path).map_err(bpf(format!("cannot pin `{}` at {}", control.name, path.display())))?;
    }
    Ok(Loaded { object, _link: link, _option: option })
}

/// Takes a pinned control away; how many connections go on with it until they close.
///
/// # Errors
/// [`KernelError::NotLoaded`], [`KernelError::BoundTo`], [`KernelError::IsDefault`].
pub fn unload(control: &'static Control) -> Result<u64, KernelError> {
    let loaded = registered()?.into_iter().find(|found| found.control.name == control.name);
    let loaded = loaded.ok_or(KernelError::NotLoaded { name: control.name })?;
    let Some(path) = loaded.pinned else {
        let pid = loaded.holders.first().copied().unwrap_or_default();
        return Err(KernelError::BoundTo { name: control.name, pid });
    };
    if host::default_control()? == control.kernel_name {
        return Err(KernelError::IsDefault { name: control.name });
    }
    fs::remove_file(&path).map_err(KernelError::system(format!("cannot remove {}", path.display())))?;
    if !registered()?.iter().any(|left| left.control.speaks_xcp) {
        XcpOption::unpin()?;
    }
    Ok(loaded.counters.sockets)
}

/// The path at which a persistent control is pinned.
pub(crate) fn pin_of(control: &Control) -> Result<PathBuf, KernelError> {
    Ok(host::pin_directory()?.join(control.kernel_name))
}

pub(crate) fn bpf(what: impl Into<String>) -> impl FnOnce(libbpf_rs::Error) -> KernelError {
    let what = what.into();
    move |error| match error.kind() {
        ErrorKind::PermissionDenied => KernelError::NotPermitted,
        _ => KernelError::Bpf { what, cause: format!("{error:#}") },
    }
}

/// Types, and the link that takes a control away with its last holder (Linux 6.4).
pub(crate) fn require_types() -> Result<(), KernelError> {
    if !Path::new(TYPES).exists() {
        return Err(KernelError::NoTypes);
    }
    let types = Btf::from_vmlinux().map_err(bpf(format!("cannot read {TYPES}")))?;
    match types.type_by_name::<Func<'_>>("bpf_struct_ops_link_create") {
        Some(_) => Ok(()),
        None => Err(KernelError::TooOld {
            release: host::release(),
            what: "a congestion control that goes with its loader",
            needs: "6.4",
        }),
    }
}

fn prepare(
    control: &Control,
    options: &Options,
    option: Option<&XcpOption>,
) -> libbpf_rs::Result<OpenObject> {
    let mut open = ObjectBuilder::default().name(control.kernel_name)?.open_memory(control.object)?;
    set_options(&mut open, &options.values(control));
    if let Some(option) = option {
        option.share(&mut open)?;
    }
    Ok(open)
}

/// Writes the constants of a program.
pub(crate) fn set_options(open: &mut OpenObject, values: &[u64]) {
    let map = open.maps_mut().find(|map| map.name() == OPTIONS);
    // A program without options has no such map.
    if let Some(mut map) = map
        && let Some(bytes) = map.initial_value_mut()
    {
        for (slot, value) in bytes.chunks_exact_mut(8).zip(values) {
            slot.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

fn in_use(control: &'static Control) -> KernelError {
    let loaded = registered().into_iter().flatten().find(|found| found.control.name == control.name);
    let by = match loaded {
        Some(found) if found.pinned.is_some() => {
            format!(" and stays: `starhop tcp unload {}` takes it away", control.name)
        }
        Some(found) if !found.holders.is_empty() => {
            format!(" by process {}: any socket can use it, or end that process", found.holders[0])
        }
        _ => ", and not by Starhop: find it with `bpftool struct_ops list`".to_owned(),
    };
    KernelError::NameInUse { kernel_name: control.kernel_name, by }
}

pub(crate) fn refused(name: &'static str, error: &libbpf_rs::Error, log: &Log) -> KernelError {
    let mut lines = log.last_lines();
    // The verifier refuses with the same error number as the kernel does for a caller without the capabilities; but
    // the verifier also gives a reason.
    let has_reason = lines.iter().any(|line| line.starts_with("processed "));
    if error.kind() == ErrorKind::PermissionDenied && !has_reason {
        return KernelError::NotPermitted;
    }
    lines.push(format!("{error:#}"));
    KernelError::Refused { name, release: host::release(), log: lines.join("\n") }
}

/// libbpf's warnings, which contain the verifier's log, while one object is loaded.
pub(crate) struct Log;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Log {
    pub(crate) fn begin() -> Self {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).clear();
        libbpf_rs::set_print(Some((PrintLevel::Warn, |_, message| {
            let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
            lines.extend(message.lines().map(str::to_owned));
        })));
        Self
    }

    fn last_lines(&self) -> Vec<String> {
        let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        lines[lines.len().saturating_sub(LOG_LINES)..].to_vec()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        libbpf_rs::set_print(None);
    }
}
