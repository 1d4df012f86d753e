//! Inputs from strangers and other programs beside packets: manifests, outboards, records of a stream, key files,
//! rosters; and datagrams under the real ciphers. `crates/proto/tests/fuzz.rs` has the packets and the roles.

use bolero::{TypeGenerator, check, produce};
use starhop_net::content::{ContentName, Manifest, problem_of_path};
use starhop_net::outboard::{Outboard, TreeHasher};
use starhop_net::security::stream::{StreamOpener, StreamSealer, StreamSecret};
use starhop_net::security::{KeyFile, Keys, Kind, Roster};
use starhop_proto::config::Config;
use starhop_proto::node::Node;
use starhop_proto::relay::Relay;
use starhop_proto::security::{Limits, Seal, SealHeader, WallClock};
use starhop_proto::time::Instant;
use starhop_proto::wire::Suite;
use std::net::SocketAddr;

/// Run time of each target unless BOLERO_RANDOM_TEST_TIME_MS says otherwise.
const TEST_TIME: core::time::Duration = core::time::Duration::from_secs(2);

const NOW: Instant = Instant::from_nanos(1_000_000_000_000);
const UNIX: u64 = 1_790_000_000_000_000_000;

/// A change of a valid text: most of it stays, so that the parser gets far.
#[derive(Clone, Debug, TypeGenerator)]
struct Edit {
    at: u16,
    cut: u8,
    #[generator(produce::<Vec<u8>>().with().len(0..6usize))]
    put: Vec<u8>,
}

fn edited(text: &str, edits: &[Edit]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for edit in edits {
        let at = usize::from(edit.at) % (bytes.len() + 1);
        let end = bytes.len().min(at + usize::from(edit.cut % 8));
        bytes.splice(at..end, edit.put.iter().copied());
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn edits() -> impl bolero::ValueGenerator<Output = Vec<Edit>> {
    produce::<Vec<Edit>>().with().len(0..4usize)
}

#[test]
fn a_manifest_is_read_or_refused_whatever_it_holds() {
    let right = String::from_utf8(Manifest::new(77, &blake3::hash(b"x")).to_bytes()).expect("a text");
    check!().with_generator(edits()).with_test_time(TEST_TIME).for_each(|edits| {
        let text = edited(&right, edits);
        if let Ok((length, hash)) = Manifest::parse(text.as_bytes()) {
            let again = Manifest::new(length, &hash).to_bytes();
            assert_eq!(Manifest::parse(&again), Ok((length, hash)));
        }
    });
}

#[test]
fn a_key_file_or_a_roster_is_read_or_refused_whatever_it_holds() {
    let (digits, secret) = ("5a".repeat(32), "c3".repeat(32));
    let key = format!(
        "version = 1\nkind = \"node\"\ndomain = \"d\"\nauthority = \"{digits}\"\n[[key]]\nsecret = \"{secret}\"\nseals = true\ncreated = 5\n"
    );
    let roster = format!(
        "version = 1\ndomain = \"d\"\nexpires = 9\nsignature = \"{digits}{digits}\"\n[[node]]\nname = \"a\"\npublic = [\"{digits}\"]\naddress = \"192.0.2.1:1\"\n"
    );
    assert!(KeyFile::parse(&key).is_ok() && Roster::parse(&roster).is_ok());
    check!().with_generator((produce::<bool>(), edits())).with_test_time(TEST_TIME).for_each(
        |(is_key, edits)| {
            if *is_key {
                match KeyFile::parse(&edited(&key, edits)) {
                    Ok(file) => {
                        assert!(!format!("{file:?}").contains(&secret), "a log would show the secret");
                    }
                    Err(problem) => assert!(!problem.contains(&secret), "{problem}"),
                }
            } else if let Ok(roster) = Roster::parse(&edited(&roster, edits)) {
                assert!(roster.verify(&[7; 32], 0).is_err(), "nobody signed it");
            }
        },
    );
}

#[test]
fn any_bytes_are_a_name_that_stays_below_its_directory_or_are_refused() {
    check!().with_test_time(TEST_TIME).with_max_len(64).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(ContentName::Path(path)) = ContentName::parse(&text) {
            assert_eq!(problem_of_path(&path), None);
            let mut parts = std::path::Path::new(&path).components();
            assert!(parts.all(|part| matches!(part, std::path::Component::Normal(_))), "{path:?}");
        }
    });
}

