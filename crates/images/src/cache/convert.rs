// SPDX-License-Identifier: Apache-2.0
//! Checks the format of a fetched image, and decompresses and converts it to raw.

use std::fs::File;
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::ImageLimits;
use super::blob_store::{BlobStore, SpaceReservation, TemporaryFile};
use super::produce::ImageProblem;
use super::request::TargetFormat;
use crate::decompress::decompress;
use crate::format::{FormatError, ImageFormat};
use crate::qcow2::{self, Qcow2Error, Qcow2Header};
use crate::sink::{ImageSink, SinkOutput};

/// Bytes at the start of a qcow2 image that contain its header.
const QCOW2_HEAD_BYTES: usize = 64 * 1024;

/// The conversion of a fetched image, and its permitted formats.
pub(super) struct ImageConversion {
    /// `None` if every format is permitted.
    pub(super) permitted_formats: Option<Vec<ImageFormat>>,
    pub(super) declared_format: Option<ImageFormat>,
    pub(super) target_format: TargetFormat,
    pub(super) limits: ImageLimits,
}

/// A written temporary file.
pub(super) struct WrittenFile {
    pub(super) temporary: TemporaryFile,
    pub(super) image: SinkOutput,
}

impl ImageConversion {
    /// Checks an image and converts it if necessary. Returns the resulting format, and the new file if
    /// it was converted.
    pub(super) fn run(
        &self,
        blobs: &Arc<BlobStore>,
        file: &File,
    ) -> Result<(ImageFormat, Option<WrittenFile>), ImageProblem> {
        let length = file.metadata().map_err(ImageProblem::CacheFolder)?.len();
        let limit = self.limits.unpacked_from(length);
        let mut format = ImageFormat::detect_file(file).map_err(ImageProblem::CacheFolder)??;
        let mut made: Option<WrittenFile> = None;
        if let (ImageFormat::Compressed(compression), TargetFormat::Raw) =
            (format, self.target_format)
        {
            let unpacked = write_file(blobs, limit, |sink| {
                let mut file = file;
                file.rewind().map_err(ImageProblem::CacheFolder)?;
                Ok(decompress(file, compression, sink)?)
            })?;
            let inner = ImageFormat::detect_file(&unpacked.image.file)
                .map_err(ImageProblem::CacheFolder)??;
            if matches!(inner, ImageFormat::Compressed(_)) {
                return Err(ImageProblem::Nested { outer: format, inner });
            }
            (format, made) = (inner, Some(unpacked));
        }
        self.check(format)?;
        let current = made.as_ref().map_or(file, |made| &made.image.file);
        if format == ImageFormat::Qcow2 {
            inspect_qcow2(current, self.limits.unpacked)?;
        }
        match self.target_format {
            TargetFormat::AsIs => Ok((format, made)),
            TargetFormat::Raw => match format {
                ImageFormat::Raw
                | ImageFormat::Gpt
                | ImageFormat::Mbr
                | ImageFormat::Iso
                | ImageFormat::Luks
                | ImageFormat::Squashfs => Ok((format, made)),
                ImageFormat::Qcow2 => {
                    let raw =
                        write_file(blobs, limit, |sink| Ok(qcow2::convert(current, limit, sink)?))?;
                    let inner = ImageFormat::detect_file(&raw.image.file)
                        .map_err(ImageProblem::CacheFolder)??;
                    if !inner.is_raw() && inner != ImageFormat::Iso {
                        return Err(ImageProblem::Nested { outer: format, inner });
                    }
                    Ok((inner, Some(raw)))
                }
                ImageFormat::Qed
                | ImageFormat::Vmdk
                | ImageFormat::Vdi
                | ImageFormat::Vhd
                | ImageFormat::Vhdx
                | ImageFormat::Compressed(_) => Err(ImageProblem::CannotConvert { format }),
            },
        }
    }

    fn check(&self, format: ImageFormat) -> Result<(), FormatError> {
        match (&self.permitted_formats, self.declared_format) {
            (Some(permitted), declared) => format.check(declared, permitted),
            (None, Some(_)) => format.check(self.declared_format, &[format]),
            (None, None) => Ok(()),
        }
    }
}

fn write_file(
    blobs: &Arc<BlobStore>,
    limit: u64,
    write: impl FnOnce(&mut ImageSink) -> Result<(), ImageProblem>,
) -> Result<WrittenFile, ImageProblem> {
    let (temporary, file) = blobs.create_temporary().map_err(ImageProblem::CacheFolder)?;
    let reservation = SpaceReservation::new(blobs);
    let mut sink = ImageSink::new(file, reservation, limit, &[]);
    write(&mut sink)?;
    Ok(WrittenFile { temporary, image: sink.finish()? })
}

impl From<qcow2::Qcow2ConvertError> for ImageProblem {
    fn from(error: qcow2::Qcow2ConvertError) -> Self {
        match error {
            qcow2::Qcow2ConvertError::Image(error) => Self::Qcow2(error),
            qcow2::Qcow2ConvertError::Sink(error) => Self::Sink(error),
        }
    }
}

fn inspect_qcow2(file: &File, limit: u64) -> Result<(), Qcow2Error> {
    let length = file.metadata().map_err(Qcow2Error::Read)?.len();
    let mut head =
        vec![0; QCOW2_HEAD_BYTES.min(usize::try_from(length).unwrap_or(QCOW2_HEAD_BYTES))];
    file.read_exact_at(&mut head, 0).map_err(Qcow2Error::Read)?;
    Qcow2Header::parse(&head, limit).map(drop)
}
