// SPDX-License-Identifier: Apache-2.0
//! An mDNS responder (RFC 6762) that announces the API.
//!
//! An agent whose kernel command line has `ipa-api-url=mdns` queries the service
//! `baremetal._openstack._tcp.local`, as with Ironic. mDNS is not authenticated and agents use the first
//! response, so the responder only runs on interfaces that are configured for it.
//!
//! Records are shared, not unique (no cache-flush bit): several servers may announce the same service, and
//! an agent uses any of them.

mod listener;

use std::net::{IpAddr, SocketAddr};

use hickory_proto::op::{Header, Message, MessageType, OpCode, Query};
use hickory_proto::rr::rdata::{A, AAAA, PTR, SRV, TXT};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder};

pub use listener::{MdnsListenError, MdnsListener};

const PORT: u16 = 5353;
const SERVICE: &str = "baremetal._openstack._tcp.local.";
const SERVICE_TYPE: &str = "_openstack._tcp.local.";
/// The name under which DNS-SD browsers query all service types.
const SERVICE_TYPES: &str = "_services._dns-sd._udp.local.";
/// The TTL of records in seconds. Short, because the API may move.
const TTL: u32 = 120;
/// The TTL for resolvers that do not implement mDNS (RFC 6762, section 6.7).
const LEGACY_TTL: u32 = 10;
/// The number of questions of one message that are considered.
const MAX_QUESTIONS: usize = 32;

/// The announced service: the API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MdnsService {
    service: Name,
    service_type: Name,
    service_types: Name,
    host: Name,
    port: u16,
    addresses: Vec<IpAddr>,
    texts: Vec<String>,
}

/// A URL cannot be announced.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("cannot announce {url} by mDNS: {reason}")]
pub struct MdnsServiceError {
    url: String,
    reason: &'static str,
}

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MdnsResponse {
    /// The encoded message.
    pub message: Vec<u8>,
    /// The destination of a unicast response; `None` for the multicast group.
    pub unicast_to: Option<SocketAddr>,
}

/// The parts of an API URL that have separate records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiEndpoint {
    /// The host name, or the address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    protocol: &'static str,
    path: String,
}

impl ApiEndpoint {
    /// Parses a URL.
    ///
    /// # Errors
    /// If it is not the HTTP or HTTPS URL of an API.
    pub fn from_url(url: &str) -> Result<Self, MdnsServiceError> {
        let error = |reason| MdnsServiceError { url: url.to_owned(), reason };
        let (protocol, default_port, rest) = if let Some(rest) = url.strip_prefix("http://") {
            ("http", 80, rest)
        } else if let Some(rest) = url.strip_prefix("https://") {
            ("https", 443, rest)
        } else {
            return Err(error("the scheme is neither http nor https"));
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, format!("/{}", path.trim_end_matches('/'))),
            None => (rest, String::new()),
        };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| error("the port is invalid"))?)
            }
            Some(_) | None => (authority, default_port),
        };
        let host = host.trim_matches(['[', ']']).trim_end_matches('.');
        if host.is_empty() || host.contains('@') || path.len() > 200 {
            return Err(error("only a host, a port and a short path are supported"));
        }
        let path = if path == "/" { String::new() } else { path };
        Ok(Self { host: host.to_owned(), port, protocol, path })
    }
}

