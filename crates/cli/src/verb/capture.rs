//! `starhop capture`: the packets of a running node, as a file for Wireshark.

use super::say;
use super::sealing::file_or_none;
use super::status::chosen;
use crate::quantity;
use anyhow::{Context, bail};
use starhop_net::operate::capture::{Wanted, capture};
use starhop_net::security::KeyFile;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Capture the packets of a running node: as they are before they are sealed, and after they were opened.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  starhop capture relay-4433 --flow 3fa9 --for 10s --key /etc/starhop/domain.key -o x.pcapng\n  tshark -X lua_script:/usr/share/starhop/starhop.lua -r x.pcapng\n\nWhoever may ask for the node's status may see headers; the payload of sealed packets takes the node's key. One\ncapture of a node runs at a time. Exit code 0, 1 when it could not be captured, 2 for a wrong use."
)]
pub(crate) struct Args {
    /// The node, such as relay-4433, or the path of its socket; the only one of this host otherwise
    node: Option<String>,
    /// Beginning of the flow's id, as `starhop status` shows it; all flows otherwise
    #[arg(long, default_value = "", hide_default_value = true, value_name = "HEX", value_parser = hexadecimal)]
    flow: String,
    /// Length of the capture
    #[arg(long = "for", default_value = "10s", value_parser = quantity::time, value_name = "TIME")]
    span: Duration,
    /// The node's key file, to have the payload, too
    #[arg(long, env = "STARHOP_KEY", value_name = "FILE", value_parser = file_or_none())]
    key: Option<PathBuf>,
    /// The file to write; it is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

fn hexadecimal(text: &str) -> Result<String, String> {
    let is_hex = text.chars().all(|digit| digit.is_ascii_hexdigit());
    if is_hex { Ok(text.to_owned()) } else { Err("holds more than hexadecimal digits".to_owned()) }
}

/// Runs the verb.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let nodes = chosen(args.node.as_deref())?;
    let [node] = nodes.as_slice() else {
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        bail!("several nodes run on this host: name one of {}", names.join(", "));
    };
    let key = args.key.as_ref().filter(|path| !path.as_os_str().is_empty());
    let key = key.map(|path| KeyFile::load(path)).transpose()?;
    let path = &args.output;
    let file = std::fs::File::create_new(path);
    let file = file.with_context(|| format!("cannot write `{}`", path.display()))?;
    let wanted = Wanted::new(args.span, &args.flow, key.as_ref());
    let packets = capture(&node.path, &wanted, &mut BufWriter::new(file));
    let packets = packets.with_context(|| format!("cannot capture `{}`", node.name))?;
    say(&format!("{}: {packets} packets of {}", path.display(), node.name));
    Ok(ExitCode::SUCCESS)
}
