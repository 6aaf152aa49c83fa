// SPDX-License-Identifier: Apache-2.0
//! Multicast DNS (RFC 6762): tells whoever asks on a network where the API is.
//!
//! An agent that was told no address, only `ipa-api-url=mdns`, asks for the service
//! `baremetal._openstack._tcp.local`, as it would find Ironic's. Nobody proves anything here: whoever
//! answers first is believed, so it is spoken only on interfaces that were named for it.
//!
//! Records are not claimed as ours alone: several servers may offer the same service, and an agent
//! takes any of them.

mod packet;
mod task;

use std::net::{IpAddr, SocketAddr};

use packet::{Kind, Question, Writer};
pub use task::{ListenError, Listener};

/// All who speak multicast DNS listen here.
const PORT: u16 = 5353;
const SERVICE: &str = "baremetal._openstack._tcp.local";
const SERVICES: &str = "_openstack._tcp.local";
/// Where browsers ask which kinds of services there are.
const KINDS: &str = "_services._dns-sd._udp.local";
/// Seconds for which an answer holds: the API may move.
const HOLDS: u32 = 120;
/// The same for those who are no multicast DNS speakers themselves (RFC 6762, 6.7).
const HOLDS_FOR_STRANGERS: u32 = 10;

/// The service that is offered: the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    host: String,
    port: u16,
    addresses: Vec<IpAddr>,
    texts: Vec<String>,
}

/// A URL cannot be offered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{url} cannot be offered by multicast DNS: {why}")]
pub struct OfferError {
    url: String,
    why: &'static str,
}

/// What to send, and to whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The message.
    pub message: Vec<u8>,
    /// Who asked, if the answer is for them alone; otherwise it is for all.
    pub only_to: Option<SocketAddr>,
}

/// The parts of an API's URL that are offered separately.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its host: a name or an address without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    protocol: &'static str,
    path: String,
}

impl Place {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// If it is none of an API.
    pub fn of_url(url: &str) -> Result<Self, OfferError> {
        let wrong = |why| OfferError { url: url.to_owned(), why };
        let (protocol, usual, rest) = if let Some(rest) = url.strip_prefix("http://") {
            ("http", 80, rest)
        } else if let Some(rest) = url.strip_prefix("https://") {
            ("https", 443, rest)
        } else {
            return Err(wrong("it is neither http nor https"));
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, format!("/{}", path.trim_end_matches('/'))),
            None => (rest, String::new()),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| wrong("its port is none"))?)
            }
            Some(_) | None => (authority, usual),
        };
        let host = host.trim_matches(['[', ']']).trim_end_matches('.');
        if host.is_empty() || host.contains('@') || path.len() > 200 {
            return Err(wrong("only a host, a port and a short path can be"));
        }
        let path = if path == "/" { String::new() } else { path };
        Ok(Self { host: host.to_owned(), port, protocol, path })
    }
}

impl Offer {
    /// Offers the API at a place whose host has these addresses. `own_name` is this machine's, for
    /// APIs that are known by an address only.
    ///
    /// # Errors
    /// If nobody could be told how to get there.
    pub fn new(place: Place, addresses: Vec<IpAddr>, own_name: &str) -> Result<Self, OfferError> {
        let wrong = |why| OfferError { url: place.host.clone(), why };
        if addresses.is_empty() {
            return Err(wrong("it has no address"));
        }
        let host = if place.host.parse::<IpAddr>().is_ok() {
            // Not the bare name: that belongs to whatever else speaks multicast DNS on this machine.
            let label: String =
                own_name.split('.').next().unwrap_or_default().chars().take(40).collect();
            let good = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            let label: String = label.chars().filter(|&letter| good(letter)).collect();
            format!("ferrite-{label}.local").replace("-.", ".")
        } else {
            place.host.clone()
        };
        if !packet::is_name(&host) {
            return Err(wrong("its name is none"));
        }
        // What follows from the port is left out, as Ironic does.
        let mut texts = Vec::new();
        if !place.path.is_empty() {
            texts.push(format!("path={}", place.path));
        }
        if !matches!((place.protocol, place.port), ("http", 80) | ("https", 443)) {
            texts.push(format!("protocol={}", place.protocol));
        }
        Ok(Self { host, port: place.port, addresses, texts })
    }

    /// The answer to a message, if it asks for anything that is offered.
    #[must_use]
    pub fn answer(&self, message: &[u8], from: SocketAddr) -> Option<Answer> {
        let (id, questions) = packet::questions(message)?;
        let asked: Vec<&Question> =
            questions.iter().filter(|question| self.knows(question)).collect();
        if asked.is_empty() {
            return None;
        }
        // Who asks from another port is an ordinary resolver and hears only what is sent to it.
        let stranger = from.port() != PORT;
        let only_to =
            (stranger || asked.iter().all(|question| question.wants_unicast)).then_some(from);
        let holds = if stranger { HOLDS_FOR_STRANGERS } else { HOLDS };
        let mut writer = if stranger { Writer::new(id, &asked) } else { Writer::new(0, &[]) };
        for question in &asked {
            self.write(&mut writer, question, holds);
        }
        writer.more();
        self.write_details(&mut writer, holds);
        Some(Answer { message: writer.finish(), only_to })
    }

    /// What is said without being asked, when the service begins.
    #[must_use]
    pub fn announcement(&self) -> Vec<u8> {
        let mut writer = Writer::new(0, &[]);
        writer.pointer(SERVICES, SERVICE, HOLDS);
        self.write_details(&mut writer, HOLDS);
        writer.finish()
    }

