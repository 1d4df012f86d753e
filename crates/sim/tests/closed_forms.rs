//! The congestion controls against the formulas that their authors give, over one link that loses every n-th packet as
//! those formulas assume: within 15 %.

use starhop_proto::name::FlowId;
use starhop_proto::time::{Duration, Instant};
use starhop_proto::units::Rate;
use starhop_sim::engine::{Clock, Network};
use starhop_sim::host::tcp::congestion::Control;
use starhop_sim::host::tcp::{Count, LossDetection, TcpConfig, TcpSettings};
use starhop_sim::link::{LinkConfig, LossModel, QueueLimit};
use starhop_sim::run::{FlowSpec, Plan, Simulation, Transport};

const RTT_S: f64 = 0.1;
const MSS: f64 = 1448.0;

struct Path {
    rate: Rate,
    loss: LossModel,
    seconds: u64,
    warm_up: u64,
    length: Option<u64>,
}

impl Default for Path {
    fn default() -> Self {
        let rate = Rate::from_mbps(200);
        Self { rate, loss: LossModel::None, seconds: 600, warm_up: 100, length: None }
    }
}

struct Outcome {
    /// Segments per second, retransmissions left out.
    rate: f64,
    queueing_s: f64,
    delivered: u64,
}

impl Path {
    fn losing_every(packets: u64) -> Self {
        Self { loss: LossModel::Periodic(packets), ..Self::default() }
    }

    fn carries(&self, settings: TcpSettings) -> Outcome {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut network = Network::default();
        let [from, to] = [0, 0].map(|_| network.add_node(Clock::default()));
        let ideal = LinkConfig::ideal(self.rate, Duration::from_secs_f64(RTT_S / 2.0));
        let forth = LinkConfig { loss: self.loss.clone(), queue: QueueLimit::Packets(1000), ..ideal.clone() };
        network.add_link(from, to, forth, 0);
        network.add_link(to, from, ideal, 0);
        let flow = FlowSpec {
            content: FlowId([1; 16]),
            from,
            to,
            length: self.length,
            start: Instant::ZERO,
            stop: at(self.seconds),
            transport: Transport::Tcp(TcpConfig::new(settings).expect("settings of a test")),
            splits: Vec::new(),
            exchange: None,
            crowd: None,
            program: None,
        };
        let plan = Plan { warm_up: at(self.warm_up), ..Plan::new(network, vec![flow], at(self.seconds)) };
        let mut simulation = Simulation::new(plan);
        simulation.run(|_| ());
        let measured: f64 = simulation.series().flows[0]
            .iter()
            .skip(self.warm_up as usize * 10)
            .map(|sample| sample.goodput_mbps * 0.1)
            .sum();
        let recorder = simulation.recorder().borrow();
        let flow = recorder.flow(0);
        Outcome {
            rate: measured * 1e6 / 8.0 / MSS / (self.seconds - self.warm_up) as f64,
            queueing_s: flow.delays().queueing.mean() * 1e-9,
            delivered: flow.in_order_bytes,
        }
    }
}

fn settings(name: &str) -> TcpSettings {
    TcpSettings::new(Control::named(name).unwrap_or_else(|| panic!("no control is called {name}")))
}

#[track_caller]
fn assert_near(what: &str, measured: f64, formula: f64) {
    println!("{what}: {measured:.1} measured, {formula:.1} by the formula, {:.3}", measured / formula);
    assert!((measured / formula - 1.0).abs() < 0.15, "{what}: {measured} measured, {formula} by the formula");
}

/// The windows of AIMD(1, β) between losses of every n-th packet: segments per round trip.
fn aimd(beta: f64, packets: u64) -> f64 {
    ((1.0 + beta) / (2.0 * (1.0 - beta)) * packets as f64).sqrt()
}

#[test]
fn newreno_is_at_mathis_formula() {
    for packets in [300, 1000, 3000] {
        let measured = Path::losing_every(packets).carries(settings("newreno"));
        // Mathis, Semke, Mahdavi and Ott, 1997, equation 3: MSS/RTT · √(3/2p).
        assert_near("newreno", measured.rate, (1.5 * packets as f64).sqrt() / RTT_S);
    }
}

#[test]
fn counting_acknowledgements_takes_a_factor_of_root_two() {
    let by_acks = TcpSettings { count: Count::Acks, ..settings("newreno") };
    let measured = Path::losing_every(1000).carries(by_acks);
    // The same with b = 2: √(3/2bp).
    assert_near("newreno by acknowledgements", measured.rate, (0.75 * 1000.0f64).sqrt() / RTT_S);
}

