//! Failures in the kernel: the cause, and the remedy.

use std::io;

/// The cause of a failure, and the remedy.
#[derive(thiserror::Error, Debug)]
pub enum KernelError {
    /// No such control.
    #[error("there is no control `{name}` to load; known: {known}")]
    UnknownControl {
        /// The name that was asked for.
        name: String,
        /// The known names.
        known: String,
    },
    /// An option that no control has, or a value out of range.
    #[error("option `{option}`: {problem}")]
    BadOption {
        /// The option as it was given.
        option: String,
        /// The right form.
        problem: String,
    },
    /// The process may not load programs.
    #[error(
        "not permitted: loading programs into the kernel needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; run it as root (in \
         a container: with these capabilities, outside of a user namespace)"
    )]
    NotPermitted,
    /// The kernel does not describe its types.
    #[error(
        "this kernel has no type information (/sys/kernel/btf/vmlinux): use one built with CONFIG_DEBUG_INFO_BTF=y, as \
         those of Debian, Ubuntu and Fedora are"
    )]
    NoTypes,
    /// The kernel lacks a feature.
    #[error("kernel {release} is too old: {what} needs Linux {needs}")]
    TooOld {
        /// The output of `uname -r`.
        release: String,
        /// The missing feature.
        what: &'static str,
        /// The first version that has it.
        needs: &'static str,
    },
    /// The verifier refused a program, or a callback does not exist.
    #[error(
        "the kernel ({release}) refused `{name}`; please report this with these last lines of its answer:\n{log}"
    )]
    Refused {
        /// The name of the control.
        name: &'static str,
        /// The output of `uname -r`.
        release: String,
        /// The last lines of libbpf's and the verifier's log.
        log: String,
    },
    /// Another control has the name.
    #[error("a control named `{kernel_name}` is loaded already{by}")]
    NameInUse {
        /// The name in the kernel.
        kernel_name: &'static str,
        /// The loader, and the remedy.
        by: String,
    },
    /// Nothing to unload.
    #[error("`{name}` is not loaded; `starhop tcp list` shows what is")]
    NotLoaded {
        /// The name of the control.
        name: &'static str,
    },
    /// It lives as long as a process.
    #[error("`{name}` is bound to process {pid}: end that process (kill {pid}), or load it with --persist")]
    BoundTo {
        /// The name of the control.
        name: &'static str,
        /// The process.
        pid: u32,
    },
    /// It cannot go while it is the default.
    #[error(
        "`{name}` is this namespace's default: choose another first, such as `starhop tcp default cubic`"
    )]
    IsDefault {
        /// The name of the control.
        name: &'static str,
    },
    /// The kernel does not know the control.
    #[error("the kernel does not offer `{name}`; it offers {offered}; `starhop tcp load` adds others")]
    NotOffered {
        /// The name of the control.
        name: String,
        /// The controls that it offers.
        offered: String,
    },
    /// XCP's option is there as long as another process.
    #[error(
        "XCP's TCP option is bound to process {pid}: end that process (kill {pid}), or load all controls that speak XCP by \
         one command, or with --persist"
    )]
    OptionBoundTo {
        /// The process.
        pid: u32,
    },
    /// Programs of sockets are attached to control groups.
    #[error(
        "no control groups of version 2 are mounted: mount -t cgroup2 none /sys/fs/cgroup/unified, or another directory"
    )]
    NoControlGroups,
    /// No such device.
    #[error("there is no network device `{name}` in this namespace: `ip link` shows those that there are")]
    NoDevice {
        /// The name that was asked for.
        name: String,
    },
    /// This build has no libbpf.
    #[error(
        "this build cannot load programs: it was made without the feature `kernel`; build it with libelf-dev, zlib1g-dev \
         and pkg-config installed (scripts/bootstrap.sh installs them), and without --no-default-features"
    )]
    NotBuilt,
    /// A file or call failed.
    #[error("{what}: {cause}")]
    System {
        /// The action that failed.
        what: String,
        /// Why it failed.
        cause: io::Error,
    },
    /// A call to libbpf failed.
    #[error("{what}: {cause}")]
    Bpf {
        /// The action that failed.
        what: String,
        /// libbpf's words.
        cause: String,
    },
}

impl KernelError {
    /// The machine is the reason, not the request: tests skip, and exit codes tell it.
    pub fn is_of_this_machine(&self) -> bool {
        matches!(self, Self::NotPermitted | Self::NoTypes | Self::TooOld { .. } | Self::NotBuilt)
    }

    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |cause| Self::System { what, cause }
    }
}
