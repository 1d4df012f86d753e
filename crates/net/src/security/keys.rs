//! From secrets to the keys of packets.

use super::aead::AeadKey;
use super::exchange::{Agreed, Ephemeral, Pair};
use super::keyfile::{KeyFile, Kind, hint_of};
use super::roster::{Roster, RosterError};
use super::secret::{Secret, fill_random};
use super::{hex, unhex};
use starhop_proto::peer::{Addressee, Incarnation, Member as MemberId};
use starhop_proto::security::{Algorithm, Direction, Keyring, Public, SealHeader, Sealing};
use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use zeroize::{Zeroize, Zeroizing};

const DOMAIN_CONTEXT: &str = "starhop 2026 hop seal, domain v1";
const PAIR_CONTEXT: &str = "starhop 2026 hop seal, pairwise v1";
const EXCHANGE_CONTEXT: &str = "starhop 2026 hop seal, exchange v1";
const TAG_CONTEXT: &str = "starhop 2026 public key tag v1";

const MEMBER_CONTEXT: &str = "starhop 2026 member id v1";
const TOKEN_CONTEXT: &str = "starhop 2026 address token v1";

/// The keys with which this node seals and opens.
#[derive(Debug)]
pub struct Keys {
    algorithm: Algorithm,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    /// All nodes have the same secrets; `sealing` is the one in use.
    Domain {
        roots: Vec<Root>,
        sealing: usize,
    },
    Pairwise(Pairwise),
}

/// A secret from which the keys of senders are derived.
#[derive(Debug)]
pub(super) struct Root {
    secret: Secret,
    pub(super) hint: u8,
}

/// One neighbour per secret.
#[derive(Debug)]
struct Pairwise {
    /// Leads others to this node's public key.
    tag: u16,
    /// The key pair that seals.
    own: Pair,
    /// The public keys of others.
    publics: BTreeMap<MemberId, Vec<Public>>,
    outgoing: BTreeMap<MemberId, Towards>,
    /// Senders by the tags of their keys, so that the roster's length does not slow packets down.
    incoming: BTreeMap<u16, Vec<From>>,
    /// The owners of addresses, by the roster.
    listed: BTreeMap<SocketAddr, MemberId>,
}

/// The secrets under which this node seals for one neighbour: one for each of the neighbour's public keys, by that
/// key's tag.
#[derive(Debug)]
struct Towards {
    roots: Vec<(u16, Root)>,
    /// The tag of the key that the neighbour sealed with last, and the epoch in which it did.
    heard: Option<(u16, u64)>,
    /// Counts trials.
    turn: usize,
}

impl Towards {
    /// The secret that seals for the neighbour in `epoch`, and whether it is a trial. A neighbour surely has the
    /// private half of the key that it seals with itself. After a silence of an epoch that key is not known any
    /// more: the neighbour's keys take turns.
    fn root(&mut self, epoch: u64) -> Option<(&Root, bool)> {
        let in_use = self.heard.filter(|(_, heard)| heard + 1 >= epoch).map(|(tag, _)| tag);
        if let Some(at) = self.roots.iter().position(|(tag, _)| Some(*tag) == in_use) {
            return self.roots.get(at).map(|(_, root)| (root, false));
        }
        self.turn += 1;
        let count = self.roots.len().max(1);
        self.roots.get(self.turn % count).map(|(_, root)| (root, count > 1))
    }
}

/// The secret of one key of one neighbour and one of ours.
#[derive(Debug)]
struct From {
    member: MemberId,
    root: Root,
}

impl Root {
    fn new(secret: Secret) -> Self {
        Self { hint: hint_of(&secret), secret }
    }

    /// The secret of replies by this one and an exchange of ephemeral keys with the owner of the static key `tag`.
    pub(super) fn after(&self, agreed: &Agreed, tag: Option<u16>) -> Option<Self> {
        let mut input = Zeroizing::new([0; 32 + Agreed::LEN]);
        input[..32].copy_from_slice(self.secret.bytes());
        agreed.write(tag, &mut input[32..])?;
        Some(Self { secret: Secret::new(blake3::derive_key(EXCHANGE_CONTEXT, &*input)), hint: self.hint })
    }

