// SPDX-License-Identifier: Apache-2.0
//! Checks that all TCP ports are free before the data directory is created, so that a port conflict
//! leaves nothing behind.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};

use anyhow::bail;

use crate::boot::{http_addresses, https_addresses};
use crate::config::Config;

/// The purpose of a listening port.
#[derive(Clone, Copy)]
pub(crate) enum ListenPurpose {
    /// The API and the web UI.
    Api,
    /// Boot files for machines.
    BootFiles,
    /// Files for agents, with TLS.
    SecureFiles,
    /// Metrics.
    Metrics,
}

/// Checks that all ports can be bound. They are bound at the same time, so that two purposes with the
/// same address conflict, and released again.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    let mut required = vec![(ListenPurpose::Api, config.api.listen)];
    required.extend(config.metrics.listen.map(|address| (ListenPurpose::Metrics, address)));
    if config.boot.enabled {
        required.extend(
            http_addresses(config).into_iter().map(|address| (ListenPurpose::BootFiles, address)),
        );
        required.extend(
            https_addresses(config)
                .into_iter()
                .map(|address| (ListenPurpose::SecureFiles, address)),
        );
    }
    let mut bound: Vec<(ListenPurpose, TcpListener)> = Vec::new();
    for (port, address) in required {
        let is_bound = bound.iter().any(|(_, listener)| {
            listener.local_addr().is_ok_and(|other| other == address && address.port() != 0)
        });
        if is_bound {
            bail!("{}", port.duplicate_error(address));
        }
        match TcpListener::bind(address) {
            Ok(listener) => bound.push((port, listener)),
            Err(error) => bail!("{}", port.bind_error(address, &error)),
        }
    }
    Ok(())
}

impl ListenPurpose {
    /// The message for a port that cannot be bound, with a hint.
    pub(crate) fn bind_error(self, address: SocketAddr, error: &io::Error) -> String {
        let (purpose, option) = self.description();
        let (ip, port) = (address.ip(), address.port());
        let kind = error.kind();
        let why = if kind == ErrorKind::AddrInUse {
            format!(
                "another program listens on port {port} (`ss -ltnp 'sport = :{port}'` shows which); \
                 stop it, or choose another port with {option}"
            )
        } else if kind == ErrorKind::PermissionDenied {
            format!(
                "this user may not listen on port {port}; choose a port above 1023 with {option}, or give \
                 the program CAP_NET_BIND_SERVICE"
            )
        } else if kind == ErrorKind::AddrNotAvailable {
            format!(
                "this host has no address {ip}; choose one of its addresses with {option} (`ip addr` \
                 shows them)"
            )
        } else {
            format!("{error}; choose another address with {option}")
        };
        format!("cannot listen on {address} for {purpose}: {why}")
    }

    fn duplicate_error(self, address: SocketAddr) -> String {
        let (purpose, option) = self.description();
        format!(
            "cannot listen on {address} for {purpose}: another part of Ferrite uses the address; choose \
             another port with {option}"
        )
    }

    const fn description(self) -> (&'static str, &'static str) {
        match self {
            Self::Api => {
                ("the API and the web UI", "api.listen (--listen of ferrite serve and run)")
            }
            Self::BootFiles => {
                ("boot files", "boot.listen (--boot-listen of ferrite serve and run)")
            }
            Self::SecureFiles => ("files for agents", "boot.tls_listen"),
            Self::Metrics => ("metrics", "metrics.listen"),
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
    fn reports_port_conflicts_with_a_hint() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let other = TcpListener::bind(any).unwrap();
        let taken = other.local_addr().unwrap();
        let error = |api, files: &[SocketAddr]| check(&config(api, files)).unwrap_err().to_string();
        let port = taken.port();
        let listens = format!("another program listens on port {port} ");
        for (message, purpose, option) in [
            (
                error(taken, &[any]),
                "for the API and the web UI: ",
                "with api.listen (--listen of ferrite serve and run)",
            ),
            (
                error(any, &[any, taken]),
                "for boot files: ",
                "with boot.listen (--boot-listen of ferrite serve and run)",
            ),
        ] {
            for part in [&taken.to_string(), purpose, &listens, option] {
                assert!(message.contains(part), "{message} has no {part}");
            }
        }
        drop(other);
        let message = error(taken, &[taken]);
        assert!(message.contains("another part of Ferrite"), "{message}");
        let message = error("192.0.2.1:0".parse().unwrap(), &[any]);
        assert!(message.contains("this host has no address 192.0.2.1"), "{message}");
        check(&config(taken, &[any, any])).unwrap();
        // The ports were released.
        TcpListener::bind(taken).unwrap();
        // Without boot services their ports are not checked.
        let other = TcpListener::bind(any).unwrap();
        let mut without = config(any, &[other.local_addr().unwrap()]);
        without.boot.enabled = false;
        check(&without).unwrap();
    }
}
