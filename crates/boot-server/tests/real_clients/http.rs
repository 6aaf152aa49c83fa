// SPDX-License-Identifier: Apache-2.0
//! HTTP clients of Debian, on the loopback interface of a namespace.

use std::sync::Arc;

use boot_server::BootEventDetail;
use boot_server::http::{BootHttpServer, BootHttpServices, BootHttpSettings, ServedDirectory};

use super::lab::{NetworkLab, RecordedEvents, RunningServer, ready, wall_clock};

const SIZE: usize = 20_480_123;

/// Serves `kernel`, `etc/boot.ipxe`, `link` (a link that stays inside) and `escape` (a link to `secret`, which
/// is outside).
fn serve(lab: &NetworkLab, events: &Arc<RecordedEvents>) -> RunningServer {
    fill(lab);
    let settings = BootHttpSettings::new("127.0.0.1:80".parse().unwrap());
    start(lab, events, settings)
}

fn fill(lab: &NetworkLab) {
    let root = lab.directory.path().join("root");
    std::fs::create_dir_all(root.join("etc")).unwrap();
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at * 31 + at / 251) as u8).collect();
    std::fs::write(root.join("kernel"), bytes).unwrap();
    std::fs::write(root.join("etc/boot.ipxe"), "#!ipxe\n").unwrap();
    std::fs::write(lab.directory.path().join("secret"), "SECRET").unwrap();
    std::os::unix::fs::symlink("etc/boot.ipxe", root.join("link")).unwrap();
    std::os::unix::fs::symlink("../secret", root.join("escape")).unwrap();
}

fn start(
    lab: &NetworkLab,
    events: &Arc<RecordedEvents>,
    settings: BootHttpSettings,
) -> RunningServer {
    let services = BootHttpServices {
        files: Arc::new(ServedDirectory::open(lab.directory.path().join("root")).unwrap()),
        events: events.clone(),
        clock: Arc::new(wall_clock),
    };
    lab.serve("server", move || BootHttpServer::bind(settings, services).unwrap().run())
}

struct HttpSite {
    _server: RunningServer,
    lab: NetworkLab,
    events: Arc<RecordedEvents>,
}

impl HttpSite {
    /// Returns `None` if a program is missing.
    fn new(programs: &[&str]) -> Option<Self> {
        if !ready(&[programs, &["ip"]].concat()) {
            return None;
        }
        let lab = NetworkLab::new(&["server"]);
        let events = Arc::new(RecordedEvents::default());
        let server = serve(&lab, &events);
        Some(Self { _server: server, lab, events })
    }

    fn curl(&self, arguments: &[&str]) -> (bool, String) {
        self.lab.run("server", &[&["curl", "-sS"], arguments].concat())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.lab.directory.path().join(name)).unwrap_or_default()
    }

    fn kernel(&self) -> Vec<u8> {
        self.read("root/kernel")
    }
}

#[test]
fn curl_fetches_a_file() {
    let Some(site) = HttpSite::new(&["curl"]) else { return };
    let (succeeded, output) =
        site.curl(&["-f", "-o", "fetched", "-A", "iPXE/1.21.1", "http://127.0.0.1/kernel"]);
    assert!(succeeded, "{output}");
    assert!(site.read("fetched") == site.kernel());
    site.events.wait_until("the fetched kernel", |what| match what {
        BootEventDetail::Http {
            title,
            status,
            bytes_sent: sent,
            is_complete: whole,
            user_agent: agent,
            ..
        } => {
            (&**title, *status, *sent, *whole, &**agent)
                == ("/kernel", 200, SIZE as u64, true, "iPXE/1.21.1")
        }
        BootEventDetail::Dhcp4 { .. }
        | BootEventDetail::Dhcp6 { .. }
        | BootEventDetail::Tftp { .. } => false,
    });
}

