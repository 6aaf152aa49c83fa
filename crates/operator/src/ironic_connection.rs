// SPDX-License-Identifier: Apache-2.0
//! The Ironic API that hosts are provisioned with: a configured address, or an `Ironic` object.
//!
//! Address, credentials and certificates are read again from time to time and after a failure, so
//! that a change of the Secret or of the `Ironic` needs no restart.

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use error_chain::error_chain;
use ironic_client::{
    Api as IronicApi, ApiLogin, ApiTarget, ClientCertificatePaths, HiddenText, Method, TlsTrust,
};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::{Api, Client, ResourceExt as _};
use kube_resources::ironic::conditions::READY;
use kube_resources::ironic::names::secret_keys;
use kube_resources::ironic::service::Ironic;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::context::{ControllerContext, WatchScope};
use crate::hosts::provisioner::ironic::{IronicTransport, IronicTransportError};
use crate::ironic::desired::object_names;
use crate::owned_objects::api_error_text;

/// How long address and credentials are used without reading them again.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// How long a failure is returned to all callers, so that thousands of hosts cause one attempt.
const FAILURE_INTERVAL: Duration = Duration::from_secs(5);

/// Where the API is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IronicLocation {
    /// At a configured address.
    Endpoint(IronicEndpoint),
    /// An `Ironic` object.
    Installed(InstalledIronic),
}

/// A configured address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IronicEndpoint {
    /// URL of the API, with or without `/v1`.
    pub url: String,
    /// Folder with the files `username` and `password`; no credentials if they do not exist.
    pub credentials: PathBuf,
    /// File with CA certificates.
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate.
    pub accept_any: bool,
    /// Certificate of this client.
    pub client_certificate: Option<ClientCertificatePaths>,
}

/// An `Ironic` object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledIronic {
    /// Namespace and name; by default the only `Ironic` that the operator controls.
    pub object: Option<(String, String)>,
    /// Domain of Services, such as `cluster.local`.
    pub cluster_domain: Option<String>,
}

/// A connection to the API.
pub struct IronicConnection {
    location: IronicLocation,
    client: Client,
    scope: WatchScope,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    current: Option<CurrentApi>,
    /// When and why the API was not found.
    failure: Option<(Instant, String)>,
    /// URL and source that were logged last.
    logged: Option<(Option<String>, String)>,
}

struct CurrentApi {
    api: Arc<IronicApi>,
    target: ApiTarget,
    read_at: Instant,
}

impl IronicConnection {
    /// Sends no request yet. `context` is the one of the controller that uses the connection.
    #[must_use]
    pub fn new(location: IronicLocation, context: &ControllerContext) -> Self {
        let (client, scope) = (context.client.clone(), context.scope.clone());
        Self { location, client, scope, state: Mutex::default() }
    }

    /// The client of the API; reads address and credentials if they are not recent.
    async fn api(&self) -> Result<Arc<IronicApi>, String> {
        let mut state = self.state.lock().await;
        let recent = state.current.as_ref().filter(|it| it.read_at.elapsed() < CHECK_INTERVAL);
        if let Some(current) = recent {
            return Ok(Arc::clone(&current.api));
        }
        if let Some((at, message)) = &state.failure
            && at.elapsed() < FAILURE_INTERVAL
        {
            return Err(message.clone());
        }
        let ConnectionState { current, logged, .. } = &mut *state;
        match self.connect(current.as_ref(), logged).await {
            Ok(current) => {
                let api = Arc::clone(&current.api);
                state.current = Some(current);
                state.failure = None;
                Ok(api)
            }
            Err(message) => {
                state.failure = Some((Instant::now(), message.clone()));
                Err(message)
            }
        }
    }

    /// Reads address and credentials. The client of `before` is used again if they are the same.
    async fn connect(
        &self,
        before: Option<&CurrentApi>,
        logged: &mut Option<(Option<String>, String)>,
    ) -> Result<CurrentApi, String> {
        let (target, unready) = self.target().await?;
        let api = match before.filter(|before| before.target == target) {
            Some(before) => Arc::clone(&before.api),
            None => {
                // An API that does not respond yet is tried again and again.
                if is_new(logged, &target) {
                    info!(url = target.url.as_deref(), source = %target.origin, "using Ironic API");
                }
                Arc::new(IronicApi::new(target.clone()).map_err(|error| error_chain(&error))?)
            }
        };
        if let Some(reason) = unready {
            check_response(&*api, reason).await?;
        }
        Ok(CurrentApi { api, target, read_at: Instant::now() })
    }

