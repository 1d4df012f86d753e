//! Orbit Mean-Elements Messages (CCSDS 502.0-B) in the two forms that catalogues publish: JSON and CSV.

use serde_json::{Map, Value};
use sgp4::Elements;

/// A record of an OMM file that cannot be used.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("record {record}: {reason}")]
pub struct OmmError {
    /// 1-based record; 0 if the file as a whole is malformed.
    pub record: usize,
    /// The fault.
    pub reason: String,
}

/// Reads a JSON array (or one object), or CSV with a header line of OMM keywords, told apart by the first character.
///
/// # Errors
/// [`OmmError`] with the number of the first record that lacks a keyword or holds a malformed value.
pub fn parse(text: &str) -> Result<Vec<Elements>, OmmError> {
    let records = match text.trim_start().as_bytes().first() {
        Some(b'[' | b'{') => json_records(text)?,
        Some(_) => csv_records(text)?,
        None => Vec::new(),
    };
    if records.is_empty() {
        return Err(OmmError { record: 0, reason: "no element set in the file".to_owned() });
    }
    let read = |(i, value): (usize, Value)| {
        serde_json::from_value(value).map_err(|e| OmmError { record: i + 1, reason: e.to_string() })
    };
    records.into_iter().enumerate().map(read).collect()
}

fn json_records(text: &str) -> Result<Vec<Value>, OmmError> {
    match serde_json::from_str(text) {
        Ok(Value::Array(records)) => Ok(records),
        Ok(one) => Ok(vec![one]),
        Err(e) => Err(OmmError { record: 0, reason: format!("not JSON: {e}") }),
    }
}

fn csv_records(text: &str) -> Result<Vec<Value>, OmmError> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let whole = |e: csv::Error| OmmError { record: 0, reason: e.to_string() };
    let keys = reader.headers().map_err(whole)?.clone();
    reader
        .records()
        .enumerate()
        .map(|(i, row)| {
            let row = row.map_err(|e| OmmError { record: i + 1, reason: e.to_string() })?;
            let cell = |(key, value): (&str, &str)| (key.to_owned(), Value::String(value.to_owned()));
            Ok(Value::Object(keys.iter().zip(row.iter()).map(cell).collect::<Map<_, _>>()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "OBJECT_NAME,OBJECT_ID,EPOCH,MEAN_MOTION,ECCENTRICITY,INCLINATION,RA_OF_ASC_NODE,ARG_OF_PERICENTER,MEAN_ANOMALY,EPHEMERIS_TYPE,CLASSIFICATION_TYPE,NORAD_CAT_ID,ELEMENT_SET_NO,REV_AT_EPOCH,BSTAR,MEAN_MOTION_DOT,MEAN_MOTION_DDOT";
    const ISS: &str = "ISS (ZARYA),1998-067A,2020-07-12T01:19:07.402656,15.49560532,.0001771,51.6435,225.4004,44.9625,5.1087,0,U,25544,999,23587,.49645E-2,.289036E-2,0";

    #[test]
    fn json_and_csv_give_the_same_elements() {
        let from_csv = parse(&format!("{KEYS}\n{ISS}\n")).unwrap();
        let pairs: Vec<String> =
            KEYS.split(',').zip(ISS.split(',')).map(|(k, v)| format!("\"{k}\":\"{v}\"")).collect();
        let from_json = parse(&format!("[{{{}}}]", pairs.join(","))).unwrap();
        assert_eq!(from_csv, from_json);
        assert_eq!(from_csv[0].mean_motion, 15.495_605_32);
    }

    #[test]
    fn a_malformed_value_is_reported_with_its_record() {
        let error = parse(&format!("{KEYS}\n{ISS}\n{}\n", ISS.replace("51.6435", "steep"))).unwrap_err();
        assert_eq!(error.record, 2);
    }

    #[test]
    fn an_empty_file_is_an_error() {
        assert_eq!(parse(" \n").unwrap_err().record, 0);
        assert_eq!(parse("[]").unwrap_err().record, 0);
    }
}
