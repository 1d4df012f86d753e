//! The capabilities of the calling thread, and of the programs that it starts.
#![allow(unsafe_code, reason = "nix has neither capget and capset nor the bounding and ambient sets")]

use nix::sys::prctl;
use std::io;

/// Makes files accessible whatever their modes say.
pub(crate) const DAC_OVERRIDE: u64 = 1 << 1;
/// Removes capabilities from the bounding set.
const SETPCAP: u64 = 1 << 8;
/// Binds ports below 1024.
const NET_BIND_SERVICE: u64 = 1 << 10;
/// Changes firewall, routes and devices, and makes sockets transparent.
pub(crate) const NET_ADMIN: u64 = 1 << 12;

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h: sets of 64 bits, in two halves.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    thread: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Half {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The sets of a thread, one bit for each capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sets {
    /// In use.
    effective: u64,
    /// May be put to use.
    permitted: u64,
    /// May be given to another program.
    inheritable: u64,
}

impl Sets {
    fn of_this_thread() -> io::Result<Self> {
        let (mut header, mut halves) = (Header { version: VERSION, thread: 0 }, [Half::default(); 2]);
        // SAFETY: the kernel reads the header, and writes two halves, as it does for this version.
        let done = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, halves.as_mut_ptr()) };
        checked(done)?;
        let of = |field: fn(&Half) -> u32| u64::from(field(&halves[0])) | u64::from(field(&halves[1])) << 32;
        Ok(Self {
            effective: of(|half| half.effective),
            permitted: of(|half| half.permitted),
            inheritable: of(|half| half.inheritable),
        })
    }

    fn set(self) -> io::Result<()> {
        let Self { effective, permitted, inheritable } = self;
        let half = |shift: u32| Half {
            effective: (effective >> shift) as u32,
            permitted: (permitted >> shift) as u32,
            inheritable: (inheritable >> shift) as u32,
        };
        let (mut header, halves) = (Header { version: VERSION, thread: 0 }, [half(0), half(32)]);
        // SAFETY: the kernel reads the header, and two halves, as it does for this version.
        checked(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, halves.as_ptr()) })
    }
}

/// Gives up all capabilities but those of `kept` for ever, in this thread and the programs that it starts: these have them, too.
/// The bounding set shrinks only where this thread may shrink it; without it no program can gain any either.
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn keep_only(kept: u64) -> io::Result<()> {
    prctl::set_no_new_privs()?;
    let has = Sets::of_this_thread()?.permitted;
    Sets { effective: has, permitted: has, inheritable: has & kept }.set()?;
    bound(kept)?;
    give(has & kept, has & kept)
}

/// Leaves a thread that is no longer root what it needs to open before [`keep_only`]. Programs that it starts have CAP_NET_ADMIN.
/// Files are open to it as to its user, except [`with`] [`DAC_OVERRIDE`].
///
/// # Errors
/// The kernel's refusal.
pub(crate) fn keep_until_opened() -> io::Result<()> {
    let kept = NET_ADMIN | NET_BIND_SERVICE | DAC_OVERRIDE | SETPCAP;
    let permitted = Sets::of_this_thread()?.permitted & kept;
    let inheritable = permitted & NET_ADMIN;
    give(permitted, inheritable)?;
    bound(inheritable)?;
    Sets { effective: permitted & !DAC_OVERRIDE, permitted, inheritable }.set()
}

/// Shrinks the bounding set to `kept`, where this thread may shrink it.
fn bound(kept: u64) -> io::Result<()> {
    if Sets::of_this_thread()?.effective & SETPCAP == 0 {
        return Ok(());
    }
    bits().filter(|bit| kept >> bit & 1 == 0).try_for_each(drop_from_bounding)
}

/// Sets all sets at once; of the ambient set, what was in it before goes.
fn give(permitted: u64, inheritable: u64) -> io::Result<()> {
    const UNUSED: libc::c_ulong = 0;
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL as libc::c_ulong;
    // SAFETY: the call takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, UNUSED, UNUSED, UNUSED) }.into())?;
    Sets { effective: permitted, permitted, inheritable }.set()?;
    let raise = libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong;
    bits().filter(|bit| inheritable >> bit & 1 == 1).try_for_each(|bit| {
        // SAFETY: the call takes numbers only.
        checked(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, raise, bit, UNUSED, UNUSED) }.into())
    })
}

/// Does `act` with `more` capabilities in use, where this thread may use them.
pub(crate) fn with<T>(more: u64, act: impl FnOnce() -> T) -> T {
    let sets = Sets::of_this_thread().ok().filter(|sets| sets.permitted & more & !sets.effective != 0);
    let _ = sets.map(|sets| Sets { effective: sets.effective | sets.permitted & more, ..sets }.set());
    let done = act();
    let _ = sets.map(Sets::set);
    done
}

fn bits() -> impl Iterator<Item = libc::c_ulong> {
    0..64
}

fn drop_from_bounding(bit: libc::c_ulong) -> io::Result<()> {
    // SAFETY: both calls take a number only; the first refuses numbers that the kernel does not know.
    let done = unsafe {
        match libc::prctl(libc::PR_CAPBSET_READ, bit) {
            1 => libc::prctl(libc::PR_CAPBSET_DROP, bit),
            _ => 0,
        }
    };
    checked(done.into())
}

fn checked(done: libc::c_long) -> io::Result<()> {
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities are a thread's: others of the test's process keep theirs.
    fn in_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(body).join().unwrap()
    }

    #[test]
    fn what_is_given_up_is_gone_and_what_is_kept_can_be_given_on() {
        in_a_thread(|| {
            let before = Sets::of_this_thread().unwrap();
            keep_only(NET_ADMIN).unwrap();
            let kept = before.permitted & NET_ADMIN;
            let expected = Sets { effective: kept, permitted: kept, inheritable: kept };
            assert_eq!(Sets::of_this_thread().unwrap(), expected);
            let ambient = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            assert!(ambient.contains(&format!("CapAmb:\t{kept:016x}\n")), "{ambient}");
            keep_only(0).unwrap();
            assert_eq!(Sets::of_this_thread().unwrap(), Sets::default());
            let more = Sets { effective: kept, permitted: kept, inheritable: 0 };
            assert_eq!(more.set().is_err(), kept != 0, "nothing comes back");
        });
    }

    #[test]
    fn more_rights_last_as_long_as_they_are_used() {
        in_a_thread(|| {
            let has = Sets::of_this_thread().unwrap().permitted;
            keep_until_opened().unwrap();
            let before = Sets::of_this_thread().unwrap();
            assert_eq!(before.effective & DAC_OVERRIDE, 0);
            let during = with(DAC_OVERRIDE, || Sets::of_this_thread().unwrap());
            assert_eq!(during.effective & DAC_OVERRIDE, has & DAC_OVERRIDE);
            assert_eq!(Sets::of_this_thread().unwrap(), before);
        });
    }
}
