// SPDX-License-Identifier: Apache-2.0
//! Puts files into the deployed system: `inject_files`.
//!
//! Paths are looked up as the deployed system would see them. A link in an image to `/etc` leads to
//! the image's `/etc`, never to the ramdisk's.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, ftruncate, unlinkat};
use serde_json::{Map, Value};

use crate::device::{Device, DeviceError, partition_path};
use crate::filesystem::identify;
use crate::http::{Http, HttpError};
use crate::inside::{make_folders, open_file, resolve};
use crate::mounts::{MountError, Mounted};
use crate::partitions;

/// The largest file that is fetched.
const LARGEST: usize = 256 << 20;
const KNOWN: &[&str] =
    &["path", "partition", "content", "deleted", "mode", "dirmode", "owner", "group"];

/// A file to put into the deployed system, or to remove from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFile {
    /// Where, from the root of the partition or of the whole system.
    pub path: String,
    /// On which partition: its number, or a device. If nobody says, the one that has the first
    /// folder of the path.
    pub partition: Option<String>,
    /// What is in it: base64, or an address. None to remove it.
    pub content: Option<String>,
    /// Its permissions.
    pub mode: Option<u32>,
    /// The permissions of its folder, if that has to be made.
    pub dirmode: Option<u32>,
    /// The number of its owner.
    pub owner: Option<u32>,
    /// The number of its group.
    pub group: Option<u32>,
}

/// Why a file is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The files are described wrongly.
    #[error("the files to inject are wrong: {}", problems.join("; "))]
    Invalid {
        /// All that is wrong.
        problems: Vec<String>,
    },
    /// No partition has the folder.
    #[error("no partition of {device} has the folder /{folder}: give the partition for {path}")]
    NoFolder {
        /// The disk.
        device: String,
        /// The folder looked for.
        folder: String,
        /// The file.
        path: String,
    },
    /// Its content did not come.
    #[error("the content of {path} cannot be had")]
    Http {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: HttpError,
    },
    /// It cannot be written.
    #[error("{path} cannot be written into the deployed system")]
    Write {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A partition cannot be mounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The disk failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// Reads the files of the node's properties and of the step's arguments.
///
/// # Errors
/// With all that is wrong with them.
pub fn parse(
    properties: Option<&Value>,
    arguments: Option<&Value>,
) -> Result<Vec<InjectedFile>, Error> {
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
                        None => problems.push(format!("file {number} of {name} is no object")),
                    }
                }
            }
            Some(_) => problems.push(format!("{name} must be a list")),
        }
    }
    if problems.is_empty() { Ok(files) } else { Err(Error::Invalid { problems }) }
}