#[test]
fn curl_fetches_ranges_and_resumes() {
    let Some(site) = HttpSite::new(&["curl"]) else { return };
    let kernel = site.kernel();
    for (range, expected) in [
        ("0-0", &kernel[..1]),
        ("1000-4999999", &kernel[1000..5_000_000]),
        ("20480000-", &kernel[20_480_000..]),
        ("-77", &kernel[SIZE - 77..]),
        // Several ranges get the whole file.
        ("0-1,5-6", &kernel[..]),
    ] {
        let (succeeded, output) =
            site.curl(&["-f", "-r", range, "-o", "part", "http://127.0.0.1/kernel"]);
        assert!(succeeded && site.read("part") == expected, "{range}: {output}");
    }
    std::fs::write(site.lab.directory.path().join("resumed"), &kernel[..7_654_321]).unwrap();
    let (succeeded, output) =
        site.curl(&["-f", "-C", "-", "-o", "resumed", "http://127.0.0.1/kernel"]);
    assert!(succeeded && site.read("resumed") == kernel, "{output}");
    let (_, output) = site.curl(&[
        "-o",
        "none",
        "-w",
        "%{http_code}",
        "-r",
        "99999999-",
        "http://127.0.0.1/kernel",
    ]);
    assert_eq!(output, "416");
}

#[test]
fn curl_fetches_the_head_and_uses_entity_tags() {
    let Some(site) = HttpSite::new(&["curl"]) else { return };
    let (succeeded, output) = site.curl(&["-f", "-I", "http://127.0.0.1/kernel"]);
    assert!(succeeded && output.contains(&format!("Content-Length: {SIZE}\r\n")), "{output}");
    assert!(output.contains("Accept-Ranges: bytes\r\n"), "{output}");
    let url = "http://127.0.0.1/etc/boot.ipxe";
    let (_, output) = site.curl(&["-f", "--etag-save", "tag", url]);
    assert_eq!(output, "#!ipxe\n");
    let (_, output) = site.curl(&["-f", "--etag-compare", "tag", "-w", "%{http_code}", url]);
    assert_eq!(output, "304");
    std::fs::write(site.lab.directory.path().join("root/etc/boot.ipxe"), "#!ipxe\nshell\n")
        .unwrap();
    let (_, output) = site.curl(&["-f", "--etag-compare", "tag", "-w", "%{http_code}", url]);
    assert_eq!(output, "#!ipxe\nshell\n200");
}

#[test]
fn curl_reuses_its_connection() {
    let Some(site) = HttpSite::new(&["curl"]) else { return };
    let url = "http://127.0.0.1/etc/boot.ipxe";
    let counts = ["-o", "a", "-o", "b", "-o", "c", "-w", "%{num_connects} "];
    for (version, expected) in [("--http1.1", "1 0 0 "), ("--http1.0", "1 1 1 ")] {
        let (succeeded, output) =
            site.curl(&[&counts[..], &["-f", version, url, url, url]].concat());
        assert!(succeeded, "{output}");
        assert_eq!(output, expected, "{version}");
    }
    let (_, output) = site.curl(
        &[&counts[..], &["-f", "--http1.0", "-H", "Connection: keep-alive", url, url, url]]
            .concat(),
    );
    assert_eq!(output, "1 0 0 ");
}

#[test]
fn curl_cannot_leave_the_directory() {
    let Some(site) = HttpSite::new(&["curl"]) else { return };
    for (path, expected) in [
        ("/../secret", "400"),
        ("/%2e%2e/secret", "400"),
        ("/%2E%2e/secret", "400"),
        ("/.%2e/secret", "400"),
        ("/etc/../../secret", "400"),
        ("/etc/..%2f..%2fsecret", "400"),
        ("/..%5csecret", "400"),
        ("/..\\secret", "400"),
        ("/%c0%ae%c0%ae/secret", "400"),
        ("/%e0%80%ae%e0%80%ae/secret", "400"),
        ("/%u002e%u002e/secret", "400"),
        ("/%252e%252e/secret", "404"),
        ("/%252e%252e%252fsecret", "404"),
        ("//etc/boot.ipxe", "400"),
        ("/./etc/boot.ipxe", "400"),
        ("/etc/", "400"),
        ("/etc", "404"),
        ("/", "404"),
        ("/kernel%00.txt", "400"),
        ("/escape", "403"),
        ("/link", "200"),
    ] {
        let url = format!("http://127.0.0.1{path}");
        let (_, output) = site.curl(&["--path-as-is", "-g", "-w", "%{http_code}", &url]);
        assert!(output.ends_with(expected) && !output.contains("SECRET"), "{path}: {output}");
    }
}

