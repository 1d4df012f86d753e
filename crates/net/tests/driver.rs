//! The driver on the loopback device, with toy nodes: its duties under any protocol.

use starhop_net::{Driver, Endpoint, clock, daemon};
use starhop_proto::peer::Face;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::{Node, Transmit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts allocations of the whole process: tests in this file must not run side by side where it matters.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[allow(unsafe_code, reason = "an allocator can only be replaced by one that is declared unsafe")]
// SAFETY: every call goes on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Sends `burst` numbered datagrams every `every` until it has sent `total`; checks the datagrams that it receives.
#[derive(Debug)]
struct Toy {
    to: Option<SocketAddr>,
    total: u64,
    burst: u64,
    every: Duration,
    sent: u64,
    due: u64,
    next: Instant,
    received: u64,
    next_expected: u64,
    lateness: Duration,
}

impl Toy {
    fn new(to: Option<SocketAddr>, total: u64, burst: u64, every: Duration) -> Self {
        let (sent, due, received, next_expected) = (0, 0, 0, 0);
        Self {
            to,
            total,
            burst,
            every,
            sent,
            due,
            next: clock::now(),
            received,
            next_expected,
            lateness: Duration::ZERO,
        }
    }
}

impl Node for Toy {
    type Event = ();

    fn handle_datagram(&mut self, _now: Instant, _face: Face, datagram: &mut [u8]) {
        let number = u64::from_be_bytes(datagram[..8].try_into().expect("8 bytes"));
        assert_eq!(number, self.next_expected, "datagrams come apart as they were put together");
        assert_eq!(datagram.len(), length(number));
        self.next_expected += 1;
        self.received += 1;
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.due < self.total && self.next <= now {
            self.lateness = self.lateness.max(now.since(self.next));
            self.due += self.burst;
            self.next = now + self.every;
        }
    }

    fn poll_transmit(&mut self, _now: Instant, out: &mut Vec<u8>) -> Option<Transmit> {
        let to = self.to.filter(|_| self.sent < self.due)?;
        let start = out.len();
        out.extend_from_slice(&self.sent.to_be_bytes());
        out.resize(start + length(self.sent), 0);
        self.sent += 1;
        Some(Transmit { to: to.into(), len: out.len() - start })
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.to.is_some() && self.due < self.total).then_some(self.next)
    }
}

/// Mostly full packets, some shorter ones in between, as a real sender's.
fn length(number: u64) -> usize {
    if number % 23 == 22 { 700 } else { 1350 }
}

fn endpoint() -> Endpoint {
    Endpoint::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a socket")
}

/// Runs both until the receiver has everything.
async fn exchange(sender: &mut Driver<Toy>, receiver: &mut Driver<Toy>, total: u64) {
    let patience = tokio::time::sleep(std::time::Duration::from_secs(20));
    tokio::pin!(patience);
    while receiver.node().received < total {
        tokio::select! {
            done = sender.turn() => done.expect("the sender's socket works"),
            done = receiver.turn() => done.expect("the receiver's socket works"),
            () = &mut patience => panic!("{} of {total} arrived", receiver.node().received),
        }
    }
}

#[test]
fn trains_of_datagrams_arrive_one_by_one_in_order_and_without_allocation() {
    daemon::runtime().expect("a runtime").block_on(async {
        let theirs = endpoint();
        let to = theirs.local();
        let every = Duration::from_micros(100);
        let mut receiver = Driver::new(Toy::new(None, 0, 0, every), theirs).expect("a driver");
        let mut sender = Driver::new(Toy::new(Some(to), 40_000, 50, every), endpoint()).expect("a driver");
        exchange(&mut sender, &mut receiver, 10_000).await;
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        exchange(&mut sender, &mut receiver, 40_000).await;
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        let stats = sender.stats();
        println!("{stats:?}, {allocations} allocations for 30000 datagrams");
        assert!(stats.tx_calls * 5 < stats.tx_datagrams, "datagrams share system calls: {stats:?}");
        // The other test of this file may run at the same time.
        assert!(allocations < 500, "{allocations} allocations for 30000 datagrams");
    });
}

#[test]
fn a_neighbour_that_is_away_is_no_failure_and_timers_are_finer_than_a_millisecond() {
    daemon::runtime().expect("a runtime").block_on(async {
        let nobody = endpoint().local();
        let toy = Toy::new(Some(nobody), 2000, 1, Duration::from_micros(200));
        let mut driver = Driver::new(toy, endpoint()).expect("a driver");
        let start = clock::now();
        while driver.node().sent < 2000 {
            driver.turn().await.expect("an ICMP message is no failure");
        }
        let elapsed = clock::now().since(start).as_millis_f64();
        println!("2000 timers of 0.2 ms took {elapsed} ms");
        // With timers of 1 ms it would be 2000 ms at least.
        assert!(elapsed < 1600.0, "{elapsed} ms");
    });
}

/// Counts the datagrams that it has had when its alarm goes off.
#[derive(Debug)]
struct Alarm {
    at: Instant,
    received: u64,
    received_before: Option<u64>,
}

impl Node for Alarm {
    type Event = ();

    fn handle_datagram(&mut self, now: Instant, _face: Face, _datagram: &mut [u8]) {
        self.received += u64::from(now < self.at);
    }

    fn handle_timeout(&mut self, now: Instant) {
        assert!(now >= self.at);
        self.received_before = Some(self.received);
    }

    fn poll_transmit(&mut self, _now: Instant, _out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    fn poll_event(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.received_before.is_none().then_some(self.at)
    }
}

/// A timeout that went off before answers that lay in the socket were taken had them all asked for again.
#[test]
fn a_timeout_comes_after_everything_that_arrived_before_it() {
    const WAITING: u64 = 1000;
    daemon::runtime().expect("a runtime").block_on(async {
        let receiver = endpoint();
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let pause = std::time::Duration::from_millis(30);
        // The kernel begins to stamp a moment after the first socket asks for it.
        std::thread::sleep(pause);
        for _ in 0..WAITING {
            sender.send_to(&[7; 100], receiver.local()).expect("a datagram");
        }
        std::thread::sleep(pause);
        let alarm = Alarm { at: clock::now(), received: 0, received_before: None };
        std::thread::sleep(pause);
        let mut driver = Driver::new(alarm, receiver).expect("a driver");
        while driver.node().received_before.is_none() {
            driver.turn().await.expect("the socket works");
        }
        assert_eq!(driver.node().received_before, Some(WAITING));
    });
}

#[test]
fn an_address_that_is_taken_is_told_with_the_address_and_what_to_do() {
    daemon::runtime().expect("a runtime").block_on(async {
        let first = endpoint();
        let error = Endpoint::bind(first.local()).expect_err("it is taken").to_string();
        assert!(error.contains(&first.local().to_string()) && error.contains("another process"), "{error}");
    });
}
