// SPDX-License-Identifier: Apache-2.0
// Server errors, rejected requests, late responses and invalid addresses.

import assert from "node:assert/strict";
import { test } from "node:test";
import { screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, waitFor } from "./support/server.js";

let resourceClass;
const fixture = useFixture({ boots: true }, async ({ server }) => {
  await server.simulate(3);
  await provisionAll(
    server.request,
    ["manage", "manageable"],
    ["inspect", "manageable"],
    ["provide", "available"],
  );
  const { nodes } = await server.request("GET", "/v1/nodes?fields=resource_class");
  resourceClass = nodes[0].resource_class;
});
const open = (path, options) => fixture.browser.open(`${fixture.server.url}/ui/${path}`, options);
const listNodes = async (fields) =>
  (await fixture.server.request("GET", `/v1/nodes?fields=${fields}`)).nodes;

const OVERLOADED = { status: 503, json: { error: { message: "Overloaded." } } };
const live = (page) => page.getByText("Live", { exact: true });
const row = (page, name) => page.locator(`[data-node="${name}"]`);

async function fillImage(page, url = fixture.server.image.url) {
  await page.getByLabel("Image URL").fill(url);
  await page.getByLabel("Checksum, or URL of a checksum file").fill(fixture.server.image.digest);
}

test("a server error keeps the session and is retried", async () => {
  const { server } = fixture;
  const page = await open("fleet?look=table");
  await live(page).waitFor();
  let isFailing = true;
  for (const url of ["**/ui/session", "**/v1/ferrite/fleet*"]) {
    await page.route(url, (route) => (isFailing ? route.fulfill(OVERLOADED) : route.fallback()));
  }
  const retried = page.waitForResponse(
    (response) => response.url().endsWith("/ui/session") && response.status() === 503,
  );
  await page.evaluate(() => dispatchEvent(new Event("offline")));
  await page.getByText("Connection to the server lost; reconnecting.").waitFor();
  await retried;
  assert.ok(await row(page, "r01-u01").isVisible(), "the page stays");
  const { uuid } = await server.request("GET", "/v1/nodes/r01-u03");
  await server.request("PATCH", `/v1/nodes/${uuid}`, [
    { op: "add", path: "/name", value: "r01-u09" },
  ]);
  isFailing = false;
  await live(page).waitFor();
  await row(page, "r01-u09").waitFor();
});

for (const [path, url, expected] of [
  ["fleet?look=table", "**/v1/ferrite/fleet*", '[data-node="r01-u01"]'],
  ["machines/r01-u01", "**/v1/nodes/r01-u01", "#tab-timeline"],
]) {
  test(`retries a failed first load of ${path}`, async () => {
    const page = await fixture.browser.open("about:blank");
    await page.route(url, (route) => route.fulfill(OVERLOADED), { times: 2 });
    await page.goto(`${fixture.server.url}/ui/${path}`);
    await page.locator(expected).waitFor();
    await live(page).waitFor();
  });
}

test("releases the allocations of a rejected deployment", async () => {
  const { server } = fixture;
  const page = await open(`deploy?class=${resourceClass}`);
  let created = 0;
  page.on("request", (request) => {
    if (request.method() === "POST" && request.url().endsWith("/allocations")) created += 1;
  });
  await page.route("**/states/provision", (route) => route.fulfill(OVERLOADED));
  await page.getByLabel("Number of machines", { exact: true }).fill("5");
  await fillImage(page);
  await page.getByRole("button", { name: "Deploy 3 machines" }).click();
  await page.getByText("Overloaded.").first().waitFor();
  await screenshot(page, "deploy-rejected");
  await waitFor("all allocations are released", async () => {
    const { allocations } = await server.request("GET", "/v1/allocations");
    return created === 3 && allocations.length === 0;
  });
  const nodes = await listNodes("instance_uuid,provision_state");
  assert.ok(
    nodes.every((node) => node.instance_uuid === null && node.provision_state === "available"),
  );
});

