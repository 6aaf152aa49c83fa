// SPDX-License-Identifier: Apache-2.0
//! Kickstarts of our own template and of templates as people have them.

use expect_test::expect;

use super::*;

const TOKEN: &str = "a-token-of-43-letters";
const CALL: &str = "http://10.0.0.1:6385/v1/heartbeat/f00d";

fn archive() -> Options<'static> {
    Options {
        source: "http://images.example/system.tar.gz",
        is_repository: false,
        checksum: None,
        token: TOKEN,
        heartbeat_url: CALL,
        insecure: false,
        config_drive: "",
    }
}

fn repository() -> Options<'static> {
    Options { source: "http://mirror.example/os/", is_repository: true, ..archive() }
}

#[test]
fn our_own_template_installs_an_archive() {
    expect![[r##"
        # What Anaconda does on this machine, once. Made by Ferrite from its own template; give another with
        # instance_info/ks_template or boot.default_ks_template.
        text
        lang en_US.UTF-8
        keyboard us
        timezone UTC --utc
        network --bootproto=dhcp --device=link --activate
        rootpw --lock
        firstboot --disable
        selinux --enforcing

        # Everything on every disk goes.
        zerombr
        clearpart --all --initlabel
        autopart
        bootloader --location=mbr

        # Ferrite switches the machine on again when it boots its disk.
        poweroff

        liveimg --url=http://images.example/system.tar.gz

        %pre
        curl --silent --show-error --max-time 60 --retry 30 --retry-delay 10 --retry-connrefused \
            -X POST -H 'Content-Type: application/json' -H 'X-OpenStack-Ironic-API-Version: 1.72' \
            -d '{"callback_url": "", "agent_token": "a-token-of-43-letters", "agent_status": "start", "agent_status_message": "Anaconda runs and begins to install."}' \
            http://10.0.0.1:6385/v1/heartbeat/f00d
        %end

        %onerror
        # The last lines with errors, without what JSON and the shell would trip over.
        why=$(cd /tmp && grep -h -E ' (ERR|CRT)' anaconda.log program.log packaging.log 2>/dev/null \
            | tail -n 3 | tr -d "\"'\\\\" | tr -s '[:cntrl:]' ' ' | cut -c 1-600)
        curl --silent --show-error --max-time 60 --retry 30 --retry-delay 10 --retry-connrefused \
            -X POST -H 'Content-Type: application/json' -H 'X-OpenStack-Ironic-API-Version: 1.72' \
            -d '{"callback_url": "", "agent_token": "a-token-of-43-letters", "agent_status": "error", "agent_status_message": "Anaconda gave up. '"${why:+$why }"'Its screen and the logs in /tmp say more."}' \
            http://10.0.0.1:6385/v1/heartbeat/f00d
        %end

        # The last of all: after this call the machine is switched off. It comes from the installer's own
        # system, where curl is in any case.
        %post --nochroot
        sync
        curl --silent --show-error --max-time 60 --retry 30 --retry-delay 10 --retry-connrefused \
            -X POST -H 'Content-Type: application/json' -H 'X-OpenStack-Ironic-API-Version: 1.72' \
            -d '{"callback_url": "", "agent_token": "a-token-of-43-letters", "agent_status": "end", "agent_status_message": "The system is installed."}' \
            http://10.0.0.1:6385/v1/heartbeat/f00d
        %end
    "##]].assert_eq(&render(TEMPLATE, &archive()).unwrap());
}

#[test]
fn our_own_template_with_everything() {
    let files: &[(String, &[u8])] = &[
        ("openstack/latest/meta_data.json".to_owned(), br#"{"hostname": "web1"}"#),
        ("openstack/latest/user_data".to_owned(), &[b'x'; 100]),
        ("openstack/it's".to_owned(), b""),
    ];
    let config_drive = config_drive_section(files);
    expect![[r#"

        %post --erroronfail
        set -e
        mkdir -p '/var/lib/cloud/seed/config_drive/openstack/latest'
        base64 -d >'/var/lib/cloud/seed/config_drive/openstack/latest/meta_data.json' <<'END-OF-FILE'
        eyJob3N0bmFtZSI6ICJ3ZWIxIn0=
        END-OF-FILE
        chmod 600 '/var/lib/cloud/seed/config_drive/openstack/latest/meta_data.json'
        mkdir -p '/var/lib/cloud/seed/config_drive/openstack/latest'
        base64 -d >'/var/lib/cloud/seed/config_drive/openstack/latest/user_data' <<'END-OF-FILE'
        eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4
        eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eA==
        END-OF-FILE
        chmod 600 '/var/lib/cloud/seed/config_drive/openstack/latest/user_data'
        mkdir -p '/var/lib/cloud/seed/config_drive/openstack'
        base64 -d >'/var/lib/cloud/seed/config_drive/openstack/it'\''s' <<'END-OF-FILE'
        END-OF-FILE
        chmod 600 '/var/lib/cloud/seed/config_drive/openstack/it'\''s'
        %end
    "#]].assert_eq(&config_drive);
    let digits = "0".repeat(64);
    let options = Options {
        checksum: Some(&digits),
        insecure: true,
        config_drive: &config_drive,
        ..archive()
    };
    let kickstart = render(TEMPLATE, &options).unwrap();
    assert!(kickstart.contains(&format!("system.tar.gz --checksum={digits}\n")), "{kickstart}");
    assert_eq!(kickstart.matches("--retry-connrefused --insecure \\\n").count(), 3, "{kickstart}");
    assert!(kickstart.contains(&config_drive));
    let last = kickstart.rfind("%post").unwrap();
    assert!(kickstart[last..].contains("\"end\""), "nothing comes after the last call");
    let kickstart = render(TEMPLATE, &repository()).unwrap();
    assert!(
        kickstart.contains("\nurl --url=http://mirror.example/os/\n\n%packages"),
        "{kickstart}"
    );
    assert!(!kickstart.contains("liveimg"), "{kickstart}");
}

/// As templates for Ironic are written.
const OF_SOMEBODY: &str = r#"
{% if 'is_source_a_path' in ks_options -%}
url --url {{ks_options.liveimg_url }}
{% else -%}
liveimg --url {{ ks_options.liveimg_url }}
{% endif -%}
%pre
curl {% if 'insecure_heartbeat' in ks_options %}--insecure{% endif %} -d '{"agent_token": "{{ ks_options.agent_token }}"}' {{ ks_options.heartbeat_url }}
%end
{{ ks_options.config_drive }}
{# a remark -#}
{% for word in ["one", "two"] %}{{ word | upper }} {% endfor %}{{ ks_options.absent | default("none") }}
{% if ks_options.absent %}never{% endif %}
"#;

#[test]
fn templates_of_others() {
    let expected = expect![[r#"

        liveimg --url http://images.example/system.tar.gz
        %pre
        curl  -d '{"agent_token": "a-token-of-43-letters"}' http://10.0.0.1:6385/v1/heartbeat/f00d
        %end

        ONE TWO none
    "#]];
    expected.assert_eq(&render(OF_SOMEBODY, &archive()).unwrap());
    let repository = render(OF_SOMEBODY, &repository()).unwrap();
    assert!(repository.starts_with("\nurl --url http://mirror.example/os/\n"), "{repository}");
}

#[test]
fn what_is_wrong_with_a_template_is_explained() {
    let whole = "{{ ks_options.agent_token }} {{ ks_options.heartbeat_url }}";
    render(whole, &archive()).unwrap();
    for (template, expected) in [
        (
            format!("{whole}\n{{{{ ks_options.hostname }}}} {{{{ node.uuid }}}}"),
            expect![
                "it names what there is not: ks_options.hostname, node.uuid; ks_options has liveimg_url, agent_token, heartbeat_url, config_drive, and sometimes is_source_a_path, repo_url, liveimg_checksum, insecure_heartbeat"
            ],
        ),
        (
            format!("{whole} {{{{ ks_options.repo_url }}}}"),
            expect![
                "it names what there is not: ks_options.repo_url; ks_options has liveimg_url, agent_token, heartbeat_url, config_drive, and sometimes is_source_a_path, repo_url, liveimg_checksum, insecure_heartbeat"
            ],
        ),
        (
            format!("{whole}\n{{% if %}}"),
            expect![
                "Jinja makes no kickstart of it: syntax error: unexpected end of block in line 2"
            ],
        ),
        (
            format!("{whole}\n{{% include '/etc/passwd' %}}"),
            expect![
                "Jinja makes no kickstart of it: template not found: tried to include non-existing template '/etc/passwd' in line 2"
            ],
        ),
        (
            "{{ ks_options.agent_token }}".to_owned(),
            expect![
                "the kickstart it makes has no {{ ks_options.heartbeat_url }}, so the installer would not say when it is done"
            ],
        ),
        (
            "{{ ks_options.heartbeat_url }}".to_owned(),
            expect![
                "the kickstart it makes has no {{ ks_options.agent_token }}, so nobody would believe the installer's calls"
            ],
        ),
        (
            format!(
                "{whole}{{% for a in range(9999) %}}{{% for b in range(9999) %}}{{% endfor %}}\
                 {{% endfor %}}"
            ),
            expect!["Jinja makes no kickstart of it: engine ran out of fuel in line 1"],
        ),
    ] {
        expected.assert_eq(&render(&template, &archive()).unwrap_err().to_string());
    }
    let with_drive = Options { config_drive: "%post\n%end\n", ..archive() };
    expect!["the kickstart it makes has no {{ ks_options.config_drive }}, so the instance's config drive would be lost"].assert_eq(&render(whole, &with_drive).unwrap_err().to_string());
    let long = "x".repeat(LONGEST);
    let too_long = Options { config_drive: &long, ..archive() };
    let template = format!("{whole} {{{{ ks_options.config_drive }}}}");
    expect!["the kickstart it makes has 8388670 bytes, and may have 8388608; make the config drive smaller"].assert_eq(&render(&template, &too_long).unwrap_err().to_string());
}
