// SPDX-License-Identifier: Apache-2.0
//! HTTP clients of Debian, on the loopback interface of a space of their own.

use std::sync::Arc;

use boot_server::What;
use boot_server::http::{Folder, Server, Services, Settings, tls_from_files};

use super::lab::{Lab, Seen, Serving, ready, wall_clock};

const SIZE: usize = 20_480_123;

/// `kernel` and `etc/boot.ipxe` can be had, `link` stays inside, `escape` does not; `secret` is outside.
fn serve(lab: &Lab, seen: &Arc<Seen>) -> Serving {
    fill(lab);
    let settings = Settings::new("127.0.0.1:80".parse().unwrap());
    start(lab, seen, settings)
}

fn fill(lab: &Lab) {
    let root = lab.folder.path().join("root");
    std::fs::create_dir_all(root.join("etc")).unwrap();
    let bytes: Vec<u8> = (0..SIZE).map(|at| (at * 31 + at / 251) as u8).collect();
    std::fs::write(root.join("kernel"), bytes).unwrap();
    std::fs::write(root.join("etc/boot.ipxe"), "#!ipxe\n").unwrap();
    std::fs::write(lab.folder.path().join("secret"), "SECRET").unwrap();
    std::os::unix::fs::symlink("etc/boot.ipxe", root.join("link")).unwrap();
    std::os::unix::fs::symlink("../secret", root.join("escape")).unwrap();
}

fn start(lab: &Lab, seen: &Arc<Seen>, settings: Settings) -> Serving {
    let services = Services {
        pages: Arc::new(Folder::open(lab.folder.path().join("root")).unwrap()),
        sightings: seen.clone(),
        clock: wall_clock,
    };
    lab.serve("server", move || Server::bind(settings, services).unwrap().run())
}

struct Site {
    _serving: Serving,
    lab: Lab,
    seen: Arc<Seen>,
}

impl Site {
    /// `None` without the programs.
    fn new(programs: &[&str]) -> Option<Self> {
        if !ready(&[programs, &["ip"]].concat()) {
            return None;
        }
        let lab = Lab::new(&["server"]);
        let seen = Arc::new(Seen::default());
        let serving = serve(&lab, &seen);
        Some(Self { _serving: serving, lab, seen })
    }

    fn curl(&self, arguments: &[&str]) -> (bool, String) {
        self.lab.run("server", &[&["curl", "-sS"], arguments].concat())
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.lab.folder.path().join(name)).unwrap_or_default()
    }

    fn kernel(&self) -> Vec<u8> {
        self.read("root/kernel")
    }
}

#[test]
fn curl_fetches_a_file() {
    let Some(site) = Site::new(&["curl"]) else { return };
    let (succeeded, said) =
        site.curl(&["-f", "-o", "fetched", "-A", "iPXE/1.21.1", "http://127.0.0.1/kernel"]);
    assert!(succeeded, "{said}");
    assert!(site.read("fetched") == site.kernel());
    site.seen.wait_until("the fetched kernel", |what| match what {
        What::Http { title, status, sent, whole, agent, .. } => {
            (&**title, *status, *sent, *whole, &**agent)
                == ("/kernel", 200, SIZE as u64, true, "iPXE/1.21.1")
        }
        What::Dhcp4 { .. } | What::Dhcp6 { .. } | What::Tftp { .. } => false,
    });
}

#[test]
fn curl_asks_for_parts_and_goes_on_where_it_stopped() {
    let Some(site) = Site::new(&["curl"]) else { return };
    let kernel = site.kernel();
    for (range, expected) in [
        ("0-0", &kernel[..1]),
        ("1000-4999999", &kernel[1000..5_000_000]),
        ("20480000-", &kernel[20_480_000..]),
        ("-77", &kernel[SIZE - 77..]),
        // Several at once are answered with the whole.
        ("0-1,5-6", &kernel[..]),
    ] {
        let (succeeded, said) =
            site.curl(&["-f", "-r", range, "-o", "part", "http://127.0.0.1/kernel"]);
        assert!(succeeded && site.read("part") == expected, "{range}: {said}");
    }
    std::fs::write(site.lab.folder.path().join("resumed"), &kernel[..7_654_321]).unwrap();
    let (succeeded, said) =
        site.curl(&["-f", "-C", "-", "-o", "resumed", "http://127.0.0.1/kernel"]);
    assert!(succeeded && site.read("resumed") == kernel, "{said}");
    let (_, said) = site.curl(&[
        "-o",
        "none",
        "-w",
        "%{http_code}",
        "-r",
        "99999999-",
        "http://127.0.0.1/kernel",
    ]);
    assert_eq!(said, "416");
}

