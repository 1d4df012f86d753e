//! Users' TCP through a pair of gateways, beside the kernel's TCP from end to end, over a satellite link.

mod page;
mod traffic;
mod world;

use super::{ended, write_results};
use crate::error::LabError;
use serde::Serialize;
use starhop_net::emu;
use starhop_proto::time::Duration as Span;
use starhop_proto::units::Rate;
use std::path::{Path, PathBuf};
use std::time::Duration;
use traffic::{Fetched, exchange, fetch, wait_all};
use world::World;

/// Options of the demonstration.
#[derive(Clone, Debug)]
pub struct Options {
    /// Loss of the satellite link, each way; one table part each.
    pub losses: Vec<f64>,
    /// Parts whose name contains one of these words; all parts if there are no words.
    pub only: Vec<String>,
    /// Congestion controls to compare with.
    pub controls: Vec<String>,
    /// The gateways know the link's rates from their configuration.
    pub is_rate_known: bool,
    /// Seed of the losses.
    pub seed: u64,
    /// Directory of the results.
    pub results: PathBuf,
    /// The `starhop` binary.
    pub program: PathBuf,
}

/// The satellite link.
#[derive(Clone, Copy, Debug)]
struct Satellite {
    /// Towards the site, and back.
    rates: Option<[Rate; 2]>,
    delay: Span,
    queue: usize,
    loss: f64,
}

/// The load on a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Task {
    /// Files one after the other.
    Files,
    /// The same, and single bytes there and back beside a long transfer.
    FilesAndExchange,
    /// A file during which all packets are lost for half a second.
    Handover,
    /// Four files at once over a path that was not used before.
    Cold,
    /// Veth instead of a link: the cost of the gateways.
    Plain,
}

#[derive(Clone, Debug)]
struct Part {
    name: String,
    satellite: Satellite,
    task: Task,
}

/// One measured value of one transport.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Cell {
    /// Name of the transport.
    pub transport: String,
    /// The value, in the row's unit; `None` where it could not be measured.
    pub value: Option<f64>,
    /// The whole file arrived in time; otherwise the value is extrapolated.
    pub is_whole: bool,
}

/// One line of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The link.
    pub part: String,
    /// The measured quantity, with its unit.
    pub measure: String,
    /// The gateways are to reach this.
    pub goal: f64,
    /// More is better.
    pub is_rate: bool,
    /// Values by transport.
    pub cells: Vec<Cell>,
}

impl Row {
    /// Whether the gateways reach the goal.
    pub fn is_reached(&self) -> Option<bool> {
        let cell = self.cells.iter().find(|cell| cell.transport == GATEWAY)?;
        let value = cell.value?;
        Some(cell.is_whole && if self.is_rate { value >= self.goal } else { value <= self.goal })
    }
}

/// The results of all parts.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Version of this document.
    pub version: u32,
    /// Its title.
    pub title: String,
    /// Real processes on emulated links.
    pub engine: &'static str,
    /// Seed of the losses.
    pub seed: u64,
    /// The table.
    pub rows: Vec<Row>,
}

/// The transport that is shown.
pub const GATEWAY: &str = "gateway";
/// The same gateways, between which connections travel by the rate-based protocol of connection splitting.
pub const RATE_SPLIT: &str = "rate-split";

/// A value of one transport with its name and its goal.
struct Value {
    measure: &'static str,
    goal: f64,
    is_rate: bool,
    value: Option<f64>,
    is_whole: bool,
}

impl Value {
    fn time(measure: &'static str, goal: f64, fetched: &Fetched) -> Self {
        let (value, is_whole) = (Some(fetched.extrapolated_seconds()), fetched.is_whole());
        Self { measure, goal, is_rate: false, value, is_whole }
    }

    fn of(measure: &'static str, goal: f64, value: f64) -> Self {
        Self { measure, goal, is_rate: false, value: Some(value), is_whole: true }
    }

    fn rate(measure: &'static str, goal: f64, value: f64) -> Self {
        Self { is_rate: true, ..Self::of(measure, goal, value) }
    }
}

/// Measures everything and calls `tell` at the beginning of each part. The process must have entered namespaces.
///
/// # Errors
/// See [`LabError`]. A transport that does not get through is no error.
pub fn run(options: &Options, tell: &dyn Fn(&str)) -> Result<(Summary, PathBuf), LabError> {
    let directory = emu::scratch(1 << 20)?;
    let mut rows = Vec::new();
    for part in parts(options) {
        tell(&part.name);
        rows.extend(measure(options, &part, &directory)?);
    }
    let summary = Summary {
        version: 1,
        title: "Users' TCP (cubic) through two gateways, and end to end".to_owned(),
        engine: "emulate",
        seed: options.seed,
        rows,
    };
    let page = write_results(&summary, &page::html(&summary), &options.results)?;
    Ok((summary, page))
}

fn parts(options: &Options) -> Vec<Part> {
    let geo = |loss| Satellite {
        rates: Some([20, 5].map(Rate::from_mbps)),
        delay: Span::from_millis(270),
        queue: 930,
        loss,
    };
    let leo = |loss| Satellite {
        rates: Some([100, 20].map(Rate::from_mbps)),
        delay: Span::from_millis(25),
        queue: 420,
        loss,
    };
    let part = |name: String, satellite, task| Part { name, satellite, task };
    let name = |orbit: &str, loss: f64| format!("{orbit}, {} % loss", loss * 100.0);
    let mut parts = Vec::new();
    for &loss in &options.losses {
        parts.push(part(name("GEO", loss), geo(loss), Task::Files));
    }
    for &loss in &options.losses {
        parts.push(part(name("LEO", loss), leo(loss), Task::FilesAndExchange));
    }
    parts.push(part("LEO with a handover, 0.1 % loss".to_owned(), leo(0.001), Task::Handover));
    parts.push(part("GEO, cold, 0 % loss".to_owned(), geo(0.0), Task::Cold));
    let plain = Satellite { rates: None, ..leo(0.0) };
    parts.push(part("veth, no link".to_owned(), plain, Task::Plain));
    parts.retain(|part| {
        options.only.is_empty() || options.only.iter().any(|word| part.name.contains(word.as_str()))
    });
    parts
}

