//! The promises of the project about its own scenarios, in virtual time and therefore exact: bounds, printed beside
//! the numbers. Runs are shorter than the files say where that changes nothing.

mod support;

use starhop_lab::result::FlowResult;
use support::run;

fn show(what: &str, flow: &FlowResult) {
    println!(
        "{what}: {:.2} % of ideal, in order mean {:.1} ms, p99 {:.1} ms, queueing {:.1} ms, {} timeouts",
        100.0 * flow.efficiency,
        flow.in_order_owd_ms.mean,
        flow.in_order_owd_ms.p99,
        flow.queueing_ms.mean,
        flow.timeouts
    );
}

/// A relay that had held a flow back told its upstream once that this is over. Where that Interest was lost, the flow went on by a packet a
/// second, for up to ten seconds: 17, 33 and 0.1 % of the ideal in these; twenty flows had a p99 of 1.6 s.
#[test]
fn short_hops_that_lose_interests_stop_no_flow() {
    let show_all = |what: &str, hops: &[&str]| {
        let rest = ["topology.hops=5", "duration=20s", "warmup=5s"];
        let result = run("crowd.toml", &[hops, &rest].concat());
        let group = result.groups.first();
        let (share, p99) = group
            .map_or((result.flows[0].efficiency, result.flows[0].in_order_owd_ms.p99), |group| {
                (group.efficiency, group.in_order_owd_ms.p99)
            });
        println!("{what}: {:.1} % of the ideal, Jain {:.3}, p99 {p99:.0} ms", 100.0 * share, result.jain);
        (share, result.jain, p99)
    };
    let one =
        ["topology.link.rate=10Mbit", "topology.link.delay=1ms", "topology.link.loss=12%", "flow.a.count=1"];
    for seed in ["seed=1", "seed=2", "seed=3"] {
        let (share, _, p99) = show_all(seed, &[&one[..], &[seed, "topology.link.queue=10p"]].concat());
        assert!(share >= 0.6 && p99 <= 500.0, "{seed}: {share}, {p99} ms");
    }
    let many =
        ["topology.link.rate=50Mbit", "topology.link.delay=2ms", "topology.link.loss=8%", "flow.a.count=20"];
    let (share, jain, p99) = show_all("twenty", &[&many[..], &["topology.link.queue=1000p"]].concat());
    assert!(share >= 0.9 && jain >= 0.98 && p99 <= 300.0, "{share}, Jain {jain}, {p99} ms");
}

/// Each block of packets was an alarm, and cut the rate: 38, 36 and 13 % of the ideal. Two seeds have a share between them, because it
/// is chance when a loss is found to stay.
#[test]
fn a_hop_that_loses_a_quarter_and_more_is_used() {
    for (delay, rate, loss, least, most_ms) in [
        ("10ms", "20Mbit", "25%", 0.97, 300.0),
        ("10ms", "20Mbit", "30%", 0.95, 400.0),
        ("50ms", "50Mbit", "30%", 0.7, 2_500.0),
    ] {
        let (delay_is, rate_is) =
            (format!("topology.link.delay={delay}"), format!("topology.link.rate={rate}"));
        let loss_is = format!("topology.link.loss={loss}");
        let rest =
            ["topology.hops=1", "topology.link.queue=2000p", "flow.a.count=1", "duration=40s", "warmup=2s"];
        let seeds = ["seed=1", "seed=2"].map(|seed| {
            let changes = [&[seed, delay_is.as_str(), &rate_is, &loss_is], &rest[..]].concat();
            let flow = run("crowd.toml", &changes).flows.swap_remove(0);
            show(&format!("{rate}, {delay}, {loss}"), &flow);
            (flow.efficiency, flow.in_order_owd_ms.p99)
        });
        let share = f64::midpoint(seeds[0].0, seeds[1].0);
        assert!(share >= least, "{rate}, {delay}, {loss}: {share}");
        let p99 = seeds[0].1.max(seeds[1].1);
        assert!(p99 <= most_ms, "{rate}, {delay}, {loss}: {p99} ms in order");
    }
}

