//! Nodes with keys of their own, on a roster: which key seals for whom, and what a long roster costs.

use starhop_net::security::{KeyFile, Keys, Kind, Member, Roster};
use starhop_proto::name::FlowId;
use starhop_proto::peer::{Addressee, Face, Peer, Refusal};
use starhop_proto::rng::Rng;
use starhop_proto::security::{EPOCH, HEADER_LEN, Limits, Seal, SealHeader, WallClock};
use starhop_proto::time::{Duration, Instant, WireTime};
use starhop_proto::units::Rate;
use starhop_proto::wire::{Echo, Interest, News, Notice, Suite};
use std::fmt::Write;
use std::net::SocketAddr;

/// 2026-09-21, when all clocks are right.
const UNIX: u64 = 1_790_000_000_000_000_000;
const START: Instant = Instant::from_nanos(1_000_000_000_000);

type Sealed = Seal<Keys>;

fn key() -> KeyFile {
    KeyFile::new(Kind::Node, "home", None, 0).expect("a key")
}

fn server_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], 4433))
}

fn node_address() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 9], 40_000))
}

fn at_server() -> Face {
    Face { remote: node_address(), local: server_address() }
}

fn at_node() -> Face {
    at_server().reversed()
}

/// A roster of a node, and of a server with these public keys.
fn roster(node: &KeyFile, server: &[String]) -> Roster {
    let mut roster = Roster::new("home");
    let member = |name: &str, public: &[String], address| Member {
        name: name.to_owned(),
        public: public.to_vec(),
        address,
    };
    roster.add(member("node", &node.public_keys(), None)).expect("a member");
    let address = Some(server_address().to_string());
    roster.add(member("server", server, address)).expect("a member");
    roster
}

fn keys(file: &KeyFile, roster: &Roster) -> Keys {
    Keys::pairwise(file, roster).expect("a member of the roster")
}

fn seal(file: &KeyFile, roster: &Roster) -> Sealed {
    Seal::new(keys(file, roster), START, WallClock::new(START, UNIX), Limits::default(), 1)
}

/// The node asks the server.
fn request(now: Instant, node: &mut Sealed, server: &mut Sealed) -> Result<Peer, Refusal> {
    let mut out = vec![0; node.room()];
    Interest::feedback(FlowId([1; 16]), WireTime::default(), Rate::ZERO).emit(&mut out);
    let to = Addressee::Asked(Face::towards(server_address()));
    node.seal(now, &to, &mut out, 0).expect("a key for the server");
    server.open(now, at_server(), &mut out).map(|opened| opened.peer)
}

/// The server answers.
fn reply(now: Instant, asker: Peer, node: &mut Sealed, server: &mut Sealed) -> Result<(), Refusal> {
    let mut out = vec![0; server.room()];
    let (flow, echo) = (FlowId([1; 16]), Echo::default());
    Notice { counter: 0, flow, echo, news: News::Token(1) }.emit(&mut out);
    server.seal(now, &Addressee::Asker(asker), &mut out, 0).expect("a key for the node");
    node.open(now, at_node(), &mut out).map(drop)
}

/// The hints by which a node names the secrets that it shares with the two keys of the server.
fn hints(node_file: &KeyFile, server: &[String]) -> [u8; 2] {
    let mut node = seal(node_file, &roster(node_file, server));
    [(); 2].map(|()| {
        let mut out = vec![0; node.room()];
        Interest::feedback(FlowId([1; 16]), WireTime::default(), Rate::ZERO).emit(&mut out);
        let to = Addressee::Asked(Face::towards(server_address()));
        node.seal(START, &to, &mut out, 0).expect("a key for the server");
        SealHeader::parse(&out).expect("a header").hint
    })
}

/// The server has one of the two keys that the roster gives it, then seals with the other, then has only that.
fn rotate(node_file: &KeyFile, old: &KeyFile, both: &KeyFile) {
    for order in [[0, 1], [1, 0]] {
        let public = both.public_keys();
        let roster = roster(node_file, &order.map(|index: usize| public[index].clone()));
        let (mut node, mut server) = (seal(node_file, &roster), seal(old, &roster));
        let mut file = both.clone();
        for step in 0..3 {
            let now = START + Duration::from_millis(500).scaled(step, 1);
            let mut tried = (0..2).filter_map(|_| request(now, &mut node, &mut server).ok());
            let asker = tried.next().expect("one of two requests opens");
            assert_eq!(reply(now, asker, &mut node, &mut server), Ok(()));
            for n in 0..100 {
                assert!(request(now, &mut node, &mut server).is_ok(), "{order:?}, step {step}, packet {n}");
            }
            // The roster is read anew: what was heard is not forgotten with it.
            node.set_keys(keys(node_file, &roster));
            assert!(request(now, &mut node, &mut server).is_ok(), "{order:?}, step {step}");
            file.rotate(0).expect("a key");
            server.set_keys(keys(&file, &roster));
        }
    }
}

#[test]
fn in_which_order_a_roster_lists_a_nodes_keys_does_not_matter() {
    let (node_file, old) = (key(), key());
    let mut both = old.clone();
    both.rotate(0).expect("a key");
    rotate(&node_file, &old, &both);
}

/// One pair of keys in sixteen. The key that was used last opened nothing of the other's, and all packets were refused until the
/// epoch was over.
#[test]
fn two_keys_of_a_node_that_rotates_may_have_the_same_hint() {
    let node_file = key();
    let (old, both) = (0..10_000)
        .find_map(|_| {
            let old = key();
            let mut both = old.clone();
            both.rotate(0).expect("a key");
            let [first, second] = hints(&node_file, &both.public_keys());
            (first == second).then_some((old, both))
        })
        .expect("a pair in sixteen");
    rotate(&node_file, &old, &both);
}