#[test]
fn curl_asks_for_the_head_and_for_what_has_changed() {
    let Some(site) = Site::new(&["curl"]) else { return };
    let (succeeded, said) = site.curl(&["-f", "-I", "http://127.0.0.1/kernel"]);
    assert!(succeeded && said.contains(&format!("Content-Length: {SIZE}\r\n")), "{said}");
    assert!(said.contains("Accept-Ranges: bytes\r\n"), "{said}");
    let url = "http://127.0.0.1/etc/boot.ipxe";
    let (_, said) = site.curl(&["-f", "--etag-save", "tag", url]);
    assert_eq!(said, "#!ipxe\n");
    let (_, said) = site.curl(&["-f", "--etag-compare", "tag", "-w", "%{http_code}", url]);
    assert_eq!(said, "304");
    std::fs::write(site.lab.folder.path().join("root/etc/boot.ipxe"), "#!ipxe\nshell\n").unwrap();
    let (_, said) = site.curl(&["-f", "--etag-compare", "tag", "-w", "%{http_code}", url]);
    assert_eq!(said, "#!ipxe\nshell\n200");
}

#[test]
fn curl_keeps_its_connection() {
    let Some(site) = Site::new(&["curl"]) else { return };
    let url = "http://127.0.0.1/etc/boot.ipxe";
    let counts = ["-o", "a", "-o", "b", "-o", "c", "-w", "%{num_connects} "];
    for (version, expected) in [("--http1.1", "1 0 0 "), ("--http1.0", "1 1 1 ")] {
        let (succeeded, said) = site.curl(&[&counts[..], &["-f", version, url, url, url]].concat());
        assert!(succeeded, "{said}");
        assert_eq!(said, expected, "{version}");
    }
    let (_, said) = site.curl(
        &[&counts[..], &["-f", "--http1.0", "-H", "Connection: keep-alive", url, url, url]]
            .concat(),
    );
    assert_eq!(said, "1 0 0 ");
}

#[test]
fn curl_cannot_leave_the_folder() {
    let Some(site) = Site::new(&["curl"]) else { return };
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
        let (_, said) = site.curl(&["--path-as-is", "-g", "-w", "%{http_code}", &url]);
        assert!(said.ends_with(expected) && !said.contains("SECRET"), "{path}: {said}");
    }
}

#[test]
fn curl_may_only_read() {
    let Some(site) = Site::new(&["curl"]) else { return };
    let url = "http://127.0.0.1/kernel";
    for (arguments, expected) in [
        (&["-X", "DELETE"][..], "405"),
        (&["-d", "data"], "405"),
        (&["-T", "root/kernel"], "405"),
        (&["-X", "OPTIONS"], "405"),
        (&["-X", "GET", "-d", "data"], "413"),
        (&["-H", "Expect: 100-continue"], "417"),
    ] {
        let written = ["-o", "answer", "-w", "%{http_code}", url];
        let (_, said) = site.curl(&[arguments, &written].concat());
        assert!(said.ends_with(expected), "{arguments:?}: {said}");
    }
    assert_eq!(site.kernel().len(), SIZE);
}

#[test]
fn wget_fetches_a_file_and_goes_on_where_it_stopped() {
    let Some(site) = Site::new(&["wget"]) else { return };
    let kernel = site.kernel();
    std::fs::write(site.lab.folder.path().join("kernel"), &kernel[..12_345_678]).unwrap();
    let wget = ["wget", "-nv", "--no-config", "-c", "http://127.0.0.1/kernel"];
    let (succeeded, said) = site.lab.run("server", &wget);
    assert!(succeeded && site.read("kernel") == kernel, "{said}");
}

#[test]
fn curl_fetches_a_file_over_tls_and_knows_the_server() {
    if !ready(&["curl", "ip"]) {
        return;
    }
    let lab = Lab::new(&["server"]);
    let seen = Arc::new(Seen::default());
    fill(&lab);
    let made = rcgen::generate_simple_self_signed(["boot.example".to_owned()]).unwrap();
    let certificate = lab.folder.path().join("certificate.pem");
    let key = lab.folder.path().join("key.pem");
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut settings = Settings::new("127.0.0.1:443".parse().unwrap());
    settings.tls = Some(tls_from_files(&certificate, &key).unwrap());
    let serving = start(&lab, &seen, settings);
    let site = Site { _serving: serving, lab, seen };
    let trusted = ["--cacert", "certificate.pem", "--resolve", "boot.example:443:127.0.0.1", "-f"];
    let url = "https://boot.example/kernel";
    let kernel = site.kernel();
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let fetch = [&trusted[..], version, &["-o", "fetched", url]].concat();
        let (succeeded, said) = site.curl(&fetch);
        assert!(succeeded && site.read("fetched") == kernel, "{version:?}: {said}");
    }
    let part = [&trusted[..], &["-r", "100000-300000", "-o", "part", url]].concat();
    let (succeeded, said) = site.curl(&part);
    assert!(succeeded && site.read("part") == kernel[100_000..=300_000], "{said}");
    let (succeeded, _) = site.curl(&["--resolve", trusted[3], "-f", "-o", "no", url]);
    assert!(!succeeded, "nobody vouches for this certificate");
    let (succeeded, _) = site.curl(&["-f", "-o", "no", "http://127.0.0.1:443/kernel"]);
    assert!(!succeeded, "plain HTTP is not spoken there");
}
