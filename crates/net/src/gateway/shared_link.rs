//! Links that several peers share, as the file names them.

use super::config::MOST_WEIGHT;
use serde::Deserialize;
use starhop_proto::gateway::Share;
use starhop_proto::units::Rate;

/// A link, such as one of a satellite with several sites.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SharedLink {
    name: String,
    rate_out_bits: u64,
}

/// The links of a file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct SharedLinks(Vec<SharedLink>);

impl SharedLinks {
    /// The rate of each link.
    pub(super) fn rates(&self) -> Vec<Rate> {
        self.0.iter().map(|link| Rate::from_bps(link.rate_out_bits)).collect()
    }

    /// The share of a peer that names a link.
    pub(super) fn share(&self, link: Option<&str>, weight: Option<u8>) -> Option<Share> {
        let place = self.0.iter().position(|known| Some(known.name.as_str()) == link)?;
        Some(Share { link: place as u16, weight: u16::from(weight.unwrap_or(1)) })
    }

    /// Checks the links.
    pub(super) fn check(&self) -> Result<(), (String, String)> {
        for (n, link) in self.0.iter().enumerate() {
            let wrong =
                |field: &str, problem: &str| Err((format!("shared_link[{n}].{field}"), problem.to_owned()));
            if link.rate_out_bits == 0 {
                return wrong("rate_out_bits", "cannot be 0: nothing would ever be sent");
            }
            if self.0[..n].iter().any(|other| other.name == link.name) {
                return wrong("name", "is another link's, too");
            }
        }
        Ok(())
    }

    /// Checks what a peer says of its link; the error has the field of the peer.
    pub(super) fn check_peer(
        &self,
        link: Option<&str>,
        weight: Option<u8>,
    ) -> Result<(), (&'static str, String)> {
        if let Some(name) = link.filter(|_| self.share(link, weight).is_none()) {
            return Err(("shared_link", format!("is `{name}`, which no [[shared_link]] is called")));
        }
        if weight.is_some() && link.is_none() {
            return Err((
                "weight",
                "goes with `shared_link`: otherwise the peer shares with nobody".to_owned(),
            ));
        }
        if weight.is_some_and(|weight| !(1..=MOST_WEIGHT).contains(&weight)) {
            return Err(("weight", format!("must lie between 1 and {MOST_WEIGHT}")));
        }
        Ok(())
    }
}
