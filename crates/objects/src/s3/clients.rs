//! HTTP clients for the crate.
//!
//! **No redirect is followed**: a request is signed for one address, and one that follows takes the session's
//! token, and the bytes, to another host.
//!
//! **Addresses of this machine and its link are reached directly**, others by the proxies of the environment.
//! So requests to a store here, which may go without encryption, leave the machine by no proxy. Virtual
//! machines and containers get their credentials at addresses of the link.

use super::CONNECT_MAX;
use core::net::IpAddr;
use futures_util::future::BoxFuture;
use object_store::client::{HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService};
use object_store::{ClientConfigKey, ClientOptions, Error};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder};

const AGENT: &str = concat!("shoal/", env!("CARGO_PKG_VERSION"));

/// See the module.
#[derive(Debug)]
pub(super) struct Clients;

#[derive(Debug)]
struct Ways {
    direct: Client,
    usual: Client,
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
        Ok(HttpClient::new(Ways { direct: build(builder().no_proxy())?, usual: build(builder())? }))
    }
}

impl HttpService for Ways {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> BoxFuture<'b, Result<HttpResponse, HttpError>>
    where
        'a: 'b,
        Self: 'b,
    {
        let client = if request.uri().host().is_some_and(is_near) { &self.direct } else { &self.usual };
        client.call(request)
    }
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
