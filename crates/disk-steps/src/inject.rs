// SPDX-License-Identifier: Apache-2.0
//! Writes files into the deployed system: `inject_files`.
//!
//! Paths are resolved as the deployed system would: a symbolic link to `/etc` in an image leads to the
//! image's `/etc`, never to the ramdisk's.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, ftruncate, unlinkat};
use serde_json::{Map, Value};

use crate::device::{Device, DeviceError, partition_path};
use crate::filesystem::identify;
use crate::http::{DownloadError, DownloadSettings};
use crate::mounts::{MountError, MountedFilesystem};
use crate::partitions;
use crate::system_root::{create_directories, open_file, resolve};

/// Maximum size of a downloaded file.
const MAX_CONTENT_SIZE: usize = 256 << 20;
const KNOWN_FIELDS: &[&str] =
    &["path", "partition", "content", "deleted", "mode", "dirmode", "owner", "group"];

/// A file to write into the deployed system, or to remove from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFile {
    /// Path from the root of the partition or of the whole system.
    pub path: String,
    /// Partition number or device; by default the partition that contains the first directory of the
    /// path.
    pub partition: Option<String>,
    /// Content as base64, or a URL; `None` to remove the file.
    pub content: Option<String>,
    /// Permissions of the file.
    pub mode: Option<u32>,
    /// Permissions of its directory, if that is created.
    pub dirmode: Option<u32>,
    /// User ID of the owner.
    pub owner: Option<u32>,
    /// Group ID.
    pub group: Option<u32>,
}

