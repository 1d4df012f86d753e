//! An axis of a sweep: fields of a scenario, and the values that they take in turn.

use crate::scenario::Change;

/// One or more fields of a scenario that take the same values together, one value after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SweepAxis {
    /// The fields, as in `--set`.
    pub path: Vec<String>,
    /// Their values.
    pub values: Vec<String>,
}

impl std::str::FromStr for SweepAxis {
    type Err = String;

    /// `topology.link.loss=0,0.1%,1%`: values are separated by commas outside of brackets and quotes.
    fn from_str(text: &str) -> Result<Self, String> {
        let change: Change = text.parse()?;
        let values = split(&change.value);
        if values.iter().any(String::is_empty) {
            return Err(format!("`{text}`: a value is empty"));
        }
        Ok(Self { path: change.path, values })
    }
}

impl SweepAxis {
    /// The name of the field.
    pub fn name(&self) -> String {
        self.path.join(".")
    }

    /// The change that sets one of its values.
    pub fn change(&self, value: usize) -> Change {
        Change { path: self.path.clone(), value: self.values[value].clone() }
    }
}

fn split(text: &str) -> Vec<String> {
    let (mut depth, mut quote, mut values) = (0usize, None, vec![String::new()]);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth = depth.saturating_sub(1),
            (None, ',') if depth == 0 => {
                values.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = values.last_mut() {
            last.push(c);
        }
    }
    values.into_iter().map(|value| value.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_within_a_value_do_not_split_it() {
        let axis: Result<SweepAxis, _> =
            r#"topology.link.rate=1Mbit, { steps = [["0s", "a,b"], ["1s", "c"]] }"#.parse();
        let Ok(axis) = axis else { panic!("{axis:?}") };
        assert_eq!(axis.name(), "topology.link.rate");
        assert_eq!(axis.values, ["1Mbit", r#"{ steps = [["0s", "a,b"], ["1s", "c"]] }"#]);
    }

    #[test]
    fn an_empty_value_is_refused() {
        assert!("a.b=1,,2".parse::<SweepAxis>().is_err());
        assert!("no value".parse::<SweepAxis>().is_err());
    }
}
