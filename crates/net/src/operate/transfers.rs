//! One line of the log for each transfer that ended.

use starhop_proto::hop::Transfer;
use starhop_proto::time::Duration;

/// A transfer whose end was sent so long ago is over, if nobody has asked anything of it since.
pub const QUIET: Duration = Duration::from_secs(1);

/// Writes the line; `name` is what the source calls the flow, where it is known.
///
/// Times are in seconds, rates in 10^6 bit/s of payload, from the first to the last packet.
pub fn log(transfer: &Transfer, name: Option<&str>) {
    let Transfer { flow, to, bytes, repair_bytes, ending, .. } = *transfer;
    let seconds = transfer.last_sent.since(transfer.began).as_secs_f64();
    let mbps = if seconds > 0.0 { (bytes as f64 * 8e-6 / seconds * 1e3).round() / 1e3 } else { 0.0 };
    tracing::info!(
        target: "starhop::transfer",
        %flow, name, %to, bytes, repair_bytes, seconds, mbps, reason = ending.word(),
        "transfer ended"
    );
}
