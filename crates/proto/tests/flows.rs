//! Many flows of one Consumer share its hop.

mod support;

use starhop_proto::config::Config;
use starhop_proto::consumer::{ConsumerEvent, Request};
use starhop_proto::name::{FlowId, RangeSet};
use support::{Checked, FLOW, Path, Rig, addr, ms};

fn flow(number: u8) -> FlowId {
    let mut id = FLOW;
    id.0[0] = number;
    id
}

/// Asks for `flows` flows of `length` bytes each over one relay.
fn fetching(flows: u8, length: u64, path: Path) -> Rig {
    let mut rig = Rig::chain(2, Config::default(), Some(length), path);
    for number in 0..flows {
        let request = Request { flow: flow(number), upstream: addr(1), length: None, have: RangeSet::new() };
        let (now, sink) = (rig.now, Checked::of(flow(number)));
        assert!(rig.client().open(now, request, sink));
    }
    rig.drain(2);
    rig
}

fn finished(rig: &Rig) -> usize {
    rig.events.iter().filter(|(_, event)| matches!(event, ConsumerEvent::Finished { .. })).count()
}

#[test]
fn each_of_many_flows_over_a_lossy_hop_gets_its_own_bytes() {
    const FLOWS: u8 = 60;
    let mut rig = fetching(FLOWS, 100_000, Path { loss: 0.02, ..Path::default() });
    rig.run(ms(20_000), |rig| finished(rig) == usize::from(FLOWS));
    assert_eq!(finished(&rig), usize::from(FLOWS));
    assert_eq!(rig.relay(1).stats().neighbours, 1, "all flows share one hop");
    for number in 0..FLOWS {
        let sink = rig.client().close(flow(number)).expect("it is open");
        assert_eq!((sink.got.byte_count(), sink.wrong), (100_000, 0), "flow {number}");
        assert!(rig.client().close(flow(number)).is_none(), "it is closed");
    }
    assert_eq!(rig.client().stats().flows.received_bytes, u64::from(FLOWS) * 100_000);
}

#[test]
fn flows_one_after_the_other_find_the_hop_as_the_first_left_it() {
    let alone = |count: u8| {
        let mut rig = fetching(1, 3_000_000, Path::default());
        let mut took = ms(0);
        for number in 0..count {
            if number > 0 {
                let request =
                    Request { flow: flow(number), upstream: addr(1), length: None, have: RangeSet::new() };
                let (now, sink) = (rig.now, Checked::of(flow(number)));
                rig.client().open(now, request, sink);
                rig.drain(2);
            }
            let start = rig.now;
            rig.run(ms(20_000), |rig| finished(rig) == usize::from(number) + 1);
            took = rig.now.since(start);
        }
        took
    };
    let (first, third) = (alone(1), alone(3));
    println!("the first flow takes {first:?}, the third {third:?}");
    assert!(third < first, "{third:?} instead of {first:?}");
}

#[test]
fn a_flow_that_is_closed_half_way_is_called_off_upstream() {
    let mut rig = fetching(2, 100_000_000, Path::default());
    rig.run(ms(1_000), |_| false);
    rig.client().close(flow(0));
    rig.drain(2);
    let before = rig.client().flow(flow(1)).expect("it is open").stats().received_bytes;
    rig.run(ms(500), |_| false);
    let got = rig.client().flow(flow(1)).expect("it is open").stats().received_bytes - before;
    println!("the other flow gets {got} bytes in the half second of 20 Mbit/s that follows");
    assert!(got > 1_050_000, "the other flow has the whole link: {got} bytes");
}
