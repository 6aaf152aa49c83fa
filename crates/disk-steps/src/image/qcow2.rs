// SPDX-License-Identifier: Apache-2.0
//! qcow2 images, written to the disk in one pass over the file.
//!
//! The tables are fetched first, so that it is known what each part of the file is. Then the file
//! comes once, from its first byte to its last: it is digested, its clusters go where they belong
//! on the disk, and its tables must be those that were fetched. What has no cluster becomes zeroes.

use std::io::{self, Read};

use images::qcow2::{Cluster, Header, Qcow2Error, Unpacker};
use ring::digest::{Digest, SHA256, digest};

use super::stream::read_full;
use super::writer::{BLOCK, Failed, Writer};

/// How much of the file's beginning has the header and its extensions.
pub(super) const HEAD: usize = 64 * 1024;

/// What each part of the file is.
pub(super) struct Map {
    header: Header,
    /// In the order of the file.
    parts: Vec<Part>,
    /// Ranges of the disk that are zeroes: where they begin and how long they are.
    zeroes: Vec<(u64, u64)>,
}

struct Part {
    /// Where it begins in the file.
    at: u64,
    length: u64,
    what: What,
}

enum What {
    /// As it is at this place of the disk.
    Data(u64),
    /// One compressed cluster for this place of the disk.
    Packed(u64),
    /// A table, with its digest.
    Table(Box<Digest>),
}

/// Why an image was not written.
#[derive(Debug)]
pub(super) enum Stop {
    Image(Qcow2Error),
    Download(io::Error),
    Disk,
    /// A table is not what it was a moment ago.
    Changed,
}

impl From<Qcow2Error> for Stop {
    fn from(error: Qcow2Error) -> Self {
        Self::Image(error)
    }
}

impl From<Failed> for Stop {
    fn from(Failed: Failed) -> Self {
        Self::Disk
    }
}

impl Map {
    /// Reads the tables with `fetch`, which gives a range of the file.
    pub(super) fn read<E: From<Qcow2Error>>(
        header: Header,
        fetch: &mut dyn FnMut(u64, u64) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        let cluster = 1_u64 << header.cluster_bits;
        let covered_by_table = cluster / 8 * cluster;
        let tables = header.virtual_size.div_ceil(covered_by_table);
        let mut map = Self { header, parts: Vec::new(), zeroes: Vec::new() };
        if tables == 0 {
            return Ok(map);
        }
        let l1 = fetch(map.header.l1_offset, tables * 8)?;
        map.table(map.header.l1_offset, &l1);
        let mut at = 0;
        for entry in entries(&l1) {
            let covered = covered_by_table.min(map.header.virtual_size - at);
            match map.header.table(entry) {
                None => map.zero(at, covered),
                Some(offset) => {
                    let needed = covered.div_ceil(cluster) * 8;
                    let l2 = fetch(offset, needed)?;
                    map.table(offset, &l2);
                    map.clusters(at, covered, &l2)?;
                }
            }
            at += covered;
        }
        map.parts.sort_by_key(|part| part.at);
        Ok(map)
    }

    fn clusters(&mut self, start: u64, covered: u64, l2: &[u8]) -> Result<(), Qcow2Error> {
        let cluster = 1_u64 << self.header.cluster_bits;
        let end = start + covered;
        for (entry, place) in entries(l2).zip((start..end).step_by(1 << self.header.cluster_bits)) {
            let length = cluster.min(end - place);
            match self.header.cluster(entry)? {
                Cluster::Zeroes => self.zero(place, length),
                Cluster::At(at) => self.data(at, place, length),
                Cluster::Packed { offset, length } => {
                    self.parts.push(Part { at: offset, length, what: What::Packed(place) });
                }
            }
        }
        Ok(())
    }

    fn table(&mut self, at: u64, bytes: &[u8]) {
        let what = What::Table(Box::new(digest(&SHA256, bytes)));
        self.parts.push(Part { at, length: bytes.len() as u64, what });
    }

    fn zero(&mut self, at: u64, length: u64) {
        match self.zeroes.last_mut() {
            Some((last, so_far)) if *last + *so_far == at => *so_far += length,
            Some(_) | None => self.zeroes.push((at, length)),
        }
    }

