//! Numbers of a result document by name: `flow.a.goodput_mbps`, `jain`, `link.r1-r2.forward.dropped`.

use crate::result::RunResult;
use serde_json::Value;

/// A number of a result document, or a ratio of two.
///
/// A name is a path into the document: `jain`, `link_packets`; `flow.NAME.FIELD` with a flow's name or its number
/// from 0; `flows.sum.FIELD`, `flows.mean.FIELD`, `flows.min.FIELD`, `flows.max.FIELD` over all flows;
/// `link.NAME.DIRECTION.FIELD`; `relays.sum.FIELD`. Nested fields have dots: `flow.a.owd_ms.p99`; entries of a list are
/// counted from 0: `flow.a.owd_quantiles_ms.160` is the delay that 160 of 200 parts of the bytes stay below. In place of
/// all flows, those of a group that was made with `count`: `flows.NAME.sum.FIELD`. Such a group has numbers of its own,
/// `group.NAME.FIELD`: `group.a.goodput_mbps.p1`, `group.a.efficiency`; a group of more than 1000 has only those.
///
/// A time series becomes a number by its mean from second A to B: `flow.a.series.goodput_mbps@20..40`. Jain's index of
/// these means, over the flows that run throughout, is `jain@20..40`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize, serde::Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Metric {
    value: String,
    over: Option<String>,
}

impl TryFrom<String> for Metric {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.to_string()
    }
}

impl std::str::FromStr for Metric {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (value, over) = match text.split_once(" / ") {
            Some((value, over)) => (value.trim(), Some(over.trim().to_owned())),
            None => (text.trim(), None),
        };
        if value.is_empty() || over.as_ref().is_some_and(String::is_empty) {
            return Err(format!("`{text}` names no number: write flow.a.goodput_mbps, or A / B for a ratio"));
        }
        Ok(Self { value: value.to_owned(), over })
    }
}

impl std::fmt::Display for Metric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.over {
            Some(over) => write!(f, "{} / {over}", self.value),
            None => f.write_str(&self.value),
        }
    }
}

/// A stretch of a run, seconds.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Window {
    from_s: f64,
    to_s: f64,
}

impl std::str::FromStr for Window {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let ends = text.split_once("..").and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match ends {
            Some((from_s, to_s)) if from_s < to_s => Ok(Self { from_s, to_s }),
            _ => Err(format!("`@{text}`: write two times in seconds, the earlier first: @20..40")),
        }
    }
}

/// The choice of one number among several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fold {
    Sum,
    Mean,
    Min,
    Max,
}

impl Fold {
    fn named(name: &str) -> Option<Self> {
        match name {
            "sum" => Some(Self::Sum),
            "mean" => Some(Self::Mean),
            "min" => Some(Self::Min),
            "max" => Some(Self::Max),
            _ => None,
        }
    }

