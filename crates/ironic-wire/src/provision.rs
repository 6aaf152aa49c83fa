// SPDX-License-Identifier: Apache-2.0
//! `PUT …/states/provision`: the verb, its arguments, and their first versions.
//!
//! Parsing has three stages, because clients rely on the order of the errors: first the shape of the
//! body; then, after the node lookup, whether the version has the verb; then, after the check that
//! the verb is allowed in the node's state, its arguments.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "JSON has six kinds of value and will not get a seventh"
)]

use node_model::{ProvisionState, Secret, Step, Verb};
use serde_json::{Map, Value};

use crate::error::WireError;
use crate::requests::BodyMembers;
use crate::steps::{deploy_steps, requested_steps};
use crate::value::{SHORT_TEXT, ValueError, flag, mandatory_text, text, unexpected_type};
use crate::version::ApiVersion;

/// First microversion of a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerbGate {
    /// The verb.
    pub verb: Verb,
    /// The microversion.
    pub since: u16,
    /// Whether the state is checked before the version, so that a verb not allowed is 400, not 406.
    pub state_first: bool,
}

const fn gate(verb: Verb, since: u16) -> VerbGate {
    VerbGate { verb, since, state_first: false }
}

/// All verbs. `undeploy` is documented for 1.73, but accepted in all versions.
pub const VERB_GATES: &[VerbGate] = &[
    gate(Verb::Active, 1),
    gate(Verb::Rebuild, 1),
    gate(Verb::Deleted, 1),
    gate(Verb::Undeploy, 1),
    gate(Verb::Manage, 4),
    gate(Verb::Provide, 4),
    gate(Verb::Inspect, 6),
    gate(Verb::Abort, 13),
    gate(Verb::Clean, 15),
    gate(Verb::Adopt, 17),
    gate(Verb::Rescue, 38),
    gate(Verb::Unrescue, 38),
    gate(Verb::Deploy, 73),
    VerbGate { verb: Verb::Unhold, since: 85, state_first: true },
    VerbGate { verb: Verb::Service, since: 87, state_first: true },
];

/// The gate of `verb`.
#[must_use]
pub fn verb_gate(verb: Verb) -> VerbGate {
    VERB_GATES.iter().copied().find(|gate| gate.verb == verb).unwrap_or(VerbGate {
        verb,
        since: u16::MAX,
        state_first: false,
    })
}

/// Rejects a verb that `version` does not have.
///
/// # Errors
/// 406.
pub fn check_verb_version(verb: Verb, version: ApiVersion) -> Result<(), WireError> {
    let gate = verb_gate(verb);
    if version.has(gate.since) {
        Ok(())
    } else {
        Err(WireError::too_new(&format!("provision target {verb}"), gate.since))
    }
}

/// Rejects `abort` in states in which `version` cannot abort.
///
/// # Errors
/// 406.
pub fn check_abort_version(state: ProvisionState, version: ApiVersion) -> Result<(), WireError> {
    let abort_since = [(ProvisionState::InspectWait, 41), (ProvisionState::DeployWait, 110)];
    match abort_since.iter().find(|(other, since)| *other == state && !version.has(*since)) {
        Some((state, since)) => Err(WireError::too_new(&format!("abort in state {state}"), *since)),
        None => Ok(()),
    }
}

/// The body, of which only the shape is checked.
#[derive(Clone, PartialEq, Debug)]
pub struct ProvisionBody {
    /// The verb as sent, for messages.
    pub target: String,
    /// The verb; `None` if it is unknown, for which the response is [`WireError::invalid_state`].
    pub verb: Option<Verb>,
    configdrive: Value,
    clean_steps: Value,
    deploy_steps: Value,
    service_steps: Value,
    rescue_password: Option<Secret<String>>,
    disable_ramdisk: Option<bool>,
    runbook: Option<String>,
}

/// A config drive as sent.
#[derive(Clone, PartialEq, Debug)]
pub enum ConfigDriveInput {
    /// A URL, or a gzipped ISO image in base64.
    Text(Secret<String>),
    /// The content to build it from: `meta_data`, `network_data`, `user_data`, `vendor_data`.
    Parts(Secret<Map<String, Value>>),
}

