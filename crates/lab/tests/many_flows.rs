//! Many flows at once, in virtual time and therefore exactly.

mod support;

use starhop_lab::result::LinkResult;
use support::run;

#[test]
fn a_large_group_is_summed_up_and_a_small_one_is_listed_as_well() {
    let flows =
        |count: u32| run("crowd.toml", &[&format!("flow.a.count={count}"), "duration=300ms", "warmup=0s"]);
    let (small, large) = (flows(20), flows(1001));
    assert_eq!((small.flows.len(), large.flows.len()), (20, 0));
    let series = |result: &starhop_lab::result::RunResult| result.series.as_ref().map(|s| s.flows.len());
    assert_eq!((series(&small), series(&large)), (Some(20), Some(0)));
    let group = &small.groups[0];
    let listed: f64 = small.flows.iter().map(|flow| flow.goodput_mbps).sum();
    assert!((group.goodput_mbps.sum - listed).abs() < 1e-3, "{} and {listed}", group.goodput_mbps.sum);
    assert_eq!((group.name.as_str(), group.count, large.groups[0].count), ("a", 20, 1001));
    let text = serde_json::to_string(&large).expect("a document");
    assert!(text.len() < 20_000, "{} bytes", text.len());
}

/// A tenth of the rate of the scenario, and a tenth of the flows, at once and one after the other.
#[test]
fn every_flow_of_a_crowd_gets_its_share_and_all_together_the_path() {
    for (count, stagger) in [(10, "0s"), (100, "0s"), (200, "0s"), (1000, "0s"), (1000, "1ms")] {
        let (count_is, stagger) = (format!("flow.a.count={count}"), format!("flow.a.stagger={stagger}"));
        let result = run(
            "crowd.toml",
            &[&count_is, &stagger, "flow.a.options.cache=8MiB", "topology.link.rate=100Mbit", "duration=12s"],
        );
        let group = &result.groups[0];
        let (share, jain, timeouts) = (group.efficiency, result.jain, group.timeouts);
        println!("{count} flows: {:.2} % of the ideal, Jain {jain:.4}, {timeouts} timeouts", 100.0 * share);
        assert!(share >= 0.97 && jain >= 0.95, "{count} flows: {share}, Jain {jain}");
        assert_eq!(timeouts, 0, "{count} flows");
    }
}

/// Each flow finds all those before it, which stay. On a path that loses nothing, the first answer of each passed for the end of a
/// silence, and 6,629 requests were made in vain (with 1,000 flows on a gigabit a second, 10,000 in all, 48,625 and 1,768 timeouts):
/// a flow asked for 195 kB before its first answer, and what its neighbour had no room for left a hole.
#[test]
fn flows_that_come_one_by_one_and_stay_ask_for_nothing_twice() {
    let slow = ["topology.link.rate=100Mbit", "flow.a.options.cache=16MiB", "duration=8s"];
    for (count, stagger) in [(1000, "5ms"), (300, "20ms")] {
        let (count_is, stagger) = (format!("flow.a.count={count}"), format!("flow.a.stagger={stagger}"));
        let result = run("crowd.toml", &[&[count_is.as_str(), &stagger], &slow[..]].concat());
        let (group, relays) =
            (&result.groups[0], result.relays.iter().map(|relay| relay.repairs).sum::<u64>());
        println!("{count} flows: Jain {:.4}, {} repairs, {relays} of relays", result.jain, group.repairs);
        assert_eq!((group.repairs, relays, group.timeouts), (0, 0, 0), "{count} flows");
        assert!(result.jain >= 0.95 && group.efficiency >= 0.97, "{count}: {}", result.jain);
    }
}

