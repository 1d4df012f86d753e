//! The arguments that all subcommands share: satellites, stations, and rules of links.

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::json;
use starhop_orbit::constellation::Constellation;
use starhop_orbit::ground::{self, Station};
use starhop_orbit::hypatia;
use starhop_orbit::link::{GroundPolicy, GroundRule, IslRule, Selection};
use starhop_orbit::network::Network;
use starhop_orbit::route::Relaying;
use starhop_orbit::schedule::{Plan, Schedule};
use starhop_orbit::time::{Epoch, parse_seconds};
use starhop_orbit::walker::Motion;
use starhop_orbit::{omm, preset, tle};
use std::fmt::Write as _;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The sky and the rules of its links.
#[derive(clap::Args)]
pub(super) struct SkyArgs {
    /// A built-in constellation; `starhop orbit shells` lists them
    #[arg(long, value_name = "NAME", default_value = "starlink-550", conflicts_with_all = ["tle", "omm", "hypatia"])]
    shell: String,
    /// Satellites from a file of two-line element sets, without inter-satellite links
    #[arg(long, value_name = "FILE")]
    tle: Option<PathBuf>,
    /// Satellites from a file of orbit mean-elements messages (JSON or CSV), without inter-satellite links
    #[arg(long, value_name = "FILE")]
    omm: Option<PathBuf>,
    /// Satellites, links and stations from a Hypatia directory
    #[arg(long, value_name = "DIR")]
    hypatia: Option<PathBuf>,
    /// The time at which seconds start to count, for --tle and --omm [default: the latest element set's]
    #[arg(long, value_name = "UTC")]
    epoch: Option<Epoch>,
    /// Stations besides the 100 built-in cities: CSV with name,latitude_deg,longitude_deg
    #[arg(long, value_name = "FILE")]
    stations: Option<PathBuf>,
    /// The model of the motion of a built-in constellation's satellites
    #[arg(long, value_enum)]
    motion: Option<MotionArg>,
    /// Lowest elevation of a usable satellite, degrees; replaces the constellation's own limits of ground links
    #[arg(long, value_name = "DEG")]
    min_elevation: Option<f64>,
    /// Which of the usable satellites a station is linked to
    #[arg(long, value_enum, default_value = "all")]
    policy: PolicyArg,
    /// Choose satellites only at multiples of this, such as 15s, unless one is lost
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    reselect: Option<f64>,
    /// Leave out inter-satellite links
    #[arg(long)]
    no_isl: bool,
    /// Let all stations forward for others
    #[arg(long)]
    ground_relays: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum MotionArg {
    Sgp4,
    J2,
    Kept,
}

#[derive(Clone, Copy, ValueEnum)]
enum PolicyArg {
    All,
    Nearest,
    Highest,
    Longest,
}

/// A time with its unit, for clap.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    parse_seconds(text).map_err(|e| e.to_string())
}

/// The length of a computation, and its step.
#[derive(clap::Args)]
pub(super) struct SpanArgs {
    /// Length: 600s, 10min, 24h
    #[arg(long = "for", value_name = "TIME", default_value = "600s", value_parser = seconds)]
    pub(super) span: f64,
    /// Start, after the epoch
    #[arg(long = "from", value_name = "TIME", default_value = "0s", value_parser = seconds)]
    pub(super) start: f64,
    /// Distance between two looks at the sky; changes between them are timed to 10 ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = seconds)]
    pub(super) step: f64,
    /// Time for which a pair has no route after a handover at one of its stations
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = seconds)]
    pub(super) outage: f64,
}

impl SkyArgs {
    /// The nodes that forward.
    pub(super) fn relaying(&self) -> Relaying {
        if self.ground_relays { Relaying::Stations } else { Relaying::Satellites }
    }

    /// The network with all stations that are known.
    pub(super) fn network(&self) -> Result<Network> {
        let mut network = match &self.hypatia {
            Some(dir) => read_hypatia(dir)?,
            None => self.bare_network()?,
        };
        if let Some(file) = &self.stations {
            let more = ground::parse_csv(&read(file)?).with_context(|| file.display().to_string())?;
            network.stations.retain(|s| ground::find(&more, &s.name).is_none());
            network.stations.extend(more);
        }
        if self.no_isl {
            network.sky.isls.clear();
        }
        if let Some(degrees) = self.min_elevation {
            ensure!(
                (0.0..90.0).contains(&degrees),
                "--min-elevation is {degrees}; it must be from 0 to below 90 degrees"
            );
            network.ground_rule = GroundRule::elevation(degrees);
        }
        ensure!(self.reselect != Some(0.0), "--reselect is 0; leave it out to choose satellites at any time");
        let policy = match self.policy {
            PolicyArg::All => GroundPolicy::All,
            PolicyArg::Nearest => GroundPolicy::Nearest,
            PolicyArg::Highest => GroundPolicy::HighestElevation,
            PolicyArg::Longest => GroundPolicy::LongestVisible,
        };
        network.selection = Selection { policy, every_s: self.reselect };
        Ok(network)
    }