#[test]
fn curl_may_only_read() {
    let Some(site) = HttpSite::new(&["curl"]) else { return };
    let url = "http://127.0.0.1/kernel";
    for (arguments, expected) in [
        (&["-X", "DELETE"][..], "405"),
        (&["-d", "data"], "405"),
        (&["-T", "root/kernel"], "405"),
        (&["-X", "OPTIONS"], "405"),
        (&["-X", "GET", "-d", "data"], "413"),
        (&["-H", "Expect: 100-continue"], "417"),
    ] {
        let arguments_after = ["-o", "response", "-w", "%{http_code}", url];
        let (_, output) = site.curl(&[arguments, &arguments_after].concat());
        assert!(output.ends_with(expected), "{arguments:?}: {output}");
    }
    assert_eq!(site.kernel().len(), SIZE);
}

#[test]
fn wget_resumes_a_download() {
    let Some(site) = HttpSite::new(&["wget"]) else { return };
    let kernel = site.kernel();
    std::fs::write(site.lab.directory.path().join("kernel"), &kernel[..12_345_678]).unwrap();
    let wget = ["wget", "-nv", "--no-config", "-c", "http://127.0.0.1/kernel"];
    let (succeeded, output) = site.lab.run("server", &wget);
    assert!(succeeded && site.read("kernel") == kernel, "{output}");
}

#[test]
fn curl_fetches_a_file_over_tls_and_verifies_the_server() {
    if !ready(&["curl", "ip"]) {
        return;
    }
    let lab = NetworkLab::new(&["server"]);
    let events = Arc::new(RecordedEvents::default());
    fill(&lab);
    let generated = rcgen::generate_simple_self_signed(["boot.example".to_owned()]).unwrap();
    let certificate = lab.directory.path().join("certificate.pem");
    let key = lab.directory.path().join("key.pem");
    std::fs::write(&certificate, generated.cert.pem()).unwrap();
    std::fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
    let mut settings = BootHttpSettings::new("127.0.0.1:443".parse().unwrap());
    let files = server_tls::CertificateFiles { certificate, key };
    settings.tls = Some(server_tls::ServerTls::from_files(files).unwrap().server_config());
    let server = start(&lab, &events, settings);
    let site = HttpSite { _server: server, lab, events };
    let trusted = ["--cacert", "certificate.pem", "--resolve", "boot.example:443:127.0.0.1", "-f"];
    let url = "https://boot.example/kernel";
    let kernel = site.kernel();
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let fetch = [&trusted[..], version, &["-o", "fetched", url]].concat();
        let (succeeded, output) = site.curl(&fetch);
        assert!(succeeded && site.read("fetched") == kernel, "{version:?}: {output}");
    }
    let part = [&trusted[..], &["-r", "100000-300000", "-o", "part", url]].concat();
    let (succeeded, output) = site.curl(&part);
    assert!(succeeded && site.read("part") == kernel[100_000..=300_000], "{output}");
    let (succeeded, _) = site.curl(&["--resolve", trusted[3], "-f", "-o", "no", url]);
    assert!(!succeeded, "the certificate is not trusted");
    let (_, output) = site.curl(&["http://127.0.0.1:443/kernel"]);
    assert!(output.contains("This port uses TLS; use https."), "{output}");
}