/// A capacity of 10 and 20 Mbit/s in turn, a second each: a crowd follows it as well as one flow does, with noise and without.
#[test]
fn a_crowd_has_as_much_of_a_rate_that_moves_as_one_flow() {
    let noise = ["topology.link.loss=0.5%", "topology.link.delay={mean='40ms', jitter='3ms'}"];
    for more in [&noise[..0], &noise[..]] {
        let [one, many] = [1, 300].map(|count| {
            let result =
                run("moving-rate.toml", &[&[format!("flow.a.count={count}").as_str()], more].concat());
            let group = &result.groups[0];
            println!(
                "{count} flows, {more:?}: {:.3} of the ideal, Jain {:.4}",
                group.efficiency, result.jain
            );
            (group.efficiency, result.jain)
        });
        assert!(many.0 >= 0.99 * one.0 && many.1 >= 0.95, "{more:?}: {one:?} {many:?}");
    }
}

/// The relays have 437 bytes of cache for each flow, a third of a packet, and 64 blocks for all. A relay that asks for more than it
/// has room for evicts what waits, is asked for it again, and carries a part of the path or nothing.
#[test]
fn relays_with_less_memory_than_a_packet_of_each_flow_carry_the_path() {
    let crowd = |more: &[&str]| {
        let of_all =
            ["flow.a.count=600", "flow.a.options.cache=256KiB", "topology.link.rate=30Mbit", "duration=6s"];
        let result = run("crowd.toml", &[&of_all, more].concat());
        let group = &result.groups[0];
        let (share, jain, timeouts) = (group.efficiency, result.jain, group.timeouts);
        println!("{more:?}: {:.2} % of the ideal, Jain {jain:.4}, {timeouts} timeouts", 100.0 * share);
        (share, jain, timeouts)
    };
    for stagger in ["0s", "2ms"] {
        let (share, jain, timeouts) = crowd(&[&format!("flow.a.stagger={stagger}")]);
        assert!(
            share >= 0.95 && jain >= 0.95 && timeouts == 0,
            "{stagger}: {share}, Jain {jain}, {timeouts}"
        );
    }
    let (without, ..) = crowd(&["flow.a.options.room=false"]);
    assert!(without < 0.9, "{without}: the mechanism changes nothing");
}

/// Forgotten bytes come once more for the second client, which gains on the first until they read together. With a
/// file each they take 40.9 s from 5 s on, and 29.2 s from 15 s on.
#[test]
fn readers_of_one_file_at_different_places_meet_and_neither_starves() {
    for (start, [most_first, most_second, most_megabytes]) in
        [("5s", [31.5, 26.5, 78.0]), ("15s", [35.3, 28.7, 108.0])]
    {
        let result = run("readers-apart.toml", &[&format!("flow.second.start={start}")]);
        let hop = |link: &&LinkResult| link.name == "gateway-ship" && link.direction == "forward";
        let bytes = result.links.iter().find(hop).expect("the hop").bytes;
        let [first, second] = [0, 1].map(|n| result.flows[n].completion_s.expect("all of the file"));
        let megabytes = bytes as f64 / 1e6;
        println!("from {start} on: {first:.1} and {second:.1} s, {megabytes:.1} MB over the hop");
        assert!(first <= most_first && second <= most_second, "{start}: {first} and {second} s");
        assert!(megabytes <= most_megabytes, "{start}: {megabytes} MB");
    }
}

/// Both clients' own links carry half of what the hop does: what waits there for one holds back nothing of the other.
#[test]
fn a_reader_behind_a_slow_link_does_not_slow_down_one_at_another_place() {
    let slow = ["topology.link.rate=10Mbit", "topology.edge.0.rate=100Mbit", "topology.edge.1.rate=50Mbit"];
    let result = run("readers-apart.toml", &slow);
    let times = [0, 1].map(|n| result.flows[n].completion_s.expect("all of the file"));
    println!("{times:.1?}");
    assert!(times[0] <= 43.8 && times[1] <= 43.3, "{times:?}");
}