    /// Reads address and credentials before the next request.
    async fn expire(&self) {
        if let Some(current) = self.state.lock().await.current.as_mut()
            && let Some(earlier) = Instant::now().checked_sub(CHECK_INTERVAL)
        {
            current.read_at = earlier;
        }
    }

    /// Address and credentials, and why the installation is not ready.
    async fn target(&self) -> Result<(ApiTarget, Option<String>), String> {
        match &self.location {
            IronicLocation::Endpoint(endpoint) => Ok((endpoint.target().await?, None)),
            IronicLocation::Installed(installed) => {
                let ironic = self.find(installed).await?;
                let unready = check_ready(&ironic).err();
                let target = self.installed_target(installed, &ironic).await;
                let target = target.map_err(|error| unready.clone().unwrap_or(error))?;
                Ok((target, unready))
            }
        }
    }

    async fn find(&self, installed: &InstalledIronic) -> Result<Ironic, String> {
        if let Some((namespace, name)) = &installed.object {
            let api: Api<Ironic> = Api::namespaced(self.client.clone(), namespace);
            let found = api.get_opt(name).await;
            let found = found.map_err(|error| {
                format!("cannot read Ironic {namespace}/{name}: {}", api_error_text(&error))
            })?;
            return found.ok_or_else(|| format!("there is no Ironic {namespace}/{name}"));
        }
        let apis: Vec<Api<DeserializeGuard<Ironic>>> = match &self.scope {
            WatchScope::Cluster => vec![Api::all(self.client.clone())],
            WatchScope::Namespaces(names) => {
                names.iter().map(|name| Api::namespaced(self.client.clone(), name)).collect()
            }
        };
        let mut found = Vec::new();
        for api in apis {
            let list = api.list(&ListParams::default()).await;
            let list =
                list.map_err(|error| format!("cannot list Ironics: {}", api_error_text(&error)))?;
            found.extend(list.into_iter().filter_map(readable));
        }
        only(found)
    }

    async fn installed_target(
        &self,
        installed: &InstalledIronic,
        ironic: &Ironic,
    ) -> Result<ApiTarget, String> {
        let (namespace, name) = (ironic.namespace().unwrap_or_default(), ironic.name_any());
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let read = async |secret: &str| {
            let found = secrets.get(secret).await;
            found.map_err(|error| {
                format!("cannot read Secret {namespace}/{secret}: {}", api_error_text(&error))
            })
        };
        let login = match ironic.spec.api_credentials_name.as_deref() {
            None => return Err(format!("Ironic {namespace}/{name} has no credentials yet")),
            Some(secret) => secret_login(&read(secret).await?).ok_or_else(|| {
                format!("Secret {namespace}/{secret} has no username and password")
            })?,
        };
        let mut trust = TlsTrust::default();
        if ironic.spec.has_tls() {
            let secret = ironic.spec.tls.certificate_name.clone();
            let secret = secret.unwrap_or_else(|| object_names(ironic).generated_certificate);
            trust.ca_certificates = secret_authority(&read(&secret).await?);
        }
        let domain = installed.cluster_domain.as_ref().map(|domain| format!(".{domain}"));
        let scheme = if ironic.spec.has_tls() { "https" } else { "http" };
        let url = format!("{scheme}://{name}.{namespace}.svc{}", domain.unwrap_or_default());
        Ok(ApiTarget {
            url: Some(url),
            login,
            trust,
            unix_socket: None,
            project: None,
            origin: format!("Ironic {namespace}/{name}"),
        })
    }
}

#[async_trait]
impl IronicTransport for IronicConnection {
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, IronicTransportError> {
        let unavailable = |message| IronicTransportError { status: None, message };
        let api = self.api().await.map_err(unavailable)?;
        let outcome = IronicTransport::request(&*api, method.clone(), path, body).await;
        match outcome {
            // The credentials may have changed.
            Err(error) if error.status == Some(401) => {
                self.expire().await;
                let renewed = self.api().await.map_err(unavailable)?;
                if Arc::ptr_eq(&api, &renewed) {
                    return Err(error);
                }
                IronicTransport::request(&*renewed, method, path, body).await
            }
            // The service may have moved. The request may have been executed, so it is not repeated.
            Err(error) if error.status.is_none() => {
                self.expire().await;
                Err(error)
            }
            outcome => outcome,
        }
    }

