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