/// A tenth of the rate and of the arrivals of "1,000 files of 100 kB a second on a gigabit".
#[test]
fn small_files_that_arrive_at_four_fifths_of_the_load_take_less_than_three_times_as_long_as_alone() {
    let of = |count: u32| {
        let changes = [
            &format!("flow.a.count={count}"),
            "flow.a.stagger=10ms",
            "flow.a.size=100kB",
            "topology.link.rate=100Mbit",
            "duration=20s",
        ];
        run("crowd.toml", &changes).groups.remove(0)
    };
    let (alone, many) = (of(1), of(1500));
    let (took, median, p99) = (alone.completion_s.max, many.completion_s.p50, many.completion_s.p99);
    println!("alone {took} s; median {median} s, p99 {p99} s; {} timeouts", many.timeouts);
    assert_eq!((many.completed, many.timeouts), (1500, 0));
    // The first arrivals find hops that nobody has measured.
    assert!(p99 <= 3.0 * took && median <= took, "alone {took} s, median {median} s, p99 {p99} s");
}

/// A second of requests finds the queues of one moment: the mean of four, which begin 12 ms apart, counts. Eight had 66.8 to 72.7 ms, and
/// 60.4 alone.
#[test]
fn a_request_of_one_packet_does_not_wait_behind_a_crowd() {
    let sparse = |changes: &[&str]| {
        let mut all =
            vec!["topology.link.rate=100Mbit", "flow.bulk.count=100", "flow.sparse.options.cache=8MiB"];
        all.extend(["flow.bulk.options.cache=8MiB"].iter().chain(changes));
        let groups = run("crowd-mixed.toml", &all).groups;
        let group = groups.into_iter().find(|group| group.name == "sparse").expect("its group");
        assert_eq!(group.completed, 100, "{changes:?}");
        group.completion_s.p99
    };
    let alone = sparse(&["flow.bulk.start=13.9s"]);
    let beside = [0, 12, 24, 36].map(|ms| sparse(&[&format!("flow.sparse.start={}ms", 3_000 + ms)]));
    println!("alone {alone} s, beside a crowd {beside:?} s");
    assert!(beside.iter().sum::<f64>() / 4.0 <= 1.2 * alone, "{beside:?} s instead of {alone} s");
}

/// Files that come before the last ones are complete, over hops with jitter and loss. If each began with what all those
/// before it came to together, 99 of 100 would take up to 13.6 s, and 22 requests would time out. The first of them find hops
/// that know nothing: the 99th percentile of twelve seeds is 0.8 to 1.9 s.
#[test]
fn files_that_overlap_in_jitter_and_loss_begin_with_a_part_of_the_path_each() {
    let changes =
        ["flow.a.count=40", "flow.a.size=500kB", "flow.a.stagger=300ms", "warmup=0s", "duration=20s"];
    let seeds = ["seed=1", "seed=2", "seed=3", "seed=4"];
    let p99 = seeds.map(|seed| {
        let files = run("noise-jitter.toml", &[&changes[..], &[seed]].concat()).groups.remove(0);
        println!("{seed}: median {} s, p99 {} s", files.completion_s.p50, files.completion_s.p99);
        assert_eq!((files.completed, files.timeouts), (40, 0));
        assert!(files.completion_s.p50 <= 0.8, "{} s", files.completion_s.p50);
        files.completion_s.p99
    });
    assert!(p99.iter().sum::<f64>() / 4.0 <= 1.6, "{p99:?} s");
}

/// Flows that begin together on hops of 100 Mbit/s with 6 ms of jitter, and the share of the ideal that they have together in `seconds`.
fn begun_in_jitter(count: u64, loss: &str, seconds: [u64; 2], more: &[&str]) -> f64 {
    let [warmup, duration] = seconds.map(|at| format!("{at}s"));
    let changes = [
        &format!("flow.a.count={count}"),
        &format!("topology.link.loss={loss}"),
        "topology.link.rate=100Mbit",
        &format!("duration={duration}"),
        &format!("warmup={warmup}"),
    ];
    let efficiency = run("noise-jitter.toml", &[&changes[..], more].concat()).groups.remove(0).efficiency;
    println!("{count} flows, {loss}: {efficiency} of the ideal");
    efficiency
}