#[test]
fn no_bytes_but_its_own_are_the_outboard_of_an_object() {
    let mut hasher = TreeHasher::default();
    hasher.update(&[3; 70_000]);
    let (root, own) = hasher.finish();
    let own = own.expect("it has several groups");
    let change = (produce::<u8>(), produce::<u8>(), produce::<u8>());
    check!().with_generator(change).with_test_time(TEST_TIME).for_each(|&(at, flip, cut)| {
        let mut bytes = own.clone();
        let at = usize::from(at) % bytes.len();
        bytes[at] ^= flip;
        bytes.truncate(bytes.len() - usize::from(cut) % bytes.len());
        assert_eq!(Outboard::read(&bytes, &root).is_some(), bytes == own);
    });
}

#[test]
fn a_stream_gives_out_only_what_was_sealed_whatever_arrives() {
    let secret = StreamSecret::random().expect("randomness");
    let mut sealer = StreamSealer::begin(&secret).expect("a key");
    let (plain, mut sealed) = ((0..=255).collect::<Vec<u8>>(), Vec::new());
    for piece in plain.chunks(50) {
        sealer.seal(piece, &mut sealed).expect("it seals");
    }
    let pieces = produce::<Vec<(u16, u8, u8)>>().with().len(0..12usize);
    check!().with_generator(pieces).with_test_time(TEST_TIME).for_each(|pieces| {
        let mut opener = StreamOpener::new(&secret, sealer.id()).expect("a key");
        let (mut at, mut out) = (0, Vec::new());
        for &(skip, len, flip) in pieces {
            // Mostly the next bytes; now and then others, or changed.
            let from = (at + usize::from(skip / 60_000)).min(sealed.len());
            let end = (from + usize::from(len)).min(sealed.len());
            let mut piece = sealed[from..end].to_vec();
            if let (1, Some(byte)) = (flip, piece.first_mut()) {
                *byte ^= 1;
            }
            if opener.push(&piece, &mut out).is_err() {
                break;
            }
            at = end;
        }
        assert!(plain.starts_with(&out));
    });
}

/// A datagram that reaches a sealed relay: junk, or a sealed one with a change.
#[test]
fn a_sealed_relay_stays_silent_whatever_an_outsider_sends() {
    let file = KeyFile::new(Kind::Domain, "d", None, 0).expect("a key");
    let seal = || Seal::new(Keys::domain(&file), NOW, WallClock::new(NOW, UNIX), Limits::default(), 1);
    let peer = SocketAddr::from(([10, 0, 0, 1], 4433));
    let mut true_one = vec![0x50; 80];
    seal()
        .seal(NOW, &starhop_proto::peer::Addressee::Asked(peer.into()), &mut true_one, 0)
        .expect("it seals");
    assert!(SealHeader::parse(&true_one).is_some());
    let bytes = produce::<Vec<u8>>().with().len(0..100usize);
    let change = (produce::<bool>(), produce::<u8>(), 1u8..=255, bytes);
    let relay = std::sync::Mutex::new(Relay::new(Config::default(), peer, seal(), 1));
    check!().with_generator(change).with_test_time(TEST_TIME).for_each(|(is_junk, at, flip, bytes)| {
        let mut datagram = if *is_junk { bytes.clone() } else { true_one.clone() };
        if !is_junk {
            let at = usize::from(*at) % datagram.len();
            datagram[at] ^= flip;
        }
        let mut relay = relay.lock().expect("no other thread");
        relay.handle_datagram(NOW, peer.into(), &mut datagram);
        assert!(relay.poll_transmit(NOW, &mut Vec::new()).is_none(), "it answered");
        let stats = relay.stats();
        assert_eq!((stats.flows, stats.neighbours, stats.data_in, stats.interests_in), (0, 0, 0, 0));
    });
}