impl MdnsService {
    /// Returns the service at an endpoint whose host has these addresses. `own_name` is the name of this
    /// machine, for endpoints without a host name.
    ///
    /// # Errors
    /// If there is no address or the host name is invalid.
    pub fn new(
        endpoint: ApiEndpoint,
        addresses: Vec<IpAddr>,
        own_name: &str,
    ) -> Result<Self, MdnsServiceError> {
        let error = |reason| MdnsServiceError { url: endpoint.host.clone(), reason };
        if addresses.is_empty() {
            return Err(error("the host has no address"));
        }
        let host = if endpoint.host.parse::<IpAddr>().is_ok() {
            // Not the bare name, which belongs to other mDNS responders on this machine.
            let label: String =
                own_name.split('.').next().unwrap_or_default().chars().take(40).collect();
            let is_valid = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            let label: String = label.chars().filter(|&letter| is_valid(letter)).collect();
            format!("ferrite-{label}.local").replace("-.", ".")
        } else {
            endpoint.host.clone()
        };
        let host = fqdn(&host).ok_or_else(|| error("the host name is invalid"))?;
        // Like Ironic, leave out what follows from the port.
        let mut texts = Vec::new();
        if !endpoint.path.is_empty() {
            texts.push(format!("path={}", endpoint.path));
        }
        if !matches!((endpoint.protocol, endpoint.port), ("http", 80) | ("https", 443)) {
            texts.push(format!("protocol={}", endpoint.protocol));
        }
        if texts.is_empty() {
            // A TXT record has at least one string.
            texts.push(String::new());
        }
        let constant = |name| fqdn(name).expect("the constant is a valid name");
        Ok(Self {
            service: constant(SERVICE),
            service_type: constant(SERVICE_TYPE),
            service_types: constant(SERVICE_TYPES),
            host,
            port: endpoint.port,
            addresses,
            texts,
        })
    }

    /// Returns the response to a message, `None` if it contains no question about this service.
    #[must_use]
    pub fn respond(&self, message: &[u8], from: SocketAddr) -> Option<MdnsResponse> {
        let (id, mut questions) = decode_questions(message)?;
        questions.retain(|question| self.is_about(question));
        if questions.is_empty() {
            return None;
        }
        // RFC 6762, section 6.7: a query from another port is from a resolver without mDNS, which expects
        // a unicast response with its ID and question.
        let is_legacy = from.port() != PORT;
        let is_unicast =
            is_legacy || questions.iter().all(|question| question.mdns_unicast_response);
        let ttl = if is_legacy { LEGACY_TTL } else { TTL };
        let mut answers = Vec::new();
        for question in &questions {
            add_new(&mut answers, &[], self.answer_records(question, ttl));
        }
        let mut additionals = Vec::new();
        add_new(&mut additionals, &answers, self.detail_records(ttl));
        let mut response = response_message(if is_legacy { id } else { 0 }, answers, additionals);
        if is_legacy {
            response.queries = questions;
        }
        let message = response.to_vec().ok()?;
        Some(MdnsResponse { message, unicast_to: is_unicast.then_some(from) })
    }

    /// Returns the unsolicited message that is sent at start.
    #[must_use]
    pub fn announcement(&self) -> Option<Vec<u8>> {
        let mut answers = vec![self.service_pointer(TTL)];
        answers.extend(self.detail_records(TTL));
        response_message(0, answers, Vec::new()).to_vec().ok()
    }

    fn is_about(&self, question: &Query) -> bool {
        let is = |name: &Name, types: &[RecordType]| {
            question.name.eq_ignore_root(name)
                && (question.query_type == RecordType::ANY || types.contains(&question.query_type))
        };
        is(&self.service, &[RecordType::SRV, RecordType::TXT])
            || is(&self.service_type, &[RecordType::PTR])
            || is(&self.service_types, &[RecordType::PTR])
            || is(&self.host, &[RecordType::A, RecordType::AAAA])
    }

    fn answer_records(&self, question: &Query, ttl: u32) -> Vec<Record> {
        let name = &question.name;
        if name.eq_ignore_root(&self.service_type) {
            vec![self.service_pointer(ttl)]
        } else if name.eq_ignore_root(&self.service_types) {
            let target = RData::PTR(PTR(self.service_type.clone()));
            vec![Record::from_rdata(self.service_types.clone(), ttl, target)]
        } else if name.eq_ignore_root(&self.service) {
            let mut records = Vec::new();
            if question.query_type != RecordType::TXT {
                records.push(self.service_record(ttl));
            }
            if question.query_type != RecordType::SRV {
                records.push(self.text_record(ttl));
            }
            records
        } else {
            self.address_records(ttl).collect()
        }
    }

