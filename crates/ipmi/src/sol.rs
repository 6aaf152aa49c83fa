// SPDX-License-Identifier: Apache-2.0
//! Serial over LAN: a serial line in packets that are acknowledged one by one.
//!
//! [`SolLine`] is one end of such a line, at the console or the BMC, without socket and clock. One packet
//! at a time is in flight; it is repeated until the other end has accepted all of it.

use std::collections::VecDeque;

use crate::MalformedIpmiMessage;

/// A packet of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SolPacket<'a> {
    /// The sequence number, 1 to 15; zero for a pure acknowledgement.
    pub sequence: u8,
    /// The acknowledged sequence number; zero if none.
    pub acknowledged: u8,
    /// The number of accepted bytes of that packet.
    pub accepted: u8,
    /// See [`operation`].
    pub operation: u8,
    /// The data.
    pub data: &'a [u8],
}

/// Flags of a packet.
pub mod operation {
    /// The acknowledged packet was rejected, completely or partly.
    pub const NACK: u8 = 1 << 6;
    /// To the BMC: send a break.
    pub const BREAK: u8 = 1 << 4;
    /// From the BMC: the machine accepts no data now.
    pub const UNAVAILABLE: u8 = 1 << 5;
    /// From the BMC: the console is deactivated.
    pub const DEACTIVATING: u8 = 1 << 4;
}

/// The end of the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SolEnd {
    /// The console.
    Console,
    /// The BMC.
    Bmc,
}

/// One end of a serial line.
#[derive(Debug)]
pub struct SolLine {
    end: SolEnd,
    /// The number of data bytes per packet.
    packet_size: usize,
    waiting: VecDeque<u8>,
    break_waiting: bool,
    in_flight: Option<SolPacketInFlight>,
    /// The packet in flight must be repeated.
    repeat: bool,
    /// The other end accepts no data now.
    paused: bool,
    last_sent: u8,
    /// The sequence number and length of the last received packet.
    last_received: (u8, usize),
    /// The packet to acknowledge and the number of accepted bytes.
    owed: Option<(u8, u8)>,
}

/// The content of a received packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SolReceived<'a> {
    /// New data.
    pub data: &'a [u8],
    /// At the BMC: a break was received.
    pub is_break: bool,
    /// At the console: the console was deactivated.
    pub is_end: bool,
}

#[derive(Debug)]
struct SolPacketInFlight {
    sequence: u8,
    operation: u8,
    data: Vec<u8>,
}

impl<'a> SolPacket<'a> {
    /// Parses a packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedIpmiMessage> {
        let [sequence, acknowledged, accepted, operation, data @ ..] = bytes else {
            return Err(MalformedIpmiMessage("serial-over-LAN packet: too short"));
        };
        Ok(Self {
            sequence: sequence & 0x0f,
            acknowledged: acknowledged & 0x0f,
            accepted: *accepted,
            operation: *operation,
            data,
        })
    }

    /// Writes the packet into `out`, which is cleared first.
    pub fn emit(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[self.sequence, self.acknowledged, self.accepted, self.operation]);
        out.extend_from_slice(self.data);
    }
}

impl SolLine {
    /// The size limit of the send queue.
    pub const ROOM: usize = 64 * 1024;
    /// The length of the packet header.
    pub const HEADER_LENGTH: usize = 4;

    /// An end that sends at most `packet_size` data bytes per packet.
    #[must_use]
    pub fn new(end: SolEnd, packet_size: usize) -> Self {
        Self {
            end,
            // The count of accepted bytes has one byte.
            packet_size: packet_size.clamp(1, usize::from(u8::MAX)),
            waiting: VecDeque::new(),
            break_waiting: false,
            in_flight: None,
            repeat: false,
            paused: false,
            last_sent: 0,
            last_received: (0, 0),
            owed: None,
        }
    }

    /// The free space of the send queue.
    #[must_use]
    pub fn room(&self) -> usize {
        Self::ROOM.saturating_sub(self.waiting.len())
    }

