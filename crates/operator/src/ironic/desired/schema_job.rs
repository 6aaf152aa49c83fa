// SPDX-License-Identifier: Apache-2.0
//! The Job that changes the database schema before pods of a new version start.

use serde_json::{Value, json};

use super::super::facts::content_hash;
use super::configuration::{DATA_FOLDER, SEALING_KEYS_VARIABLE, state_environment};
use super::metadata::{labels, object, object_names};
use super::pod::{
    DATA_VOLUME, GROUP, database_mount, database_volume, schedule, service_image, unprivileged,
};
use super::{DesiredInput, overrides};

/// Seconds for which a finished Job is kept.
const TIME_TO_LIVE: u32 = 86400;
/// Maximum length of the name of a Job, which becomes a label of its pods.
const MAX_NAME: usize = 63;

/// A Job, and what identifies its work.
pub(super) struct SchemaJob {
    pub(super) object: Value,
    /// Target version and hash of the content. The name also has the installed version, which changes
    /// when the upgrade is finished.
    pub(super) identity: String,
}

/// The Job, if there is a database server. Its name contains a hash of its content, because the
/// template of a Job cannot be changed: a corrected image or override starts a new one.
pub(super) fn schema_job(input: &DesiredInput<'_>) -> Option<SchemaJob> {
    input.facts.database.as_ref()?;
    let spec = job_spec(input);
    let hash = content_hash(&[("spec", spec.to_string().as_bytes())]);
    let status = input.ironic.status.as_ref();
    let from = status.and_then(|status| status.installed_version.as_deref()).unwrap_or("none");
    let identity = format!("{}-{hash}", input.version);
    let suffix = format!("-pre-{from}-to-{identity}");
    let name = object_names(input.ironic).service;
    let kept: String = name.chars().take(MAX_NAME.saturating_sub(suffix.len())).collect();
    let mut job = object(input, "batch/v1", "Job", &format!("{kept}{suffix}"));
    job["spec"] = spec;
    Some(SchemaJob { object: job, identity })
}

fn job_spec(input: &DesiredInput<'_>) -> Value {
    let mut all = overrides::labels(input.ironic);
    all.extend(labels(input));
    let mut mounts = vec![json!({"name": DATA_VOLUME, "mountPath": DATA_FOLDER})];
    mounts.extend(database_mount(input));
    let mut volumes = vec![json!({"name": DATA_VOLUME, "emptyDir": {}})];
    volumes.extend(database_volume(input));
    // Not the configuration file: pods of the installed version still use it.
    let mut environment = state_environment(input);
    for (name, value) in [
        ("FERRITE_DATA_DIR", DATA_FOLDER),
        ("FERRITE_SECRETS__KEY_VARIABLE", SEALING_KEYS_VARIABLE),
    ] {
        environment.push(json!({"name": name, "value": value}));
    }
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {"fsGroup": GROUP},
        "containers": [{
            "name": "database-upgrade",
            "image": service_image(input),
            "args": ["database", "migrate"],
            "env": environment,
            "volumeMounts": mounts,
            "securityContext": unprivileged(),
        }],
        "volumes": volumes,
    });
    schedule(input, &mut pod);
    if let Some(requested) = &input.ironic.spec.overrides {
        overrides::volumes(requested, &mut pod);
    }
    json!({
        "ttlSecondsAfterFinished": TIME_TO_LIVE,
        "podReplacementPolicy": "Failed",
        "template": {
            "metadata": {"labels": all, "annotations": overrides::annotations(input.ironic)},
            "spec": pod,
        },
    })
}
