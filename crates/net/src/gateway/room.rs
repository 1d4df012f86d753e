//! Descriptors: each connection takes one, and two on the plain path.

use super::GatewayConfig;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors of a gateway without connections: its own sockets, devices, pipes and questions about it. Two dozen were
/// counted.
const OTHERS: u64 = 64;

/// Has this process open as many descriptors as it may without privileges: the soft limit is often 1024, for programs
/// that use `select`. Returns their number.
pub fn all_descriptors() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 0 };
    if setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// The shortage for people, if a process that may open `descriptors` cannot have all connections of `config`.
pub fn shortage(config: &GatewayConfig, descriptors: u64) -> Option<String> {
    let most = config.max_connections() as u64;
    let needed = most.saturating_add(OTHERS);
    (descriptors < needed).then(|| {
        format!(
            "`max_connections = {most}` needs {needed} descriptors, and this process may open {descriptors}: \
             clients beyond {} connections would wait in vain. Give it more (`ulimit -Hn {needed}`, or \
             LimitNOFILE={needed} in the unit; twice as many if the plain path is to have room), or lower `max_connections`",
            descriptors.saturating_sub(OTHERS)
        )
    })
}
