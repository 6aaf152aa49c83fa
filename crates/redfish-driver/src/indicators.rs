// SPDX-License-Identifier: Apache-2.0
//! Indicator LEDs of the machine, its chassis and its disks.
//!
//! Older BMCs have an `IndicatorLED` with `Off`, `Lit` or `Blinking`; newer ones a boolean
//! `LocationIndicatorActive`.

use drivers::{DriverError, Indicator, IndicatorComponent, IndicatorState, NodeChanges};
use redfish::RedfishResource;
use serde_json::{Value, json};

use super::bmc::RedfishBmc;
use super::resource_id::id;
use super::resource_reader::ResourceReader;
use super::retries::{ignore_failure, is_refusal};

/// Maximum number of chassis.
const MAX_CHASSIS: usize = 16;
/// Maximum number of requests for the LEDs of disks.
const MAX_REQUESTS: usize = 80;

const LED: &str = "IndicatorLED";
const LOCATION: &str = "LocationIndicatorActive";

/// The states of an `IndicatorLED` with their Redfish names.
const LED_STATES: &[(IndicatorState, &str)] = &[
    (IndicatorState::Blinking, "Blinking"),
    (IndicatorState::Off, "Off"),
    (IndicatorState::On, "Lit"),
];

/// A resource that has an indicator LED.
struct RedfishIndicator {
    component: IndicatorComponent,
    name: String,
    part: RedfishResource,
}

/// Lists the indicators of a machine.
pub(super) async fn list(
    bmc: &RedfishBmc,
    system: RedfishResource,
) -> Result<Vec<Indicator>, DriverError> {
    let mut indicators = chassis_indicators(bmc, &system).await?;
    indicators.extend(disk_indicators(bmc, &system, None).await?);
    indicators.extend(RedfishIndicator::from_system(system));
    let convert = |indicator: RedfishIndicator| Indicator {
        states: supported_states(&indicator.part),
        component: indicator.component,
        name: indicator.name,
        readonly: false,
    };
    Ok(indicators.into_iter().map(convert).collect())
}

/// Returns the state of an indicator.
pub(super) async fn get(
    bmc: &RedfishBmc,
    system: RedfishResource,
    component: IndicatorComponent,
    name: &str,
) -> Result<IndicatorState, DriverError> {
    Ok(current_state(&find(bmc, system, component, name).await?.part))
}

/// Sets an indicator to `state`.
pub(super) async fn set(
    bmc: &RedfishBmc,
    system: RedfishResource,
    component: IndicatorComponent,
    name: &str,
    state: IndicatorState,
) -> Result<NodeChanges, DriverError> {
    let indicator = find(bmc, system, component, name).await?;
    let states = supported_states(&indicator.part);
    if !states.contains(&state) {
        let states: Vec<_> = states.iter().map(|state| state.as_str()).collect();
        let why = format!("the state '{state}' is not supported; use one of {}", states.join(", "));
        return Err(DriverError::invalid("state", why));
    }
    if current_state(&indicator.part) == state {
        return Ok(NodeChanges::none());
    }
    let mut refusal = None;
    for body in patch_bodies(&indicator.part, state) {
        match bmc.client().patch(&indicator.part.path, &body, indicator.part.etag.as_deref()).await
        {
            Ok(_) => return Ok(NodeChanges::none()),
            Err(error) if is_refusal(&error) => refusal = Some(error),
            Err(error) => return Err(bmc.explain(error)),
        }
    }
    Err(match refusal {
        Some(error) => bmc.explain(error),
        None => bmc.failed("the indicator cannot be set"),
    })
}

impl RedfishIndicator {
    /// Returns the indicator of a resource, if it has one.
    fn from_resource(
        component: IndicatorComponent,
        name: String,
        part: RedfishResource,
    ) -> Option<Self> {
        let has_one = part.text(LED).is_some() || part.flag(LOCATION).is_some();
        has_one.then_some(Self { component, name, part })
    }

    fn from_system(system: RedfishResource) -> Option<Self> {
        Self::from_resource(IndicatorComponent::System, indicator_name(&system), system)
    }
}

/// Finds an indicator. Reads only the resources of its component.
async fn find(
    bmc: &RedfishBmc,
    system: RedfishResource,
    component: IndicatorComponent,
    name: &str,
) -> Result<RedfishIndicator, DriverError> {
    let indicators: Vec<RedfishIndicator> = match component {
        IndicatorComponent::System => RedfishIndicator::from_system(system).into_iter().collect(),
        IndicatorComponent::Chassis => chassis_indicators(bmc, &system).await?,
        IndicatorComponent::Disk => disk_indicators(bmc, &system, Some(name)).await?,
        IndicatorComponent::Power | IndicatorComponent::Nic => Vec::new(),
    };
    let known: Vec<_> = indicators.iter().map(|indicator| indicator.name.clone()).collect();
    indicators.into_iter().find(|indicator| indicator.name == name).ok_or_else(|| {
        let known = if known.is_empty() {
            format!("the BMC reports no indicator of {component}")
        } else {
            format!("there are: {}", known.join(", "))
        };
        DriverError::invalid(
            "indicator",
            format!("there is no indicator '{name}' of {component}; {known}"),
        )
    })
}

