//! Two members of a roster who talk for minutes, and a thief of their keys.

use super::super::keys::Root;
use super::super::{AeadKey, KeyFile, Keys, Kind, Member, Roster};
use super::*;
use starhop_proto::name::FlowId;
use starhop_proto::peer::{Addressee, Face, Incarnation, Member as MemberId, Opened, Peer, Refusal};
use starhop_proto::security::{
    Exchange, Keyring, Limits, MOST_AGREEMENTS, Offer, Seal, SealHeader, Sealing, TAG_LEN, WallClock, witness,
};
use starhop_proto::time::{Duration, Instant, WireTime};
use starhop_proto::units::Rate;
use starhop_proto::wire::{
    AnswererKey, DataFlags, DataHeader, Echo, Interest, News, Notice, Packet, Suite, Waited,
};
use std::net::SocketAddr;

const UNIX: u64 = 1_790_000_000_000_000_000;
const START: Instant = Instant::from_nanos(1_000_000_000_000);
const FLOW: FlowId = FlowId([1; 16]);

/// The asker's and the answerer's address.
fn ends() -> [SocketAddr; 2] {
    [SocketAddr::from(([192, 0, 2, 9], 40_000)), SocketAddr::from(([192, 0, 2, 1], 4433))]
}

/// A datagram as its receiver sees it.
fn at(receiver: usize) -> Face {
    let [asker, answerer] = ends();
    let face = Face { remote: asker, local: answerer };
    if receiver == 1 { face } else { face.reversed() }
}

fn seal<R: Keyring>(keys: R) -> Seal<R> {
    // It has run for ten minutes, so that it asks no member for a token.
    let mut seal =
        Seal::new(keys, START, WallClock::new(START, UNIX - 600_000_000_000), Limits::default(), 1);
    seal.set_wall_clock(WallClock::new(START, UNIX));
    seal
}

/// A packet of a number of bytes that only this test sends.
fn data(number: u64, out: &mut Vec<u8>) {
    let (flags, waited) = (DataFlags::default(), Waited::default());
    let header = DataHeader {
        counter: number as u16,
        flow: FLOW,
        offset: number,
        echo: Echo::default(),
        flags,
        waited,
    };
    header.emit(out);
    out.extend_from_slice(b"a secret");
}

/// Two nodes with their files: of the asker, and of the answerer.
struct Pairing {
    files: [KeyFile; 2],
    roster: Option<Roster>,
    asker: Seal<Keys>,
    answerer: Seal<Keys>,
    now: Instant,
    /// Requests and replies as they travelled.
    tape: [Vec<Vec<u8>>; 2],
}

impl Pairing {
    fn of_members() -> Self {
        let files = [(); 2].map(|()| KeyFile::new(Kind::Node, "home", None, 0).unwrap());
        let mut roster = Roster::new("home");
        for ((name, file), address) in ["asker", "answerer"].into_iter().zip(&files).zip(ends()) {
            let address = Some(address.to_string());
            roster.add(Member { name: name.to_owned(), public: file.public_keys(), address }).unwrap();
        }
        let [asker, answerer] = files.each_ref().map(|file| seal(Keys::pairwise(file, &roster).unwrap()));
        Self { files, roster: Some(roster), asker, answerer, now: START, tape: [Vec::new(), Vec::new()] }
    }

    fn of_a_domain() -> Self {
        let file = KeyFile::new(Kind::Domain, "home", None, 0).unwrap();
        let [asker, answerer] = [(); 2].map(|()| seal(Keys::domain(&file)));
        Self {
            files: [file.clone(), file],
            roster: None,
            asker,
            answerer,
            now: START,
            tape: [vec![], vec![]],
        }
    }

    /// Keys from the stolen file of one of the two.
    fn stolen(&self, whose: usize) -> Keys {
        match &self.roster {
            Some(roster) => Keys::pairwise(&self.files[whose], roster).unwrap(),
            None => Keys::domain(&self.files[whose]),
        }
    }

