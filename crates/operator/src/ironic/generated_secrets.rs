// SPDX-License-Identifier: Apache-2.0
//! Secrets that the controller generates: API credentials, sealing keys, certificate.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::SystemTime;

use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube_resources::ironic::names::{
    APP_LABEL, APPLIED_HASH, CERTIFICATE_NAMES, IRONIC_LABEL, OPT_IN_LABEL, event_reason,
    secret_keys,
};
use serde_json::json;

use super::certificate::{
    StoredAuthorityPem, StoredCertificatePem, certificate_hosts, certificate_plan,
};
use super::controller::{IronicReconciler, event_subject};
use super::credentials::{
    ApiCredentials, CredentialsError, PASSWORD_RANDOM_BYTES, SALT_BYTES, SEALING_KEY_BYTES,
    is_current_htpasswd, sealing_key,
};
use super::desired::{
    CertificatePem, SEALING_KEYS_KEY, api_credentials_secret, certificate_authority_secret,
    certificate_secret, object_names, sealing_keys_secret,
};
use super::reconcile::InstallationPass;
use crate::linked_objects::{LabelRule, LinkedKind, LinkedObject};
use crate::object_loop::Obstacle;
use crate::owned_objects::{ObjectIdentity, api_error_text};

/// Secrets that are known to be verified.
const MAX_VERIFIED: usize = 1000;

impl IronicReconciler {
    /// The Secret with API credentials and a user file that belongs to them.
    pub(super) async fn api_credentials(
        &self,
        pass: &mut InstallationPass,
    ) -> Result<LinkedObject, Obstacle> {
        let name = match &pass.ironic.spec.api_credentials_name {
            Some(name) => name.clone(),
            None => self.generate_credentials(pass).await?,
        };
        let named = |obstacle: Obstacle| obstacle.named_by("spec.apiCredentialsName");
        let secret = pass.linked.read(LinkedKind::Secret, &name, LabelRule::Required).await;
        let secret = secret.map_err(named)?;
        if self.is_verified(&secret) {
            return Ok(secret);
        }
        let secret = with_user_file(self, pass, secret).await.map_err(named)?;
        self.record_verified(&secret);
        Ok(secret)
    }

    /// Creates the Secret, unless a previous attempt did, and writes its name into the spec.
    async fn generate_credentials(&self, pass: &mut InstallationPass) -> Result<String, Obstacle> {
        let api: Api<Secret> = Api::namespaced(self.context.client.clone(), &pass.namespace);
        let name = match existing_credentials(pass, &api).await? {
            Some(name) => name,
            None => {
                let ironic = pass.ironic.metadata.name.clone().unwrap_or_default();
                let credentials = on_other_thread(move || {
                    ApiCredentials::generate(
                        &ironic,
                        &random::<PASSWORD_RANDOM_BYTES>()?,
                        random::<SALT_BYTES>()?,
                    )
                    .map_err(|error| unusable(&error))
                })
                .await?;
                let secret = api_credentials_secret(&pass.ironic, &credentials);
                let secret: Secret = serde_json::from_value(secret).map_err(internal)?;
                let created = api.create(&PostParams::default(), &secret).await;
                let created = created.map_err(|error| {
                    Obstacle::request("cannot create the Secret with API credentials", &error)
                })?;
                let name = created.metadata.name.unwrap_or_default();
                let note = format!("Secret {name} with generated API credentials was created");
                let subject = event_subject(&pass.object);
                self.events.normal(&subject, event_reason::API_SECRET_CREATED, &note).await;
                name
            }
        };
        let fields = json!({"spec": {"apiCredentialsName": name}});
        pass.object = pass.patches.patch(&pass.object, fields).await?;
        pass.ironic.spec.api_credentials_name = Some(name.clone());
        pass.ironic.metadata = pass.object.metadata.clone();
        Ok(name)
    }

    fn is_verified(&self, secret: &LinkedObject) -> bool {
        let verified = self.verified_secrets.lock().unwrap_or_else(PoisonError::into_inner);
        let version = secret.metadata.uid.as_ref().and_then(|uid| verified.get(uid));
        version.is_some() && version == secret.metadata.resource_version.as_ref()
    }

    fn record_verified(&self, secret: &LinkedObject) {
        let metadata = &secret.metadata;
        if let (Some(uid), Some(version)) = (&metadata.uid, &metadata.resource_version) {
            let mut verified = self.verified_secrets.lock().unwrap_or_else(PoisonError::into_inner);
            // Deleted Secrets are never removed one by one.
            if verified.len() >= MAX_VERIFIED {
                verified.clear();
            }
            verified.insert(uid.clone(), version.clone());
        }
    }

