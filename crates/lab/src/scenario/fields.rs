//! The fields of a table of a scenario file, taken one by one, so that every error names its field and line.

use serde::de::DeserializeOwned;
use std::fmt;
use std::ops::Range;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// A fault of a scenario.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScenarioError {
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// The path of the field, as `topology.link.rate`.
    pub field: String,
    /// The fault.
    pub problem: String,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "`{}`: ", self.field)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ScenarioError {}

/// The text of a scenario, to turn positions into lines.
#[derive(Clone, Copy)]
pub(super) struct Text<'a> {
    pub(super) text: &'a str,
    /// False where the text is not the user's: then lines would mislead.
    pub(super) has_lines: bool,
}

impl Text<'_> {
    pub(super) fn error(self, span: Option<Range<usize>>, field: &str, problem: &str) -> ScenarioError {
        let line = span.filter(|_| self.has_lines).map(|span| {
            let before = &self.text.as_bytes()[..span.start.min(self.text.len())];
            before.iter().filter(|&&byte| byte == b'\n').count() + 1
        });
        ScenarioError { line, field: field.to_owned(), problem: problem.trim_end().to_owned() }
    }
}

/// A table whose fields are taken one by one; [`Fields::finish`] refuses the fields that remain.
pub(super) struct Fields<'a> {
    pub(super) text: Text<'a>,
    pub(super) path: String,
    table: DeTable<'a>,
    span: Range<usize>,
    /// The fields that were looked up, with the place of each that exists.
    known: Vec<(&'static str, Option<Range<usize>>)>,
}

impl<'a> Fields<'a> {
    pub(super) fn new(text: Text<'a>, path: &str, table: toml::Spanned<DeTable<'a>>) -> Self {
        let span = table.span();
        Self { text, path: path.to_owned(), table: table.into_inner(), span, known: Vec::new() }
    }

    fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    fn take(&mut self, name: &'static str) -> Option<toml::Spanned<DeValue<'a>>> {
        let value = self.table.remove(name);
        self.known.push((name, value.as_ref().map(toml::Spanned::span)));
        value
    }

    /// The error that `problem` is with the field `name`.
    pub(super) fn error(&self, name: &str, problem: &str) -> ScenarioError {
        let taken = self.known.iter().find(|(known, _)| *known == name).and_then(|(_, span)| span.clone());
        let span =
            taken.or_else(|| self.table.get(name).map(toml::Spanned::span)).unwrap_or(self.span.clone());
        self.text.error(Some(span), &self.path_of(name), problem)
    }

    pub(super) fn optional<T: DeserializeOwned>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, ScenarioError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let span = value.span();
        T::deserialize(ValueDeserializer::from(value)).map(Some).map_err(|error| {
            self.text.error(error.span().or(Some(span)), &self.path_of(name), error.message())
        })
    }

    pub(super) fn required<T: DeserializeOwned>(&mut self, name: &'static str) -> Result<T, ScenarioError> {
        self.optional(name)?.ok_or_else(|| self.error(name, "is missing"))
    }

    /// A table within this one; an empty one if it is missing.
    pub(super) fn table(&mut self, name: &'static str) -> Result<Option<Self>, ScenarioError> {
        let Some(value) = self.take(name) else { return Ok(None) };
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => {
                let table = toml::Spanned::new(span, table);
                Ok(Some(Self::new(self.text, &self.path_of(name), table)))
            }
            other => {
                let problem = format!("is a {} where a table is expected", other.type_str());
                Err(self.text.error(Some(span), &self.path_of(name), &problem))
            }
        }
    }

    /// An array of tables, written as `[[name]]`.
    pub(super) fn tables(&mut self, name: &'static str) -> Result<Vec<Self>, ScenarioError> {
        let Some(value) = self.take(name) else { return Ok(Vec::new()) };
        let span = value.span();
        let path = self.path_of(name);
        let wrong = |span| self.text.error(Some(span), &path, "is written as one or more [[tables]]");
        let DeValue::Array(items) = value.into_inner() else { return Err(wrong(span)) };
        let mut tables = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            let span = item.span();
            let DeValue::Table(table) = item.into_inner() else { return Err(wrong(span)) };
            let path = format!("{path}.{index}");
            tables.push(Self::new(self.text, &path, toml::Spanned::new(span, table)));
        }
        Ok(tables)
    }

    /// Refuses fields that were not taken.
    pub(super) fn finish(self) -> Result<(), ScenarioError> {
        let Some((name, value)) = self.table.iter().next() else { return Ok(()) };
        let known = self.known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let problem = format!("is unknown here; known are: {known}");
        let name_text: &str = name.get_ref();
        let span = if name.span().is_empty() { value.span() } else { name.span() };
        Err(self.text.error(Some(span), &self.path_of(name_text), &problem))
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }
}

/// Sets `place` if a value was given.
pub(super) fn put<T>(value: Option<T>, place: &mut T) {
    if let Some(value) = value {
        *place = value;
    }
}