    /// The answerer takes a request, and knows the asker's address.
    fn ask(&mut self) -> Peer {
        let peer = self.ask_without_proof();
        self.answerer.settle(&peer);
        peer
    }

    /// The answerer takes a request.
    fn ask_without_proof(&mut self) -> Peer {
        let request = self.request();
        self.take(&request)
    }

    fn request(&mut self) -> Vec<u8> {
        let mut out = vec![0; self.asker.room()];
        Interest::feedback(FLOW, WireTime::default(), Rate::ZERO).emit(&mut out);
        self.asker.seal(self.now, &Addressee::Asked(ends()[1].into()), &mut out, 0).unwrap();
        self.tape[0].push(out.clone());
        out
    }

    fn take(&mut self, request: &[u8]) -> Peer {
        self.answerer.open(self.now, at(1), &mut request.to_vec()).unwrap().peer
    }

    /// The keys that the last reply depends on.
    fn exchange(&self) -> Exchange {
        SealHeader::parse(self.tape[1].last().unwrap()).unwrap().exchange
    }

    /// The asker takes a reply.
    fn answer(&mut self, peer: Peer, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = self.reply(peer, write);
        assert!(self.asker.open(self.now, at(0), &mut out).is_ok(), "a reply does not open");
    }

    fn reply(&mut self, peer: Peer, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = vec![0; self.answerer.room()];
        write(&mut out);
        self.answerer.seal(self.now, &Addressee::Asker(peer), &mut out, 0).unwrap();
        self.tape[1].push(out.clone());
        out
    }

    /// A request, and all that answers it; the keys that the last reply depends on.
    fn round(&mut self, number: u64) -> Exchange {
        let peer = self.ask();
        if let Some(key) = self.answerer.introduction(self.now, &peer) {
            self.answer(peer, |out| notice(News::Key(key), out));
        }
        self.answer(peer, |out| data(number, out));
        self.exchange()
    }
}

fn notice(news: News, out: &mut Vec<u8>) {
    Notice { counter: 0, flow: FLOW, echo: Echo::default(), news }.emit(out);
}

/// The thief of both nodes' keys reads a recording with them, and with whatever can be computed of them: the offers in
/// the requests, the keys in the Notices, and the Data packets.
struct Thief {
    pairs: Vec<Pair>,
    offers: Vec<(Incarnation, u8, Public)>,
    told: Vec<AnswererKey>,
    read: Vec<u64>,
}

impl Thief {
    fn read(pairing: &Pairing) -> Self {
        let secrets = pairing.files.iter().flat_map(|file| &file.keys).map(|live| &live.secret);
        let pairs = secrets.filter_map(Pair::new).collect();
        let mut this = Self { pairs, offers: Vec::new(), told: Vec::new(), read: Vec::new() };
        let mut answerer = seal(pairing.stolen(1));
        for request in &pairing.tape[0] {
            let mut bytes = request.clone();
            let header = SealHeader::parse(&bytes).unwrap();
            let at_its_time = header.epoch;
            answerer.set_wall_clock(wall_at(at_its_time));
            if answerer.open(START, at(1), &mut bytes).is_ok() {
                let end = bytes.len() - TAG_LEN;
                let offer = &bytes[end - Offer::LEN..end];
                this.offers.push((header.sender, header.exchange.asker, *offer.first_chunk().unwrap()));
            }
        }
        this.offers.dedup();
        for reply in &pairing.tape[1] {
            this.try_reply(pairing, reply);
        }
        this
    }

    /// Every secret that both ephemeral keys might make, of what is known.
    fn guesses(&self, asker: &Public, answerer: Option<&Public>) -> Vec<Option<Secret>> {
        let publics: Vec<&Public> =
            (self.pairs.iter().map(|pair| &pair.public)).chain([asker]).chain(answerer).collect();
        let all = self.pairs.iter().flat_map(|pair| publics.iter().map(|public| pair.agree(public)));
        all.chain([None]).collect()
    }

