//! Classes of addresses: capsules connect only to public ones.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::embedded;

/// The class of an address. Source: the IANA registries of special-purpose addresses of IPv4 and IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// In the public internet.
    Public,
    /// Unspecified: 0.0.0.0/8, ::.
    Unspecified,
    /// The host itself.
    Loopback,
    /// Of a private network: RFC 1918, RFC 4193.
    Private,
    /// Of the local link; clouds serve credentials to hosts here.
    LinkLocal,
    /// A cloud's metadata service with a public-looking address.
    Metadata,
    /// Between a provider and its customers: RFC 6598.
    Shared,
    /// Of many hosts.
    Multicast,
    /// For examples, measurements and protocols, or unassigned.
    Reserved,
}

impl fmt::Display for AddressClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Public => "public",
            Self::Unspecified => "unspecified",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "a cloud's metadata service",
            Self::Shared => "shared by a provider",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
        })
    }
}

/// The class of an address; an IPv6 address that contains an IPv4 address has the class of that.
pub fn class_of(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(address) => class_of_v4(address),
        IpAddr::V6(address) => match embedded(address) {
            Some(embedded) => class_of_v4(embedded),
            None => class_of_v6(address),
        },
    }
}

const fn class_of_v4(address: Ipv4Addr) -> AddressClass {
    match address.octets() {
        [0, ..] => AddressClass::Unspecified,
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressClass::Private,
        [169, 254, ..] => AddressClass::LinkLocal,
        // Azure's, for each of its machines. Source: Microsoft, "What is IP address 168.63.129.16?".
        [168, 63, 129, 16] => AddressClass::Metadata,
        [100, 64..=127, ..] => AddressClass::Shared,
        [224..=239, ..] => AddressClass::Multicast,
        // In this order: protocol assignments, examples (three), the former 6to4 relays, benchmarks, and unassigned
        // addresses including broadcast.
        [192, 0, 0 | 2, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [240..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Public,
    }
}

const fn class_of_v6(address: Ipv6Addr) -> AddressClass {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        // The second half is the deprecated site-local addresses.
        [0xfe80..=0xfeff, ..] => AddressClass::LinkLocal,
        [0xff00..=0xffff, ..] => AddressClass::Multicast,
        // Protocols (Teredo, ORCHID, benchmarks), and examples (two).
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressClass::Reserved,
        // All assigned addresses. Source: RFC 4291, 2.4, and IANA's registry.
        [0x2000..=0x3fff, ..] => AddressClass::Public,
        _ => AddressClass::Reserved,
    }
}
