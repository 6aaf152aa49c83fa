// SPDX-License-Identifier: Apache-2.0
// The automation and network pages, and the accessibility of all pages in both themes and on a phone.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkFitsWidth, checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, waitFor } from "./support/server.js";

const fixture = useFixture({}, async ({ server }) => {
  await server.simulate(4);
  await provisionAll(server.request, ["manage", "manageable"], ["inspect", "manageable"]);
});
const open = (path, options) => fixture.browser.open(`${fixture.server.url}/ui/${path}`, options);

const json = (page) => page.getByLabel(/^As JSON/);

test("creates a flavour and assigns its class to matching machines", async () => {
  const { server } = fixture;
  const page = await open("automation");
  await page.getByRole("button", { name: "New flavour" }).click();
  await page.getByLabel("Name").fill("large");
  await json(page).fill(
    '{"resource_class": "x", "conditions": [{"op": "no-such-op", "args": {}}]}',
  );
  await page.locator("[data-confirm]").click();
  await page
    .getByRole("alert")
    .getByText(/no-such-op/)
    .waitFor();
  await checkPage(page, "rejected flavour");
  await json(page).fill("{ nonsense");
  assert.ok(await page.locator("[data-confirm]").isDisabled());
  const condition = { op: "gt", args: { values: ["{inventory[memory][physical_mb]}", 1] } };
  await json(page).fill(
    JSON.stringify({ priority: 5, resource_class: "baremetal.large", conditions: [condition] }),
  );
  await screenshot(page, "flavour");
  await page.locator("[data-confirm]").click();
  await page.getByRole("button", { name: "Machines that match large" }).click();
  await page.getByText("4 of 4 inspected machines").waitFor();
  await checkPage(page, "machines of a flavour");
  await screenshot(page, "flavour-matches");
  await page.locator("[data-confirm]").click();
  await waitFor("the class is assigned", async () => {
    const { nodes } = await server.request("GET", "/v1/nodes?fields=resource_class");
    return nodes.every((node) => node.resource_class === "baremetal.large");
  });
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).last().click();
  await page.getByRole("button", { name: "Remove large" }).click();
  await page.locator("[data-confirm]").click();
  await page.getByText("No flavours yet").waitFor();
});

for (const [kind, button, name, newName] of [
  ["templates", "New deploy template", "CUSTOM_HYPERTHREADING_OFF", "CUSTOM_OTHER"],
  ["runbooks", "New runbook", "CUSTOM_BIOS_RESET", "CUSTOM_OTHER"],
  ["rules", "New inspection rule", "Machines of Acme are storage", "Other machines"],
]) {
  test(`creates, edits and removes ${kind}`, async () => {
    const page = await open(`automation?kind=${kind}`);
    await page.getByRole("button", { name: button }).click();
    await page.locator("[data-confirm]").click();
    await page.getByRole("button", { name: `Edit ${name}` }).click();
    await json(page).fill((await json(page).inputValue()).replace(name, newName));
    await page.locator("[data-confirm]").click();
    await page.getByRole("button", { name: `Edit ${newName}` }).waitFor();
    await checkPage(page, kind);
    await screenshot(page, `automation-${kind}`);
    await page.getByRole("button", { name: `Remove ${newName}` }).click();
    await page.locator("[data-confirm]").click();
    await page.getByRole("button", { name: `Remove ${newName}` }).waitFor({ state: "detached" });
  });
}

const lease = (address, mac, state, name) => ({
  address,
  mac,
  client: mac ?? "unknown",
  state,
  expires_at: new Date(Date.now() + (state === "expired" ? -1 : 1) * 1800e3).toISOString(),
  node_uuid: name && "1",
  node_name: name,
});