    fn try_reply(&mut self, pairing: &Pairing, reply: &[u8]) {
        let header = SealHeader::parse(reply).unwrap();
        let epoch = WallClock::new(START, UNIX).epoch(START);
        let mut opened = Vec::new();
        for &(incarnation, number, asker) in &self.offers {
            let of_asker = |pair: &Pair| Some((tag_of(&pair.public), pair.agree(&asker)?));
            let told = self.told.iter().filter(|key| key.number == header.exchange.answerer);
            let told: Vec<Option<Public>> = told.map(|key| Some(key.public)).chain([None]).collect();
            for answerer in told {
                for both in self.guesses(&asker, answerer.as_ref()) {
                    let statics =
                        pairing.roster.is_some().then(|| self.pairs.iter().filter_map(of_asker).collect());
                    let agreed = Agreed { asker, answerer, both, statics };
                    let candidate = (header.exchange != Exchange::NONE).then_some(&agreed);
                    if candidate.is_some() && number != header.exchange.asker {
                        continue;
                    }
                    let mut bytes = reply.to_vec();
                    let packet =
                        witness(&mut pairing.stolen(0), candidate, epoch, &[incarnation], &mut bytes);
                    opened.extend(packet.map(<[u8]>::to_vec));
                }
            }
        }
        match opened.first().map(|packet| Packet::parse(packet)) {
            Some(Ok(Packet::Notice(Notice { news: News::Key(key), .. }))) => self.told.push(key),
            Some(Ok(Packet::Data(header, _))) => self.read.push(header.offset),
            _ => {}
        }
    }
}

/// A clock that shows this epoch at the start.
fn wall_at(low: u16) -> WallClock {
    let epoch = WallClock::new(START, UNIX).epoch(START);
    let ahead = i64::from(low.wrapping_sub(epoch as u16) as i16) * 4_000_000_000;
    WallClock::new(START, UNIX).stepped(ahead)
}

/// A recording of two minutes and a half, and then both nodes' keys: the thief reads what was sent before the first round
/// trip was over, and nothing else.
#[test]
fn who_takes_both_keys_later_reads_nothing_that_was_sent_after_the_first_exchange() {
    for mut pairing in [Pairing::of_members(), Pairing::of_a_domain()] {
        let mut exchanges = Vec::new();
        for number in 0..50 {
            exchanges.push(pairing.round(number));
            pairing.now += Duration::from_secs(3);
        }
        exchanges.dedup();
        assert!(exchanges.len() >= 4, "keys change each minute: {exchanges:?}");
        assert!(exchanges[1..].iter().all(|exchange| exchange.answerer != 0), "{exchanges:?}");
        let thief = Thief::read(&pairing);
        assert!(thief.offers.len() >= 3 && !thief.told.is_empty(), "the thief can read requests");
        assert_eq!(thief.read, [0], "the first reply depends on static keys");
    }
}

/// The thief of the asker's key: it has all that the asker has but the ephemeral keys, and stands between the two.
struct Impostor {
    /// The asker's static key with the answerer's: for requests, and for replies.
    roots: [Root; 2],
    /// The tag of the answerer's key.
    tag: u16,
    own: Pair,
    /// The secret that it takes for that of the asker's ephemeral and the answerer's static key.
    guess: fn(&Self, &Public) -> Option<Secret>,
    answerer: Pair,
    /// Whether it says that replies depend on ephemeral keys at all.
    is_modest: bool,
}

impl Keyring for Impostor {
    type Key = AeadKey;
    type Ephemeral = Ephemeral;
    type Agreed = Agreed;

    fn ephemeral(&mut self) -> Option<(Ephemeral, Public)> {
        Ephemeral::new()
    }

    fn agree_asking(
        &mut self,
        _: SocketAddr,
        _: (&Ephemeral, &Public),
        _: Option<&Public>,
    ) -> Option<Agreed> {
        None
    }

