use super::session::AnySink;
use super::{FetchError, Job};
use crate::clock;
use crate::driver::Driver;
use crate::security::HopSuite;
use serde::Serialize;
use starhop_proto::consumer::Consumer;
use starhop_proto::name::{ByteRange, FlowId};
use std::net::SocketAddr;

/// A neighbour from which wrong bytes came, whether it or a node behind it changed them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Culprit {
    /// The neighbour that was asked.
    pub address: SocketAddr,
    /// Groups of 16 KiB that were wrong.
    pub groups: u64,
    /// Start of the first wrong group.
    pub first_offset: u64,
}

/// The source of a download, and the sources to try next when it turns out to give wrong bytes.
#[derive(Debug)]
pub(super) struct Route {
    flow: FlowId,
    asked: SocketAddr,
    others: std::vec::IntoIter<SocketAddr>,
    culprits: Vec<Culprit>,
}

impl Route {
    pub(super) fn new(job: &Job, asked: SocketAddr, flow: FlowId) -> Self {
        Self { flow, asked, others: job.bypass.clone().into_iter(), culprits: Vec::new() }
    }

    pub(super) fn culprits(self) -> Vec<Culprit> {
        self.culprits
    }

    /// Groups are wrong: they, and all bytes that are still to come, are requested from the next source.
    ///
    /// # Errors
    /// There is no other source.
    pub(super) fn on_bad(
        &mut self,
        driver: &mut Driver<Consumer<AnySink, HopSuite>>,
        bad: &[ByteRange],
        job: &Job,
    ) -> Result<(), FetchError> {
        self.blame(bad);
        let next = self.others.find_map(|next| driver.endpoint().address_of(next).map(|at| (next, at)));
        let Some((next, at)) = next else {
            let offset = bad.first().map_or(0, |range| range.start);
            return Err(FetchError::Poisoned { name: job.name.to_string(), from: self.asked, offset });
        };
        self.asked = next;
        let now = clock::now();
        driver.node_mut().set_upstream(now, self.flow, at);
        for &range in bad {
            driver.node_mut().reject(now, self.flow, range);
        }
        Ok(())
    }

    fn blame(&mut self, bad: &[ByteRange]) {
        let (address, groups) = (self.asked, bad.len() as u64);
        match self.culprits.iter_mut().find(|culprit| culprit.address == address) {
            Some(culprit) => culprit.groups += groups,
            None => {
                let first_offset = bad.first().map_or(0, |range| range.start);
                self.culprits.push(Culprit { address, groups, first_offset });
            }
        }
    }
}
