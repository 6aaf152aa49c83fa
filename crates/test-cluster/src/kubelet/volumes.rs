// SPDX-License-Identifier: Apache-2.0
//! The volumes of a pod, as folders of this machine.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    KeyToPath, PersistentVolume, PersistentVolumeClaim, Pod, ProjectedVolumeSource, ServiceAccount,
    Volume, VolumeProjection,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

use super::contents::{ContentSource, Contents};
use super::environment::pod_field;

/// Mode of files from objects, unless the volume has another.
const DEFAULT_MODE: i32 = 0o644;

/// The volumes of one pod.
pub(super) struct PodVolumes {
    /// The folder of each volume.
    paths: BTreeMap<String, PathBuf>,
    folder: PathBuf,
    /// The disk of the node.
    node_folder: PathBuf,
    group: Option<u32>,
    /// Whether the group of all files is set, even if that of the folder is right.
    changes_all_groups: bool,
    /// Service account tokens by volume and path.
    tokens: HashMap<(String, String), String>,
    /// What was written to volumes with the content of objects.
    written: HashMap<String, Vec<ContentFile>>,
    generation: u64,
}

/// One file of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ContentFile {
    path: String,
    data: Vec<u8>,
    mode: u32,
}

impl PodVolumes {
    pub(super) fn new(pod: &Pod, folder: &Path, node_folder: &Path) -> Self {
        let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
        Self {
            paths: BTreeMap::new(),
            folder: folder.join("volumes"),
            node_folder: node_folder.to_owned(),
            group: context.and_then(|context| context.fs_group?.try_into().ok()),
            changes_all_groups: context
                .and_then(|context| context.fs_group_change_policy.as_deref())
                != Some("OnRootMismatch"),
            tokens: HashMap::new(),
            written: HashMap::new(),
            generation: 0,
        }
    }

    /// The folder of a volume.
    pub(super) fn path(&self, name: &str) -> Option<&Path> {
        self.paths.get(name).map(PathBuf::as_path)
    }

    /// Creates all volumes. Fails while an object is missing or a claim is not bound.
    pub(super) async fn prepare(
        &mut self,
        client: &Client,
        contents: &Contents,
        pod: &Pod,
    ) -> Result<()> {
        for volume in volumes_of(pod) {
            let attempt = self.prepare_one(client, contents, pod, volume).await;
            let path = attempt.with_context(|| {
                format!("MountVolume.SetUp failed for volume {:?}", volume.name)
            })?;
            self.paths.insert(volume.name.clone(), path);
        }
        Ok(())
    }

    async fn prepare_one(
        &mut self,
        client: &Client,
        contents: &Contents,
        pod: &Pod,
        volume: &Volume,
    ) -> Result<PathBuf> {
        let folder = self.folder.join(&volume.name);
        if let Some(claim) = &volume.persistent_volume_claim {
            let path = claimed_folder(client, pod, &claim.claim_name).await?;
            if let Some(group) = self.group
                && (self.changes_all_groups || !belongs_to_group(&path, group)?)
            {
                give_to_group(&path, group)?;
            }
            return Ok(path);
        }
        if let Some(host) = &volume.host_path {
            // Each node has its own files, none of this machine.
            let path = self.node_folder.join(host.path.trim_start_matches('/'));
            fs::create_dir_all(&path)?;
            return Ok(path);
        }
        fs::create_dir_all(&folder)?;
        if volume.empty_dir.is_some() {
            fs::set_permissions(&folder, Permissions::from_mode(0o2777))?;
            chown(&folder, None, self.group)?;
            return Ok(folder);
        }
        if let Some(projected) = &volume.projected {
            self.request_tokens(client, pod, &volume.name, projected).await?;
        }
        self.write(contents, pod, volume)?;
        Ok(folder)
    }

    /// Writes changed content of objects into the volumes, as a real kubelet does sooner or later.
    pub(super) fn refresh(&mut self, contents: &Contents, pod: &Pod) {
        for volume in volumes_of(pod) {
            // The content of a deleted object stays.
            let _kept = self.write(contents, pod, volume);
        }
    }

    /// Writes the files of a volume if they changed.
    fn write(&mut self, contents: &Contents, pod: &Pod, volume: &Volume) -> Result<()> {
        let Some(files) = self.files(contents, pod, volume)? else { return Ok(()) };
        if self.written.get(&volume.name) == Some(&files) {
            return Ok(());
        }
        self.generation += 1;
        replace_files(&self.folder.join(&volume.name), self.generation, &files, self.group)?;
        self.written.insert(volume.name.clone(), files);
        Ok(())
    }