/// A burst of twenty lost packets made each block of 128 an alarm, which cut the rate: 67, 86 and 36 % of the ideal; 300 Mbit/s over 280 ms
/// carried 3 %.
#[test]
fn losses_in_bursts_cost_no_more_than_single_ones() {
    for (hops, rate, delay, mean, least) in [
        (1, "30Mbit", "20ms", "3%", 0.98),
        (1, "100Mbit", "20ms", "1%", 0.98),
        (2, "30Mbit", "280ms", "1%", 0.88),
    ] {
        let hops_are = format!("topology.hops={hops}");
        let (delay_is, rate_is) =
            (format!("topology.link.delay={delay}"), format!("topology.link.rate={rate}"));
        let loss = format!("topology.link.loss={{gilbert_elliott={{mean='{mean}',burst=20}}}}");
        let rest = [
            "topology.link.loss_direction=data",
            "topology.link.queue=5000p",
            "flow.a.count=1",
            "duration=20s",
            "warmup=8s",
        ];
        let changes = [&[hops_are.as_str(), &delay_is, &rate_is, &loss], &rest[..]].concat();
        let flow = &run("crowd.toml", &changes).flows[0];
        show(&format!("{hops} of {rate}, {delay}, {mean} in bursts"), flow);
        assert!(flow.efficiency >= least, "{hops} of {rate}, {delay}, {mean}: {}", flow.efficiency);
    }
}

#[test]
fn five_lossy_hops_carry_99_percent_of_the_ideal_at_every_loss_in_either_direction() {
    for loss in ["0%", "0.1%", "0.5%", "1%"] {
        for direction in ["data", "both"] {
            let loss_is = format!("topology.link.loss={loss}");
            let direction_is = format!("topology.link.loss_direction={direction}");
            let result = run("five-lossy-hops.toml", &[&loss_is, &direction_is, "duration=35s"]);
            let flow = &result.flows[0];
            show(&format!("{loss} {direction}"), flow);
            assert!(flow.efficiency >= 0.99, "{loss} {direction}: {}", flow.efficiency);
            assert_eq!(flow.timeouts, 0, "{loss} {direction}");
            let forward =
                result.links.iter().filter(|link| link.direction == "forward").map(|link| link.bytes);
            let backward =
                result.links.iter().filter(|link| link.direction == "backward").map(|link| link.bytes);
            let share = backward.sum::<u64>() as f64 / forward.sum::<u64>() as f64;
            assert!(share <= 0.01, "return bytes {share}");
        }
    }
}

#[test]
fn five_lossy_hops_deliver_in_order_within_75_ms_on_average_and_110_ms_at_the_99th_percentile() {
    let ours = run("five-lossy-hops.toml", &[]);
    show("starhop", &ours.flows[0]);
    assert!(ours.flows[0].in_order_owd_ms.mean <= 75.0);
    assert!(ours.flows[0].in_order_owd_ms.p99 <= 110.0);
    assert!(ours.peak_rss_bytes <= 50_000_000 || cfg!(debug_assertions), "{}", ours.peak_rss_bytes);

    let published =
        run("five-lossy-hops.toml", &["flow.a.transport=leotp", "topology.link.loss_direction=data"]);
    show("leotp, data direction", &published.flows[0]);
    assert!(published.flows[0].efficiency >= 0.90);
    assert!(published.flows[0].in_order_owd_ms.p99 > 1.5 * ours.flows[0].in_order_owd_ms.p99);
}

/// Each hop's clocks go apart by 100 us a second, and the way of an Interest is the difference of two clocks.
#[test]
fn clocks_that_go_apart_cost_neither_rate_nor_delay() {
    let drift = "topology.clock_drift={r1='50ppm', r2='-50ppm', r3='50ppm', r4='-50ppm', client='50ppm'}";
    let flow = &run("five-lossy-hops.toml", &[drift, "duration=100s"]).flows[0];
    show("clocks that go apart", flow);
    assert!(flow.efficiency >= 0.99 && flow.queueing_ms.mean <= 8.0);
}

/// The way of Interests tells that the path itself is longer. Before, one run of twelve with 1 % of loss competed with nobody and had 70 %,
/// and trials for others cost 9 % of the rate with 6 %.
#[test]
fn in_noise_nobody_is_looked_for_on_a_path_that_has_become_longer_both_ways() {
    for (loss, least) in [("1%", 0.975), ("6%", 0.95), ("20%", 0.92)] {
        let runs = [4, 5, 6].map(|seed| {
            let loss_is = format!("topology.link.loss={loss}");
            let jitter = "topology.link.delay={mean='5ms', jitter='3ms'}";
            let flow = run("longer-path.toml", &[&loss_is, jitter, &format!("seed={seed}")]).flows.remove(0);
            show(loss, &flow);
            flow.efficiency
        });
        let mean = runs.iter().sum::<f64>() / 3.0;
        assert!(mean >= least, "{loss}: {runs:?}");
    }
}

