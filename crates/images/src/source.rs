// SPDX-License-Identifier: Apache-2.0
//! Where an image is, and which files of this machine may be given away.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use reqwest::Url;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::oci::Reference;

/// What is never given away, whatever the configuration allows.
const BLOCKED: [&str; 6] = ["/dev", "/sys", "/proc", "/boot", "/etc", "/run"];

/// Where an image is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Source {
    /// On a web server.
    Http(Url),
    /// A file of this machine.
    File(PathBuf),
    /// In a container registry.
    Oci(Reference),
}

/// Which files of this machine may be images.
#[derive(Debug, Clone, Default)]
pub struct FilePolicy {
    /// Files are taken only from under these folders. None, no files.
    pub allowed: Vec<PathBuf>,
}

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// It is no address of a kind that is understood.
    #[error(
        "{text:?} is no address of an image ({why}): use http://, https://, file:/// or oci://"
    )]
    Malformed {
        /// What was given, without any password.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The file is not under an allowed folder.
    #[error("{} is not in a folder from which images may be taken: move it there, or allow its folder in the configuration", path.display())]
    NotAllowed {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened.
    #[error("{} cannot be opened", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is a folder or a device.
    #[error("{} is not a plain file", path.display())]
    NotAFile {
        /// What it was.
        path: PathBuf,
    },
}

impl Source {
    /// Understands `http(s)://…`, `file:///…` and `oci://…`.
    pub fn parse(text: &str) -> Result<Self, SourceError> {
        let text = text.trim();
        let bad = |why: String| SourceError::Malformed { text: without_secrets(text), why };
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
            Some("oci") => Reference::parse(text).map(Self::Oci).map_err(|e| bad(e.to_string())),
            Some(other) => Err(bad(format!("{other} is not understood"))),
            None => Err(bad("it has no scheme".to_owned())),
        }
    }

    /// The last part of its path: what a checksum file calls it.
    pub fn file_name(&self) -> String {
        match self {
            Self::Http(url) => {
                let last = url.path_segments().and_then(|mut parts| parts.next_back());
                percent_decoded(last.unwrap_or_default())
            }
            Self::File(path) => {
                path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
            }
            Self::Oci(reference) => {
                reference.repository.rsplit('/').next().unwrap_or_default().to_owned()
            }
        }
    }

    /// Whether an image from here must come with a checksum: nothing else says that it is the
    /// right one. A file is the administrator's own, and a registry has digests.
    pub fn needs_checksum(&self) -> bool {
        matches!(self, Self::Http(_))
    }

    /// The same place with something after the name, such as `.sig`. A registry has no such place.
    pub(crate) fn beside(&self, suffix: &str) -> Option<Self> {
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

/// Without any password in it: this goes to logs.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) => f.write_str(&displayed(url)),
            Self::File(path) => write!(f, "file://{}", path.display()),
            Self::Oci(reference) => fmt::Display::fmt(reference, f),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FilePolicy {
    /// Opens a file that may be given away. Symbolic links are followed as long as they stay in
    /// allowed folders, and one that is changed meanwhile leads nowhere.
    pub(crate) fn open(&self, path: &Path) -> Result<File, SourceError> {
        let failed = |error: io::Error| SourceError::Open { path: path.to_owned(), source: error };
        let not_allowed = || SourceError::NotAllowed { path: path.to_owned() };
        // Whether a file exists outside the allowed folders is nobody's business either.
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if self.allowed.iter().any(|folder| path.starts_with(folder)) => {
                return Err(failed(error));
            }
            Err(_) => return Err(not_allowed()),
        };
        if BLOCKED.iter().any(|blocked| real.starts_with(blocked)) {
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
        // Without waiting, as opening a pipe would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(&folder, &inside, flags, Mode::empty(), resolve);
        let file = File::from(opened.map_err(|error| failed(error.into()))?);
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(SourceError::NotAFile { path: path.to_owned() });
        }
        Ok(file)
    }
}

/// An address for people: the user's name, password and query are not for their eyes.
pub(crate) fn displayed(url: &Url) -> String {
    let mut url = url.clone();
    // Fails only for addresses that have no place for them.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    if url.query().is_some() {
        // Where signed addresses (S3, Swift) have their signatures.
        url.set_query(Some("…"));
    }
    url.set_fragment(None);
    url.to_string().replace("%E2%80%A6", "…")
}

fn without_secrets(text: &str) -> String {
    let shown = Url::parse(text).map_or_else(|_| text.to_owned(), |url| displayed(&url));
    // What does not parse may still have a password.
    match (shown.find("://"), shown.rfind('@')) {
        (Some(start), Some(at)) if at > start => {
            format!("{}…{}", &shown[..start + 3], &shown[at..])
        }
        _ => shown,
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let pair = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match pair.and_then(crate::hex::decode) {
            Some(byte) if first == b'%' => {
                bytes.extend(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::{FilePolicy, Source, SourceError};

    #[test]
    fn what_is_understood() {
        let check = |text: &str, expected: Expect| {
            let shown = match Source::parse(text) {
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
                r#""file://host/x" is no address of an image (it names a host): use http://, https://, file:/// or oci://"#
            ]],
        );
        check(
            "ftp://u:p@h/x",
            expect![[
                r#""ftp://h/x" is no address of an image (ftp is not understood): use http://, https://, file:/// or oci://"#
            ]],
        );
        check(
            "/srv/x.img",
            expect![[
                r#""/srv/x.img" is no address of an image (it has no scheme): use http://, https://, file:/// or oci://"#
            ]],
        );
    }

    #[test]
    fn files_only_from_allowed_folders() {
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
        assert!(matches!(open("escape"), Err(SourceError::NotAllowed { .. })));
        assert!(matches!(open("way-out/secret"), Err(SourceError::NotAllowed { .. })));
        assert!(matches!(open("folder"), Err(SourceError::NotAFile { .. })));
        assert!(matches!(open("absent"), Err(SourceError::Open { .. })));
        let up = inside.path().join("..").join(outside.path().file_name().unwrap()).join("secret");
        assert!(matches!(policy.open(&up), Err(SourceError::NotAllowed { .. })));
        let absent = outside.path().join("absent");
        assert!(matches!(policy.open(&absent), Err(SourceError::NotAllowed { .. })));
        let everything = FilePolicy { allowed: vec!["/".into()] };
        for blocked in ["/etc/passwd", "/proc/self/environ", "/dev/null"] {
            let opened = everything.open(blocked.as_ref());
            assert!(matches!(opened, Err(SourceError::NotAllowed { .. })), "{blocked}");
        }
        assert!(FilePolicy::default().open(&inside.path().join("image")).is_err());
    }

    proptest! {
        #[test]
        fn no_address_is_a_panic(text in "\\PC*") {
            let _ = Source::parse(&text);
            let _ = Source::parse(&format!("oci://{text}"));
            let _ = Source::parse(&format!("http://{text}")).map(|source| source.file_name());
        }
    }
}
