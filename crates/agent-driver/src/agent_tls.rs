// SPDX-License-Identifier: Apache-2.0
//! TLS configuration for connections to agents.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;

/// Accepts the certificate (PEM) that the agent sent, or, for agents that sent none, certificates
/// signed by the authorities in `ca_file` (`agent.verify_ca`).
pub(super) fn config(
    certificate: Option<&str>,
    ca_file: Option<&Path>,
) -> Result<ClientConfig, String> {
    if let Some(certificate) = certificate {
        return server_trust::pinned_client_config(certificate)
            .map_err(|_| "the certificate that the agent sent is invalid".to_owned());
    }
    let Some(file) = ca_file else {
        return Err("the agent uses https but sent no certificate; set agent.verify_ca to the \
                    authority that signed its certificate"
            .to_owned());
    };
    let invalid =
        |why: &dyn std::fmt::Display| format!("agent.verify_ca: {}: {why}", file.display());
    let certificates = server_trust::load_certificates(file).map_err(|error| invalid(&error))?;
    server_trust::client_config(certificates).map_err(|error| invalid(&error))
}

/// Accepts no certificate, for plain HTTP. Shared, because building one takes time.
pub(super) fn no_tls() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    Arc::clone(CONFIG.get_or_init(|| Arc::new(server_trust::client_config_without_roots())))
}