/// A file was not injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The description of the files is invalid.
    #[error("the files to inject are invalid: {}", problems.join("; "))]
    Invalid {
        /// All problems found.
        problems: Vec<String>,
    },
    /// No partition contains the directory.
    #[error(
        "no partition of {device} has the directory /{directory}: set the partition for {path}"
    )]
    NoDirectory {
        /// Path of the disk.
        device: String,
        /// The directory.
        directory: String,
        /// The file.
        path: String,
    },
    /// Downloading the content failed.
    #[error("the content of {path} cannot be downloaded")]
    Download {
        /// The file.
        path: String,
        /// Cause.
        #[source]
        source: DownloadError,
    },
    /// Writing failed.
    #[error("{path} cannot be written into the deployed system")]
    Write {
        /// The file.
        path: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Mounting failed.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// A disk operation failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Parses the files of the node's property and of the step's arguments.
///
/// # Errors
/// Fails with all problems found.
pub fn parse(
    properties: Option<&Value>,
    arguments: Option<&Value>,
) -> Result<Vec<InjectedFile>, InjectError> {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    let sources = [("the property inject_files", properties), ("files", arguments)];
    for (name, list) in sources {
        match list {
            None | Some(Value::Null) => {}
            Some(Value::Array(list)) => {
                for (item, number) in list.iter().zip(1..) {
                    match item.as_object() {
                        Some(file) => files.push(parse_one(file, &mut |problem| {
                            problems.push(format!("{problem} (file {number} of {name})"));
                        })),
                        None => problems.push(format!("file {number} of {name} is not an object")),
                    }
                }
            }
            Some(_) => problems.push(format!("{name} must be a list")),
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(InjectError::Invalid { problems }) }
}

fn parse_one(file: &Map<String, Value>, add_problem: &mut dyn FnMut(String)) -> InjectedFile {
    for name in file.keys().filter(|name| !KNOWN_FIELDS.contains(&name.as_str())) {
        add_problem(format!("there is no field {name:?}"));
    }
    let text = |name: &str| file.get(name).and_then(Value::as_str).map(str::to_owned);
    let path = text("path").unwrap_or_default();
    let partition = match file.get("partition") {
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::String(name)) if !name.is_empty() => Some(name.clone()),
        Some(_) | None => None,
    };
    let components = path.split('/').filter(|part| !part.is_empty()).count();
    if components == 0 || path.ends_with('/') {
        add_problem("a path to a file is needed".to_owned());
    } else if components == 1 && partition.is_none() {
        add_problem("a file in the root directory needs a partition".to_owned());
    }
    let deleted = file.get("deleted").and_then(agent_protocol::parse_bool).unwrap_or(false);
    let content = text("content");
    match (&content, deleted) {
        (Some(content), true) if !content.is_empty() => {
            add_problem("content and deleted do not go together".to_owned());
        }
        (None, false) => add_problem("content is needed".to_owned()),
        (Some(content), false) if !content.contains("://") && STANDARD.decode(content).is_err() => {
            add_problem("content is neither base64 nor a URL".to_owned());
        }
        (_, _) => {}
    }
    let mut number = |name: &str| match file.get(name) {
        None | Some(Value::Null) => None,
        Some(value) => {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            if number.is_none() {
                add_problem(format!("{name} must be a number"));
            }
            number
        }
    };
    InjectedFile {
        mode: number("mode"),
        dirmode: number("dirmode"),
        owner: number("owner"),
        group: number("group"),
        content: content.filter(|_| !deleted),
        path,
        partition,
    }
}

/// Writes files into the system on a disk. `{node[uuid]}` and similar placeholders in URLs are replaced
/// from `context`, an object with `node` and `ports`.
///
/// # Errors
/// Fails at the first file that cannot be written.
pub async fn inject(
    device: &Path,
    files: &[InjectedFile],
    context: &Value,
    http: &DownloadSettings,
) -> Result<(), InjectError> {
    for file in files {
        let content = match &file.content {
            None => None,
            Some(text) if text.contains("://") => {
                let failed = |source| InjectError::Download { path: file.path.clone(), source };
                let remote =
                    http.remote_file(&expand_placeholders(text, context), None).map_err(failed)?;
                Some(remote.bytes(MAX_CONTENT_SIZE).await.map_err(failed)?)
            }
            Some(text) => Some(STANDARD.decode(text).unwrap_or_default()),
        };
        let mounted = mount_partition_of(device, file)?;
        write_file(mounted.path(), file, content.as_deref())?;
        mounted.unmount()?;
    }
    rustix::fs::sync();
    Ok(())
}

/// Mounts the partition for a file.
fn mount_partition_of(
    device: &Path,
    file: &InjectedFile,
) -> Result<MountedFilesystem, InjectError> {
    let open = |path: &Path| -> Result<MountedFilesystem, InjectError> {
        let fs_type =
            identify(&Device::read_only(path)?)?.map_or("ext4", |identity| identity.fs_type);
        Ok(MountedFilesystem::read_write(path, fs_type)?)
    };
    if let Some(partition) = &file.partition {
        return match partition.parse() {
            Ok(number) => open(&partition_path(device, number)),
            Err(_) => open(Path::new(partition)),
        };
    }
    let directory = file.path.split('/').find(|part| !part.is_empty()).unwrap_or_default();
    for found in partitions::list(device)? {
        if found.identity.is_none() {
            continue;
        }
        match open(&found.path) {
            Ok(mounted) if resolve(mounted.path(), directory, OFlags::DIRECTORY).is_ok() => {
                return Ok(mounted);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::info!(path = %found.path.display(), %error, "partition cannot be mounted, skipping it")
            }
        }
    }
    Err(InjectError::NoDirectory {
        device: device.display().to_string(),
        directory: directory.to_owned(),
        path: file.path.clone(),
    })
}

/// Writes or removes one file below `root`. Symbolic links cannot lead out of it.
fn write_file(root: &Path, file: &InjectedFile, content: Option<&[u8]>) -> Result<(), InjectError> {
    let failed = |error: rustix::io::Errno| InjectError::Write {
        path: file.path.clone(),
        source: error.into(),
    };
    let path = PathBuf::from(file.path.trim_matches('/'));
    let (directory, name) = match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => (directory, name),
        (_, _) => return Err(failed(rustix::io::Errno::INVAL)),
    };
    let Some(content) = content else {
        let Ok(directory) = resolve(root, directory, OFlags::DIRECTORY) else { return Ok(()) };
        return match unlinkat(&directory, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(error)),
        };
    };
    create_directories(root, directory, file.dirmode).map_err(failed)?;
    let mut target = open_file(root, &path, OFlags::WRONLY | OFlags::CREATE).map_err(failed)?;
    ftruncate(&target, 0).map_err(failed)?;
    let written = target.write_all(content).and_then(|()| target.sync_all());
    written.map_err(|source| InjectError::Write { path: file.path.clone(), source })?;
    if let Some(mode) = file.mode {
        fchmod(&target, Mode::from_raw_mode(mode)).map_err(failed)?;
    }
    let (owner, group) = (file.owner.map(Uid::from_raw), file.group.map(Gid::from_raw));
    if owner.is_some() || group.is_some() {
        fchown(&target, owner, group).map_err(failed)?;
    }
    Ok(())
}

