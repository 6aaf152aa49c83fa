// SPDX-License-Identifier: Apache-2.0
//! TLS and the Unix socket: certificates of the own CA and of files, with curl, OpenSSL, the `baremetal`
//! client and our own command line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use http_probe::{ProbeClient, ServerProcess};
use serde_json::Value;

use crate::real_clients::{clients, without_user_settings};
use crate::test_process::{TestHome, ferrite, output_of};

/// Timeout for changes of a running server.
const TIMEOUT: Duration = Duration::from_secs(60);

fn curl(arguments: &[&str]) -> Output {
    let mut command = without_user_settings(Command::new("curl"));
    output_of(command.args(["--silent", "--show-error", "--noproxy", "*"]).args(arguments))
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}

/// The certificate that the server presents, in PEM.
fn presented_certificate(server: &ServerProcess, more: &[&str]) -> Result<String, String> {
    let output = output_of(
        Command::new("openssl")
            .args(["s_client", "-connect", &server.address().to_string()])
            .args(more)
            .stdin(Stdio::null()),
    );
    let text = stdout(&output);
    match text.split_once("-----BEGIN CERTIFICATE-----") {
        Some((_, rest)) => Ok(rest.split("-----END").next().unwrap_or_default().to_owned()),
        None => Err(format!("{text}{}", stderr(&output))),
    }
}

#[test]
fn own_ca_verifies_the_server() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "none", "--tls", "on"]);
    assert!(server.url().starts_with("https://127.0.0.1:"), "{}", server.url());
    let ca_file = home.path("data/ca.pem");
    let ca = text_of(&ca_file);
    let url = server.url();

    let root = curl(&["--cacert", &ca, &url]);
    assert!(root.status.success(), "{}", stderr(&root));
    assert!(stdout(&root).contains(&format!("\"{url}/v1/")), "{}", stdout(&root));
    // The certificate is also valid for the name, with both versions of TLS.
    let port = server.address().port();
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let named = format!("https://localhost:{port}/v1/nodes");
        let arguments = [&["--cacert", &ca, "--fail"], version, &[&named]].concat();
        let listed = curl(&arguments);
        assert!(listed.status.success(), "{version:?}: {}", stderr(&listed));
    }
    let old = presented_certificate(&server, &["-tls1_1"]);
    assert!(old.is_err(), "TLS 1.1 is accepted");

    // Without the CA, and with another one, the server is rejected.
    const UNTRUSTED: i32 = 60;
    assert_eq!(curl(&[&url]).status.code(), Some(UNTRUSTED));
    let other = TestHome::new();
    let other_server = other.serve_with(&["--auth", "none", "--tls", "on"]);
    let rejected = curl(&["--cacert", &ca, &other_server.url()]);
    assert_eq!(rejected.status.code(), Some(UNTRUSTED), "{}", stderr(&rejected));

    // The CA can be downloaded.
    let downloaded = curl(&["--insecure", &format!("{url}/v1/ferrite/ca.pem")]);
    assert_eq!(stdout(&downloaded), std::fs::read_to_string(&ca_file).unwrap());
    // It stays the same after a restart.
    server.kill().unwrap();
    let server = home.serve_with(&["--auth", "none", "--tls", "on"]);
    let again = curl(&["--cacert", &ca, "--fail", &format!("{}/v1/nodes", server.url())]);
    assert!(again.status.success(), "{}", stderr(&again));
}

#[test]
fn plain_http_on_the_tls_port_gets_a_hint() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "none", "--tls", "on"]);
    let plain = format!("http://{}/ui/nodes", server.address());
    let refused = curl(&["--write-out", "%{http_code}", &plain]);
    let text = stdout(&refused);
    assert!(text.contains(&format!("use https://{}", server.address())), "{text}");
    assert!(text.ends_with("400"), "{text}");
    let browser = ["--header", "Accept: text/html", "--output", "/dev/null"];
    let format = ["--write-out", "%{http_code} %{redirect_url}"];
    let redirected = curl(&[&browser[..], &format, &[&plain]].concat());
    assert_eq!(stdout(&redirected), format!("307 {}/ui/nodes", server.url()));
}