#[test]
fn a_fluctuating_bottleneck_is_kept_full_with_five_milliseconds_of_queue() {
    let result = run("fluctuating-bottleneck.toml", &[]);
    show("fluctuating", &result.flows[0]);
    assert!(result.flows[0].efficiency >= 0.98);
    assert!(result.flows[0].queueing_ms.mean <= 5.0);
}

#[test]
fn a_cold_start_reaches_the_paths_rate_within_ten_round_trips() {
    let result = run("cold-start.toml", &["series_step=100ms"]);
    let flow = &result.flows[0];
    let series = &result.series.as_ref().expect("series").flows[0].goodput_mbps;
    let reached = series.iter().position(|rate| rate.is_some_and(|rate| rate >= 0.95 * flow.ideal_mbps));
    println!("95 % of {:.2} Mbit/s in the {reached:?}th round trip: {series:?}", flow.ideal_mbps);
    assert!(reached.is_some_and(|round_trip| round_trip < 10), "{reached:?}");
}

/// The first object passes nodes that have never met: each link's asker proves its address on the way.
#[test]
fn a_small_object_takes_less_than_two_round_trips_and_the_next_less_than_1_6() {
    let result = run("small-object.toml", &[]);
    let [met, known] = [0, 1].map(|flow| result.flows[flow].completion_s.expect("completed"));
    println!("100 kB over a path of 100 ms: {met:.3} s from nothing, {known:.3} s where nodes have met");
    assert!(met <= 0.2 && known <= 0.16);
}

#[test]
fn three_flows_on_one_link_share_it_within_three_seconds() {
    for file in ["three-flows-one-link.toml", "three-flows-unequal-rtt.toml"] {
        let result = run(file, &["duration=8s", "warmup=3s"]);
        println!("{file}: Jain's index {:.4} from 3 s to 8 s", result.jain);
        assert!(result.jain >= 0.99, "{file}: {}", result.jain);
    }
}

#[test]
fn the_server_sends_shared_content_once() {
    let result = run("sharing-a-movie.toml", &[]);
    let (source, longest) =
        (result.flows[0].source_bytes, result.flows.iter().map(|f| f.delivered_bytes).max());
    println!("{source} bytes sent for {} consumers of {longest:?}", result.flows.len());
    assert!(source as f64 <= 1.05 * longest.expect("flows") as f64);
}

#[test]
fn a_path_that_is_used_again_does_not_fetch_what_was_asked_of_it_before() {
    let result = run("parallel-switching.toml", &["duration=30s"]);
    show("switching every 2 s, what is under way is lost", &result.flows[0]);
    // 75 % if, on the client's return, the relay still fetches the ranges that it had been asked before.
    assert!(result.flows[0].efficiency >= 0.85, "{}", result.flows[0].efficiency);
}

/// A satellite hop that loses 5 % behind a ground hop of the same rate: its repairs are sent in addition to the
/// packets of the ground hop, so a queue grows although no sender is ever held by its grant. The bound is a fifth
/// above the delay when the lossy hop alone repairs, ground delay + d (1 + p) / (1 - p), of packets that take 0.57
/// ms per hop. Packets that are lost twice on the longest hop wait for 600 ms, and what they hold back makes the goodput of 30 s
/// uncertain by 1 %: sixty seeds have 97.3 ± 0.2 % on average. So there the mean of forty counts.
#[test]
fn repairs_on_top_of_a_full_link_do_not_leave_a_standing_queue() {
    let hops = [
        ("10ms", 10.0, 0.98, 1),
        ("50ms", 50.0, 0.98, 1),
        ("100ms", 100.0, 0.98, 1),
        ("150ms", 150.0, 0.97, 40),
    ];
    for (delay, d, least, seeds) in hops {
        let delay_is = format!("topology.override.0.delay={delay}");
        let flows = (1..=seeds).map(|seed| {
            let result =
                run("lossy-satellite-hop.toml", &[&delay_is, "duration=40s", &format!("seed={seed}")]);
            show(&format!("satellite hop of {delay}"), &result.flows[0]);
            (result.flows[0].owd_ms.mean, result.flows[0].efficiency)
        });
        let (delays, efficiencies): (Vec<f64>, Vec<f64>) = flows.unzip();
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (owd, efficiency) = (mean(&delays), mean(&efficiencies));
        let bound = 25.0 + d * (1.0 + 0.05) / (1.0 - 0.05) + 2.0 * 0.57;
        println!("mean delay {owd:.1} ms, repaired by the hop alone {bound:.1} ms");
        // Six seeds of 10 ms have 44.4 to 44.9 ms.
        assert!(owd <= 1.2 * bound + 0.4, "{delay}: {owd}");
        assert!(efficiency >= least, "{delay}: {efficiency}");
    }
}

