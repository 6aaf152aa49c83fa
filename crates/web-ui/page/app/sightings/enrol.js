// SPDX-License-Identifier: Apache-2.0
// The dialog that enrols an unknown machine: name, driver, access to the BMC.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, post } from "../api.js";
import { Dialog } from "../dialog.js";
import { ErrorNotice, useFetch } from "../fetching.js";
import { navigate } from "../route.js";
import { showMessage } from "../toasts.js";

/** The fields of `driver_info` for the BMC: name, label, input type. */
const BMC_FIELDS = {
  redfish: [
    ["redfish_address", "BMC address", "text"],
    ["redfish_username", "User", "text"],
    ["redfish_password", "Password", "password"],
  ],
  ipmi: [
    ["ipmi_address", "BMC address", "text"],
    ["ipmi_username", "User", "text"],
    ["ipmi_password", "Password", "password"],
  ],
};
const NODE_FIELDS = ["name", "resource_class", "conductor_group"];

/** @param {{ sighting: any, onClose: () => void, onEnrolled: Function }} props */
export function EnrolDialog({ sighting, onClose, onEnrolled }) {
  const { data } = useFetch(() => get("/v1/drivers"), []);
  const drivers = data?.drivers.map((driver) => driver.name) ?? [];
  const [selectedDriver, setSelectedDriver] = useState(/** @type {string | null} */ (null));
  const [fields, setFields] = useState(/** @type {Record<string, string>} */ ({}));
  const [moreInfo, setMoreInfo] = useState("");
  const [error, setError] = useState(/** @type {string | null} */ (null));
  const [busy, setBusy] = useState(false);
  const driver = selectedDriver ?? (drivers.includes("redfish") ? "redfish" : (drivers[0] ?? ""));
  const bmcFields = BMC_FIELDS[driver] ?? [];
  const reported = reportedAddresses(sighting);
  const valueOf = (name) => fields[name] ?? reported[name] ?? "";
  const set = (name) => (event) => {
    setError(null);
    setFields({ ...fields, [name]: event.currentTarget.value });
  };
  const onSubmit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const info = moreInfo.trim() ? JSON.parse(moreInfo) : {};
      for (const [name] of bmcFields) if (valueOf(name)) info[name] = valueOf(name).trim();
      /** @type {Record<string, any>} */
      const body = { driver, driver_info: info };
      for (const name of NODE_FIELDS) if (fields[name]?.trim()) body[name] = fields[name].trim();
      const { uuid } = await post(`/v1/ferrite/sightings/${sighting.mac}/enrol`, body);
      showMessage(`Enrolled ${body.name ?? sighting.mac}.`);
      onEnrolled();
      onClose();
      navigate(`machines/${body.name ?? uuid}`);
    } catch (caught) {
      setError(caught instanceof Error ? caught.message : String(caught));
      setBusy(false);
    }
  };
  const field = ([name, label, type]) =>
    html`<label key=${name} class="field"><span>${label}</span><input type=${type} name=${name}
    autocomplete=${type === "password" ? "new-password" : "off"} autocapitalize="none" spellcheck=${false} value=${valueOf(name)}
      onInput=${set(name)} /></label>`;
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button primary" form="enrol" data-confirm disabled=${busy || !driver}>Enrol</button>`;
  return html`<${Dialog} title="Enrol ${sighting.mac}" onClose=${onClose} footer=${footer}>
    <form id="enrol" class="settings" onSubmit=${onSubmit}>
    ${field(["name", "Name", "text"])}
    <label class="field"><span>Driver</span>
      <select name="driver" value=${driver} onChange=${(event) => setSelectedDriver(event.currentTarget.value)}>
      ${drivers.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
    ${bmcFields.map(field)}
    ${field(["resource_class", "Resource class", "text"])}
    ${field(["conductor_group", "Conductor group", "text"])}</form>
    <label class="field"><span>Other fields of driver_info, as JSON</span>
      <textarea rows="3" spellcheck=${false} placeholder="{}" value=${moreInfo}
      onInput=${(event) => setMoreInfo(event.currentTarget.value)}></textarea></label>
    <p class="quiet">${sighting.reported_at ? "Ports and inventory come from the report of its ramdisk." : "A port is created for this NIC; inspection finds the others."}
      ${reported.ipmi_address ? " The BMC address is reported by the machine itself: verify it before you enter a password." : ""}</p>
    ${error && html`<${ErrorNotice} message=${error} />`}
  <//>`;
}

/**
 * The BMC address that the machine reported, as values of `driver_info`.
 * @returns {Record<string, string>}
 */
function reportedAddresses({ report }) {
  const address = report?.bmc_addresses?.[0];
  if (!address) return {};
  return { redfish_address: ["https:", address].join("//"), ipmi_address: address };
}
