mod support;
use starhop_proto::config::{Config, Profile};
use support::{Path, Rig, in_order_delays, ms};
#[test]
fn tune2() {
    for hops in [1, 2, 5] {
        let config = Config::new(Profile::Starhop.settings()).unwrap();
        let mut rig = Rig::chain(hops, config, None, Path { loss: 0.01, ..Path::default() });
        rig.start();
        rig.run(ms(60_000), |_| false);
        let arr = rig.client().sink().arrivals.clone();
        let mut max = 0;
        let mut first: std::collections::BTreeMap<u64, starhop_proto::time::Instant> = Default::default();
        let mut rep = vec![];
        let mut owd = vec![];
        let sent: std::collections::BTreeMap<_, _> =
            rig.server().source().first_reads.iter().copied().collect();
        for (at, r) in arr {
            if at.as_nanos() < 1_005_000_000_000 {
                max = max.max(r.end);
                continue;
            }
            if r.start >= max {
                if r.start > max {
                    first.insert(max, at);
                }
                max = r.end;
                owd.push(at.since(*sent.range(..=r.start).last().unwrap().1).as_millis_f64());
            } else {
                if let Some((_, t)) = first.range(..=r.start).last() {
                    rep.push(at.since(*t).as_millis_f64());
                }
            }
        }
        rep.sort_by(f64::total_cmp);
        owd.sort_by(f64::total_cmp);
        let q = |v: &Vec<f64>, p: f64| v[(v.len() as f64 * p) as usize];
        println!(
            "hops {hops} n {} repair p5 {:.1} p50 {:.1} p90 {:.1} p95 {:.1} p98 {:.1} p99 {:.1} p999 {:.1} | owd first p5 {:.1} p50 {:.1} p90 {:.1} p99 {:.1}",
            rep.len(),
            q(&rep, 0.05),
            q(&rep, 0.5),
            q(&rep, 0.9),
            q(&rep, 0.95),
            q(&rep, 0.98),
            q(&rep, 0.99),
            q(&rep, 0.999),
            q(&owd, 0.05),
            q(&owd, 0.5),
            q(&owd, 0.9),
            q(&owd, 0.99)
        );
        let d = in_order_delays(&mut rig);
        let _ = d;
    }
}
