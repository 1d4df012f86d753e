//! The signed list of the nodes of a domain in which each node has a key of its own: names, public keys, addresses.

use super::keyfile::{KeyError, check_private, read_secret, write_private};
use super::secret::Secret;
use super::term::Term;
use super::{hex, unhex};
use crate::sys::replace::replace;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::io::Read;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A list of nodes that an [`Authority`] signs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Roster {
    version: u32,
    domain: String,
    /// Grows with each signature; 0 in a roster that was never signed.
    #[serde(default)]
    serial: u64,
    /// Seconds since 1970; 0 in a roster that was not signed.
    #[serde(default)]
    expires: u64,
    #[serde(default)]
    node: Vec<Member>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    signature: String,
}

/// A node of a roster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The operator's name for it.
    pub name: String,
    /// Its X25519 public keys, in hexadecimal digits: the one it seals with, and while it rotates another.
    pub public: Vec<String>,
    /// HOST:PORT at which it listens, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

const VERSION: u32 = 1;
const MAX_LEN: u64 = 4 << 20;

/// A running node still trusts a roster for so many seconds after its end: an authority may be away for a night.
pub(super) const GRACE: u64 = 86_400;

impl Roster {
    /// An empty one, unsigned.
    pub fn new(domain: &str) -> Self {
        Self {
            version: VERSION,
            domain: domain.to_owned(),
            serial: 0,
            expires: 0,
            node: Vec::new(),
            signature: String::new(),
        }
    }

    /// The name of its domain.
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Its number: of two rosters of a domain the newer one has the greater.
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Number and end.
    pub fn term(&self) -> Term {
        Term { serial: self.serial, expires: self.expires }
    }

    /// Its end, in seconds since 1970.
    pub fn expires(&self) -> u64 {
        self.expires
    }

    /// Its nodes.
    pub fn members(&self) -> &[Member] {
        &self.node
    }

    /// Whether a node of it listens at `address`, whose IPv4 form may be mapped to IPv6.
    pub fn has_address(&self, address: SocketAddr) -> bool {
        let wanted = (address.ip().to_canonical(), address.port());
        let addresses = self.node.iter().filter_map(|member| member.address.as_ref()?.to_socket_addrs().ok());
        addresses.flatten().any(|listed| (listed.ip().to_canonical(), listed.port()) == wanted)
    }

    /// Adds a node, or replaces the one of that name. The signature is void then.
    ///
    /// # Errors
    /// The fault of the node.
    pub fn add(&mut self, member: Member) -> Result<(), String> {
        check(&member)?;
        self.node.retain(|other| other.name != member.name);
        self.node.push(member);
        self.node.sort_by(|a, b| a.name.cmp(&b.name));
        self.signature.clear();
        Ok(())
    }

    /// Takes a node off. The signature is void then.
    ///
    /// # Errors
    /// No node has that name.
    pub fn remove(&mut self, name: &str) -> Result<(), String> {
        let before = self.node.len();
        self.node.retain(|member| member.name != name);
        if self.node.len() == before {
            return Err(format!("no node of the roster is called `{}`", name.escape_debug()));
        }
        self.signature.clear();
        Ok(())
    }

    /// Reads a roster, which is public; [`Roster::verify`] checks its signature.
    ///
    /// # Errors
    /// The file cannot be read or is no roster.
    pub fn load(path: &Path) -> Result<Self, RosterError> {
        let failed = |cause| RosterError::File { path: path.to_owned(), action: "read", cause };
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_LEN).read_to_string(&mut text).map_err(failed)?;
        let invalid = |problem| RosterError::Content { path: path.to_owned(), problem };
        Self::parse(&text).map_err(invalid)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// Names its fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let roster: Self = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if roster.version != VERSION {
            return Err(format!("its version is {}, this program knows {VERSION}", roster.version));
        }
        roster.node.iter().try_for_each(check)?;
        Ok(roster)
    }

    /// Writes it; a new file appears in one step.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), RosterError> {
        let failed = |cause| RosterError::File { path: path.to_owned(), action: "write", cause };
        let text = toml::to_string(self).map_err(std::io::Error::other).map_err(failed)?;
        replace(path, text.as_bytes(), 0o644).map_err(failed)
    }

    /// Signs it at `unix`, to be believed until `expires` (seconds since 1970).
    pub fn sign(&mut self, authority: &Authority, unix: u64, expires: u64) {
        // Of two copies that are signed one after the other, the later one is newer, whatever their counts.
        self.serial = unix.max(self.serial + 1);
        self.expires = expires;
        self.signature = hex(authority.pair.sign(&self.signed_bytes()).as_ref());
    }

    /// Whether `authority` signed it and it has not expired at `unix`.
    ///
    /// # Errors
    /// [`RosterError`] says which of the two.
    pub fn verify(&self, authority: &[u8; 32], unix: u64) -> Result<(), RosterError> {
        let key = UnparsedPublicKey::new(&ED25519, authority);
        let signature = unhex::<64>(&self.signature).ok_or(RosterError::Unsigned)?;
        if key.verify(&self.signed_bytes(), &signature).is_err() {
            return Err(RosterError::Signature { authority: hex(authority) });
        }
        if self.expires <= unix {
            return Err(RosterError::Expired { hours: (unix - self.expires) / 3600 });
        }
        Ok(())
    }

    /// One form for one meaning: no field may contain a separator.
    fn signed_bytes(&self) -> Vec<u8> {
        let mut text = format!("starhop 2026 roster v2\n{}\n{} {}\n", self.domain, self.serial, self.expires);
        for member in &self.node {
            let address = member.address.as_deref().unwrap_or("-");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {} {address}", member.name, member.public.join(","));
        }
        text.into_bytes()
    }
}

