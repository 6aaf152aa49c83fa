// SPDX-License-Identifier: Apache-2.0
// The way to a deployment: machines, an image, keys; the plan; progress with an estimate; and afterwards
// who did it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { isSound, launch, picture } from "./support/browser.js";
import { everybody, serve, until } from "./support/program.js";

const KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHbLfA0Vn8 me@laptop";
let server, browser;
before(async () => {
  [server, browser] = await Promise.all([serve({ boots: true }), launch()]);
  await server.simulate(8, { speed: 8 });
  for (const [verb, state] of [["manage", "manageable"], ["inspect", "manageable"], ["provide",
    "available"]]) await everybody(server.ask, verb, state);
  const { nodes } = await server.ask("GET", "/v1/nodes");
  // The wizard says what is deployed.
  for (const node of nodes) await server.ask("PATCH", `/v1/nodes/${node.uuid}`,
    [{ op: "replace", path: "/instance_info", value: {} }]);
});
after(async () => { try { await browser?.close(); } finally { await server?.stop(); } });

const plan = (page) => page.getByRole("list", { name: "What will happen, in order" });

async function fillImage(page) {
  await page.getByLabel("URL of the image").fill(server.image.url);
  await page.getByLabel("Checksum, or the URL of a file with it").fill(server.image.digest);
}

test("machines are chosen, the plan is seen, and the deployment is watched", async () => {
  const page = await browser.open(`${server.url}/ui/fleet?look=table&q=r01-u[01-02]`);
  await page.locator('[data-node="r01-u02"]').waitFor();
  await page.keyboard.press("Control+a");
  await page.getByRole("toolbar").getByRole("button", { name: "Deploy…" }).click();
  await page.waitForURL(/\/ui\/deploy/);
  await page.locator('[data-chosen="2"]').waitFor();
  await page.getByText("Say which image.").waitFor();
  assert.ok(await page.locator("[data-confirm]").isDisabled(), "nothing can happen without an image");
  await fillImage(page);
  await page.getByLabel("SSH keys, one a line").fill("-----BEGIN OPENSSH PRIVATE KEY-----");
  await page.getByText("That is a private key.").first().waitFor();
  await page.getByLabel("SSH keys, one a line").fill(KEY);
  await plan(page).getByText("writes the image").waitFor();
  await isSound(page, "deploy with its plan");
  await picture(page, "deploy-wizard");
  await page.locator("[data-confirm]").scrollIntoViewIfNeeded();
  await picture(page, "deploy-wizard-plan");
  const before = await server.ask("GET", "/v1/nodes/r01-u01");
  assert.deepEqual([before.provision_state, before.instance_info], ["available", {}], "nothing has happened yet");

  await page.locator("[data-confirm]").click();
  await page.locator('[data-progress="running"]').waitFor();
  await page.getByText(/gone/).first().waitFor();
  await page.reload();
  await page.locator('[data-progress="over"][data-done="2"]').waitFor({ timeout: 60_000 });
  await isSound(page, "a deployment that is over");
  const node = await server.ask("GET", "/v1/nodes/r01-u01");
  assert.equal(node.provision_state, "active");
  assert.equal(node.instance_info.image_source, server.image.url);
  assert.ok("configdrive" in node.instance_info);
});

test("the server picks machines of a class, and says how long it usually takes", async () => {
  const [{ resource_class: wanted }] = (await server.ask("GET", "/v1/nodes?fields=resource_class&provision_state=available")).nodes;
  const page = await browser.open(`${server.url}/ui/deploy?class=${wanted}`, { theme: "light" });
  await page.getByLabel("How many").fill("2");
  await page.getByLabel("One that machines have").selectOption(server.image.url);
  await page.getByText(/usually takes/).waitFor();
  await plan(page).first().getByText("writes the image").waitFor();
  await isSound(page, "deploy of a class in light");
  await page.locator("[data-confirm]").click();
  await page.locator('[data-progress="running"]').waitFor();
  await page.getByText(/^usually .* gone/).first().waitFor();
  await picture(page, "deploy-progress");
  await page.locator('[data-progress="over"][data-done="2"]').waitFor({ timeout: 60_000 });
  const { allocations } = await server.ask("GET", "/v1/allocations");
  assert.equal(allocations.filter((one) => one.state === "active").length, 2);
});

test("afterwards it is known who did what when", async () => {
  const page = await browser.open(`${server.url}/ui/audit`);
  await page.locator(".hit").filter({ hasText: "asked for active" }).first().waitFor();
  await isSound(page, "audit");
  await page.getByLabel("Machine").fill("r01-u01");
  await page.getByRole("combobox", { name: /^What/ }).selectOption("entered");
  await page.getByRole("searchbox", { name: "Find in what happened" }).fill("active");
  await until("only those are left", async () => {
    const hits = await page.locator(".hit").allInnerTexts();
    return hits.length > 0 && hits.every((text) => text.includes("r01-u01") && text.includes("active"));
  });
  await picture(page, "audit");
  const seq = await page.locator(".hit").first().getAttribute("data-seq");
  await page.locator(".hit").first().locator("a").first().click();
  await page.waitForURL(/\/ui\/machines\/r01-u01\?at=/);
  await page.locator(`.entry.picked[data-seq="${seq}"]`).waitFor();
  await page.goBack();
  await page.getByLabel("Machine").fill("nobody-has-this-name");
  await page.getByRole("alert").waitFor();
  await isSound(page, "a refusal in the audit");
});

test("images in use are counted, and what the server keeps is shown", async () => {
  const page = await browser.open(`${server.url}/ui/images`);
  const row = page.getByRole("row").filter({ hasText: "image.raw" });
  await row.getByRole("cell", { name: "4", exact: true }).first().waitFor();
  await page.getByRole("region", { name: "Kept on the server" }).getByText(/of 21.5 GB/).waitFor();
  await isSound(page, "images");
  await picture(page, "images");
  await row.getByRole("link", { name: /^Deploy/ }).click();
  assert.equal(await page.getByLabel("URL of the image").inputValue(), server.image.url);
});
