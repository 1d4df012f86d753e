//! The memory of a relay for those who have gone quiet.

mod support;

use starhop_proto::config::{Config, Profile, Settings};
use starhop_proto::consumer::{ConsumerEvent, Request};
use starhop_proto::name::RangeSet;
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::{Checked, FLOW, Path, Rig, addr, ms};

struct Counting;

thread_local! {
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: i64) {
    let _ = LIVE.try_with(|live| live.set(live.get() + sign * bytes as i64));
}

#[allow(unsafe_code, reason = "a global allocator is unsafe by its signature; this one only counts")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that the relay, node 1, held. It is gone then.
fn held(rig: &mut Rig) -> i64 {
    let before = LIVE.get();
    rig.kill(1);
    before - LIVE.get()
}

/// Memory of a relay after each of its neighbours has fetched `flows` files of one packet and was `quiet` for a time.
fn held_after(neighbours: usize, flows: u8, quiet: Duration) -> i64 {
    let path = Path { delay: ms(1), rate: Rate::from_mbps(1_000), ..Path::default() };
    // A cache of some blocks is full with the first files: what grows with flows is their state.
    let settings = Settings { cache_bytes: 256 * 1024, ..Profile::Starhop.settings() };
    let config = Config::new(settings).expect("valid");
    let mut rig = Rig::chain(2, config, Some(1_000), path);
    for _ in 1..neighbours {
        rig.add_client(1);
    }
    for client in 2..2 + neighbours {
        let now = rig.now;
        for n in 0..flows {
            let mut flow = FLOW;
            flow.0[0] = n;
            let request = Request { flow, upstream: addr(1), length: None, have: RangeSet::new() };
            assert!(rig.client_at(client).open(now, request, Checked::of(flow)));
        }
        rig.drain(client);
    }
    rig.run(Duration::from_secs(2), |_| false);
    let finished =
        rig.events.iter().filter(|(_, event)| matches!(event, ConsumerEvent::Finished { .. })).count();
    assert_eq!(finished, neighbours * usize::from(flows));
    rig.run(quiet, |_| false);
    held(&mut rig)
}

#[test]
fn who_has_gone_quiet_costs_a_relay_little() {
    let each = |seconds| {
        let quiet = Duration::from_secs(seconds);
        (held_after(201, 1, quiet) - held_after(1, 1, quiet)) / 200
    };
    let [at_once, without_flow, forgotten] = [1, 15, 75].map(each);
    println!(
        "a neighbour with a flow {at_once} bytes, without {without_flow}, once it is forgotten {forgotten}"
    );
    assert!(at_once < 2_600 && without_flow < 1_900 && forgotten < 700);
}

#[test]
fn an_idle_flow_costs_a_relay_next_to_nothing() {
    let each = |seconds| {
        let quiet = Duration::from_secs(seconds);
        (held_after(1, 250, quiet) - held_after(1, 100, quiet)) / 150
    };
    let [at_once, idle] = [1, 15].map(each);
    println!("a flow that has just ended {at_once} bytes, once it is idle {idle}");
    assert!(at_once < 1_800 && idle < 256);
}
