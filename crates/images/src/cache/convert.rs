// SPDX-License-Identifier: Apache-2.0
//! What becomes of a fetched image: it is looked at, refused or let in, unpacked and made raw.

use std::fs::File;
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::Limits;
use super::produce::Problem;
use super::request::Wanted;
use super::shelf::{Reservation, Shelf, Temporary};
use crate::decompress::decompress;
use crate::format::{Format, FormatError};
use crate::qcow2::{self, Header, Qcow2Error};
use crate::sink::{Sink, Taken};

/// How much of a qcow2 image its header is looked for in.
const QCOW2_HEAD: usize = 64 * 1024;

/// What to make of a fetched image, and what it may be.
pub(super) struct Conversion {
    /// None where anything is.
    pub(super) permitted: Option<Vec<Format>>,
    pub(super) declared: Option<Format>,
    pub(super) wanted: Wanted,
    pub(super) limits: Limits,
}

/// An image in a file of its own.
pub(super) struct Made {
    pub(super) temporary: Temporary,
    pub(super) taken: Taken,
}

impl Conversion {
    /// Inspects an image and converts it if need be. What it is then, and the new one if it was
    /// converted.
    pub(super) fn run(
        &self,
        shelf: &Arc<Shelf>,
        file: &File,
    ) -> Result<(Format, Option<Made>), Problem> {
        let mut format = Format::of_file(file).map_err(Problem::Folder)??;
        let mut made: Option<Made> = None;
        if let (Format::Compressed(compression), Wanted::Raw) = (format, self.wanted) {
            let unpacked = self.make(shelf, |sink| {
                let mut file = file;
                file.rewind().map_err(Problem::Folder)?;
                Ok(decompress(file, compression, sink)?)
            })?;
            let inner = Format::of_file(&unpacked.taken.file).map_err(Problem::Folder)??;
            if matches!(inner, Format::Compressed(_)) {
                return Err(Problem::Nested { outer: format, inner });
            }
            (format, made) = (inner, Some(unpacked));
        }
        self.check(format)?;
        let current = made.as_ref().map_or(file, |made| &made.taken.file);
        if format == Format::Qcow2 {
            inspect_qcow2(current, self.limits.unpacked)?;
        }
        match self.wanted {
            Wanted::AsIs => Ok((format, made)),
            Wanted::Raw => match format {
                Format::Raw
                | Format::Gpt
                | Format::Mbr
                | Format::Iso
                | Format::Luks
                | Format::Squashfs => Ok((format, made)),
                Format::Qcow2 => {
                    let raw = self.make(shelf, |sink| {
                        Ok(qcow2::convert(current, self.limits.unpacked, sink)?)
                    })?;
                    let inner = Format::of_file(&raw.taken.file).map_err(Problem::Folder)??;
                    if !inner.is_raw() && inner != Format::Iso {
                        return Err(Problem::Nested { outer: format, inner });
                    }
                    Ok((inner, Some(raw)))
                }
                Format::Qed
                | Format::Vmdk
                | Format::Vdi
                | Format::Vhd
                | Format::Vhdx
                | Format::Compressed(_) => Err(Problem::CannotConvert { format }),
            },
        }
    }

    fn check(&self, format: Format) -> Result<(), FormatError> {
        match (&self.permitted, self.declared) {
            (Some(permitted), declared) => format.check(declared, permitted),
            (None, Some(_)) => format.check(self.declared, &[format]),
            (None, None) => Ok(()),
        }
    }

    fn make(
        &self,
        shelf: &Arc<Shelf>,
        write: impl FnOnce(&mut Sink) -> Result<(), Problem>,
    ) -> Result<Made, Problem> {
        let (temporary, file) = shelf.temporary().map_err(Problem::Folder)?;
        let room = Reservation::new(shelf);
        let mut sink = Sink::new(file, room, self.limits.unpacked, &[]);
        write(&mut sink)?;
        Ok(Made { temporary, taken: sink.finish()? })
    }
}

impl From<qcow2::ConvertError> for Problem {
    fn from(error: qcow2::ConvertError) -> Self {
        match error {
            qcow2::ConvertError::Image(error) => Self::Qcow2(error),
            qcow2::ConvertError::Sink(error) => Self::Sink(error),
        }
    }
}

fn inspect_qcow2(file: &File, limit: u64) -> Result<(), Qcow2Error> {
    let length = file.metadata().map_err(Qcow2Error::Read)?.len();
    let mut head = vec![0; QCOW2_HEAD.min(usize::try_from(length).unwrap_or(QCOW2_HEAD))];
    file.read_exact_at(&mut head, 0).map_err(Qcow2Error::Read)?;
    Header::parse(&head, limit).map(drop)
}
