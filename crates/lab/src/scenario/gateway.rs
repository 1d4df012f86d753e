//! Flows whose TCP connection a pair of gateways carries.

use super::fields::{Fields, ScenarioError, put};
use super::flow::{Split, set};
use super::units::Size;
use starhop_proto::config::{Config, Profile};
use starhop_proto::gateway::GatewaySettings;
use starhop_sim::run::{GatewayTransport, Transport};

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
    if let Some(options) = &mut options {
        put(options.optional::<Size>("window")?.map(|size| size.0), &mut window);
        set(&mut settings, options)?;
    }
    let at = options.as_ref().unwrap_or(fields);
    let config = Config::new(settings).map_err(|e| at.error(e.field, e.problem))?;
    options.map_or(Ok(()), Fields::finish)?;
    let how = GatewayTransport { tcp, config, window };
    Ok((Transport::Gateway(Box::new(how)), Split::Named(nodes)))
}