    fn data(&mut self, at: u64, place: u64, length: u64) {
        if let Some(Part { at: last, length: so_far, what: What::Data(begin) }) =
            self.parts.last_mut()
            && *last + *so_far == at
            && *begin + *so_far == place
        {
            *so_far += length;
            return;
        }
        self.parts.push(Part { at, length, what: What::Data(place) });
    }

    /// Writes the disk from the file, which `from` gives from its first byte.
    pub(super) fn pour(&self, from: &mut dyn Read, to: &mut Writer) -> Result<(), Stop> {
        for &(at, length) in &self.zeroes {
            to.zero(at, length)?;
        }
        let mut window = Window { from, bytes: Vec::new(), start: 0, at: 0 };
        let mut unpacker = Unpacker::new(&self.header);
        let mut cluster = vec![0; 1 << self.header.cluster_bits];
        for part in &self.parts {
            match &part.what {
                What::Table(told) => {
                    let bytes = window.get(part.at, part.length)?;
                    if digest(&SHA256, bytes).as_ref() != told.as_ref().as_ref() {
                        return Err(Stop::Changed);
                    }
                }
                What::Packed(place) => {
                    let packed = window.get(part.at, part.length)?;
                    unpacker.unpack(packed, &mut cluster)?;
                    let left = self.header.virtual_size - place;
                    let length =
                        usize::try_from(left).map_or(cluster.len(), |l| l.min(cluster.len()));
                    to.write(*place, &cluster[..length])?;
                }
                What::Data(place) => {
                    copy(&mut window, part, *place, 1 << self.header.cluster_bits, to)?;
                }
            }
        }
        Ok(())
    }
}

/// Copies clusters that lie together. The file's last one may be cut short, and is zeroes from
/// there.
fn copy(
    window: &mut Window<'_>,
    part: &Part,
    place: u64,
    cluster: u64,
    to: &mut Writer,
) -> Result<(), Stop> {
    let mut done = 0;
    while done < part.length {
        let piece = (part.length - done).min(BLOCK as u64);
        let bytes = window.get(part.at + done, piece)?;
        let missing = piece - bytes.len() as u64;
        if missing >= cluster {
            return Err(Qcow2Error::Damaged { what: "a cluster lies beyond its end" }.into());
        }
        to.write(place + done, bytes)?;
        if missing > 0 {
            let zeroes = vec![0; usize::try_from(missing).expect("less than a cluster")];
            to.write(place + done + piece - missing, &zeroes)?;
        }
        done += piece;
    }
    Ok(())
}

/// A view of the file that only moves forward.
struct Window<'a> {
    from: &'a mut dyn Read,
    bytes: Vec<u8>,
    /// Where in `bytes` the view begins.
    start: usize,
    /// Where in the file that is.
    at: u64,
}

impl Window<'_> {
    /// A range of the file, cut short where the file ends. No later range may begin before it.
    fn get(&mut self, at: u64, length: u64) -> Result<&[u8], Stop> {
        let length = usize::try_from(length)
            .map_err(|_| Qcow2Error::Damaged { what: "a part of it is impossibly long" })?;
        let Some(skipped) = at.checked_sub(self.at) else {
            return Err(Qcow2Error::Damaged { what: "parts of it overlap" }.into());
        };
        let held = (self.bytes.len() - self.start) as u64;
        if skipped >= held {
            self.bytes.clear();
            self.start = 0;
            let beyond = skipped - held;
            io::copy(&mut (&mut *self.from).take(beyond), &mut io::sink())
                .map_err(Stop::Download)?;
        } else {
            self.start += usize::try_from(skipped).expect("less than what is held");
        }
        self.at = at;
        if self.bytes.len() - self.start < length {
            self.bytes.drain(..self.start);
            self.start = 0;
            let held = self.bytes.len();
            self.bytes.resize(length, 0);
            let read = read_full(self.from, &mut self.bytes[held..]).map_err(Stop::Download)?;
            self.bytes.truncate(held + read);
        }
        let end = self.bytes.len().min(self.start + length);
        Ok(&self.bytes[self.start..end])
    }
}

fn entries(table: &[u8]) -> impl Iterator<Item = u64> {
    table
        .chunks_exact(8)
        .map(|entry| u64::from_be_bytes(entry.try_into().expect("chunks of eight bytes")))
}
