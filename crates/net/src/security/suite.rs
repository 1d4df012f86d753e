use super::complaints::{Complaints, complain};
use super::floor;
use super::keys::Keys;
use super::latest::Latest;
use super::sources::{FIRST_YEAR, Loaded, ReloadError, Security, Sources};
use super::term::{Notice, Told};
use crate::clock;
use crate::pcapng::Way;
use crate::tap;
use starhop_proto::peer::{Addressee, Face, Member, Opened, Peer, Refusal, Unsealable};
use starhop_proto::security::{Limits, Seal, SealStats, WallClock};
use starhop_proto::time::Instant;
use starhop_proto::wire::{AnswererKey, Plain, Suite};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The suite of a real program: sealed, or plain where the operator insists.
pub enum HopSuite {
    /// Nothing is protected.
    Plain(Plain),
    /// Everything is.
    Sealed(Box<Sealed>),
}

/// A seal, and the files that its keys came from.
pub struct Sealed {
    seal: Seal<Keys>,
    sources: Sources,
    latest: Option<Latest>,
    security: Security,
    term_told: Told,
    names: BTreeMap<Member, String>,
    complaints: Complaints,
}

impl std::fmt::Debug for HopSuite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HopSuite({:?})", self.security())
    }
}

impl HopSuite {
    /// A suite with keys from `sources`.
    ///
    /// # Errors
    /// [`ReloadError`] says which file is at fault and why, or that the clock is.
    pub fn new(sources: &Sources) -> Result<Self, ReloadError> {
        let Some(Loaded { keys, security, names }) = sources.load()? else {
            return Ok(Self::Plain(Plain::guarded(clock::seed())));
        };
        let (now, unix) = (clock::now(), clock::unix_nanos());
        if unix / 1_000_000_000 < FIRST_YEAR {
            return Err(ReloadError::Clock(unix / 1_000_000_000));
        }
        let wall = WallClock::new(now, unix);
        let mut seal = Seal::new(keys, now, wall, Limits::default(), clock::seed());
        let latest = match sources {
            Sources::Insecure => None,
            Sources::Files { key, .. } => Some(Latest::of(key)),
        };
        if let Some(known) = latest.as_ref().and_then(Latest::known) {
            seal.was_at(known);
        }
        Ok(Self::Sealed(Box::new(Sealed {
            seal,
            latest,
            sources: sources.clone(),
            security,
            term_told: Told::default(),
            names,
            complaints: Complaints::new(now),
        })))
    }

    /// Reads the files again and uses their keys from now on; if they are invalid, the present keys stay.
    ///
    /// # Errors
    /// As [`HopSuite::new`].
    pub fn reload(&mut self) -> Result<Security, ReloadError> {
        if let Self::Sealed(sealed) = self
            && let Some(Loaded { keys, security, names }) = sealed.sources.load()?
        {
            // The newest roster may not be recorded on the disk.
            if let Some((before, now)) = sealed.security.roster.zip(security.roster) {
                floor::refuse_older(now.serial, before.serial)?;
            }
            sealed.seal.set_keys(keys);
            sealed.security = security;
            sealed.names = names;
        }
        Ok(self.security())
    }

    /// As [`HopSuite::reload`], with the outcome in the log.
    pub fn reload_and_log(&mut self) {
        match self.reload() {
            Ok(security) => {
                let key = security.key.map_or_else(String::new, |key| format!(", sealing with key {key}"));
                tracing::info!("keys read again: packets are {}{key}", security.packets);
            }
            Err(error) => tracing::error!("the keys in use stay: {error}"),
        }
    }

    /// Others reach this node at `public`, behind a NAT.
    pub fn set_public(&mut self, public: Option<SocketAddr>) {
        if let Self::Sealed(sealed) = self {
            sealed.seal.set_public(public);
        }
    }

    /// The protection of the packets.
    pub fn security(&self) -> Security {
        match self {
            Self::Plain(_) => {
                Security { packets: "plain", domain: None, key: None, cipher: None, roster: None }
            }
            Self::Sealed(sealed) => sealed.security.clone(),
        }
    }