/// The checked arguments of a verb.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProvisionArguments {
    /// For `active` and `rebuild`.
    pub configdrive: Option<ConfigDriveInput>,
    /// Clean, deploy or service steps, depending on the verb.
    pub steps: Vec<Step>,
    /// For `rescue`.
    pub rescue_password: Option<Secret<String>>,
    /// For `clean` and `service`.
    pub disable_ramdisk: bool,
    /// For `clean` and `service`: name or UUID of a runbook, instead of steps.
    pub runbook: Option<String>,
}

impl ProvisionBody {
    /// Parses the body.
    ///
    /// # Errors
    /// 400 for unknown, missing or wrongly typed members.
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut members = BodyMembers::parse(body, "provision")?;
        let target = members.require("target", |value| mandatory_text(value, SHORT_TEXT))?;
        let request = Self {
            verb: target.parse().ok(),
            target,
            configdrive: members.take("configdrive", Ok)?,
            clean_steps: members.take("clean_steps", Ok)?,
            deploy_steps: members.take("deploy_steps", Ok)?,
            service_steps: members.take("service_steps", Ok)?,
            rescue_password: members
                .take("rescue_password", |value| text(value, 65_535))?
                .map(Secret::new),
            disable_ramdisk: members.take("disable_ramdisk", |value| flag(&value))?,
            runbook: members.take("runbook", |value| text(value, SHORT_TEXT))?,
        };
        members.finish()?;
        Ok(request)
    }

    /// Name or UUID of the runbook, if given.
    #[must_use]
    pub fn runbook(&self) -> Option<&str> {
        self.runbook.as_deref()
    }

    /// Checks the arguments of `verb`.
    ///
    /// # Errors
    /// 400 for missing, invalid or inapplicable arguments, 406 for arguments of a later version.
    pub fn arguments(
        self,
        verb: Verb,
        version: ApiVersion,
    ) -> Result<ProvisionArguments, WireError> {
        let deploys = matches!(verb, Verb::Active | Verb::Deploy | Verb::Rebuild);
        let runs_steps = matches!(verb, Verb::Clean | Verb::Service);
        self.check_members_for_verb(verb, version, deploys, runs_steps)?;
        self.check_versions(verb, version)?;

        let in_field = |field: &'static str| move |error: ValueError| error.in_field(field);
        let steps = match verb {
            Verb::Clean => requested_steps(self.clean_steps).map_err(in_field("clean_steps"))?,
            Verb::Service => {
                requested_steps(self.service_steps).map_err(in_field("service_steps"))?
            }
            Verb::Active | Verb::Deploy | Verb::Rebuild => {
                deploy_steps(self.deploy_steps).map_err(in_field("deploy_steps"))?
            }
            Verb::Deleted
            | Verb::Undeploy
            | Verb::Manage
            | Verb::Provide
            | Verb::Inspect
            | Verb::Abort
            | Verb::Adopt
            | Verb::Rescue
            | Verb::Unrescue
            | Verb::Unhold => Vec::new(),
        };
        if runs_steps {
            match (steps.is_empty(), &self.runbook) {
                (true, None) => {
                    return Err(WireError::invalid(format!(
                        "\"{verb}_steps\" or a runbook is required when setting provision state to {verb}"
                    )));
                }
                (false, Some(_)) => {
                    return Err(WireError::invalid(format!(
                        "\"{verb}_steps\" and \"runbook\" can not be given together"
                    )));
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        if verb == Verb::Rescue
            && self
                .rescue_password
                .as_ref()
                .is_none_or(|password| password.reveal().trim().is_empty())
        {
            return Err(WireError::invalid(
                "A non-empty \"rescue_password\" is required when setting provision state to rescue",
            ));
        }
        Ok(ProvisionArguments {
            configdrive: config_drive(self.configdrive, version)
                .map_err(|error| error.in_field("configdrive"))?,
            steps,
            rescue_password: self.rescue_password,
            disable_ramdisk: self.disable_ramdisk.unwrap_or(false),
            runbook: self.runbook,
        })
    }

    /// Rejects members that do not apply to the verb. Empty ones are ignored.
    fn check_members_for_verb(
        &self,
        verb: Verb,
        version: ApiVersion,
        deploys: bool,
        runs_steps: bool,
    ) -> Result<(), WireError> {
        let takes_configdrive = deploys && (verb != Verb::Rebuild || version.has(35));
        for (given, allowed, member, with) in [
            (
                !is_empty_value(&self.configdrive),
                takes_configdrive,
                "configdrive",
                "active, rebuild",
            ),
            (!is_empty_value(&self.clean_steps), verb == Verb::Clean, "clean_steps", "clean"),
            (!is_empty_value(&self.deploy_steps), deploys, "deploy_steps", "active, rebuild"),
            (
                !is_empty_value(&self.service_steps),
                verb == Verb::Service,
                "service_steps",
                "service",
            ),
            (self.rescue_password.is_some(), verb == Verb::Rescue, "rescue_password", "rescue"),
            (self.disable_ramdisk.is_some(), runs_steps, "disable_ramdisk", "clean, service"),
            (self.runbook.is_some(), runs_steps, "runbook", "clean, service"),
        ] {
            if given && !allowed {
                return Err(WireError::invalid(format!(
                    "\"{member}\" is only valid when setting provision state to {with}"
                )));
            }
        }
        Ok(())
    }

    fn check_versions(&self, verb: Verb, version: ApiVersion) -> Result<(), WireError> {
        let ramdisk_since = if verb == Verb::Service { 108 } else { 70 };
        for (given, member, since) in [
            (!is_empty_value(&self.deploy_steps), "deploy_steps", 69),
            (self.disable_ramdisk == Some(true), "disable_ramdisk", ramdisk_since),
            (self.runbook.is_some(), "runbook", 92),
        ] {
            if given && !version.has(since) {
                return Err(WireError::too_new(member, since));
            }
        }
        Ok(())
    }
}

/// Checks a config drive. A form of a later version is an invalid value (400), because clients expect
/// that.
fn config_drive(value: Value, version: ApiVersion) -> Result<Option<ConfigDriveInput>, ValueError> {
    const OBJECT_SINCE: u16 = 56;
    const VENDOR_DATA_SINCE: u16 = 59;
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text.is_empty() => Ok(None),
        Value::String(text) if text.contains("://") || text.bytes().all(is_base64) => {
            Ok(Some(ConfigDriveInput::Text(Secret::new(text))))
        }
        Value::String(_) => Err("is neither a URL nor base64 text nor a JSON object".into()),
        // As in Ironic, an empty object is no config drive, in every version.
        Value::Object(parts) if parts.is_empty() => Ok(None),
        Value::Object(_) if !version.has(OBJECT_SINCE) => {
            Err(format!("may be an object since version 1.{OBJECT_SINCE} only").into())
        }
        Value::Object(parts) => {
            for (key, part) in &parts {
                let is_valid = match key.as_str() {
                    "meta_data" | "network_data" => part.is_object(),
                    "vendor_data" if version.has(VENDOR_DATA_SINCE) => part.is_object(),
                    "vendor_data" => {
                        let since =
                            format!("may have vendor_data since 1.{VENDOR_DATA_SINCE} only");
                        return Err(since.into());
                    }
                    "user_data" => {
                        part.is_null() || part.is_object() || part.is_string() || part.is_array()
                    }
                    _ => {
                        return Err(
                            format!("'{}' was not expected", crate::error::excerpt(key)).into()
                        );
                    }
                };
                if !is_valid {
                    return Err(format!("{key} has the wrong type").into());
                }
            }
            Ok(Some(ConfigDriveInput::Parts(Secret::new(parts))))
        }
        other => Err(unexpected_type("a string or an object", &other)),
    }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte.is_ascii_whitespace() || b"+/=-_".contains(&byte)
}

/// Whether Ironic treats the value as not given: null, false, or an empty list, object or text.
fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(body: &str, version: u16) -> (u16, String) {
        let outcome = ProvisionBody::parse(body.as_bytes()).and_then(|request| {
            let verb = request.verb.expect("the table names verbs");
            check_verb_version(verb, ApiVersion(version))?;
            request.arguments(verb, ApiVersion(version))
        });
        match outcome {
            Ok(_) => (202, String::new()),
            Err(error) => (error.status(), error.message().to_owned()),
        }
    }

    #[test]
    fn every_verb_has_a_gate() {
        for verb in Verb::ALL {
            assert!(VERB_GATES.iter().any(|gate| gate.verb == *verb), "{verb}");
        }
    }

    #[test]
    fn checks_arguments_per_verb() {
        let steps = r#"[{"interface":"raid","step":"x"}]"#;
        for (body, version, expected) in [
            (r#"{"target":"manage"}"#.to_owned(), 4, 202),
            (r#"{"target":"manage"}"#.to_owned(), 3, 406),
            (r#"{"target":"manage","clean_steps":[]}"#.to_owned(), 115, 202),
            (r#"{"target":"manage","configdrive":"x"}"#.to_owned(), 115, 400),
            (r#"{"target":"active","configdrive":"x"}"#.to_owned(), 1, 202),
            (r#"{"target":"rebuild","configdrive":"x"}"#.to_owned(), 34, 400),
            (r#"{"target":"active","configdrive":{}}"#.to_owned(), 1, 202),
            (r#"{"target":"active","configdrive":{"meta_data":{}}}"#.to_owned(), 55, 400),
            (r#"{"target":"active","configdrive":{"meta_data":{}}}"#.to_owned(), 56, 202),
            (r#"{"target":"active","configdrive":{"meta_data":null}}"#.to_owned(), 56, 400),
            (r#"{"target":"active","configdrive":{"network_data":null}}"#.to_owned(), 56, 400),
            (r#"{"target":"active","configdrive":{"user_data":null}}"#.to_owned(), 56, 202),
            (r#"{"target":"active","configdrive":{"vendor_data":{}}}"#.to_owned(), 58, 400),
            (r#"{"target":"active","configdrive":"{not json"}"#.to_owned(), 115, 400),
            (r#"{"target":"active","configdrive":{"bogus":{}}}"#.to_owned(), 115, 400),
            (r#"{"target":"active","configdrive":5}"#.to_owned(), 115, 400),
            (r#"{"target":"clean"}"#.to_owned(), 115, 400),
            (format!(r#"{{"target":"clean","clean_steps":{steps}}}"#), 15, 202),
            (format!(r#"{{"target":"clean","clean_steps":{steps},"runbook":"r"}}"#), 115, 400),
            (r#"{"target":"clean","runbook":"r"}"#.to_owned(), 92, 202),
            (r#"{"target":"clean","runbook":"r"}"#.to_owned(), 91, 406),
            (
                format!(r#"{{"target":"clean","clean_steps":{steps},"disable_ramdisk":true}}"#),
                69,
                406,
            ),
            (
                format!(r#"{{"target":"service","service_steps":{steps},"disable_ramdisk":true}}"#),
                107,
                406,
            ),
            (
                format!(r#"{{"target":"service","service_steps":{steps},"disable_ramdisk":true}}"#),
                108,
                202,
            ),
            (format!(r#"{{"target":"service","clean_steps":{steps}}}"#), 115, 400),
            (r#"{"target":"rescue"}"#.to_owned(), 38, 400),
            (r#"{"target":"rescue","rescue_password":" "}"#.to_owned(), 38, 400),
            (r#"{"target":"rescue","rescue_password":"x"}"#.to_owned(), 38, 202),
            (r#"{"target":"active","bogus":1}"#.to_owned(), 115, 400),
            (r"{}".to_owned(), 115, 400),
            (r#"{"target":5}"#.to_owned(), 115, 400),
        ] {
            let (got, message) = status(&body, version);
            assert_eq!(got, expected, "{body} at 1.{version}: {message}");
        }
    }

    #[test]
    fn empty_config_drive_is_none() {
        for drive in ["null", "\"\"", "{}"] {
            let body = format!(r#"{{"target":"active","configdrive":{drive}}}"#);
            let request = ProvisionBody::parse(body.as_bytes()).unwrap();
            let arguments = request.arguments(Verb::Active, ApiVersion(115)).unwrap();
            assert_eq!(arguments.configdrive, None, "{drive}");
        }
    }

    #[test]
    fn abort_depends_on_version_and_state() {
        assert!(check_abort_version(ProvisionState::CleanWait, ApiVersion(13)).is_ok());
        assert!(check_abort_version(ProvisionState::InspectWait, ApiVersion(40)).is_err());
        assert!(check_abort_version(ProvisionState::DeployWait, ApiVersion(110)).is_ok());
    }
}
