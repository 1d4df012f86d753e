//! A scenario as a program for ns-3, so that an independent TCP may be asked the same question.
//!
//! The program contains the features that ns-3 has: nodes, links with constant rate and delay, losses of packets or
//! bits, queues, and TCP flows of a control that both know. Any other feature of a scenario is refused by name. The
//! program prints a line of JSON per flow with the names of the result document.

use crate::scenario::{Flow, Scenario, Split, link_configs};
use starhop_proto::time::{Duration, Instant};
use starhop_sim::host::tcp::{LossDetection, TcpConfig};
use starhop_sim::link::{DelayModel, LinkConfig, LossModel, QueueLimit, RateSchedule};
use starhop_sim::run::Transport;
use std::fmt::Write;

/// Controls that both know, by our name and by ns-3's type.
const CONTROLS: [(&str, &str); 6] = [
    ("newreno", "ns3::TcpNewReno"),
    ("cubic", "ns3::TcpCubic"),
    ("hybla", "ns3::TcpHybla"),
    ("veno", "ns3::TcpVeno"),
    ("vegas", "ns3::TcpVegas"),
    ("bbr", "ns3::TcpBbr"),
];

const HEAD: &str = r#"#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <iostream>
#include <map>

using namespace ns3;

static Ptr<ErrorModel> Errors(double rate, RateErrorModel::ErrorUnit unit, int64_t stream) {
    Ptr<RateErrorModel> model = CreateObject<RateErrorModel>();
    model->SetUnit(unit);
    model->SetRate(rate);
    model->AssignStreams(stream);
    return model;
}

// Full packets wait in the device's queue alone: no queue discipline above it.
static NetDeviceContainer Connect(Ptr<Node> a, Ptr<Node> b, const char* forth, const char* back,
                                  const char* delay, const char* forthQueue, const char* backQueue) {
    PointToPointHelper link;
    link.SetChannelAttribute("Delay", StringValue(delay));
    NetDeviceContainer ends = link.Install(a, b);
    const char* rates[] = {forth, back};
    const char* queues[] = {forthQueue, backQueue};
    for (uint32_t i = 0; i < 2; i++) {
        Ptr<PointToPointNetDevice> device = DynamicCast<PointToPointNetDevice>(ends.Get(i));
        device->SetDataRate(DataRate(rates[i]));
        device->SetMtu(9000);
        device->GetQueue()->SetMaxSize(QueueSize(queues[i]));
    }
    return ends;
}
"#;

/// The program.
///
/// # Errors
/// The features of the scenario that ns-3 lacks, by the name of the link or the flow.
pub fn program(scenario: &Scenario) -> Result<String, String> {
    let topology = &scenario.topology;
    if topology.sky.is_some() || topology.switching.is_some() || !scenario.events.is_empty() {
        return Err("its paths change, which the program for ns-3 cannot do".to_owned());
    }
    let (tcp, control) = common_tcp(scenario)?;
    let configs = link_configs(scenario);
    let mut text = format!("// {} (from a scenario of Starhop)\n{HEAD}", scenario.title.replace('\n', " "));
    text += "\nint main(int argc, char** argv) {\n    uint32_t run = 1;\n    CommandLine cmd;\n";
    text += "    cmd.AddValue(\"run\", \"number of the repetition\", run);\n    cmd.Parse(argc, argv);\n";
    let _ = writeln!(text, "    RngSeedManager::SetSeed({});", scenario.seed.max(1));
    text += "    RngSeedManager::SetRun(run);\n";
    let _ = writeln!(text, "    NodeContainer nodes;\n    nodes.Create({});", topology.nodes.len());
    for (index, name) in topology.nodes.iter().enumerate() {
        let _ = writeln!(text, "    Names::Add({name:?}, nodes.Get({index}));");
    }
    text += "    Config::SetDefault(\"ns3::TcpSocket::ConnCount\", UintegerValue(60));\n";
    write_socket(&mut text, tcp, control);
    text += "    InternetStackHelper stack;\n    stack.Install(nodes);\n";
    text += "    TrafficControlHelper none;\n    Ipv4AddressHelper addresses;\n    addresses.SetBase(\"10.0.0.0\", \"255.255.255.252\");\n";
    for (index, link) in topology.links.iter().enumerate() {
        let of = |problem: String| format!("link {}: {problem}", link.name);
        let ends = [&link.from, &link.to].map(|name| topology.nodes.iter().position(|node| node == name));
        let [Some(from), Some(to)] = ends else { return Err(of("has an end that is no node".to_owned())) };
        let both = [&configs[2 * index], &configs[2 * index + 1]];
        write_link(&mut text, index, (from, to), both).map_err(of)?;
    }
    text += "    Ipv4GlobalRoutingHelper::PopulateRoutingTables();\n";
    text += "    std::map<std::string, Ptr<PacketSink>> sinks;\n";
    for (index, flow) in scenario.flows.iter().enumerate() {
        write_flow(&mut text, scenario, index, flow)
            .map_err(|problem| format!("flow {}: {problem}", flow.name))?;
    }
    write_end(&mut text, scenario);
    Ok(text)
}

