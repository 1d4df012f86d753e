//! Routes carried from step to step against routes found from nothing, over real constellations.

use starhop_orbit::ground;
use starhop_orbit::network::Network;
use starhop_orbit::preset;
use starhop_orbit::route::{Relaying, Router, Steps, sweep};

#[test]
fn routes_carried_along_are_those_found_from_nothing() {
    // Iridium's cross-plane links go down near the poles and the others' stay up; steps of 1 s to 5 min.
    for (name, step_s) in
        [("starlink-550", 1.0), ("starlink-550", 61.0), ("iridium", 7.0), ("iridium", 300.0)]
    {
        let stations = ground::cities().into_iter().take(30).collect();
        let network = Network::from_preset(&preset::by_name(name).unwrap(), stations).unwrap();
        let mut observer = network.observe();
        let mut carried = Router::all_pairs(&network, Relaying::Satellites);
        for step in 0..60 {
            let snapshot = observer.at(f64::from(step) * step_s).unwrap();
            carried.advance(snapshot);
            let mut fresh = Router::all_pairs(&network, Relaying::Satellites);
            fresh.rebuild(snapshot);
            for (from, to) in (0..30).flat_map(|a| (0..30).map(move |b| (a, b))) {
                assert_eq!(
                    carried.length_m(from, to),
                    fresh.length_m(from, to),
                    "{name}, step {step}: {from}-{to}"
                );
                let lengths = [&carried, &fresh].map(|r| r.path(snapshot, from, to).map(|p| p.length_m));
                if let [Some(a), Some(b)] = lengths {
                    // Rounded lengths tie where exact ones differ by centimetres a link.
                    assert!((a - b).abs() < 5.0, "{a} m and {b} m");
                }
            }
        }
    }
}

#[test]
fn a_path_from_a_router_follows_its_next_hops() {
    let network = Network::from_preset(&preset::by_name("kuiper").unwrap(), ground::cities()).unwrap();
    let (mut observer, mut router) = (network.observe(), Router::all_pairs(&network, Relaying::Satellites));
    let snapshot = observer.at(10.0).unwrap();
    router.advance(snapshot);
    let mut paths = 0;
    for to in 0..20 {
        for path in (20..40).filter_map(|from| router.path(snapshot, from, to)) {
            for pair in path.nodes.windows(2) {
                assert_eq!(router.next_hop(pair[0], to), Some(pair[1]));
            }
            paths += 1;
        }
    }
    assert!(paths > 200, "{paths} pairs are connected");
}

#[test]
fn a_sweep_on_several_threads_finds_what_one_thread_finds() {
    let stations = ground::cities().into_iter().take(10).collect();
    let network = Network::from_preset(&preset::by_name("starlink-1150").unwrap(), stations).unwrap();
    let lengths = |threads| {
        let steps = Steps::until(25.0, 1.0);
        let parts = sweep(&network, Relaying::Satellites, steps, threads, Vec::new, |all, _, router| {
            all.push(router.length_m(0, 9));
        });
        parts.unwrap().concat()
    };
    assert_eq!(lengths(1).len(), 25);
    assert_eq!(lengths(1), lengths(3));
}