    /// The key of `sender` in `epoch`.
    pub(super) fn key(&self, algorithm: Algorithm, sender: Incarnation, epoch: u64) -> Option<AeadKey> {
        let mut input = [0; 19];
        input[..8].copy_from_slice(&sender.boot.to_be_bytes());
        input[8..10].copy_from_slice(&sender.link.to_be_bytes());
        input[10..18].copy_from_slice(&epoch.to_be_bytes());
        input[18] = algorithm as u8;
        let mut bytes = *blake3::keyed_hash(self.secret.bytes(), &input).as_bytes();
        let key = AeadKey::new(algorithm, &bytes);
        bytes.zeroize();
        key
    }
}

impl Keys {
    /// The keys of a domain.
    pub fn domain(file: &KeyFile) -> Self {
        let root = |secret: &Secret| {
            let named = Secret::new(blake3::derive_key(DOMAIN_CONTEXT, file.domain().as_bytes()));
            let mut input = [0; 64];
            input[..32].copy_from_slice(named.bytes());
            input[32..].copy_from_slice(secret.bytes());
            let root = Root {
                secret: Secret::new(blake3::derive_key(DOMAIN_CONTEXT, &input)),
                // The hint of the secret in the file, so that the hints of two live keys differ.
                hint: hint_of(secret),
            };
            input.zeroize();
            root
        };
        let roots = file.keys.iter().map(|live| root(&live.secret)).collect();
        Self { algorithm: AeadKey::best_algorithm(), mode: Mode::Domain { roots, sealing: file.sealing } }
    }

    /// The keys between this node and each other one on a roster that has been verified.
    ///
    /// # Errors
    /// The node is not on the roster, or a public key of the roster is invalid.
    pub fn pairwise(file: &KeyFile, roster: &Roster) -> Result<Self, RosterError> {
        let own: Vec<_> = file.keys.iter().filter_map(|live| Pair::new(&live.secret)).collect();
        let again = file.keys.get(file.sealing).and_then(|live| Pair::new(&live.secret));
        let Some((sealing, again)) = own.get(file.sealing).zip(again) else {
            return Err(RosterError::NotAMember { public: "of no use".to_owned() });
        };
        let mine = |member: &&super::Member| member.public.iter().any(|key| *key == hex(&sealing.public));
        if !roster.members().iter().any(|member| mine(&member)) {
            return Err(RosterError::NotAMember { public: hex(&sealing.public) });
        }
        let mut pairwise = Pairwise {
            tag: tag_of(&sealing.public),
            own: again,
            publics: BTreeMap::new(),
            outgoing: BTreeMap::new(),
            incoming: BTreeMap::new(),
            listed: BTreeMap::new(),
        };
        for member in roster.members().iter().filter(|member| !mine(member)) {
            pairwise.add(member, sealing, &own);
        }
        Ok(Self { algorithm: AeadKey::best_algorithm(), mode: Mode::Pairwise(pairwise) })
    }

    /// No keys: nothing is opened, nothing sealed.
    pub fn none() -> Self {
        let mode = Mode::Domain { roots: Vec::new(), sealing: 0 };
        Self { algorithm: AeadKey::best_algorithm(), mode }
    }

    /// The cipher that seals.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The same keys, with another algorithm for sealing.
    #[must_use]
    pub fn with_algorithm(self, algorithm: Algorithm) -> Self {
        Self { algorithm, ..self }
    }
}

impl Pair {
    /// The secret with which `from` seals for `to`; one of them is this node, and the other is `theirs`.
    pub(super) fn root(&self, theirs: &[u8; 32], from: &[u8; 32], to: &[u8; 32]) -> Option<Root> {
        let shared = self.agree(theirs)?;
        let input = Zeroizing::new([&shared.bytes()[..], from, to].concat());
        Some(Root::new(Secret::new(blake3::derive_key(PAIR_CONTEXT, &input))))
    }
}

/// The public keys of a node's file, the one that seals first.
pub(super) fn public_keys(file: &KeyFile) -> Vec<String> {
    let sealing = file.keys.get(file.sealing);
    let others =
        file.keys.iter().enumerate().filter(|(index, _)| *index != file.sealing).map(|(_, live)| live);
    let all = sealing.into_iter().chain(others);
    all.filter_map(|live| Pair::new(&live.secret)).map(|pair| hex(&pair.public)).collect()
}

