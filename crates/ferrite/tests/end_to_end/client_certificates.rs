// SPDX-License-Identifier: Apache-2.0
//! Client certificates of users, made with OpenSSL and used by curl and our own command line; warnings about
//! certificates that expire.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use http_probe::ServerProcess;
use serde_json::Value;

use crate::real_clients::without_user_settings;
use crate::test_process::{TestHome, ferrite, output_of};

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = output_of(Command::new("openssl").args(arguments).current_dir(folder));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Creates `NAME.pem` and `NAME.key` for 10 days: a CA, or a client certificate of the CA `ISSUER`.
fn create_certificate(folder: &Path, name: &str, subject: &str, issuer: Option<&str>) {
    let (pem, key) = (format!("{name}.pem"), format!("{name}.key"));
    let mut arguments =
        vec!["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
    arguments.extend(["-nodes", "-days", "10", "-subj", subject, "-keyout", &key, "-out", &pem]);
    let issuer = issuer.map(|issuer| (format!("{issuer}.pem"), format!("{issuer}.key")));
    if let Some((ca, ca_key)) = &issuer {
        arguments.extend(["-CA", ca, "-CAkey", ca_key, "-addext", "basicConstraints=CA:FALSE"]);
        arguments.extend(["-addext", "extendedKeyUsage=clientAuth"]);
    }
    openssl(folder, &arguments);
}

/// A server with users in the database, and a CA for client certificates.
struct CertificateSite {
    home: TestHome,
    server: ServerProcess,
}

impl CertificateSite {
    fn start(mode: &str) -> Self {
        let home = TestHome::new();
        let folder = home.path("clients");
        std::fs::create_dir(&folder).unwrap();
        create_certificate(&folder, "ca", "/CN=Staff CA", None);
        create_certificate(&folder, "ci", "/O=Lab/CN=ci", Some("ca"));
        create_certificate(&folder, "absent", "/CN=absent", Some("ca"));
        let config = home.path("config.toml");
        let text = format!(
            "[api.tls]\nclient_ca = {:?}\nclient_certificates = \"{mode}\"\n",
            folder.join("ca.pem")
        );
        std::fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let server = home.serve_with(&["--auth", "local", "--tls", "on", "--config", &config]);
        let site = Self { home, server };
        site.administer(&["user", "create", "ci", "--service", "--role", "reader@system"]);
        site
    }

    fn client_file(&self, name: &str) -> PathBuf {
        self.home.path("clients").join(name)
    }

    /// Runs a command over the Unix socket.
    fn administer(&self, arguments: &[&str]) -> String {
        let url = format!("unix:{}", self.home.path("data/ferrite.sock").display());
        let output =
            output_of(without_user_settings(ferrite()).args(arguments).args(["--url", &url]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The status and body of a request of curl, with the certificate of this user.
    fn curl(&self, certificate: Option<&str>, path: &str, more: &[&str]) -> (String, String) {
        let mut command = without_user_settings(Command::new("curl"));
        command.args([
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "--write-out",
            "\n%{http_code}",
        ]);
        command.arg("--cacert").arg(self.home.path("data/ca.pem"));
        if let Some(name) = certificate {
            command.arg("--cert").arg(self.client_file(&format!("{name}.pem")));
            command.arg("--key").arg(self.client_file(&format!("{name}.key")));
        }
        let output = output_of(command.args(more).arg(format!("{}{path}", self.server.url())));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.to_owned(), body.to_owned())
    }

    fn command_line(&self, change: impl FnOnce(&mut Command)) -> Output {
        let mut command = without_user_settings(ferrite());
        command.args(["whoami", "-o", "json", "--url", &self.server.url(), "--cacert"]);
        command.arg(self.home.path("data/ca.pem"));
        change(&mut command);
        output_of(&mut command)
    }
}

#[test]
fn certificate_authenticates_a_user() {
    let site = CertificateSite::start("optional");
    let (status, body) = site.curl(Some("ci"), "/v1/ferrite/whoami", &[]);
    assert_eq!(status, "200", "{body}");
    let caller: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&caller["user"], &caller["method"]), (&"ci".into(), &"certificate".into()));
    assert_eq!(caller["scope"], "system");
    // The roles of the user apply.
    let json = ["--header", "Content-Type: application/json", "--data", "{}"];
    let (status, body) = site.curl(Some("ci"), "/v1/chassis", &json);
    assert_eq!(status, "403", "{body}");
    // Other credentials take precedence, also wrong ones.
    let wrong = ["--user", "admin:wrong password"];
    assert_eq!(site.curl(Some("ci"), "/v1/nodes", &wrong).0, "401");
    let (status, body) = site.curl(Some("absent"), "/v1/nodes", &[]);
    assert!(status == "401" && body.contains("does not exist or is disabled"), "{body}");
    assert_eq!(site.curl(None, "/v1/nodes", &[]).0, "401");
    // Browsers send certificates with requests of other pages, too.
    let (status, body) = site.curl(
        Some("ci"),
        "/v1/chassis",
        &[&json[..], &["--header", "Sec-Fetch-Site: same-origin"]].concat(),
    );
    assert!(status == "403" && body.contains("X-Ferrite-Page"), "{body}");

    let audit = site.administer(&["audit", "-o", "json"]);
    assert!(audit.contains("\"certificate\""), "{audit}");

    let (pem, key) = (site.client_file("ci.pem"), site.client_file("ci.key"));
    let with_options = site.command_line(|command| {
        command.arg("--client-certificate").arg(&pem).arg("--client-key").arg(&key);
    });
    let with_variables = site.command_line(|command| {
        command.env("OS_CERT", &pem).env("OS_KEY", &key);
    });
    for output in [with_options, with_variables] {
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("\"ci\"") && text.contains("\"certificate\""), "{text}");
    }

    // Changes through this process apply at once.
    site.administer(&["user", "set", "ci", "--disable"]);
    let (status, body) = site.curl(Some("ci"), "/v1/nodes", &[]);
    assert!(status == "401" && body.contains("does not exist or is disabled"), "{body}");
}

