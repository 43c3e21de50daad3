//! Egress rules: a capsule connects only to hosts that its `agent.yaml` lists and its node's operator permits, and only
//! to public addresses.
//!
//! Both the name and the address are checked, and the connection goes to exactly the checked address.

mod address;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::address::{AddressClass, class_of};
use crate::text::quoted;

/// The default port of a rule: HTTPS.
pub const PORT_DEFAULT: u16 = 443;

/// Maximum rules of one capsule: for more names, use a domain with `*.`.
pub const RULES_MAX: usize = 64;

/// Longest name of a host, in bytes. Source: RFC 1035, 2.3.4, without the dot at the end.
const HOST_LENGTH_MAX: usize = 253;

/// Longest part of a name, in bytes. Source: RFC 1035, 2.3.4.
const LABEL_LENGTH_MAX: usize = 63;

/// An external host, as a capsule names it: by name in lower case, or by address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    Name(String),
    Address(IpAddr),
}

/// A destination: one host, or all hosts below a name, and one port. As text `host:443`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Rule {
    hosts: Hosts,
    port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hosts {
    One(Host),
    /// All hosts below this name, at any depth, without the name itself.
    Below(String),
}

/// A [`Rule`], or every public host: what an operator permits, and what a capsule may request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Permission {
    /// `*` for every port, or `*:443`.
    Everywhere {
        port: Option<u16>,
    },
    Rule(Rule),
}

/// The mistake in a rule, and the expected form.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct MalformedRule(String);

/// Why a capsule may not connect to a host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    #[error(
        "{host}:{port} is not in the list \"egress\" of the capsule's agent.yaml, which lists {listed}"
    )]
    NotListed {
        host: Host,
        port: u16,
        listed: String,
    },
    #[error("the operator of this node does not permit {host}:{port} (--egress)")]
    NotPermitted { host: Host, port: u16 },
    #[error("{host} has no public address: {address} is {class}")]
    NotPublic {
        host: Host,
        address: IpAddr,
        class: AddressClass,
    },
}

impl Host {
    /// Parses a name in its ASCII form, or an address; an IPv6 address in brackets or bare.
    pub fn parse(text: &str) -> Result<Self, MalformedRule> {
        if let Some(address) = address(text) {
            return Ok(Self::Address(address));
        }
        name(text).map(Self::Name)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => formatter.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(formatter, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

impl Rule {
    /// Whether the rule matches `host` at `port`.
    pub fn is_for(&self, host: &Host, port: u16) -> bool {
        let is_host = match (&self.hosts, host) {
            (Hosts::One(one), host) => one == host,
            (Hosts::Below(domain), Host::Name(name)) => name
                .strip_suffix(domain.as_str())
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            (Hosts::Below(_), Host::Address(_)) => false,
        };
        is_host && self.port == port
    }
}

impl FromStr for Rule {
    type Err = MalformedRule;

    /// `host`, `host:port`, `*.host`, `*.host:port`; a host is a name, or a public address.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rule = Self::read(text)?;
        let name = match &rule.hosts {
            Hosts::One(Host::Address(address)) => {
                let class = class_of(*address);
                if class == AddressClass::Public {
                    return Ok(rule);
                }
                return Err(MalformedRule(format!(
                    "{address} is {class}; expected a public host: capsules can reach only public hosts"
                )));
            }
            Hosts::One(Host::Name(name)) | Hosts::Below(name) => name,
        };
        // Source: RFC 6761, 6.3.
        if name == "localhost" || name.ends_with(".localhost") {
            return Err(MalformedRule(format!(
                "{} is the container itself, or its host; expected an external host",
                quoted(text)
            )));
        }
        Ok(rule)
    }
}

impl Rule {
    /// Checks only the form: stored rules stay readable, even if their host is no longer allowed.
    fn read(text: &str) -> Result<Self, MalformedRule> {
        let (host, port) = split(text)?;
        let port = port.unwrap_or(PORT_DEFAULT);
        if host == "*" {
            let text = "\"*\" permits every host; expected the hosts that the capsule needs, such as \
                        api.example.com or *.example.com";
            return Err(MalformedRule(text.to_owned()));
        }
        if let Some(domain) = host.strip_prefix("*.") {
            let hosts = Hosts::Below(name(domain)?);
            return Ok(Self { hosts, port });
        }
        let hosts = Hosts::One(Host::parse(host)?);
        Ok(Self { hosts, port })
    }
}

impl TryFrom<String> for Rule {
    type Error = MalformedRule;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::read(&text)
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.to_string()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = self.port;
        match &self.hosts {
            Hosts::One(host) => write!(formatter, "{host}:{port}"),
            Hosts::Below(domain) => write!(formatter, "*.{domain}:{port}"),
        }
    }
}

impl FromStr for Permission {
    type Err = MalformedRule;