impl KeyFile {
    /// The public keys of a node, the one that seals first; none of a domain.
    pub fn public_keys(&self) -> Vec<String> {
        if self.kind() == Kind::Node { public_keys(self) } else { Vec::new() }
    }
}

pub(super) fn tag_of(public: &[u8; 32]) -> u16 {
    let id = blake3::derive_key(TAG_CONTEXT, public);
    u16::from_be_bytes([id[0], id[1]])
}

impl Pairwise {
    fn add(&mut self, member: &super::Member, sealing: &Pair, own: &[Pair]) {
        let publics: Vec<[u8; 32]> = member.public.iter().filter_map(|key| unhex(key)).collect();
        let id = member_id(&member.name);
        let towards =
            |theirs: &[u8; 32]| Some((tag_of(theirs), sealing.root(theirs, &sealing.public, theirs)?));
        let roots = publics.iter().filter_map(towards).collect();
        self.outgoing.insert(id, Towards { roots, heard: None, turn: 0 });
        for theirs in &publics {
            for ours in own {
                if let Some(root) = ours.root(theirs, theirs, &ours.public) {
                    self.incoming.entry(tag_of(theirs)).or_default().push(From { member: id, root });
                }
            }
        }
        self.publics.insert(id, publics);
        let addresses = member.address.as_ref().and_then(|address| address.to_socket_addrs().ok());
        self.listed.extend(addresses.into_iter().flatten().flat_map(both_forms).map(|at| (at, id)));
    }

    fn found(&self, header: &SealHeader, nth: usize) -> Option<&From> {
        let of_tag = self.incoming.get(&((header.sender.boot >> 48) as u16))?;
        of_tag.iter().filter(|from| from.root.hint == header.hint).nth(nth)
    }
}

