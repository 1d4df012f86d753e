//! Numbers of the LEOTP traces (their shell, their stations, 600 s at 1 s) beside our own.

use starhop_orbit::ground::{self, Station};
use starhop_orbit::network::Network;
use starhop_orbit::preset;
use starhop_orbit::route::{Relaying, Router};

struct Means {
    hops: f64,
    rtt_ms: f64,
    changes: u32,
}

/// Means over 600 steps of 1 s. Two terrestrial links, to the client and to the server, count as hops.
fn measure(mut network: Network, to: &str, relaying: Relaying) -> Means {
    let names = ["Beijing", to];
    network.stations = names.iter().map(|n| ground::find(&ground::cities(), n).cloned().unwrap()).collect();
    let mut observer = network.observe();
    let mut router = Router::all_pairs(&network, relaying);
    let mut before = None;
    let mut means = Means { hops: 0.0, rtt_ms: 0.0, changes: 0 };
    for t in 0..600 {
        let snapshot = observer.at(f64::from(t)).unwrap();
        router.advance(snapshot);
        let path = router.path(snapshot, 0, 1).unwrap();
        means.hops += (path.hops() + 2) as f64 / 600.0;
        means.rtt_ms += 2e3 * path.delay_s() / 600.0;
        means.changes += u32::from(before.as_ref().is_some_and(|b| *b != path.nodes));
        before = Some(path.nodes);
    }
    means
}

fn starlink() -> Network {
    Network::from_preset(&preset::by_name("starlink-550").unwrap(), Vec::<Station>::new()).unwrap()
}

fn assert_means(to: &str, means: &Means, hops: f64, rtt_ms: f64) {
    println!(
        "Beijing-{to}: {:.3} hops (published {hops}), {:.2} ms (published {rtt_ms}), {} changes",
        means.hops, means.rtt_ms, means.changes
    );
    assert!((means.hops / hops - 1.0).abs() < 0.01, "hops to {to}: {}", means.hops);
    assert!((means.rtt_ms / rtt_ms - 1.0).abs() < 0.01, "RTT to {to}: {}", means.rtt_ms);
}

#[test]
fn hops_and_delays_over_starlinks_grid_are_those_of_the_published_traces() {
    for (to, hops, rtt_ms) in
        [("Hong Kong", 5.150, 22.32), ("Paris", 9.530, 72.84), ("New York", 18.880, 138.17)]
    {
        assert_means(to, &measure(starlink(), to, Relaying::Satellites), hops, rtt_ms);
    }
}

#[test]
fn beijing_to_shanghai_over_ground_relays_is_one_bent_pipe() {
    let mut network = starlink();
    network.sky.isls.clear();
    assert_means("Shanghai", &measure(network, "Shanghai", Relaying::Stations), 4.0, 10.5);
}