/// Delays that differ from packet to packet by up to 6 ms either way, on each of five hops, are no congestion. The queues in
/// front of the links stay below the jitter itself. With loss seeds differ by 1 % (98.4 to 99.4 % of eight at 1 ms): the mean of four
/// counts.
#[test]
fn jitter_that_keeps_the_order_costs_no_rate_with_or_without_loss() {
    for jitter in [1.0, 3.0, 6.0] {
        for (loss, seeds) in [("0%", 1), ("0.5%", 4)] {
            let delay_is = format!("topology.link.delay={{mean='10ms',jitter='{jitter}ms'}}");
            let loss_is = format!("topology.link.loss={loss}");
            let efficiencies = (1..=seeds).map(|seed| {
                let result = run("noise-jitter.toml", &[&delay_is, &loss_is, &format!("seed={seed}")]);
                show(&format!("jitter of {jitter} ms, loss {loss}, seed {seed}"), &result.flows[0]);
                result.flows[0].efficiency
            });
            let mean = efficiencies.sum::<f64>() / f64::from(seeds);
            assert!(mean >= 0.985, "{jitter} ms, {loss}: {mean}");
        }
    }
}

/// A link whose capacity doubles and halves each second, the second of five hops, and one of 80 ms there and back whose path became as
/// long by 60 ms 20 s ago. What it carried a second ago it may carry again: without that memory the first had 93.9 %, and the second,
/// whose changes were taken for noise, too, 72 % at 63 ms of queue.
#[test]
fn a_capacity_that_comes_back_is_used_again() {
    let flow = &run("noise-doubling.toml", &[]).flows[0];
    show("doubling", flow);
    assert!(flow.efficiency >= 0.965 && flow.queueing_ms.mean <= 7.0, "{}", flow.efficiency);
    let rate = "topology.link.rate={square={mean='15Mbit',amplitude='5Mbit',period='2s'}}";
    let flow = &run("longer-path.toml", &[rate]).flows[0];
    show("doubling on a path that became longer", flow);
    assert!(flow.efficiency >= 0.92 && flow.queueing_ms.mean <= 40.0, "{}", flow.efficiency);
}

/// Filters of noise that forget by intervals have 72 % of a capacity that moves, on a hop of 80 ms. Quick ones for the base, too, leave a
/// long fast hop with a steady capacity at a third of its rate.
#[test]
fn a_capacity_that_moves_is_followed_in_noise() {
    let noisy = ["topology.link.delay={mean='40ms',jitter='3ms'}", "topology.link.loss=1%"];
    let flow = &run("moving-rate.toml", &noisy).flows[0];
    show("10 and 20 Mbit/s over 80 ms with 3 ms of jitter", flow);
    assert!(flow.efficiency >= 0.87 && flow.queueing_ms.mean <= 40.0, "{}", flow.efficiency);
    let changes = [
        "topology.link.rate=100Mbit",
        "topology.link.queue=4000p",
        "topology.link.delay={mean='150ms',jitter='6ms'}",
        "flow.a.options={cache='32MiB'}",
        "duration=20s",
        "warmup=10s",
        "seed=2",
    ];
    let flow = &run("moving-rate.toml", &changes).flows[0];
    show("100 Mbit/s over 300 ms with 6 ms of jitter", flow);
    assert!(flow.efficiency >= 0.95, "{}", flow.efficiency);
}

/// A handover that nobody announces: 60 ms more of round trip look like a queue, and what is late by it like lost capacity. Before
/// both were told apart, the hop fell to a tenth within 100 ms, found itself again after 10 s, and with losses competed for good with
/// itself: 96.6 % without losses, 12 to 89 % with 6 %, of which trials that show whether the rate makes the losses take up to a tenth.
#[test]
fn a_path_that_becomes_longer_is_used_as_the_one_before() {
    let jitter = "{mean='5ms',jitter='3ms'}";
    for (delay, loss, least) in [
        ("5ms", "0%", 0.985),
        ("5ms", "1%", 0.98),
        ("5ms", "6%", 0.87),
        (jitter, "0%", 0.95),
        (jitter, "6%", 0.8),
    ] {
        let (delay_is, loss_is) =
            (format!("topology.link.delay={delay}"), format!("topology.link.loss={loss}"));
        let flows = (1..=4).map(|seed| {
            let result = run("longer-path.toml", &[&delay_is, &loss_is, &format!("seed={seed}")]);
            show(&format!("{delay} and 30 ms more, loss {loss}"), &result.flows[0]);
            result.flows[0].efficiency
        });
        let mean = flows.sum::<f64>() / 4.0;
        assert!(mean >= least, "{delay}, {loss}: {mean}");
    }
}

