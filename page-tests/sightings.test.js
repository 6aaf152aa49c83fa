// SPDX-License-Identifier: Apache-2.0
// A machine that nobody enrolled reports, is seen, and is enrolled with what it told.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { serve } from "./support/program.js";

let server, browser;
before(async () => { [server, browser] = await Promise.all([serve(), launch()]); });
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

/** What the ramdisk of a machine tells that the server does not know. */
async function report(mac, serial) {
  const inventory = {
    interfaces: [{ name: "eno1", mac_address: mac, ipv4_address: "10.0.0.21", has_carrier: true }],
    cpu: { count: 64, architecture: "x86_64" }, memory: { physical_mb: 262144 }, disks: [{ name: "/dev/nvme0n1", size: 960e9 }],
    bmc_address: "10.1.0.7", system_vendor: { manufacturer: "Acme", product_name: "Anvil R640", serial_number: serial },
    boot: { current_boot_mode: "uefi", pxe_interface: mac },
  };
  const answer = await fetch(`${server.url}/v1/continue_inspection`, { method: "POST", body: JSON.stringify({ inventory }),
    headers: { "Content-Type": "application/json", "X-OpenStack-Ironic-API-Version": "latest" } });
  assert.equal(answer.status, 404, "nobody waits for it");
}

test("a stranger is seen and enrolled", async () => {
  const page = await browser.open(`${server.url}/ui/sightings`);
  await page.getByText("No strangers").waitFor();
  await isSound(page, "no sightings");
  await report("52:54:00:ee:00:01", "SN-001");
  await report("52:54:00:ee:00:02", "SN-002");
  const card = page.locator('[data-mac="52:54:00:ee:00:01"]');
  await card.getByText("256 GiB").waitFor();
  await isSound(page, "sightings");
  await picture(page, "sightings");

  await card.getByRole("button", { name: /^Enrol this/ }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Address of the BMC").inputValue(), "https://10.1.0.7");
  await dialog.getByLabel("Name").fill("not a name!");
  await dialog.locator("[data-confirm]").click();
  await dialog.getByRole("alert").getByText(/name/).waitFor();
  await isSound(page, "a refused enrolment");
  await dialog.getByLabel("Name").fill("r09-u01");
  await dialog.getByLabel("User").fill("admin");
  await dialog.getByLabel("Password").fill("secret");
  await picture(page, "enrol");
  await dialog.locator("[data-confirm]").click();
  await page.waitForURL(/\/ui\/machines\/r09-u01$/);
  await page.locator('[data-provision-state="enroll"]').waitFor();
  const node = await server.ask("GET", "/v1/nodes/r09-u01");
  assert.deepEqual([node.driver, node.driver_info.redfish_address, node.driver_info.redfish_password],
    ["redfish", "https://10.1.0.7", "******"]);
  const { ports } = await server.ask("GET", `/v1/nodes/${node.uuid}/ports`);
  assert.deepEqual(ports.map((port) => port.address), ["52:54:00:ee:00:01"]);
  const { inventory } = await server.ask("GET", `/v1/nodes/${node.uuid}/inventory`);
  assert.equal(inventory.system_vendor.serial_number, "SN-001");
});

test("a stranger is forgotten, and an enrolled one leads to its machine", async () => {
  const page = await browser.open(`${server.url}/ui/sightings?enrolled=1`, { theme: "light" });
  await page.locator('[data-mac="52:54:00:ee:00:01"]').getByRole("link", { name: /show it/ }).waitFor();
  await isSound(page, "sightings in light");
  await page.getByRole("button", { name: "Forget 52:54:00:ee:00:02" }).click();
  await page.locator('[data-mac="52:54:00:ee:00:02"]').waitFor({ state: "detached" });
});
