//! The constants of LEOTP's controller as options of a flow, and back.

use super::fields::{Fields, ScenarioError, put};
use super::units::{Size, Span};
use starhop_proto::config::{BaseRtt, Divisor, LeotpRules};

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum DivisorName {
    Smoothed,
    Base,
}

#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BaseName {
    Raw,
    Smoothed,
}

/// Sets the constants that the options name.
pub(super) fn set_rules(rules: &mut LeotpRules, options: &mut Fields<'_>) -> Result<(), ScenarioError> {
    put(options.optional::<Size>("m")?.map(|size| size.0), &mut rules.m);
    put(options.optional("k")?, &mut rules.k);
    put(options.optional("increment")?, &mut rules.increment);
    put(options.optional("cut_every")?, &mut rules.cut_every);
    put(options.optional("validates")?, &mut rules.validates);
    put(options.optional::<Span>("base_window")?.map(|span| span.0), &mut rules.base_window);
    let divisor = |name| match name {
        DivisorName::Smoothed => Divisor::Smoothed,
        DivisorName::Base => Divisor::Base,
    };
    put(options.optional("divisor")?.map(divisor), &mut rules.divisor);
    let base = |name| match name {
        BaseName::Raw => BaseRtt::Raw,
        BaseName::Smoothed => BaseRtt::Smoothed,
    };
    put(options.optional("base_rtt")?.map(base), &mut rules.base_rtt);
    Ok(())
}

/// The options that say these constants.
pub(super) fn rules_as_options(rules: &LeotpRules) -> String {
    let divisor = match rules.divisor {
        Divisor::Smoothed => "smoothed",
        Divisor::Base => "base",
    };
    let base = match rules.base_rtt {
        BaseRtt::Raw => "raw",
        BaseRtt::Smoothed => "smoothed",
    };
    format!(
        "m = \"{}B\"\nk = {:?}\nincrement = {:?}\ncut_every = {}\nvalidates = {}\nbase_window = \"{}ns\"\n\
         divisor = \"{divisor}\"\nbase_rtt = \"{base}\"\n",
        rules.m,
        rules.k,
        rules.increment,
        rules.cut_every,
        rules.validates,
        rules.base_window.as_nanos(),
    )
}