async fn chassis_indicators(
    bmc: &RedfishBmc,
    system: &RedfishResource,
) -> Result<Vec<RedfishIndicator>, DriverError> {
    let all = bmc.client().chassis(system).await.map_err(|error| bmc.explain(error));
    let all = ignore_failure(all)?;
    let indicator = |chassis| {
        RedfishIndicator::from_resource(
            IndicatorComponent::Chassis,
            indicator_name(&chassis),
            chassis,
        )
    };
    Ok(all.into_iter().take(MAX_CHASSIS).filter_map(indicator).collect())
}

/// Returns the indicators of the disks, named `<controller>:<disk>`; with `wanted`, only those of
/// its controller.
async fn disk_indicators(
    bmc: &RedfishBmc,
    system: &RedfishResource,
    wanted: Option<&str>,
) -> Result<Vec<RedfishIndicator>, DriverError> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let mut reader = ResourceReader::new(bmc, &root, MAX_REQUESTS);
    let mut indicators = Vec::new();
    for storage in reader.members(system, "/Storage").await? {
        let controller = id(&storage);
        if wanted.is_some_and(|name| !name.starts_with(&format!("{controller}:"))) {
            continue;
        }
        for disk in reader.linked(&storage, "/Drives").await? {
            let name = format!("{controller}:{}", id(&disk));
            indicators.extend(RedfishIndicator::from_resource(
                IndicatorComponent::Disk,
                name,
                disk,
            ));
        }
    }
    Ok(indicators)
}

/// The name of an indicator in the API: the UUID of its resource, or else the id.
fn indicator_name(part: &RedfishResource) -> String {
    match part.text("/UUID").filter(|uuid| !uuid.is_empty()) {
        Some(uuid) => uuid.to_owned(),
        None => id(part).to_owned(),
    }
}

fn supported_states(part: &RedfishResource) -> &'static [IndicatorState] {
    const BLINKING: &[IndicatorState] =
        &[IndicatorState::Blinking, IndicatorState::Off, IndicatorState::On];
    const ON_OFF: &[IndicatorState] = &[IndicatorState::Off, IndicatorState::On];
    if part.text(LED).is_some() { BLINKING } else { ON_OFF }
}

fn current_state(part: &RedfishResource) -> IndicatorState {
    if let Some(name) = part.text(LED)
        && let Some((state, _)) = LED_STATES.iter().find(|(_, known)| *known == name)
    {
        return *state;
    }
    match part.flag(LOCATION) {
        Some(true) => IndicatorState::On,
        Some(false) => IndicatorState::Off,
        None => IndicatorState::Unknown,
    }
}

/// The PATCH bodies for `state`, best first.
fn patch_bodies(part: &RedfishResource, state: IndicatorState) -> Vec<Value> {
    let mut bodies = Vec::new();
    let name = LED_STATES.iter().find(|(known, _)| *known == state).map(|(_, name)| *name);
    if let (Some(_), Some(name)) = (part.text(LED), name) {
        bodies.push(json!({ LED: name }));
    }
    if part.flag(LOCATION).is_some() {
        bodies.push(json!({ LOCATION: state != IndicatorState::Off }));
    }
    bodies
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(body: Value) -> RedfishResource {
        RedfishResource { path: "/redfish/v1/Chassis/Rack1/".to_owned(), etag: None, body }
    }

    #[test]
    fn supports_led_and_location_indicator() {
        use IndicatorState::{Blinking, Off, On, Unknown};
        for (body, state, count, sent) in [
            (json!({LED: "Lit"}), On, 3, r#"{"IndicatorLED":"Off"}"#),
            (json!({LED: "Blinking"}), Blinking, 3, r#"{"IndicatorLED":"Off"}"#),
            (json!({LED: "Unknown"}), Unknown, 3, r#"{"IndicatorLED":"Off"}"#),
            (json!({LOCATION: false}), Off, 2, r#"{"LocationIndicatorActive":false}"#),
            (
                json!({LED: "Unknown", LOCATION: true}),
                On,
                3,
                r#"{"IndicatorLED":"Off"} {"LocationIndicatorActive":false}"#,
            ),
        ] {
            let part = part(body.clone());
            assert_eq!(
                (current_state(&part), supported_states(&part).len()),
                (state, count),
                "{body}"
            );
            let bodies: Vec<_> = patch_bodies(&part, Off).iter().map(Value::to_string).collect();
            assert_eq!(bodies.join(" "), sent, "{body}");
        }
        assert!(
            RedfishIndicator::from_resource(
                IndicatorComponent::Chassis,
                String::new(),
                part(json!({LED: null}))
            )
            .is_none()
        );
    }

    #[test]
    fn names_indicator_by_uuid_or_id() {
        assert_eq!(indicator_name(&part(json!({"UUID": "u", "Id": "i"}))), "u");
        assert_eq!(indicator_name(&part(json!({"UUID": null, "Id": "i"}))), "i");
        assert_eq!(indicator_name(&part(json!({}))), "Rack1");
    }
}
