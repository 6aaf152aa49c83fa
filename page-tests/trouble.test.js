// SPDX-License-Identifier: Apache-2.0
// What the page does when the server refuses, fails, or answers late.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch } from "./support/browser.js";
import { everybody, serve, until } from "./support/program.js";

let server, browser, resourceClass;
before(async () => {
  [server, browser] = await Promise.all([serve({ boots: true }), launch()]);
  await server.simulate(3);
  for (const [verb, state] of [["manage", "manageable"], ["inspect", "manageable"], ["provide",
    "available"]]) await everybody(server.ask, verb, state);
  [{ resource_class: resourceClass }] = (await server.ask("GET", "/v1/nodes?fields=resource_class")).nodes;
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

const FAILS = { status: 503, json: { error: { message: "Too much to do." } } };
const live = (page) => page.getByText("Live", { exact: true });
const machine = (page, name) => page.locator(`[data-node="${name}"]`);

test("a server in trouble signs nobody out, and is asked again", async () => {
  const page = await browser.open(`${server.url}/ui/fleet?look=table`);
  await live(page).waitFor();
  let isBad = true;
  for (const where of ["**/ui/session", "**/v1/ferrite/fleet*"]) {
    await page.route(where, (route) => (isBad ? route.fulfill(FAILS) : route.fallback()));
  }
  await page.evaluate(() => dispatchEvent(new Event("offline")));
  await page.getByText("The connection to the server is lost.").waitFor();
  await page.waitForResponse((answer) => answer.url().endsWith("/ui/session") && answer.status() === 503);
  assert.ok(await machine(page, "r01-u01").isVisible(), "the page stays");
  const { uuid } = await server.ask("GET", "/v1/nodes/r01-u03");
  await server.ask("PATCH", `/v1/nodes/${uuid}`, [{ op: "add", path: "/name", value: "r01-u09" }]);
  isBad = false;
  await live(page).waitFor();
  await machine(page, "r01-u09").waitFor();
});

test("a first answer that fails is asked for again", async () => {
  for (const [address, where, seen] of [["fleet?look=table", "**/v1/ferrite/fleet*", '[data-node="r01-u01"]'],
    ["machines/r01-u01", "**/v1/nodes/r01-u01", "#tab-timeline"]]) {
    const page = await browser.open("about:blank");
    await page.route(where, (route) => route.fulfill(FAILS), { times: 2 });
    await page.goto(`${server.url}/ui/${address}`);
    await page.locator(seen).waitFor();
    await live(page).waitFor();
  }
});

test("a refused deployment leaves no allocation behind, and no more are made than were confirmed", async () => {
  const page = await browser.open(`${server.url}/ui/deploy?class=${resourceClass}`);
  const made = [];
  page.on("request", (request) => { if (request.method() === "POST" && request.url().endsWith("/allocations")) made.push(request); });
  await page.route("**/states/provision", (route) => route.fulfill(FAILS));
  await page.getByLabel("How many").fill("5");
  await page.getByLabel("URL of the image").fill(server.image.url);
  await page.getByLabel("Checksum, or the URL of a file with it").fill(server.image.digest);
  await page.getByRole("button", { name: "Deploy 3 machines" }).click();
  await page.getByText("Too much to do.").first().waitFor();
  await until("all is given back", async () => made.length === 3
    && (await server.ask("GET", "/v1/allocations")).allocations.length === 0);
  const { nodes } = await server.ask("GET", "/v1/nodes?fields=instance_uuid,provision_state");
  assert.ok(nodes.every((node) => node.instance_uuid === null && node.provision_state === "available"));
});

test("a machine that was refused is listed, and keeps what it was told before", async () => {
  const [first, second] = (await server.ask("GET", "/v1/nodes?fields=uuid,name,instance_info")).nodes;
  const hash = { image_os_hash_algo: "sha512", image_os_hash_value: "00".repeat(64) };
  for (const { uuid } of [first, second]) {
    await server.ask("PATCH", `/v1/nodes/${uuid}`, Object.entries(hash).map(([key, value]) => ({ op: "add",
      path: `/instance_info/${key}`, value })));
  }
  const page = await browser.open(`${server.url}/ui/deploy?nodes=${first.uuid},${second.uuid}`);
  await page.route(`**/v1/nodes/${second.uuid}/states/provision`, (route) => route.fulfill({ status: 409,
    json: { error_message: { faultstring: "Somebody holds it." } } }));
  await page.getByLabel("URL of the image").fill(`${server.image.url}?other`);
  await page.getByLabel("Checksum, or the URL of a file with it").fill(server.image.digest);
  await page.getByRole("button", { name: "Deploy 2 machines" }).click();
  const line = page.locator(".run-line", { hasText: second.name });
  await line.getByText("Somebody holds it.").waitFor();
  await page.getByText("1 machine failed, 1 deployed").waitFor({ timeout: 60_000 });
  const info = async ({ uuid }) => (await server.ask("GET", `/v1/nodes/${uuid}`)).instance_info;
  const kept = await info(second);
  assert.deepEqual([kept.image_source, kept.image_os_hash_value], [server.image.url, hash.image_os_hash_value]);
  const deployed = await info(first);
  assert.deepEqual([deployed.image_source, deployed.image_os_hash_value], [`${server.image.url}?other`, undefined],
    "the old checksum is not that of the new image");
  await server.ask("PUT", `/v1/nodes/${first.uuid}/states/provision`, { target: "deleted" });
  await until("it is free again", async () => (await server.ask("GET", `/v1/nodes/${first.uuid}`)).provision_state === "available");
});

test("what was typed is kept when it is refused, and does not undo what others did", async () => {
  const [{ uuid, name }] = (await server.ask("GET", "/v1/nodes?fields=uuid,name")).nodes;
  const page = await browser.open(`${server.url}/ui/machines/${name}?tab=configuration`);
  const field = page.getByLabel("extra as JSON");
  await field.waitFor();
  const mine = JSON.stringify({ ...JSON.parse(await field.inputValue()), mine: 1 }, null, 2);
  await field.fill(mine);
  await server.ask("PATCH", `/v1/nodes/${uuid}`, [{ op: "add", path: "/extra/theirs", value: 2 }]);
  const panel = page.locator("section, .panel", { has: field }).last();
  await page.route(`**/v1/nodes/${uuid}`, (route) => (route.request().method() === "PATCH" ? route.fulfill(FAILS) : route.fallback()));
  await panel.getByRole("button", { name: "Save" }).click();
  await page.getByText("Too much to do.").waitFor();
  assert.equal(await field.inputValue(), mine);
  await page.unroute(`**/v1/nodes/${uuid}`);
  await panel.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.").waitFor();
  const { extra } = await server.ask("GET", `/v1/nodes/${uuid}`);
  assert.deepEqual([extra.mine, extra.theirs], [1, 2]);
});

test("an answer about what was chosen before is not heeded", async () => {
  const [first, second] = (await server.ask("GET", "/v1/nodes?fields=uuid,name")).nodes;
  const page = await browser.open(`${server.url}/ui/deploy?nodes=${first.uuid}`);
  let release;
  const isHeld = new Promise((resolve) => { release = resolve; });
  const held = page.waitForRequest("**/v1/ferrite/explain");
  await page.route("**/v1/ferrite/explain", async (route) => { await isHeld; await route.fallback(); }, { times: 1 });
  await page.getByLabel("URL of the image").fill(server.image.url);
  await page.getByLabel("Checksum, or the URL of a file with it").fill(server.image.digest);
  await held;
  await page.getByRole("button", { name: second.name }).click();
  await page.getByRole("button", { name: "Deploy 2 machines" }).waitFor();
  release();
  await page.waitForTimeout(300);
  assert.ok(await page.getByRole("button", { name: "Deploy 2 machines" }).isEnabled());
});

test("more machines than an address holds are kept in the tab", async () => {
  const { nodes } = await server.ask("GET", "/v1/nodes");
  const page = await browser.open(`${server.url}/ui/deploy`);
  const many = [...nodes.map((node) => node.uuid), ...Array.from({ length: 100 }, (_, index) => `gone-${index}`)];
  await page.evaluate((text) => sessionStorage.setItem("ferrite-run-1", text), many.join(","));
  await page.goto(`${server.url}/ui/deploy?run=in-this-tab&at=1`);
  await page.locator(".run-line").nth(102).waitFor();
  const other = await browser.open(`${server.url}/ui/deploy?run=in-this-tab&at=1`);
  await other.getByText("only the tab that began this deployment").waitFor();
});

test("a database that was restored is shown as it is", async () => {
  const page = await browser.open("about:blank");
  // The first answer is of a time that the database does not know any more.
  await page.route("**/v1/ferrite/fleet", async (route) => {
    const answer = await (await route.fetch()).json();
    await route.fulfill({ json: { ...answer, nodes: [], seq: answer.seq + 1_000_000 } });
  }, { times: 1 });
  await page.goto(`${server.url}/ui/fleet?look=table`);
  await live(page).waitFor();
  await page.evaluate(() => dispatchEvent(new Event("offline")));
  await machine(page, "r01-u01").waitFor();
});

test("a server that falls silent is not waited for for ever", async () => {
  const page = await browser.open("about:blank");
  await page.clock.install();
  const asked = page.waitForRequest("**/v1/ferrite/journal*");
  await page.route("**/v1/ferrite/journal*", () => { /* No answer comes. */ });
  await page.goto(`${server.url}/ui/audit`);
  await page.clock.runFor(1000);
  await asked;
  await page.clock.runFor(121_000);
  await page.getByText("The server has not answered for 2 minutes.").waitFor();
});

test("a tab that is closed gives back what it reserved", async () => {
  const page = await browser.open(`${server.url}/ui/deploy?class=${resourceClass}`);
  // The machines are reserved, and nothing further comes to pass.
  const isHeld = page.waitForRequest((request) => request.method() === "PATCH");
  await page.route("**/v1/nodes/*", (route) => (route.request().method() === "PATCH" ? null : route.fallback()));
  await page.getByLabel("How many").fill("2");
  await page.getByLabel("URL of the image").fill(server.image.url);
  await page.getByLabel("Checksum, or the URL of a file with it").fill(server.image.digest);
  await page.getByRole("button", { name: "Deploy 2 machines" }).click();
  await isHeld;
  assert.equal((await server.ask("GET", "/v1/allocations")).allocations.length, 2);
  await page.goto("about:blank");
  await until("all is given back", async () => (await server.ask("GET", "/v1/allocations")).allocations.length === 0);
});

test("what is wrong in an address or does not load is left behind by going elsewhere", async () => {
  const page = await browser.open(`${server.url}/ui/fleet?look=table&state=%25zz`);
  await page.getByRole("navigation").waitFor();
  await page.route("**/app/audit/page.js", (route) => route.abort());
  await page.getByRole("link", { name: "Audit" }).click();
  await page.getByText("This page could not be loaded").waitFor();
  await page.getByRole("link", { name: "Images" }).click();
  await page.getByRole("heading", { name: "Images" }).first().waitFor();
  await page.unroute("**/app/audit/page.js");
  await page.goto(`${server.url}/ui/audit?span=own&from=yesterday`);
  await page.getByRole("search", { name: "Filters" }).waitFor();
  await page.locator(".hit").first().waitFor();
  await page.evaluate(() => history.pushState(null, "", "/ui/machines/%zz"));
  await page.evaluate(() => dispatchEvent(new PopStateEvent("popstate")));
  await page.getByText(/There is no machine|The machine cannot be shown/).waitFor();
});