    /// Creates the Secret with sealing keys once. A lost one is not replaced: what the database contains
    /// could not be read any more.
    pub(super) async fn ensure_sealing_keys(
        &self,
        pass: &InstallationPass,
    ) -> Result<(), Obstacle> {
        let name = object_names(&pass.ironic).sealing_keys;
        if let Some(secret) = pass.linked.read_optional(LinkedKind::Secret, &name).await? {
            return secret.required_text(&pass.namespace, SEALING_KEYS_KEY).map(|_| ());
        }
        let status = pass.ironic.status.as_ref();
        let is_installed = status.is_some_and(|status| status.installed_version.is_some());
        if is_installed && !is_of_metal3(pass).await? {
            let text = format!(
                "secret {}/{name} with the sealing keys is missing; restore it, or create it with a \
                 new key (`ferrite secrets new-key`) as {SEALING_KEYS_KEY} if the credentials in the \
                 database may be lost",
                pass.namespace
            );
            return Err(Obstacle::for_user(text).with_event(event_reason::INVALID_LINKED_RESOURCE));
        }
        let keys = sealing_key(&random::<SEALING_KEY_BYTES>()?);
        pass.owned.create(&sealing_keys_secret(&pass.ironic, &keys)).await?;
        Ok(())
    }

    /// The Secret with the certificate, and when it has to be renewed if the operator issued it.
    pub(super) async fn certificate(
        &self,
        pass: &InstallationPass,
    ) -> Result<(Option<LinkedObject>, Option<SystemTime>), Obstacle> {
        let tls = &pass.ironic.spec.tls;
        if let Some(name) = &tls.certificate_name {
            let named = |obstacle: Obstacle| obstacle.named_by("spec.tls.certificateName");
            let secret = pass.linked.read(LinkedKind::Secret, name, LabelRule::Required).await;
            let secret = secret.map_err(named)?;
            for key in [secret_keys::TLS_CERTIFICATE, secret_keys::TLS_KEY] {
                secret.required_text(&pass.namespace, key).map_err(named)?;
            }
            return Ok((Some(secret), None));
        }
        if !tls.generate {
            return Ok((None, None));
        }
        let renew_at = self.issue_certificate(pass).await?;
        let name = object_names(&pass.ironic).generated_certificate;
        let secret = pass.linked.read(LinkedKind::Secret, &name, LabelRule::Required).await?;
        Ok((Some(secret), Some(renew_at)))
    }

    /// Issues or renews the certificate if that is due.
    async fn issue_certificate(&self, pass: &InstallationPass) -> Result<SystemTime, Obstacle> {
        let names = object_names(&pass.ironic);
        let stored_authority =
            pass.linked.read_optional(LinkedKind::Secret, &names.certificate_authority).await?;
        let stored =
            pass.linked.read_optional(LinkedKind::Secret, &names.generated_certificate).await?;
        let authority = stored_authority.as_ref().map(|secret| StoredAuthorityPem {
            certificate: secret.text(secret_keys::TLS_CERTIFICATE),
            key: secret.text(secret_keys::TLS_KEY),
        });
        let certificate = stored.as_ref().map(|secret| StoredCertificatePem {
            certificate: secret.text(secret_keys::TLS_CERTIFICATE),
            key: secret.text(secret_keys::TLS_KEY),
            authority: secret.text(secret_keys::TLS_CA),
            names: secret
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(CERTIFICATE_NAMES))
                .map(String::as_str)
                .unwrap_or_default(),
        });
        let addresses = self.pod_addresses(pass).await?;
        let hosts = certificate_hosts(&pass.ironic, &self.settings, &addresses);
        let plan = certificate_plan(authority, certificate, &hosts, SystemTime::now())
            .map_err(|error| Obstacle::transient(error_chain::error_chain(&error)))?;
        let ironic = &pass.ironic;
        let key = plan.authority_key.reveal();
        pass.owned.apply(&certificate_authority_secret(ironic, &plan.authority, key)).await?;
        let pem = CertificatePem {
            certificate: &plan.certificate,
            key: plan.key.reveal(),
            authority: &plan.authority,
        };
        pass.owned.apply(&certificate_secret(ironic, &pem, &plan.names)).await?;
        if plan.is_new {
            let note = format!("a certificate for {} was issued", plan.names);
            let subject = event_subject(&pass.object);
            self.events.normal(&subject, event_reason::CERTIFICATE_ISSUED, &note).await;
        }
        Ok(plan.renew_at)
    }

    /// Addresses of the pods, or of their nodes if they use the network of the node.
    async fn pod_addresses(&self, pass: &InstallationPass) -> Result<BTreeSet<String>, Obstacle> {
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), &pass.namespace);
        let label = format!("{APP_LABEL}={}", object_names(&pass.ironic).workload);
        let pods = api.list(&ListParams::default().labels(&label)).await;
        let pods = pods.map_err(|error| Obstacle::request("cannot list pods", &error))?;
        let mut addresses = BTreeSet::new();
        for pod in pods.items {
            let Some(status) = pod.status.filter(|_| pod.metadata.deletion_timestamp.is_none())
            else {
                continue;
            };
            if pass.ironic.spec.networking.disable_host_network {
                addresses.extend(status.pod_ip);
                addresses.extend(status.pod_ips.into_iter().flatten().map(|address| address.ip));
            } else {
                addresses.extend(status.host_ip);
                addresses.extend(status.host_ips.into_iter().flatten().map(|address| address.ip));
            }
        }
        addresses.retain(|address| !address.is_empty());
        Ok(addresses)
    }
}

