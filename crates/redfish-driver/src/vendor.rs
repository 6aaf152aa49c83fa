// SPDX-License-Identifier: Apache-2.0
//! Vendor methods: event subscriptions and `eject_vmedia`.

use std::sync::Arc;

use async_trait::async_trait;
use drivers::{
    BaseInterface, DriverError, DriverTarget, HttpMethod, MediaDevice, NodeChanges,
    VendorInterface, VendorMethod, VendorResponse, bmc_interface,
};
use redfish::{RedfishResource, last_segment};
use serde_json::{Map, Value};

use super::bmc::RedfishBmc;
use super::connections::RedfishConnections;
use super::subscription::{self, EventSubscriptionRequest};
use super::variant::RedfishVariant;
use super::virtual_media;

/// The Redfish vendor interface.
pub(super) struct RedfishVendor(pub(super) Arc<RedfishConnections>, pub(super) RedfishVariant);

bmc_interface!(variants RedfishVendor, Vendor);

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
            "Ejects virtual media: all, or those of the optional 'boot_device', which is 'cd', \
             'dvd', 'usb' or 'floppy'.",
        )
    },
    synchronous(
        CREATE,
        &[HttpMethod::Post],
        "Subscribes to the BMC's events. Needs 'Destination', a URL; 'Protocol', 'Context', \
         'EventTypes' and 'HttpHeaders' are optional.",
    ),
    synchronous(DELETE, &[HttpMethod::Delete], "Deletes the subscription with the given 'id'."),
    synchronous(LIST, &[HttpMethod::Get], "Lists the subscriptions to the BMC's events."),
    synchronous(GET, &[HttpMethod::Get], "Returns the subscription with the given 'id'."),
];

/// The device names of `eject_vmedia`.
const DEVICES: &[(&str, MediaDevice)] = &[
    ("cd", MediaDevice::Cdrom),
    ("dvd", MediaDevice::Cdrom),
    ("cdrom", MediaDevice::Cdrom),
    ("usb", MediaDevice::Disk),
    ("usbstick", MediaDevice::Disk),
    ("floppy", MediaDevice::Floppy),
];

#[async_trait]
impl VendorInterface for RedfishVendor {
    fn methods(&self) -> &'static [VendorMethod] {
        METHODS
    }

    async fn validate_call(
        &self,
        target: &DriverTarget<'_>,
        method: &str,
        arguments: &Map<String, Value>,
    ) -> Result<(), DriverError> {
        self.0.validate(target)?;
        match method {
            EJECT => device(arguments).map(drop),
            CREATE => EventSubscriptionRequest::parse(arguments).map(drop),
            DELETE | GET => subscription::id(arguments).map(drop),
            LIST => Ok(()),
            other => Err(self.unsupported(&format!("call the vendor method '{other}'"))),
        }
    }

    async fn call(
        &self,
        target: &DriverTarget<'_>,
        method: &str,
        _http_method: HttpMethod,
        arguments: &Map<String, Value>,
    ) -> Result<VendorResponse, DriverError> {
        let value = match method {
            EJECT => self.eject(target, device(arguments)?).await?,
            CREATE => self.create(target, &EventSubscriptionRequest::parse(arguments)?).await?,
            DELETE => self.delete(target, subscription::id(arguments)?).await?,
            GET => self.get(target, subscription::id(arguments)?).await?,
            LIST => self.list(target).await?,
            other => return Err(self.unsupported(&format!("call the vendor method '{other}'"))),
        };
        Ok(VendorResponse { value, changes: NodeChanges::none() })
    }
}

impl RedfishVendor {
    async fn eject(
        &self,
        target: &DriverTarget<'_>,
        device: Option<MediaDevice>,
    ) -> Result<Value, DriverError> {
        let bmc = self.0.bmc(target, "eject virtual media")?;
        let system = bmc.system().await?;
        let quirks = self.0.quirks.for_node(target.node, &system);
        virtual_media::eject(&bmc, &system, &quirks, device.as_slice()).await?;
        Ok(Value::Null)
    }

