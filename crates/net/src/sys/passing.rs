//! Messages with descriptors between two processes of this host.

use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The most descriptors of a message, fewer than the kernel's 253 (SCM_MAX_FD).
pub(crate) const MOST: usize = 64;
/// The longest message.
const LONGEST: usize = 256;

/// Two ends of a channel that keeps messages apart.
///
/// # Errors
/// There is no descriptor left.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?)
}

/// A message that came.
#[derive(Debug)]
pub(crate) struct Message {
    /// Its bytes: none when the other end is closed.
    pub(crate) bytes: Vec<u8>,
    /// Descriptors that came with it.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// This process had no room for all of them.
    pub(crate) is_cut: bool,
}

/// Sends a message with copies of `descriptors`.
///
/// # Errors
/// There is no room for it, or the other end is closed.
pub(crate) fn send(
    to: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    waits: bool,
) -> io::Result<()> {
    let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let with = [ControlMessage::ScmRights(&numbers)];
    let with = if numbers.is_empty() { &[][..] } else { &with };
    let waiting = if waits { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
    let flags = MsgFlags::MSG_NOSIGNAL | waiting;
    sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(bytes)], with, flags, None)?;
    Ok(())
}

/// The next message. Where none `waits`, there may be none: the error is `WouldBlock`.
///
/// # Errors
/// The channel failed.
#[allow(unsafe_code, reason = "nix loses the descriptors of a message that was cut")]
pub(crate) fn receive(from: BorrowedFd<'_>, waits: bool) -> io::Result<Message> {
    let mut bytes = vec![0; LONGEST];
    // Words, as control messages are aligned; some more than a header and `MOST` descriptors take.
    let mut control = [0u64; MOST];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: `msghdr` is plain data, for which zeros are valid.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if waits { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the header points to a buffer and to room for control messages, both live and of the lengths that it has.
    let count = unsafe { libc::recvmsg(from.as_raw_fd(), &raw mut header, flags) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    bytes.truncate(count);
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled the control messages, which the macros walk through within `msg_controllen`. Those of
    // SCM_RIGHTS hold descriptors that are open and that nobody else owns.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(&raw const header);
        while let Some(message) = next.as_ref() {
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data: *const RawFd = libc::CMSG_DATA(next).cast();
                // Libraries of C have several types for it.
                let length = message.cmsg_len as u64 - u64::from(libc::CMSG_LEN(0));
                for nth in 0..length as usize / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(nth).read_unaligned()));
                }
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
    }
    let is_cut = header.msg_flags & libc::MSG_CTRUNC != 0;
    Ok(Message { bytes, descriptors, is_cut })
}

/// Borrows all of them.
pub(crate) fn borrowed(all: &[impl AsFd]) -> Vec<BorrowedFd<'_>> {
    all.iter().map(AsFd::as_fd).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, Write};

    #[test]
    fn descriptors_arrive_with_their_message_and_are_the_same_files() {
        let (one, other) = pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"inside").unwrap();
        send(one.as_fd(), b"three", &[file.as_fd(); 3], false).unwrap();
        send(one.as_fd(), b"none", &[], false).unwrap();
        let message = receive(other.as_fd(), false).unwrap();
        assert_eq!((&message.bytes[..], message.descriptors.len()), (&b"three"[..], 3));
        let mut text = String::new();
        let mut copy = File::from(message.descriptors.into_iter().next().unwrap());
        copy.rewind().unwrap();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        assert_eq!(receive(other.as_fd(), false).unwrap().bytes, b"none");
        assert_eq!(receive(other.as_fd(), false).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(one);
        assert_eq!(receive(other.as_fd(), true).unwrap().bytes, b"", "the end");
    }

    #[test]
    fn a_full_message_is_not_cut() {
        let (one, other) = pair().unwrap();
        send(one.as_fd(), &[7; LONGEST], &[one.as_fd(); MOST], false).unwrap();
        let message = receive(other.as_fd(), false).unwrap();
        assert!(!message.is_cut && message.descriptors.len() == MOST && message.bytes == [7; LONGEST]);
    }
}
