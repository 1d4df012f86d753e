//! The congestion controls by name, with their options.

use crate::error::KernelError;

/// A congestion control that can be loaded.
#[derive(Debug)]
pub struct Control {
    /// The name in commands and scenarios.
    pub name: &'static str,
    /// The name that sockets choose it by. The kernel takes no hyphen; `sh_` keeps it apart from a module of Linux.
    pub kernel_name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// Its options, in the order of `options[]` in its program.
    pub options: &'static [OptionSpec],
    /// It has XCP as one half: the option's program must be there, too.
    pub speaks_xcp: bool,
    #[cfg_attr(not(feature = "loader"), allow(dead_code, reason = "nothing loads it"))]
    pub(crate) object: &'static [u8],
}

/// A parameter of a control, fixed when it is loaded.
#[derive(Debug)]
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// Its unit, for messages.
    pub unit: &'static str,
    /// The program's units in one of these.
    scale: u64,
    /// Its default, in `unit`.
    pub default: u64,
    /// The least and the greatest that make sense, in `unit`.
    pub range: (u64, u64),
    /// One line about it.
    pub summary: &'static str,
}

const fn rtt0(default: u64) -> OptionSpec {
    OptionSpec {
        name: "rtt0",
        unit: "ms",
        scale: 1000,
        default,
        range: (1, 10_000),
        summary: "round trip of the connection whose growth is the model",
    }
}

const fn segments(name: &'static str, default: u64, summary: &'static str) -> OptionSpec {
    OptionSpec { name, unit: "segments", scale: 1, default, range: (0, 1 << 20), summary }
}

const FAST: &[OptionSpec] = &[
    segments("alpha", 20, "kept in queues"),
    OptionSpec {
        name: "gamma",
        unit: "%",
        scale: 1,
        default: 50,
        range: (1, 100),
        summary: "how far a round trip moves the window towards its aim",
    },
];

/// Every control that can be loaded.
pub const CONTROLS: &[Control] = &[
    Control {
        name: "hybla-veno",
        kernel_name: "hybla_veno",
        summary: "long round trips as Hybla, a slow start in three speeds, losses judged by what waits in queues",
        options: &[
            rtt0(75),
            segments("beta1", 3, "with fewer waiting segments a loss is taken for random"),
            segments("beta2", 6, "from this many waiting segments on a loss is taken for congestion"),
        ],
        speaks_xcp: false,
        object: include_bytes!("../objects/hybla_veno.o"),
    },
    Control {
        name: "hybla",
        kernel_name: "sh_hybla",
        summary: "grows as a connection with a short round trip would",
        options: &[rtt0(25)],
        speaks_xcp: false,
        object: include_bytes!("../objects/hybla.o"),
    },
    Control {
        name: "veno",
        kernel_name: "sh_veno",
        summary: "Reno that takes a fifth for a loss while queues are short",
        options: &[segments("beta", 3, "from this many waiting segments on a loss is taken for congestion")],
        speaks_xcp: false,
        object: include_bytes!("../objects/veno.o"),
    },
    Control {
        name: "westwood",
        kernel_name: "sh_westwood",
        summary: "Westwood+: Reno that falls to what the path was seen to carry",
        options: &[],
        speaks_xcp: false,
        object: include_bytes!("../objects/westwood.o"),
    },
    Control {
        name: "fast",
        kernel_name: "fast",
        summary: "FAST: keeps a number of segments in queues, by the round trip's growth",
        options: FAST,
        speaks_xcp: false,
        object: include_bytes!("../objects/fast.o"),
    },
    Control {
        name: "xcp",
        kernel_name: "xcp",
        summary: "the window is what XCP routers allow; reno where nobody answers",
        options: &[],
        speaks_xcp: true,
        object: include_bytes!("../objects/xcp.o"),
    },
    Control {
        name: "cubic-xcp",
        kernel_name: "cubic_xcp",
        summary: "SatERN: the smaller window of the kernel's cubic and of XCP",
        options: &[],
        speaks_xcp: true,
        object: include_bytes!("../objects/cubic_xcp.o"),
    },
    Control {
        name: "fast-xcp",
        kernel_name: "fast_xcp",
        summary: "SatERN: the smaller window of FAST and of XCP",
        options: FAST,
        speaks_xcp: true,
        object: include_bytes!("../objects/fast_xcp.o"),
    },
];

