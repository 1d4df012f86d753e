//! The suite of the roles within a gateway, and a key that hides nothing.

use crate::peer::{Addressee, Face, Opened, Peer as Sender, Refusal, Unsealable};
use crate::security::{NONCE_LEN, SealKey, TAG_LEN};
use crate::time::Instant;
use crate::wire::{AnswererKey, Suite};
use alloc::vec::Vec;
use core::net::SocketAddr;

/// The suite of the roles within a gateway, which opens and seals for both of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) overhead: usize,
    /// The addressee of the packet that a role emitted last.
    pub(super) to: Option<Addressee>,
    /// The token of the address that a role hears now.
    pub(super) token: Option<u32>,
    pub(super) is_young: bool,
    /// A sender that has just shown where it is.
    pub(super) settled: Option<Sender>,
    /// The key to tell the neighbour that a role hears now.
    pub(super) introduction: Option<AnswererKey>,
}

impl Suite for Inside {
    fn room(&self) -> usize {
        0
    }

    fn overhead(&self) -> usize {
        self.overhead
    }

    fn seal(&mut self, _: Instant, to: &Addressee, _: &mut Vec<u8>, _: usize) -> Result<(), Unsealable> {
        self.to = Some(*to);
        Ok(())
    }

    /// Roles within a gateway are given opened packets.
    fn open<'a>(&mut self, _: Instant, _: Face, _: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        Err(Refusal::NotForMe)
    }

    fn token(&mut self, _: SocketAddr) -> Option<u32> {
        self.token
    }

    fn is_young(&self) -> bool {
        self.is_young
    }

    fn introduction(&mut self, _: Instant, _: &Sender) -> Option<AnswererKey> {
        self.introduction.take()
    }

    fn settle(&mut self, peer: &Sender) {
        self.settled = Some(*peer);
    }
}

/// Seals nothing: its tag only tells where a record begins. For the simulator, and behind an explicit flag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlainKey(pub u64);

impl PlainKey {
    fn tag(self, nonce: [u8; NONCE_LEN]) -> [u8; TAG_LEN] {
        let mut tag = [0; TAG_LEN];
        tag[..NONCE_LEN].copy_from_slice(&nonce);
        let mask = self.0.to_be_bytes();
        tag.iter_mut().zip(mask.iter().cycle()).for_each(|(byte, mask)| *byte ^= mask);
        tag
    }
}

impl SealKey for PlainKey {
    fn seal(&self, nonce: [u8; NONCE_LEN], _header: &[u8], out: &mut Vec<u8>, _start: usize) -> bool {
        out.extend_from_slice(&self.tag(nonce));
        true
    }

    fn open<'a>(&self, nonce: [u8; NONCE_LEN], _header: &[u8], bytes: &'a mut [u8]) -> Option<&'a [u8]> {
        let (plain, tag) = bytes.split_last_chunk::<TAG_LEN>()?;
        (*tag == self.tag(nonce)).then_some(plain)
    }
}
