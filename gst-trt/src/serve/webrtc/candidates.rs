// SPDX-License-Identifier: MPL-2.0
//! Where a viewer can reach this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Addresses out of this machine: of the documentation, so that nobody has them. They are not sent to.
const BEYOND: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// What a viewer is told who has connected to `local` by HTTP: what is configured, else where it is listened, else the address that
/// has worked already. One of this machine alone works from here alone, and not in all browsers: those that others see come with it.
pub fn candidates(
    configured: &[SocketAddr],
    listened: SocketAddr,
    local: IpAddr,
    route: impl Fn(IpAddr) -> Option<IpAddr>,
) -> Vec<SocketAddr> {
    let port = listened.port();
    if !configured.is_empty() {
        let with_port = |address: &SocketAddr| match address.port() {
            0 => SocketAddr::new(address.ip(), port),
            _ => *address,
        };
        return configured.iter().map(with_port).collect();
    }
    if !listened.ip().is_unspecified() {
        return vec![SocketAddr::new(listened.ip().to_canonical(), port)];
    }
    let local = local.to_canonical();
    let mut found = Vec::new();
    if local.is_loopback() || listened.is_ipv4() && local.is_ipv6() {
        found.extend(BEYOND.into_iter().filter_map(route));
    }
    if !found.contains(&local) {
        found.push(local);
    }
    found.retain(|address| listened.is_ipv6() || address.is_ipv4());
    found.into_iter().map(|address| SocketAddr::new(address, port)).collect()
}

/// The own address that packets to another one have.
pub fn route(to: IpAddr) -> Option<IpAddr> {
    let any = if to.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Of UDP, this asks the system's table alone.
    socket.connect((to, 9)).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_is_told_where_it_can_reach_this_machine() {
        let ask = |configured: &[&str], listened: &str, local: &str| {
            let configured: Vec<SocketAddr> = configured.iter().map(|address| address.parse().unwrap()).collect();
            let route = |to: IpAddr| Some(if to.is_ipv4() { "10.0.0.5" } else { "fd00::5" }.parse().unwrap());
            let found = candidates(&configured, listened.parse().unwrap(), local.parse().unwrap(), route);
            found.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ask(&[], "0.0.0.0:8189", "192.168.1.2"), "192.168.1.2:8189");
        assert_eq!(ask(&[], "[::]:8189", "::ffff:192.168.1.2"), "192.168.1.2:8189");
        assert_eq!(ask(&[], "[::]:8189", "fd00::7"), "[fd00::7]:8189");
        assert_eq!(ask(&[], "0.0.0.0:8189", "127.0.0.1"), "10.0.0.5:8189 127.0.0.1:8189");
        assert_eq!(ask(&[], "[::]:8189", "::1"), "10.0.0.5:8189 [fd00::5]:8189 [::1]:8189");
        assert_eq!(ask(&[], "0.0.0.0:8189", "fd00::7"), "10.0.0.5:8189");
        assert_eq!(ask(&[], "127.0.0.1:8189", "192.168.1.2"), "127.0.0.1:8189");
        let both = ["203.0.113.7:0", "198.51.100.1:9000"];
        assert_eq!(ask(&both, "0.0.0.0:8189", "192.168.1.2"), "203.0.113.7:8189 198.51.100.1:9000");
        // Nobody else can be reached from here.
        let alone = candidates(&[], "0.0.0.0:1".parse().unwrap(), Ipv4Addr::LOCALHOST.into(), |_| None);
        assert_eq!(alone, ["127.0.0.1:1".parse().unwrap()]);
    }

    #[test]
    fn the_own_address_is_found_without_a_packet() {
        assert_eq!(route(Ipv4Addr::LOCALHOST.into()), Some(Ipv4Addr::LOCALHOST.into()));
    }
}