    fn of(self, values: &[f64]) -> f64 {
        match self {
            Self::Sum => values.iter().sum(),
            Self::Mean => values.iter().sum::<f64>() / values.len().max(1) as f64,
            Self::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// A flow `NAME-7` is of the group NAME, which a scenario made with `count`.
fn is_of_group(item: &Value, group: &str) -> bool {
    let number = item["name"].as_str().and_then(|name| name.strip_prefix(group)?.strip_prefix('-'));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A result document that is read by name.
#[derive(Clone, Debug)]
pub struct Document(Value);

impl Metric {
    /// It is read from a time series: results need to keep theirs.
    pub fn needs_series(&self) -> bool {
        [Some(&self.value), self.over.as_ref()].into_iter().flatten().any(|name| name.contains('@'))
    }
}

impl Document {
    /// The document of a run.
    ///
    /// # Errors
    /// Never for a document that this program wrote.
    pub fn of(run: &RunResult) -> Result<Self, serde_json::Error> {
        serde_json::to_value(run).map(Self)
    }

    /// The number of a metric.
    ///
    /// # Errors
    /// The part of its name that is not in the document, and the names that the document has there.
    pub fn number(&self, metric: &Metric) -> Result<f64, String> {
        let value = self.at(&metric.value)?;
        match &metric.over {
            Some(over) => Ok(value / self.at(over)?),
            None => Ok(value),
        }
    }

    /// The numbers of an array: a time series (`flow.a.series.goodput_mbps`, `link.r1-r2.forward.series.queue_ms`)
    /// or quantiles (`flow.a.owd_quantiles_ms`). A missing number is NaN.
    ///
    /// # Errors
    /// As [`Document::number`].
    pub fn numbers(&self, name: &str) -> Result<Vec<f64>, String> {
        let value = self.lookup(name)?;
        let items = value.as_array().ok_or_else(|| format!("`{name}` is one value and no series"))?;
        Ok(items.iter().map(|item| item.as_f64().unwrap_or(f64::NAN)).collect())
    }

    fn at(&self, name: &str) -> Result<f64, String> {
        if let Some((name, window)) = name.rsplit_once('@') {
            let window = window.parse()?;
            return if name == "jain" { self.jain_within(window) } else { self.mean_within(name, window) };
        }
        let mut parts = name.splitn(3, '.');
        if let (Some(list @ ("flows" | "links" | "relays")), Some(fold), Some(field)) =
            (parts.next(), parts.next(), parts.next())
        {
            return self.folded(list, fold, field);
        }
        number(self.lookup(name)?, name)
    }

    fn folded(&self, list: &str, fold: &str, field: &str) -> Result<f64, String> {
        let (group, fold, field) = match field.split_once('.') {
            Some((inner, field)) if Fold::named(fold).is_none() && Fold::named(inner).is_some() => {
                (Some(fold), inner, field)
            }
            _ => (None, fold, field),
        };
        let Some(fold) = Fold::named(fold) else {
            return Err(format!("`{list}.{fold}`: there are sum, mean, min and max"));
        };
        let items = self.0[list].as_array().map(Vec::as_slice).unwrap_or_default();
        let items = items.iter().filter(|item| group.is_none_or(|group| is_of_group(item, group)));
        let values = items.map(|item| number(field_of(item, field)?, field));
        let values = values.collect::<Result<Vec<f64>, String>>()?;
        match group {
            Some(group) if values.is_empty() => Err(format!("`{list}` has no group `{group}`")),
            _ => Ok(fold.of(&values)),
        }
    }

    /// The mean of a time series within a window.
    fn mean_within(&self, name: &str, window: Window) -> Result<f64, String> {
        let step: f64 = number(self.lookup("series.step_s")?, "series.step_s")?;
        let values = self.numbers(name)?;
        let within = values.iter().enumerate().filter(|(index, value)| {
            let ends = (*index as f64 + 1.0) * step;
            value.is_finite() && ends > window.from_s + 1e-9 && ends <= window.to_s + 1e-9
        });
        let within: Vec<f64> = within.map(|(_, value)| *value).collect();
        Ok(if within.is_empty() { f64::NAN } else { Fold::Mean.of(&within) })
    }

    fn jain_within(&self, window: Window) -> Result<f64, String> {
        let items = self.0["flows"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut means = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let (start, stop) = (
                number(field_of(item, "start_s")?, "start_s")?,
                number(field_of(item, "stop_s")?, "stop_s")?,
            );
            if start <= window.from_s && stop >= window.to_s {
                means.push(self.mean_within(&format!("flow.{index}.series.goodput_mbps"), window)?);
            }
        }
        Ok(if means.is_empty() { f64::NAN } else { crate::result::jain(&means) })
    }

    fn lookup(&self, name: &str) -> Result<&Value, String> {
        match name.split_once('.') {
            Some(("flow", rest)) => {
                let (flow, field) = rest.split_once('.').ok_or("name a field: flow.NAME.FIELD")?;
                let index = self.position("flows", |item, i| item["name"] == flow || i.to_string() == flow);
                let index = index.ok_or_else(|| format!("there is no flow `{flow}`"))?;
                self.entry("flows", index, field)
            }
            Some(("group", rest)) => {
                let (group, field) = rest.split_once('.').ok_or("name a field: group.NAME.FIELD")?;
                let index = self.position("groups", |item, _| item["name"] == group);
                let index = index.ok_or_else(|| format!("there is no group `{group}`"))?;
                field_of(&self.0["groups"][index], field)
            }
            Some(("link", rest)) => {
                let mut parts = rest.splitn(3, '.');
                let (Some(link), Some(direction), Some(field)) = (parts.next(), parts.next(), parts.next())
                else {
                    return Err("name a field: link.NAME.DIRECTION.FIELD".to_owned());
                };
                let is_it = |item: &Value, _| item["name"] == link && item["direction"] == direction;
                let index = self.position("links", is_it);
                let index = index.ok_or_else(|| format!("there is no link `{link}` {direction}"))?;
                self.entry("links", index, field)
            }
            _ => field_of(&self.0, name),
        }
    }

    fn position(&self, list: &str, is_it: impl Fn(&Value, usize) -> bool) -> Option<usize> {
        let items = self.0[list].as_array()?;
        items.iter().enumerate().position(|(index, item)| is_it(item, index))
    }

    fn entry(&self, list: &str, index: usize, field: &str) -> Result<&Value, String> {
        match field.strip_prefix("series.") {
            Some(field) => field_of(&self.0["series"][list][index], field),
            None => field_of(&self.0[list][index], field),
        }
    }
}

fn field_of<'a>(mut value: &'a Value, path: &str) -> Result<&'a Value, String> {
    for part in path.split('.') {
        let entry = part.parse::<usize>().ok().and_then(|index| value.get(index));
        value = value.get(part).or(entry).ok_or_else(|| {
            let names: Vec<&str> = value.as_object().into_iter().flatten().map(|(k, _)| k.as_str()).collect();
            format!("there is no `{part}` of `{path}`; there are {}", names.join(", "))
        })?;
    }
    Ok(value)
}

/// A number, or a truth as 0 or 1; NaN for an event that did not happen (`completion_s` of an incomplete flow).
fn number(value: &Value, name: &str) -> Result<f64, String> {
    match value {
        Value::Number(number) => number.as_f64().ok_or_else(|| format!("`{name}` is no finite number")),
        Value::Bool(truth) => Ok(f64::from(u8::from(*truth))),
        Value::Null => Ok(f64::NAN),
        _ => Err(format!("`{name}` is no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn document() -> Document {
        Document(json!({
            "jain": 0.5,
            "flows": [
                {"name": "a", "goodput_mbps": 3.0, "owd_ms": {"p99": 7.0}, "completion_s": null,
                    "quantiles": [1.0, 5.0], "start_s": 0.0, "stop_s": 2.0},
                {"name": "b", "goodput_mbps": 1.0, "owd_ms": {"p99": 9.0}, "completion_s": 2.0,
                    "start_s": 1.0, "stop_s": 2.0},
            ],
            "links": [{"name": "x-y", "direction": "forward", "dropped": 4}],
            "series": {
                "step_s": 0.5,
                "flows": [
                    {"owd_ms": [1.0, null], "goodput_mbps": [1.0, 2.0, 3.0, 5.0]},
                    {"owd_ms": [], "goodput_mbps": [0.0, 0.0, 1.0, 1.0]},
                ],
                "links": [{}],
            },
        }))
    }

    fn at(name: &str) -> Result<f64, String> {
        document().number(&name.parse()?)
    }

    #[test]
    fn numbers_are_found_by_name_by_number_and_over_all() {
        assert_eq!(at("jain"), Ok(0.5));
        assert_eq!(at("flow.b.owd_ms.p99"), Ok(9.0));
        assert_eq!(at("flow.0.goodput_mbps / flow.1.goodput_mbps"), Ok(3.0));
        assert_eq!(at("flows.sum.goodput_mbps"), Ok(4.0));
        assert_eq!(at("flows.max.owd_ms.p99"), Ok(9.0));
        assert_eq!(at("link.x-y.forward.dropped"), Ok(4.0));
        assert_eq!(at("flow.a.quantiles.1"), Ok(5.0));
        assert!(at("flow.a.quantiles.2").is_err());
        assert!(at("flow.a.completion_s").is_ok_and(f64::is_nan));
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let Err(problem) = at("flow.a.goodput") else { panic!() };
        assert!(problem.contains("`goodput`") && problem.contains("goodput_mbps"), "{problem}");
        assert!(at("flow.c.goodput_mbps").is_err_and(|problem| problem.contains("`c`")));
        assert!(at("flows.median.goodput_mbps").is_err());
    }

    #[test]
    fn series_keep_their_gaps() {
        let series = document().numbers("flow.a.series.owd_ms").unwrap_or_default();
        assert!(series[0] == 1.0 && series[1].is_nan());
    }

    #[test]
    fn a_window_of_a_series_is_a_number() {
        assert_eq!(at("flow.a.series.goodput_mbps@0.5..1.5"), Ok(2.5));
        assert!(at("flow.a.series.goodput_mbps@7..8").is_ok_and(f64::is_nan));
        // In the first second only one flow runs; in the second 4 to 1.
        assert_eq!(at("jain@0..1"), Ok(1.0));
        assert!(at("jain@1..2").is_ok_and(|jain| (jain - 25.0 / 34.0).abs() < 1e-12));
        assert!(at("jain@2..1").is_err_and(|problem| problem.contains("@2..1")));
    }

    #[test]
    fn a_group_is_folded_by_itself() {
        let flow = |name: &str, rate: f64| json!({"name": name, "goodput_mbps": rate});
        let flows = [flow("x-1", 1.0), flow("x-2", 2.0), flow("y-1", 5.0), flow("x-up", 9.0)];
        let groups = json!([{"name": "x", "goodput_mbps": {"p99": 1.5}}]);
        let document = Document(json!({ "flows": flows, "groups": groups }));
        let at = |name: &str| name.parse().and_then(|metric| document.number(&metric));
        assert_eq!(at("flows.x.sum.goodput_mbps"), Ok(3.0));
        assert_eq!(at("flows.y.mean.goodput_mbps / flows.x.mean.goodput_mbps"), Ok(5.0 / 1.5));
        assert_eq!(at("group.x.goodput_mbps.p99"), Ok(1.5));
        assert!(at("group.z.goodput_mbps.p99").is_err_and(|problem| problem.contains("`z`")));
        assert!(at("flows.z.sum.goodput_mbps").is_err_and(|problem| problem.contains("`z`")));
    }
}
