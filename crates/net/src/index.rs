//! The index of a server: the names of its files, with their lengths and hashes, as an object of its own.

use starhop_proto::name::FlowId;

/// Separates the index from every other use of BLAKE3.
const CONTEXT: &str = "starhop 2026 index v1";

/// The first word of an index, before the hash of all that follows its line.
const MAGIC: &str = "starhop-index-1";

/// The longest index that is offered or read, bytes: some 100 000 names.
pub const MAX_INDEX: u64 = 16 << 20;

/// A file that is offered.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Offer {
    /// Its name below the served directory.
    pub name: String,
    /// Bytes.
    pub length: u64,
    /// Its BLAKE3 hash, 64 hexadecimal digits.
    pub blake3: String,
}

/// The flow of the index, the same at every server.
pub fn index_flow() -> FlowId {
    FlowId::of_content(&blake3::derive_key(CONTEXT, b""))
}

/// Writes an index; `None` of one that would be too long.
pub fn write<'a>(offers: impl Iterator<Item = (&'a str, u64, blake3::Hash)>) -> Option<Vec<u8>> {
    // Names hold no control characters, so that a line ends a name.
    let lines: String = offers.map(|(name, length, hash)| format!("{length} {hash} {name}\n")).collect();
    let index = format!("{MAGIC} {}\n{lines}", blake3::hash(lines.as_bytes()));
    (index.len() as u64 <= MAX_INDEX).then(|| index.into_bytes())
}

/// Reads an index.
///
/// # Errors
/// The bytes are no index, or a mixture of two indices because the index changed while it was read.
pub fn read(bytes: &[u8]) -> Result<Vec<Offer>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
    let (head, lines) = text.split_once('\n').ok_or("it has no first line")?;
    let hash = head.strip_prefix(MAGIC).ok_or("it is of another version")?;
    if hash.trim() != blake3::hash(lines.as_bytes()).to_hex().as_str() {
        return Err("it changed while it was read; try again".to_owned());
    }
    let offer = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let (length, blake3, name) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
        let is_fine = crate::content::problem_of_path(name).is_none();
        is_fine.then(|| Offer { name: name.to_owned(), length, blake3: blake3.to_owned() })
    };
    lines.lines().map(|line| offer(line).ok_or_else(|| "a line of it is malformed".to_owned())).collect()
}

/// Whether `pattern` stands for more than one name: it ends in `/`, or holds `*` or `?`.
pub fn is_pattern(pattern: &str) -> bool {
    pattern.ends_with('/') || pattern.contains(['*', '?'])
}

/// Whether a pattern means a name: `dir/` all files below, `*` any letters but `/`, `?` one.
pub fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('/') {
        Some("." | "") => true,
        Some(directory) => name.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')),
        None => glob(&pattern.chars().collect::<Vec<_>>(), &name.chars().collect::<Vec<_>>()),
    }
}

/// Goes back to the last `*` only, so that no pattern takes more than the product of both lengths.
fn glob(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == name[n] || (c == '?' && name[n] != '/') => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, from)) if name[from] != '/' => {
                    (p, n) = (at + 1, from + 1);
                    star = Some((at, n));
                }
                _ => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_survives_its_journey_and_a_mixture_of_two_does_not() {
        let hash = blake3::hash(b"x");
        let one = write([("a b", 1, hash), ("d/\u{e4}", 2, hash)].into_iter()).unwrap();
        let two = write([("a b", 1, hash), ("d/\u{f6}", 2, hash)].into_iter()).unwrap();
        let offers = read(&one).unwrap();
        assert_eq!(offers.iter().map(|offer| offer.name.as_str()).collect::<Vec<_>>(), ["a b", "d/\u{e4}"]);
        assert_eq!((offers[1].length, offers[1].blake3.as_str()), (2, hash.to_hex().as_str()));
        let mixed = [&one[..90], &two[90..]].concat();
        assert!(read(&mixed).is_err_and(|problem| problem.contains("changed")));
        assert_eq!(read(&write(std::iter::empty()).unwrap()), Ok(Vec::new()));
        let leaving = write([("../x", 1, hash)].into_iter()).unwrap();
        assert!(read(&leaving).is_err(), "a name that would leave the directory");
    }

    #[test]
    fn patterns_mean_directories_and_parts_of_names() {
        for (pattern, name, is_so) in [
            ("d/", "d/a", true),
            ("d/", "d/e/a", true),
            ("d/", "da", false),
            ("./", "x", true),
            ("*.mkv", "a.mkv", true),
            ("*.mkv", "d/a.mkv", false),
            ("*/*.mkv", "d/a.mkv", true),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("*a*b", "xaxab", true),
            ("*a*b", "xaxa", false),
            ("**", "", true),
        ] {
            assert_eq!(matches(pattern, name), is_so, "{pattern} {name}");
        }
    }
}