fn check(member: &Member) -> Result<(), String> {
    let is_word = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != ',');
    let name = member.name.escape_debug();
    if !is_word(&member.name) || member.name.len() > 64 {
        return Err(format!("the name `{name}` must be 1 to 64 visible characters, without `,`"));
    }
    if !(1..=2).contains(&member.public.len()) {
        return Err(format!("`{name}` has {} public keys; one or two can be live", member.public.len()));
    }
    if member.public.iter().any(|key| unhex::<32>(key).is_none() || key.len() != 64) {
        return Err(format!("a public key of `{name}` is not 64 hexadecimal digits"));
    }
    if member.address.as_deref().is_some_and(|address| !is_word(address) || !address.contains(':')) {
        return Err(format!("the address of `{name}` is not HOST:PORT"));
    }
    Ok(())
}

/// The authority that signs rosters: an Ed25519 key in a file that only its owner may read.
pub struct Authority {
    pair: Ed25519KeyPair,
    seed: Secret,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAuthority {
    version: u32,
    kind: String,
    secret: Zeroizing<String>,
}

impl Authority {
    /// A new one.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn new() -> Result<Self, KeyError> {
        let seed = Secret::random().map_err(KeyError::Randomness)?;
        Self::from_seed(seed).ok_or_else(|| KeyError::Randomness(std::io::Error::other("no key pair")))
    }

    fn from_seed(seed: Secret) -> Option<Self> {
        Ed25519KeyPair::from_seed_unchecked(seed.bytes()).ok().map(|pair| Self { pair, seed })
    }

    /// The key that nodes check signatures with.
    pub fn public(&self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(self.pair.public_key().as_ref());
        key
    }

    /// Reads it from its file.
    ///
    /// # Errors
    /// [`KeyError`] names the fault.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        let failed = |cause| KeyError::File { path: path.to_owned(), action: "read", cause };
        let invalid =
            |problem: &str| KeyError::Content { path: path.to_owned(), problem: problem.to_owned() };
        let file = std::fs::File::open(path).map_err(failed)?;
        check_private(path, &file)?;
        let text = read_secret(file).map_err(failed)?;
        let written: WrittenAuthority = toml::from_str(&text).map_err(|error| invalid(error.message()))?;
        if written.version != VERSION || written.kind != "authority" {
            return Err(invalid("it is not the key of an authority; `starhop roster init` makes one"));
        }
        let seed = Secret::from_hex(&written.secret);
        seed.and_then(Self::from_seed).ok_or_else(|| invalid("its secret is not 64 hexadecimal digits"))
    }

    /// Writes a file that must not exist.
    ///
    /// # Errors
    /// The file exists or cannot be written.
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        let secret = self.seed.to_hex();
        let text = format!(
            "# The key that signs Starhop rosters. Keep it where no node runs.\nversion = {VERSION}\nkind = \"authority\"\nsecret = \"{}\"\n",
            *secret
        );
        write_private(path, &Zeroizing::new(text), false)
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", hex(&self.public()))
    }
}