    fn agree_answering(&mut self, ours: Option<(&Ephemeral, &Public)>, theirs: &Public) -> Option<Agreed> {
        let statics = Some(vec![(self.tag, (self.guess)(self, theirs)?)]);
        let (both, answerer) = ours.map(|(ours, public)| (ours.0.agree(theirs), *public)).unzip();
        Agreed::new((*theirs, answerer), both, statics)
    }

    fn agrees_alone(&self) -> bool {
        !self.is_modest
    }

    fn boot_id(&mut self) -> u64 {
        (u64::from(self.tag) << 48) | 77
    }

    fn sealing(
        &mut self,
        _: &Addressee,
        sender: Incarnation,
        epoch: u64,
        agreed: Option<&Agreed>,
    ) -> Option<Sealing<AeadKey>> {
        let algorithm = AeadKey::best_algorithm();
        let key = match agreed {
            Some(agreed) => self.roots[1].after(agreed, Some(self.tag))?.key(algorithm, sender, epoch)?,
            None => self.roots[1].key(algorithm, sender, epoch)?,
        };
        Some(Sealing { algorithm, hint: self.roots[1].hint, key, is_trial: false })
    }

    fn opening(
        &mut self,
        header: &SealHeader,
        epoch: u64,
        _: Option<&Agreed>,
        nth: usize,
    ) -> Option<(AeadKey, MemberId)> {
        let key = self.roots[0].key(header.algorithm, header.sender, epoch)?;
        (nth == 0).then_some((key, MemberId(5)))
    }

    fn token(&mut self, _: u64, _: SocketAddr) -> Option<u32> {
        None
    }
}

/// The asker's verdict on a reply of the impostor.
fn impose(guess: fn(&Impostor, &Public) -> Option<Secret>, is_modest: bool) -> Result<(), Refusal> {
    let mut pairing = Pairing::of_members();
    let [asker, answerer] = pairing.files.each_ref().map(|file| Pair::new(&file.keys[0].secret).unwrap());
    let roots = [
        asker.root(&answerer.public, &asker.public, &answerer.public).unwrap(),
        asker.root(&answerer.public, &answerer.public, &asker.public).unwrap(),
    ];
    let tag = tag_of(&answerer.public);
    let mut impostor = seal(Impostor { roots, tag, own: asker, guess, answerer, is_modest });
    let mut request = vec![0; pairing.asker.room()];
    Interest::feedback(FLOW, WireTime::default(), Rate::ZERO).emit(&mut request);
    pairing.asker.seal(START, &Addressee::Asked(ends()[1].into()), &mut request, 0).unwrap();
    let Opened { peer, .. } = impostor.open(START, at(1), &mut request).expect("the thief reads requests");
    let mut reply = vec![0; impostor.room()];
    data(1, &mut reply);
    impostor.seal(START, &Addressee::Asker(peer), &mut reply, 0).unwrap();
    pairing.asker.open(START, at(0), &mut reply).map(drop)
}

#[test]
fn who_takes_a_nodes_key_cannot_answer_it_as_another() {
    let with_own: fn(&Impostor, &Public) -> Option<Secret> = |thief, theirs| thief.own.agree(theirs);
    assert_eq!(impose(with_own, true), Err(Refusal::Forged), "no ephemeral keys at all");
    assert_eq!(
        impose(with_own, false),
        Err(Refusal::Forged),
        "the asker's static key with its ephemeral one"
    );
    assert_eq!(impose(|thief, _| thief.own.agree(&thief.answerer.public), false), Err(Refusal::Forged));
    assert_eq!(impose(|_, _| Some(Secret::new([0; 32])), false), Err(Refusal::Forged));
    assert_eq!(
        impose(|thief, theirs| thief.answerer.agree(theirs), false),
        Ok(()),
        "only the answerer itself can"
    );
}