/// Replaces `{node[uuid]}`, `{ports[0][address]}` and similar placeholders; unknown ones are kept.
fn expand_placeholders(text: &str, context: &Value) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let known = after.split_once('}').and_then(|(name, after)| {
            let mut value = context;
            for part in name.split(['[', ']']).filter(|part| !part.is_empty()) {
                let index = part.parse::<usize>();
                value = value.get(part).or_else(|| value.get(index.ok()?))?;
            }
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Some((text, after))
        });
        match known {
            Some((value, after)) => {
                filled.push_str(&value);
                rest = after;
            }
            None => {
                filled.push('{');
                rest = after;
            }
        }
    }
    filled + rest
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::json;

    use super::*;

    fn file(path: &str) -> InjectedFile {
        let list = json!([{"path": path, "content": "aGVsbG8=", "partition": 1}]);
        parse(None, Some(&list)).unwrap().remove(0)
    }

    #[test]
    fn rejects_invalid_files() {
        let problems = |list: Value| parse(Some(&list), None).unwrap_err().to_string();
        assert!(problems(json!({})).contains("must be a list"));
        for (list, part) in [
            (json!([{"path": "/x", "content": ""}]), "needs a partition"),
            (json!([{"path": "/etc/", "content": ""}]), "a path to a file"),
            (json!([{"path": "/etc/x", "content": "a", "deleted": true}]), "do not go together"),
            (json!([{"path": "/etc/x", "content": "", "mode": "644"}]), "mode must be a number"),
            (json!([{"path": "/etc/x", "content": "", "colour": 1}]), "no field \"colour\""),
            (json!([{"path": "/etc/x", "content": "%%"}]), "neither base64"),
        ] {
            assert!(problems(list).contains(part), "{part}");
        }
        let two = parse(Some(&json!([{"path": "/etc/x", "deleted": true}])), Some(&json!([])));
        assert_eq!(two.unwrap()[0].content, None);
    }

    #[test]
    fn writes_stay_inside_the_system() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(root.path().join("etc")).unwrap();
        symlink(outside.path(), root.path().join("etc/out")).unwrap();
        symlink("/etc", root.path().join("absolute")).unwrap();
        write_file(root.path(), &file("/absolute/inside"), Some(b"hello")).unwrap();
        assert_eq!(std::fs::read(root.path().join("etc/inside")).unwrap(), b"hello");
        // The target of the link does not exist inside the root.
        assert!(write_file(root.path(), &file("/etc/out/x"), Some(b"hello")).is_err());
        write_file(root.path(), &file("/../../etc/above"), Some(b"hello")).unwrap();
        assert_eq!(std::fs::read(root.path().join("etc/above")).unwrap(), b"hello");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        // Writing to a FIFO without reader would block forever.
        let pipe = root.path().join("etc/pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(write_file(root.path(), &file("/etc/pipe"), Some(b"hello")).is_err());
    }

    #[test]
    fn sets_modes_creates_directories_and_removes() {
        let root = tempfile::tempdir().unwrap();
        let mut injected = file("/a/b/c");
        (injected.mode, injected.dirmode) = (Some(0o600), Some(0o700));
        write_file(root.path(), &injected, Some(b"hello")).unwrap();
        let mode = |path: &str| {
            std::fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode("a/b/c"), mode("a/b"), mode("a")), (0o600, 0o700, 0o755));
        write_file(root.path(), &injected, None).unwrap();
        assert!(!root.path().join("a/b/c").exists());
        write_file(root.path(), &file("/not/there"), None).unwrap();
    }

    #[test]
    fn expands_placeholders_in_urls() {
        let context = json!({"node": {"uuid": "u1"}, "ports": [{"address": "aa:bb"}]});
        let text = "http://h/{node[uuid]}/{ports[0][address]}/{node[none]}/{";
        assert_eq!(expand_placeholders(text, &context), "http://h/u1/aa:bb/{node[none]}/{");
    }
}
