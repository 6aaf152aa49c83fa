// SPDX-License-Identifier: Apache-2.0
//! The ports the service needs, looked at before anything is made: whoever starts it where another
//! program listens is told so, and finds no half-made data afterwards.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

use anyhow::bail;

use crate::boot::http_addresses;
use crate::config::Config;

/// What a port is for, and how to choose another.
#[derive(Clone, Copy)]
pub(crate) enum Port {
    /// The API and the page.
    Api,
    /// What machines fetch when they boot.
    Files,
}

/// Whether all ports can be had. They are all taken at once, so that two of our own on the same
/// address are found too, and given back.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    let mut wanted = vec![(Port::Api, config.api.listen)];
    if config.boot.enabled {
        wanted.extend(http_addresses(config).into_iter().map(|address| (Port::Files, address)));
    }
    let mut taken: Vec<(Port, TcpListener)> = Vec::new();
    for (port, address) in wanted {
        let is_ours = taken.iter().any(|(_, listener)| {
            listener.local_addr().is_ok_and(|ours| ours == address && address.port() != 0)
        });
        if is_ours {
            bail!("{}", port.doubled(address));
        }
        match TcpListener::bind(address) {
            Ok(listener) => taken.push((port, listener)),
            Err(error) => bail!("{}", port.refused(address, &error)),
        }
    }
    Ok(())
}

impl Port {
    /// Why nobody can be served there, and what to do.
    pub(crate) fn refused(self, address: SocketAddr, error: &io::Error) -> String {
        let (purpose, option) = self.words();
        let (ip, port) = (address.ip(), address.port());
        let kind = error.kind();
        let why = if kind == ErrorKind::AddrInUse {
            format!(
                "another program listens on port {port} (`ss -ltnp 'sport = :{port}'` shows which); \
                 stop it, or choose another port with {option}"
            )
        } else if kind == ErrorKind::PermissionDenied {
            format!(
                "this user may not listen on port {port}; choose one above 1023 with {option}, or give \
                 the program CAP_NET_BIND_SERVICE"
            )
        } else if kind == ErrorKind::AddrNotAvailable {
            format!(
                "this machine has no address {ip}; choose one that it has with {option} (`ip addr` \
                 shows them)"
            )
        } else {
            format!("{error}; choose another address with {option}")
        };
        format!("cannot listen on {address} for {purpose}: {why}")
    }

    fn doubled(self, address: SocketAddr) -> String {
        let (purpose, option) = self.words();
        format!(
            "cannot listen on {address} for {purpose} as well: it is wanted twice; choose another \
             port with {option}"
        )
    }

    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Api => ("the API and the page", "--listen (api.listen)"),
            Self::Files => ("what machines boot", "--boot-listen (boot.listen)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(api: SocketAddr, files: &[SocketAddr]) -> Config {
        let mut config = Config::default();
        config.api.listen = api;
        config.boot.listen = files.to_vec();
        config
    }

    #[test]
    fn which_port_is_taken_and_what_to_do_is_said() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let other = TcpListener::bind(any).unwrap();
        let taken = other.local_addr().unwrap();
        let told = |api, files: &[SocketAddr]| check(&config(api, files)).unwrap_err().to_string();
        let port = taken.port();
        let listens = format!("another program listens on port {port} ");
        for (said, purpose, option) in [
            (told(taken, &[any]), "for the API and the page: ", "with --listen (api.listen)"),
            (
                told(any, &[any, taken]),
                "for what machines boot: ",
                "with --boot-listen (boot.listen)",
            ),
        ] {
            for part in [&taken.to_string(), purpose, &listens, option] {
                assert!(said.contains(part), "{said} has no {part}");
            }
        }
        drop(other);
        let said = told(taken, &[taken]);
        assert!(said.contains("it is wanted twice"), "{said}");
        let said = told("192.0.2.1:0".parse().unwrap(), &[any]);
        assert!(said.contains("this machine has no address 192.0.2.1"), "{said}");
        check(&config(taken, &[any, any])).unwrap();
        // They were given back.
        TcpListener::bind(taken).unwrap();
        // Without boot services nobody needs their port.
        let other = TcpListener::bind(any).unwrap();
        let mut without = config(any, &[other.local_addr().unwrap()]);
        without.boot.enabled = false;
        check(&without).unwrap();
    }
}
