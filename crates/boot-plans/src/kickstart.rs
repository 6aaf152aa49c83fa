// SPDX-License-Identifier: Apache-2.0
//! Generates kickstart files for Anaconda from a template.
//!
//! Templates are Jinja templates. Their variables are below `ks_options`, with the names that templates
//! for Ironic use.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};

/// The default template.
pub(crate) const DEFAULT_TEMPLATE: &str = include_str!("../templates/kickstart.cfg");

/// Maximum size of a template.
pub(crate) const MAX_TEMPLATE_BYTES: u64 = 1 << 20;
/// Maximum size of a kickstart; most of a long one is the config drive.
const MAX_KICKSTART_BYTES: usize = 8 << 20;
/// Limit of Jinja instructions: about a thousand times what a template needs.
const FUEL: u64 = 1_000_000;

/// Where cloud-init reads a config drive that is not a block device.
const CLOUD_INIT_SEED_DIR: &str = "/var/lib/cloud/seed/config_drive";
/// Characters of base64 per line.
const BASE64_LINE_LENGTH: usize = 76;

/// The variables below `ks_options`, and whether each is always defined.
const OPTION_NAMES: &[(&str, bool)] = &[
    ("liveimg_url", true),
    ("agent_token", true),
    ("heartbeat_url", true),
    ("config_drive", true),
    ("is_source_a_path", false),
    ("repo_url", false),
    ("liveimg_checksum", false),
    ("insecure_heartbeat", false),
    ("heartbeat_ca", false),
];

/// The values for a kickstart.
pub(crate) struct KickstartOptions<'a> {
    /// URL of what is installed: an archive or a repository.
    pub(crate) source: &'a str,
    /// Whether `source` is a repository.
    pub(crate) is_repository: bool,
    /// The SHA-256 of the archive.
    pub(crate) checksum: Option<&'a str>,
    /// The agent token.
    pub(crate) token: &'a str,
    /// The heartbeat URL.
    pub(crate) heartbeat_url: &'a str,
    /// Whether heartbeats are sent without certificate verification.
    pub(crate) insecure_heartbeat: bool,
    /// The CA certificates (PEM) with which heartbeats verify the API.
    pub(crate) heartbeat_ca: Option<&'a str>,
    /// The section that writes the config drive; empty without a config drive.
    pub(crate) config_drive: &'a str,
}

/// Why a template cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KickstartError {
    #[error("undefined variables: {}; ks_options has {}", names.join(", "), known_options())]
    UnknownVariables { names: Vec<String> },
    #[error("the template cannot be rendered: {0}")]
    Template(String),
    #[error("the rendered kickstart lacks {{{{ ks_options.{0} }}}}, so {1}")]
    MissingOption(&'static str, &'static str),
    #[error(
        "the rendered kickstart has {0} bytes, but at most {MAX_KICKSTART_BYTES} are allowed; make the config drive smaller"
    )]
    TooLong(usize),
}

/// Renders a kickstart. Fails if the result lacks the token, the heartbeat URL or the config drive.
pub(crate) fn render(
    template: &str,
    options: &KickstartOptions<'_>,
) -> Result<String, KickstartError> {
    let mut environment = Environment::new();
    // Tests of undefined variables are allowed, output of them is an error.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_fuel(Some(FUEL));
    let template_error =
        |error: &minijinja::Error| KickstartError::Template(describe_template_error(error));
    let parsed = environment.template_from_str(template).map_err(|error| template_error(&error))?;
    let context = BTreeMap::from([("ks_options", option_values(options))]);
    let mut kickstart = parsed.render(minijinja::Value::from(context)).map_err(|error| {
        let names = unknown_variables(&parsed.undeclared_variables(true));
        if error.kind() == ErrorKind::UndefinedError && !names.is_empty() {
            KickstartError::UnknownVariables { names }
        } else {
            template_error(&error)
        }
    })?;
    for (name, value, consequence) in [
        ("agent_token", options.token, "heartbeats of the installer would be rejected"),
        ("heartbeat_url", options.heartbeat_url, "the installer could not report its status"),
        ("config_drive", options.config_drive, "the config drive of the instance would be lost"),
    ] {
        if !kickstart.contains(value) {
            return Err(KickstartError::MissingOption(name, consequence));
        }
    }
    // Jinja removes the newline at the end.
    if !kickstart.ends_with('\n') {
        kickstart.push('\n');
    }
    if kickstart.len() > MAX_KICKSTART_BYTES {
        return Err(KickstartError::TooLong(kickstart.len()));
    }
    Ok(kickstart)
}

/// Returns the kickstart section that writes the files of a config drive into the installed system.
pub(crate) fn config_drive_section(files: &[(String, &[u8])]) -> String {
    let mut section = "\n%post --erroronfail\nset -e\n".to_owned();
    for (path, content) in files {
        let path = format!("{CLOUD_INIT_SEED_DIR}/{path}");
        let folder = path.rsplit_once('/').map_or(CLOUD_INIT_SEED_DIR, |(folder, _)| folder);
        let (folder, path) = (shell_quoted(folder), shell_quoted(&path));
        let _ = writeln!(section, "mkdir -p {folder}\nbase64 -d >{path} <<'END-OF-FILE'");
        let encoded = STANDARD.encode(content);
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(BASE64_LINE_LENGTH));
            section.push_str(line);
            section.push('\n');
            rest = after;
        }
        let _ = writeln!(section, "END-OF-FILE\nchmod 600 {path}");
    }
    section.push_str("%end\n");
    section
}

fn shell_quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', "'\\''"))
}

fn option_values(options: &KickstartOptions<'_>) -> BTreeMap<&'static str, String> {
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
    if options.insecure_heartbeat {
        values.insert("insecure_heartbeat", "true".to_owned());
    }
    if let Some(certificates) = options.heartbeat_ca.filter(|_| !options.insecure_heartbeat) {
        values.insert("heartbeat_ca", certificates.trim_end().to_owned());
    }
    values
}

/// Returns the undefined variables of a template, sorted.
fn unknown_variables(names: &HashSet<String>) -> Vec<String> {
    let is_known = |name: &String| {
        name == "ks_options"
            || name.strip_prefix("ks_options.").is_some_and(|option| {
                // Variables that are only sometimes defined are undefined here if they are not.
                OPTION_NAMES.iter().any(|(known, always)| *known == option && *always)
            })
    };
    let mut names: Vec<String> = names.iter().filter(|name| !is_known(name)).cloned().collect();
    names.sort();
    names
}

fn known_options() -> String {
    let (always, sometimes): (Vec<_>, Vec<_>) =
        OPTION_NAMES.iter().partition(|(_, always)| *always);
    let list = |options: Vec<&(&'static str, bool)>| {
        let names: Vec<&str> = options.iter().map(|(name, _)| *name).collect();
        names.join(", ")
    };
    format!("{}, and sometimes {}", list(always), list(sometimes))
}

/// Returns the message of a template error with its line.
fn describe_template_error(error: &minijinja::Error) -> String {
    let line = error.line().map(|line| format!(" in line {line}")).unwrap_or_default();
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{}{detail}{line}", error.kind())
}

#[cfg(test)]
mod tests;
