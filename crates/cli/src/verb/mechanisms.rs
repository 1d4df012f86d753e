//! The set of mechanisms that a role works with, as its verb takes it.

use starhop_lab::scenario::with_options;
use starhop_proto::config::{Config, Profile, Settings};

/// A profile and the changes to it.
#[derive(clap::Args)]
pub(crate) struct Mechanisms {
    /// The set of mechanisms: starhop, leotp, leotp-code, intcp or intcp-uni
    #[arg(long, default_value = "starhop", value_parser = profile, value_name = "PROFILE")]
    profile: Profile,
    /// Settings to change, written as the `options` of a scenario's flow: 'buffer_target = "5p"'
    #[arg(long, default_value = "", value_name = "TOML")]
    options: String,
}

impl Mechanisms {
    /// The checked settings: those of the profile, then `change`, then the options.
    pub(super) fn config(&self, change: impl FnOnce(&mut Settings)) -> anyhow::Result<Config> {
        let mut settings = self.profile.settings();
        change(&mut settings);
        with_options(settings, &self.options)
            .map_err(|problem| anyhow::anyhow!("the configuration cannot work: {problem}"))
    }
}

/// The name of a profile.
fn profile(text: &str) -> Result<Profile, String> {
    Profile::named(text).ok_or_else(|| {
        let names: Vec<&str> = Profile::ALL.iter().map(|(name, _)| *name).collect();
        format!("profiles are {}", names.join(", "))
    })
}
