//! Flows whose TCP connection a pair of gateways carries.

use super::fields::{Fields, ScenarioError, put};
use super::flow::{Split, set};
use super::units::Size;
use serde::Deserialize;
use starhop_proto::config::{Config, Controller, Profile};
use starhop_proto::gateway::GatewaySettings;
use starhop_proto::split::{SplitConfig, SplitSettings};
use starhop_proto::time::Duration;
use starhop_proto::units::Rate;
use starhop_sim::run::{GatewayTransport, Transport};

/// The protocol by which connections travel between gateways.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ProtocolName {
    Starhop,
    RateSplit,
}

/// The settings of a real gateway.
fn by_rate(rate: Rate, at: &Fields<'_>) -> Result<SplitConfig, ScenarioError> {
    let settings = SplitSettings { ack_delay: Duration::from_millis(40), ..SplitSettings::new(rate) };
    SplitConfig::new(settings).map_err(|error| at.error(error.field, error.problem))
}

/// The transport and the nodes of a flow with `gateway = [near the server, near the client]`. The options of the protocol between
/// them stand in `gateway_options`, and have the names of a Starhop flow's.
pub(super) fn gateway(
    fields: &mut Fields<'_>,
    how: Transport,
    split: Split,
) -> Result<(Transport, Split), ScenarioError> {
    let nodes: Option<Vec<String>> = fields.optional("gateway")?;
    let mut options = fields.table("gateway_options")?;
    let Some(nodes) = nodes else {
        return match options {
            Some(_) => Err(fields.error("gateway_options", "is for a flow with `gateway`")),
            None => Ok((how, split)),
        };
    };
    let problem = match (&how, &nodes[..]) {
        (Transport::Tcp(_), _) if split != Split::None => "cannot be together with `split`",
        (Transport::Tcp(tcp), _) if !tcp.handshake => {
            "needs TCP with a handshake: leave out `handshake = false`"
        }
        (Transport::Tcp(_), [near, far]) if near != far => "",
        (Transport::Tcp(_), _) => "names two nodes: gateway = [\"near the server\", \"near the client\"]",
        _ => "is for TCP transports",
    };
    let (Transport::Tcp(tcp), "") = (how, problem) else { return Err(fields.error("gateway", problem)) };
    let mut settings = Profile::Starhop.settings();
    let mut window = GatewaySettings::default().window;
    let mut protocol = None;
    if let Some(options) = &mut options {
        protocol = options.optional::<ProtocolName>("protocol")?;
        put(options.optional::<Size>("window")?.map(|size| size.0), &mut window);
        set(&mut settings, options)?;
    }
    let at = options.as_ref().unwrap_or(fields);
    let config = Config::new(settings).map_err(|e| at.error(e.field, e.problem))?;
    let by_rate = match (protocol, &config.controller) {
        (None | Some(ProtocolName::Starhop), _) => None,
        (Some(ProtocolName::RateSplit), Controller::Fixed(rate)) => Some(by_rate(*rate, at)?),
        _ => {
            let problem = "is `rate-split`, which sends at the rate of a link that is known: controller = { fixed = … } is missing";
            return Err(at.error("protocol", problem));
        }
    };
    options.map_or(Ok(()), Fields::finish)?;
    let how = GatewayTransport { tcp, config, window, by_rate };
    Ok((Transport::Gateway(Box::new(how)), Split::Named(nodes)))
}
