//! The downstream side of flows, for the nodes that answer: the Relay and the Producer.

use super::{Downlinks, Ending, Subscriber};
use crate::name::FlowId;
use crate::table::{Slot, Table};
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A flow that neighbours ask for.
pub trait Served {
    /// The neighbours.
    fn subscribers(&mut self) -> &mut Vec<Subscriber>;

    /// Time of its last request or packet.
    fn last_used(&self) -> Instant;
}

impl<F: Served> Served for Box<F> {
    fn subscribers(&mut self) -> &mut Vec<Subscriber> {
        (**self).subscribers()
    }

    fn last_used(&self) -> Instant {
        (**self).last_used()
    }
}

/// The outcome of [`Downlinks::sweep`].
#[derive(Debug)]
pub struct Swept<F> {
    /// The flows that are forgotten.
    pub gone: Vec<(Slot, F)>,
    /// Time of the next look; `None` when nothing is left.
    pub next: Option<Instant>,
}

impl Downlinks {
    /// Forgets the neighbours whose hops are given up, and all their requests. Flows that no neighbour wants any more are given to
    /// `on_deserted`.
    pub fn forget_superfluous<F: Served>(
        &mut self,
        now: Instant,
        flows: &mut Table<FlowId, F>,
        mut on_deserted: impl FnMut(&mut F),
    ) {
        while let Some((link, owners)) = self.take_superfluous(now) {
            for owner in owners {
                let Some(flow) = flows.get_mut(owner) else { continue };
                Subscriber::drop_link(flow.subscribers(), self, link, Ending::Restarted);
                if flow.subscribers().is_empty() {
                    on_deserted(flow);
                }
            }
            self.forget(link);
        }
    }

    /// Forgets flows and neighbours that were silent.
    pub fn sweep<F: Served>(&mut self, now: Instant, flows: &mut Table<FlowId, F>) -> Swept<F> {
        let interval = self.sweep_interval();
        let is_over = |flow: &mut F| self.is_over(now, flow.last_used(), flow.subscribers());
        let silent: Vec<Slot> =
            flows.iter_mut().filter_map(|(slot, flow)| is_over(flow).then_some(slot)).collect();
        let gone: Vec<(Slot, F)> = silent
            .into_iter()
            .filter_map(|slot| Some((slot, flows.remove(slot)?)))
            .map(|(slot, mut flow)| {
                flow.subscribers().drain(..).for_each(|subscriber| subscriber.close(self, Ending::Silent));
                (slot, flow)
            })
            .collect();
        let span = self.forget_after();
        for (_, flow) in flows.iter_mut() {
            Subscriber::drop_silent(flow.subscribers(), self, now, span);
        }
        self.forget_silent(now, span);
        let next = (!flows.is_empty() || !self.is_empty()).then(|| now + interval);
        Swept { gone, next }
    }
}
