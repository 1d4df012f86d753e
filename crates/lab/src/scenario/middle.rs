//! The tunnel and the erasure code of a flow.

use super::fields::{Fields, ScenarioError};
use super::units::{Share, Span};
use starhop_proto::fec::{FecConfig, FecSettings};
use starhop_sim::host::{Middle, Side};
use starhop_sim::run::Transport;

/// Programs through which a flow's packets go on their way: `tunnel = ["server", "client"]`, and `fec = { from =
/// "server", to = "gateway" }` with the options of [`FecSettings`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Middles {
    tunnel: Option<[String; 2]>,
    fec: Option<([String; 2], FecConfig)>,
}

impl Middles {
    pub(super) fn parse(
        fields: &mut Fields<'_>,
        how: &Transport,
        is_whole: bool,
    ) -> Result<Self, ScenarioError> {
        let tunnel = fields.optional("tunnel")?;
        let fec = fields.table("fec")?.map(fec).transpose()?;
        let middles = Self { tunnel, fec };
        let field = if middles.tunnel.is_some() { "tunnel" } else { "fec" };
        if !middles.is_empty() && !matches!(how, Transport::Tcp(_)) {
            return Err(fields.error(field, "is for TCP transports"));
        }
        if !middles.is_empty() && !is_whole {
            return Err(
                fields.error(field, "cannot be where a gateway splits the connection: leave out `split`")
            );
        }
        Ok(middles)
    }

    /// Whether the flow has no such programs.
    pub fn is_empty(&self) -> bool {
        self.tunnel.is_none() && self.fec.is_none()
    }

    /// The fields that name nodes, and those.
    pub(super) fn nodes(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let tunnel = self.tunnel.iter().flatten().map(|node| ("tunnel", node));
        tunnel.chain(self.fec.iter().flat_map(|(nodes, _)| nodes).map(|node| ("fec", node)))
    }

    /// All programs, from the source on: the code is inside the tunnel's path, and sees the tunnel's packets only.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&str, Middle)> {
        let tunnel = |side: Side| {
            self.tunnel.iter().map(move |ends| (ends[side as usize].as_str(), Middle::Tunnel(side)))
        };
        let fec = |side: Side| {
            self.fec
                .iter()
                .map(move |(ends, config)| (ends[side as usize].as_str(), Middle::Fec(*config, side)))
        };
        tunnel(Side::Near).chain(fec(Side::Near)).chain(fec(Side::Far)).chain(tunnel(Side::Far))
    }
}

fn fec(mut fields: Fields<'_>) -> Result<([String; 2], FecConfig), ScenarioError> {
    let ends = [fields.required("from")?, fields.required("to")?];
    let mut settings = FecSettings::default();
    let s = &mut settings;
    for (name, value) in [
        ("residual", &mut s.residual),
        ("most_overhead", &mut s.most_overhead),
        ("first_guess", &mut s.first_guess),
    ] {
        if let Some(Share(share)) = fields.optional(name)? {
            *value = share;
        }
    }
    for (name, value) in [
        ("block_time", &mut s.block_time),
        ("hold", &mut s.hold),
        ("reorder", &mut s.reorder),
        ("report_every", &mut s.report_every),
    ] {
        if let Some(Span(span)) = fields.optional(name)? {
            *value = span;
        }
    }
    if let Some(most) = fields.optional("most_block")? {
        s.most_block = most;
    }
    let config = FecConfig::new(settings).map_err(|e| fields.error(e.field, e.problem))?;
    fields.finish()?;
    Ok((ends, config))
}
