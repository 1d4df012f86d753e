//! A server, a hub, a site and a client; between hub and site the satellite.

use super::{GATEWAY, Options, RATE_SPLIT, Satellite, traffic};
use crate::error::LabError;
use crate::process::{Daemon, Sealing, bare_command, start};
use starhop_net::clock;
use starhop_net::emu::{Emulator, Link, Namespace, PlainLink, Running, Verdict};
use starhop_proto::time::Instant;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Hosts in a row.
const SERVER: usize = 0;
const HUB: usize = 1;
const SITE: usize = 2;
const CLIENT: usize = 3;

/// Runs do not learn from each other, and answers may come by another device than the kernel thinks.
const SETTINGS: &[(&str, &str)] = &[
    ("ipv4/ip_forward", "1"),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv4/conf/all/rp_filter", "0"),
    ("ipv4/conf/default/rp_filter", "0"),
];

/// The time in which a link loses everything, in nanoseconds of the clock.
#[derive(Debug, Default)]
struct Cut {
    from: AtomicU64,
    until: AtomicU64,
}

/// A link that is cut at times.
struct CutLink {
    link: PlainLink,
    cut: Arc<Cut>,
}

impl Link for CutLink {
    fn send(&mut self, now: Instant, packet: &[u8]) -> Verdict {
        let verdict = self.link.send(now, packet);
        let (from, until) = (self.cut.from.load(Ordering::Relaxed), self.cut.until.load(Ordering::Relaxed));
        let is_cut = (from..until).contains(&now.since(Instant::ZERO).as_nanos());
        if is_cut && matches!(verdict, Verdict::Arrives(_)) { Verdict::Lost } else { verdict }
    }
}

pub(super) struct World {
    daemons: Vec<Daemon>,
    control: String,
    cut: Arc<Cut>,
    // Cut before the hosts go.
    links: Option<Running>,
    hosts: Vec<Namespace>,
}

fn address(net: usize, end: u8) -> IpAddr {
    Ipv4Addr::new(10, 78, net as u8, end).into()
}

impl World {
    pub(super) fn new(
        options: &Options,
        satellite: Satellite,
        transport: &str,
        directory: &Path,
    ) -> Result<Self, LabError> {
        let names = ["server", "hub", "site", "client"];
        let hosts = names.iter().map(|name| Namespace::new(name)).collect::<Result<Vec<_>, _>>()?;
        let cut = Arc::<Cut>::default();
        let links = join(options, satellite, &hosts, &cut)?;
        let is_gateway = [GATEWAY, RATE_SPLIT].contains(&transport);
        let control = if is_gateway { "cubic" } else { transport }.to_owned();
        let mut world = Self { daemons: Vec::new(), control, cut, links, hosts };
        world.serve()?;
        if is_gateway {
            world.start_gateways(options, satellite, transport == RATE_SPLIT, directory)?;
        }
        Ok(world)
    }

    fn serve(&self) -> Result<(), LabError> {
        let failed = || LabError::system("the server does not start");
        let control = self.control.clone();
        let listener = self.hosts[SERVER].run(move || traffic::listen(&control)).map_err(failed())?;
        let listener = listener.map_err(failed())?;
        std::thread::spawn(move || traffic::serve(&listener));
        Ok(())
    }