/** A response with networks; serving DHCP needs privileges that tests do not have. */
const DHCP = {
  enabled: true,
  count: 3,
  error: null,
  networks: [
    {
      interface: "eth1",
      address: "10.0.0.1/24",
      mode: "discover",
      ranges: ["10.0.0.100-10.0.0.199"],
      hosts: {},
      gateway: "10.0.0.254",
      dns: ["10.0.0.53"],
      ntp: [],
      domain: null,
      mtu: null,
      lease_time: null,
      tftp_server: null,
    },
  ],
  leases: [
    lease("10.0.0.101", "52:54:00:ee:00:01", "leased", null),
    lease("10.0.0.102", "02:01:00:00:00:00", "leased", "r01-u01"),
    lease("10.0.0.103", null, "conflict", null),
    lease("10.0.0.104", "52:54:00:ee:00:09", "expired", null),
  ],
};

test("shows DHCP networks and leases", async () => {
  const page = await open("network");
  await page.getByText("Boot services are disabled").waitFor();
  const respond = (body) =>
    page.route("**/v1/ferrite/dhcp", (route) => route.fulfill({ json: body }));
  await respond({ enabled: true, networks: [], leases: [] });
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByText('mode = "discover"').waitFor();
  await screenshot(page, "network-empty");
  await respond(DHCP);
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByText("3 addresses of 100 in use").waitFor();
  assert.equal(await page.locator("tbody tr").count(), 3, "expired leases are hidden");
  await page.getByRole("link", { name: "r01-u01" }).waitFor();
  await checkPage(page, "network");
  await screenshot(page, "network");
});

const replica = (hostname, state, renewed) => ({
  hostname,
  state,
  version: "0.1.0",
  conductor_group: "",
  drivers: ["redfish"],
  registered_at: new Date(0).toISOString(),
  renewed_at: new Date(Date.now() - renewed * 1000).toISOString(),
  nodes: state === "online" ? 500 : 0,
  working: 12,
  late: 0,
  lag_seconds: 0,
});

test("shows the processes of the service", async () => {
  const page = await open("cluster");
  await page.getByText("sends this page").waitFor();
  await page.getByRole("row", { name: "deploy" }).waitFor();
  assert.equal(await page.getByRole("alert").count(), 0);
  const status = {
    replicas: [replica("one", "online", 0), replica("two", "dead", 600)],
    unmanaged_nodes: 3,
    queues: [{ name: "deploy", running: 20, waiting: 480, limit: 20 }],
    shared_database: true,
    responder: { hostname: "one", clock_ahead_seconds: 0, clock_beyond_tolerance: false },
  };
  await page.route("**/v1/ferrite/cluster", (route) => route.fulfill({ json: status }));
  await page.getByRole("button", { name: "Refresh" }).click();
  await page.getByRole("alert").getByText("two does not run any more").waitFor();
  await page.getByRole("alert").getByText("3 machines cannot be managed").waitFor();
  await checkPage(page, "cluster");
  await screenshot(page, "cluster");
});

const PAGES = [
  "topology",
  "deploy",
  "images",
  "network",
  "cluster",
  "sightings",
  "automation",
  "automation?kind=rules",
  "journal?kind=all",
  "audit-log",
  "deployments",
  "access",
  "access?tab=projects",
  "access?tab=tokens",
];
const LOOKS = [{ theme: "dark" }, { theme: "light" }, { theme: "dark", width: 390, height: 844 }];
for (const path of PAGES) {
  test(`${path} is accessible in both themes and fits a phone`, async () => {
    for (const look of LOOKS) {
      const page = await open(path, look);
      await page.getByRole("heading", { level: 1 }).waitFor();
      await waitFor("all is loaded", async () => (await page.locator(".loading").count()) === 0);
      const where = `${path} ${JSON.stringify(look)}`;
      await checkPage(page, where);
      await checkFitsWidth(page, where);
      const suffix = look.width ? "phone" : look.theme;
      await screenshot(page, `${path.replace(/\W+/g, "-")}-${suffix}`);
      await page.context().close();
    }
  });
}
