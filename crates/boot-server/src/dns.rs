// SPDX-License-Identifier: Apache-2.0
//! A DNS forwarder for booting machines: it responds for the names of this server and forwards all other
//! queries unchanged to the resolvers of this host.
//!
//! There is no cache and no recursion; the resolvers have both.

mod client_limits;
mod forwarder;
mod listener;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use hickory_proto::op::{Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable as _, BinDecoder};

pub use forwarder::{DnsUpstreams, RESOLVER_CONFIGURATION};
pub use listener::{DnsListener, DnsServerSettings};

/// The TTL of own names in seconds. Short, because the server may move.
const OWN_TTL: u32 = 60;
/// The maximum size of a query. Usual ones have less than 100 bytes.
const MAX_QUERY_BYTES: usize = 4096;

/// The names of this server and its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnDnsNames {
    names: Vec<Name>,
    address: IpAddr,
}

/// A text is not a host name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a host name")]
pub struct DnsNameError(String);

/// What happens to a query.
#[derive(Debug, PartialEq, Eq)]
enum DnsAction {
    /// This response is sent.
    Respond(Vec<u8>),
    /// It is forwarded.
    Forward(DnsQuestion),
    /// It gets no response.
    Drop,
}

/// The header and the only question of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DnsQuestion {
    metadata: Metadata,
    query: Query,
}

impl OwnDnsNames {
    /// Returns the names of the server with this address.
    ///
    /// # Errors
    /// If a name is not a host name.
    pub fn new<'a>(
        names: impl IntoIterator<Item = &'a str>,
        address: IpAddr,
    ) -> Result<Self, DnsNameError> {
        let names = names.into_iter().map(|name| {
            let mut parsed = Name::from_ascii(name).map_err(|_| DnsNameError(name.to_owned()))?;
            if name.is_empty() || parsed.is_root() {
                return Err(DnsNameError(name.to_owned()));
            }
            parsed.set_fqdn(true);
            Ok(parsed)
        });
        Ok(Self { names: names.collect::<Result<_, _>>()?, address })
    }

    /// Decides what happens to a message of a client.
    fn decide(&self, message: &[u8]) -> DnsAction {
        let Some(metadata) = decode_metadata(message) else { return DnsAction::Drop };
        if metadata.message_type != MessageType::Query {
            return DnsAction::Drop;
        }
        if metadata.op_code != OpCode::Query {
            return error_response(&metadata, None, ResponseCode::NotImp);
        }
        let Some(question) = decode_question(message) else {
            return error_response(&metadata, None, ResponseCode::FormErr);
        };
        let query = &question.query;
        // Responses to ANY are large, and zones are not transferred through a forwarder.
        let is_refused = query.query_class != DNSClass::IN
            || matches!(query.query_type, RecordType::ANY | RecordType::AXFR | RecordType::IXFR);
        if is_refused {
            return error_response(&metadata, Some(query), ResponseCode::Refused);
        }
        if self.names.iter().any(|name| query.name.eq_ignore_root(name)) {
            return self.respond(&question);
        }
        DnsAction::Forward(question)
    }

    fn respond(&self, DnsQuestion { metadata, query }: &DnsQuestion) -> DnsAction {
        let mut response = response_message(metadata, Some(query), ResponseCode::NoError);
        response.metadata.authoritative = true;
        let data = match (query.query_type, self.address) {
            (RecordType::A, IpAddr::V4(address)) => Some(RData::A(A(address))),
            (RecordType::AAAA, IpAddr::V6(address)) => Some(RData::AAAA(AAAA(address))),
            // The name exists and has no record of this type.
            (_, _) => None,
        };
        response
            .answers
            .extend(data.map(|data| Record::from_rdata(query.name.clone(), OWN_TTL, data)));
        encoded(&response)
    }
}

fn error_response(metadata: &Metadata, query: Option<&Query>, code: ResponseCode) -> DnsAction {
    encoded(&response_message(metadata, query, code))
}

fn encoded(response: &Message) -> DnsAction {
    response.to_vec().map_or(DnsAction::Drop, DnsAction::Respond)
}

fn response_message(metadata: &Metadata, query: Option<&Query>, code: ResponseCode) -> Message {
    let mut response = Message::response(metadata.id, metadata.op_code);
    response.metadata.recursion_desired = metadata.recursion_desired;
    response.metadata.recursion_available = true;
    response.metadata.response_code = code;
    response.queries.extend(query.cloned());
    response
}

fn decode_metadata(message: &[u8]) -> Option<Metadata> {
    Some(Header::read(&mut BinDecoder::new(message)).ok()?.metadata)
}

/// Decodes a message with exactly one question. The rest of the message is not looked at.
fn decode_question(message: &[u8]) -> Option<DnsQuestion> {
    let mut decoder = BinDecoder::new(message);
    let Header { metadata, counts } = Header::read(&mut decoder).ok()?;
    if counts.queries != 1 {
        return None;
    }
    let query = Message::read_queries(&mut decoder, 1).ok()?.pop()?;
    Some(DnsQuestion { metadata, query })
}

impl DnsQuestion {
    /// Returns whether the message with this question is the response to this query, whose ID was replaced.
    fn is_response(&self, id: u16, response: &Self) -> bool {
        let (own, other) = (&self.query, &response.query);
        response.metadata.id == id
            && response.metadata.message_type == MessageType::Response
            && own.name.eq_ignore_root(&other.name)
            && own.query_type == other.query_type
            && own.query_class == other.query_class
    }

    /// Returns the response for a query that no resolver responded to.
    fn server_failure(&self) -> Option<Vec<u8>> {
        match error_response(&self.metadata, Some(&self.query), ResponseCode::ServFail) {
            DnsAction::Respond(message) => Some(message),
            DnsAction::Forward(_) | DnsAction::Drop => None,
        }
    }
}
