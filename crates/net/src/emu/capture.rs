//! Captures of links as pcapng files, one per link.
//!
//! A file has two interfaces, the two ends of its link. Packets that enter the link are noted at the near end as
//! outbound, and packets that leave it at the far end as inbound: the difference of their times is the delay.
//! Packets that the link lost, or for which its queue had no room, carry a comment that says so. A thread of its
//! own writes: disks must not delay packets.

use crate::clock;
use crate::pcapng::{Packet, Way, Writer};
use starhop_proto::time::Instant;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The place at which a packet was seen, and its fate there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sight {
    /// It enters the link and will come out.
    Enters,
    /// It enters the link, which loses it.
    Lost,
    /// The queue had no room for it.
    Dropped,
    /// It comes out.
    Leaves,
}

struct Record {
    direction: usize,
    sight: Sight,
    at: Instant,
    packet: Vec<u8>,
}

/// The links' end of a capture.
pub(super) struct Tap {
    records: Sender<Record>,
}

impl Tap {
    /// Notes a packet of a direction.
    pub(super) fn note(&self, direction: usize, sight: Sight, at: Instant, packet: &[u8]) {
        // A writer that failed says so at the end.
        let _ = self.records.send(Record { direction, sight, at, packet: packet.to_vec() });
    }
}

/// The writer's end; it ends when its [`Tap`] is gone.
#[derive(Debug)]
pub(super) struct Writing {
    thread: JoinHandle<io::Result<()>>,
}

impl Writing {
    /// Waits until everything is on the disk.
    pub(super) fn finish(self) -> io::Result<()> {
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the capture's thread panicked")))
    }
}

/// Makes a file for each link in `folder`; `names` are those of the directions, `from-to`.
pub(super) fn start(folder: &Path, names: &[String]) -> io::Result<(Tap, Writing)> {
    std::fs::create_dir_all(folder)?;
    let mut taken = BTreeSet::new();
    let mut files = Vec::new();
    for pair in names.chunks_exact(2) {
        files.push(LinkFile::create(&path(folder, &pair[0], &mut taken), &pair[0], &pair[1])?);
    }
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let unix_at_zero = unix.as_nanos() as u64 - clock::now().as_nanos();
    let (records, inbox) = channel();
    let thread = std::thread::Builder::new().name("capture".to_owned());
    let thread = thread.spawn(move || write(files, &inbox, unix_at_zero))?;
    Ok((Tap { records }, Writing { thread }))
}

/// A file name for a link that no other link has.
fn path(folder: &Path, name: &str, taken: &mut BTreeSet<String>) -> PathBuf {
    let is_plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
    let plain: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
    let numbered = (2..).map(|number| format!("{plain}-{number}"));
    let mut free = std::iter::once(plain.clone()).chain(numbered).filter(|name| !taken.contains(name));
    let name = free.next().unwrap_or(plain);
    let path = folder.join(format!("{name}.pcapng"));
    taken.insert(name);
    path
}

fn write(mut files: Vec<LinkFile>, inbox: &Receiver<Record>, unix_at_zero: u64) -> io::Result<()> {
    for Record { direction, sight, at, packet } in inbox {
        if let Some(file) = files.get_mut(direction / 2) {
            file.packet(direction % 2, sight, unix_at_zero + at.as_nanos(), &packet)?;
        }
    }
    files.iter_mut().try_for_each(|file| file.out.flush())
}

/// The file of one link.
struct LinkFile {
    out: Writer<BufWriter<File>>,
}

impl LinkFile {
    /// Both ends are named after the direction that begins there.
    fn create(path: &Path, there: &str, back: &str) -> io::Result<Self> {
        let out = BufWriter::new(File::create(path)?);
        Ok(Self { out: Writer::new(out, &[there, back])? })
    }

    fn packet(&mut self, way: usize, sight: Sight, unix: u64, packet: &[u8]) -> io::Result<()> {
        let (end, way) = match sight {
            Sight::Leaves => (way ^ 1, Way::In),
            Sight::Enters | Sight::Lost | Sight::Dropped => (way, Way::Out),
        };
        let comment = match sight {
            Sight::Lost => Some("lost by the link"),
            Sight::Dropped => Some("dropped: the queue was full"),
            Sight::Enters | Sight::Leaves => None,
        };
        let (interface, bytes, len) = (end as u32, packet, packet.len());
        self.out.packet(&Packet { interface, way, unix, bytes, len, comment })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcapng::{ENHANCED_PACKET, INTERFACE, SECTION_HEADER};

    /// Type and body of every block.
    fn blocks(file: &Path) -> Vec<(u32, Vec<u8>)> {
        let bytes = std::fs::read(file).unwrap();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        let (mut at, mut found) = (0, Vec::new());
        while at < bytes.len() {
            let length = word(at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(at + length - 4) as usize, length, "the length stands at both ends");
            found.push((word(at), bytes[at + 8..at + length - 4].to_vec()));
            at += length;
        }
        found
    }

    #[test]
    fn a_packet_is_noted_where_it_enters_and_where_it_comes_out() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a-b", "b-a", "a-b", "b-a"].map(str::to_owned);
        let (tap, writing) = start(folder.path(), &names).unwrap();
        let now = clock::now();
        tap.note(0, Sight::Enters, now, &[0x45; 21]);
        tap.note(0, Sight::Leaves, now, &[0x45; 21]);
        tap.note(3, Sight::Lost, now, &[0x45; 30]);
        drop(tap);
        writing.finish().unwrap();
        let first = blocks(&folder.path().join("a-b.pcapng"));
        let kinds: Vec<u32> = first.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION_HEADER, INTERFACE, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]);
        let end = |block: &(u32, Vec<u8>)| u32::from_ne_bytes(block.1[..4].try_into().unwrap());
        assert_eq!((end(&first[3]), end(&first[4])), (0, 1));
        let second = blocks(&folder.path().join("a-b-2.pcapng"));
        assert_eq!(end(&second[3]), 1);
        assert!(second[3].1.windows(4).any(|word| word == b"lost"));
    }
}