/// With a faster link and a crowd, intervals whose packets come seldom vary by more than the noise that was known: the hop took that for
/// somebody else's queue, competed with nobody, and had 2.5 %. And what had been the least delay before the path became longer was that for a
/// minute: with two of eight seeds a little noise was a second change, as of a queue that grows.
#[test]
fn a_crowd_on_a_path_that_becomes_longer_is_not_taken_for_rivals() {
    for seed in [1, 4, 5, 6] {
        let result = run(
            "longer-path.toml",
            &[
                "flow.a.count=300",
                "topology.link={rate='200Mbit',delay={mean='5ms',jitter='3ms'},loss='1%',queue='10000p'}",
                "topology.override.0.rate=1Gbit",
                &format!("seed={seed}"),
            ],
        );
        let efficiency = result.groups[0].efficiency;
        assert!(efficiency >= 0.9, "seed {seed}: {efficiency}");
    }
}

/// Packets that overtake each other are late, and not lost: of 50,000 a few dozen are asked for again, those of the first moments.
/// With loss, 250 of each hop are lost; a build that asks again for 1,300 at 6 ms has 98 %. Seeds differ: the mean of four counts.
#[test]
fn jitter_that_swaps_packets_is_no_loss() {
    for jitter in [1.0, 3.0, 6.0] {
        for (loss, least, repairs, seeds) in [("0%", 0.99, 50, 1), ("0.5%", 0.985, 900, 4)] {
            let delay_is =
                format!("topology.link.delay={{mean='10ms',jitter='{jitter}ms',keeps_order=false}}");
            let loss_is = format!("topology.link.loss={loss}");
            let (mut efficiency, mut asked_again) = (0.0, 0);
            for seed in 1..=seeds {
                let result = run("noise-jitter.toml", &[&delay_is, &loss_is, &format!("seed={seed}")]);
                let flow = &result.flows[0];
                show(&format!("jitter of {jitter} ms, order not kept, loss {loss}"), flow);
                efficiency += flow.efficiency / seeds as f64;
                asked_again += flow.repairs / seeds;
            }
            assert!(asked_again <= repairs, "{jitter} ms, {loss}: {asked_again}");
            assert!(efficiency >= least, "{jitter} ms, {loss}: {efficiency}");
        }
    }
}

/// While nobody knows by how much delays vary, they look like a queue. A hop that took them for an old one granted nothing
/// for 8 s: seed 4 had 84 % here.
#[test]
fn jitter_of_6_ms_does_not_stop_a_start() {
    for seed in 1..=5 {
        let result = run("noise-jitter.toml", &[&format!("seed={seed}"), "duration=15s"]);
        let flow = &result.flows[0];
        show(&format!("jitter of 6 ms, seed {seed}"), flow);
        assert!(flow.efficiency >= 0.97, "seed {seed}: {}", flow.efficiency);
    }
}

/// The first rate is 14 Mbit/s. Before two packets told the time of one on the link, a link of 200 kbit/s was sent at it for a
/// round trip and more: 16 s of queue on average, 29 s at the 99th percentile. The packets that are sent before anything is known
/// take 1.8 s there, and 0.4 s at 1 Mbit/s. All of them are new data: where the first answer made them repairs, the mean was 165 ms, and
/// the link carried 94 % of new data at 200 kbit/s (90 with 250 ms).
#[test]
fn a_slow_link_is_not_flooded_at_the_start() {
    for (rate, delay, mean, p99, efficiency) in [
        ("200kbit", "50ms", 270.0, 1_850.0, 0.985),
        ("200kbit", "250ms", 220.0, 1_850.0, 0.955),
        ("1Mbit", "50ms", 60.0, 400.0, 0.985),
        ("1Mbit", "250ms", 60.0, 1_000.0, 0.955),
    ] {
        let changes = [
            "topology.hops=1",
            "topology.link.loss=0%",
            &format!("topology.link.rate={rate}"),
            &format!("topology.link.delay={delay}"),
            "duration=30s",
            "warmup=0s",
        ];
        let result = run("five-lossy-hops.toml", &changes);
        show(&format!("{rate}, {delay}"), &result.flows[0]);
        let queueing = result.flows[0].queueing_ms;
        assert!(queueing.mean <= mean && queueing.p99 <= p99, "{rate}, {delay}: {queueing:?}");
        assert!(result.flows[0].efficiency >= efficiency, "{rate}, {delay}: {}", result.flows[0].efficiency);
    }
}

