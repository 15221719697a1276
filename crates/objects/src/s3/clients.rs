//! HTTP clients for the crate.
//!
//! **No redirect is followed**: a request is signed for one address, and one that follows takes the session's
//! token, and the bytes, to another host.
//!
//! **Addresses of this machine and its link are reached directly**, others by the proxies of the environment.
//! So requests to a store here, which may go without encryption, leave the machine by no proxy. Virtual
//! machines and containers get their credentials at addresses of the link.
//!
//! **Answers to lists, and answers without success, are read to a limit here**, before the crate reads them
//! whole; and an answer to a list is checked ([`super::pages`]).

use super::CONNECT_MAX;
use super::answers::{self, EXPIRED, Judged, code_in};
use super::credentials::Expired;
use super::pages::{self, PAGE_BYTES_MAX};
use crate::store::Refusal;
use bytes::{Bytes, BytesMut};
use core::net::IpAddr;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions, Error};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};
use std::sync::atomic::Ordering;

const AGENT: &str = concat!("shoal/", env!("CARGO_PKG_VERSION"));
/// Bytes of an answer without success, at most.
const ERROR_BYTES_MAX: usize = 1 << 20;

/// See the module. With the mark for credentials that the store calls expired, where new ones can be got.
#[derive(Debug)]
pub(super) struct Clients(pub(super) Option<Expired>);

#[derive(Debug)]
struct Ways {
    direct: Client,
    usual: Client,
    expired: Option<Expired>,
}

impl HttpConnector for Clients {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient, Error> {
        let allowed = options.get_config_value(&ClientConfigKey::AllowHttp);
        let builder = || {
            let builder = Client::builder().user_agent(AGENT).http1_only().redirect(Policy::none());
            let is_plain = allowed.as_deref() == Some("true");
            builder.connect_timeout(CONNECT_MAX).https_only(!is_plain)
        };
        let build = |builder: ClientBuilder| {
            builder.build().map_err(|error| Error::Generic { store: "S3", source: Box::new(error) })
        };
        let (direct, usual) = (build(builder().no_proxy())?, build(builder())?);
        Ok(HttpClient::new(Ways { direct, usual, expired: self.0.clone() }))
    }
}

impl HttpService for Ways {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = if request.uri().host().is_some_and(is_near) { &self.direct } else { &self.usual };
        let query = request.uri().query().unwrap_or("");
        let is_list = query.split('&').any(|part| part == "list-type=2");
        Box::pin(async move {
            let (parts, body) = client.call(request).await?.into_parts();
            let body = match parts.status.is_success() {
                true if is_list => self.page(body).await?,
                true => body,
                false => self.failure(body).await?,
            };
            Ok(HttpResponse::from_parts(parts, body))
        })
    }
}

impl Ways {
    /// The body of an answer without success.
    async fn failure(&self, body: HttpResponseBody) -> Result<HttpResponseBody, HttpError> {
        let body = all(body, ERROR_BYTES_MAX).await?;
        let code = code_in(&String::from_utf8_lossy(&body));
        match code.and_then(|code| self.expiry(&code)) {
            Some(refusal) => Err(judged(refusal)),
            None => Ok(body.into()),
        }
    }

    /// The body of an answer to a list.
    async fn page(&self, body: HttpResponseBody) -> Result<HttpResponseBody, HttpError> {
        let body = all(body, PAGE_BYTES_MAX).await?;
        if let Some(code) = pages::error(&body) {
            let refusal = self.expiry(&code).unwrap_or_else(|| answers::with_code(&code));
            return Err(judged(refusal));
        }
        Ok(pages::checked(&body).map_err(|words| judged(Refusal::Other(words)))?.into())
    }

    /// Mark the credentials if the store calls them expired by this code and new ones can be got; the refusal
    /// then.
    fn expiry(&self, code: &str) -> Option<Refusal> {
        let expired = self.expired.as_ref().filter(|_| EXPIRED.contains(&code))?;
        expired.store(true, Ordering::Relaxed);
        Some(Refusal::Passing(format!("the store calls the credentials expired ({code})")))
    }
}

/// All of a body with so many bytes at most.
async fn all(body: HttpResponseBody, most: usize) -> Result<Bytes, HttpError> {
    let (mut pieces, mut all) = (body.bytes_stream(), BytesMut::new());
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        if all.len() + piece.len() > most {
            let words = format!("an answer of the store has over {most} bytes: use another store");
            return Err(judged(Refusal::Other(words)));
        }
        all.extend_from_slice(&piece);
    }
    Ok(all.freeze())
}

fn judged(refusal: Refusal) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, Judged(refusal))
}

/// Whether it is an address, as the crate and the client for HTTP each read it, to which a path can be added.
pub(super) fn is_base(address: &str) -> bool {
    is_address(address) && !address.contains('?')
}

/// Whether it is an address, as the crate and the client for HTTP each read it.
pub(super) fn is_address(address: &str) -> bool {
    let mut request = HttpRequest::new(HttpRequestBody::empty());
    let is_read = address.parse().map(|uri| *request.uri_mut() = uri).is_ok();
    let scheme = request.uri().scheme_str().map(str::to_ascii_lowercase);
    let url = Url::parse(address).ok().filter(|url| url.has_host());
    is_read
        && matches!(scheme.as_deref(), Some("http" | "https"))
        && url.is_some_and(|url| url.fragment().is_none())
        && address.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The user (before `@`; may be empty), and the host of an address.
pub(super) fn authority(address: &str) -> (&str, &str) {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let end = match host.starts_with('[') {
        true => host.find(']').map(|at| at + 1),
        false => host.find(':'),
    };
    (user, &host[..end.unwrap_or(host.len())])
}

fn ip(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether a host is this machine.
pub(super) fn is_here(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || ip(host).is_some_and(|ip| ip.is_loopback())
}

/// Whether a host is this machine, or has an address of its link.
pub(super) fn is_near(host: &str) -> bool {
    let is_on_link = |ip| match ip {
        IpAddr::V4(four) => four.is_link_local(),
        // The second: those at which a machine or a container of Amazon gets its credentials.
        IpAddr::V6(six) => six.is_unicast_link_local() || six.segments()[..2] == [0xfd00, 0x0ec2],
    };
    is_here(host) || ip(host).is_some_and(is_on_link)
}
