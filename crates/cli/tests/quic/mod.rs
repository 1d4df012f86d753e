//! A server and a client of QUIC on the hosts of a world: quinn with its own settings, cubic among them, and windows that
//! hold twice what the longest path here holds.

use crate::gateways::{CLIENT, SERVER, World};
use crate::support::content;
use quinn::rustls::RootCertStore;
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PORT: u16 = 4444;
/// The name in the server's certificate.
const NAME: &str = "server.test";
/// 20 Mbit/s for 540 ms are 1.35 MB.
const WINDOW: u32 = 2_700_000;

/// The time that the client needs for `len` bytes from the server at `server`, its connection included.
pub(crate) fn download(world: &World, server: &str, len: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (serving, client) = {
        let _inside = runtime.enter();
        endpoints(world, server)
    };
    let listener = serving.clone();
    let task = runtime.spawn(async move {
        let connection = listener.accept().await.expect("open").await.expect("a connection");
        let (mut sending, mut request) = connection.accept_bi().await.expect("a stream");
        request.read_to_end(16).await.expect("a request");
        sending.write_all(&content(len, 8)).await.expect("to write");
        sending.finish().expect("the stream is open");
        connection.closed().await;
    });
    let ip = server.parse().expect("an address");
    let took = runtime.block_on(async move {
        let start = Instant::now();
        let dial = client.connect(SocketAddr::new(ip, PORT), NAME).expect("a configuration");
        let connection = dial.await.expect("a connection");
        let (mut request, mut receiving) = connection.open_bi().await.expect("a stream");
        request.write_all(b"all of it").await.expect("to write");
        request.finish().expect("the stream is open");
        let bytes = receiving.read_to_end(len + 1).await.expect("the content");
        let took = start.elapsed();
        assert!(bytes == content(len, 8), "{} bytes of {len}", bytes.len());
        connection.close(VarInt::from_u32(0), b"done");
        client.wait_idle().await;
        took
    });
    serving.close(VarInt::from_u32(0), b"done");
    runtime.block_on(task).expect("the server ends");
    took
}

fn endpoints(world: &World, server: &str) -> (Endpoint, Endpoint) {
    let certificate = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    let chain = vec![certificate.cert.der().clone()];
    let key = certificate.signing_key.serialize_der().try_into().expect("a key");
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(WINDOW.into()).send_window(WINDOW.into());
    let transport = Arc::new(transport);

    let mut serves = ServerConfig::with_single_cert(chain.clone(), key).expect("a configuration");
    serves.transport_config(transport.clone());
    let mut roots = RootCertStore::empty();
    roots.add(chain[0].clone()).expect("a certificate");
    let mut asks = ClientConfig::with_root_certificates(Arc::new(roots)).expect("a configuration");
    asks.transport_config(transport);

    let any = if server.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let at_server = any.replace(":0", &format!(":{PORT}"));
    let endpoint = |host, address: &str, config| {
        let socket = world.udp(host, address);
        Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(TokioRuntime)).expect("an endpoint")
    };
    let serving = endpoint(SERVER, &at_server, Some(serves));
    let mut client = endpoint(CLIENT, any, None);
    client.set_default_client_config(asks);
    (serving, client)
}