/// The number of a member: its name stays when its keys change.
pub(super) fn member_id(name: &str) -> MemberId {
    let [a, b, c, d, e, f, g, h, ..] = blake3::derive_key(MEMBER_CONTEXT, name.as_bytes());
    MemberId(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
}

/// An IPv4 address as sockets of either version report it.
fn both_forms(address: SocketAddr) -> Vec<SocketAddr> {
    match address {
        SocketAddr::V4(v4) => vec![address, (v4.ip().to_ipv6_mapped(), v4.port()).into()],
        SocketAddr::V6(_) => vec![address],
    }
}

impl Keyring for Keys {
    type Key = AeadKey;
    type Ephemeral = Ephemeral;
    type Agreed = Agreed;

    fn ephemeral(&mut self) -> Option<(Ephemeral, Public)> {
        Ephemeral::new()
    }

    fn agree_asking(
        &mut self,
        remote: SocketAddr,
        ours: (&Ephemeral, &Public),
        theirs: Option<&Public>,
    ) -> Option<Agreed> {
        let statics = match &self.mode {
            Mode::Domain { .. } => None,
            Mode::Pairwise(pairwise) => Some(pairwise.publics.get(pairwise.listed.get(&remote)?)?.as_slice()),
        };
        Agreed::of_asker(ours, theirs, statics)
    }

    fn agree_answering(&mut self, ours: Option<(&Ephemeral, &Public)>, theirs: &Public) -> Option<Agreed> {
        let own = match &self.mode {
            Mode::Domain { .. } => None,
            Mode::Pairwise(pairwise) => Some(&pairwise.own),
        };
        Agreed::of_answerer(ours, theirs, own)
    }

    fn agrees_alone(&self) -> bool {
        matches!(self.mode, Mode::Pairwise(_))
    }

    fn boot_id(&mut self) -> u64 {
        let mut bytes = [0; 8];
        if fill_random(&mut bytes).is_err() {
            // A number that may repeat would void every promise.
            std::process::abort();
        }
        let random = u64::from_be_bytes(bytes);
        match &self.mode {
            Mode::Domain { .. } => random,
            Mode::Pairwise(pairwise) => (u64::from(pairwise.tag) << 48) | (random >> 16),
        }
    }

    fn is_found_by(&self, boot: u64) -> bool {
        match &self.mode {
            Mode::Domain { .. } => true,
            Mode::Pairwise(pairwise) => (boot >> 48) as u16 == pairwise.tag,
        }
    }

    fn sealing(
        &mut self,
        to: &Addressee,
        sender: Incarnation,
        epoch: u64,
        agreed: Option<&Agreed>,
    ) -> Option<Sealing<AeadKey>> {
        let algorithm = self.algorithm;
        let is_request = matches!(to, Addressee::Asked(_));
        let tag = match &self.mode {
            Mode::Domain { .. } => None,
            // A thief of the asker's key must not be able to answer it as this node.
            Mode::Pairwise(_) if !is_request && agreed.is_none() => return None,
            Mode::Pairwise(pairwise) => Some(pairwise.tag),
        };
        let (root, is_trial) = match &mut self.mode {
            Mode::Domain { roots, sealing } => (roots.get(*sealing)?, false),
            Mode::Pairwise(pairwise) => {
                let member = match to {
                    Addressee::Asked(face) => pairwise.listed.get(&face.remote)?,
                    Addressee::Asker(peer) | Addressee::Stranger(peer) => &peer.member,
                };
                pairwise.outgoing.get_mut(member)?.root(epoch)?
            }
        };
        let hint = root.hint;
        let key = match agreed.filter(|_| !is_request) {
            Some(agreed) => root.after(agreed, tag)?.key(algorithm, sender, epoch)?,
            None => root.key(algorithm, sender, epoch)?,
        };
        Some(Sealing { algorithm, hint, key, is_trial })
    }

    fn heard(&mut self, member: MemberId, sender: Incarnation, epoch: u64) -> bool {
        let Mode::Pairwise(pairwise) = &mut self.mode else { return false };
        let Some(towards) = pairwise.outgoing.get_mut(&member) else { return false };
        let tag = (sender.boot >> 48) as u16;
        let before = towards.heard.replace((tag, epoch));
        towards.roots.len() > 1 && before.is_some_and(|(before, _)| before != tag)
    }

    fn succeed(&mut self, former: &Self) {
        let (Mode::Pairwise(pairwise), Mode::Pairwise(former)) = (&mut self.mode, &former.mode) else {
            return;
        };
        for (member, towards) in &mut pairwise.outgoing {
            towards.heard = former.outgoing.get(member).and_then(|before| before.heard);
        }
    }

    fn opening(
        &mut self,
        header: &SealHeader,
        epoch: u64,
        agreed: Option<&Agreed>,
        nth: usize,
    ) -> Option<(AeadKey, MemberId)> {
        let tag = match &self.mode {
            Mode::Domain { .. } => None,
            Mode::Pairwise(_) if header.direction == Direction::Reply && agreed.is_none() => return None,
            Mode::Pairwise(_) => Some((header.sender.boot >> 48) as u16),
        };
        let (root, member) = match &self.mode {
            Mode::Domain { roots, .. } => {
                (roots.iter().filter(|root| root.hint == header.hint).nth(nth)?, MemberId::default())
            }
            Mode::Pairwise(pairwise) => {
                let found = pairwise.found(header, nth)?;
                (&found.root, found.member)
            }
        };
        let key = match agreed {
            Some(agreed) => root.after(agreed, tag)?.key(header.algorithm, header.sender, epoch)?,
            None => root.key(header.algorithm, header.sender, epoch)?,
        };
        Some((key, member))
    }

    fn owner(&self, remote: SocketAddr) -> Option<MemberId> {
        match &self.mode {
            Mode::Domain { .. } => None,
            Mode::Pairwise(pairwise) => pairwise.listed.get(&remote).copied(),
        }
    }

    fn token(&mut self, secret: u64, remote: SocketAddr) -> Option<u32> {
        let mut input = secret.to_be_bytes().to_vec();
        input.extend_from_slice(remote.to_string().as_bytes());
        let [a, b, c, d, ..] = blake3::derive_key(TOKEN_CONTEXT, &input);
        // Zero is no token.
        Some(u32::from_be_bytes([a, b, c, d]).max(1))
    }
}
