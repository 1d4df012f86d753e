//! Ground stations and users.

use crate::frame::Geodetic;

/// A place on the ground that talks to satellites.
#[derive(Clone, Debug, PartialEq)]
pub struct Station {
    /// Its name, unique among the stations used together.
    pub name: String,
    /// Its place.
    pub place: Geodetic,
    /// Lowest elevation at which it can use a satellite, degrees; `None` leaves it to the constellation.
    pub min_elevation_deg: Option<f64>,
    /// Number of satellites that it can use at a time; `None` for all that it sees.
    pub antennas: Option<u32>,
}

/// A line of a station file that cannot be used.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("line {line}: {reason}")]
pub struct StationError {
    /// 1-based line of the file.
    pub line: u64,
    /// The fault, and the expected form.
    pub reason: String,
}

const CITIES: &str = include_str!("../data/cities.csv");
const COLUMNS: [&str; 6] =
    ["name", "latitude_deg", "longitude_deg", "altitude_m", "min_elevation_deg", "antennas"];

impl Station {
    /// A station at sea level with the constellation's rules.
    pub fn new(name: &str, latitude_deg: f64, longitude_deg: f64) -> Self {
        let place = Geodetic { latitude_deg, longitude_deg, altitude_m: 0.0 };
        Self { name: name.to_owned(), place, min_elevation_deg: None, antennas: None }
    }
}

/// The 100 most populous cities, largest first; `data/cities.csv` names the source.
pub fn cities() -> Vec<Station> {
    parse_csv(CITIES).unwrap_or_default()
}

/// The station of this name, whatever its case.
pub fn find<'a>(stations: &'a [Station], name: &str) -> Option<&'a Station> {
    stations.iter().find(|s| s.name.eq_ignore_ascii_case(name))
}

/// The names closest to one that was not found, for an error message.
pub fn similar<'a>(stations: &'a [Station], name: &str) -> Vec<&'a str> {
    let wanted = name.to_ascii_lowercase();
    let mut near: Vec<(usize, &str)> = stations
        .iter()
        .map(|s| (edit_distance(&wanted, &s.name.to_ascii_lowercase()), s.name.as_str()))
        .collect();
    near.sort_unstable();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let best = (row[j] + 1).min(row[j + 1] + 1).min(diagonal + usize::from(ca != cb));
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[b.len()]
}

/// Reads stations from CSV with a header line. Columns `name`, `latitude_deg` (-90..90) and `longitude_deg`
/// (-180..180) must be there; `altitude_m`, `min_elevation_deg` (0..90) and `antennas` (at least 1) may be.
/// Lines starting with `#` are comments.
///
/// # Errors
/// [`StationError`] with the first line that has an unknown column, a missing or impossible value, or a name twice.
pub fn parse_csv(text: &str) -> Result<Vec<Station>, StationError> {
    let mut reader =
        csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let malformed = |e: &csv::Error| StationError {
        line: e.position().map_or(1, csv::Position::line),
        reason: e.to_string(),
    };
    let header = reader.headers().map_err(|e| malformed(&e))?.clone();
    let at = |line: u64, reason: String| StationError { line, reason };
    if let Some(odd) = header.iter().find(|h| !COLUMNS.contains(h)) {
        return Err(at(1, format!("unknown column `{odd}`; known are {}", COLUMNS.join(", "))));
    }
    let mut stations: Vec<Station> = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|e| malformed(&e))?;
        let line = row.position().map_or(0, csv::Position::line);
        let station = read_row(&header, &row).map_err(|reason| at(line, reason))?;
        if find(&stations, &station.name).is_some() {
            return Err(at(line, format!("station `{}` is there twice", station.name)));
        }
        stations.push(station);
    }
    Ok(stations)
}

fn read_row(header: &csv::StringRecord, row: &csv::StringRecord) -> Result<Station, String> {
    let cell = |column: &str| {
        let at = header.iter().position(|h| h == column)?;
        row.get(at).filter(|text| !text.is_empty())
    };
    let number =
        |column: &str, low: f64, high: f64| match cell(column).map(|text| (text, text.parse::<f64>())) {
            None => Ok(None),
            Some((_, Ok(value))) if (low..=high).contains(&value) => Ok(Some(value)),
            Some((text, _)) => Err(format!("column `{column}`: `{text}` is no number from {low} to {high}")),
        };
    let needed = |column: &str, value: Option<f64>| {
        value.ok_or_else(|| format!("column `{column}` is empty or missing"))
    };
    let name = cell("name").ok_or("column `name` is empty or missing")?;
    let latitude_deg = needed("latitude_deg", number("latitude_deg", -90.0, 90.0)?)?;
    let longitude_deg = needed("longitude_deg", number("longitude_deg", -180.0, 180.0)?)?;
    let antennas = match cell("antennas").map(|text| (text, text.parse::<u32>())) {
        None => None,
        Some((_, Ok(n))) if n >= 1 => Some(n),
        Some((text, _)) => {
            return Err(format!("column `antennas`: `{text}` is no whole number of at least 1"));
        }
    };
    let altitude_m = number("altitude_m", -500.0, 20_000.0)?.unwrap_or(0.0);
    Ok(Station {
        name: name.to_owned(),
        place: Geodetic { latitude_deg, longitude_deg, altitude_m },
        min_elevation_deg: number("min_elevation_deg", 0.0, 90.0)?,
        antennas,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_cities_are_built_in_and_found_in_any_case() {
        let cities = cities();
        assert_eq!(cities.len(), 100);
        let new_york = find(&cities, "new york").unwrap();
        assert_eq!(new_york.place.longitude_deg, -74.003663);
    }

    #[test]
    fn a_misspelt_city_has_suggestions() {
        assert_eq!(similar(&cities(), "Bejing")[0], "Beijing");
    }

    #[test]
    fn optional_columns_are_read() {
        let text =
            "name,latitude_deg,longitude_deg,min_elevation_deg,antennas\nhut,60,25,30,2\nship,0,-30,,\n";
        let stations = parse_csv(text).unwrap();
        assert_eq!((stations[0].min_elevation_deg, stations[0].antennas), (Some(30.0), Some(2)));
        assert_eq!((stations[1].min_elevation_deg, stations[1].antennas), (None, None));
    }

    #[test]
    fn errors_name_the_line_and_the_column() {
        let head = "name,latitude_deg,longitude_deg";
        for (rows, line, part) in [
            ("a,91,0", 2, "latitude_deg"),
            ("a,1,0\nb,x,0", 3, "latitude_deg"),
            ("a,1,", 2, "longitude_deg"),
            ("a,1,2\nA,3,4", 3, "twice"),
        ] {
            let error = parse_csv(&format!("{head}\n{rows}\n")).unwrap_err();
            assert!(error.line == line && error.reason.contains(part), "{error}");
        }
        assert!(parse_csv("name,lat,longitude_deg\n").unwrap_err().reason.contains("`lat`"));
    }
}
