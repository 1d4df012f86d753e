//! Two-line element sets, with or without name lines.

use sgp4::Elements;

/// A line of a TLE file that cannot be used.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("line {line}: {reason}")]
pub struct TleError {
    /// 1-based line of the file.
    pub line: usize,
    /// The fault, and the expected form.
    pub reason: String,
}

/// Reads every element set of `text`. Blank lines and lines starting with `#` are skipped; a line that is neither
/// line 1 nor line 2 names the set that follows.
///
/// # Errors
/// [`TleError`] with the line of the first set that is incomplete, has a wrong checksum or a malformed field.
pub fn parse(text: &str) -> Result<Vec<Elements>, TleError> {
    let mut sets = Vec::new();
    let mut name: Option<&str> = None;
    let mut first: Option<(usize, &str)> = None;
    for (index, raw) in text.lines().enumerate() {
        let (line, row) = (index + 1, raw.trim_end());
        if row.is_empty() || row.starts_with('#') {
            continue;
        }
        match first.take() {
            None if row.starts_with("1 ") && row.len() > 60 => first = Some((line, row)),
            None if row.starts_with("2 ") && row.len() > 60 => {
                return Err(TleError { line, reason: "a line 2 without its line 1".to_owned() });
            }
            None => name = Some(row.trim_start_matches("0 ").trim()),
            Some((_, one)) if row.starts_with("2 ") => {
                sets.push(read_set(name.take(), one, row).map_err(|reason| TleError { line, reason })?);
            }
            Some((line, _)) => {
                return Err(TleError { line, reason: "a line 1 that no line 2 follows".to_owned() });
            }
        }
    }
    if let Some((line, _)) = first {
        return Err(TleError { line, reason: "a line 1 that no line 2 follows".to_owned() });
    }
    if sets.is_empty() {
        return Err(TleError { line: 1, reason: "no element set in the file".to_owned() });
    }
    Ok(sets)
}

fn read_set(name: Option<&str>, one: &str, two: &str) -> Result<Elements, String> {
    Elements::from_tle(name.map(str::to_owned), one.as_bytes(), two.as_bytes()).map_err(|e| e.to_string())
}

/// Writes one set as lines 1 and 2. The format holds inclination, node, perigee and anomaly to 1e-4 degrees,
/// mean motion to 1e-8 rev/day, eccentricity to 1e-7 and the epoch to 1e-8 days.
pub fn write(elements: &Elements) -> [String; 2] {
    use sgp4::chrono::{Datelike, Timelike};
    let at = elements.datetime;
    let day = f64::from(at.ordinal())
        + (f64::from(at.num_seconds_from_midnight()) + f64::from(at.nanosecond()) * 1e-9) / 86_400.0;
    let number = elements.norad_id % 100_000;
    let one = format!(
        "1 {number:05}U 00000A   {:02}{day:012.8}  .00000000  00000-0 {} 0  999",
        at.year().rem_euclid(100),
        assumed_point(elements.drag_term),
    );
    let two = format!(
        "2 {number:05} {:8.4} {:8.4} {:07} {:8.4} {:8.4} {:11.8}{:5}",
        elements.inclination,
        turn(elements.right_ascension),
        (elements.eccentricity * 1e7).round() as u64,
        turn(elements.argument_of_perigee),
        turn(elements.mean_anomaly),
        elements.mean_motion,
        elements.revolution_number % 100_000,
    );
    [with_checksum(one), with_checksum(two)]
}

/// An angle in 0..360 that does not round up to 360.0000.
fn turn(deg: f64) -> f64 {
    let rounded = (deg.rem_euclid(360.0) * 1e4).round() / 1e4;
    if rounded >= 360.0 { 0.0 } else { rounded }
}

/// TLE's notation ` 12345-6` for 0.12345e-6: eight columns.
fn assumed_point(value: f64) -> String {
    if value == 0.0 {
        return " 00000-0".to_owned();
    }
    let mut exponent = value.abs().log10().floor() as i32 + 1;
    let mut digits = (value.abs() / 10f64.powi(exponent) * 1e5).round() as u32;
    if digits == 100_000 {
        digits = 10_000;
        exponent += 1;
    }
    let (sign, power) = (if value < 0.0 { '-' } else { ' ' }, if exponent < 0 { '-' } else { '+' });
    format!("{sign}{digits:05}{power}{}", exponent.abs())
}

/// Appends the sum of all digits, a minus counting as one, modulo ten.
fn with_checksum(mut line: String) -> String {
    let sum: u32 = line.chars().map(|c| if c == '-' { 1 } else { c.to_digit(10).unwrap_or(0) }).sum();
    line.push_str(&(sum % 10).to_string());
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISS: &str = "ISS (ZARYA)\n1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992\n2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008\n";

    #[test]
    fn sets_with_and_without_names_are_read() {
        let bare: String = ISS.lines().skip(1).map(|l| format!("{l}\n")).collect();
        let sets = parse(&format!("# two sets\n{ISS}\n{bare}")).unwrap();
        assert_eq!(sets.len(), 2);
        assert_eq!(sets[0].object_name.as_deref(), Some("ISS (ZARYA)"));
        assert_eq!(sets[1].object_name, None);
    }

    #[test]
    fn a_wrong_checksum_is_reported_with_its_line() {
        let error = parse(&ISS.replace("236008", "236007")).unwrap_err();
        assert_eq!(error.line, 3);
        assert!(error.reason.contains("checksum"), "{error}");
    }

    #[test]
    fn half_a_set_is_reported_with_its_line() {
        let half: String = ISS.lines().take(2).map(|l| format!("{l}\n")).collect();
        assert_eq!(parse(&half).unwrap_err().line, 2);
        assert!(parse("").is_err());
    }

    #[test]
    fn what_is_written_reads_back_the_same() {
        let set = parse(ISS).unwrap().remove(0);
        let [one, two] = write(&set);
        assert_eq!((one.len(), two.len()), (69, 69), "{one}\n{two}");
        let back = parse(&format!("{one}\n{two}\n")).unwrap().remove(0);
        assert_eq!(back.mean_motion, set.mean_motion);
        assert_eq!(back.right_ascension, set.right_ascension);
        assert_eq!(back.eccentricity, set.eccentricity);
        assert!((back.drag_term - set.drag_term).abs() < 1e-12);
        assert!((back.datetime - set.datetime).num_milliseconds().abs() < 2);
    }
}
