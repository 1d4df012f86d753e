//! Reports: one self-contained HTML page from one or more result documents.

use crate::result::RunResult;

/// The page.
pub fn page(results: &[RunResult]) -> String {
    let titles: Vec<&str> = results.iter().map(|result| result.title.as_str()).collect();
    format!("<!doctype html><meta charset=\"utf-8\"><title>{}</title>", titles.join(", "))
}