impl Control {
    /// The control of this name, in commands or in the kernel.
    ///
    /// # Errors
    /// [`KernelError::UnknownControl`].
    pub fn named(name: &str) -> Result<&'static Self, KernelError> {
        let is_it = |control: &&Self| control.name == name || control.kernel_name == name;
        let names = || CONTROLS.iter().map(|control| control.name).collect::<Vec<_>>().join(", ");
        let unknown = || KernelError::UnknownControl { name: name.to_owned(), known: names() };
        CONTROLS.iter().find(is_it).ok_or_else(unknown)
    }

    /// The name of its counters' map in the kernel.
    #[cfg(feature = "loader")]
    pub(crate) fn counters_map(&self) -> String {
        format!("n_{}", self.kernel_name)
    }
}

/// The user's settings, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Options(Vec<(String, u64)>);

impl Options {
    /// Parses options of the form `name=value`, and checks them against `controls`, of which at least one must have
    /// the name.
    ///
    /// # Errors
    /// [`KernelError::BadOption`] names the right form.
    pub fn parse(texts: &[String], controls: &[&Control]) -> Result<Self, KernelError> {
        texts.iter().map(|text| parse_one(text, controls)).collect::<Result<_, _>>().map(Self)
    }

    /// The values for a control, in the units and the order of its program.
    #[cfg_attr(not(feature = "loader"), allow(dead_code, reason = "nothing is loaded"))]
    pub(crate) fn values(&self, control: &Control) -> Vec<u64> {
        let value = |spec: &OptionSpec| {
            let given = self.0.iter().rev().find(|(name, _)| name == spec.name).map(|&(_, value)| value);
            given.unwrap_or(spec.default) * spec.scale
        };
        control.options.iter().map(value).collect()
    }
}

fn parse_one(text: &str, controls: &[&Control]) -> Result<(String, u64), KernelError> {
    let bad = |problem: String| KernelError::BadOption { option: text.to_owned(), problem };
    let (name, value) = text.split_once('=').ok_or_else(|| bad("write NAME=VALUE".to_owned()))?;
    let all = || controls.iter().flat_map(|control| control.options);
    let spec = all().find(|spec| spec.name == name).ok_or_else(|| {
        let known: Vec<_> = all().map(|spec| spec.name).collect();
        bad(if known.is_empty() {
            "there are no options".to_owned()
        } else {
            format!("known: {}", known.join(", "))
        })
    })?;
    let (least, most) = spec.range;
    let number = value.strip_suffix(spec.unit).unwrap_or(value).trim();
    let number = number.parse().ok().filter(|number| (least..=most).contains(number));
    let number =
        number.ok_or_else(|| bad(format!("a whole number of {} from {least} to {most}", spec.unit)))?;
    Ok((name.to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(texts: &[&str], control: &str) -> Result<Options, KernelError> {
        let texts: Vec<_> = texts.iter().map(|&text| text.to_owned()).collect();
        Options::parse(&texts, &[Control::named(control).unwrap()])
    }

    #[test]
    fn a_control_is_found_by_both_of_its_names() {
        assert_eq!(Control::named("hybla-veno").unwrap().kernel_name, "hybla_veno");
        assert_eq!(Control::named("sh_veno").unwrap().name, "veno");
        let error = Control::named("vegas").unwrap_err().to_string();
        assert!(error.contains("vegas") && error.contains("hybla-veno"), "{error}");
    }

    #[test]
    fn the_kernel_takes_every_name() {
        for control in CONTROLS {
            let is_taken = |c: char| c.is_ascii_alphanumeric() || c == '_';
            assert!(control.kernel_name.chars().all(is_taken), "{}", control.kernel_name);
            // TCP_CA_NAME_MAX and BPF_OBJ_NAME_LEN are 16, with the NUL.
            assert!(format!("n_{}", control.kernel_name).len() < 16, "{}", control.kernel_name);
        }
    }

    #[test]
    fn options_are_defaults_unless_set_and_in_the_units_of_the_program() {
        let control = Control::named("hybla-veno").unwrap();
        assert_eq!(parse(&[], "hybla-veno").unwrap().values(control), [75_000, 3, 6]);
        let set = parse(&["rtt0=50ms", "beta2=9", "beta2=10"], "hybla-veno").unwrap();
        assert_eq!(set.values(control), [50_000, 3, 10]);
    }

    #[test]
    fn an_option_that_makes_no_sense_is_refused_with_what_would() {
        for (text, says) in
            [("rtt0", "NAME=VALUE"), ("rtt0=0", "from 1 to 10000"), ("alpha=1", "rtt0, beta1, beta2")]
        {
            let error = parse(&[text], "hybla-veno").unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(says), "{error}");
        }
        assert!(parse(&["beta=1"], "westwood").unwrap_err().to_string().contains("no options"));
    }
}