/// The server replaced its key while nobody spoke: it cannot say so before it is asked.
#[test]
fn a_node_that_was_silent_is_asked_under_each_of_its_keys() {
    let node_file = key();
    let mut file = key();
    file.rotate(0).expect("a key");
    let roster = roster(&node_file, &file.public_keys());
    let (mut node, mut server) = (seal(&node_file, &roster), seal(&file, &roster));
    let asker = (0..2).find_map(|_| request(START, &mut node, &mut server).ok()).expect("it opens");
    assert_eq!(reply(START, asker, &mut node, &mut server), Ok(()));
    file.rotate(0).and_then(|_| file.rotate(0)).expect("the first is dropped");
    server.set_keys(keys(&file, &roster));
    let later = START + EPOCH.scaled(3, 1);
    assert!((0..2).any(|_| request(later, &mut node, &mut server).is_ok()));
}

/// A roster of `count` nodes whose keys nobody has, and the two of `base`.
fn long(base: &Roster, count: u64) -> Roster {
    let mut rng = Rng::new(count);
    let mut text = "version = 1\ndomain = \"home\"\n".to_owned();
    for n in 0..count {
        let key: String = (0..4).map(|_| format!("{:016x}", rng.next_u64())).collect();
        writeln!(text, "[[node]]\nname = \"filler-{n}\"\npublic = [\"{key}\"]").expect("text");
    }
    for member in base.members() {
        writeln!(text, "[[node]]\nname = \"{}\"\npublic = {:?}", member.name, member.public).expect("text");
        if let Some(address) = &member.address {
            writeln!(text, "address = \"{address}\"").expect("text");
        }
    }
    Roster::parse(&text).expect("a roster")
}

/// Datagrams of 1378 bytes that no key opens, from senders that nobody knows. `boot` makes the boot ids.
fn forgeries(seed: u64, boot: impl Fn(u64) -> u64, hint: impl Fn(u64) -> u8) -> Vec<Vec<u8>> {
    let mut rng = Rng::new(seed);
    let epoch = WallClock::new(START, UNIX).epoch(START) as u16;
    let forged = |_| {
        let mut out = vec![0; HEADER_LEN];
        let random = rng.next_u64();
        let mut header = real_header();
        header.sender.boot = boot(random);
        (header.hint, header.epoch, header.counter) = (hint(random), epoch, (random >> 40) as u32);
        out.copy_from_slice(&header.emit());
        out.extend((HEADER_LEN..1378).map(|_| rng.next_u64() as u8));
        out
    };
    (0..2000).map(forged).collect()
}

/// The header of a request, to be changed.
fn real_header() -> SealHeader {
    let (node, server) = (key(), key());
    let roster = roster(&node, &server.public_keys());
    header_of(&mut seal(&node, &roster))
}

fn header_of(node: &mut Sealed) -> SealHeader {
    let mut out = vec![0; node.room()];
    Interest::feedback(FlowId([1; 16]), WireTime::default(), Rate::ZERO).emit(&mut out);
    node.seal(START, &Addressee::Asked(Face::towards(server_address())), &mut out, 0).expect("a key");
    SealHeader::parse(&out).expect("sealed")
}

/// The least time of some turns in which `server` refuses all of `forged`.
fn refuses(server: &mut Sealed, forged: &[Vec<u8>]) -> std::time::Duration {
    let mut bytes = forged.to_vec();
    let start = starhop_net::clock::now();
    for datagram in &mut bytes {
        assert!(server.open(START, at_server(), datagram).is_err());
    }
    let took = starhop_net::clock::now().since(start);
    std::time::Duration::from_nanos(took.as_nanos())
}

/// Twenty thousand nodes on the roster cost a refusal about what ten cost: the key's tag and hint lead to the few keys that
/// may fit. A ratio in one run, each the least of turns that alternate: other work on this machine disturbs both.
#[test]
fn refusing_costs_no_more_with_twenty_thousand_on_the_roster() {
    let (node_file, server_file) = (key(), key());
    let base = roster(&node_file, &server_file.public_keys());
    let mut servers = [10, 20_000].map(|count| seal(&server_file, &long(&base, count)));
    // An eavesdropper who has seen one packet of the node knows its tag and hint: such a forgery costs the server
    // most.
    let known = header_of(&mut seal(&node_file, &base));
    let tag = known.sender.boot & (0xffff << 48);
    let kinds = [
        ("any tag", forgeries(1, |random| random, |random| (random & 15) as u8)),
        ("a listed tag", forgeries(2, |random| tag | (random >> 16), |_| known.hint)),
    ];
    let mut dearest = [std::time::Duration::ZERO; 2];
    for (kind, forged) in &kinds {
        let mut least = [std::time::Duration::MAX; 2];
        for _ in 0..15 {
            for (server, least) in servers.iter_mut().zip(&mut least) {
                *least = (*least).min(refuses(server, forged));
            }
        }
        let each = least.map(|time| time.as_nanos() as f64 / forged.len() as f64);
        println!(
            "{kind}: {:.0} ns with 10 nodes, {:.0} ns with 20,000, ratio {:.2}",
            each[0],
            each[1],
            each[1] / each[0]
        );
        dearest = [dearest[0].max(least[0]), dearest[1].max(least[1])];
    }
    assert!(dearest[1] < dearest[0] * 3 / 2, "{dearest:?}");
}