fn write_link(
    text: &mut String,
    index: usize,
    (from, to): (usize, usize),
    both: [&LinkConfig; 2],
) -> Result<(), String> {
    let [forth, back] = both;
    let rates = [rate(forth)?, rate(back)?];
    let delays = [delay(forth)?, delay(back)?];
    if delays[0] != delays[1] {
        return Err("has another delay back than forth, and ns-3's channel has one".to_owned());
    }
    let queues = [queue(forth), queue(back)];
    let _ = writeln!(
        text,
        "    NetDeviceContainer link{index} = Connect(nodes.Get({from}), nodes.Get({to}), \"{}\", \"{}\", \"{}\", \"{}\", \"{}\");",
        rates[0], rates[1], delays[0], queues[0], queues[1],
    );
    for (end, config) in [(1, forth), (0, back)] {
        if let Some((share, unit)) = errors(config)? {
            let stream = 2 * index + end;
            let _ = writeln!(
                text,
                "    link{index}.Get({end})->SetAttribute(\"ReceiveErrorModel\", PointerValue(Errors({share:e}, RateErrorModel::{unit}, {stream})));"
            );
        }
    }
    let _ = writeln!(text, "    none.Uninstall(link{index});");
    let _ = writeln!(text, "    addresses.Assign(link{index});\n    addresses.NewNetwork();");
    Ok(())
}

fn rate(config: &LinkConfig) -> Result<String, String> {
    if config.outage.is_some()
        || config.xcp.is_some()
        || config.police.is_some()
        || !config.disorder.is_none()
    {
        return Err(
            "has an outage, a router, a policer or disorder, which ns-3's links do not have".to_owned()
        );
    }
    match &config.rate {
        RateSchedule::Constant(rate) => Ok(format!("{}bps", rate.as_bps())),
        _ => Err("has a rate that changes, which ns-3's links do not have".to_owned()),
    }
}

fn delay(config: &LinkConfig) -> Result<String, String> {
    match &config.delay {
        DelayModel::Fixed(delay) => Ok(format!("{}ns", delay.as_nanos())),
        _ => Err("has a delay that changes, which ns-3's links do not have".to_owned()),
    }
}

fn queue(config: &LinkConfig) -> String {
    match config.queue {
        QueueLimit::Packets(packets) => format!("{}p", packets.max(1)),
        QueueLimit::Bytes(bytes) => format!("{}B", bytes.max(1)),
        QueueLimit::Unlimited => "4000000000B".to_owned(),
    }
}

/// The share of lost units, and the unit.
fn errors(config: &LinkConfig) -> Result<Option<(f64, &'static str)>, String> {
    match config.loss {
        LossModel::None => Ok(None),
        LossModel::Bernoulli(share) => Ok(Some((share, "ERROR_UNIT_PACKET"))),
        LossModel::BitErrors(share) => Ok(Some((share, "ERROR_UNIT_BIT"))),
        _ => Err("loses in bursts or in turn, which this program does not write".to_owned()),
    }
}

