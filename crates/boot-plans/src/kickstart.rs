// SPDX-License-Identifier: Apache-2.0
//! Kickstarts: what an installer is told, made of a template.
//!
//! Templates are Jinja's and find what they need under `ks_options`, by the names that templates
//! written for Ironic use.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};

/// The template of those who have none of their own.
pub(crate) const TEMPLATE: &str = include_str!("../templates/kickstart.cfg");

/// The longest template, in bytes.
pub(crate) const LONGEST_TEMPLATE: u64 = 1 << 20;
/// The longest kickstart, in bytes. What makes them long is the config drive.
const LONGEST: usize = 8 << 20;
/// How much a template may compute: a thousand times what one needs.
const FUEL: u64 = 1_000_000;

/// Where cloud-init looks for a config drive that is no drive.
const SEED: &str = "/var/lib/cloud/seed/config_drive";
/// Letters of base64 on a line.
const LINE: usize = 76;

/// What a template may name, all under `ks_options`, and whether it is there in any case.
const OPTIONS: &[(&str, bool)] = &[
    ("liveimg_url", true),
    ("agent_token", true),
    ("heartbeat_url", true),
    ("config_drive", true),
    ("is_source_a_path", false),
    ("repo_url", false),
    ("liveimg_checksum", false),
    ("insecure_heartbeat", false),
];

/// What a kickstart is made for.
pub(crate) struct Options<'a> {
    /// What is installed: an archive or a repository.
    pub(crate) source: &'a str,
    /// Whether it is a repository.
    pub(crate) is_repository: bool,
    /// The SHA-256 of the archive.
    pub(crate) checksum: Option<&'a str>,
    /// What the installer proves with that it is ours.
    pub(crate) token: &'a str,
    /// Where it calls.
    pub(crate) heartbeat_url: &'a str,
    /// Whether it does so without looking at certificates.
    pub(crate) insecure: bool,
    /// The section that writes the config drive; empty if there is none.
    pub(crate) config_drive: &'a str,
}

/// Why a template cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KickstartError {
    #[error("it names what there is not: {}; ks_options has {}", names.join(", "), known())]
    Unknown { names: Vec<String> },
    #[error("Jinja makes no kickstart of it: {0}")]
    Template(String),
    #[error("the kickstart it makes has no {{{{ ks_options.{0} }}}}, so {1}")]
    Lacks(&'static str, &'static str),
    #[error(
        "the kickstart it makes has {0} bytes, and may have {LONGEST}; make the config drive smaller"
    )]
    TooLong(usize),
}

/// Makes a kickstart.
pub(crate) fn render(template: &str, options: &Options<'_>) -> Result<String, KickstartError> {
    let mut environment = Environment::new();
    // What is asked for may be absent; what is written must not be.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    let wrong = |error: &minijinja::Error| KickstartError::Template(told(error));
    let parsed = environment.template_from_str(template).map_err(|error| wrong(&error))?;
    let context = BTreeMap::from([("ks_options", values(options))]);
    let mut kickstart = parsed.render(minijinja::Value::from(context)).map_err(|error| {
        let names = unknown(&parsed.undeclared_variables(true));
        if error.kind() == ErrorKind::UndefinedError && !names.is_empty() {
            KickstartError::Unknown { names }
        } else {
            wrong(&error)
        }
    })?;
    for (name, value, consequence) in [
        ("agent_token", options.token, "nobody would believe the installer's calls"),
        ("heartbeat_url", options.heartbeat_url, "the installer would not say when it is done"),
        ("config_drive", options.config_drive, "the instance's config drive would be lost"),
    ] {
        if !kickstart.contains(value) {
            return Err(KickstartError::Lacks(name, consequence));
        }
    }
    // Jinja drops the end of the last line.
    if !kickstart.ends_with('\n') {
        kickstart.push('\n');
    }
    if kickstart.len() > LONGEST {
        return Err(KickstartError::TooLong(kickstart.len()));
    }
    Ok(kickstart)
}

/// The section of a kickstart that writes the files of a config drive into the installed system.
pub(crate) fn config_drive_section(files: &[(String, &[u8])]) -> String {
    let mut section = "\n%post --erroronfail\nset -e\n".to_owned();
    for (path, content) in files {
        let path = format!("{SEED}/{path}");
        let folder = path.rsplit_once('/').map_or(SEED, |(folder, _)| folder);
        let (folder, path) = (quoted(folder), quoted(&path));
        let _ = writeln!(section, "mkdir -p {folder}\nbase64 -d >{path} <<'END-OF-FILE'");
        let letters = STANDARD.encode(content);
        let mut rest = letters.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(LINE));
            section.push_str(line);
            section.push('\n');
            rest = after;
        }
        let _ = writeln!(section, "END-OF-FILE\nchmod 600 {path}");
    }
    section.push_str("%end\n");
    section
}

fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', "'\\''"))
}

fn values(options: &Options<'_>) -> BTreeMap<&'static str, String> {
    let mut values = BTreeMap::from([
        ("liveimg_url", options.source.to_owned()),
        ("agent_token", options.token.to_owned()),
        ("heartbeat_url", options.heartbeat_url.to_owned()),
        ("config_drive", options.config_drive.to_owned()),
    ]);
    if options.is_repository {
        values.insert("is_source_a_path", "true".to_owned());
        values.insert("repo_url", options.source.to_owned());
    }
    if let Some(checksum) = options.checksum {
        values.insert("liveimg_checksum", checksum.to_owned());
    }
    if options.insecure {
        values.insert("insecure_heartbeat", "true".to_owned());
    }
    values
}

/// The names in a template that nobody knows, in order.
fn unknown(names: &HashSet<String>) -> Vec<String> {
    let is_known = |name: &String| {
        name == "ks_options"
            || name.strip_prefix("ks_options.").is_some_and(|option| {
                // What is there only sometimes is as unknown if it is not.
                OPTIONS.iter().any(|(known, always)| *known == option && *always)
            })
    };
    let mut names: Vec<String> = names.iter().filter(|name| !is_known(name)).cloned().collect();
    names.sort();
    names
}

fn known() -> String {
    let (always, sometimes): (Vec<_>, Vec<_>) = OPTIONS.iter().partition(|(_, always)| *always);
    let list = |options: Vec<&(&'static str, bool)>| {
        let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    };
    format!("{}, and sometimes {}", list(always), list(sometimes))
}

/// What is wrong with a template, and where.
fn told(error: &minijinja::Error) -> String {
    let place = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{}{detail}{place}", error.kind())
}

#[cfg(test)]
mod tests;