/// Delays of 4 to 16 ms in order grow with the rate by themselves, and few packets make any least of them. A link looked full at a third
/// of its rate with 100 flows and at a sixth with 300 (31 and 15 Mbit/s), and with losses at less (17 and 18), for more than 8 s.
#[test]
fn crowds_find_the_rate_of_a_fast_path_with_jitter_within_three_seconds() {
    for (count, loss) in [(1, "0%"), (100, "0%"), (300, "0%"), (300, "0.5%")] {
        let efficiency = begun_in_jitter(count, loss, [3, 8], &["flow.a.options.cache=8MiB"]);
        assert!(efficiency >= 0.97, "{count} flows, {loss}: {efficiency} of the ideal");
    }
}

/// As above, over hops whose round trip is many times the jitter. One flow had 53 to 91 %, 300 had 25 to 75, and with losses 17 to 51.
/// Eight seeds of 300 flows have 96.3 to 98.4 %, and 94.2 to 97.5 with losses, where 97 are the goal: the mean of four counts.
#[test]
fn crowds_find_the_rate_of_a_long_path_with_jitter_within_ten_seconds() {
    for (count, loss, least) in [(1, "0%", 0.97), (300, "0%", 0.97), (300, "0.5%", 0.96)] {
        let long = [
            "topology.hops=3",
            "topology.link.delay.mean=50ms",
            "topology.link.queue=10000p",
            "flow.a.options.cache=16MiB",
        ];
        let shares = ["seed=1", "seed=2", "seed=3", "seed=4"]
            .map(|seed| begun_in_jitter(count, loss, [10, 20], &[&long[..], &[seed]].concat()));
        let efficiency = shares.iter().sum::<f64>() / 4.0;
        assert!(efficiency >= least, "{count} flows, {loss}: {efficiency} of the ideal");
    }
}

/// Packets that overtake each other are counted as they come, and most of those of a crowd are short: marks of pauses. Taken for full ones
/// they made the links carry half as much again as they could: 64 % of the ideal at 1,062 ms of queue, and 95 % at 517 with losses.
#[test]
fn a_crowd_keeps_its_queue_short_where_packets_overtake_each_other() {
    for (jitter, loss) in [("1ms", "0%"), ("6ms", "0.5%")] {
        let delay = format!("topology.link.delay={{mean='10ms', jitter='{jitter}', keeps_order=false}}");
        let loss_is = format!("topology.link.loss={loss}");
        let wide = [
            "topology.link.rate=100Mbit",
            "flow.a.count=300",
            "flow.a.options.cache=16MiB",
            "duration=10s",
            "warmup=5s",
        ];
        let result = run("crowd.toml", &[&[delay.as_str(), &loss_is], &wide[..]].concat());
        let (share, queue_ms) = (result.groups[0].efficiency, result.groups[0].queueing_ms.mean);
        println!(
            "{jitter}, {loss}: {share:.4} of the ideal, queue {queue_ms:.0} ms, Jain {:.4}",
            result.jain
        );
        assert!(
            share >= 0.97 && queue_ms <= 140.0 && result.jain >= 0.95,
            "{jitter}: {share}, {queue_ms} ms"
        );
    }
}

/// Delays that vary by themselves and keep their order grow with the rate, and the least of a few hundred packets lies above that of
/// many thousands. Taken for a queue that held a gigabit at 27 % of itself with 1 ms of jitter, and at 58 % with 3.
#[test]
fn a_gigabit_whose_delays_vary_is_used() {
    for jitter in ["1ms", "3ms"] {
        let delay = format!("topology.link.delay={{mean='10ms', jitter='{jitter}'}}");
        let one = ["flow.a.count=1", "flow.a.options.cache=64MiB", "duration=10s", "warmup=7s"];
        let flow = &run("crowd.toml", &[&[delay.as_str()], &one[..]].concat()).flows[0];
        println!("{jitter}: {:.4} of the ideal, queue {:.1} ms", flow.efficiency, flow.queueing_ms.mean);
        assert!(flow.efficiency >= 0.97 && flow.queueing_ms.mean <= 15.0, "{jitter}: {}", flow.efficiency);
    }
}

