// SPDX-License-Identifier: Apache-2.0
//! Vendor methods: event subscriptions, and emptying virtual drives by an older way.

use std::sync::Arc;

use async_trait::async_trait;
use redfish::{Resource, last_segment};
use serde_json::{Map, Value};

use super::bmc::Bmc;
use super::connections::Connections;
use super::media;
use super::subscription::{self, Wanted};
use crate::connected::connected_interface;
use crate::{
    Error, HttpMethod, Interface, MediaDevice, NodeChanges, Target, Vendor, VendorAnswer,
    VendorMethod,
};

/// The Redfish vendor interface.
pub(super) struct RedfishVendor(pub(super) Arc<Connections>);

connected_interface!(RedfishVendor, Vendor);

const EJECT: &str = "eject_vmedia";
const CREATE: &str = "create_subscription";
const DELETE: &str = "delete_subscription";
const GET: &str = "get_subscription";
const LIST: &str = "get_all_subscriptions";

const fn synchronous(
    name: &'static str,
    http_methods: &'static [HttpMethod],
    description: &'static str,
) -> VendorMethod {
    VendorMethod {
        name,
        http_methods,
        is_async: false,
        description,
        attach: false,
        require_exclusive_lock: true,
    }
}

const METHODS: &[VendorMethod] = &[
    VendorMethod {
        is_async: true,
        ..synchronous(
            EJECT,
            &[HttpMethod::Post],
            "Empties virtual drives: all, or those for the optional 'boot_device', which is 'cd', \
             'dvd', 'usb' or 'floppy'.",
        )
    },
    synchronous(
        CREATE,
        &[HttpMethod::Post],
        "Subscribes to the BMC's events. Needs 'Destination', a URL; 'Protocol', 'Context', \
         'EventTypes' and 'HttpHeaders' are optional.",
    ),
    synchronous(DELETE, &[HttpMethod::Delete], "Ends the subscription with the given 'id'."),
    synchronous(LIST, &[HttpMethod::Get], "Lists the subscriptions to the BMC's events."),
    synchronous(GET, &[HttpMethod::Get], "Shows the subscription with the given 'id'."),
];

/// What `eject_vmedia` calls devices.
const DEVICES: &[(&str, MediaDevice)] = &[
    ("cd", MediaDevice::Cdrom),
    ("dvd", MediaDevice::Cdrom),
    ("cdrom", MediaDevice::Cdrom),
    ("usb", MediaDevice::Disk),
    ("usbstick", MediaDevice::Disk),
    ("floppy", MediaDevice::Floppy),
];

#[async_trait]
impl Vendor for RedfishVendor {
    fn methods(&self) -> &'static [VendorMethod] {
        METHODS
    }

    async fn validate_call(
        &self,
        target: &Target<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), Error> {
        self.0.validate(target)?;
        match method {
            EJECT => device(arguments).map(drop),
            CREATE => Wanted::parse(arguments).map(drop),
            DELETE | GET => subscription::id(arguments).map(drop),
            LIST => Ok(()),
            other => Err(self.cannot(&format!("call the vendor method '{other}'"))),
        }
    }

    async fn call(
        &self,
        target: &Target<'_>,
        method: &str,
        _http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorAnswer, Error> {
        let value = match method {
            EJECT => self.eject(target, device(arguments)?).await?,
            CREATE => self.create(target, &Wanted::parse(arguments)?).await?,
            DELETE => self.delete(target, subscription::id(arguments)?).await?,
            GET => self.get(target, subscription::id(arguments)?).await?,
            LIST => self.list(target).await?,
            other => return Err(self.cannot(&format!("call the vendor method '{other}'"))),
        };
        Ok(VendorAnswer { value, changes: NodeChanges::none() })
    }
}

impl RedfishVendor {
    async fn eject(
        &self,
        target: &Target<'_>,
        device: Option<MediaDevice>,
    ) -> Result<Value, Error> {
        let bmc = self.0.bmc(target, "eject virtual media")?;
        let system = bmc.system().await?;
        let quirks = self.0.quirks.of(target.node, &system);
        media::eject(&bmc, &system, &quirks, device.as_slice()).await?;
        Ok(Value::Null)
    }

