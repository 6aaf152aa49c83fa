// SPDX-License-Identifier: Apache-2.0
//! The lights by which a machine, its chassis or a disk is found in a room full of them.
//!
//! Older BMCs have an `IndicatorLED` that is off, lit or blinking; newer ones a
//! `LocationIndicatorActive` that is on or not.

use redfish::Resource;
use serde_json::{Value, json};

use super::bmc::Bmc;
use super::names::id;
use super::patience::{forgive, is_refusal};
use super::survey::Survey;
use crate::{Error, Indicator, IndicatorComponent, IndicatorState, NodeChanges};

/// How many chassis are asked for their lights.
const MOST_CHASSIS: usize = 16;
/// How many requests may be made to find the lights of disks.
const MOST_REQUESTS: usize = 80;

const LED: &str = "IndicatorLED";
const LOCATION: &str = "LocationIndicatorActive";

/// What an `IndicatorLED` shows, with its names in Redfish.
const LED_STATES: &[(IndicatorState, &str)] = &[
    (IndicatorState::Blinking, "Blinking"),
    (IndicatorState::Off, "Off"),
    (IndicatorState::On, "Lit"),
];

/// A part with a light.
struct Light {
    component: IndicatorComponent,
    name: String,
    part: Resource,
}

/// The lights of a machine.
pub(super) async fn list(bmc: &Bmc, system: Resource) -> Result<Vec<Indicator>, Error> {
    let mut lights = chassis(bmc, &system).await?;
    lights.extend(disks(bmc, &system, None).await?);
    lights.extend(Light::of_system(system));
    let indicator = |light: Light| Indicator {
        states: states(&light.part),
        component: light.component,
        name: light.name,
        readonly: false,
    };
    Ok(lights.into_iter().map(indicator).collect())
}

/// What a light shows.
pub(super) async fn get(
    bmc: &Bmc,
    system: Resource,
    component: IndicatorComponent,
    name: &str,
) -> Result<IndicatorState, Error> {
    Ok(shown(&find(bmc, system, component, name).await?.part))
}

/// Makes a light show `state`.
pub(super) async fn set(
    bmc: &Bmc,
    system: Resource,
    component: IndicatorComponent,
    name: &str,
    state: IndicatorState,
) -> Result<NodeChanges, Error> {
    let light = find(bmc, system, component, name).await?;
    let states = states(&light.part);
    if !states.contains(&state) {
        let states: Vec<_> = states.iter().map(|state| state.as_str()).collect();
        let why = format!("'{state}' cannot be shown; use one of {}", states.join(", "));
        return Err(Error::invalid("state", why));
    }
    if shown(&light.part) == state {
        return Ok(NodeChanges::none());
    }
    let mut refused = None;
    for body in bodies(&light.part, state) {
        match bmc.client().patch(&light.part.path, &body, light.part.etag.as_deref()).await {
            Ok(_) => return Ok(NodeChanges::none()),
            Err(error) if is_refusal(&error) => refused = Some(error),
            Err(error) => return Err(bmc.explain(error)),
        }
    }
    Err(match refused {
        Some(error) => bmc.explain(error),
        None => bmc.failed("the light cannot be set"),
    })
}

impl Light {
    /// The light of a part, if it has one.
    fn of(component: IndicatorComponent, name: String, part: Resource) -> Option<Self> {
        let has_one = part.text(LED).is_some() || part.flag(LOCATION).is_some();
        has_one.then_some(Self { component, name, part })
    }

    fn of_system(system: Resource) -> Option<Self> {
        Self::of(IndicatorComponent::System, identity(&system), system)
    }
}

/// One light. Only what can have it is asked.
async fn find(
    bmc: &Bmc,
    system: Resource,
    component: IndicatorComponent,
    name: &str,
) -> Result<Light, Error> {
    let lights: Vec<Light> = match component {
        IndicatorComponent::System => Light::of_system(system).into_iter().collect(),
        IndicatorComponent::Chassis => chassis(bmc, &system).await?,
        IndicatorComponent::Disk => disks(bmc, &system, Some(name)).await?,
        IndicatorComponent::Power | IndicatorComponent::Nic => Vec::new(),
    };
    let known: Vec<_> = lights.iter().map(|light| light.name.clone()).collect();
    lights.into_iter().find(|light| light.name == name).ok_or_else(|| {
        let known = if known.is_empty() {
            format!("the BMC tells of no light of {component} that could be meant")
        } else {
            format!("there are: {}", known.join(", "))
        };
        Error::invalid("indicator", format!("there is no '{name}' of {component}; {known}"))
    })
}

async fn chassis(bmc: &Bmc, system: &Resource) -> Result<Vec<Light>, Error> {
    let all = bmc.client().chassis(system).await.map_err(|error| bmc.explain(error));
    let all = forgive(all)?;
    let light = |chassis| Light::of(IndicatorComponent::Chassis, identity(&chassis), chassis);
    Ok(all.into_iter().take(MOST_CHASSIS).filter_map(light).collect())
}

/// The lights of the disks, called `<controller>:<disk>`; where one is `wanted`, only of its
/// controller.
async fn disks(bmc: &Bmc, system: &Resource, wanted: Option<&str>) -> Result<Vec<Light>, Error> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    let mut survey = Survey::new(bmc, &root, MOST_REQUESTS);
    let mut lights = Vec::new();
    for storage in survey.members(system, "/Storage").await? {
        let controller = id(&storage);
        if wanted.is_some_and(|name| !name.starts_with(&format!("{controller}:"))) {
            continue;
        }
        for disk in survey.linked(&storage, "/Drives").await? {
            let name = format!("{controller}:{}", id(&disk));
            lights.extend(Light::of(IndicatorComponent::Disk, name, disk));
        }
    }
    Ok(lights)
}

/// What clients call a part: its UUID, where it has one.
fn identity(part: &Resource) -> String {
    match part.text("/UUID").filter(|uuid| !uuid.is_empty()) {
        Some(uuid) => uuid.to_owned(),
        None => id(part).to_owned(),
    }
}

fn states(part: &Resource) -> &'static [IndicatorState] {
    const BLINKS: &[IndicatorState] =
        &[IndicatorState::Blinking, IndicatorState::Off, IndicatorState::On];
    const LIGHTS: &[IndicatorState] = &[IndicatorState::Off, IndicatorState::On];
    if part.text(LED).is_some() { BLINKS } else { LIGHTS }
}

fn shown(part: &Resource) -> IndicatorState {
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

/// The ways to ask for `state`, best first.
fn bodies(part: &Resource, state: IndicatorState) -> Vec<Value> {
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

    fn part(body: Value) -> Resource {
        Resource { path: "/redfish/v1/Chassis/Rack1/".to_owned(), etag: None, body }
    }

    #[test]
    fn two_kinds_of_lights() {
        use IndicatorState::{Blinking, Off, On, Unknown};
        for (body, shows, count, asked) in [
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
            assert_eq!((shown(&part), states(&part).len()), (shows, count), "{body}");
            let bodies: Vec<_> = bodies(&part, Off).iter().map(Value::to_string).collect();
            assert_eq!(bodies.join(" "), asked, "{body}");
        }
        assert!(
            Light::of(IndicatorComponent::Chassis, String::new(), part(json!({LED: null})))
                .is_none()
        );
    }

    #[test]
    fn parts_are_called_by_what_they_have() {
        assert_eq!(identity(&part(json!({"UUID": "u", "Id": "i"}))), "u");
        assert_eq!(identity(&part(json!({"UUID": null, "Id": "i"}))), "i");
        assert_eq!(identity(&part(json!({}))), "Rack1");
    }
}