    async fn create(
        &self,
        target: &DriverTarget<'_>,
        wanted: &EventSubscriptionRequest,
    ) -> Result<Value, DriverError> {
        let bmc = self.0.bmc(target, "subscribe to events")?;
        let service = event_service(&bmc).await?;
        wanted.check_event_types(&service)?;
        let collection = collection(&bmc, &service)?;
        let posted = match bmc.client().post(collection, &wanted.body()).await {
            Err(error @ redfish::RedfishError::Refused { status: 400, .. })
                if !wanted.has_event_types && error.to_string().contains("EventTypes") =>
            {
                bmc.client().post(collection, &wanted.body_without_event_types()).await
            }
            posted => posted,
        };
        let response = posted.map_err(|error| {
            let mut error = bmc.explain(error);
            if let DriverError::Failed { why, .. } = &mut error {
                *why = wanted.mask_headers(why);
            }
            error
        })?;
        if response.body.get("Id").is_some_and(Value::is_string) {
            return Ok(subscription::visible_fields(&response.body));
        }
        if let Some(path) = &response.location {
            return Ok(subscription::visible_fields(&bmc.get(path).await?.body));
        }
        // The response has neither body nor location: use the newest subscription that matches.
        let all = bmc.collect(&service, "/Subscriptions").await?;
        match all.iter().rev().find(|known| wanted.matches(known)) {
            Some(created) => Ok(subscription::visible_fields(&created.body)),
            None => Err(bmc.failed(
                "the BMC accepted the subscription and does not list it; check its event service",
            )),
        }
    }

    async fn delete(&self, target: &DriverTarget<'_>, id: &str) -> Result<Value, DriverError> {
        let bmc = self.0.bmc(target, format!("delete the event subscription '{id}'"))?;
        let path = find(&bmc, id).await?;
        match bmc.client().delete(&path).await {
            Ok(_) => Ok(Value::Null),
            Err(redfish::RedfishError::NotFound { .. }) => Err(no_subscription(id)),
            Err(error) => Err(bmc.explain(error)),
        }
    }

    async fn get(&self, target: &DriverTarget<'_>, id: &str) -> Result<Value, DriverError> {
        let bmc = self.0.bmc(target, format!("read the event subscription '{id}'"))?;
        let path = find(&bmc, id).await?;
        match bmc.find(&path).await? {
            Some(found) => Ok(subscription::visible_fields(&found.body)),
            None => Err(no_subscription(id)),
        }
    }

    async fn list(&self, target: &DriverTarget<'_>) -> Result<Value, DriverError> {
        let bmc = self.0.bmc(target, "list the event subscriptions")?;
        let service = event_service(&bmc).await?;
        Ok(bmc.get(collection(&bmc, &service)?).await?.body)
    }
}

async fn event_service(bmc: &RedfishBmc) -> Result<RedfishResource, DriverError> {
    let root = bmc.client().root().await.map_err(|error| bmc.explain(error))?;
    match bmc.follow(&root, "/EventService").await? {
        Some(service) => Ok(service),
        None => Err(bmc.failed("the BMC has no event service; update its firmware")),
    }
}

fn collection<'a>(bmc: &RedfishBmc, service: &'a RedfishResource) -> Result<&'a str, DriverError> {
    let none = || bmc.failed("the BMC's event service does not support subscriptions");
    service.link("/Subscriptions").ok_or_else(none)
}

/// Returns the path of the subscription with this id, from the BMC's collection.
async fn find(bmc: &RedfishBmc, id: &str) -> Result<String, DriverError> {
    let service = event_service(bmc).await?;
    let members = bmc.client().members(collection(bmc, &service)?).await;
    let members = members.map_err(|error| bmc.explain(error))?;
    let found = members.into_iter().find(|path| last_segment(path) == id);
    found.ok_or_else(|| no_subscription(id))
}

fn no_subscription(id: &str) -> DriverError {
    DriverError::NotFound {
        what: format!("event subscription '{id}'"),
        hint: "get_all_subscriptions lists them".to_owned(),
    }
}

/// The `boot_device` argument of `eject_vmedia`.
fn device(arguments: &Map<String, Value>) -> Result<Option<MediaDevice>, DriverError> {
    const NAME: &str = "boot_device";
    let name = match arguments.get(NAME) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(name)) if name.is_empty() => return Ok(None),
        Some(Value::String(name)) => name,
        Some(_) => return Err(DriverError::invalid(NAME, "it must be a string")),
    };
    match DEVICES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        Some((_, device)) => Ok(Some(*device)),
        None => Err(DriverError::invalid(
            NAME,
            format!("'{name}' is none of 'cd', 'dvd', 'usb' and 'floppy'"),
        )),
    }
}