/// Every packet of these is lost in turn, and both nodes restart: replies open all the same.
#[test]
fn replies_open_whatever_is_lost_and_whoever_restarts() {
    let mut pairing = Pairing::of_members();
    let mut late: Option<Vec<u8>> = None;
    for number in 0..400 {
        pairing.now += Duration::from_millis(700);
        let peer = pairing.ask();
        let overtaken = late.take();
        let mut reply = vec![0; pairing.answerer.room()];
        data(number, &mut reply);
        pairing.answerer.seal(pairing.now, &Addressee::Asker(peer), &mut reply, 0).unwrap();
        late = Some(reply);
        match number % 13 {
            // The request is lost.
            3 => {
                let mut out = vec![0; pairing.asker.room()];
                Interest::feedback(FLOW, WireTime::default(), Rate::ZERO).emit(&mut out);
                pairing.asker.seal(pairing.now, &Addressee::Asked(ends()[1].into()), &mut out, 0).unwrap();
            }
            // The Notice of a key is lost, again and again.
            5 | 6 => {
                let peer = pairing.ask();
                let _ = pairing.answerer.introduction(pairing.now, &peer);
                pairing.answer(peer, |out| data(number, out));
            }
            _ => _ = pairing.round(number),
        }
        // The reply to the request before arrives last, and depends on another key at times.
        if let Some(mut reply) = overtaken {
            assert!(pairing.asker.open(pairing.now, at(0), &mut reply).is_ok(), "reply {number} is late");
        }
        if number % 97 == 50 {
            pairing.answerer = restarted(pairing.stolen(1), pairing.now);
        }
        if number % 97 == 90 {
            pairing.asker = restarted(pairing.stolen(0), pairing.now);
            late = None;
        }
        // The files are read anew: nothing that is on its way is refused.
        if number % 31 == 8 {
            let peer = pairing.ask();
            pairing.asker.set_keys(pairing.stolen(0));
            pairing.answer(peer, |out| data(number, out));
            pairing.answerer.set_keys(pairing.stolen(1));
            pairing.answer(peer, |out| data(number, out));
        }
    }
    assert_eq!((pairing.asker.stats().forged, pairing.answerer.stats().unsealable), (0, 0));
    assert_ne!(pairing.round(0).answerer, 0);
}

fn restarted(keys: Keys, now: Instant) -> Seal<Keys> {
    let unix = UNIX + now.since(START).as_nanos();
    Seal::new(keys, now, WallClock::new(now, unix), Limits::default(), 1)
}

/// A member that offers fresh keys without end: what it can make a node compute is bounded, and another member has its
/// answers.
#[test]
fn a_flood_of_fresh_keys_costs_a_bounded_number_of_agreements() {
    let mut pairing = Pairing::of_members();
    for _ in 0..3 * MOST_AGREEMENTS {
        // Another start has another key.
        pairing.asker = seal(pairing.stolen(0));
        let peer = pairing.ask();
        let mut out = vec![0; pairing.answerer.room()];
        data(1, &mut out);
        let _ = pairing.answerer.seal(pairing.now, &Addressee::Asker(peer), &mut out, 0);
    }
    let stats = pairing.answerer.stats();
    assert_eq!(stats.agreements, u64::from(MOST_AGREEMENTS));
    assert!(stats.agreements_put_off >= u64::from(2 * MOST_AGREEMENTS), "{stats:?}");
    pairing.now += Duration::from_secs(4);
    let peer = pairing.ask();
    pairing.answer(peer, |out| data(2, out));
}

