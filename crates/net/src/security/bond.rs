use super::aead::AeadKey;
use super::keyfile::KeyFile;
use super::secret::Secret;
use starhop_proto::gateway::Bond;
use starhop_proto::name::FlowId;
use starhop_proto::security::{Algorithm, NONCE_LEN, SealKey};

const CONTEXT: &str = "starhop 2026 gateway v1";

/// The bond of two gateways: the secret of a key file, and each other's names.
///
/// A node that has the file can name and open their trunks. If relays hold the key of the domain, the gateways
/// should have a key of their own for this.
#[derive(Clone, Debug)]
pub struct GatewayBond {
    root: Secret,
    ours: String,
    theirs: String,
}

impl GatewayBond {
    /// The bond of the gateway `ours` with the gateway `theirs`. Without a file it is derived from the names alone,
    /// and hides nothing.
    pub fn new(file: Option<&KeyFile>, ours: &str, theirs: &str) -> Self {
        let secret = file.and_then(|file| file.keys.get(file.sealing));
        let input = secret.map_or([0; 32], |live| *live.secret.bytes());
        let root = Secret::new(blake3::derive_key(CONTEXT, &input));
        Self { root, ours: ours.to_owned(), theirs: theirs.to_owned() }
    }

    /// Bytes for `purpose` that the asking and the answering gateway derive alike.
    fn derive(&self, purpose: &str, ours: bool, numbers: [u64; 2], out: &mut [u8]) {
        let (from, to) = if ours { (&self.ours, &self.theirs) } else { (&self.theirs, &self.ours) };
        let mut hasher = blake3::Hasher::new_keyed(self.root.bytes());
        for part in [purpose, from, to] {
            hasher.update(&(part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        numbers.iter().for_each(|number| _ = hasher.update(&number.to_be_bytes()));
        hasher.finalize_xof().fill(out);
    }

    /// The name and the key of a flow of a session, by their purposes.
    fn flow(&self, [name, key]: [&str; 2], ours: bool, numbers: [u64; 2]) -> (FlowId, TrunkKey) {
        let mut flow = [0; FlowId::LEN];
        self.derive(name, ours, numbers, &mut flow);
        let mut bytes = [0; 32];
        self.derive(key, ours, numbers, &mut bytes);
        let key = Secret::new(bytes);
        // Both ends must use the same algorithm, and either may lack AES instructions: it is only slower there.
        (FlowId(flow), TrunkKey(AeadKey::new(Algorithm::Aes128Gcm, key.bytes())))
    }
}

/// A key of one direction of one session.
#[derive(Debug)]
pub struct TrunkKey(Option<AeadKey>);

impl SealKey for TrunkKey {
    fn seal(&self, nonce: [u8; NONCE_LEN], header: &[u8], out: &mut Vec<u8>, start: usize) -> bool {
        self.0.as_ref().is_some_and(|key| key.seal(nonce, header, out, start))
    }

    fn open<'a>(&self, nonce: [u8; NONCE_LEN], header: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        self.0.as_ref()?.open(nonce, header, bytes)
    }
}

impl Bond for GatewayBond {
    type Key = TrunkKey;

    fn hello(&self, of_us: bool) -> [u8; 8] {
        let mut tag = [0; 8];
        self.derive("hello", of_us, [0; 2], &mut tag);
        tag
    }

    fn trunk(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, TrunkKey) {
        self.flow(["trunk name", "trunk key"], ours, [producer, asker])
    }

    fn segments(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, TrunkKey) {
        self.flow(["segments name", "segments key"], ours, [producer, asker])
    }

    fn packets(&self, ours: bool, producer: u64, asker: u64) -> (FlowId, TrunkKey) {
        self.flow(["packets name", "packets key"], ours, [producer, asker])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_agree_and_nobody_else_does() {
        let bond = |ours: &str, theirs: &str| GatewayBond::new(None, ours, theirs);
        let (site, hub, other) = (bond("site", "hub"), bond("hub", "site"), bond("hub", "sitehub"));
        assert_eq!(site.hello(true), hub.hello(false));
        assert_eq!(site.hello(false), hub.hello(true));
        assert_ne!(site.hello(true), site.hello(false));
        assert_ne!(hub.hello(true), other.hello(true));
        let ((flow, key), (same, theirs)) = (site.trunk(true, 1, 2), hub.trunk(false, 1, 2));
        assert_eq!(flow, same);
        let mut sealed = b"record".to_vec();
        assert!(key.seal([0; 12], b"", &mut sealed, 0));
        assert_eq!(theirs.open([0; 12], b"", &mut sealed.clone()), Some(&b"record"[..]));
        let (another, session) = hub.trunk(false, 1, 3);
        assert_ne!(another, flow);
        assert_eq!(session.open([0; 12], b"", &mut sealed), None, "the key of another session");
    }
}