#[test]
fn veno_without_a_queue_is_aimd_of_one_and_four_fifths() {
    let measured = Path::losing_every(1000).carries(settings("veno"));
    assert_near("veno", measured.rate, aimd(0.8, 1000) / RTT_S);
}

#[test]
fn hybla_has_the_rate_of_newreno_over_the_reference_round_trip() {
    for rtt0_ms in [25, 50] {
        let mut settings = settings("hybla");
        settings.tuning.rtt0 = Some(Duration::from_millis(rtt0_ms));
        let measured = Path::losing_every(1000).carries(settings);
        assert_near("hybla", measured.rate, aimd(0.5, 1000) / (rtt0_ms as f64 / 1e3));
    }
}

#[test]
fn linux_hybla_has_less_by_a_factor_of_root_two() {
    let control = Control::named("hybla").expect("hybla");
    let measured = Path::losing_every(1000).carries(TcpSettings::linux(control));
    assert_near("Linux' hybla", measured.rate, aimd(0.5, 1000) / 0.025 / 2.0f64.sqrt());
}

#[test]
fn cubic_is_at_its_response_function() {
    // RFC 9438, section 5.1: the window where the cubic, not Reno's line, decides.
    for packets in [10_000u64, 30_000] {
        let path = Path { seconds: 1200, warm_up: 400, ..Path::losing_every(packets) };
        let measured = path.carries(settings("cubic"));
        let (c, beta): (f64, f64) = (0.4, 0.7);
        let window =
            (c * (3.0 + beta) / (4.0 * (1.0 - beta))).powf(0.25) * (RTT_S * packets as f64).powf(0.75);
        assert_near("cubic", measured.rate, window / RTT_S);
    }
}

#[test]
fn westwood_is_at_its_authors_formula() {
    // Grieco and Mascolo, 2004, equation 12: 1/√(RTT·Tq) · √((1-p)/p), Tq the mean time in queues. Without a queue the
    // formula knows no bound: the link is as slow as to have one.
    // And losses are random, so that they meet the mean queue.
    let path = Path {
        rate: Rate::from_mbps(20),
        loss: LossModel::Bernoulli(1e-4),
        seconds: 3000,
        ..Path::default()
    };
    let measured = path.carries(settings("westwood"));
    let queued = measured.queueing_s;
    let formula = (9_999.0 / ((RTT_S + queued) * queued)).sqrt();
    assert_near("westwood", measured.rate, formula);
}

#[test]
fn bbr_estimates_all_but_the_loss_up_to_what_its_probes_exceed() {
    let share = |loss: f64| {
        let path = Path {
            rate: Rate::from_mbps(20),
            loss: LossModel::Bernoulli(loss),
            seconds: 200,
            warm_up: 20,
            ..Path::default()
        };
        path.carries(settings("bbr")).rate / (20e6 / 8.0 / 1500.0)
    };
    // The estimate is the most that arrived in ten round trips: b(1 - p), while a probe of 1.25 times that fills the
    // link, up to p = 1 - 1/1.25. Sent at that rate on average, a share of 1 - p arrives.
    for loss in [0.01, 0.05, 0.1] {
        assert_near("bbr", share(loss), (1.0 - loss) * (1.0 - loss));
    }
    assert!(share(0.3) < 0.35, "{}", share(0.3));
}

#[test]
fn without_sack_several_losses_of_a_window_take_a_round_trip_each() {
    let goodput = |loss_detection| {
        let bursts = LossModel::GilbertElliott(starhop_sim::link::GilbertElliott::bursts(0.002, 6.0));
        let path = Path { loss: bursts, ..Path::default() };
        path.carries(TcpSettings { loss_detection, ..settings("newreno") }).rate
    };
    let [without, with] = [LossDetection::NoSack, LossDetection::DupAck].map(goodput);
    println!("{without:.1} without SACK, {with:.1} with");
    assert!(without < 0.9 * with && without > 0.2 * with, "{without} {with}");
}

#[test]
fn the_presets_carry_a_file_whole() {
    let newreno = Control::named("newreno").expect("newreno");
    for settings in [TcpSettings::linux(newreno), TcpSettings::ns2(newreno)] {
        let path = Path {
            rate: Rate::from_mbps(10),
            loss: LossModel::Bernoulli(0.02),
            length: Some(1_000_000),
            ..Path::default()
        };
        assert_eq!(path.carries(settings).delivered, 1_000_000);
    }
}
