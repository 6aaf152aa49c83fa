// SPDX-License-Identifier: Apache-2.0
//! The certificate that the operator issues for an installation, and its private CA.
//!
//! Both are renewed after two thirds of their life. The CA keeps its key, so that clients with its
//! previous certificate accept new ones. The service reads the changed files without a restart.

use std::collections::BTreeSet;
use std::time::SystemTime;

use kube_resources::ironic::service::Ironic;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use server_tls::{
    AuthorityError, AuthorityKey, AuthorityRecord, CERTIFICATE_LIFETIME, CertificateAuthority,
    CertificateInfo, CertificateNames, url_host,
};

use super::desired::service_hosts;
use super::settings::IronicOperatorSettings;

/// The stored CA.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredAuthorityPem<'a> {
    /// Certificate, in PEM.
    pub certificate: &'a str,
    /// Key, in PEM.
    pub key: &'a str,
}

/// The stored certificate.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredCertificatePem<'a> {
    /// Certificate, in PEM.
    pub certificate: &'a str,
    /// Key, in PEM.
    pub key: &'a str,
    /// Certificate of the CA, in PEM.
    pub authority: &'a str,
    /// Names that it was issued for, separated by commas.
    pub names: &'a str,
}

/// What is to be stored, and until when it can be used unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePlan {
    /// Certificate of the CA, in PEM.
    pub authority: String,
    /// Key of the CA.
    pub authority_key: AuthorityKey,
    /// Certificate of the service, in PEM.
    pub certificate: String,
    /// Key of the service.
    pub key: AuthorityKey,
    /// Names that it is valid for, separated by commas.
    pub names: String,
    /// Whether the certificate is a new one.
    pub is_new: bool,
    /// When the certificate has to be renewed.
    pub renew_at: SystemTime,
}

/// The names that clients use: those of the spec, and addresses of pods and nodes.
#[must_use]
pub fn certificate_hosts(
    ironic: &Ironic,
    settings: &IronicOperatorSettings,
    pod_addresses: &BTreeSet<String>,
) -> BTreeSet<String> {
    let networking = &ironic.spec.networking;
    let mut hosts: BTreeSet<String> = service_hosts(ironic, settings).into_iter().collect();
    hosts.extend(networking.ip_address.clone());
    hosts.extend(networking.external_ip.clone());
    for url in [&networking.external_callback_url, &networking.image_server_external_url] {
        hosts.extend(url.as_deref().and_then(url_host).map(str::to_owned));
    }
    hosts.extend(pod_addresses.iter().cloned());
    // What is no host name cannot be in a certificate; validation reports it.
    hosts.retain(|host| CertificateNames::default().add_host(host).is_ok());
    hosts
}

/// Keeps, renews or issues the certificate and its CA.
///
/// # Errors
/// If the system has no source of random numbers.
pub fn certificate_plan(
    authority: Option<StoredAuthorityPem<'_>>,
    stored: Option<StoredCertificatePem<'_>>,
    hosts: &BTreeSet<String>,
    now: SystemTime,
) -> Result<CertificatePlan, AuthorityError> {
    let authority = match authority.and_then(open) {
        Some(authority) if authority.is_renewal_due(now) => authority.renew(now)?,
        Some(authority) => authority,
        None => CertificateAuthority::create(now)?,
    };
    let record = authority.record();
    let usable = stored.and_then(|stored| {
        let is_current = stored.authority == record.certificate && !stored.key.is_empty();
        // Names that are not used any more do no harm; a certificate is not issued for each change.
        let has_all = hosts.iter().all(|host| stored.names.split(',').any(|name| name == host));
        let expires_at = expiry(stored.certificate)?;
        let renew_at = expires_at - CERTIFICATE_LIFETIME / 3;
        (is_current && has_all && now < renew_at).then_some((stored, renew_at))
    });
    if let Some((stored, renew_at)) = usable {
        return Ok(CertificatePlan {
            authority: record.certificate.clone(),
            authority_key: record.key.clone(),
            certificate: stored.certificate.to_owned(),
            key: AuthorityKey::from_pem(stored.key.to_owned()),
            names: stored.names.to_owned(),
            is_new: false,
            renew_at,
        });
    }
    let mut names = CertificateNames::default();
    let mut listed = Vec::new();
    for host in hosts {
        if names.add_host(host).is_ok() {
            listed.push(host.as_str());
        }
    }
    let issued = authority.issue_pem(&names, now)?;
    Ok(CertificatePlan {
        authority: record.certificate.clone(),
        authority_key: record.key.clone(),
        certificate: issued.certificate,
        key: issued.key,
        names: listed.join(","),
        is_new: true,
        renew_at: issued.expires_at - CERTIFICATE_LIFETIME / 3,
    })
}