/// The same on hops of 500 Mbit/s and 50 ms, where it ended the start of a flow at 150 Mbit/s: 39 % of the ideal in these seconds, and 57 for
/// a hundred flows with losses.
#[test]
fn fast_and_long_hops_whose_delays_vary_are_full_soon() {
    for (count, loss) in [(1, "0%"), (100, "0.5%")] {
        let (count_is, loss_is) = (format!("flow.a.count={count}"), format!("topology.link.loss={loss}"));
        let hops = ["topology.link.rate=500Mbit", "topology.link.delay={mean='50ms', jitter='3ms'}"];
        let rest = ["topology.link.queue=20000p", "flow.a.options.cache=64MiB", "duration=12s", "warmup=8s"];
        let flow = &run("crowd.toml", &[&[count_is.as_str(), &loss_is], &hops[..], &rest].concat());
        let (share, queue) = match flow.groups.first() {
            Some(group) => (group.efficiency, group.queueing_ms.mean),
            None => (flow.flows[0].efficiency, flow.flows[0].queueing_ms.mean),
        };
        println!("{count} flows, loss {loss}: {share:.4} of the ideal, queue {queue:.1} ms");
        assert!(share >= 0.90 && queue <= 25.0, "{count}: {share}, {queue} ms");
    }
}

/// Losses of a round trip make hundreds of holes. Beyond 256 of them, and 512 ranges, nothing was repaired any more, what a relay
/// waited for took all its room, and repairs were refused for want of room: nothing at all came after the second second. At a tenth of loss
/// six seeds have between 0.77 and 0.83 of the ideal; the figure `noise-losses` has the goal, 0.85, and misses it.
#[test]
fn a_gigabit_that_loses_much_goes_on() {
    for (hops, delay, loss, least) in
        [(2, "23ms", "5%", 0.93), (2, "23ms", "10%", 0.75), (1, "300ms", "0.5%", 0.97)]
    {
        let (hops_are, delay_is) = (format!("topology.hops={hops}"), format!("topology.link.delay={delay}"));
        let loss_is = format!("topology.link.loss={loss}");
        let rest = ["topology.link.queue=60000p", "flow.a.count=1", "duration=9s", "warmup=6s"];
        let flow =
            &run("crowd.toml", &[&[hops_are.as_str(), &delay_is, &loss_is], &rest[..]].concat()).flows[0];
        println!("{hops} hops of {delay}, {loss}: {:.4}, {:.1} ms", flow.efficiency, flow.queueing_ms.mean);
        assert!(flow.efficiency >= least, "{hops} hops, {loss}: {}", flow.efficiency);
    }
}