    fn bare_network(&self) -> Result<Network> {
        let sets = match (&self.tle, &self.omm) {
            (Some(_), Some(_)) => bail!("--tle and --omm are both given; give one of them"),
            (Some(file), _) => Some((file, tle::parse(&read(file)?).map_err(anyhow::Error::from))),
            (_, Some(file)) => Some((file, omm::parse(&read(file)?).map_err(anyhow::Error::from))),
            _ => None,
        };
        if let Some((file, sets)) = sets {
            let sets = sets.with_context(|| file.display().to_string())?;
            return Ok(Network {
                sky: Constellation::from_elements(&file.display().to_string(), self.epoch, &sets)?,
                stations: ground::cities(),
                isl_rule: IslRule::default(),
                ground_rule: GroundRule::elevation(25.0),
                selection: Selection::ALL,
            });
        }
        ensure!(
            self.epoch.is_none(),
            "--epoch needs --tle or --omm: built-in constellations start at 2000-01-01"
        );
        let Some(mut preset) = preset::by_name(&self.shell) else {
            bail!(
                "--shell: no constellation is called `{}`; known are {}",
                self.shell,
                preset::NAMES.join(", ")
            );
        };
        for shell in &mut preset.shells {
            shell.motion = match self.motion {
                None => shell.motion,
                Some(MotionArg::Sgp4) => Motion::Sgp4(Some(shell.mean_motion_rev_day())),
                Some(MotionArg::J2) => Motion::Drift,
                Some(MotionArg::Kept) => Motion::Kept,
            };
        }
        Ok(Network::from_preset(&preset, ground::cities())?)
    }
}

/// The stations of a network that are named, in that order; with `all` the others follow, so that they can relay.
pub(super) fn keep_stations(network: &mut Network, names: &[&str], all: bool) -> Result<()> {
    let mut kept: Vec<Station> = Vec::new();
    for name in names {
        let Some(station) = ground::find(&network.stations, name) else {
            let near = ground::similar(&network.stations, name).join("`, `");
            bail!("no station is called `{name}`; the nearest names are `{near}`. --stations adds your own");
        };
        if ground::find(&kept, name).is_none() {
            kept.push(station.clone());
        }
    }
    if all {
        let others = network.stations.drain(..).filter(|s| ground::find(&kept, &s.name).is_none());
        let others: Vec<Station> = others.collect();
        kept.extend(others);
    }
    network.stations = kept;
    Ok(())
}

/// A schedule between stations given by name, two for each pair.
pub(super) fn schedule(sky: &SkyArgs, span: &SpanArgs, names: &[&str]) -> Result<(Network, Schedule)> {
    let mut network = sky.network()?;
    ensure!(
        names.len() >= 2 && names.len().is_multiple_of(2),
        "give stations in pairs, such as Beijing \"New York\""
    );
    ensure!(span.span > 0.0, "--for is 0; give a time such as 600s");
    keep_stations(&mut network, names, sky.relaying() == Relaying::Stations)?;
    let index = |name: &str| network.stations.iter().position(|s| s.name.eq_ignore_ascii_case(name));
    let pairs = names.chunks(2).filter_map(|pair| Some((index(pair[0])?, index(pair[1])?))).collect();
    let plan = Plan {
        relaying: sky.relaying(),
        from_s: span.start,
        step_s: span.step,
        outage_s: span.outage,
        ..Plan::new(pairs, span.start + span.span)
    };
    let schedule = Schedule::new(plan, &network)?;
    Ok((network, schedule))
}

/// Prints to standard output. A reader that has seen enough and closed the pipe is no error.
pub(super) fn show(text: &str) -> Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// A file's text, with the file's name in the error.
pub(super) fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Writes a file, with its name in the error.
pub(super) fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Reads the static files of a Hypatia directory.
pub(super) fn read_hypatia(dir: &Path) -> Result<Network> {
    let text = |name: &str| read(&dir.join(name));
    let (tles, isls) = (text("tles.txt")?, text("isls.txt")?);
    let (stations, description) = (text("ground_stations.txt")?, text("description.txt")?);
    let texts =
        hypatia::Texts { tles: &tles, isls: &isls, ground_stations: &stations, description: &description };
    hypatia::import(texts).with_context(|| dir.display().to_string())
}

/// List the built-in constellations
#[derive(clap::Args)]
#[command(after_help = "Example:\n  starhop orbit shells --json")]
pub(super) struct ShellsArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run_shells(args: &ShellsArgs) -> Result<()> {
    let presets: Vec<_> = preset::NAMES.iter().filter_map(|n| preset::by_name(n)).collect();
    let count = |p: &preset::Preset| p.shells.iter().map(|s| s.satellites()).sum::<u32>();
    let mut text = String::new();
    if args.json {
        let rows = presets.iter().map(|p| json!({"name": p.name, "satellites": count(p), "about": p.about}));
        writeln!(text, "{}", serde_json::Value::Array(rows.collect()))?;
    } else {
        for preset in &presets {
            writeln!(text, "{:<15} {:>6} satellites  {}", preset.name, count(preset), preset.about)?;
        }
    }
    show(&text)
}