/// All transports over one link: at 20 Mbit/s at once, at 100 Mbit/s the gateways by themselves.
fn measure(options: &Options, part: &Part, directory: &Path) -> Result<Vec<Row>, LabError> {
    // That protocol sends at the rate of a link.
    let by_rate = part.satellite.rates.map(|_| RATE_SPLIT);
    let controls = options.controls.iter().map(String::as_str);
    let transports: Vec<&str> = std::iter::once(GATEWAY).chain(by_rate).chain(controls).collect();
    let is_light = part.satellite.rates.is_some_and(|rates| rates[0] <= Rate::from_mbps(20));
    let groups: Vec<&[&str]> = if is_light { vec![&transports] } else { transports.chunks(1).collect() };
    let mut rows: Vec<Row> = Vec::new();
    for group in groups {
        let run = |transport: &str| perform(options, part, transport, directory);
        let values = std::thread::scope(|scope| {
            let runs: Vec<_> = group.iter().map(|transport| scope.spawn(move || run(transport))).collect();
            runs.into_iter()
                .zip(group)
                .map(|(run, name)| ended(run.join(), name))
                .collect::<Result<Vec<_>, LabError>>()
        })?;
        for (transport, values) in group.iter().zip(values) {
            add(&mut rows, part, transport, values);
        }
    }
    Ok(rows)
}

fn add(rows: &mut Vec<Row>, part: &Part, transport: &str, values: Vec<Value>) {
    for value in values {
        let cell = Cell { transport: transport.to_owned(), value: value.value, is_whole: value.is_whole };
        match rows.iter_mut().find(|row| row.measure == value.measure) {
            Some(row) => row.cells.push(cell),
            None => rows.push(Row {
                part: part.name.clone(),
                measure: value.measure.to_owned(),
                goal: value.goal,
                is_rate: value.is_rate,
                cells: vec![cell],
            }),
        }
    }
}

fn perform(
    options: &Options,
    part: &Part,
    transport: &str,
    directory: &Path,
) -> Result<Vec<Value>, LabError> {
    let mut world = World::new(options, part.satellite, transport, directory)?;
    match part.task {
        Task::Files => {
            let bulk = fetch(&world, 20_000_000, Duration::from_secs(16))?;
            let (middle, short) = smaller_files(&world)?;
            Ok(vec![
                Value::time("20 MB, s", 9.2, &bulk),
                Value::time("1 MB, s", 1.05, &middle),
                Value::time("100 kB, s", 0.60, &short),
            ])
        }
        Task::FilesAndExchange => {
            let bulk = fetch(&world, 50_000_000, Duration::from_secs(10))?;
            let (_, short) = smaller_files(&world)?;
            let beside = exchange(&world, Duration::from_secs(2), Duration::from_secs(5))?;
            Ok(vec![
                Value::time("50 MB, s", 4.3, &bulk),
                Value::time("100 kB, s", 0.062, &short),
                Value::of("1 byte beside bulk, p50, ms", 52.0, beside.p50),
                Value::of("1 byte beside bulk, p99, ms", 60.0, beside.p99),
            ])
        }
        Task::Handover => {
            world.cut_in(Duration::from_secs(2), Duration::from_millis(500));
            let bulk = fetch(&world, 50_000_000, Duration::from_secs(10))?;
            let silence = bulk.longest_silence.as_secs_f64();
            Ok(vec![Value::time("50 MB, s", 4.9, &bulk), Value::of("longest silence, s", 0.60, silence)])
        }
        Task::Cold => {
            let span = Duration::from_secs(14);
            let fetched = wait_all(&world, &[50_000_000; 4], span)?;
            let bytes: u64 = fetched.iter().map(|fetched| fetched.bytes).sum();
            Ok(vec![Value::rate(
                "4 flows, first 14 s, Mbit/s",
                18.0,
                bytes as f64 * 8e-6 / span.as_secs_f64(),
            )])
        }
        Task::Plain => {
            let alone = exchange(&world, Duration::ZERO, Duration::from_secs(2))?;
            let before = world.cpu_seconds();
            let bulk = fetch(&world, 200_000_000, Duration::from_secs(20))?;
            let cpu = world.cpu_seconds() - before;
            let mut values = vec![Value::time("200 MB, s", f64::INFINITY, &bulk)];
            values.push(Value::of("CPU of both gateways for 200 MB, s", 1.2, cpu));
            values.push(Value::of("1 byte, p50, ms", 0.15, alone.p50));
            Ok(values)
        }
    }
    .inspect(|_| world.end())
}

/// 1 MB, and the median of five times 100 kB, each by a connection of its own over a path that is warm.
fn smaller_files(world: &World) -> Result<(Fetched, Fetched), LabError> {
    let middle = fetch(world, 1_000_000, Duration::from_secs(8))?;
    let mut short = Vec::new();
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(100));
        short.push(fetch(world, 100_000, Duration::from_secs(4))?);
    }
    short.sort_by(|a, b| a.extrapolated_seconds().total_cmp(&b.extrapolated_seconds()));
    Ok((middle, short.swap_remove(2)))
}