    fn start_gateways(
        &mut self,
        options: &Options,
        satellite: Satellite,
        is_by_rate: bool,
        directory: &Path,
    ) -> Result<(), LabError> {
        let Sealing::Key(key) = Sealing::throw_away(false, directory)? else { return Ok(()) };
        let common = format!("key = \"{}\"\ncongestion = \"cubic\"\n", key.display());
        let (kind, protocol) =
            if is_by_rate { (RATE_SPLIT, "protocol = \"rate-split\"\n") } else { (GATEWAY, "") };
        let peer = |name: &str, at: IpAddr| {
            format!("[[peer]]\nname = \"{name}\"\naddress = \"{at}:4433\"\n{protocol}")
        };
        let is_known = options.is_rate_known || is_by_rate;
        let rates = |into: usize, out: usize| match satellite.rates.filter(|_| is_known) {
            Some(rates) => format!(
                "link_rate_in_bits = {}\nlink_rate_out_bits = {}\n",
                rates[into].as_bps(),
                rates[out].as_bps()
            ),
            None => String::new(),
        };
        let hub = format!("name = \"hub\"\n{common}{}{}", rates(1, 0), peer("site", address(1, 2)));
        let site = format!(
            "name = \"site\"\n{common}intercept = [\"lan\"]\n{}{}",
            rates(0, 1),
            peer("hub", address(1, 1))
        );
        for (host, name, text) in [(HUB, "hub", hub), (SITE, "site", site)] {
            let file = directory.join(format!("{kind}-{name}.toml"));
            std::fs::write(&file, text).map_err(LabError::system("cannot write a configuration"))?;
            let mut command = bare_command(&options.program, "gateway");
            command.arg("--config").arg(&file);
            self.daemons.push(start(name, &self.hosts[host], command, "ready")?);
        }
        for daemon in &mut self.daemons {
            daemon.await_event("peer")?;
        }
        // The listener opens with the event.
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    pub(super) fn server(&self) -> SocketAddr {
        SocketAddr::new(address(0, 1), traffic::PORT)
    }

    pub(super) fn client(&self) -> &Namespace {
        &self.hosts[CLIENT]
    }

    /// The congestion control at the end hosts.
    pub(super) fn control(&self) -> &str {
        &self.control
    }

    /// Has the satellite lose everything for `span`, in a while.
    pub(super) fn cut_in(&self, after: Duration, span: Duration) {
        let from = clock::now().since(Instant::ZERO).as_nanos() + after.as_nanos() as u64;
        self.cut.from.store(from, Ordering::Relaxed);
        self.cut.until.store(from + span.as_nanos() as u64, Ordering::Relaxed);
    }

    /// CPU time of the gateways until now.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.daemons.iter().map(Daemon::cpu_seconds).sum()
    }

    /// Ends the gateways in order.
    pub(super) fn end(&mut self) {
        self.daemons.clear();
        self.links = None;
    }
}

fn join(
    options: &Options,
    satellite: Satellite,
    hosts: &[Namespace],
    cut: &Arc<Cut>,
) -> Result<Option<Running>, LabError> {
    let lan =
        |a: usize, device_a: &str, b: usize, device_b: &str| hosts[a].veth(device_a, &hosts[b], device_b);
    lan(SERVER, "lan", HUB, "lan")?;
    lan(SITE, "lan", CLIENT, "lan")?;
    let links = match satellite.rates {
        Some(rates) => {
            let model = |way: usize| {
                let seed = options.seed * 1000 + way as u64;
                let Satellite { delay, queue, loss, .. } = satellite;
                CutLink { link: PlainLink::new(rates[way], delay, loss, queue, seed), cut: cut.clone() }
            };
            let mut emulator = Emulator::default();
            emulator.join((&hosts[HUB], "sat"), (&hosts[SITE], "sat"), model(0), model(1))?;
            Some(emulator.start().map_err(LabError::system("cannot start the links"))?)
        }
        None => {
            lan(HUB, "sat", SITE, "sat")?;
            None
        }
    };
    for (net, ends) in
        [[(SERVER, "lan"), (HUB, "lan")], [(HUB, "sat"), (SITE, "sat")], [(SITE, "lan"), (CLIENT, "lan")]]
            .into_iter()
            .enumerate()
    {
        for ((host, device), end) in ends.into_iter().zip(1..) {
            hosts[host].address(device, address(net, end), 24)?;
            hosts[host].up(device)?;
        }
    }
    for (host, net, via) in [
        (SERVER, 1, address(0, 2)),
        (SERVER, 2, address(0, 2)),
        (HUB, 2, address(1, 2)),
        (SITE, 0, address(1, 1)),
        (CLIENT, 0, address(2, 1)),
        (CLIENT, 1, address(2, 1)),
    ] {
        hosts[host].route(address(net, 0), 24, via)?;
    }
    hosts.iter().try_for_each(|host| host.settings(SETTINGS))?;
    Ok(links)
}