test("restores the instance_info of a rejected machine", async () => {
  const { server } = fixture;
  const [first, second] = await listNodes("uuid,name,instance_info");
  const hash = { image_os_hash_algo: "sha512", image_os_hash_value: "00".repeat(64) };
  const setHash = Object.entries(hash).map(([key, value]) => ({
    op: "add",
    path: `/instance_info/${key}`,
    value,
  }));
  for (const { uuid } of [first, second])
    await server.request("PATCH", `/v1/nodes/${uuid}`, setHash);
  const page = await open(`deploy?nodes=${first.uuid},${second.uuid}`);
  await page.route(`**/v1/nodes/${second.uuid}/states/provision`, (route) =>
    route.fulfill({ status: 409, json: { error_message: { faultstring: "Node is locked." } } }),
  );
  const image = `${server.image.url}?other`;
  await fillImage(page, image);
  await page.getByRole("button", { name: "Deploy 2 machines" }).click();
  await page.locator(".run-line", { hasText: second.name }).getByText("Node is locked.").waitFor();
  await page.getByText("1 machine failed, 1 deployed").waitFor();
  await page.waitForTimeout(500);
  await screenshot(page, "deploy-partly-failed");
  const instanceInfo = async ({ uuid }) =>
    (await server.request("GET", `/v1/nodes/${uuid}`)).instance_info;
  const restored = await instanceInfo(second);
  assert.deepEqual(
    [restored.image_source, restored.image_os_hash_value],
    [server.image.url, hash.image_os_hash_value],
  );
  const deployed = await instanceInfo(first);
  assert.deepEqual(
    [deployed.image_source, deployed.image_os_hash_value],
    [image, undefined],
    "the checksum of the old image is removed",
  );
  await server.request("PUT", `/v1/nodes/${first.uuid}/states/provision`, { target: "deleted" });
  await waitFor("the machine is available again", async () => {
    const node = await server.request("GET", `/v1/nodes/${first.uuid}`);
    return node.provision_state === "available";
  });
});

test("keeps rejected input and does not overwrite changes of others", async () => {
  const { server } = fixture;
  const [{ uuid, name }] = await listNodes("uuid,name");
  const page = await open(`machines/${name}?tab=configuration`);
  const field = page.getByLabel("extra as JSON");
  await field.waitFor();
  const mine = JSON.stringify({ ...JSON.parse(await field.inputValue()), mine: 1 }, null, 2);
  await field.fill(mine);
  await server.request("PATCH", `/v1/nodes/${uuid}`, [
    { op: "add", path: "/extra/theirs", value: 2 },
  ]);
  const save = page.locator(".panel", { has: field }).last().getByRole("button", { name: "Save" });
  const url = `**/v1/nodes/${uuid}`;
  await page.route(url, (route) =>
    route.request().method() === "PATCH" ? route.fulfill(OVERLOADED) : route.fallback(),
  );
  await save.click();
  await page.getByText("Overloaded.").waitFor();
  assert.equal(await field.inputValue(), mine);
  await page.unroute(url);
  await save.click();
  await page.getByText("Saved.").waitFor();
  const { extra } = await server.request("GET", `/v1/nodes/${uuid}`);
  assert.deepEqual([extra.mine, extra.theirs], [1, 2]);
});

test("ignores a late plan of an earlier selection", async () => {
  const [first, second] = await listNodes("uuid,name");
  const page = await open(`deploy?nodes=${first.uuid}`);
  let release;
  const released = new Promise((resolve) => {
    release = resolve;
  });
  const requested = page.waitForRequest("**/v1/ferrite/explain");
  await page.route(
    "**/v1/ferrite/explain",
    async (route) => {
      await released;
      await route.fallback();
    },
    { times: 1 },
  );
  await fillImage(page);
  await requested;
  await page.getByRole("button", { name: second.name }).click();
  const confirm = page.getByRole("button", { name: "Deploy 2 machines" });
  await confirm.waitFor();
  release();
  await page.waitForTimeout(300);
  assert.ok(await confirm.isEnabled());
});