#[test]
fn remote_address_uses_tls_unless_it_is_off() {
    let home = TestHome::new();
    let start = |arguments: &[&str]| {
        let mut command = home.command_on("0.0.0.0:0");
        ServerProcess::start(command.args(arguments), &home.path("log")).unwrap()
    };
    let server = start(&["--auth", "none"]);
    assert!(server.url().starts_with("https://"), "{}", server.url());
    // The certificate has the addresses of the interfaces, and the loopback address.
    let url = format!("https://127.0.0.1:{}/v1/nodes", server.address().port());
    let listed = curl(&["--fail", "--cacert", &text_of(&home.path("data/ca.pem")), &url]);
    assert!(listed.status.success(), "{}", stderr(&listed));
    server.kill().unwrap();
    let server = start(&["--auth", "none", "--tls", "off"]);
    assert!(server.url().starts_with("http://"), "{}", server.url());
    assert!(home.log().contains("API does not use TLS"), "{}", home.log());
}

#[test]
fn session_cookie_is_secure_over_tls() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "basic", "--tls", "on"]);
    let password = std::fs::read_to_string(home.path("data/admin-password")).unwrap();
    let body = serde_json::json!({ "username": "admin", "password": password.trim() }).to_string();
    let signed_in = curl(&[
        "--include",
        "--cacert",
        &text_of(&home.path("data/ca.pem")),
        "--header",
        "X-Ferrite-Page: 1",
        "--json",
        &body,
        &format!("{}/ui/session", server.url()),
    ]);
    let head = stdout(&signed_in).to_lowercase();
    assert!(head.contains("set-cookie: ferrite_session=") && head.contains("; secure"), "{head}");
}

/// Replaced files are used without a restart.
#[test]
fn given_certificate_is_reloaded() {
    let home = TestHome::new();
    let (certificate, key) = (home.path("cert.pem"), home.path("key.pem"));
    let create = || {
        let made = output_of(Command::new("openssl").args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-days",
            "2",
            "-keyout",
            &text_of(&key),
            "-out",
            &text_of(&certificate),
        ]));
        assert!(made.status.success(), "{}", stderr(&made));
    };
    create();
    let server = home.serve_with(&[
        "--auth",
        "none",
        "--tls-certificate",
        &text_of(&certificate),
        "--tls-key",
        &text_of(&key),
    ]);
    let fetch = || curl(&["--fail", "--cacert", &text_of(&certificate), &server.url()]);
    let first = fetch();
    assert!(first.status.success(), "{}", stderr(&first));
    let before = presented_certificate(&server, &[]).unwrap();
    create();
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let hup = Command::new("kill").args(["-HUP", &server.pid().to_string()]).status();
        assert!(hup.unwrap().success());
        if presented_certificate(&server, &[]).unwrap() != before {
            break;
        }
        assert!(Instant::now() < deadline, "not reloaded: {}", home.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let second = fetch();
    assert!(second.status.success(), "{}", stderr(&second));
    // Clients are expected to know the issuer, so there is no CA to download.
    let missing = curl(&["--insecure", &format!("{}/v1/ferrite/ca.pem", server.url())]);
    assert!(stdout(&missing).contains("no CA of its own"), "{}", stdout(&missing));
}

#[test]
fn baremetal_client_verifies_the_server() {
    let Some(clients) = clients() else { return };
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "basic", "--tls", "on"]);
    let password = std::fs::read_to_string(home.path("data/admin-password")).unwrap();
    for (ca, is_right) in [(Some("data/ca.pem"), true), (None, false)] {
        let mut list = without_user_settings(Command::new(clients.join("bin/baremetal")));
        list.args(["node", "list", "-f", "json"])
            .env("OS_AUTH_TYPE", "http_basic")
            .env("OS_ENDPOINT", server.url())
            .env("OS_USERNAME", "admin")
            .env("OS_PASSWORD", password.trim());
        if let Some(ca) = ca {
            list.env("OS_CACERT", home.path(ca));
        }
        let output = output_of(&mut list);
        let error = stderr(&output);
        assert_eq!(output.status.success(), is_right, "{error}");
        assert!(is_right || error.to_lowercase().contains("certificate"), "{error}");
    }
}

