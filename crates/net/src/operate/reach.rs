//! Whether the node that a relay asks is there.

use super::about;
use crate::Driver;
use crate::security::HopSuite;
use starhop_proto::hop::Greeting;
use starhop_proto::relay::Relay;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Interval at which the question is repeated: many paths lose their first packet.
const AGAIN: Duration = Duration::from_millis(250);

/// Asks `upstream` for its identity, until it answers or `patience` ends. Call within a tokio runtime.
///
/// # Errors
/// The socket fails.
pub async fn reach(
    driver: &mut Driver<Relay<HopSuite>>,
    upstream: SocketAddr,
    patience: Duration,
) -> io::Result<Option<Greeting>> {
    driver.node_mut().set_about(about());
    let answered = async {
        let mut again = tokio::time::interval(AGAIN);
        loop {
            tokio::select! {
                _ = again.tick() => driver.node_mut().greet(upstream),
                done = driver.turn() => done?,
            }
            if let Some(greeting) = driver.node().upstreams().find_map(|hop| hop.greeting) {
                return Ok(greeting);
            }
        }
    };
    tokio::time::timeout(patience, answered).await.ok().transpose()
}