/// A Secret that an attempt created before it could write its name into the spec.
async fn existing_credentials(
    pass: &InstallationPass,
    api: &Api<Secret>,
) -> Result<Option<String>, Obstacle> {
    let name = pass.ironic.metadata.name.as_deref().unwrap_or_default();
    let (opt_in, value) = OPT_IN_LABEL;
    let params = ListParams::default()
        .labels(&format!("{IRONIC_LABEL}={name},{opt_in}={value}"))
        .fields("type=kubernetes.io/basic-auth");
    let found = api.list_metadata(&params).await;
    let found = found.map_err(|error| Obstacle::request("cannot list Secrets", &error))?;
    let uid = pass.ironic.metadata.uid.as_deref();
    let mut owned: Vec<_> = found
        .items
        .into_iter()
        .map(|secret| secret.metadata)
        .filter(|metadata| {
            let mut owners = metadata.owner_references.iter().flatten();
            owners.any(|owner| Some(owner.uid.as_str()) == uid)
        })
        .collect();
    owned.sort_by_key(|metadata| {
        let created = metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, metadata.name.clone())
    });
    Ok(owned.into_iter().find_map(|metadata| metadata.name))
}

/// Writes the user file into the Secret if it does not belong to user and password.
async fn with_user_file(
    reconciler: &IronicReconciler,
    pass: &InstallationPass,
    secret: LinkedObject,
) -> Result<LinkedObject, Obstacle> {
    let [user, password, file] =
        [secret_keys::USERNAME, secret_keys::PASSWORD, secret_keys::HTPASSWD]
            .map(|key| secret.text(key).to_owned());
    let name = secret.name.clone();
    let written = on_other_thread(move || {
        let salt = random::<SALT_BYTES>()?;
        let credentials = ApiCredentials::with_password(&user, &password, salt);
        let credentials = credentials.map_err(|error| unusable(&error))?;
        let is_current = is_current_htpasswd(&file, &user, &password);
        Ok((!is_current).then_some(credentials.htpasswd))
    })
    .await
    .map_err(|obstacle| Obstacle {
        text: format!("cannot load secret {}/{name}: {}", pass.namespace, obstacle.text),
        event: Some(event_reason::INVALID_LINKED_RESOURCE),
        ..obstacle
    })?;
    let Some(file) = written else { return Ok(secret) };
    let api: Api<Secret> = Api::namespaced(reconciler.context.client.clone(), &pass.namespace);
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": secret.metadata.resource_version},
        "stringData": {secret_keys::HTPASSWD: file},
    }));
    api.patch(&name, &PatchParams::default(), &patch).await.map_err(|error| {
        Obstacle::transient(format!(
            "cannot write the user file into secret {}/{name}: {}",
            pass.namespace,
            api_error_text(&error)
        ))
    })?;
    pass.linked.read(LinkedKind::Secret, &name, LabelRule::Required).await
}

fn unusable(error: &CredentialsError) -> Obstacle {
    Obstacle::for_user(error.to_string())
}

fn internal(error: serde_json::Error) -> Obstacle {
    Obstacle::transient(format!("cannot write a Secret: {error}"))
}

/// Hashing passwords takes long, so other tasks must not wait for it.
async fn on_other_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Obstacle> + Send + 'static,
) -> Result<T, Obstacle> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Obstacle::transient("hashing a password was interrupted")),
    }
}

/// Random bytes of the system.
pub(crate) fn random<const LENGTH: usize>() -> Result<[u8; LENGTH], Obstacle> {
    let mut bytes = [0; LENGTH];
    getrandom::fill(&mut bytes)
        .map_err(|_| Obstacle::transient("this system has no source of random numbers"))?;
    Ok(bytes)
}

/// Whether Metal3's operator made the installation: its workload was never applied by us.
async fn is_of_metal3(pass: &InstallationPass) -> Result<bool, Obstacle> {
    let name = object_names(&pass.ironic).workload;
    for kind in ["Deployment", "DaemonSet"] {
        let workload = pass.owned.read(&ObjectIdentity::new("apps/v1", kind, &name)).await?;
        if let Some(workload) = workload {
            return Ok(workload["metadata"]["annotations"][APPLIED_HASH].is_null());
        }
    }
    Ok(false)
}