    /// The files of a volume; `None` if it does not have the content of objects.
    fn files(
        &self,
        contents: &Contents,
        pod: &Pod,
        volume: &Volume,
    ) -> Result<Option<Vec<ContentFile>>> {
        let namespace = pod.namespace().unwrap_or_default();
        let object = |kind, name: &str, items, mode, optional| {
            let entries = contents.get(kind, &namespace, name);
            object_files(entries, items, mode, optional)
                .with_context(|| format!("{} {namespace}/{name}", kind.name()))
        };
        if let Some(secret) = &volume.secret {
            let name = secret.secret_name.clone().unwrap_or_default();
            let (items, mode) = (secret.items.as_deref(), secret.default_mode);
            return object(ContentSource::Secret, &name, items, mode, secret.optional).map(Some);
        }
        if let Some(map) = &volume.config_map {
            let (items, mode) = (map.items.as_deref(), map.default_mode);
            return object(ContentSource::ConfigMap, &map.name, items, mode, map.optional)
                .map(Some);
        }
        if let Some(downward) = &volume.downward_api {
            let items = downward.items.iter().flatten();
            let fields = items.map(|item| (&item.path, item.field_ref.as_ref()));
            return downward_files(pod, fields, downward.default_mode).map(Some);
        }
        let Some(projected) = &volume.projected else {
            bail!("this kind of volume is not supported by the test kubelet");
        };
        let mode = projected.default_mode;
        let mut files = Vec::new();
        for source in projected.sources.iter().flatten() {
            let VolumeProjection {
                secret, config_map, downward_api, service_account_token, ..
            } = source;
            if let Some(secret) = secret {
                let (items, optional) = (secret.items.as_deref(), secret.optional);
                files.extend(object(ContentSource::Secret, &secret.name, items, mode, optional)?);
            }
            if let Some(map) = config_map {
                let (items, optional) = (map.items.as_deref(), map.optional);
                files.extend(object(ContentSource::ConfigMap, &map.name, items, mode, optional)?);
            }
            if let Some(downward) = downward_api {
                let items = downward.items.iter().flatten();
                let fields = items.map(|item| (&item.path, item.field_ref.as_ref()));
                files.extend(downward_files(pod, fields, mode)?);
            }
            if let Some(token) = service_account_token {
                let key = (volume.name.clone(), token.path.clone());
                let data = self.tokens.get(&key).context("there is no token yet")?;
                let data = data.clone().into_bytes();
                files.push(ContentFile {
                    path: token.path.clone(),
                    data,
                    mode: file_mode(None, mode),
                });
            }
        }
        Ok(Some(files))
    }

    async fn request_tokens(
        &mut self,
        client: &Client,
        pod: &Pod,
        volume: &str,
        projected: &ProjectedVolumeSource,
    ) -> Result<()> {
        let namespace = pod.namespace().unwrap_or_default();
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
        let sources = projected.sources.iter().flatten();
        for wanted in sources.filter_map(|source| source.service_account_token.as_ref()) {
            let request = TokenRequest {
                spec: TokenRequestSpec {
                    audiences: wanted.audience.iter().cloned().collect(),
                    expiration_seconds: wanted.expiration_seconds,
                    bound_object_ref: Some(BoundObjectReference {
                        api_version: Some("v1".to_owned()),
                        kind: Some("Pod".to_owned()),
                        name: pod.metadata.name.clone(),
                        uid: pod.uid(),
                    }),
                },
                ..TokenRequest::default()
            };
            let name = account.as_deref().unwrap_or("default");
            let response =
                accounts.create_token_request(name, &PostParams::default(), &request).await?;
            let token = response.status.context("the response has no token")?.token;
            self.tokens.insert((volume.to_owned(), wanted.path.clone()), token);
        }
        Ok(())
    }
}

fn volumes_of(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

/// The folder of a bound claim.
async fn claimed_folder(client: &Client, pod: &Pod, claim: &str) -> Result<PathBuf> {
    let namespace = pod.namespace().unwrap_or_default();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &namespace);
    let found = claims.get(claim).await?;
    let is_bound = found.status.and_then(|status| status.phase).as_deref() == Some("Bound");
    let volume = found.spec.and_then(|spec| spec.volume_name).filter(|_| is_bound);
    let volume = volume.with_context(|| format!("the claim {claim} is not bound"))?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let source = volumes.get(&volume).await?.spec.and_then(|spec| spec.host_path);
    let path = source.with_context(|| format!("the volume {volume} has no hostPath"))?.path;
    fs::create_dir_all(&path)?;
    Ok(path.into())
}

/// Whether the folder of a volume is accessible to the group of the pod.
fn belongs_to_group(folder: &Path, group: u32) -> Result<bool> {
    const NEEDED: u32 = 0o2070;
    let metadata = fs::metadata(folder)?;
    Ok(metadata.gid() == group && metadata.mode() & NEEDED == NEEDED)
}

