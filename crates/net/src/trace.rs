//! The times at which ranges of bytes passed. From the traces of both ends the delays are computed.

use starhop_proto::name::{ByteRange, FlowId};
use starhop_proto::time::Instant;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// One passing of a byte range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passing {
    /// Time, on the machine's monotonic clock.
    pub at: Instant,
    /// The flow.
    pub flow: FlowId,
    /// The bytes.
    pub range: ByteRange,
}

/// Passings in the order in which they happened, kept in memory until the end: writing during the measurement would
/// disturb it. At 48 bytes each, 1 GB of payload makes 36 MB of trace.
#[derive(Debug, Default)]
pub struct Trace {
    passings: Vec<Passing>,
}

impl Trace {
    /// Notes one passing.
    pub fn note(&mut self, at: Instant, flow: FlowId, range: ByteRange) {
        self.passings.push(Passing { at, flow, range });
    }

    /// Writes `nanoseconds,flow,start,end` lines.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut out = BufWriter::new(std::fs::File::create(path)?);
        for Passing { at, flow, range } in &self.passings {
            writeln!(out, "{},{flow},{},{}", at.as_nanos(), range.start, range.end)?;
        }
        out.flush()
    }

    /// Reads the lines of [`Trace::write`]: time, flow in hexadecimal digits, range. Other lines are skipped.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(path: &Path) -> io::Result<Vec<(Instant, String, ByteRange)>> {
        let text = std::fs::read_to_string(path)?;
        Ok(text.lines().filter_map(parse).collect())
    }
}

fn parse(line: &str) -> Option<(Instant, String, ByteRange)> {
    let mut fields = line.split(',');
    let at = Instant::from_nanos(fields.next()?.parse().ok()?);
    let flow = fields.next()?.to_owned();
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some((at, flow, ByteRange::new(start, end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_as_it_was_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut trace = Trace::default();
        trace.note(Instant::from_nanos(17), FlowId([0xab; 16]), ByteRange::new(3, 9));
        trace.write(file.path()).unwrap();
        let expected = (Instant::from_nanos(17), "ab".repeat(16), ByteRange::new(3, 9));
        assert_eq!(Trace::read(file.path()).unwrap(), [expected]);
    }
}
