// SPDX-License-Identifier: Apache-2.0
//! Reading of BIOS settings and firmware versions.

use ironic_client::percent_encode;
use kube_resources::hosts::host_firmware_components::FirmwareComponentVersion;
use kube_resources::hosts::ironic_payloads::firmware::{
    IronicBiosSetting, IronicFirmwareComponent, component_versions, current_settings,
    settings_schema,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::outcome::{VerbOutcome, VerbStop};
use super::super::requests::{FirmwareSettingsReading, ManagedHost};
use super::calls::IronicCalls;

impl IronicCalls<'_> {
    pub(super) async fn firmware_settings(
        &self,
        host: &ManagedHost,
        includes_schema: bool,
    ) -> VerbOutcome<FirmwareSettingsReading> {
        let detail = if includes_schema { "bios?detail=true" } else { "bios" };
        let response = self.of_node(host, detail).await?;
        let list: Vec<IronicBiosSetting> = self.entries(response, "bios")?;
        Ok(FirmwareSettingsReading {
            settings: current_settings(&list),
            schema: includes_schema.then(|| settings_schema(&list)),
        })
    }

    pub(super) async fn firmware_components(
        &self,
        host: &ManagedHost,
    ) -> VerbOutcome<Vec<FirmwareComponentVersion>> {
        let response = self.of_node(host, "firmware").await?;
        let list: Vec<IronicFirmwareComponent> = self.entries(response, "firmware")?;
        Ok(component_versions(&list))
    }

    /// A list below the node of a host. The node itself is not needed.
    async fn of_node(&self, host: &ManagedHost, list: &str) -> VerbOutcome<Value> {
        let id = host.node_id.as_deref().ok_or(VerbStop::NeedsRegistration)?;
        let path = format!("/v1/nodes/{}/{list}", percent_encode(id));
        self.find(&path).await?.ok_or(VerbStop::NeedsRegistration)
    }

    fn entries<T: DeserializeOwned>(&self, mut response: Value, key: &str) -> VerbOutcome<Vec<T>> {
        serde_json::from_value(response[key].take())
            .map_err(|error| self.failed(format!("the list {key} cannot be read: {error}")))
    }
}
