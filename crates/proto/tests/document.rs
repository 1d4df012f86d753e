//! docs/PROTOCOL.md against the code: its vectors are packets, and its tables are as wide as the headers.

use starhop_proto::security::HEADER_LEN;
use starhop_proto::wire::{Header, Packet};

const DOCUMENT: &str = include_str!("../../../docs/PROTOCOL.md");

/// The section of this title, up to the next one of the same or a higher level.
fn section(title: &str) -> &'static str {
    let level = title.chars().take_while(|c| *c == '#').count();
    let start = DOCUMENT.find(title).unwrap_or_else(|| panic!("no section `{title}`")) + title.len();
    let rest = &DOCUMENT[start..];
    let end = (1..=level).filter_map(|n| rest.find(&format!("\n{} ", "#".repeat(n)))).min();
    &rest[..end.unwrap_or(rest.len())]
}

/// The rows of a section's first table, without its head.
fn rows(section: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    // Diagrams have bars, too: a table has a rule under its head.
    let rule = section.find("\n|---").unwrap_or_else(|| panic!("no table in `{section}`"));
    let table = section[rule + 1..].lines().take_while(|line| line.starts_with('|'));
    table.skip(1).map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
}

#[test]
fn every_vector_of_the_document_is_a_packet_that_is_written_the_same() {
    let mut kinds = Vec::new();
    for row in rows(section("### Test vectors")) {
        let hex = row[1].trim_matches('`');
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits"))
            .collect();
        let mut out = Vec::new();
        let kind = match Packet::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", row[0])) {
            Packet::Interest(interest) => {
                interest.emit(&mut out);
                "Interest"
            }
            Packet::Data(header, payload) => {
                header.emit(&mut out);
                out.extend_from_slice(payload);
                "Data"
            }
            Packet::Notice(notice) => {
                notice.emit(&mut out);
                "Notice"
            }
            Packet::Parity(header, sum) => {
                header.emit(&mut out);
                out.extend_from_slice(sum);
                "Parity"
            }
            Packet::Segment(header, sealed) => {
                header.emit(&mut out);
                out.extend_from_slice(sealed);
                "Segment"
            }
        };
        assert!(row[0].starts_with(kind) && out == bytes, "{}", row[0]);
        kinds.push(kind);
    }
    assert_eq!(kinds, ["Interest", "Data", "Notice", "Notice", "Notice", "Interest", "Parity", "Segment"]);
}

#[test]
fn the_tables_of_the_document_are_as_wide_as_the_headers() {
    let width =
        |title| rows(section(title)).map(|row| row[1].parse::<usize>().expect("a number of bits")).sum();
    let widths: [usize; 2] = [width("## Packets"), width("## Sealed packets")];
    assert_eq!(widths, [Header::LEN * 8, HEADER_LEN * 8]);
}
