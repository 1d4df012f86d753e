//! The mechanisms that Starhop has beyond the published protocols.

/// Mechanisms that the published protocols do not have, each under its name. A profile says which of them it uses, and
/// the code asks for the mechanism, never for the profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mechanisms {
    /// A gap in the hop's counter tells that a hole was lost on this hop. Without it, every hole is taken for a loss on
    /// this hop, as in LEOTP's algorithm 1.
    pub loss_attribution: bool,
    /// After a pause, every byte that was asked for before it is suspected to be lost.
    pub wake_up: bool,
    /// The Requester notices that another node answers under its neighbour's address, and asks it for everything again.
    pub neighbour_detection: bool,
    /// Interests carry an epoch. A change of upstream starts a new one: the old requests are void, and the new upstream
    /// is asked for everything that is missing. Without it, only requests made after the change reach the new upstream.
    pub epochs: bool,
    /// The Consumer probes a flow that has stopped, before a timeout.
    pub silence_probes: bool,
    /// The Consumer does not repeat a request that is still to come in order or that a hop repairs, and repeats a single
    /// request while the path is silent. Without it, every request has a timer of its own (LEOTP section III.B).
    pub patient_timeouts: bool,
    /// Repairs leave before new data and are not held by the flow's rate. Without it, they wait in the sending
    /// buffer behind the data that is there.
    pub repairs_first: bool,
    /// The word that a flow is no longer held back is repeated until packets show that it arrived. Without it, it is told once.
    pub releases: bool,
    /// A long hop that loses packets is sent parity, and asks again only for losses that parity cannot repair.
    pub parity: bool,
    /// The Consumer asks ahead for its share of the path, which it learns from the waiting times that Responders
    /// report, and requests that wait for their turn do not time out. Without it, the Consumer keeps 256 KiB and
    /// one and a half bandwidth-delay products asked for.
    pub share: bool,
    /// The time that an Interest waited on its way to the Responder is left out of the delays that tell of a queue in front of
    /// the link. Without it, the whole hopRTT counts.
    pub one_way: bool,
    /// The first packets of a long hop leave in chirps, which show the room of the link, and the Consumer asks for as much at once.
    /// Without it, both double from round trip to round trip.
    pub chirps: bool,
    /// A relay keeps what waits to be sent, and grants its upstream no more than it has room for. Without it, what waits
    /// too long is evicted, and asked for again.
    pub room: bool,
    /// Where packets of full length do not come, the Requester finds the length that the path carries, and its Responder
    /// keeps to it.
    pub size_probes: bool,
}

impl Mechanisms {
    /// All of them: the profile `starhop`.
    pub const ALL: Self = Self::each(true);

    /// None of them: the published protocols.
    pub const NONE: Self = Self::each(false);

    const fn each(on: bool) -> Self {
        Self {
            loss_attribution: on,
            wake_up: on,
            neighbour_detection: on,
            epochs: on,
            silence_probes: on,
            patient_timeouts: on,
            repairs_first: on,
            releases: on,
            parity: on,
            share: on,
            one_way: on,
            chirps: on,
            room: on,
            size_probes: on,
        }
    }

    /// Every mechanism by its name.
    pub fn by_name(&mut self) -> [(&'static str, &mut bool); 14] {
        [
            ("loss_attribution", &mut self.loss_attribution),
            ("wake_up", &mut self.wake_up),
            ("neighbour_detection", &mut self.neighbour_detection),
            ("epochs", &mut self.epochs),
            ("silence_probes", &mut self.silence_probes),
            ("patient_timeouts", &mut self.patient_timeouts),
            ("repairs_first", &mut self.repairs_first),
            ("releases", &mut self.releases),
            ("parity", &mut self.parity),
            ("share", &mut self.share),
            ("one_way", &mut self.one_way),
            ("chirps", &mut self.chirps),
            ("room", &mut self.room),
            ("size_probes", &mut self.size_probes),
        ]
    }
}
