//! Connections past the gateway's peer.

use super::connection::{Ended, Unserved, prepare, reason_of};
use super::{GatewayConfig, Shared, room, sockets};
use starhop_proto::gateway::Opening;
use std::time::Instant;
use tokio::io::AsyncWriteExt;

/// Carries a connection past the gateway's peer: a connection of our own to the target, in the client's name.
pub(super) async fn plain(
    (config, shared): (&GatewayConfig, &Shared),
    user: Unserved,
    opening: Opening,
    began: Instant,
) -> Ended {
    let Unserved { mut socket, said } = user;
    let carried = async {
        let mut far =
            room::patiently(async || sockets::connect(config, &shared.sockets, opening).await).await?;
        prepare(&far)?;
        let ((mut from_user, mut to_user), (mut from_far, mut to_far)) = (socket.split(), far.split());
        let up = async {
            to_far.write_all(&said).await?;
            let more = tokio::io::copy(&mut from_user, &mut to_far).await?;
            to_far.shutdown().await.map(|()| more + said.len() as u64)
        };
        let down = async {
            let received = tokio::io::copy(&mut from_far, &mut to_user).await?;
            to_user.shutdown().await.map(|()| received)
        };
        let carried = tokio::try_join!(up, down)?;
        for socket in [&socket, &far] {
            socket2::SockRef::from(socket).set_linger(None)?;
        }
        Ok(carried)
    };
    match carried.await {
        Ok((sent, received)) => Ended { sent, received, first_byte: Some(began.elapsed()), reason: None },
        Err(error) => Ended { sent: 0, received: 0, first_byte: None, reason: Some(reason_of(&error)) },
    }
}
