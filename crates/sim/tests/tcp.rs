//! TCP in the simulator against formulas and against the kernel's own TCP.

mod support;

use starhop_proto::time::{Duration, Instant};
use starhop_sim::engine::HostReport;
use starhop_sim::host::tcp::TcpSettings;
use starhop_sim::link::{LinkConfig, QueueLimit};
use starhop_sim::run::Simulation;
use support::{Chain, mbps, settings};

/// Goodput of Mathis, Semke, Mahdavi and Ott (CCR 1997), equation 3, with an acknowledgement per segment in the
/// growth of the window (the sender counts bytes, not acknowledgements), Mbit/s.
fn mathis(mss: f64, rtt_s: f64, loss: f64) -> f64 {
    mss * 8e-6 / rtt_s * (1.5 / loss).sqrt()
}

#[test]
fn newreno_follows_mathis_over_two_decades_of_loss() {
    for (loss, seconds) in [(1e-4, 3000), (3e-4, 2000), (1e-3, 1500), (3e-3, 1000), (1e-2, 1000)] {
        let chain = Chain { hops: 1, mbit: 1000, delay_ms: 50, loss, ..Chain::default() };
        let measured = mbps(&chain.run(&settings("newreno"), seconds), 100, seconds);
        let expected = mathis(1448.0, 0.1, loss);
        assert!((measured / expected - 1.0).abs() < 0.15, "{loss}: {measured} for {expected}");
    }
}

/// The chain on which the kernel was measured.
fn five_hops(loss: f64) -> Chain {
    Chain { hops: 5, mbit: 20, delay_ms: 10, loss, ..Chain::default() }
}

#[test]
fn five_lossy_hops_are_as_the_kernel_has_them() {
    // Linux 6.18, 20 Mbit/s and 10 ms per hop, queues of 1000 packets, up to 120 s each: loss per hop, cubic, reno.
    for (loss, cubic, reno) in [(0.001, 2.02, 2.00), (0.005, 0.73, 0.79), (0.01, 0.45, 0.51)] {
        for (control, kernel) in [("cubic", cubic), ("newreno", reno)] {
            let measured = mbps(&five_hops(loss).run(&settings(control), 600), 20, 600);
            assert!((measured / kernel - 1.0).abs() < 0.15, "{control}, {loss}: {measured} for {kernel}");
        }
    }
}

#[test]
fn bbr_hardly_minds_losses_and_keeps_the_queue_short() {
    for (loss, kernel) in [(0.0, 18.6), (0.001, 18.0), (0.005, 16.8), (0.01, 16.4)] {
        let simulation = five_hops(loss).run(&settings("bbr"), 60);
        let measured = mbps(&simulation, 0, 60);
        assert!((measured / kernel - 1.0).abs() < 0.15, "{loss}: {measured} for {kernel}");
        let trips: Vec<f64> =
            simulation.series().flows[0].iter().map(|s| s.srtt_ms).filter(|s| !s.is_nan()).collect();
        let mean = trips.iter().sum::<f64>() / trips.len() as f64;
        // The kernel: 116 ms without loss.
        assert!(loss > 0.0 || (mean / 116.0 - 1.0).abs() < 0.15, "{mean}");
    }
}

#[test]
fn without_loss_the_queue_is_full_and_the_link_is_used() {
    // The kernel: 18.9 and 19.0 Mbit/s over half a minute, from its start; a mean round trip of 602 ms with cubic.
    for (control, kernel) in [("cubic", 18.9), ("newreno", 19.0)] {
        let simulation = five_hops(0.0).run(&settings(control), 30);
        let measured = mbps(&simulation, 0, 30);
        assert!((measured / kernel - 1.0).abs() < 0.03, "{control}: {measured}");
    }
    let simulation = five_hops(0.0).run(&settings("cubic"), 60);
    let trips = &simulation.series().flows[0];
    let measured: Vec<f64> = trips.iter().map(|s| s.srtt_ms).filter(|rtt| rtt.is_finite()).collect();
    let mean = measured.iter().sum::<f64>() / measured.len() as f64;
    assert!((mean / 602.0 - 1.0).abs() < 0.15, "{mean}");
}