/// Why a roster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    /// The file cannot be read or written.
    #[error("cannot {action} the roster `{}`: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        cause: std::io::Error,
    },
    /// It holds something else.
    #[error("`{}` is no roster: {problem}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault.
        problem: String,
    },
    /// It has no valid signature.
    #[error("the roster is not signed, or was changed since; `starhop roster sign` signs it")]
    Unsigned,
    /// Another authority signed it, or it was changed.
    #[error(
        "the roster's signature is not that of the authority {authority}: it was changed, or another signed it"
    )]
    Signature {
        /// Whose signature was expected.
        authority: String,
    },
    /// It is too old.
    #[error(
        "the roster expired {hours} hours ago; sign it anew (`starhop roster sign`) and give it to every node. \
         If it should not have expired: is this host's clock right?"
    )]
    Expired {
        /// Hours since its end.
        hours: u64,
    },
    /// A newer one was seen.
    #[error(
        "the roster's serial is {serial}, and this node has seen {seen}: it is an old one, which may let nodes back in \
         that were put out. Give the node the newest"
    )]
    Older {
        /// The roster's.
        serial: u64,
        /// The greatest that was seen.
        seen: u64,
    },
    /// The record of earlier rosters cannot be read.
    #[error(
        "cannot read `{}`, which tells an old roster from a new one: {cause}. Remove it if nobody else can have \
         changed it", .path.display()
    )]
    Seen {
        /// The file.
        path: PathBuf,
        /// The fault.
        cause: std::io::Error,
    },
    /// It is another domain's.
    #[error("the roster is of the domain `{roster}`, the key of `{key}`")]
    Domain {
        /// The roster's.
        roster: String,
        /// The key's.
        key: String,
    },
    /// The node's own key is not on it.
    #[error("this node's key {public} is not on the roster; add it with `starhop roster add` and sign again")]
    NotAMember {
        /// The node's public key.
        public: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roster() -> Roster {
        let mut roster = Roster::new("home");
        let member = |name: &str, byte: u8| Member {
            name: name.to_owned(),
            public: vec![hex(&[byte; 32])],
            address: (byte == 1).then(|| "192.0.2.1:4433".to_owned()),
        };
        roster.add(member("b", 2)).unwrap();
        roster.add(member("a", 1)).unwrap();
        roster
    }

    #[test]
    fn a_signed_roster_is_believed_until_it_is_changed_or_expires() {
        let authority = Authority::new().unwrap();
        let mut roster = roster();
        assert!(matches!(roster.verify(&authority.public(), 5), Err(RosterError::Unsigned)));
        roster.sign(&authority, 1, 1000);
        assert!(roster.verify(&authority.public(), 999).is_ok());
        let expired = roster.verify(&authority.public(), 1000 + 7200).expect_err("it expired").to_string();
        assert!(expired.contains("2 hours ago"), "{expired}");
        let another = Authority::new().unwrap();
        assert!(matches!(roster.verify(&another.public(), 5), Err(RosterError::Signature { .. })));
        let changes: [fn(&mut Roster); 5] = [
            |roster| roster.serial += 1,
            |roster| roster.expires += 1,
            |roster| roster.domain.push('x'),
            |roster| roster.node[0].public[0] = hex(&[9; 32]),
            |roster| roster.node[1].address = Some("192.0.2.9:1".to_owned()),
        ];
        for change in changes {
            let mut changed = roster.clone();
            change(&mut changed);
            assert!(matches!(changed.verify(&authority.public(), 5), Err(RosterError::Signature { .. })));
        }
        let mut grown = roster.clone();
        grown.add(grown.node[0].clone()).unwrap();
        assert!(matches!(grown.verify(&authority.public(), 5), Err(RosterError::Unsigned)));
        let mut shrunk = roster.clone();
        assert!(shrunk.remove("c").is_err_and(|problem| problem.contains("`c`")));
        shrunk.remove("a").unwrap();
        assert_eq!(shrunk.members().len(), 1);
        assert!(matches!(shrunk.verify(&authority.public(), 5), Err(RosterError::Unsigned)));
    }

    #[test]
    fn a_roster_and_its_authority_are_read_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let (path, key) = (directory.path().join("roster"), directory.path().join("authority"));
        let authority = Authority::new().unwrap();
        authority.create(&key).unwrap();
        assert_eq!(Authority::load(&key).unwrap().public(), authority.public());
        assert!(!format!("{authority:?}").contains(&*authority.seed.to_hex()));
        let mut roster = roster();
        roster.sign(&authority, 1, 1000);
        roster.save(&path).unwrap();
        assert_eq!(Roster::load(&path).unwrap(), roster);
    }

    #[test]
    fn a_serial_grows_with_each_signature_whatever_the_clock_says() {
        let authority = Authority::new().unwrap();
        let mut roster = roster();
        let serials = [50, 40, 41, 90].map(|unix| {
            roster.sign(&authority, unix, 1000);
            roster.serial()
        });
        assert_eq!(serials, [50, 51, 52, 90]);
    }

    #[test]
    fn two_rosters_never_share_their_signed_bytes() {
        let member = Member { name: "a b".to_owned(), public: vec![hex(&[1; 32])], address: None };
        assert!(Roster::new("home").add(member).is_err(), "a blank would end the name");
        let member = Member { name: "a".to_owned(), public: vec!["12".to_owned()], address: None };
        assert!(Roster::new("home").add(member).is_err());
    }
}
