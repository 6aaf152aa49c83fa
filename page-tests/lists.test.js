// SPDX-License-Identifier: Apache-2.0
// Flavours, templates, runbooks and rules are made, refused, changed and removed; and every page is
// sound, dark and light and on a phone.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { everybody, serve, until } from "./support/program.js";

let server, browser;
before(async () => {
  [server, browser] = await Promise.all([serve(), launch()]);
  await server.simulate(4);
  for (const [verb, state] of [["manage", "manageable"], ["inspect", "manageable"]]) await everybody(server.ask, verb, state);
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

const json = (page) => page.getByLabel(/^As JSON/);

test("a flavour is made, fits machines, and gives them their class", async () => {
  const page = await browser.open(`${server.url}/ui/automation`);
  await page.getByRole("button", { name: "New flavour" }).click();
  await page.getByLabel("Name").fill("large");
  await json(page).fill('{"resource_class": "x", "conditions": [{"op": "no-such-op", "args": {}}]}');
  await page.locator("[data-confirm]").click();
  await page.getByRole("alert").getByText(/no-such-op/).waitFor();
  await isSound(page, "a refused flavour");
  await json(page).fill("{ nonsense");
  assert.ok(await page.locator("[data-confirm]").isDisabled());
  await json(page).fill(JSON.stringify({ priority: 5, resource_class: "baremetal.large",
    conditions: [{ op: "gt", args: { values: ["{inventory[memory][physical_mb]}", 1] } }] }));
  await picture(page, "flavour");
  await page.locator("[data-confirm]").click();
  await page.getByRole("button", { name: "Machines that large fits" }).click();
  await page.getByText("4 of 4 inspected machines").waitFor();
  await isSound(page, "machines of a flavour");
  await page.locator("[data-confirm]").click();
  await until("they have it", async () => (await server.ask("GET", "/v1/nodes?fields=resource_class")).nodes
    .every((node) => node.resource_class === "baremetal.large"));
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).last().click();
  await page.getByRole("button", { name: "Remove large" }).click();
  await page.locator("[data-confirm]").click();
  await page.getByText("No flavours yet").waitFor();
});

test("templates, runbooks and rules are made from their examples, changed and removed", async () => {
  for (const [kind, made, words, after] of [["templates", "New deploy template", "CUSTOM_HYPERTHREADING_OFF", "CUSTOM_OTHER"],
    ["runbooks", "New runbook", "CUSTOM_BIOS_RESET", "CUSTOM_OTHER"],
      ["rules", "New inspection rule", "Machines of Acme are storage", "Other machines"]]) {
    const page = await browser.open(`${server.url}/ui/automation?kind=${kind}`);
    await page.getByRole("button", { name: made }).click();
    await page.locator("[data-confirm]").click();
    await page.getByRole("button", { name: `Edit ${words}` }).click();
    await json(page).fill((await json(page).inputValue()).replace(words, after));
    await page.locator("[data-confirm]").click();
    await page.getByRole("button", { name: `Edit ${after}` }).waitFor();
    await isSound(page, kind);
    await picture(page, `automation-${kind}`);
    await page.getByRole("button", { name: `Remove ${after}` }).click();
    await page.locator("[data-confirm]").click();
    await page.getByRole("button", { name: `Remove ${after}` }).waitFor({ state: "detached" });
    await page.context().close();
  }
});

/** As the server answers where DHCP is answered, which takes rights that tests do not have. */
const DHCP = {
  enabled: true, count: 3, problem: null,
  networks: [{ interface: "eth1", address: "10.0.0.1/24", mode: "discover", ranges: ["10.0.0.100-10.0.0.199"], hosts: {},
    gateway: "10.0.0.254",
    dns: ["10.0.0.53"], ntp: [], domain: null, mtu: null, lease_time: null, tftp_server: null }],
  leases: [["10.0.0.101", "52:54:00:ee:00:01", "leased", null], ["10.0.0.102", "02:01:00:00:00:00", "leased", "r01-u01"],
    ["10.0.0.103", null, "taken", null],
    ["10.0.0.104", "52:54:00:ee:00:09", "ended",
      null]].map(([address, mac, state, name]) => ({ address, mac, client: mac ?? "somebody who did not ask", state,
    until: new Date(Date.now() + (state === "ended" ? -1 : 1) * 1800e3).toISOString(), node_uuid: name && "1", node_name: name })),
};

test("networks and leases are shown", async () => {
  const page = await browser.open(`${server.url}/ui/network`);
  await page.getByText("The boot services are switched off").waitFor();
  await page.route("**/v1/ferrite/dhcp", (route) => route.fulfill({ json: DHCP }));
  await page.getByRole("button", { name: "Look again" }).click();
  await page.getByText("3 addresses of 100 in use").waitFor();
  assert.equal(await page.locator("tbody tr").count(), 3, "those that ended are left out");
  await page.getByRole("link", { name: "r01-u01" }).waitFor();
  await isSound(page, "networks");
  await picture(page, "network");
});

test("every page is sound, dark and light, and fits a phone", async () => {
  for (const path of ["topology", "deploy", "images", "network", "sightings", "automation", "automation?kind=rules",
    "audit?kind=all"]) {
    for (const look of [{ theme: "dark" }, { theme: "light" }, { theme: "dark", width: 390, height: 844 }]) {
      const page = await browser.open(`${server.url}/ui/${path}`, look);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await until("everything is there", async () => (await page.locator(".loading").count()) === 0);
      await isSound(page, `${path} ${JSON.stringify(look)}`);
      assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${path}: nothing sticks out`);
      if (look.width && !path.includes("?")) await picture(page, `${path}-phone`);
      await page.context().close();
    }
  }
});