    /// The name of a key's owner: a node's on the roster, or the domain's, whose nodes have one key. `None` if the
    /// owner of a packet is unknown.
    pub fn name_of(&self, member: Member) -> Option<&str> {
        let Self::Sealed(sealed) = self else { return None };
        match sealed.security.roster {
            Some(_) => sealed.names.get(&member).map(String::as_str),
            None => sealed.security.domain.as_deref(),
        }
    }

    /// Counters of the seal.
    pub fn stats(&self) -> SealStats {
        match self {
            Self::Plain(_) => SealStats::default(),
            Self::Sealed(sealed) => sealed.seal.stats(),
        }
    }

    /// The counters as a document; null where nothing is sealed.
    pub fn stats_json(&self) -> serde_json::Value {
        if matches!(self, Self::Plain(_)) {
            return serde_json::Value::Null;
        }
        let SealStats {
            opened,
            sealed,
            foreign,
            forged,
            not_for_me,
            replayed,
            untimely,
            over_limit,
            unsealable,
            agreements,
            agreements_put_off,
            replies_before_keys,
            senders,
            ..
        } = self.stats();
        serde_json::json!({
            "opened": opened, "sealed": sealed, "foreign": foreign, "forged": forged, "not_for_me": not_for_me, "replayed": replayed,
            "untimely": untimely, "over_limit": over_limit, "unsealable": unsealable,
            "agreements": agreements, "agreements_put_off": agreements_put_off,
            "replies_before_keys": replies_before_keys, "senders": senders,
        })
    }

    /// The bytes of memory that a seal may take.
    pub fn memory_bound(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Sealed(sealed) => sealed.seal.limits().bytes(),
        }
    }

    /// The bytes of memory that the seal takes now, at most.
    pub fn memory_held(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Sealed(sealed) => sealed.seal.stats().senders * Limits::SENDER_BYTES,
        }
    }

    /// Bounds the memory for the state of neighbours to `bytes`.
    pub fn set_memory(&mut self, bytes: u64) {
        if let Self::Sealed(sealed) = self {
            sealed.seal.set_limits(Limits::within(bytes));
        }
    }

    /// Overwrites ephemeral keys whose time is over, and keeps on disk what time the clock has shown.
    pub fn tidy(&mut self, now: Instant) {
        if let Self::Sealed(sealed) = self {
            sealed.seal.wipe(now);
            if let Some(latest) = &mut sealed.latest {
                latest.keep(sealed.seal.latest());
            }
        }
    }

    /// A message for the operator: that the roster ends, or the refusals since the last message, at most every ten
    /// seconds, because a flood must not fill the log.
    pub fn news(&mut self, now: Instant) -> Option<String> {
        self.tidy(now);
        self.end_of_roster().or_else(|| self.refusals(now))
    }

    /// Logs what [`HopSuite::news`] has for the operator.
    pub fn tell_news(&mut self, now: Instant) {
        if let Some(news) = self.news(now) {
            tracing::warn!("{news}");
        }
    }

    /// A message for the operator about the roster's end. After its grace period no node is trusted any more.
    pub fn end_of_roster(&mut self) -> Option<String> {
        self.end_of_roster_at(clock::unix_nanos() / 1_000_000_000)
    }

    fn end_of_roster_at(&mut self, unix: u64) -> Option<String> {
        let Self::Sealed(sealed) = self else { return None };
        match sealed.term_told.news(sealed.security.roster?, unix)? {
            Notice::Warning(text) => Some(text),
            Notice::Over(text) => {
                sealed.seal.set_keys(Keys::none());
                Some(text)
            }
        }
    }

    fn refusals(&mut self, now: Instant) -> Option<String> {
        let Self::Sealed(sealed) = self else { return None };
        let domain = sealed.security.domain.as_deref().unwrap_or_default();
        sealed.complaints.news(now, sealed.seal.stats(), domain)
    }

    /// A message for the operator about datagrams that were refused, if any were.
    pub fn complaint(&self) -> Option<String> {
        complain(self.stats(), self.security().domain.unwrap_or_default().as_str())
    }
}

