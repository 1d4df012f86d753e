use super::EmuError;
use super::netlink::{self, Change, Route};
use crate::sys::{schedule, spawn, tun};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;

type Work = Box<dyn FnOnce() + Send>;

/// A network namespace without a name: it lives as long as this value, or a process in it.
///
/// A thread stays in the namespace and performs all calls that must be made there. Processes that it starts die
/// with it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    descriptor: File,
    work: Option<Sender<Work>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Makes a namespace whose loopback device is up.
    ///
    /// # Errors
    /// [`EmuError::Forbidden`] where the system does not allow it.
    pub fn new(name: &str) -> Result<Self, EmuError> {
        let (work, inbox) = mpsc::channel::<Work>();
        let (ready, is_ready) = mpsc::channel();
        let body = move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(io::Error::from)
                .and_then(|()| File::open("/proc/thread-self/ns/net"));
            if ready.send(entered).is_ok() {
                inbox.into_iter().for_each(|work| work());
            }
        };
        let thread = std::thread::Builder::new().name(format!("ns-{name}")).spawn(body);
        let thread = thread.map_err(EmuError::system("cannot start a thread"))?;
        let gone = || io::Error::other("the thread ended");
        let descriptor = is_ready.recv().unwrap_or_else(|_| Err(gone())).map_err(EmuError::Forbidden)?;
        let this = Self { name: name.to_owned(), descriptor, work: Some(work), thread: Some(thread) };
        this.up("lo")?;
        Ok(this)
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does something inside, and waits for it.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (answer, answered) = mpsc::channel();
        let work = Box::new(move || drop(answer.send(work())));
        let gone = || io::Error::other("the namespace's thread is gone");
        self.work.as_ref().and_then(|queue| queue.send(work).ok()).ok_or_else(gone)?;
        answered.recv().map_err(|_| gone())
    }

    /// Starts a thread inside.
    ///
    /// # Errors
    /// No thread can be started. If the thread cannot enter the namespace, `work` never runs and the handle returns
    /// the error.
    pub fn thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<T>>> {
        let namespace = self.descriptor.try_clone()?;
        std::thread::Builder::new().name(format!("in-{}", self.name)).spawn(move || {
            setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
    }

    /// As [`Self::thread`]; the thread goes ahead of ordinary ones, where the system permits that.
    ///
    /// # Errors
    /// As [`Self::thread`].
    pub fn thread_ahead<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<io::Result<T>>> {
        self.thread(move || {
            schedule::ahead();
            work()
        })
    }

    /// Starts a process inside; it is killed when this value goes, or this process dies.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&self, command: Command) -> io::Result<Process> {
        self.start(command, false)
    }

    /// As [`Namespace::spawn`]; the process goes ahead of ordinary ones where that is permitted, so that other load
    /// on the machine disturbs it little.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn_ahead(&self, command: Command) -> io::Result<Process> {
        self.start(command, true)
    }

    fn start(&self, command: Command, is_ahead: bool) -> io::Result<Process> {
        let child = self.run(move || spawn::tied_to_this_thread(command, is_ahead))?;
        child.map(|child| Process { child: Some(child) })
    }

    /// Sets a device up.
    ///
    /// # Errors
    /// [`EmuError::Configure`].
    pub fn up(&self, device: &str) -> Result<(), EmuError> {
        self.change(vec![Change::Up { device: device.to_owned() }])
    }

    /// Gives an address to a device.
    ///
    /// # Errors
    /// [`EmuError::Configure`].
    pub fn address(&self, device: &str, address: IpAddr, prefix: u8) -> Result<(), EmuError> {
        self.change(vec![Change::Address { device: device.to_owned(), address, prefix }])
    }

    /// Takes an address from a device.
    ///
    /// # Errors
    /// [`EmuError::Configure`].
    pub fn remove_address(&self, device: &str, address: IpAddr, prefix: u8) -> Result<(), EmuError> {
        self.change(vec![Change::NoAddress { device: device.to_owned(), address, prefix }])
    }

    /// Adds a route.
    ///
    /// # Errors
    /// [`EmuError::Configure`].
    pub fn route(&self, to: IpAddr, prefix: u8, via: IpAddr) -> Result<(), EmuError> {
        self.change(vec![Change::Route { to, prefix, via }])
    }

    /// Changes how packets to some addresses leave.
    ///
    /// # Errors
    /// [`EmuError::Configure`].
    pub fn routes(&self, routes: Vec<Route>) -> Result<(), EmuError> {
        self.change(routes.into_iter().map(Change::Host).collect())
    }

    /// Sets values below `/proc/sys/net`; a file that this kernel does not have is skipped.
    ///
    /// # Errors
    /// [`EmuError::System`] where `/proc/sys` is read-only.
    pub fn settings(&self, settings: &'static [(&'static str, &'static str)]) -> Result<(), EmuError> {
        let write = move || {
            for (name, value) in settings {
                match std::fs::write(format!("/proc/sys/net/{name}"), value) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(())
        };
        self.run(write).and_then(|done| done).map_err(EmuError::system("cannot write to /proc/sys/net"))
    }

    /// Packets that the devices here threw away because they were not read in time.
    ///
    /// # Errors
    /// The kernel does not report the count.
    pub fn device_drops(&self) -> io::Result<u64> {
        let text = self.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        // Name, then 8 columns of received and 8 of sent packets; the fourth of each has the dropped packets.
        let sent = |line: &str| line.split_once(':')?.1.split_whitespace().nth(11)?.parse::<u64>().ok();
        Ok(text.lines().filter_map(sent).sum())
    }

    /// Makes a pair of joined Ethernet devices, one here, one in `other`; both are down.
    ///
    /// # Errors
    /// [`EmuError::Configure`].
    pub fn veth(&self, device: &str, other: &Self, peer: &str) -> Result<(), EmuError> {
        let namespace = other.descriptor.try_clone().map_err(EmuError::system("cannot copy a descriptor"))?;
        let (device, peer) = (device.to_owned(), peer.to_owned());
        self.in_netlink(move || {
            netlink::apply(&[Change::Veth { device, peer, namespace: namespace.as_fd() }])
        })
    }

    /// Passes packets on that are for others.
    ///
    /// # Errors
    /// [`EmuError::System`] where `/proc/sys` is read-only.
    pub fn forward(&self) -> Result<(), EmuError> {
        self.settings(&[("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")])
    }

    /// Makes a TUN device, up, and returns its other end.
    pub(super) fn tun(&self, device: &str) -> Result<File, EmuError> {
        let name = device.to_owned();
        let opened = self.run(move || tun::open(&name)).and_then(|opened| opened);
        let file = opened.map_err(|cause| EmuError::Tun { device: device.to_owned(), cause })?;
        self.up(device)?;
        Ok(file)
    }

    fn change(&self, changes: Vec<Change<'static>>) -> Result<(), EmuError> {
        self.in_netlink(move || netlink::apply(&changes))
    }

    fn in_netlink(
        &self,
        work: impl FnOnce() -> Result<(), (String, String)> + Send + 'static,
    ) -> Result<(), EmuError> {
        let done = self.run(work).map_err(EmuError::system("cannot reach a namespace"))?;
        done.map_err(|(action, problem)| EmuError::Configure {
            action,
            namespace: self.name.clone(),
            problem,
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A panic over there was reported there.
            let _ = thread.join();
        }
    }
}

/// A process in a namespace. Killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Option<Child>,
}

impl Process {
    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// The child, for its pipes.
    pub fn child(&mut self) -> Option<&mut Child> {
        self.child.as_mut()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// The process is gone.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill(Pid::from_raw(self.id() as i32), signal)?)
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// As [`Child::try_wait`].
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.as_mut().map_or(Ok(None), Child::try_wait)
    }

    /// Waits for its end and takes the output that it wrote into pipes.
    ///
    /// # Errors
    /// As [`Child::wait_with_output`].
    pub fn output(mut self) -> io::Result<Output> {
        let child = self.child.take().ok_or_else(|| io::Error::other("there is no process"))?;
        child.wait_with_output()
    }

    /// Asks it to end, and takes its output.
    ///
    /// # Errors
    /// As [`Process::output`].
    pub fn end(self) -> io::Result<Output> {
        // Gone already is as good.
        let _ = self.signal(Signal::SIGTERM);
        self.output()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when it is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
