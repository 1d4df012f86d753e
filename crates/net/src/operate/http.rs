//! The web server of a node, for browsers and for Prometheus. It only reads, and takes nothing but GET.

use super::desk::Bell;
use super::history::History;
use super::metrics;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

/// The page: one file, without a build step and without foreign hosts.
const PAGE: &str = include_str!("page.html");
/// A browser may run and show only parts of the page itself, and may ask this node.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
/// A client sends its request within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections at once, at most.
const MOST_CONNECTIONS: usize = 64;

/// The pages behind an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Site {
    /// `/metrics`.
    Metrics,
    /// `/`, `/status.json` and `/history.json`.
    Page,
}

/// Answers every client that connects.
pub(super) async fn serve(listener: TcpListener, site: Site, bell: Bell, history: Rc<History>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let seats = Rc::new(tokio::sync::Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, which others may give back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (bell, history, seats) = (bell.clone(), history.clone(), seats.clone());
        tokio::task::spawn_local(async move {
            let Ok(_seat) = seats.try_acquire() else { return };
            let service = service_fn(|request| answer(request, site, &bell, &history));
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            // The error of a client that breaks off concerns that client alone.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    site: Site,
    bell: &Bell,
    history: &History,
) -> Result<Response<Full<Bytes>>, Infallible> {
    const HTML: &str = "text/html; charset=utf-8";
    const TEXT: &str = "text/plain; charset=utf-8";
    const JSON: &str = "application/json";
    if request.method() != Method::GET {
        return Ok(respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET is answered here\n"));
    }
    let gone = || respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the node is ending\n");
    Ok(match (site, request.uri().path()) {
        (Site::Metrics, "/metrics") => match bell.whole_status().await {
            Some(status) => respond(StatusCode::OK, metrics::CONTENT_TYPE, metrics::encode(status)),
            None => gone(),
        },
        (Site::Metrics, _) => respond(StatusCode::NOT_FOUND, TEXT, "metrics are at /metrics\n"),
        (Site::Page, "/") => respond(StatusCode::OK, HTML, PAGE),
        (Site::Page, "/status.json") => match bell.status().await {
            Some(status) => respond(StatusCode::OK, JSON, serde_json::json!(status).to_string()),
            None => gone(),
        },
        (Site::Page, "/history.json") => {
            respond(StatusCode::OK, JSON, serde_json::json!(history.samples()).to_string())
        }
        (Site::Page, _) => respond(StatusCode::NOT_FOUND, TEXT, "the page is at /\n"),
    })
}

fn respond(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, hyper::header::HeaderValue::from_static(POLICY));
    response
}
