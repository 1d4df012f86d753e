mod support;
use starhop_proto::config::{Config, Profile};
use support::{Path, Rig, in_order_delays, ms};
#[test]
fn tune2() {
    for hops in [1, 2, 3] {
        let config = Config::new(Profile::Starhop.settings()).unwrap();
        let mut rig = Rig::chain(hops, config, None, Path::default());
        rig.start();
        for t in 0..40 {
            rig.run(ms(if t < 20 { 50 } else { 1000 }), |_| false);
            let n = rig.client().sink().arrivals.len();
            let (at, r) = rig.client().sink().arrivals[n - 1];
            let sent = rig.server().source().first_reads.iter().rev().find(|(o, _)| *o <= r.start).unwrap().1;
            print!("{:.1} ", at.since(sent).as_millis_f64());
        }
        println!();
    }
}
