//! Many flows at once, in virtual time and therefore exactly.

mod support;

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
