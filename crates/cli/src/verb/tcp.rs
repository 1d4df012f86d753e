//! `starhop tcp`: congestion controls for the kernel's own TCP.

use super::{print, say};
use clap::Subcommand;
use serde_json::{Value, json};
use starhop_kernel::{CONTROLS, Control, KernelError, Lifetime, Loaded, Options, Registered};
use starhop_net::daemon;
use std::process::ExitCode;

/// Load congestion controls for satellite paths into this kernel.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop tcp load hybla-veno --persist          # as root; any program may choose it from now on\n  iperf3 -c HOST -C hybla_veno                   # a program chooses by the socket option TCP_CONGESTION,\n  starhop tcp default hybla-veno                 # or all new connections of this namespace use it\n  starhop tcp status\n  starhop tcp default cubic; starhop tcp unload hybla-veno\n\nOnly senders need it. Kernel 6.4 or newer, with type information (BTF).\n\nExit code 0, 1 when it could not be done, 2 for a wrong command, 3 when this machine cannot."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Show the controls that the kernel offers, that can be added, and that are loaded
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Load controls; until this process ends, or with --persist until they are unloaded
    Load {
        /// Their names: `starhop tcp list` shows them
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Return at once and leave them loaded
        #[arg(long)]
        persist: bool,
        /// A parameter, such as rtt0=50ms or beta1=4; may be repeated
        #[arg(long = "option", value_name = "NAME=VALUE")]
        options: Vec<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take away controls that were loaded with --persist; connections that use them go on with them
    Unload {
        /// Their names
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Show the counters of loaded controls
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a control the default of new connections in this network namespace
    Default {
        /// Its name, ours or the kernel's
        name: String,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let done = match &args.what {
        What::List { json } => list(*json),
        What::Load { names, persist, options, json } => load(names, *persist, options, *json),
        What::Unload { names } => unload(names),
        What::Status { json } => status(*json),
        What::Default { name } => set_default(name),
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) if error.downcast_ref().is_some_and(KernelError::is_of_this_machine) => {
            eprintln!("starhop: {error:#}");
            Ok(ExitCode::from(3))
        }
        Err(error) => Err(error),
    }
}

fn controls(names: &[String]) -> Result<Vec<&'static Control>, KernelError> {
    names.iter().map(|name| Control::named(name)).collect()
}

fn load(names: &[String], persist: bool, options: &[String], json: bool) -> anyhow::Result<()> {
    let controls = controls(names)?;
    let options = Options::parse(options, &controls)?;
    let lifetime = if persist { Lifetime::Persistent } else { Lifetime::Process };
    let mut loaded: Vec<Loaded> = Vec::new();
    for control in &controls {
        loaded.push(starhop_kernel::load(control, &options, lifetime)?);
        if json {
            say(&json!({"event": "loaded", "name": control.name, "kernel_name": control.kernel_name})
                .to_string());
        } else {
            say(&format!("loaded {}: sockets choose it as \"{}\"", control.name, control.kernel_name));
        }
    }
    if !persist {
        daemon::wait_for_end(None, || {})?;
    }
    Ok(())
}

fn unload(names: &[String]) -> anyhow::Result<()> {
    for control in controls(names)? {
        let sockets = starhop_kernel::unload(control)?;
        let left = if sockets > 0 { format!("; {sockets} connections go on with it") } else { String::new() };
        say(&format!("unloaded {}{left}", control.name));
    }
    Ok(())
}

fn set_default(name: &str) -> anyhow::Result<()> {
    let kernel_name = Control::named(name).map_or(name, |control| control.kernel_name);
    starhop_kernel::set_default(kernel_name)?;
    say(&format!("new connections of this network namespace use {kernel_name}"));
    Ok(())
}

fn list(json: bool) -> anyhow::Result<()> {
    let offered = starhop_kernel::offered()?;
    let default = starhop_kernel::default_control()?;
    // Only root sees the loaders of the controls; every user may see the controls that the kernel offers.
    let (registered, hidden) = match starhop_kernel::registered() {
        Ok(registered) => (registered, None),
        Err(error) if error.is_of_this_machine() => (Vec::new(), Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    if json {
        let controls: Vec<_> = CONTROLS.iter().map(|control| entry(control, &offered, &registered)).collect();
        let document =
            json!({"offered": offered, "default": default, "controls": controls, "hidden": hidden});
        return print(&format!("{document:#}\n"));
    }
    let mut text =
        format!("The kernel offers {}; new connections here use {default}.\n\n", offered.join(", "));
    for control in CONTROLS {
        let is_offered = offered.iter().any(|name| name == control.kernel_name);
        let state = if is_offered { "loaded" } else { "" };
        text += &format!("{:<12} {:<12} {state:<7} {}\n", control.name, control.kernel_name, control.summary);
        for option in control.options {
            let value = format!("{}={}{}", option.name, option.default, unit(option.unit));
            text += &format!("{:<33} {value:<14} {}\n", "", option.summary);
        }
    }
    if let Some(hidden) = hidden {
        text += &format!("\nWho has loaded them, and who uses them, is not shown: {hidden}\n");
    }
    print(&text)
}

/// Segments are counted, and a count needs no unit.
fn unit(unit: &str) -> &str {
    if unit == "segments" { "" } else { unit }
}

fn entry(control: &Control, offered: &[String], registered: &[Registered]) -> Value {
    let found = registered.iter().find(|found| found.control.name == control.name);
    json!({
        "name": control.name,
        "kernel_name": control.kernel_name,
        "summary": control.summary,
        "offered": offered.iter().any(|name| name == control.kernel_name),
        "loaded": found.map(state),
    })
}

fn state(found: &Registered) -> Value {
    let counters = found.counters;
    json!({
        "name": found.control.name,
        "persistent": found.pinned.is_some(),
        "pinned": found.pinned,
        "holders": found.holders,
        "sockets": counters.sockets,
        "sockets_of_earlier": found.sockets_of_earlier,
        "reductions": {
            "random": counters.random,
            "unclear": counters.unclear,
            "congestion": counters.congestion,
        },
        "timeouts": counters.timeouts,
    })
}

fn status(json: bool) -> anyhow::Result<()> {
    let registered = starhop_kernel::registered()?;
    if json {
        let controls: Vec<_> = registered.iter().map(state).collect();
        return print(&format!("{:#}\n", json!({"controls": controls})));
    }
    if registered.is_empty() {
        return print("nothing is loaded; `starhop tcp load NAME` does\n");
    }
    registered.iter().try_for_each(|found| print(&describe(found)))
}

fn describe(found: &Registered) -> String {
    let counters = found.counters;
    let life = match (&found.pinned, found.holders.first()) {
        (Some(path), _) => format!("stays ({})", path.display()),
        (None, Some(pid)) => format!("goes with process {pid}"),
        (None, None) => "goes with its loader".to_owned(),
    };
    let earlier = match found.sockets_of_earlier {
        0 => String::new(),
        count => format!(" ({count} more with one unloaded before)"),
    };
    format!(
        "{}: {life}; {} connections{earlier}; reductions: {} for random loss, {} unclear, {} for congestion; {} timeouts\n",
        found.control.name,
        counters.sockets,
        counters.random,
        counters.unclear,
        counters.congestion,
        counters.timeouts
    )
}
