//! The steady state of a transfer allocates nothing in the roles.

mod support;

use starhop_proto::config::Config;
use starhop_proto::node::Node;
use starhop_proto::time::{Duration, Instant};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::{Path, Rig, Role, addr};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(unsafe_code, reason = "a global allocator is unsafe by its signature; this one only counts")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Producer, relay and Consumer handing packets to each other in lockstep; returns allocations inside them.
fn allocations_in(rig: &mut Rig, from: Instant, span: Duration) -> u64 {
    let mut inside = 0;
    let mut out = Vec::with_capacity(70_000);
    let mut now = from;
    let mut mail: Vec<(usize, usize, Vec<u8>)> = Vec::new();
    while now < from + span {
        now += Duration::from_micros(500);
        for index in 0..rig.roles.len() {
            let before = ALLOCATIONS.get();
            match &mut rig.roles[index] {
                Role::Server(node) => node.handle_timeout(now),
                Role::Relay(node) => node.handle_timeout(now),
                Role::Client(node) => node.handle_timeout(now),
                Role::Dead => {}
            }
            inside += ALLOCATIONS.get() - before;
            loop {
                out.clear();
                let before = ALLOCATIONS.get();
                let sent = match &mut rig.roles[index] {
                    Role::Server(node) => node.poll_transmit(now, &mut out),
                    Role::Relay(node) => node.poll_transmit(now, &mut out),
                    Role::Client(node) => node.poll_transmit(now, &mut out),
                    Role::Dead => None,
                };
                inside += ALLOCATIONS.get() - before;
                let Some(sent) = sent else { break };
                let to = (0..3).find(|i| addr(*i) == sent.to.remote).expect("a node");
                mail.push((index, to, out.clone()));
            }
        }
        for (sender, to, mut bytes) in mail.drain(..) {
            let before = ALLOCATIONS.get();
            match &mut rig.roles[to] {
                Role::Server(node) => node.handle_datagram(now, addr(sender).into(), &mut bytes),
                Role::Relay(node) => node.handle_datagram(now, addr(sender).into(), &mut bytes),
                Role::Client(node) => node.handle_datagram(now, addr(sender).into(), &mut bytes),
                Role::Dead => {}
            }
            inside += ALLOCATIONS.get() - before;
        }
        rig.fetched().sink_mut().arrivals.clear();
        rig.server().source_mut().first_reads.clear();
    }
    inside
}

#[test]
fn the_steady_state_allocates_nothing_per_packet() {
    let mut rig = Rig::chain(2, Config::default(), None, Path::default());
    let start = Instant::ZERO + Duration::from_secs(1);
    rig.open(start);
    // The recorder's lists belong to the rig: room for the entries of one step.
    rig.fetched().sink_mut().arrivals.reserve(100_000);
    rig.server().source_mut().first_reads.reserve(100_000);
    allocations_in(&mut rig, start, Duration::from_secs(20));
    let before = rig.fetched().stats().received_bytes;
    let inside = allocations_in(&mut rig, start + Duration::from_secs(20), Duration::from_secs(2));
    let packets = (rig.fetched().stats().received_bytes - before) / 1350;
    println!("{inside} allocations for {packets} packets over two hops");
    assert!(packets > 1_000, "{packets}");
    assert!(inside * 1_000 <= packets, "{inside} allocations for {packets} packets");
}