impl Sealed {
    /// Looks at the time of day before every packet: the clock may have been set, or this machine restored from a snapshot,
    /// and the next nonce must be of the new time. The time of the last tick is exact enough for epochs of seconds.
    #[inline]
    fn look_at_the_clock(&mut self) {
        let (now, unix) = clock::coarse();
        self.seal.set_wall_clock(WallClock::new(now, unix));
    }
}

impl Suite for HopSuite {
    #[inline]
    fn room(&self) -> usize {
        match self {
            Self::Plain(plain) => plain.room(),
            Self::Sealed(sealed) => sealed.seal.room(),
        }
    }

    fn overhead(&self) -> usize {
        match self {
            Self::Plain(plain) => plain.overhead(),
            Self::Sealed(sealed) => sealed.seal.overhead(),
        }
    }

    #[inline]
    fn seal(
        &mut self,
        now: Instant,
        to: &Addressee,
        out: &mut Vec<u8>,
        start: usize,
    ) -> Result<(), Unsealable> {
        if let Some(packet) = out.get(start + self.room()..) {
            tap::note(Way::Out, to.face(), packet);
        }
        match self {
            Self::Plain(plain) => plain.seal(now, to, out, start),
            Self::Sealed(sealed) => {
                sealed.look_at_the_clock();
                sealed.seal.seal(now, to, out, start)
            }
        }
    }