fn parse_one(file: &Map<String, Value>, say: &mut dyn FnMut(String)) -> InjectedFile {
    for name in file.keys().filter(|name| !KNOWN.contains(&name.as_str())) {
        say(format!("there is no field {name:?}"));
    }
    let text = |name: &str| file.get(name).and_then(Value::as_str).map(str::to_owned);
    let path = text("path").unwrap_or_default();
    let partition = match file.get("partition") {
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::String(name)) if !name.is_empty() => Some(name.clone()),
        Some(_) | None => None,
    };
    let parts = path.split('/').filter(|part| !part.is_empty()).count();
    if parts == 0 || path.ends_with('/') {
        say("a path to a file is needed".to_owned());
    } else if parts == 1 && partition.is_none() {
        say("a file in the root folder needs a partition".to_owned());
    }
    let deleted = file.get("deleted").and_then(agent_protocol::flag).unwrap_or(false);
    let content = text("content");
    match (&content, deleted) {
        (Some(content), true) if !content.is_empty() => {
            say("content and deleted do not go together".to_owned());
        }
        (None, false) => say("content is needed".to_owned()),
        (Some(content), false) if !content.contains("://") && STANDARD.decode(content).is_err() => {
            say("content is neither base64 nor an address".to_owned());
        }
        (_, _) => {}
    }
    let mut number = |name: &str| match file.get(name) {
        None | Some(Value::Null) => None,
        Some(value) => {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            if number.is_none() {
                say(format!("{name} must be a number"));
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

/// Puts files into the system on a disk. `{node[uuid]}` and the like in addresses are replaced from
/// `facts`, an object with `node` and `ports`.
///
/// # Errors
/// If one of them cannot be put where it should.
pub async fn inject(
    device: &Path,
    files: &[InjectedFile],
    facts: &Value,
    http: &Http,
) -> Result<(), Error> {
    for file in files {
        let content = match &file.content {
            None => None,
            Some(text) if text.contains("://") => {
                let failed = |source| Error::Http { path: file.path.clone(), source };
                let remote = http.remote(&fill_in(text, facts), None).map_err(failed)?;
                Some(remote.bytes(LARGEST).await.map_err(failed)?)
            }
            Some(text) => Some(STANDARD.decode(text).unwrap_or_default()),
        };
        let mounted = mount_for(device, file)?;
        put(mounted.path(), file, content.as_deref())?;
        mounted.unmount()?;
    }
    rustix::fs::sync();
    Ok(())
}

/// Mounts the partition that a file is for.
fn mount_for(device: &Path, file: &InjectedFile) -> Result<Mounted, Error> {
    let open = |path: &Path| -> Result<Mounted, Error> {
        let kind = identify(&Device::read_only(path)?)?.map_or("ext4", |identity| identity.kind);
        Ok(Mounted::read_write(path, kind)?)
    };
    if let Some(partition) = &file.partition {
        return match partition.parse() {
            Ok(number) => open(&partition_path(device, number)),
            Err(_) => open(Path::new(partition)),
        };
    }
    let folder = file.path.split('/').find(|part| !part.is_empty()).unwrap_or_default();
    for found in partitions::list(device)? {
        if found.identity.is_none() {
            continue;
        }
        match open(&found.path) {
            Ok(mounted) if resolve(mounted.path(), folder, OFlags::DIRECTORY).is_ok() => {
                return Ok(mounted);
            }
            Ok(_) => {}
            Err(error) => tracing::info!(%error, "its files are not looked at"),
        }
    }
    Err(Error::NoFolder {
        device: device.display().to_string(),
        folder: folder.to_owned(),
        path: file.path.clone(),
    })
}

/// Writes or removes one file below `root`, from which nothing leads out.
fn put(root: &Path, file: &InjectedFile, content: Option<&[u8]>) -> Result<(), Error> {
    let failed =
        |error: rustix::io::Errno| Error::Write { path: file.path.clone(), source: error.into() };
    let path = PathBuf::from(file.path.trim_matches('/'));
    let (folder, name) = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => (folder, name),
        (_, _) => return Err(failed(rustix::io::Errno::INVAL)),
    };
    let Some(content) = content else {
        let Ok(folder) = resolve(root, folder, OFlags::DIRECTORY) else { return Ok(()) };
        return match unlinkat(&folder, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(failed(error)),
        };
    };
    make_folders(root, folder, file.dirmode).map_err(failed)?;
    let mut target = open_file(root, &path, OFlags::WRONLY | OFlags::CREATE).map_err(failed)?;
    ftruncate(&target, 0).map_err(failed)?;
    let written = target.write_all(content).and_then(|()| target.sync_all());
    written.map_err(|source| Error::Write { path: file.path.clone(), source })?;
    if let Some(mode) = file.mode {
        fchmod(&target, Mode::from_raw_mode(mode)).map_err(failed)?;
    }
    let (owner, group) = (file.owner.map(Uid::from_raw), file.group.map(Gid::from_raw));
    if owner.is_some() || group.is_some() {
        fchown(&target, owner, group).map_err(failed)?;
    }
    Ok(())
}

/// Replaces `{node[uuid]}`, `{ports[0][address]}` and the like. What is not known stays.
fn fill_in(text: &str, facts: &Value) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let known = after.split_once('}').and_then(|(name, after)| {
            let mut value = facts;
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
    fn files_are_checked() {
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
    fn nothing_leads_out_of_the_system() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(root.path().join("etc")).unwrap();
        symlink(outside.path(), root.path().join("etc/out")).unwrap();
        symlink("/etc", root.path().join("absolute")).unwrap();
        put(root.path(), &file("/absolute/inside"), Some(b"hello")).unwrap();
        assert_eq!(std::fs::read(root.path().join("etc/inside")).unwrap(), b"hello");
        // The link's target does not exist in the system, so that there is nowhere to write.
        assert!(put(root.path(), &file("/etc/out/x"), Some(b"hello")).is_err());
        put(root.path(), &file("/../../etc/above"), Some(b"hello")).unwrap();
        assert_eq!(std::fs::read(root.path().join("etc/above")).unwrap(), b"hello");
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
        // Nobody reads from a pipe in an image, so that writing to it would never end.
        let pipe = root.path().join("etc/pipe");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(put(root.path(), &file("/etc/pipe"), Some(b"hello")).is_err());
    }

    #[test]
    fn modes_folders_and_removal() {
        let root = tempfile::tempdir().unwrap();
        let mut wanted = file("/a/b/c");
        (wanted.mode, wanted.dirmode) = (Some(0o600), Some(0o700));
        put(root.path(), &wanted, Some(b"hello")).unwrap();
        let mode = |path: &str| {
            std::fs::metadata(root.path().join(path)).unwrap().permissions().mode() & 0o777
        };
        assert_eq!((mode("a/b/c"), mode("a/b"), mode("a")), (0o600, 0o700, 0o755));
        put(root.path(), &wanted, None).unwrap();
        assert!(!root.path().join("a/b/c").exists());
        put(root.path(), &file("/not/there"), None).unwrap();
    }

    #[test]
    fn addresses_know_the_node() {
        let facts = json!({"node": {"uuid": "u1"}, "ports": [{"address": "aa:bb"}]});
        let text = "http://h/{node[uuid]}/{ports[0][address]}/{node[none]}/{";
        assert_eq!(fill_in(text, &facts), "http://h/u1/aa:bb/{node[none]}/{");
    }
}