/// Requests that were lost in an outage passed for requests that wait: others' bytes waited for ten seconds, behind bytes of the same flow,
/// and those who had lost theirs waited twice as long before they asked; relays told them that the bytes were on their way. 21 of 60 flows
/// had nothing for twenty seconds, 46 of 100, and 9 of 60.
#[test]
fn after_an_outage_no_flow_of_a_crowd_is_left_behind() {
    let far = [
        "topology.hops=2",
        "topology.link.rate=3Mbit",
        "topology.link.delay=280ms",
        "topology.link.queue=300p",
    ];
    let thrice =
        ["topology.link.outage={times=[['3.7s','4s'],['7.2s','7.5s'],['10.7s','11s']]}", "flow.a.count=60"];
    let lossy = [
        "topology.hops=4",
        "topology.link.rate=10Mbit",
        "topology.link.delay=20ms",
        "topology.link.queue=1000p",
        "topology.link.loss=5%",
    ];
    let once = ["topology.link.outage={times=[['2s','3s']]}", "flow.a.count=100"];
    let middle = [
        "topology.hops=3",
        "topology.link.rate=10Mbit",
        "topology.link.delay=50ms",
        "topology.link.queue=1000p",
        "topology.link.loss=0.5%",
    ];
    let twice = ["topology.link.outage={times=[['2s','3s'],['5s','6s']]}", "flow.a.count=60"];
    // Losses make the least a matter of chance: 0.25 to 0.72 over six seeds before flows had their max-min share, 0.54 to 0.66 since.
    let least_of = |link: &[&str], outages: [&str; 2], seed: u64| {
        let seed = format!("seed={seed}");
        let rest = ["flow.a.stagger=1ms", "duration=40s", "warmup=20s", &seed];
        let result = run("crowd.toml", &[link, &outages, &rest].concat());
        let least = result.flows.iter().map(|flow| flow.goodput_mbps).fold(f64::MAX, f64::min);
        let share = result.groups[0].goodput_mbps.sum / result.flows.len() as f64;
        println!("{}: the least has {:.2} of the mean, Jain {:.3}", outages[0], least / share, result.jain);
        assert!(result.jain >= 0.98, "{}: {}", outages[0], result.jain);
        least / share
    };
    let (far, middle) = (least_of(&far, thrice, 1), least_of(&middle, twice, 1));
    assert!(far >= 0.6 && middle >= 0.6, "{far}, {middle}");
    let lossy = (1..=3).map(|seed| least_of(&lossy, once, seed)).sum::<f64>() / 3.0;
    assert!(lossy >= 0.5, "{lossy}");
}

/// A flow that had waited for its turn for ten seconds took a lost request for one that waits: twice as long, and its relays said the same when
/// they were asked, while nothing came by the hop any more. One of 200 files came after 34.5 s where the others took 12, four after 52 to 78
/// of 37, one after 30 of 24.
#[test]
fn the_last_of_a_crowd_do_not_wait_for_those_who_have_gone() {
    let slow =
        ["topology.hops=3", "topology.link.rate=3Mbit", "topology.link.loss=0.5%", "topology.link.queue=32p"];
    let far = [
        "topology.link.delay={mean='20ms', jitter='6ms'}",
        "flow.a.size=20kB",
        "flow.a.stagger=10ms",
        "seed=788",
    ];
    let slower =
        ["topology.hops=5", "topology.link.rate=1Mbit", "topology.link.loss=0.1%", "topology.link.queue=20p"];
    let less = [
        "topology.link.delay={mean='20ms', jitter='2ms'}",
        "flow.a.size=20kB",
        "flow.a.stagger=1ms",
        "seed=561",
    ];
    let lossy =
        ["topology.hops=5", "topology.link.rate=10Mbit", "topology.link.loss=5%", "topology.link.queue=20p"];
    let near = ["topology.link.delay=2ms", "flow.a.size=100kB", "seed=220"];
    for (link, flows, most) in [(slow, &far[..], 15.0), (slower, &less, 42.0), (lossy, &near, 27.0)] {
        let rest = ["flow.a.count=200", "topology.link.loss_direction=both", "duration=90s", "warmup=0s"];
        let result = run("crowd.toml", &[&link[..], flows, &rest].concat());
        let (group, of) = (&result.groups[0], &result.groups[0].completion_s);
        println!("{}: {} done, half in {:.1} s, all in {:.1} s", link[1], group.completed, of.p50, of.max);
        assert!(group.completed == 200 && of.max <= most, "{}: {} s", link[1], of.max);
    }
}

