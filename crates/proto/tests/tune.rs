mod support;
use starhop_proto::config::{Config, Profile};
use starhop_proto::time::Duration;
use support::{Path, Rig, in_order_delays, ms};
#[test]
fn tune() {
    for which in [Profile::Starhop] {
        for loss in [0.01] {
            let config = Config::new(which.settings()).unwrap();
            let payload = config.payload as f64;
            let mut rig = Rig::chain(5, config, None, Path { loss, ..Path::default() });
            rig.start();
            rig.run(ms(5_000), |_| false);
            let before = rig.client().in_order_end();

            rig.run(ms(55_000), |_| false);
            let goodput = (rig.client().in_order_end() - before) as f64 * 8.0 / 55.0;
            let ideal = 20e6 * (1.0 - loss) * payload / (payload + 56.0);
            let mut d = in_order_delays(&mut rig);
            d.sort();
            let mean = d.iter().map(|d| d.as_millis_f64()).sum::<f64>() / d.len() as f64;
            let q = |p: f64| d[(d.len() as f64 * p) as usize].as_millis_f64();
            let s = rig.client().stats();
            println!(
                "{which:?} loss {loss}: {:.4} of ideal, mean {mean:.1} p50 {:.1} p99 {:.1} max {:.1}; timeouts {} dup {} ret {:.4} srv {:.4}",
                goodput / ideal,
                q(0.5),
                q(0.99),
                q(0.9999),
                s.timeouts,
                s.duplicate_bytes,
                rig.backward.1 as f64 / rig.forward.1 as f64,
                rig.server().source().reads as f64 / rig.client().in_order_end() as f64
            );
            let _ = Duration::ZERO;
        }
    }
}