test("stores a long list of machines in the tab", async () => {
  const nodes = await listNodes("uuid");
  const page = await open("deploy");
  const removed = Array.from({ length: 100 }, (_, index) => `removed-${index}`);
  const uuids = [...nodes.map((node) => node.uuid), ...removed];
  await page.evaluate((text) => sessionStorage.setItem("ferrite-run-1", text), uuids.join(","));
  await page.goto(`${fixture.server.url}/ui/deploy?run=in-this-tab&at=1`);
  await page.locator(".run-line").nth(102).waitFor();
  const other = await open("deploy?run=in-this-tab&at=1");
  await other.getByText("stored in the tab that started this deployment").waitFor();
});

test("reloads the fleet after the database was restored", async () => {
  const page = await fixture.browser.open("about:blank");
  // The first response is from a later time than the database.
  await page.route(
    "**/v1/ferrite/fleet",
    async (route) => {
      const fleet = await (await route.fetch()).json();
      await route.fulfill({ json: { ...fleet, nodes: [], seq: fleet.seq + 1_000_000 } });
    },
    { times: 1 },
  );
  await page.goto(`${fixture.server.url}/ui/fleet?look=table`);
  await live(page).waitFor();
  await page.evaluate(() => dispatchEvent(new Event("offline")));
  await row(page, "r01-u01").waitFor();
});

test("gives up on a request without a response", async () => {
  const page = await fixture.browser.open("about:blank");
  await page.clock.install();
  const requested = page.waitForRequest("**/v1/ferrite/journal*");
  await page.route("**/v1/ferrite/journal*", () => {
    /* Never responds. */
  });
  await page.goto(`${fixture.server.url}/ui/journal`);
  await page.clock.runFor(1000);
  await requested;
  await page.clock.runFor(121_000);
  await page.getByText("The server did not respond within 2 minutes.").waitFor();
});

test("releases allocations when the tab is closed", async () => {
  const { server } = fixture;
  const page = await open(`deploy?class=${resourceClass}`);
  // The machines are allocated, and the next request never ends.
  const blocked = page.waitForRequest((request) => request.method() === "PATCH");
  await page.route("**/v1/nodes/*", (route) =>
    route.request().method() === "PATCH" ? null : route.fallback(),
  );
  await page.getByLabel("Number of machines", { exact: true }).fill("2");
  await fillImage(page);
  await page.getByRole("button", { name: "Deploy 2 machines" }).click();
  await blocked;
  const allocations = async () =>
    (await server.request("GET", "/v1/allocations")).allocations.length;
  await waitFor("both machines are allocated", async () => (await allocations()) === 2);
  await page.goto("about:blank");
  await waitFor("the allocations are released", async () => (await allocations()) === 0);
});

test("recovers from invalid addresses and modules that do not load", async () => {
  const { server } = fixture;
  const page = await open("fleet?look=table&state=%25zz");
  await page.getByRole("navigation").waitFor();
  await page.route("**/app/journal/page.js", (route) => route.abort());
  await page.getByRole("link", { name: "Journal" }).click();
  await page.getByText("This page could not be loaded").waitFor();
  await screenshot(page, "page-error");
  await page.getByRole("link", { name: "Images" }).click();
  await page.getByRole("heading", { name: "Images" }).first().waitFor();
  await page.unroute("**/app/journal/page.js");
  await page.goto(`${server.url}/ui/journal?span=own&from=yesterday`);
  await page.getByRole("search", { name: "Filters" }).waitFor();
  await page.locator(".journal-entry").first().waitFor();
  await page.evaluate(() => history.pushState(null, "", "/ui/machines/%zz"));
  await page.evaluate(() => dispatchEvent(new PopStateEvent("popstate")));
  await page.getByText(/does not exist|cannot be loaded/).waitFor();
  await screenshot(page, "machine-not-found");
});
