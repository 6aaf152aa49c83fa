// SPDX-License-Identifier: Apache-2.0
//! Sources of images, and the local files that may be used as images.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use reqwest::Url;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::oci::OciReference;

/// Directories that are never served, whatever the configuration allows.
const BLOCKED_DIRS: [&str; 6] = ["/dev", "/sys", "/proc", "/boot", "/etc", "/run"];

/// The source of an image.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum ImageSource {
    /// An HTTP URL.
    Http(Url),
    /// A local file.
    File(PathBuf),
    /// An image in a container registry.
    Oci(OciReference),
}

/// The local files that may be used as images.
#[derive(Debug, Clone, Default)]
pub struct FilePolicy {
    /// Allowed directories. If empty, no file is allowed.
    pub allowed: Vec<PathBuf>,
}

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageSourceError {
    /// It is not a supported URL.
    #[error("{text:?} is not a valid image URL ({why}): use http://, https://, file:/// or oci://")]
    Malformed {
        /// The source, without passwords.
        text: String,
        /// The problem.
        why: String,
    },
    /// The file is not under an allowed folder.
    #[error("{} is not in an allowed folder: move it to one, or allow its folder in the configuration", path.display())]
    NotAllowed {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        source: io::Error,
    },
    /// It is a folder or a device.
    #[error("{} is not a plain file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
}

impl ImageSource {
    /// Parses `http(s)://…`, `file:///…` and `oci://…`.
    pub fn parse(text: &str) -> Result<Self, ImageSourceError> {
        let text = text.trim();
        let bad = |why: String| ImageSourceError::Malformed { text: redacted_text(text), why };
        let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        match scheme.as_deref() {
            Some("http" | "https") => {
                let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
                Ok(Self::Http(url))
            }
            Some("file") => {
                let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
                let path = url.to_file_path().map_err(|()| bad("it names a host".to_owned()))?;
                if path.as_os_str().as_encoded_bytes().contains(&0) {
                    return Err(bad("there is a zero byte in its name".to_owned()));
                }
                Ok(Self::File(path))
            }
            Some("oci") => OciReference::parse(text).map(Self::Oci).map_err(|e| bad(e.to_string())),
            Some(other) => Err(bad(format!("unsupported scheme {other}"))),
            None => Err(bad("it has no scheme".to_owned())),
        }
    }

    /// Returns the last part of its path, which is its name in a checksum file.
    pub fn file_name(&self) -> String {
        match self {
            Self::Http(url) => {
                let last = url.path_segments().and_then(|mut parts| parts.next_back());
                percent_decode_str(last.unwrap_or_default()).decode_utf8_lossy().into_owned()
            }
            Self::File(path) => {
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            }
            Self::Oci(reference) => {
                reference.repository.rsplit('/').next().unwrap_or_default().to_owned()
            }
        }
    }

    /// Returns whether an image from this source needs a checksum. Local files are trusted, and a
    /// registry has digests.
    pub fn needs_checksum(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// Returns the source with a suffix such as `.sig` after its path; `None` for a registry.
    pub(crate) fn with_suffix(&self, suffix: &str) -> Option<Self> {
        match self {
            Self::Http(url) => {
                let mut beside = url.clone();
                beside.set_path(&format!("{}{suffix}", url.path()));
                Some(Self::Http(beside))
            }
            Self::File(path) => {
                let mut beside = path.clone().into_os_string();
                beside.push(suffix);
                Some(Self::File(beside.into()))
            }
            Self::Oci(_) => None,
        }
    }
}

/// Omits passwords, since it is logged.
impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(&redacted_url(url)),
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Oci(reference) => fmt::Display::fmt(reference, f),
        }
    }
}

impl fmt::Debug for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FilePolicy {
    /// Checks that [a file](Source::File) may be used as an image and exists.
    pub fn check(&self, path: &Path) -> Result<(), ImageSourceError> {
        self.open(path).map(drop)
    }

    /// Opens an allowed file. Symbolic links are followed within allowed directories; a link that is
    /// changed meanwhile is not followed.
    pub(crate) fn open(&self, path: &Path) -> Result<File, ImageSourceError> {
        let failed =
            |error: io::Error| ImageSourceError::Open { path: path.to_owned(), source: error };
        let not_allowed = || ImageSourceError::NotAllowed { path: path.to_owned() };
        // Do not reveal whether a file exists outside the allowed directories.
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if self.allowed.iter().any(|folder| path.starts_with(folder)) => {
                return Err(failed(error));
            }
            Err(_) => return Err(not_allowed()),
        };
        if BLOCKED_DIRS.iter().any(|blocked| real.starts_with(blocked)) {
            return Err(not_allowed());
        }
        let folders = self.allowed.iter().filter_map(|folder| folder.canonicalize().ok());
        let (folder, inside) = folders
            .filter_map(|folder| {
                let inside = real.strip_prefix(&folder).ok()?.to_owned();
                Some((folder, inside))
            })
            .next()
            .ok_or_else(not_allowed)?;
        let folder = File::open(folder).map_err(failed)?;
        // Non-blocking: opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(&folder, &inside, flags, Mode::empty(), resolve);
        let file = File::from(opened.map_err(|error| failed(error.into()))?);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(ImageSourceError::NotAFile { path: path.to_owned() });
        }
        Ok(file)
    }
}