    #[inline]
    fn open<'a>(&mut self, now: Instant, face: Face, datagram: &'a mut [u8]) -> Result<Opened<'a>, Refusal> {
        let opened = match self {
            Self::Plain(plain) => plain.open(now, face, datagram),
            Self::Sealed(sealed) => {
                sealed.look_at_the_clock();
                sealed.seal.open(now, face, datagram)
            }
        }?;
        tap::note(Way::In, face, opened.packet);
        Ok(opened)
    }

    fn token(&mut self, remote: SocketAddr) -> Option<u32> {
        match self {
            Self::Plain(plain) => plain.token(remote),
            Self::Sealed(sealed) => sealed.seal.token(remote),
        }
    }

    fn is_young(&self) -> bool {
        match self {
            Self::Plain(plain) => plain.is_young(),
            Self::Sealed(sealed) => sealed.seal.is_young(),
        }
    }

    fn introduction(&mut self, now: Instant, peer: &Peer) -> Option<AnswererKey> {
        match self {
            Self::Plain(plain) => plain.introduction(now, peer),
            Self::Sealed(sealed) => sealed.seal.introduction(now, peer),
        }
    }

    fn settle(&mut self, peer: &Peer) {
        if let Self::Sealed(sealed) = self {
            sealed.seal.settle(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::security::{Authority, KeyFile, Kind, Member as Listed, Roster};
    use starhop_proto::name::{ByteRange, FlowId};
    use starhop_proto::time::{Duration, WireTime};
    use starhop_proto::units::Rate;
    use starhop_proto::wire::{Echo, Interest, News, Notice};
    use std::path::{Path, PathBuf};

    fn suite(directory: &Path) -> (HopSuite, PathBuf) {
        let path = directory.join("key");
        KeyFile::new(Kind::Domain, "home", None, 0).unwrap().create(&path).unwrap();
        (HopSuite::new(&Sources::Files { key: path.clone(), roster: None, cipher: None }).unwrap(), path)
    }

    /// Whether requests need the token of this start when its clock shows three minutes more.
    fn is_young_three_minutes_later(suite: &mut HopSuite) -> bool {
        let HopSuite::Sealed(sealed) = suite else { panic!() };
        let later = Duration::from_secs(180);
        sealed.seal.set_wall_clock(WallClock::new(clock::now(), clock::unix_nanos() + later.as_nanos()));
        let to = Addressee::Asked(SocketAddr::from(([10, 0, 0, 1], 1)).into());
        sealed.seal.seal(clock::now(), &to, &mut vec![0; 100], 0).unwrap();
        sealed.seal.is_young()
    }

    #[test]
    fn a_start_knows_from_disk_that_the_clock_was_ahead_before_it() {
        let directory = tempfile::tempdir().unwrap();
        let (mut first, key) = suite(directory.path());
        let again =
            || HopSuite::new(&Sources::Files { key: key.clone(), roster: None, cipher: None }).unwrap();
        first.news(clock::now());
        assert!(again().is_young() && !is_young_three_minutes_later(&mut again()), "the clock was right");
        let HopSuite::Sealed(sealed) = &mut first else { panic!() };
        let hour = Duration::from_secs(3600).as_nanos();
        sealed.seal.set_wall_clock(WallClock::new(clock::now(), clock::unix_nanos() + hour));
        let to = Addressee::Asked(SocketAddr::from(([10, 0, 0, 1], 1)).into());
        sealed.seal.seal(clock::now(), &to, &mut vec![0; 100], 0).unwrap();
        first.news(clock::now());
        assert!(is_young_three_minutes_later(&mut again()), "what was recorded then is timely in an hour");
    }

    #[test]
    fn a_flood_of_junk_is_told_at_most_every_ten_seconds() {
        let directory = tempfile::tempdir().unwrap();
        let (mut suite, _) = suite(directory.path());
        let start = clock::now();
        let mut told = Vec::new();
        for millis in (0..25_000).step_by(100) {
            let now = start + Duration::from_millis(millis);
            assert!(suite.open(now, SocketAddr::from(([10, 0, 0, 1], 1)).into(), &mut [0x50; 100]).is_err());
            told.extend(suite.news(now));
        }
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[1].contains("100 were not sealed") && told[1].contains("--insecure"), "{told:?}");
    }

    #[test]
    fn keys_that_cannot_be_read_again_leave_those_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let (mut suite, path) = suite(directory.path());
        let before = suite.security();
        std::fs::write(&path, "nonsense").unwrap();
        assert!(suite.reload().is_err());
        assert_eq!(suite.security(), before);
        std::fs::remove_file(&path).unwrap();
        KeyFile::new(Kind::Domain, "home", None, 0).unwrap().create(&path).unwrap();
        let after = suite.reload().unwrap();
        assert!(after.key.is_some() && after.key != before.key);
    }

    /// A node and a server on a roster of `directory`, signed now for an hour; the node's sources.
    fn on_a_roster(directory: &Path) -> (Sources, Authority, Roster) {
        let at = |name: &str| directory.join(name);
        let authority = Authority::new().unwrap();
        let mut roster = Roster::new("home");
        for name in ["node", "server", "other"] {
            let key = KeyFile::new(Kind::Node, "home", Some(authority.public()), 0).unwrap();
            key.create(&at(name)).unwrap();
            let address = (name == "server").then(|| "192.0.2.1:4433".to_owned());
            roster.add(Listed { name: name.to_owned(), public: key.public_keys(), address }).unwrap();
        }
        let now = clock::unix_nanos() / 1_000_000_000;
        roster.sign(&authority, now, now + 3600);
        roster.save(&at("roster")).unwrap();
        (Sources::Files { key: at("node"), roster: Some(at("roster")), cipher: None }, authority, roster)
    }

    #[test]
    fn an_older_roster_is_refused_by_who_runs_and_by_who_starts_again() {
        let directory = tempfile::tempdir().unwrap();
        let (sources, authority, old) = on_a_roster(directory.path());
        let mut suite = HopSuite::new(&sources).unwrap();
        let mut newer = old.clone();
        newer.sign(&authority, 0, old.expires());
        newer.save(&directory.path().join("roster")).unwrap();
        assert_eq!(suite.reload().unwrap().roster, Some(newer.term()));
        old.save(&directory.path().join("roster")).unwrap();
        let mut errors = vec![suite.reload().map(drop), HopSuite::new(&sources).map(drop)];
        // The one that runs remembers it even if the disk does not.
        std::fs::remove_file(directory.path().join("roster.seen")).unwrap();
        errors.push(suite.reload().map(drop));
        for error in errors {
            assert!(error.is_err_and(|error| error.to_string().contains("an old one")));
        }
        assert_eq!(suite.security().roster, Some(newer.term()));
    }

    #[test]
    fn after_the_grace_of_an_expired_roster_nothing_is_sealed_until_there_is_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let (sources, authority, mut roster) = on_a_roster(directory.path());
        let mut suite = HopSuite::new(&sources).unwrap();
        let server = SocketAddr::from(([192, 0, 2, 1], 4433));
        let seals = |suite: &mut HopSuite| suite.overhead() > 0 && sealed_for(suite, server);
        let end = roster.expires() + crate::security::roster::GRACE;
        assert!(suite.end_of_roster_at(end - 1).is_some_and(|told| told.contains("1 more hours")));
        assert!(seals(&mut suite));
        assert!(suite.end_of_roster_at(end).is_some_and(|told| told.contains("believes nobody")));
        assert!(!seals(&mut suite));
        roster.sign(&authority, end, end + 86_400);
        roster.save(&directory.path().join("roster")).unwrap();
        suite.reload().unwrap();
        assert!(seals(&mut suite));
    }

    /// A member that sees all packets between two others, and can send from the address of either.
    #[test]
    fn a_member_speaks_for_itself_only_and_reads_what_is_for_it_only() {
        let directory = tempfile::tempdir().unwrap();
        let (sources, ..) = on_a_roster(directory.path());
        let member = |name: &str| {
            let Sources::Files { roster, cipher, .. } = sources.clone() else { panic!() };
            HopSuite::new(&Sources::Files { key: directory.path().join(name), roster, cipher }).unwrap()
        };
        let [mut node, mut server, mut other] = ["node", "server", "other"].map(member);
        let at = |host: u8, port| SocketAddr::from(([192, 0, 2, host], port));
        let (here, there) = (at(9, 40_000), at(1, 4433));
        let face = |remote, local| Face { remote, local };
        let now = clock::now();
        let seal = |suite: &mut HopSuite, to: Addressee| {
            let mut out = vec![0; suite.room()];
            let (flow, echo) = (FlowId([1; 16]), WireTime::default());
            match to {
                Addressee::Asked(_) => Interest::feedback(flow, echo, Rate::ZERO).emit(&mut out),
                Addressee::Asker(_) | Addressee::Stranger(_) => {
                    let news = News::Coming(ByteRange::new(0, 1));
                    Notice { counter: 0, flow, echo: Echo::default(), news }.emit(&mut out);
                }
            }
            suite.seal(now, &to, &mut out, 0).map(|()| out)
        };
        let request = seal(&mut node, Addressee::Asked(there.into())).unwrap();
        let asker = server.open(now, face(here, there), &mut request.clone()).unwrap().peer;
        assert!(other.open(now, face(here, there), &mut request.clone()).is_err(), "it reads a request");
        let reply = seal(&mut server, Addressee::Asker(asker)).unwrap();
        assert!(other.open(now, face(there, here), &mut reply.clone()).is_err(), "it reads a reply");
        assert!(
            seal(&mut other, Addressee::Asker(asker)).is_err(),
            "it answers a request that it cannot read"
        );
        assert!(node.open(now, face(there, here), &mut reply.clone()).is_ok());
        let request = seal(&mut other, Addressee::Asked(there.into())).unwrap();
        let own = server.open(now, face(here, there), &mut request.clone()).unwrap().peer;
        assert_ne!(own.member, asker.member, "state is kept by member, whatever the address");
    }

    fn sealed_for(suite: &mut HopSuite, to: SocketAddr) -> bool {
        let mut out = vec![0; suite.room()];
        out.extend_from_slice(b"packet");
        suite.seal(clock::now(), &Addressee::Asked(to.into()), &mut out, 0).is_ok()
    }
}
