//! The options of TCP; their names are those of [`TcpSettings`].

use super::fields::{Fields, ScenarioError, put};
use super::units::{PacketsOrSize, Span};
use starhop_sim::host::tcp::congestion::Control;
use starhop_sim::host::tcp::{Count, LossDetection, TcpConfig, TcpSettings};
use starhop_sim::run::Transport;

/// TCP with the options of a flow.
pub(super) fn tcp(
    control: Control,
    options: Option<Fields<'_>>,
    flow: &Fields<'_>,
) -> Result<Transport, ScenarioError> {
    let mut settings = TcpSettings::new(control);
    let Some(mut options) = options else {
        let config = TcpConfig::new(settings);
        return config.map(Transport::Tcp).map_err(|e| flow.error("options", e.problem));
    };
    set_tcp(&mut settings, &mut options)?;
    let config = TcpConfig::new(settings).map_err(|e| options.error(e.field, e.problem));
    options.finish()?;
    config.map(Transport::Tcp)
}

pub(super) fn set_tcp(settings: &mut TcpSettings, options: &mut Fields<'_>) -> Result<(), ScenarioError> {
    let s = settings;
    let preset: Option<PresetName> = options.optional("preset")?;
    if let Some(preset) = preset {
        *s = TcpSettings { mss: s.mss, ..preset.settings(s.control) };
    }
    put(options.optional("mss")?, &mut s.mss);
    put(options.optional("initial_window")?, &mut s.initial_window);
    put(options.optional("ack_every")?, &mut s.ack_every);
    put(options.optional("pacing")?, &mut s.pacing);
    put(options.optional("hystart")?, &mut s.hystart);
    put(options.optional("handshake")?, &mut s.handshake);
    put(options.optional("ecn")?, &mut s.ecn);
    s.tuning.rtt0 = options.optional::<Span>("rtt0")?.map(|span| span.0);
    s.tuning.alpha = options.optional("alpha")?;
    s.tuning.beta = options.optional("beta")?;
    s.tuning.gamma = options.optional("gamma")?;
    put(options.optional::<DetectionName>("loss_detection")?.map(detection), &mut s.loss_detection);
    for (name, value) in [("delayed_ack", &mut s.delayed_ack), ("min_rto", &mut s.min_rto)] {
        put(options.optional::<Span>(name)?.map(|span| span.0), value);
    }
    let mss = f64::from(s.mss);
    let bytes = |amount| match amount {
        PacketsOrSize::Packets(packets) => (packets * mss) as u64,
        PacketsOrSize::Bytes(bytes) => bytes,
    };
    put(options.optional("receive_window")?.map(bytes), &mut s.receive_window);
    put(options.optional::<CountName>("count")?.map(count), &mut s.count);
    // ns-2 sets the first threshold to the receiver's window, of any size.
    let window = (s.receive_window / u64::from(s.mss.max(1))) as u32;
    let first = preset.is_some_and(|preset| preset == PresetName::Ns2).then_some(window);
    let given = options
        .optional::<PacketsOrSize>("initial_ssthresh")?
        .map(|amount| (bytes(amount) as f64 / mss) as u32);
    put(given.or(first).map(Some), &mut s.initial_ssthresh);
    put(options.optional::<Room>("split_buffer")?.map(|room| room.bytes(mss)), &mut s.split_buffer);
    Ok(())
}

/// Packets or bytes, or "unlimited".
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Room {
    Limited(PacketsOrSize),
    Word(RoomWord),
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RoomWord {
    Unlimited,
}

impl Room {
    fn bytes(&self, mss: f64) -> Option<u64> {
        match self {
            Self::Limited(PacketsOrSize::Packets(packets)) => Some((packets * mss) as u64),
            Self::Limited(PacketsOrSize::Bytes(bytes)) => Some(*bytes),
            Self::Word(RoomWord::Unlimited) => None,
        }
    }
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DetectionName {
    Rack,
    Dupack,
    NoSack,
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum CountName {
    Segments,
    Acks,
}

fn count(name: CountName) -> Count {
    match name {
        CountName::Segments => Count::Segments,
        CountName::Acks => Count::Acks,
    }
}

/// Whose TCP it is.
#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
enum PresetName {
    #[serde(rename = "linux")]
    Linux,
    #[serde(rename = "ns-2")]
    Ns2,
}

impl PresetName {
    fn settings(self, control: Control) -> TcpSettings {
        match self {
            Self::Linux => TcpSettings::linux(control),
            Self::Ns2 => TcpSettings::ns2(control),
        }
    }
}

fn detection(name: DetectionName) -> LossDetection {
    match name {
        DetectionName::Rack => LossDetection::Rack,
        DetectionName::Dupack => LossDetection::DupAck,
        DetectionName::NoSack => LossDetection::NoSack,
    }
}