/// Makes all files accessible to the group of the pod.
fn give_to_group(folder: &Path, group: u32) -> Result<()> {
    let run = |program: &str, arguments: &[&str]| -> Result<()> {
        let status = Command::new(program).args(arguments).arg(folder).status()?;
        anyhow::ensure!(status.success(), "{program} failed with {status}");
        Ok(())
    };
    run("chgrp", &["-R", &group.to_string()])?;
    run("chmod", &["-R", "g+rwX"])?;
    run("chmod", &["g+s"])
}

fn file_mode(item: Option<i32>, volume: Option<i32>) -> u32 {
    item.or(volume).unwrap_or(DEFAULT_MODE).unsigned_abs()
}

fn object_files(
    entries: Option<BTreeMap<String, Vec<u8>>>,
    items: Option<&[KeyToPath]>,
    mode: Option<i32>,
    optional: Option<bool>,
) -> Result<Vec<ContentFile>> {
    let is_optional = optional == Some(true);
    let mut entries = match entries {
        Some(entries) => entries,
        None if is_optional => return Ok(Vec::new()),
        None => bail!("not found"),
    };
    let Some(items) = items else {
        let file = |(path, data)| ContentFile { path, data, mode: file_mode(None, mode) };
        return Ok(entries.into_iter().map(file).collect());
    };
    let mut files = Vec::new();
    for item in items {
        match entries.remove(&item.key) {
            Some(data) => files.push(ContentFile {
                path: item.path.clone(),
                data,
                mode: file_mode(item.mode, mode),
            }),
            None if is_optional => {}
            None => bail!("references non-existent key {:?}", item.key),
        }
    }
    Ok(files)
}

fn downward_files<'a>(
    pod: &Pod,
    fields: impl Iterator<
        Item = (&'a String, Option<&'a k8s_openapi::api::core::v1::ObjectFieldSelector>),
    >,
    mode: Option<i32>,
) -> Result<Vec<ContentFile>> {
    fields
        .map(|(path, field)| {
            let field = field.context("only fields of the pod are supported")?;
            let value = pod_field(pod, &field.field_path).map_err(anyhow::Error::msg)?;
            let data = value.into_bytes();
            Ok(ContentFile { path: path.clone(), data, mode: file_mode(None, mode) })
        })
        .collect()
}

/// Replaces all files at once, with the links of a real kubelet: readers see the old files or the new
/// ones.
fn replace_files(
    folder: &Path,
    generation: u64,
    files: &[ContentFile],
    group: Option<u32>,
) -> Result<()> {
    let current = folder.join("..data");
    let previous = fs::read_link(&current).ok();
    let name = format!("..{generation}");
    for file in files {
        let path = folder.join(&name).join(&file.path);
        fs::create_dir_all(path.parent().context("a file without a name")?)?;
        fs::write(&path, &file.data)?;
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        chown(&path, None, group)?;
    }
    fs::create_dir_all(folder.join(&name))?;
    let next = folder.join("..data_tmp");
    symlink(&name, &next)?;
    fs::rename(&next, &current)?;
    let top = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
    let wanted: BTreeSet<String> = files.iter().map(|file| top(&file.path)).collect();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with("..") && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    for name in wanted {
        let link = folder.join(&name);
        if fs::symlink_metadata(&link).is_err() {
            symlink(Path::new("..data").join(&name), link)?;
        }
    }
    if let Some(previous) = previous {
        fs::remove_dir_all(folder.join(previous))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_and_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |path: &str, data: &str| ContentFile {
            path: path.to_owned(),
            data: data.into(),
            mode: 0o400,
        };
        let read = |path: &str| fs::read_to_string(folder.path().join(path)).ok();
        let first = [file("a", "1"), file("sub/b", "2")];
        replace_files(folder.path(), 1, &first, None).expect("written");
        assert_eq!((read("a").as_deref(), read("sub/b").as_deref()), (Some("1"), Some("2")));
        replace_files(folder.path(), 2, &[file("a", "3")], None).expect("written");
        assert_eq!((read("a").as_deref(), read("sub/b")), (Some("3"), None));
        let mode = fs::metadata(folder.path().join("a")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
    }

    #[test]
    fn missing_objects_and_keys_are_errors_unless_optional() {
        let entries = || Some(BTreeMap::from([("key".to_owned(), b"x".to_vec())]));
        let item = |key: &str| KeyToPath {
            key: key.to_owned(),
            path: "file".to_owned(),
            mode: Some(0o600),
        };
        assert!(object_files(None, None, None, None).is_err());
        assert_eq!(object_files(None, None, None, Some(true)).expect("optional"), []);
        assert_eq!(object_files(entries(), None, None, None).expect("all")[0].mode, 0o644);
        let chosen = object_files(entries(), Some(&[item("key")]), Some(0o440), None);
        let chosen = chosen.expect("an item");
        assert_eq!((chosen[0].path.as_str(), chosen[0].mode), ("file", 0o600));
        assert!(object_files(entries(), Some(&[item("other")]), None, None).is_err());
    }
}