#[test]
fn own_command_line_verifies_the_server() {
    let home = TestHome::new();
    let server = home.serve_with(&["--auth", "none", "--tls", "on"]);
    let list = |with_ca: &dyn Fn(&mut Command)| {
        let mut command = without_user_settings(ferrite());
        command.args(["node", "list", "-o", "json", "--url", &server.url()]);
        with_ca(&mut command);
        output_of(&mut command)
    };
    let ca = home.path("data/ca.pem");
    for with_ca in [
        (&|command: &mut Command| {
            command.arg("--cacert").arg(&ca);
        }) as &dyn Fn(&mut Command),
        &|command| {
            command.env("OS_CACERT", &ca);
        },
    ] {
        let listed = list(with_ca);
        assert!(listed.status.success(), "{}", stderr(&listed));
    }
    let rejected = list(&|_| {});
    assert!(!rejected.status.success());
    assert!(stderr(&rejected).contains("--cacert"), "{}", stderr(&rejected));
}

/// Local clients need neither a password nor the CA.
#[test]
fn unix_socket_gives_local_access() {
    let home = TestHome::new();
    let socket = home.path("data/ferrite.sock");
    for round in 0..2 {
        let server = home.serve_with(&["--auth", "basic"]);
        assert_eq!(server.client().send("GET", "/v1/nodes", None).unwrap().status, 401);
        let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut client = ProbeClient::on_socket(&socket);
        let node = serde_json::json!({ "driver": "fake-hardware", "name": format!("n{round}") });
        let created = client.send_json("POST", "/v1/nodes", Some(&node)).unwrap();
        assert_eq!(created.status, 201, "{}", created.text());
        // Our own client finds the socket.
        let mut list = without_user_settings(ferrite());
        list.args(["node", "list", "-o", "json"])
            .env("HOME", home.path("nowhere"))
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .env("FERRITE_DATA_DIR", home.path("data"));
        let listed = output_of(&mut list);
        assert!(listed.status.success(), "{}", stderr(&listed));
        let nodes: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(nodes.as_array().map(Vec::len), Some(round + 1), "{nodes}");
        // A killed server leaves its socket behind; the next one replaces it.
        server.kill().unwrap();
        assert!(socket.exists());
    }
    let mut command = home.command();
    command.args(["--auth", "none"]).env("FERRITE_API__UNIX_SOCKET", "");
    let _server = ServerProcess::start(&mut command, &home.path("log")).unwrap();
    let refused = ProbeClient::on_socket(&socket).send("GET", "/v1/nodes", None);
    assert!(refused.is_err(), "{refused:?}");
}

/// The process of another user is rejected, even if the mode of the socket allows it.
#[test]
fn unix_socket_rejects_other_users() {
    if !is_root() {
        println!("skipped: only root can run a process of another user");
        return;
    }
    let home = TestHome::new();
    let socket = Path::new("/tmp").join(format!("ferrite-test-{}.sock", std::process::id()));
    let mut command = home.command();
    command.args(["--auth", "none"]).env("FERRITE_API__UNIX_SOCKET", &socket);
    let server = ServerProcess::start(&mut command, &home.path("log")).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    let fetch = |user: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "--", "curl", "--silent", "--fail"]);
        output_of(command.arg("--unix-socket").arg(&socket).arg("http://localhost/v1/nodes"))
    };
    let own = fetch("root");
    let other = fetch("daemon");
    server.stop(TIMEOUT).unwrap();
    assert!(own.status.success(), "{}", stderr(&own));
    assert!(!other.status.success(), "{}", stdout(&other));
    assert!(home.log().contains("connection to the Unix socket rejected"), "{}", home.log());
    assert!(!socket.exists(), "the socket is left behind");
}

fn is_root() -> bool {
    let own = std::fs::metadata("/proc/self").unwrap();
    std::os::unix::fs::MetadataExt::uid(&own) == 0
}