/// At 100 Mbit/s a packet that is 12 ms late is overtaken by a hundred: with a limit of 32 it was repaired in vain, and
/// half of the link was left. Relays send what was overtaken in its place: where it went before all that waited, those that
/// had overtaken the others waited for up to 550 ms, and were asked for again.
#[test]
fn a_fast_link_that_swaps_packets_is_used() {
    let p99s = [1, 2, 3, 4].map(|seed| {
        let delay_is = "topology.link.delay={mean='10ms',jitter='6ms',keeps_order=false}";
        let link = ["topology.link.rate=100Mbit", "topology.link.queue=10000p", "topology.link.loss=0%"];
        let changes = [&link[..], &[delay_is, "flow.a.options={cache='16MiB'}", "duration=10s"]].concat();
        let result = run("noise-jitter.toml", &[&changes[..], &[&format!("seed={seed}")]].concat());
        let flow = &result.flows[0];
        show(&format!("100 Mbit/s, jitter of 6 ms, seed {seed}"), flow);
        assert!(flow.efficiency >= 0.99 && flow.repairs <= 50, "seed {seed}: {}", flow.efficiency);
        flow.in_order_owd_ms.p99
    });
    assert!(p99s.iter().sum::<f64>() / 4.0 <= 110.0, "{p99s:?}");
}

/// Its lagged bound, `starhop sim scenarios/noise-bursty.toml --lagged-bound 20ms`, is 97.8 % at 12.9 ms. Other levels make 14.6 to 22.7 ms
/// of queue: the mean of four counts.
#[test]
fn a_link_that_delivers_in_bursts_gets_a_queue_as_long_as_its_pauses() {
    let (mut efficiency, mut queue_ms) = (0.0, 0.0);
    for seed in 1..=4 {
        let rate = format!("topology.override.0.rate={{bursty={{seed={seed},period='120s'}}}}");
        let flow = &run("noise-bursty.toml", &[&rate]).flows[0];
        show(&format!("bursty, levels {seed}"), flow);
        efficiency += flow.efficiency / 4.0;
        queue_ms += flow.queueing_ms.mean / 4.0;
    }
    assert!(efficiency >= 0.955 && queue_ms <= 17.0, "{efficiency}, {queue_ms} ms");
}

/// Something drops what is above 12 Mbit/s and queues nothing. A hop that did not keep to the rate that it knew lost a fifth of
/// what it sent on 10 ms (12,431 packets, 164 ms for the last of a hundred), and had 85 % of the rate on 100 ms. The moment at which
/// it tries for more moves with each delay, and one run has 95 to 99 %: the mean of four or five counts.
#[test]
fn a_hop_keeps_to_the_rate_of_a_policer() {
    let near = [("8ms", 45.0), ("9ms", 40.0), ("10ms", 40.0), ("11ms", 40.0), ("12ms", 45.0)];
    let far = [("70ms", 400.0), ("80ms", 400.0), ("90ms", 400.0), ("100ms", 400.0)];
    for (runs, efficiency, dropped) in [(&near[..], 0.975, 150), (&far[..], 0.96, 50)] {
        let count = runs.len();
        let (mut mean, mut drops) = (0.0, 0);
        for (delay, p99) in runs {
            let result = run("policed-link.toml", &[&format!("topology.link.delay={delay}")]);
            let flow = &result.flows[0];
            show(&format!("policer of 12 Mbit/s, {delay}"), flow);
            mean += flow.efficiency / count as f64;
            drops += result.links.iter().map(|link| link.dropped).sum::<u64>();
            assert!(flow.in_order_owd_ms.p99 <= *p99, "{delay}: {:?}", flow.in_order_owd_ms);
        }
        println!("    {:.2} %, {drops} packets dropped in {count} runs", 100.0 * mean);
        assert!(mean >= efficiency, "{runs:?}: {mean}");
        assert!(drops <= dropped * count as u64, "{runs:?}: {drops}");
    }
}
