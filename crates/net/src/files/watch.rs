//! Receives changes below the served paths from the kernel (inotify).

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Watches directories. If the kernel gives no watches, only walks find changes.
#[derive(Debug)]
pub(super) struct Watch {
    inotify: Option<Inotify>,
    is_spent: bool,
}

impl Watch {
    pub(super) fn new() -> Self {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).ok();
        Self { inotify, is_spent: false }
    }

    /// Watches a directory from now on; watching it twice is watching it once.
    pub(super) fn add(&mut self, directory: &File) {
        // The kernel reports a file that is still being written when its writer closes it.
        let changes = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_ONLYDIR;
        // The descriptor leads to the directory that was opened, even if its path leads elsewhere by now.
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let Some(inotify) = &self.inotify else { return };
        if inotify.add_watch(path.as_str(), changes) == Err(Errno::ENOSPC) {
            self.is_spent = true;
        }
    }

    /// Whether something changed since the last call. Never waits.
    pub(super) fn has_news(&self) -> bool {
        let Some(inotify) = &self.inotify else { return false };
        let mut has_news = false;
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {
            has_news = true;
        }
        has_news
    }

    /// Whether there are more directories than the kernel gives watches for.
    pub(super) fn is_spent(&self) -> bool {
        self.is_spent
    }
}
