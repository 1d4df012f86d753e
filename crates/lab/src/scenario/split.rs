//! The options of rate-based connection splitting, and of clients that ask for one thing after the other.

use super::fields::{Fields, ScenarioError, put};
use super::tcp::set_tcp;
use super::units::{Bitrate, FlowSize, PacketsOrSize, Size, Span};
use starhop_proto::split::{Buffer, Release, SplitConfig, SplitSettings};
use starhop_proto::time::Duration;
use starhop_sim::host::Exchange;
use starhop_sim::host::tcp::congestion::Control;
use starhop_sim::host::tcp::{TcpConfig, TcpSettings};
use starhop_sim::run::{SplitTransport, Transport};

/// The name of the transport.
pub(super) const RATE_SPLIT: &str = "rate-split";

/// Options of the satellite have the names of [`SplitSettings`]; those of the other side stand in `terrestrial`.
pub(super) fn rate_split(options: Option<Fields<'_>>, flow: &Fields<'_>) -> Result<Transport, ScenarioError> {
    let Some(mut options) = options else {
        let problem = "is missing: rate-split needs { rate = \"10Mbit\" }, what the gateway may send over the satellite";
        return Err(flow.error("options", problem));
    };
    let Bitrate(rate) = options.required("rate")?;
    let mut settings = SplitSettings::new(rate);
    set_satellite(&mut settings, &mut options)?;
    let satellite = SplitConfig::new(settings).map_err(|e| options.error(e.field, e.problem))?;
    let terrestrial = terrestrial(&mut options, satellite.mss)?;
    options.finish()?;
    Ok(Transport::Split(Box::new(SplitTransport { terrestrial, satellite })))
}

fn set_satellite(s: &mut SplitSettings, options: &mut Fields<'_>) -> Result<(), ScenarioError> {
    put(options.optional("mss")?, &mut s.mss);
    put(options.optional("ack_every")?, &mut s.ack_every);
    put(options.optional("ack_disorder")?, &mut s.ack_disorder);
    put(options.optional("ack_pacing")?, &mut s.pacing);
    for (name, value) in [("ack_delay", &mut s.ack_delay), ("granularity", &mut s.granularity)] {
        put(options.optional::<Span>(name)?.map(|span| span.0), value);
    }
    put(options.optional::<ReleaseName>("release")?.map(release), &mut s.release);
    let mss = f64::from(s.mss);
    if let Some(window) = options.optional("receive_window")? {
        let segments = match window {
            PacketsOrSize::Packets(segments) => segments,
            PacketsOrSize::Bytes(bytes) => bytes as f64 / mss,
        };
        if segments > f64::from(u16::MAX) {
            let problem = "is more than 65535 segments, which is what the window field can say";
            return Err(options.error("receive_window", problem));
        }
        s.receive_window = segments as u16;
    }
    let peak = options.optional::<Bitrate>("peak_rate")?.map(|Bitrate(rate)| Buffer::PeakRate(rate));
    let bytes = options.optional::<PacketsOrSize>("buffer")?.map(|amount| match amount {
        PacketsOrSize::Packets(segments) => Buffer::Bytes((segments * mss) as u64),
        PacketsOrSize::Bytes(bytes) => Buffer::Bytes(bytes),
    });
    if peak.is_some() && bytes.is_some() {
        return Err(options.error("buffer", "and peak_rate size the same buffer: give one of them"));
    }
    put(bytes.or(peak), &mut s.buffer);
    Ok(())
}

/// TCP between server and gateway. Its segments are those of the satellite, so that turns at the gateway are fair.
fn terrestrial(options: &mut Fields<'_>, mss: u32) -> Result<TcpConfig, ScenarioError> {
    let mut table = options.table("terrestrial")?;
    let name = match &mut table {
        Some(table) => table.optional::<String>("control")?,
        None => None,
    };
    let Some(control) = Control::named(name.as_deref().unwrap_or("cubic")) else {
        let names = Control::names().collect::<Vec<_>>().join(", ");
        let problem = format!("is no congestion control; there are {names}");
        return Err(table.as_ref().unwrap_or(options).error("control", &problem));
    };
    let mut settings = TcpSettings::new(control);
    settings.mss = mss;
    if let Some(table) = &mut table {
        set_tcp(&mut settings, table)?;
    }
    let problem = match (settings.mss == mss, settings.handshake) {
        (false, _) => Some(("mss", "is that of the satellite: set options.mss")),
        (_, false) => Some(("handshake", "is needed: it tells the gateway the round trip to the server")),
        _ => None,
    };
    let checked = TcpConfig::new(settings).map_err(|e| (e.field, e.problem));
    let checked = problem.map_or(checked, Err);
    let at = table.as_ref().unwrap_or(options);
    let config = checked.map_err(|(field, problem)| at.error(field, problem))?;
    table.map_or(Ok(()), Fields::finish)?;
    Ok(config)
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ReleaseName {
    Selective,
    Cumulative,
}

fn release(name: ReleaseName) -> Release {
    match name {
        ReleaseName::Selective => Release::Selective,
        ReleaseName::Cumulative => Release::Cumulative,
    }
}

/// The length of a flow, and its exchange if the client asks more than once: then `size` is that of an answer.
pub(super) fn exchange(
    fields: &mut Fields<'_>,
    how: &Transport,
) -> Result<(Option<u64>, Option<Exchange>), ScenarioError> {
    let size = fields.optional::<FlowSize>("size")?.and_then(|size| size.0);
    let requests: Option<u32> = fields.optional("requests")?;
    let request = fields.optional::<Size>("request_size")?.map(|size| size.0);
    let think = fields.optional::<Span>("think")?.map(|span| span.0);
    let Some(requests) = requests else {
        return match (request, think) {
            (None, None) => Ok((size, None)),
            (Some(_), _) => Err(fields.error("request_size", "is for a flow with `requests`")),
            (None, Some(_)) => Err(fields.error("think", "is for a flow with `requests`")),
        };
    };
    let mss = match how {
        Transport::Tcp(config) => u64::from(config.mss),
        Transport::Split(split) => u64::from(split.satellite.mss),
        Transport::Gateway(how) => u64::from(how.tcp.mss),
        _ => return Err(fields.error("requests", "are for TCP transports and rate-split")),
    };
    let Some(response) = size else {
        return Err(fields.error("size", "is that of an answer, and needed with `requests`"));
    };
    if !(1..=100_000).contains(&requests) {
        return Err(fields.error("requests", "must lie between 1 and 100000"));
    }
    if requests > 1 && response % mss != 0 {
        let problem =
            format!("must be a multiple of the segment size of {mss} B where answers follow each other");
        return Err(fields.error("size", &problem));
    }
    let request = request.unwrap_or(300);
    if !(1..=mss).contains(&request) {
        return Err(fields.error("request_size", "must be between 1 B and a segment"));
    }
    let (request, think) = (request as u32, think.unwrap_or(Duration::ZERO));
    Ok((Some(response * u64::from(requests)), Some(Exchange { requests, request, response, think })))
}