/// A transfer of one megabyte over five faultless hops.
fn transfer(change: impl FnOnce(&mut TcpSettings)) -> Simulation {
    let mut settings = settings("cubic");
    change(&mut settings);
    Chain { length: Some(1_000_000), ..five_hops(0.0) }.run(&settings, 60)
}

fn completion(simulation: &Simulation) -> Duration {
    let finished = simulation.recorder().borrow().flow(0).finished;
    finished.map_or(Duration::MAX, |at| at.since(Instant::ZERO))
}

#[test]
fn a_handshake_costs_a_round_trip_and_a_half() {
    // SYN, SYN-ACK and the request: 150 ms of propagation, and the transmission of three small packets per hop.
    let with = completion(&transfer(|_| ()));
    let without = completion(&transfer(|s| s.handshake = false));
    let cost = (with - without).as_millis_f64();
    assert!((150.0..151.0).contains(&cost), "{cost}");
}

#[test]
fn the_receive_window_limits_the_rate() {
    let mut settings = settings("cubic");
    settings.receive_window = 100_000;
    let measured = mbps(&five_hops(0.0).run(&settings, 60), 10, 60);
    // 100 kB in a round trip of 100 ms and the transmission of a segment over five hops.
    let expected = 0.8 / 0.103;
    assert!((measured / expected - 1.0).abs() < 0.05, "{measured} for {expected}");
}

#[test]
fn a_split_at_every_hop_fills_a_lossy_path() {
    let whole = mbps(&five_hops(0.005).run(&settings("cubic"), 120), 10, 120);
    let split = five_hops(0.005).split().run(&settings("cubic"), 120);
    let measured = mbps(&split, 10, 120);
    assert!(whole < 1.0 && measured > 8.0, "{whole} whole, {measured} split");
    // Delays are still those between the source and the client.
    assert!(split.recorder().borrow().flow(0).delays().owd.quantile(0.0) >= 50e6);
}

#[test]
fn a_splice_with_a_small_buffer_holds_the_connection_before_it_back() {
    let behind_a_slow_hop = |buffer| {
        let mut settings = settings("newreno");
        settings.split_buffer = buffer;
        settings.mss = 1000;
        let last = LinkConfig { queue: QueueLimit::Packets(1000), ..five_hops(0.0).link(2, 10) };
        let chain = Chain { hops: 2, last: Some(last), ..five_hops(0.0) }.split();
        let simulation = chain.run(&settings, 30);
        let source = simulation.flows()[0].senders[0];
        let HostReport::Tcp(stats) = simulation.world().report(source) else { panic!("no TCP") };
        let delivered = simulation.recorder().borrow().flow(0).in_order_bytes;
        (stats.segments * 1000 - delivered, mbps(&simulation, 10, 30), simulation)
    };
    let (held, slow, simulation) = behind_a_slow_hop(Some(200_000));
    // The splice's buffer, one window under way to it, and the queue of the link behind it, which counts as part of
    // the buffer.
    assert!(held <= 250_000, "{held}, {slow}");
    assert!(slow > 1.8, "{slow}, {held}");
    assert!(simulation.recorder().borrow().problems().is_empty());
    // Without a limit the source runs ahead by all that the first hop carries and the second does not.
    let (ahead, _, _) = behind_a_slow_hop(None);
    assert!(ahead > 20_000_000, "{ahead}");
}

#[test]
fn controls_that_go_by_delay_fill_many_hops_because_only_data_measures_the_base() {
    // A SYN takes 0.1 ms less than a full segment on each link: taken for the base, it reads as three packets of queue.
    for control in ["vegas", "fast"] {
        let measured = mbps(&five_hops(0.0).run(&settings(control), 60), 10, 60);
        assert!(measured > 0.97 * 20.0 * 1448.0 / 1500.0, "{control}: {measured}");
    }
}