/// Returns the URL without user name, password and query, for logs and errors.
#[must_use]
pub fn redacted_url(url: &Url) -> String {
    let mut url = url.clone();
    // Fails only for URLs without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if url.query().is_some() {
        // Signed URLs (S3, Swift) contain their signature here.
        url.set_query(Some("…"));
    }
    url.set_fragment(None);
    url.to_string().replace("%E2%80%A6", "…")
}

fn redacted_text(text: &str) -> String {
    let shown = Url::parse(text).map_or_else(|_| text.to_owned(), |url| redacted_url(&url));
    // An invalid URL may contain a password.
    match (shown.find("://"), shown.rfind('@')) {
        (Some(start), Some(at)) if at > start => {
            format!("{}…{}", &shown[..start + 3], &shown[at..])
        }
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::{FilePolicy, ImageSource, ImageSourceError};

    #[test]
    fn parses_sources() {
        let check = |text: &str, expected: Expect| {
            let shown = match ImageSource::parse(text) {
                Ok(source) => format!("{source} named {:?}", source.file_name()),
                Err(error) => error.to_string(),
            };
            expected.assert_eq(&shown);
        };
        check(
            "http://h:8080/a/b%20c.img",
            expect![[r#"http://h:8080/a/b%20c.img named "b c.img""#]],
        );
        check(
            "https://user:secret@h/x.qcow2?X-Signature=deadbeef",
            expect![[r#"https://h/x.qcow2?… named "x.qcow2""#]],
        );
        check("file:///srv/images/x.raw", expect![[r#"file:///srv/images/x.raw named "x.raw""#]]);
        check("FILE:///srv/../etc/passwd", expect![[r#"file:///etc/passwd named "passwd""#]]);
        check("oci://quay.io/org/os:41", expect![[r#"oci://quay.io/org/os:41 named "os""#]]);
        check(
            "file://host/x",
            expect![[
                r#""file://host/x" is not a valid image URL (it names a host): use http://, https://, file:/// or oci://"#
            ]],
        );
        check(
            "ftp://u:p@h/x",
            expect![[
                r#""ftp://h/x" is not a valid image URL (unsupported scheme ftp): use http://, https://, file:/// or oci://"#
            ]],
        );
        check(
            "/srv/x.img",
            expect![[
                r#""/srv/x.img" is not a valid image URL (it has no scheme): use http://, https://, file:/// or oci://"#
            ]],
        );
    }

    #[test]
    fn opens_files_of_allowed_directories_only() {
        let outside = tempfile::tempdir().unwrap();
        let inside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        std::fs::write(inside.path().join("image"), "i").unwrap();
        std::fs::create_dir(inside.path().join("folder")).unwrap();
        symlink(outside.path().join("secret"), inside.path().join("escape")).unwrap();
        symlink(outside.path(), inside.path().join("way-out")).unwrap();
        symlink(inside.path().join("image"), inside.path().join("alias")).unwrap();
        let policy = FilePolicy { allowed: vec![inside.path().to_owned()] };
        let open = |name: &str| policy.open(&inside.path().join(name));
        assert!(open("image").is_ok());
        assert!(open("alias").is_ok());
        assert!(open("folder/../image").is_ok());
        assert!(matches!(open("escape"), Err(ImageSourceError::NotAllowed { .. })));
        assert!(matches!(open("way-out/secret"), Err(ImageSourceError::NotAllowed { .. })));
        assert!(matches!(open("folder"), Err(ImageSourceError::NotAFile { .. })));
        assert!(matches!(open("absent"), Err(ImageSourceError::Open { .. })));
        let up = inside.path().join("..").join(outside.path().file_name().unwrap()).join("secret");
        assert!(matches!(policy.open(&up), Err(ImageSourceError::NotAllowed { .. })));
        let absent = outside.path().join("absent");
        assert!(matches!(policy.open(&absent), Err(ImageSourceError::NotAllowed { .. })));
        let everything = FilePolicy { allowed: vec!["/".into()] };
        for blocked in ["/etc/passwd", "/proc/self/environ", "/dev/null"] {
            let opened = everything.open(blocked.as_ref());
            assert!(matches!(opened, Err(ImageSourceError::NotAllowed { .. })), "{blocked}");
        }
        assert!(FilePolicy::default().open(&inside.path().join("image")).is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = ImageSource::parse(&text);
            let _ = ImageSource::parse(&format!("oci://{text}"));
            let _ = ImageSource::parse(&format!("http://{text}")).map(|source| source.file_name());
        }
    }
}
