// SPDX-License-Identifier: Apache-2.0
//! Database URLs with several hosts, and the order in which these are tried.

use std::time::{Duration, Instant};

use super::{CONNECT_TIMEOUT, SEARCH_TIMEOUT};
use crate::error::{ErrorSource, StoreOpenError};

/// One of the servers of a URL, with the options of its client.
pub(crate) struct ServerCandidate<O> {
    /// `host:port`, for messages and comparison.
    pub(crate) address: String,
    pub(crate) options: O,
}

/// Splits a URL with several hosts, such as `mysql://user@a:3306,b:3306/ferrite`, into one per host.
pub(crate) fn urls_with_one_host(url: &str) -> Result<Vec<String>, StoreOpenError> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(vec![url.to_owned()]) };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if path.split('?').next().is_some_and(|path| path.contains('@')) {
        return Err(StoreOpenError::Address {
            why: "there is an @ after the first slash; write / and @ in the user and the password \
                  as %2F and %40"
                .to_owned(),
        });
    }
    let (user, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
    Ok(hosts.split(',').map(|host| format!("{scheme}://{user}{host}{path}")).collect())
}

/// How long a server may take to connect if there are others. A session, which lasts six seconds, survives that
/// the first one does not respond.
const OTHERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Connects to the first server that accepts writes. `connect` gets the time that remains for a
/// server. The error contains those of all servers.
pub(crate) fn connect_to_first<O, T>(
    database: &str,
    candidates: &[ServerCandidate<O>],
    mut connect: impl FnMut(&ServerCandidate<O>, Duration) -> Result<T, ErrorSource>,
) -> Result<T, StoreOpenError> {
    let deadline = Instant::now() + SEARCH_TIMEOUT;
    let mut failures: Vec<(&str, ErrorSource)> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        // Each server gets its share, so that the last one is tried too.
        let share = left / u32::try_from(candidates.len() - index).unwrap_or(u32::MAX);
        let limit = if candidates.len() > 1 { OTHERS_TIMEOUT } else { CONNECT_TIMEOUT };
        match connect(candidate, share.min(limit)) {
            Ok(session) => return Ok(session),
            Err(error) => failures.push((&candidate.address, error)),
        }
    }
    let addresses: Vec<&str> = failures.iter().map(|(address, _)| *address).collect();
    let what = format!("{database} on {}", addresses.join(", "));
    let source = match failures.as_slice() {
        [(_, error)] => error.clone(),
        several => {
            let texts: Vec<String> =
                several.iter().map(|(address, error)| format!("{address}: {error}")).collect();
            text_source(texts.join("; "))
        }
    };
    Err(StoreOpenError::Connect { what, source })
}

/// An error that consists of a text.
pub(crate) fn text_source(
    text: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> ErrorSource {
    ErrorSource::from(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_split() {
        let split = |url: &str| urls_with_one_host(url).unwrap();
        assert_eq!(split("mysql://u:p@h/d"), ["mysql://u:p@h/d"]);
        let expected = [
            "mysql://u:p%40x@a:1/d?x=1,2",
            "mysql://u:p%40x@[::1]:2/d?x=1,2",
            "mysql://u:p%40x@c/d?x=1,2",
        ];
        assert_eq!(split("mysql://u:p%40x@a:1,[::1]:2,c/d?x=1,2"), expected);
        assert_eq!(split("postgresql:///d?host=/run&user=a@b").len(), 1);
    }

    #[test]
    fn unescaped_passwords_are_rejected() {
        for url in ["mysql://u:p/x@h/d", "postgresql://u:a/b@h:1,i:2/d?x=1"] {
            let error = urls_with_one_host(url).unwrap_err();
            assert!(error.to_string().contains("%2F"), "{error}");
        }
    }

    #[test]
    fn every_server_is_tried_and_reported() {
        let candidates: Vec<_> = ["a:1", "b:2", "c:3"]
            .map(|address| ServerCandidate { address: address.to_owned(), options: () })
            .into();
        let found = connect_to_first("ferrite", &candidates, |candidate, time| {
            assert!(time <= CONNECT_TIMEOUT && !time.is_zero());
            if candidate.address == "b:2" { Ok(2) } else { Err(text_source("refused")) }
        });
        assert_eq!(found.unwrap(), 2);
        let error = connect_to_first::<_, ()>("ferrite", &candidates, |candidate, _| {
            Err(text_source(format!("no {}", candidate.address)))
        })
        .unwrap_err();
        let StoreOpenError::Connect { what, source } = error else { panic!("{error}") };
        assert_eq!(what, "ferrite on a:1, b:2, c:3");
        assert_eq!(source.to_string(), "a:1: no a:1; b:2: no b:2; c:3: no c:3");
    }
}