fn write_flow(text: &mut String, scenario: &Scenario, index: usize, flow: &Flow) -> Result<(), String> {
    let tcp = tcp_of(flow)?;
    if flow.split != Split::None || flow.exchange.is_some() || flow.count.is_some() {
        return Err("is split, a conversation or many, which this program does not write".to_owned());
    }
    let node = |name: &str| scenario.topology.nodes.iter().position(|node| node == name);
    let (Some(from), Some(to)) = (node(&flow.from), node(&flow.to)) else {
        return Err("has an end that is no node".to_owned());
    };
    let _ = writeln!(text, "    {{ // {}: {} to {}", flow.name, flow.from, flow.to);
    let port = 5000 + index;
    let size = flow.size.unwrap_or(0);
    let _ = write!(
        text,
        "        Ptr<Node> from = nodes.Get({from}), to = nodes.Get({to});
        Ipv4Address address = to->GetObject<Ipv4>()->GetAddress(1, 0).GetLocal();
        PacketSinkHelper sink(\"ns3::TcpSocketFactory\", InetSocketAddress(Ipv4Address::GetAny(), {port}));
        ApplicationContainer receiver = sink.Install(to);
        receiver.Start(Seconds(0));
        sinks[{name:?}] = DynamicCast<PacketSink>(receiver.Get(0));
        BulkSendHelper bulk(\"ns3::TcpSocketFactory\", InetSocketAddress(address, {port}));
        bulk.SetAttribute(\"MaxBytes\", UintegerValue({size}));
        bulk.SetAttribute(\"SendSize\", UintegerValue({mss}));
        ApplicationContainer sender = bulk.Install(from);
        sender.Start(Seconds({start}));
        sender.Stop(Seconds({stop}));
    }}
",
        name = flow.name,
        mss = tcp.mss,
        start = flow.start.as_secs_f64(),
        stop = flow.stop.as_secs_f64(),
    );
    Ok(())
}

fn tcp_of(flow: &Flow) -> Result<&TcpConfig, String> {
    match &flow.how {
        Transport::Tcp(tcp) => Ok(tcp),
        Transport::Gateway(_) => Err("ns-3 has no gateways: leave out `gateway`".to_owned()),
        _ => Err(format!("ns-3 has no {}; set the flow's transport to a TCP control", flow.transport)),
    }
}

/// ns-3 takes a socket's settings when the flow begins, from defaults that all flows share.
fn common_tcp(scenario: &Scenario) -> Result<(&TcpConfig, &'static str), String> {
    let mut all = Vec::new();
    for flow in &scenario.flows {
        all.push(tcp_of(flow).map_err(|problem| format!("flow {}: {problem}", flow.name))?);
    }
    let Some(&first) = all.first() else { return Err("it has no flow".to_owned()) };
    if all.iter().any(|tcp| *tcp != first) {
        return Err("its flows differ in their TCP, which a program for ns-3 has once".to_owned());
    }
    let known = CONTROLS.iter().find(|(ours, _)| *ours == first.control.name());
    let names = || CONTROLS.iter().map(|(ours, _)| *ours).collect::<Vec<_>>().join(", ");
    let unknown = || format!("ns-3 does not know {}; it knows {}", first.control.name(), names());
    known.map(|(_, control)| (first, *control)).ok_or_else(unknown)
}

/// The sockets' defaults.
fn write_socket(text: &mut String, tcp: &TcpConfig, control: &str) {
    let sack = tcp.loss_detection != LossDetection::NoSack;
    let timeout = tcp.min_rto.as_nanos();
    let _ = write!(
        text,
        "    Config::SetDefault(\"ns3::TcpL4Protocol::SocketType\", TypeIdValue(TypeId::LookupByName(\"{control}\")));
    Config::SetDefault(\"ns3::TcpSocket::SegmentSize\", UintegerValue({mss}));
    Config::SetDefault(\"ns3::TcpSocket::InitialCwnd\", UintegerValue({first}));
    Config::SetDefault(\"ns3::TcpSocket::RcvBufSize\", UintegerValue({window}));
    Config::SetDefault(\"ns3::TcpSocket::SndBufSize\", UintegerValue({window}));
    Config::SetDefault(\"ns3::TcpSocket::DelAckCount\", UintegerValue({acks}));
    Config::SetDefault(\"ns3::TcpSocket::DelAckTimeout\", TimeValue(NanoSeconds({delayed})));
    Config::SetDefault(\"ns3::TcpSocketBase::Sack\", BooleanValue({sack}));
    Config::SetDefault(\"ns3::TcpSocketBase::MinRto\", TimeValue(NanoSeconds({timeout})));
",
        mss = tcp.mss,
        first = tcp.initial_window,
        window = tcp.receive_window,
        acks = tcp.ack_every,
        delayed = tcp.delayed_ack.as_nanos(),
    );
    if let Some(rtt0) = tcp.tuning.rtt0.filter(|_| control == "ns3::TcpHybla") {
        let nanos = rtt0.as_nanos();
        let _ = writeln!(
            text,
            "    Config::SetDefault(\"ns3::TcpHybla::RRTT\", TimeValue(NanoSeconds({nanos})));"
        );
    }
}

fn write_end(text: &mut String, scenario: &Scenario) {
    let span = |duration: Duration| (Instant::ZERO + duration).since(Instant::ZERO).as_secs_f64();
    let (warmup, end) = (span(scenario.warmup), span(scenario.duration));
    let _ = write!(
        text,
        "    std::map<std::string, uint64_t> before;
    Simulator::Schedule(Seconds({warmup}), [&] {{
        for (auto& [name, sink] : sinks) before[name] = sink->GetTotalRx();
    }});
    Simulator::Stop(Seconds({end}));
    Simulator::Run();
    for (auto& [name, sink] : sinks) {{
        uint64_t bytes = sink->GetTotalRx();
        std::cout << \"{{\\\"name\\\": \\\"\" << name << \"\\\", \\\"delivered_bytes\\\": \" << bytes
                  << \", \\\"goodput_mbps\\\": \" << (bytes - before[name]) * 8e-6 / ({end} - {warmup}) << \"}}\\n\";
    }}
    Simulator::Destroy();
    return 0;
}}
"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Library;
    use crate::scenario::Change;
    use std::path::Path;

    fn of(name: &str, changes: &[&str]) -> Result<String, String> {
        let text = Library::BuiltIn.read(Path::new(&format!("scenarios/{name}.toml")))?;
        let changes: Result<Vec<Change>, String> = changes.iter().map(|change| change.parse()).collect();
        let scenario = Scenario::parse_changed(&text, &changes?, &|name| Err(format!("no {name}")));
        program(&scenario.map_err(|error| error.to_string())?)
    }

    #[test]
    fn a_chain_a_dumbbell_and_a_geo_path_become_programs() {
        let chain = of("error-prone-chain", &["flow.a.transport=cubic"]).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(chain.matches("= Connect(").count(), 10);
        assert_eq!(chain.matches("Errors(5e-3, RateErrorModel::ERROR_UNIT_PACKET").count(), 10, "data only");
        let three = ["flow.0.transport=bbr", "flow.1.transport=bbr", "flow.2.transport=bbr"];
        let dumbbell = of("dumbbell", &three).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(dumbbell.matches("BulkSendHelper bulk").count(), 3);
        let geo = [
            "flow.a.transport=hybla",
            "flow.a.options={ rtt0 = '75ms' }",
            "topology.edge.1.loss={ ber = 1e-6 }",
        ];
        let geo = of("geo-answers", &geo).unwrap_or_else(|e| panic!("{e}"));
        assert!(geo.contains("ERROR_UNIT_BIT") && geo.contains("ns3::TcpHybla::RRTT"));
        for text in [chain, dumbbell, geo] {
            assert_eq!(text.matches('{').count(), text.matches('}').count(), "{text}");
            assert_eq!(text.matches('(').count(), text.matches(')').count());
        }
    }

    #[test]
    fn what_ns3_does_not_have_is_refused_by_name() {
        for (file, changes, word) in [
            ("five-lossy-hops", &[][..], "starhop"),
            ("error-prone-chain", &["flow.a.transport=vivace"], "vivace"),
            ("error-prone-chain", &["flow.a.transport=cubic", "flow.a.split=every-hop"], "split"),
            ("fluctuating-path", &["flow.a.transport=cubic"], "rate that changes"),
            ("parallel-switching", &["flow.a.transport=cubic"], "paths change"),
        ] {
            let refused = of(file, changes);
            assert!(refused.as_ref().is_err_and(|problem| problem.contains(word)), "{file}: {refused:?}");
        }
    }
}
