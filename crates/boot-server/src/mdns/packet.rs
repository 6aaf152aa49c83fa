// SPDX-License-Identifier: Apache-2.0
//! The messages of multicast DNS, as far as they are needed to answer questions.

use std::net::IpAddr;

/// The class of everything on the Internet.
const INTERNET: u16 = 1;
/// Set in a question's class if the answer may come to the asker alone.
const UNICAST: u16 = 0x8000;
/// The most questions of one message that are looked at.
const MOST_QUESTIONS: u16 = 32;
const LONGEST_NAME: usize = 255;

/// What a question asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Address4,
    Address6,
    Pointer,
    Service,
    Text,
    Any,
}

impl Kind {
    const ALL: [Self; 6] =
        [Self::Address4, Self::Address6, Self::Pointer, Self::Service, Self::Text, Self::Any];

    const fn number(self) -> u16 {
        match self {
            Self::Address4 => 1,
            Self::Pointer => 12,
            Self::Text => 16,
            Self::Address6 => 28,
            Self::Service => 33,
            Self::Any => 255,
        }
    }
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) wants_unicast: bool,
}

/// The number of a message and the questions in it that can be understood; nothing if it asks none.
pub(super) fn questions(message: &[u8]) -> Option<(u16, Vec<Question>)> {
    let number = |at: usize| Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]));
    // An answer, or something other than a query.
    const NO_QUESTION: u16 = 0xf800;
    if number(2)? & NO_QUESTION != 0 {
        return None;
    }
    let count = number(4)?.min(MOST_QUESTIONS);
    let mut at = 12;
    let mut found = Vec::new();
    for _ in 0..count {
        let (name, after) = read_name(message, at)?;
        let (kind, class) = (number(after)?, number(after + 2)?);
        at = after + 4;
        let kind = Kind::ALL.into_iter().find(|known| known.number() == kind);
        if let (Some(kind), INTERNET) = (kind, class & !UNICAST) {
            found.push(Question { name, kind, wants_unicast: class & UNICAST != 0 });
        }
    }
    Some((number(0)?, found))
}

/// Whether this can be written as a name.
pub(super) fn is_name(name: &str) -> bool {
    name.len() < LONGEST_NAME && name.split('.').all(|label| (1..=63).contains(&label.len()))
}

/// A name and where what follows it starts.
fn read_name(message: &[u8], start: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut at = start;
    let mut after = None;
    // Names refer back to others; a hostile one would do so for ever.
    for _ in 0..128 {
        let length = *message.get(at)?;
        match length {
            0 => return Some((name, after.unwrap_or(at + 1))),
            1..=63 => {
                let end = at + 1 + usize::from(length);
                if !name.is_empty() {
                    name.push('.');
                }
                name.push_str(std::str::from_utf8(message.get(at + 1..end)?).ok()?);
                at = end;
            }
            0xc0.. => {
                after.get_or_insert(at + 2);
                at = usize::from(length & 0x3f) << 8 | usize::from(*message.get(at + 1)?);
            }
            64..=0xbf => return None,
        }
        if name.len() > LONGEST_NAME {
            return None;
        }
    }
    None
}

/// An answer that is being written.
pub(super) struct Writer {
    message: Vec<u8>,
    /// The records so far: the same is said once.
    written: Vec<Vec<u8>>,
    answers: u16,
    more: Option<u16>,
}

impl Writer {
    /// An answer to these questions, repeated as ordinary resolvers expect; to none if it is for all.
    pub(super) fn new(id: u16, questions: &[&Question]) -> Self {
        let mut message = Vec::with_capacity(512);
        message.extend(id.to_be_bytes());
        // An answer from one who knows.
        message.extend([0x84, 0]);
        message.extend(u16::try_from(questions.len()).unwrap_or(0).to_be_bytes());
        message.extend([0; 6]);
        for question in questions {
            write_name(&mut message, &question.name);
            message.extend(question.kind.number().to_be_bytes());
            message.extend(INTERNET.to_be_bytes());
        }
        Self { message, written: Vec::new(), answers: 0, more: None }
    }

    /// From here on come records that nobody asked for.
    pub(super) fn more(&mut self) {
        self.more = Some(0);
    }

    pub(super) fn pointer(&mut self, name: &str, target: &str, holds: u32) {
        let mut data = Vec::new();
        write_name(&mut data, target);
        self.record(name, Kind::Pointer, holds, &data);
    }

    pub(super) fn service(&mut self, name: &str, port: u16, host: &str, holds: u32) {
        // Priority and weight: one is as good as the other.
        let mut data = vec![0; 4];
        data.extend(port.to_be_bytes());
        write_name(&mut data, host);
        self.record(name, Kind::Service, holds, &data);
    }

    pub(super) fn text(&mut self, name: &str, texts: &[String], holds: u32) {
        let mut data = Vec::new();
        for text in texts {
            if let Ok(length) = u8::try_from(text.len()) {
                data.push(length);
                data.extend(text.as_bytes());
            }
        }
        if data.is_empty() {
            // A text record has at least one string, if an empty one.
            data.push(0);
        }
        self.record(name, Kind::Text, holds, &data);
    }

    pub(super) fn address(&mut self, name: &str, address: IpAddr, holds: u32) {
        match address {
            IpAddr::V4(address) => self.record(name, Kind::Address4, holds, &address.octets()),
            IpAddr::V6(address) => self.record(name, Kind::Address6, holds, &address.octets()),
        }
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.message[6..8].copy_from_slice(&self.answers.to_be_bytes());
        self.message[10..12].copy_from_slice(&self.more.unwrap_or(0).to_be_bytes());
        self.message
    }

    fn record(&mut self, name: &str, kind: Kind, holds: u32, data: &[u8]) {
        let mut record = Vec::with_capacity(name.len() + data.len() + 12);
        write_name(&mut record, name);
        record.extend(kind.number().to_be_bytes());
        record.extend(INTERNET.to_be_bytes());
        record.extend(holds.to_be_bytes());
        record.extend(u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
        record.extend(data);
        if self.written.contains(&record) {
            return;
        }
        self.message.extend(&record);
        self.written.push(record);
        *self.more.as_mut().unwrap_or(&mut self.answers) += 1;
    }
}

/// Writes a name that is one.
fn write_name(message: &mut Vec<u8>, name: &str) {
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(u8::try_from(label.len()).unwrap_or(0));
        message.extend(label.as_bytes());
    }
    message.push(0);
}