    /// Returns everything a client needs, so that it does not have to send further queries.
    fn detail_records(&self, ttl: u32) -> Vec<Record> {
        let mut records = vec![self.service_record(ttl), self.text_record(ttl)];
        records.extend(self.address_records(ttl));
        records
    }

    fn service_pointer(&self, ttl: u32) -> Record {
        let target = RData::PTR(PTR(self.service.clone()));
        Record::from_rdata(self.service_type.clone(), ttl, target)
    }

    fn service_record(&self, ttl: u32) -> Record {
        let data = RData::SRV(SRV::new(0, 0, self.port, self.host.clone()));
        Record::from_rdata(self.service.clone(), ttl, data)
    }

    fn text_record(&self, ttl: u32) -> Record {
        let data = RData::TXT(TXT::new(self.texts.clone()));
        Record::from_rdata(self.service.clone(), ttl, data)
    }

    fn address_records(&self, ttl: u32) -> impl Iterator<Item = Record> {
        self.addresses.iter().map(move |address| {
            let data = match address {
                IpAddr::V4(address) => RData::A(A(*address)),
                IpAddr::V6(address) => RData::AAAA(AAAA(*address)),
            };
            Record::from_rdata(self.host.clone(), ttl, data)
        })
    }
}

/// Returns the ID of a query and its questions of class IN, `None` if the message is not a query. The other
/// sections are not decoded, so malformed records in them do not matter.
fn decode_questions(message: &[u8]) -> Option<(u16, Vec<Query>)> {
    let mut decoder = BinDecoder::new(message);
    let header = Header::read(&mut decoder).ok()?;
    let Header { metadata, counts, .. } = header;
    if metadata.message_type != MessageType::Query || metadata.op_code != OpCode::Query {
        return None;
    }
    let count = usize::from(counts.queries).min(MAX_QUESTIONS);
    let mut questions = Message::read_queries(&mut decoder, count).ok()?;
    questions.retain(|question| question.query_class == DNSClass::IN);
    Some((metadata.id, questions))
}

fn response_message(id: u16, answers: Vec<Record>, additionals: Vec<Record>) -> Message {
    let mut message = Message::response(id, OpCode::Query);
    message.metadata.authoritative = true;
    message.answers = answers;
    message.additionals = additionals;
    message
}

/// Adds the records that are neither in `records` nor in `others`.
fn add_new(records: &mut Vec<Record>, others: &[Record], new: Vec<Record>) {
    for record in new {
        if !records.contains(&record) && !others.contains(&record) {
            records.push(record);
        }
    }
}