    async fn wait_for_event(&self, after: u64) -> Result<(), IronicTransportError> {
        let unavailable = |message| IronicTransportError { status: None, message };
        let api = self.api().await.map_err(unavailable)?;
        IronicTransport::wait_for_event(&*api, after).await
    }
}

impl IronicEndpoint {
    async fn target(&self) -> Result<ApiTarget, String> {
        let (user, password) = (self.read("username").await?, self.read("password").await?);
        let origin = "IRONIC_ENDPOINT";
        let mut target =
            ApiTarget::at(&self.url, user.as_deref(), password.map(HiddenText::new), origin)
                .map_err(|error| error_chain(&error))?;
        target.trust = TlsTrust {
            ca_file: self.ca_file.clone(),
            ca_certificates: None,
            accept_any: self.accept_any,
            client_certificate: self.client_certificate.clone(),
        };
        Ok(target)
    }

    /// A file of the folder, without the line break at its end; `None` if it does not exist.
    async fn read(&self, name: &str) -> Result<Option<String>, String> {
        let path = self.credentials.join(name);
        match tokio::fs::read_to_string(&path).await {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot read {}: {error}", path.display())),
        }
    }
}

/// Whether the address differs from the last one, which it replaces.
fn is_new(last: &mut Option<(Option<String>, String)>, target: &ApiTarget) -> bool {
    let new = Some((target.url.clone(), target.origin.clone()));
    let is_new = *last != new;
    *last = new;
    is_new
}

/// The `Ironic`, unless it does not match its type. One that cannot be read must not affect hosts.
fn readable(found: DeserializeGuard<Ironic>) -> Option<Ironic> {
    found
        .0
        .inspect_err(|invalid| {
            warn!(
                namespace = invalid.metadata.namespace.as_deref(),
                name = invalid.metadata.name.as_deref(),
                error = invalid.error,
                "Ironic cannot be read and is ignored"
            );
        })
        .ok()
}

/// The only `Ironic`.
fn only(mut found: Vec<Ironic>) -> Result<Ironic, String> {
    match (found.pop(), found.len()) {
        (None, _) => {
            Err("there is no Ironic; create one, or set IRONIC_ENDPOINT of the operator".to_owned())
        }
        (Some(ironic), 0) => Ok(ironic),
        (Some(_), others) => Err(format!(
            "there are {} Ironics; set IRONIC_NAME and IRONIC_NAMESPACE of the operator",
            others + 1
        )),
    }
}

/// Fails unless the current generation is ready.
fn check_ready(ironic: &Ironic) -> Result<(), String> {
    let conditions = ironic.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions.clone().find(|condition| condition.type_ == READY);
    let is_current =
        ready.is_some_and(|ready| ready.observed_generation == ironic.metadata.generation);
    match ready {
        Some(ready) if is_current && ready.status == "True" => Ok(()),
        _ => {
            let (namespace, name) = (ironic.namespace().unwrap_or_default(), ironic.name_any());
            let reason = ready
                .filter(|_| is_current)
                .map_or("its status is not current", |ready| ready.message.as_str());
            Err(format!("Ironic {namespace}/{name} is not ready: {reason}"))
        }
    }
}

/// An installation that is not ready is used if its API responds: one of several replicas may be
/// missing, or its status may be old.
async fn check_response(api: &dyn IronicTransport, unready: String) -> Result<(), String> {
    match api.request(Method::GET, "/v1", None).await {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{unready}; its API does not respond: {}", error.message)),
    }
}

fn secret_text(secret: &Secret, key: &str) -> Option<String> {
    let bytes = secret.data.as_ref()?.get(key)?;
    Some(std::str::from_utf8(&bytes.0).ok()?.trim().to_owned())
}

fn secret_login(secret: &Secret) -> Option<ApiLogin> {
    let user = secret_text(secret, secret_keys::USERNAME)?;
    let password = HiddenText::new(secret_text(secret, secret_keys::PASSWORD)?);
    Some(ApiLogin::Basic { user, password })
}

/// The certificates that verify the service: of the CA, or its own if it is self-signed.
fn secret_authority(secret: &Secret) -> Option<String> {
    let ca = secret_text(secret, secret_keys::TLS_CA).filter(|text| !text.is_empty());
    ca.or_else(|| secret_text(secret, secret_keys::TLS_CERTIFICATE))
}