/// Two nodes that answer at one address, in turns, may have given their keys the same number; one was not heard for a while.
#[test]
fn two_who_answer_at_one_address_are_told_apart_whatever_their_keys_numbers() {
    let mut has_met = false;
    // Keys are drawn at random: in one run of fifty no two of sixty pairs have one number.
    for pair in 0..1_000 {
        if pair >= 60 && has_met {
            break;
        }
        let mut pairing = Pairing::of_a_domain();
        let mut other = seal(pairing.stolen(1));
        let mut exchanges = Vec::new();
        for number in 0..120 {
            if number % 17 == 5 {
                std::mem::swap(&mut pairing.answerer, &mut other);
            }
            exchanges.push(pairing.round(number));
            pairing.now += Duration::from_millis(60);
        }
        let numbers: std::collections::BTreeSet<u8> =
            exchanges.iter().map(|exchange| exchange.answerer).collect();
        has_met |= numbers.len() == 2;
        assert!(exchanges[60..].iter().all(|exchange| exchange.answerer != 0), "{exchanges:?}");
    }
    assert!(has_met, "no two had one number");
}

/// The asker has the answerer's key when it begins anew, and its offers stay as they are when it has proved its address.
#[test]
fn who_proves_its_address_after_its_offer_gets_replies_that_depend_on_both_keys() {
    let mut pairing = Pairing::of_a_domain();
    let before = [pairing.round(0), pairing.round(1)][1];
    assert_ne!(before.answerer, 0);
    // A clock that goes back makes it another incarnation.
    pairing.asker.set_wall_clock(WallClock::new(START, UNIX).stepped(-8_000_000_000));
    let peer = pairing.ask_without_proof();
    pairing.answer(peer, |out| data(2, out));
    assert_eq!(pairing.exchange(), Exchange::NONE);
    pairing.answerer.settle(&peer);
    pairing.answer(peer, |out| data(3, out));
    assert_eq!(pairing.exchange(), before);
}

/// Somebody on the path drops what brings the keys.
#[test]
fn replies_that_stay_on_static_keys_are_counted() {
    let counted = |is_told: bool| {
        let mut pairing = Pairing::of_a_domain();
        for number in 0..100 {
            if is_told {
                pairing.round(number);
            } else {
                let peer = pairing.ask();
                pairing.answer(peer, |out| data(number, out));
            }
        }
        [&pairing.asker, &pairing.answerer].map(|seal| seal.stats().replies_before_keys)
    };
    // The Notice of the key, and the Data behind it.
    assert_eq!(counted(true), [2, 2]);
    assert_eq!(counted(false), [100, 100]);
}

/// Once both keys are in use, who drops offers stops the replies: none is sealed with static keys again.
#[test]
fn dropped_offers_never_lead_back_to_static_keys() {
    let mut pairing = Pairing::of_a_domain();
    let kept = [pairing.round(0), pairing.round(1)][1];
    assert_ne!(kept.answerer, 0);
    let mut dropped = 0;
    for number in 0..400_u64 {
        pairing.now += Duration::from_millis(200 + number % 7);
        let request = pairing.request();
        if SealHeader::parse(&request).unwrap().offer_len() > 0 {
            dropped += 1;
            // The next one comes before it is time for another offer.
            let next = pairing.request();
            let peer = pairing.take(&next);
            pairing.reply(peer, |out| data(number, out));
            assert_eq!(pairing.exchange(), kept);
        }
    }
    assert!(dropped > 300, "{dropped}");
}

/// On a thin link the Notices of a key would be most of what it carries.
#[test]
fn a_key_whose_notices_are_lost_is_told_more_and_more_rarely() {
    let mut pairing = Pairing::of_a_domain();
    let mut told = Vec::new();
    for _ in 0..500 {
        let peer = pairing.ask();
        if pairing.answerer.introduction(pairing.now, &peer).is_some() {
            told.push(pairing.now.since(START).as_millis_f64());
        }
        pairing.now += Duration::from_millis(100);
    }
    assert_eq!(told[..5], [0.0, 100.0, 300.0, 700.0, 1500.0]);
    assert!((8..=12).contains(&told.len()), "{told:?}");
}

#[test]
fn a_key_that_makes_every_secret_the_same_is_no_key() {
    let own = Pair::new(&Secret::random().unwrap()).unwrap();
    assert!(own.agree(&[0; 32]).is_none(), "a point of small order");
}