fn fqdn(name: &str) -> Option<Name> {
    let mut name = Name::from_ascii(name).ok()?;
    name.set_fqdn(true);
    Some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MDNS_CLIENT: &str = "192.0.2.9:5353";
    const LEGACY_CLIENT: &str = "192.0.2.9:40000";

    fn service(url: &str) -> MdnsService {
        let endpoint = ApiEndpoint::from_url(url).unwrap();
        let address = endpoint.host.parse().unwrap_or([192, 0, 2, 1].into());
        MdnsService::new(endpoint, vec![address], "conductor-1.example").unwrap()
    }

    fn question(name: &str, record_type: u16, class: u16) -> Vec<u8> {
        let mut message = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.trim_end_matches('.').split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.as_bytes());
        }
        message.push(0);
        message.extend(record_type.to_be_bytes());
        message.extend(class.to_be_bytes());
        message
    }

    #[test]
    fn converts_urls_to_records_like_ironic() {
        for (url, host, port, texts) in [
            ("http://192.0.2.1:6385", "ferrite-conductor-1.local.", 6385, &["protocol=http"][..]),
            ("http://192.0.2.1/", "ferrite-conductor-1.local.", 80, &[""]),
            ("https://api.example/baremetal/", "api.example.", 443, &["path=/baremetal"]),
            ("https://[fd00::1]:6385", "ferrite-conductor-1.local.", 6385, &["protocol=https"]),
        ] {
            let service = service(url);
            assert_eq!((service.host.to_ascii().as_str(), service.port), (host, port), "{url}");
            assert_eq!(service.texts, texts, "{url}");
        }
        for url in ["ftp://a", "http://", "http://a:b", "http://u@a", "a:1"] {
            assert!(ApiEndpoint::from_url(url).is_err(), "{url}");
        }
        let endpoint = ApiEndpoint::from_url("http://a..b").unwrap();
        assert!(MdnsService::new(endpoint, vec![[192, 0, 2, 1].into()], "x").is_err());
    }

    #[test]
    fn answers_only_questions_about_the_service() {
        let service = service("http://192.0.2.1:6385");
        const IN: u16 = 1;
        const UNICAST: u16 = 0x8001;
        for (name, record_type, class, from, expected) in [
            ("Baremetal._openstack._TCP.local", 33, IN, MDNS_CLIENT, Some(true)),
            (SERVICE, 16, IN, LEGACY_CLIENT, Some(false)),
            (SERVICE, 255, UNICAST, MDNS_CLIENT, Some(false)),
            (SERVICE, 1, IN, MDNS_CLIENT, None),
            (SERVICE_TYPE, 12, IN, MDNS_CLIENT, Some(true)),
            (SERVICE_TYPES, 12, IN, MDNS_CLIENT, Some(true)),
            ("ferrite-conductor-1.local", 1, IN, MDNS_CLIENT, Some(true)),
            ("other._openstack._tcp.local", 33, IN, MDNS_CLIENT, None),
            (SERVICE, 33, 3, MDNS_CLIENT, None),
        ] {
            let message = question(name, record_type, class);
            let response = service.respond(&message, from.parse().unwrap());
            let is_multicast = response.as_ref().map(|response| response.unicast_to.is_none());
            assert_eq!(is_multicast, expected, "{name} {record_type} {class} {from}");
        }
        let mut response = question(SERVICE, 33, IN);
        response[2] = 0x84;
        assert_eq!(service.respond(&response, MDNS_CLIENT.parse().unwrap()), None);
    }

    #[test]
    fn responses_contain_every_record_once() {
        let service = service("http://192.0.2.1:6385");
        let query = question(SERVICE, 33, 1);
        let response = service.respond(&query, LEGACY_CLIENT.parse().unwrap()).unwrap().message;
        assert_eq!(response[..2], [0, 7], "a legacy resolver matches the ID");
        // One question, one answer, and two additional records: TXT and A.
        assert_eq!(response[2..12], [0x84, 0, 0, 1, 0, 1, 0, 0, 0, 2]);
        assert_eq!(response[12..query.len()], query[12..]);
        let response = service.respond(&query, MDNS_CLIENT.parse().unwrap()).unwrap().message;
        assert_eq!(response[..12], [0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        let announcement = service.announcement().unwrap();
        assert_eq!(announcement[..12], [0, 0, 0x84, 0, 0, 0, 0, 4, 0, 0, 0, 0]);
        let records = Message::from_vec(&announcement).unwrap().answers;
        let texts: Vec<String> = records.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "_openstack._tcp.local. 120 IN PTR baremetal._openstack._tcp.local.",
                "baremetal._openstack._tcp.local. 120 IN SRV 0 0 6385 ferrite-conductor-1.local.",
                "baremetal._openstack._tcp.local. 120 IN TXT protocol=http",
                "ferrite-conductor-1.local. 120 IN A 192.0.2.1",
            ]
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic_the_responder(
            message in proptest::collection::vec(any::<u8>(), 0..200),
            name in "[a-z._]{0,60}",
            cut in 0_usize..100,
        ) {
            let service = service("http://192.0.2.1:6385");
            let mut damaged = question(&name, 255, 1);
            damaged.truncate(cut);
            for message in [damaged, [&[0, 7, 0, 0, 0, 9][..], &message].concat(), message] {
                let _ = service.respond(&message, MDNS_CLIENT.parse().unwrap());
            }
        }
    }
}
