//! Keys and crypto for the hop seal of [`starhop_proto::security`]; docs/SECURITY.md has the reasons.
//!
//! From the top down: [`HopSuite`] is the suite that a program gives to a role, sealed or plain. It is made from a
//! [`KeyFile`], alone (every node of a domain shares it) or with a [`Roster`] (each node has its own and speaks to
//! those on the list). `keys` derives the keys of packets, `aead` seals.

mod aead;
mod bond;
mod complaints;
mod credential;
mod exchange;
mod floor;
mod freshness;
mod keyfile;
mod keys;
mod latest;
mod roster;
mod secret;
mod sources;
pub mod speed;
pub mod stream;
mod suite;
mod term;

pub use aead::AeadKey;
pub use bond::GatewayBond;
pub use credential::credential;
pub use freshness::Freshness;
pub(crate) use keyfile::holds_a_secret;
pub use keyfile::{KeyError, KeyFile, Kind, Step};
pub use keys::Keys;
pub use roster::{Authority, Member, Roster, RosterError};
pub use sources::{ReloadError, Security, Sources};
pub use suite::HopSuite;
pub use term::Term;

/// The files that a node with these keys writes, to remember what it has seen.
pub(crate) fn records(sources: &Sources) -> Vec<std::path::PathBuf> {
    match sources {
        Sources::Insecure => Vec::new(),
        Sources::Files { key, roster, .. } => {
            std::iter::once(latest::place(key)).chain(roster.as_deref().map(floor::place)).collect()
        }
    }
}

/// Lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of exactly `2 * N` hexadecimal digits.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.trim();
    if digits.len() != 2 * N || !digits.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(bytes)
}