    fn knows(&self, question: &Question) -> bool {
        let is = |name: &str, kinds: &[Kind]| {
            question.name.eq_ignore_ascii_case(name)
                && (question.kind == Kind::Any || kinds.contains(&question.kind))
        };
        is(SERVICE, &[Kind::Service, Kind::Text])
            || is(SERVICES, &[Kind::Pointer])
            || is(KINDS, &[Kind::Pointer])
            || is(&self.host, &[Kind::Address4, Kind::Address6])
    }

    /// The records that were asked for.
    fn write(&self, writer: &mut Writer, question: &Question, holds: u32) {
        if question.name.eq_ignore_ascii_case(SERVICES) {
            writer.pointer(SERVICES, SERVICE, holds);
        } else if question.name.eq_ignore_ascii_case(KINDS) {
            writer.pointer(KINDS, SERVICES, holds);
        } else if question.name.eq_ignore_ascii_case(SERVICE) {
            if question.kind != Kind::Text {
                writer.service(SERVICE, self.port, &self.host, holds);
            }
            if question.kind != Kind::Service {
                writer.text(SERVICE, &self.texts, holds);
            }
        } else {
            self.write_addresses(writer, holds);
        }
    }

    /// Everything, so that nobody need ask again. What was written before is not repeated.
    fn write_details(&self, writer: &mut Writer, holds: u32) {
        writer.service(SERVICE, self.port, &self.host, holds);
        writer.text(SERVICE, &self.texts, holds);
        self.write_addresses(writer, holds);
    }

    fn write_addresses(&self, writer: &mut Writer, holds: u32) {
        for address in &self.addresses {
            writer.address(&self.host, *address, holds);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SPEAKER: &str = "192.0.2.9:5353";
    const STRANGER: &str = "192.0.2.9:40000";

    fn offer(url: &str) -> Offer {
        let place = Place::of_url(url).unwrap();
        let address = place.host.parse().unwrap_or([192, 0, 2, 1].into());
        Offer::new(place, vec![address], "conductor-1.example").unwrap()
    }

    fn question(name: &str, kind: u16, class: u16) -> Vec<u8> {
        let mut message = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(kind.to_be_bytes());
        message.extend(class.to_be_bytes());
        message
    }

    #[test]
    fn urls_become_records_as_ironics_do() {
        for (url, host, port, texts) in [
            ("http://192.0.2.1:6385", "ferrite-conductor-1.local", 6385, &["protocol=http"][..]),
            ("http://192.0.2.1/", "ferrite-conductor-1.local", 80, &[]),
            ("https://api.example/baremetal/", "api.example", 443, &["path=/baremetal"]),
            ("https://[fd00::1]:6385", "ferrite-conductor-1.local", 6385, &["protocol=https"]),
        ] {
            let offer = offer(url);
            assert_eq!((offer.host.as_str(), offer.port), (host, port), "{url}");
            assert_eq!(offer.texts, texts, "{url}");
        }
        for url in ["ftp://a", "http://", "http://a:b", "http://u@a", "a:1"] {
            assert!(Place::of_url(url).is_err(), "{url}");
        }
        let place = Place::of_url("http://a..b").unwrap();
        assert!(Offer::new(place, vec![[192, 0, 2, 1].into()], "x").is_err());
    }

    #[test]
    fn only_what_is_offered_is_answered() {
        let offer = offer("http://192.0.2.1:6385");
        const IN: u16 = 1;
        const UNICAST: u16 = 0x8001;
        for (name, kind, class, from, expected) in [
            ("Baremetal._openstack._TCP.local", 33, IN, SPEAKER, Some(true)),
            (SERVICE, 16, IN, STRANGER, Some(false)),
            (SERVICE, 255, UNICAST, SPEAKER, Some(false)),
            (SERVICE, 1, IN, SPEAKER, None),
            (SERVICES, 12, IN, SPEAKER, Some(true)),
            (KINDS, 12, IN, SPEAKER, Some(true)),
            ("ferrite-conductor-1.local", 1, IN, SPEAKER, Some(true)),
            ("other._openstack._tcp.local", 33, IN, SPEAKER, None),
            (SERVICE, 33, 3, SPEAKER, None),
        ] {
            let answer = offer.answer(&question(name, kind, class), from.parse().unwrap());
            let to_all = answer.as_ref().map(|answer| answer.only_to.is_none());
            assert_eq!(to_all, expected, "{name} {kind} {class} {from}");
        }
        let mut response = question(SERVICE, 33, IN);
        response[2] = 0x84;
        assert_eq!(offer.answer(&response, SPEAKER.parse().unwrap()), None);
    }

    #[test]
    fn an_answer_has_all_that_is_needed_once() {
        let offer = offer("http://192.0.2.1:6385");
        let asked = question(SERVICE, 33, 1);
        let answer = offer.answer(&asked, STRANGER.parse().unwrap()).unwrap().message;
        assert_eq!(answer[..2], [0, 7], "an ordinary resolver knows its question by its number");
        // One question, one answer, and two more records: the text and the address.
        assert_eq!(answer[2..12], [0x84, 0, 0, 1, 0, 1, 0, 0, 0, 2]);
        assert_eq!(answer[12..asked.len()], asked[12..]);
        let answer = offer.answer(&asked, SPEAKER.parse().unwrap()).unwrap().message;
        assert_eq!(answer[..12], [0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(offer.announcement()[..12], [0, 0, 0x84, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn no_message_is_too_strange(message in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = offer("http://192.0.2.1:6385").answer(&message, SPEAKER.parse().unwrap());
        }
    }
}
