// SPDX-License-Identifier: Apache-2.0
// Enrols a machine that was seen: its driver, how to reach its BMC, its name.

import { html, useState } from "../../vendor/preact-htm.js";
import { get, post } from "../api.js";
import { Dialog } from "../dialog.js";
import { Icon } from "../icons.js";
import { useAnswer } from "../loading.js";
import { go } from "../route.js";
import { say } from "../toasts.js";

/** What drivers want to know of a BMC, as `[name, label, kind]`. */
const BMC = {
  redfish: [["redfish_address", "Address of the BMC", "text"], ["redfish_username", "User", "text"],
    ["redfish_password", "Password", "password"]],
  ipmi: [["ipmi_address", "Address of the BMC", "text"], ["ipmi_username", "User", "text"],
    ["ipmi_password", "Password", "password"]],
};

export function Enrol({ sighting, onClose, onDone }) {
  const { data } = useAnswer(() => get("/v1/drivers"), []);
  const drivers = data?.drivers.map((driver) => driver.name) ?? [];
  const [driver, setDriver] = useState(null);
  const [fields, setFields] = useState({});
  const [more, setMore] = useState("");
  const [refusal, setRefusal] = useState(null);
  const [busy, setBusy] = useState(false);
  const chosen = driver ?? (drivers.includes("redfish") ? "redfish" : drivers[0] ?? "");
  const address = sighting.report?.bmc_addresses?.[0];
  const wanted = BMC[chosen] ?? [];
  const found = { redfish_address: ["https:", address].join("//"), ipmi_address: address };
  const valueOf = (name) => fields[name] ?? (address && found[name]) ?? "";
  const set = (name) => (event) => { setRefusal(null); setFields({ ...fields, [name]: event.currentTarget.value }); };
  const onSubmit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setRefusal(null);
    try {
      const info = { ...(more.trim() ? JSON.parse(more) : {}) };
      for (const [name] of wanted) if (valueOf(name)) info[name] = valueOf(name).trim();
      const body = { driver: chosen, driver_info: info };
      for (const name of ["name", "resource_class", "conductor_group"]) if (fields[name]?.trim()) body[name] = fields[name].trim();
      const { uuid } = await post(`/v1/ferrite/sightings/${sighting.mac}/enrol`, body);
      say(`${body.name ?? sighting.mac} is enrolled.`);
      onDone();
      onClose();
      go(`machines/${body.name ?? uuid}`);
    } catch (error) {
      setRefusal(error.message);
      setBusy(false);
    }
  };
  const field = ([name, label, kind]) => html`<label key=${name} class="field"><span>${label}</span><input type=${kind} name=${name}
    autocomplete=${kind === "password" ? "new-password" : "off"} autocapitalize="none" spellcheck=${false} value=${valueOf(name)}
      onInput=${set(name)} /></label>`;
  const footer = html`<span class="grow"></span><button class="button" onClick=${onClose}>Cancel</button>
    <button class="button primary" form="enrol" data-confirm disabled=${busy || !chosen}>Enrol</button>`;
  return html`<${Dialog} title="Enrol ${sighting.mac}" onClose=${onClose} footer=${footer}>
    <form id="enrol" class="settings" onSubmit=${onSubmit}>
    ${field(["name", "Name", "text"])}
    <label class="field"><span>Driver</span>
      <select name="driver" value=${chosen} onChange=${(event) => setDriver(event.currentTarget.value)}>
      ${drivers.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
    ${wanted.map(field)}
    ${field(["resource_class", "Resource class", "text"])}
    ${field(["conductor_group", "Conductor group", "text"])}</form>
    <label class="field"><span>More of driver_info, as JSON</span>
      <textarea rows="3" spellcheck=${false} placeholder="{}" value=${more}
      onInput=${(event) => setMore(event.currentTarget.value)}></textarea></label>
    <p class="quiet">${sighting.reported_at ? "It gets ports and inventory from what its ramdisk told." : "It gets a port for this card; inspection finds the rest."}
      ${address ? " The address of the BMC is the machine's own word: look at it before you give it a password." : ""}</p>
    ${refusal && html`<div class="notice bad" role="alert"><${Icon} name="warning" /><span>${refusal}</span></div>`}
  <//>`;
}