#[test]
fn certificate_is_required_where_a_user_is() {
    let site = CertificateSite::start("required");
    let password = std::fs::read_to_string(site.home.path("data/admin-password")).unwrap();
    let admin = format!("admin:{}", password.trim());
    let (status, body) = site.curl(None, "/v1/nodes", &["--user", &admin]);
    assert!(status == "401" && body.contains("TLS client certificate"), "{body}");
    assert_eq!(site.curl(Some("ci"), "/v1/nodes", &[]).0, "200");
    // The other credential selects the user.
    let (_, body) = site.curl(Some("ci"), "/v1/ferrite/whoami", &["--user", &admin]);
    assert!(body.contains("\"admin\""), "{body}");
    // Agents and health checks have none.
    assert_eq!(site.curl(None, "/healthz", &[]).0, "200");
    assert_eq!(site.curl(None, "/v1", &[]).0, "200");
    let (status, body) = site.curl(None, "/v1/lookup?addresses=52:54:00:00:00:01", &[]);
    assert!(!body.contains("certificate") && status != "401", "{status} {body}");
}

#[test]
fn expiry_is_a_metric_and_a_warning() {
    let site = CertificateSite::start("optional");
    let (_, metrics) = site.curl(None, "/metrics", &[]);
    for certificate in ["server", "ca", "client_ca"] {
        let name = format!(
            "ferrite_certificate_expiry_timestamp_seconds{{certificate=\"{certificate}\"}} "
        );
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        let value: f64 = value.unwrap_or_else(|| panic!("no {name}: {metrics}")).parse().unwrap();
        assert!(value > 1_700_000_000.0, "{value}");
    }
    // The CA of the clients expires in 10 days; the own certificates are renewed.
    let (status, body) = site.curl(None, "/readyz", &[]);
    assert_eq!(status, "200", "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    let warnings = body["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 1, "{body}");
    assert!(warnings[0].as_str().unwrap().contains("api.tls.client_ca expires at"), "{body}");
    let log = site.home.log();
    assert!(log.contains("certificate expires soon"), "{log}");
}