    /// Queues as much of `bytes` as fits; returns the number of bytes.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        let taken = bytes.len().min(self.room());
        self.waiting.extend(&bytes[..taken]);
        taken
    }

    /// Queues a break.
    pub fn push_break(&mut self) {
        self.break_waiting = true;
    }

    /// Returns whether a response of the other end is outstanding.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.in_flight.is_some() || self.paused
    }

    /// Called after a timeout: repeats the packet in flight.
    pub fn on_silence(&mut self) {
        self.paused = false;
        self.repeat = self.in_flight.is_some();
    }

    /// Writes the next packet into `out`. Returns false if there is none; call it until then.
    pub fn transmit(&mut self, out: &mut Vec<u8>) -> bool {
        // Acknowledgements are sent alone: not every BMC accepts one with data.
        if let Some((acknowledged, accepted)) = self.owed.take() {
            let packet = SolPacket { sequence: 0, acknowledged, accepted, operation: 0, data: &[] };
            packet.emit(out);
            return true;
        }
        if self.in_flight.is_none() && !self.paused {
            self.in_flight = self.next_in_flight();
            self.repeat = self.in_flight.is_some();
        }
        let Some(in_flight) = self.in_flight.as_ref().filter(|_| self.repeat) else {
            return false;
        };
        let packet = SolPacket {
            sequence: in_flight.sequence,
            acknowledged: 0,
            accepted: 0,
            operation: in_flight.operation,
            data: &in_flight.data,
        };
        packet.emit(out);
        self.repeat = false;
        true
    }

    /// Handles a received packet.
    pub fn on_packet<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<SolReceived<'a>, MalformedIpmiMessage> {
        let packet = SolPacket::parse(bytes)?;
        self.on_acknowledgement(&packet);
        let (is_break, is_end) = match self.end {
            SolEnd::Bmc => (packet.operation & operation::BREAK != 0, false),
            SolEnd::Console => (false, packet.operation & operation::DEACTIVATING != 0),
        };
        if packet.sequence == 0 {
            return Ok(SolReceived { data: &[], is_break: false, is_end });
        }
        // The same sequence number is a repetition, perhaps with more data at its end.
        let (last, seen) = self.last_received;
        let repeated = packet.sequence == last;
        let known = if repeated { seen.min(packet.data.len()) } else { 0 };
        self.last_received = (packet.sequence, packet.data.len().max(known));
        let taken = u8::try_from(packet.data.len()).unwrap_or(u8::MAX);
        self.owed = Some((packet.sequence, taken));
        Ok(SolReceived { data: &packet.data[known..], is_break: is_break && !repeated, is_end })
    }

    fn on_acknowledgement(&mut self, packet: &SolPacket<'_>) {
        let Some(in_flight) = &self.in_flight else { return };
        if packet.acknowledged == 0 || packet.acknowledged != in_flight.sequence {
            return;
        }
        let refused = packet.operation & operation::NACK != 0;
        let unavailable =
            self.end == SolEnd::Console && packet.operation & operation::UNAVAILABLE != 0;
        let taken = usize::from(packet.accepted).min(in_flight.data.len());
        // Data that was not accepted returns to the front of the queue.
        for byte in in_flight.data[taken..].iter().rev() {
            self.waiting.push_front(*byte);
        }
        if refused && in_flight.operation & operation::BREAK != 0 && self.end == SolEnd::Console {
            self.break_waiting = true;
        }
        self.paused = refused || unavailable;
        self.in_flight = None;
        self.repeat = false;
    }

    fn next_in_flight(&mut self) -> Option<SolPacketInFlight> {
        let operation = if self.break_waiting { operation::BREAK } else { 0 };
        if operation == 0 && self.waiting.is_empty() {
            return None;
        }
        self.last_sent = self.last_sent % 15 + 1;
        let count = if operation == 0 { self.packet_size.min(self.waiting.len()) } else { 0 };
        self.break_waiting = false;
        let data = self.waiting.drain(..count).collect();
        Some(SolPacketInFlight { sequence: self.last_sent, operation, data })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(sequence: u8, acknowledged: u8, accepted: u8, operation: u8, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        SolPacket { sequence, acknowledged, accepted, operation, data }.emit(&mut out);
        out
    }

    fn sent(line: &mut SolLine) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut out = Vec::new();
        while line.transmit(&mut out) {
            all.push(out.clone());
        }
        all
    }

    #[test]
    fn one_packet_at_a_time() {
        let mut line = SolLine::new(SolEnd::Console, 3);
        line.push(b"hello");
        assert_eq!(sent(&mut line), [packet(1, 0, 0, 0, b"hel")]);
        assert!(line.is_waiting());
        line.on_silence();
        assert_eq!(sent(&mut line), [packet(1, 0, 0, 0, b"hel")], "again, with the same number");
        line.on_packet(&packet(0, 1, 3, 0, b"")).unwrap();
        assert_eq!(sent(&mut line), [packet(2, 0, 0, 0, b"lo")]);
        line.on_packet(&packet(0, 2, 2, 0, b"")).unwrap();
        assert!(!line.is_waiting());
    }

    #[test]
    fn repeats_data_that_was_not_accepted() {
        let mut line = SolLine::new(SolEnd::Console, 10);
        line.push(b"hello");
        sent(&mut line);
        line.on_packet(&packet(0, 1, 2, 0, b"")).unwrap();
        assert_eq!(sent(&mut line), [packet(2, 0, 0, 0, b"llo")]);
        line.on_packet(&packet(0, 2, 0, operation::NACK, b"")).unwrap();
        assert!(sent(&mut line).is_empty(), "not at once after a refusal");
        assert!(line.is_waiting());
        line.on_silence();
        assert_eq!(sent(&mut line), [packet(3, 0, 0, 0, b"llo")]);
    }

    #[test]
    fn ignores_repeated_packets() {
        let mut line = SolLine::new(SolEnd::Console, 10);
        let first = packet(4, 0, 0, 0, b"boot");
        let more = packet(4, 0, 0, 0, b"booting");
        assert_eq!(line.on_packet(&first).unwrap().data, b"boot");
        assert_eq!(sent(&mut line), [packet(0, 4, 4, 0, b"")]);
        assert_eq!(line.on_packet(&first).unwrap().data, b"");
        assert_eq!(sent(&mut line), [packet(0, 4, 4, 0, b"")], "and are acknowledged again");
        assert_eq!(line.on_packet(&more).unwrap().data, b"ing");
        assert_eq!(sent(&mut line), [packet(0, 4, 7, 0, b"")]);
    }

    #[test]
    fn handles_break_and_deactivation() {
        let mut console = SolLine::new(SolEnd::Console, 10);
        let mut bmc = SolLine::new(SolEnd::Bmc, 10);
        console.push_break();
        console.push(b"b");
        let packets = sent(&mut console);
        assert_eq!(packets, [packet(1, 0, 0, operation::BREAK, b"")]);
        assert!(bmc.on_packet(&packets[0]).unwrap().is_break);
        assert!(!bmc.on_packet(&packets[0]).unwrap().is_break, "a repetition is none");
        let end = packet(0, 0, 0, operation::DEACTIVATING, b"");
        assert!(console.on_packet(&end).unwrap().is_end);
    }

    #[test]
    fn limits_the_send_queue() {
        let mut line = SolLine::new(SolEnd::Console, 10);
        assert_eq!(line.push(&vec![0; SolLine::ROOM + 5]), SolLine::ROOM);
        assert_eq!(line.push(b"x"), 0);
    }

    proptest! {
        /// All data arrive once and in order, with any loss and partial acceptance.
        #[test]
        fn all_arrives_in_order(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            losses in proptest::collection::vec(any::<bool>(), 0..60),
        ) {
            let mut console = SolLine::new(SolEnd::Console, 17);
            let mut bmc = SolLine::new(SolEnd::Bmc, 17);
            console.push(&bytes);
            let mut losses = losses.into_iter();
            let mut arrived = Vec::new();
            let mut rounds = 0;
            loop {
                for packet in sent(&mut console) {
                    if !losses.next().unwrap_or(false) {
                        arrived.extend_from_slice(bmc.on_packet(&packet).unwrap().data);
                    }
                }
                for packet in sent(&mut bmc) {
                    if !losses.next().unwrap_or(false) {
                        console.on_packet(&packet).unwrap();
                    }
                }
                if !console.is_waiting() && console.room() == SolLine::ROOM {
                    break;
                }
                console.on_silence();
                rounds += 1;
                prop_assert!(rounds < 200);
            }
            prop_assert_eq!(arrived, bytes);
        }

        #[test]
        fn parsing_never_panics(packets: Vec<Vec<u8>>) {
            let mut line = SolLine::new(SolEnd::Console, 10);
            line.push(b"typed");
            for packet in packets {
                let _ = line.on_packet(&packet);
                sent(&mut line);
            }
        }
    }
}