/// A flow shares a hop with a crowd that a narrower link holds back behind it. Relays told their upstreams an equal part of the hop for
/// each flow: beside 100 it had 1.85 of the 47.5 Mbit/s that the crowd cannot use, beside 300 a quarter of one.
#[test]
fn what_a_crowd_cannot_use_of_a_hop_is_left_to_others() {
    let noisy = [
        "topology.link.loss=1%",
        "topology.override=[{link='teleport-hub', delay={mean='20ms', jitter='4ms'}}]",
    ];
    for (count, more, least) in [(10, &[][..], 41.0), (100, &[], 43.0), (300, &[], 38.0), (100, &noisy, 36.0)]
    {
        let count_is = format!("flow.crew.count={count}");
        let result = run("crowd-beside.toml", &[&[count_is.as_str()], more].concat());
        let island = result.flows.iter().find(|flow| flow.name == "island").expect("it is listed");
        let crew = result.groups.iter().find(|group| group.name == "crew").expect("a group");
        let (had, share) = (island.goodput_mbps, crew.efficiency);
        println!("beside {count}: {had:.1} Mbit/s, {:.1} ms; {share:.3}", island.queueing_ms.mean);
        assert!(had >= least && island.queueing_ms.mean <= 15.0, "beside {count}: {had}");
        assert!(share >= 0.88, "a crew of {count}: {share}");
    }
}

/// Repairs are asked for again as often as packets of the hop come. While none came the ten flows that began used that up, and nothing was
/// ever asked for again: they and the one before them stood for good.
#[test]
fn flows_that_begin_while_a_hop_is_gone_come_when_it_is_back() {
    let gone = [
        "topology.link.rate=30Mbit",
        "topology.link.delay=5ms",
        "topology.link.queue=300p",
        "topology.override=[{hop=1, outage={times=[['3s','7s']]}}]",
        "flow.bulk.count=1",
        "flow.bulk.options={}",
        "flow.sparse.options={}",
        "flow.sparse.size=20kB",
        "flow.sparse.start=3.5s",
        "flow.sparse.stagger=0s",
        "duration=20s",
        "warmup=12s",
    ];
    for count in [10, 100] {
        let count_is = format!("flow.sparse.count={count}");
        let result = run("crowd-mixed.toml", &[&gone[..], &[&count_is]].concat());
        let (bulk, files): (Vec<_>, Vec<_>) =
            result.flows.iter().partition(|flow| flow.name.starts_with("bulk"));
        let last = files.iter().map(|file| file.completion_s.unwrap_or(f64::MAX)).fold(0.0, f64::max);
        println!("{count}: the last after {last:.2} s, {:.1} Mbit/s", bulk[0].goodput_mbps);
        assert!(last <= 5.5, "{count}: the hop is back after 3.5 s, the last file there after {last}");
        assert!(bulk[0].goodput_mbps >= 27.0, "{count}: {}", bulk[0].goodput_mbps);
    }
}

/// A packet of a slow link is lost by time before two later ones tell of it. The losses of a queue that ran over counted as carried, and
/// alarmed nobody: the hop was granted up to 18 of its 2 Mbit/s, lost four packets of five, and carried half (seed 3) or three quarters.
#[test]
fn a_slow_hop_whose_queue_runs_over_is_granted_what_it_carries() {
    let hops = "topology.override=[{hop=2, rate='2Mbit', delay={mean='270ms', jitter='4ms', keeps_order=false}, \
                loss='5%', queue='42p'}, {hop=3, delay='1ms'}]";
    for seed in ["seed=1", "seed=3"] {
        let path = ["topology.link.rate=6Mbit", "topology.link.delay=60ms", "topology.link.queue=64p", hops];
        let rest = ["flow.a.count=150", "duration=40s", "warmup=10s", seed];
        let result = run("crowd.toml", &[&path[..], &rest].concat());
        let narrow = |link: &&LinkResult| link.name == "r1-r2" && link.direction == "forward";
        let hop = result.links.iter().find(narrow).expect("the second hop");
        let sum = result.groups[0].goodput_mbps.sum;
        println!(
            "{seed}: {sum:.2} Mbit/s, Jain {:.3}, {} of {} dropped",
            result.jain, hop.dropped, hop.packets
        );
        assert!(sum >= 1.5 && result.jain >= 0.8, "{seed}: {sum}, {}", result.jain);
        assert!(hop.dropped * 3 <= hop.packets, "{seed}: {} of {}", hop.dropped, hop.packets);
    }
}