/// The stored CA; `None` if it cannot be used.
fn open(stored: StoredAuthorityPem<'_>) -> Option<CertificateAuthority> {
    let record = AuthorityRecord {
        certificate: stored.certificate.to_owned(),
        key: AuthorityKey::from_pem(stored.key.to_owned()),
        expires_at: expiry(stored.certificate)?,
    };
    CertificateAuthority::open(record).ok()
}

fn expiry(pem: &str) -> Option<SystemTime> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    Some(CertificateInfo::parse(&certificate).ok()?.expires_at)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use server_tls::AUTHORITY_LIFETIME;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn hosts(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn again(plan: &CertificatePlan, names: &BTreeSet<String>, now: SystemTime) -> CertificatePlan {
        let authority =
            StoredAuthorityPem { certificate: &plan.authority, key: plan.authority_key.reveal() };
        let stored = StoredCertificatePem {
            certificate: &plan.certificate,
            key: plan.key.reveal(),
            authority: &plan.authority,
            names: &plan.names,
        };
        certificate_plan(Some(authority), Some(stored), names, now).unwrap()
    }

    #[test]
    fn certificates_are_kept_until_two_thirds_of_their_life() {
        let names = hosts(&["ironic", "192.0.2.1"]);
        let first = certificate_plan(None, None, &names, now()).unwrap();
        assert!(first.is_new);
        assert_eq!(first.names, "192.0.2.1,ironic");
        let kept = again(&first, &names, now() + 59 * DAY);
        assert_eq!(kept, CertificatePlan { is_new: false, ..first.clone() });
        let renewed = again(&first, &names, first.renew_at);
        assert!(renewed.is_new);
        assert_eq!(renewed.authority, first.authority);
        assert_ne!(renewed.certificate, first.certificate);
    }

    #[test]
    fn another_name_needs_another_certificate() {
        let first = certificate_plan(None, None, &hosts(&["a", "b"]), now()).unwrap();
        assert!(!again(&first, &hosts(&["a"]), now()).is_new);
        let more = again(&first, &hosts(&["a", "c"]), now());
        assert!(more.is_new);
        assert_eq!(more.names, "a,c");
    }

    #[test]
    fn the_authority_keeps_its_key() {
        let names = hosts(&["a"]);
        let first = certificate_plan(None, None, &names, now()).unwrap();
        let later = again(&first, &names, now() + AUTHORITY_LIFETIME * 2 / 3);
        assert_ne!(later.authority, first.authority);
        assert_eq!(later.authority_key, first.authority_key);
        assert!(later.is_new);
    }

    #[test]
    fn unusable_secrets_are_replaced() {
        let names = hosts(&["a"]);
        let first = certificate_plan(None, None, &names, now()).unwrap();
        let authority =
            StoredAuthorityPem { certificate: &first.authority, key: first.authority_key.reveal() };
        let stored = StoredCertificatePem {
            certificate: &first.certificate,
            key: first.key.reveal(),
            authority: &first.authority,
            names: &first.names,
        };
        let broken = StoredAuthorityPem { key: "no key", ..authority };
        let replaced = certificate_plan(Some(broken), Some(stored), &names, now()).unwrap();
        assert!(replaced.is_new && replaced.authority != first.authority);
        for broken in [
            StoredCertificatePem { certificate: "no certificate", ..stored },
            StoredCertificatePem { key: "", ..stored },
            StoredCertificatePem { authority: "", ..stored },
        ] {
            let plan = certificate_plan(Some(authority), Some(broken), &names, now()).unwrap();
            assert!(plan.is_new && plan.authority == first.authority, "{broken:?}");
        }
    }

    #[test]
    fn certificates_have_the_names_that_clients_use() {
        let mut ironic: Ironic = serde_json::from_value(json!({
            "metadata": {"name": "ironic", "namespace": "metal"},
            "spec": {"networking": {
                "ipAddress": "192.0.2.1",
                "externalCallbackURL": "https://api.example:1234",
                "imageServerExternalURL": "https://[2001:db8::7]:6183",
            }},
        }))
        .unwrap();
        ironic.spec.networking.external_ip = Some("not a name".to_owned());
        let found = certificate_hosts(
            &ironic,
            &IronicOperatorSettings::default(),
            &hosts(&["198.51.100.7"]),
        );
        let expected = hosts(&[
            "192.0.2.1",
            "198.51.100.7",
            "2001:db8::7",
            "api.example",
            "ironic",
            "ironic.metal",
            "ironic.metal.svc",
            "ironic.metal.svc.cluster.local",
        ]);
        assert_eq!(found, expected);
    }
}