    /// A [`Rule`], or `*` for every public host, `*:port` for one port.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match split(text)? {
            ("*", port) => Ok(Self::Everywhere { port }),
            _ => text.parse().map(Self::Rule),
        }
    }
}

impl TryFrom<String> for Permission {
    type Error = MalformedRule;

    /// Checks only the form, like [`Rule`].
    fn try_from(text: String) -> Result<Self, Self::Error> {
        match split(&text)? {
            ("*", port) => Ok(Self::Everywhere { port }),
            _ => Rule::read(&text).map(Self::Rule),
        }
    }
}

impl From<Permission> for String {
    fn from(permission: Permission) -> Self {
        permission.to_string()
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everywhere { port: None } => formatter.write_str("*"),
            Self::Everywhere { port: Some(port) } => write!(formatter, "*:{port}"),
            Self::Rule(rule) => rule.fmt(formatter),
        }
    }
}

impl Permission {
    fn is_for(&self, host: &Host, port: u16) -> bool {
        match self {
            Self::Everywhere { port: only } => only.is_none_or(|only| only == port),
            Self::Rule(rule) => rule.is_for(host, port),
        }
    }
}

/// Checks `host` by its name: the capsule must list it, and the node's operator must permit it.
pub fn check(
    listed: &[Permission],
    permitted: &[Permission],
    host: &Host,
    port: u16,
) -> Result<(), Refusal> {
    let host = host.clone();
    if !listed.iter().any(|rule| rule.is_for(&host, port)) {
        let listed: Vec<String> = listed.iter().map(Permission::to_string).collect();
        let listed = match listed.as_slice() {
            [] => "nothing".to_owned(),
            listed => listed.join(", "),
        };
        return Err(Refusal::NotListed { host, port, listed });
    }
    if !permitted
        .iter()
        .any(|permission| permission.is_for(&host, port))
    {
        return Err(Refusal::NotPermitted { host, port });
    }
    Ok(())
}

/// The first public address of `host`; `None` if there are no addresses.
///
/// # Errors
/// [`Refusal::NotPublic`] with the first address, if none is public.
pub fn choose(host: &Host, addresses: &[IpAddr]) -> Result<Option<IpAddr>, Refusal> {
    let is_public = |address: &&IpAddr| class_of(**address) == AddressClass::Public;
    if let Some(&address) = addresses.iter().find(is_public) {
        return Ok(Some(address));
    }
    match addresses.first() {
        None => Ok(None),
        Some(&address) => Err(Refusal::NotPublic {
            host: host.clone(),
            address,
            class: class_of(address),
        }),
    }
}

/// Splits `host:port`; an IPv6 address needs brackets.
fn split(text: &str) -> Result<(&str, Option<u16>), MalformedRule> {
    if text.parse::<Ipv6Addr>().is_ok() {
        let text = format!("an IPv6 address needs brackets; expected [{text}]");
        return Err(MalformedRule(text));
    }
    let host_end = match text.find(']') {
        Some(end) => end + 1,
        None => text.find(':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(host_end);
    if rest.is_empty() {
        return Ok((host, None));
    }
    let port = rest.strip_prefix(':').unwrap_or(rest);
    let is_number = rest.len() > 1 && rest[1..].bytes().all(|byte| byte.is_ascii_digit());
    match port.parse() {
        Ok(number) if number > 0 && is_number && rest.starts_with(':') => Ok((host, Some(number))),
        _ => Err(MalformedRule(format!(
            "invalid port {}; expected host or host:port with a number from 1 to 65535",
            quoted(port)
        ))),
    }
}

fn address(text: &str) -> Option<IpAddr> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse::<IpAddr>().ok(),
    }
}

/// The name of a host in lower case, without a dot at its end.
///
/// Rejects texts that a system might read as an unusual form of an address (`127.1`, `0x7f.1`, `2130706433`). Source:
/// the last part of a name is never a number, RFC 3696, 2.
fn name(text: &str) -> Result<String, MalformedRule> {
    let lower = text.to_ascii_lowercase();
    let name = lower.strip_suffix('.').unwrap_or(&lower);
    let is_part = |part: &str| {
        (1..=LABEL_LENGTH_MAX).contains(&part.len())
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_name = name.len() <= HOST_LENGTH_MAX
        && name.split('.').all(is_part)
        && last.starts_with(|first: char| first.is_ascii_alphabetic());
    if !is_name {
        return Err(MalformedRule(format!(
            "invalid host name {}; expected a name such as api.example.com, in ASCII",
            quoted(text)
        )));
    }
    Ok(name.to_owned())
}

/// The IPv4 address that an IPv6 address contains, if connections go to that address.
const fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        // IPv4-mapped: RFC 4291, 2.5.5.2. NAT64: RFC 6052, 2.1. 6to4: RFC 3056, 2.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => {
            let ([first, second], [third, fourth]) = (high.to_be_bytes(), low.to_be_bytes());
            Some(Ipv4Addr::new(first, second, third, fourth))
        }
        _ => None,
    }
}
