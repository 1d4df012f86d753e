use crate::config::Config;
use crate::wire::DataHeader;

/// The proof for a neighbour that this node receives at its address: the token that the neighbour gave it. Once known, the token
/// stands in every Interest; before, the first request for a flow, and no other, is padded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Admission {
    token: Option<u32>,
    /// Padding of the first request; zero once it has left.
    padding: u16,
}

impl Admission {
    /// Nothing is proven yet.
    ///
    /// A neighbour that does not know this node sends at most three bytes for each that came (RFC 9000, section 8): as much as it
    /// needs for two packets, whose spacing tells how fast the link is before the neighbour may send many.
    pub(super) fn new(config: &Config) -> Self {
        let packet = config.payload as u64 + DataHeader::MAX_USUAL_LEN + config.seal_overhead();
        Self { token: None, padding: u16::try_from((2 * packet).div_ceil(3)).unwrap_or(u16::MAX) }
    }

    /// The neighbour wants `token` in every Interest. True if the token is new.
    pub(super) fn prove(&mut self, token: u32) -> bool {
        self.token.replace(token) != Some(token)
    }

    /// The token that the neighbour wants.
    pub(super) fn token(&self) -> Option<u32> {
        self.token
    }

    /// A request for a flow leaves. Returns its padding, of which there is none if the neighbour `may_send_many` already.
    pub(super) fn on_request(&mut self, may_send_many: bool) -> u16 {
        let padding = core::mem::take(&mut self.padding);
        if self.token.is_none() && !may_send_many { padding } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        Admission::new(&Config::default())
    }

    #[test]
    fn the_first_request_and_no_other_pays_for_two_packets() {
        let mut admission = admission();
        let padding = u64::from(admission.on_request(false));
        assert!(3 * padding >= 2 * Config::default().payload as u64, "{padding} bytes");
        assert_eq!(admission.on_request(false), 0);
    }

    #[test]
    fn nothing_is_padded_for_a_neighbour_that_may_send_many_or_knows_this_node() {
        assert_eq!(admission().on_request(true), 0);
        let mut known = admission();
        known.prove(7);
        assert_eq!(known.on_request(false), 0);
    }

    #[test]
    fn a_token_is_new_once() {
        let mut admission = admission();
        assert_eq!(admission.token(), None);
        assert!(admission.prove(7) && !admission.prove(7) && admission.prove(8));
        assert_eq!(admission.token(), Some(8));
    }
}
