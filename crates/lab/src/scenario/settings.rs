//! The options of a Starhop flow as text, by which real processes get the settings of a scenario.

use super::fields::{Fields, Text};
use super::flow::set;
use super::leotp::rules_as_options;
use starhop_proto::config::{Config, Controller, Notices, Settings};
use starhop_proto::units::Rate;
use toml::de::DeTable;

/// Applies `text`, the fields of a flow's `options`, to `settings`.
///
/// # Errors
/// Names the field that is wrong.
pub fn with_options(mut settings: Settings, text: &str) -> Result<Config, String> {
    let table = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
    let mut fields = Fields::new(Text { text, has_lines: false }, "", table);
    set(&mut settings, &mut fields).map_err(|error| error.to_string())?;
    fields.finish().map_err(|error| error.to_string())?;
    Config::new(settings).map_err(|error| error.to_string())
}

/// The text from which [`with_options`] makes these settings, given the profile that they came from.
pub fn options_of(settings: &Settings) -> String {
    let s = settings;
    let bytes = |bytes: u64| format!("\"{bytes}B\"");
    let time = |time: starhop_proto::time::Duration| format!("\"{}ns\"", time.as_nanos());
    let packets = |packets: u32| format!("\"{packets}p\"");
    let fields = [
        ("payload", s.payload.to_string()),
        ("controller", controller(s.controller)),
        ("per_flow_control", s.per_flow_control.to_string()),
        ("end_to_end_control", s.end_to_end_control.to_string()),
        ("rtt0", time(s.rtt0)),
        ("initial_window", s.initial_window.to_string()),
        ("reorder_packets", s.reorder_packets.to_string()),
        ("reorder_time", time(s.reorder_time)),
        ("repair_tries", s.repair_tries.to_string()),
        ("repair_hop_limit", s.repair_hop_limit.to_string()),
        ("notices", notices(s.notices).to_owned()),
        ("interest_step", packets(s.interest_step)),
        ("interest_span", packets(s.interest_span)),
        ("request_limit", bytes(s.request_limit)),
        ("cache", bytes(s.cache_bytes)),
        ("cache_answers", s.cache_answers.to_string()),
        ("buffer_target", bytes(s.buffer_target)),
        ("store_ahead", bytes(s.store_ahead)),
        ("receive_window", bytes(s.receive_window)),
        ("credit_per_neighbour", bytes(s.credit_per_neighbour)),
        ("initial_rto", time(s.initial_rto)),
        ("min_rto", time(s.min_rto)),
        ("max_rto", time(s.max_rto)),
        ("flow_idle", time(s.flow_idle)),
    ];
    let limit = match s.rate_limit {
        Rate::UNLIMITED => String::new(),
        limit => format!("rate_limit = \"{}bit\"\n", limit.as_bps()),
    };
    let rules = match &s.controller {
        Controller::Leotp(rules) => rules_as_options(rules),
        _ => String::new(),
    };
    let mut mechanisms = s.mechanisms;
    let mechanisms = mechanisms.by_name().map(|(name, on)| format!("{name} = {on}\n"));
    fields.map(|(name, value)| format!("{name} = {value}\n")).concat()
        + &limit
        + &mechanisms.concat()
        + &rules
}

fn controller(controller: Controller) -> String {
    match controller {
        Controller::Starhop => "\"starhop\"".to_owned(),
        Controller::Leotp(_) => "\"leotp\"".to_owned(),
        Controller::Intcp => "\"intcp\"".to_owned(),
        Controller::Reno => "\"reno\"".to_owned(),
        Controller::Cubic => "\"cubic\"".to_owned(),
        Controller::Fixed(rate) => format!("{{ fixed = \"{}bit\" }}", rate.as_bps()),
    }
}

fn notices(notices: Notices) -> &'static str {
    match notices {
        Notices::Never => "\"never\"",
        Notices::OnSkip => "\"on-skip\"",
        Notices::OnRequest => "\"on-request\"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use starhop_proto::config::Profile;

    #[test]
    fn settings_survive_being_written_down() {
        for (_, profile) in Profile::ALL {
            let changed = "cache = \"1MiB\"\nbuffer_target = \"5p\"\nstore_ahead = \"1MB\"\nmin_rto = \"123ms\"\n\
                           epochs = false\nrepairs_first = false\nrate_limit = \"5Mbit\"\n\
                           controller = \"cubic\"\nend_to_end_control = true";
            let leotp = "controller = \"leotp-code\"\nm = \"5kB\"\nk = 0.5\nincrement = 2.5\ndivisor = \"smoothed\"\n\
                         base_rtt = \"raw\"\ncut_every = 3";
            for options in ["", changed, leotp] {
                let config = with_options(profile.settings(), options).unwrap();
                let again = with_options(profile.settings(), &options_of(&config)).unwrap();
                assert_eq!(*config, *again, "{profile:?}");
            }
        }
        let fixed =
            Settings { controller: Controller::Fixed(Rate::from_mbps(20)), ..Profile::Starhop.settings() };
        let again = with_options(Profile::Starhop.settings(), &options_of(&fixed)).unwrap();
        assert_eq!(again.controller, fixed.controller);
    }

    #[test]
    fn an_unknown_option_is_refused_by_name() {
        let problem = with_options(Profile::Starhop.settings(), "casche = \"1MiB\"").unwrap_err();
        assert!(problem.contains("casche"), "{problem}");
    }
}