    async fn create(&self, target: &Target<'_>, wanted: &Wanted) -> Result<Value, Error> {
        let bmc = self.0.bmc(target, "subscribe to events")?;
        let service = event_service(&bmc).await?;
        wanted.check_events(&service)?;
        let collection = collection(&bmc, &service)?;
        let posted = match bmc.client().post(collection, &wanted.body()).await {
            Err(error @ redfish::Error::Refused { status: 400, .. })
                if !wanted.chose_events && error.to_string().contains("EventTypes") =>
            {
                bmc.client().post(collection, &wanted.body_without_events()).await
            }
            posted => posted,
        };
        let answer = posted.map_err(|error| {
            let mut error = bmc.explain(error);
            if let Error::Failed { why, .. } = &mut error {
                *why = wanted.masked(why);
            }
            error
        })?;
        if answer.body.get("Id").is_some_and(Value::is_string) {
            return Ok(subscription::shown(&answer.body));
        }
        if let Some(path) = &answer.location {
            return Ok(subscription::shown(&bmc.get(path).await?.body));
        }
        // It says neither what it made nor where; the newest one like it is the one.
        let all = bmc.collect(&service, "/Subscriptions").await?;
        match all.iter().rev().find(|known| wanted.is(known)) {
            Some(made) => Ok(subscription::shown(&made.body)),
            None => Err(bmc.failed(
                "the BMC took the subscription and does not list it; look at its event service",
            )),
        }
    }

    async fn delete(&self, target: &Target<'_>, id: &str) -> Result<Value, Error> {
        let bmc = self.0.bmc(target, format!("delete the event subscription '{id}'"))?;
        let path = find(&bmc, id).await?;
        match bmc.client().delete(&path).await {
            Ok(_) => Ok(Value::Null),
            Err(redfish::Error::NotFound { .. }) => Err(no_subscription(id)),
            Err(error) => Err(bmc.explain(error)),
        }
    }

    async fn get(&self, target: &Target<'_>, id: &str) -> Result<Value, Error> {
        let bmc = self.0.bmc(target, format!("read the event subscription '{id}'"))?;
        let path = find(&bmc, id).await?;
        match bmc.find(&path).await? {
            Some(found) => Ok(subscription::shown(&found.body)),
            None => Err(no_subscription(id)),
        }
    }

    async fn list(&self, target: &Target<'_>) -> Result<Value, Error> {
        let bmc = self.0.bmc(target, "list the event subscriptions")?;
        let service = event_service(&bmc).await?;
        Ok(bmc.get(collection(&bmc, &service)?).await?.body)
    }
}

async fn event_service(bmc: &Bmc) -> Result<Resource, Error> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    match bmc.follow(&root, "/EventService").await? {
        Some(service) => Ok(service),
        None => Err(bmc.failed("the BMC has no event service; newer firmware may have one")),
    }
}

fn collection<'a>(bmc: &Bmc, service: &'a Resource) -> Result<&'a str, Error> {
    let none = || bmc.failed("the BMC's event service takes no subscriptions");
    service.link("/Subscriptions").ok_or_else(none)
}

/// Where the subscription with this id is. It is looked for in the BMC's list rather than guessed.
async fn find(bmc: &Bmc, id: &str) -> Result<String, Error> {
    let service = event_service(bmc).await?;
    let members = bmc.client().members(collection(bmc, &service)?).await;
    let members = members.map_err(|error| bmc.explain(error))?;
    let found = members.into_iter().find(|path| last_segment(path) == id);
    found.ok_or_else(|| no_subscription(id))
}

fn no_subscription(id: &str) -> Error {
    Error::NotFound {
        what: format!("event subscription '{id}'"),
        hint: "get_all_subscriptions lists those it has".to_owned(),
    }
}

/// The `boot_device` argument of `eject_vmedia`.
fn device(arguments: &Map<String, Value>) -> Result<Option<MediaDevice>, Error> {
    const NAME: &str = "boot_device";
    let name = match arguments.get(NAME) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(name)) if name.is_empty() => return Ok(None),
        Some(Value::String(name)) => name,
        Some(_) => return Err(Error::invalid(NAME, "it must be a string")),
    };
    match DEVICES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, device)) => Ok(Some(*device)),
        None => Err(Error::invalid(
            NAME,
            format!("'{name}' is none of 'cd', 'dvd', 'usb' and 'floppy'"),
        )),
    }
}
