// SPDX-License-Identifier: Apache-2.0
// The deploy page, its progress, and the journal and images pages afterwards.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";
import { provisionAll, waitFor } from "./support/server.js";

const SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHbLfA0Vn8 me@laptop";
const fixture = useFixture({ boots: true }, async ({ server }) => {
  await server.simulate(8, { speed: 8 });
  await provisionAll(
    server.request,
    ["manage", "manageable"],
    ["inspect", "manageable"],
    ["provide", "available"],
  );
  const { nodes } = await server.request("GET", "/v1/nodes");
  // The form sets the image.
  for (const { uuid } of nodes)
    await server.request("PATCH", `/v1/nodes/${uuid}`, [
      { op: "replace", path: "/instance_info", value: {} },
    ]);
});

const plan = (page) => page.getByRole("list", { name: "Planned steps" });
const checksum = (page) => page.getByLabel("Checksum, or URL of a checksum file");

async function fillImage(page) {
  await page.getByLabel("Image URL").fill(fixture.server.image.url);
  await checksum(page).fill(fixture.server.image.digest);
}

test("deploys machines that were selected in the fleet", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/fleet?look=table&q=r01-u[01-02]`);
  await page.locator('[data-node="r01-u02"]').waitFor();
  await page.keyboard.press("Control+a");
  await page.getByRole("toolbar").getByRole("button", { name: "Deploy…" }).click();
  await page.waitForURL(/\/ui\/deploy/);
  await page.locator('[data-candidates="2"]').waitFor();
  await page.getByText("Enter the URL of an image.").waitFor();
  assert.ok(await page.locator("[data-confirm]").isDisabled(), "an image is required");
  await fillImage(page);
  const keys = page.getByLabel("SSH keys, one per line");
  await keys.fill("-----BEGIN OPENSSH PRIVATE KEY-----");
  const error = page.getByText("This is a private key.").first();
  await error.waitFor();
  const danger = await page.evaluate(() => {
    const probe = document.createElement("span");
    probe.className = "bad-text";
    document.body.append(probe);
    const { color } = getComputedStyle(probe);
    probe.remove();
    return color;
  });
  assert.equal(
    await error.evaluate((element) => getComputedStyle(element).color),
    danger,
    "errors of the form are red",
  );
  await screenshot(page, "deploy-wizard-error");
  await keys.fill(SSH_KEY);
  await plan(page).getByText("writes the image").waitFor();
  await checkPage(page, "deploy page with a plan");
  await screenshot(page, "deploy-wizard");
  await page.locator("[data-confirm]").scrollIntoViewIfNeeded();
  await screenshot(page, "deploy-wizard-plan");
  const before = await server.request("GET", "/v1/nodes/r01-u01");
  assert.deepEqual(
    [before.provision_state, before.instance_info],
    ["available", {}],
    "nothing happens before the confirmation",
  );

  await page.locator("[data-confirm]").click();
  await page.locator('[data-progress="running"]').waitFor();
  await page
    .getByText(/elapsed/)
    .first()
    .waitFor();
  await page.reload();
  await page.locator('[data-progress="over"][data-done="2"]').waitFor();
  await checkPage(page, "finished deployment");
  await screenshot(page, "deploy-done");
  const node = await server.request("GET", "/v1/nodes/r01-u01");
  assert.equal(node.provision_state, "active");
  assert.equal(node.instance_info.image_source, server.image.url);
  assert.ok("configdrive" in node.instance_info);
});

test("allocates machines of a resource class and estimates the duration", async () => {
  const { server, browser } = fixture;
  const { nodes } = await server.request(
    "GET",
    "/v1/nodes?fields=resource_class&provision_state=available",
  );
  const page = await browser.open(`${server.url}/ui/deploy?class=${nodes[0].resource_class}`, {
    theme: "light",
  });
  await page.getByLabel("Number of machines", { exact: true }).fill("2");
  await page.getByLabel("Existing image").selectOption(server.image.url);
  await page.getByText(/usually takes/).waitFor();
  await plan(page).first().getByText("writes the image").waitFor();
  await checkPage(page, "deploy page of a class, light");
  await screenshot(page, "deploy-class");
  await page.locator("[data-confirm]").click();
  await page.locator('[data-progress="running"]').waitFor();
  await page
    .getByText(/elapsed, usually/)
    .first()
    .waitFor();
  await screenshot(page, "deploy-progress");
  await page.locator('[data-progress="over"][data-done="2"]').waitFor();
  const { allocations } = await server.request("GET", "/v1/allocations");
  assert.equal(allocations.filter(({ state }) => state === "active").length, 2);
});

test("searches the journal and links to the timeline", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/journal`);
  const entries = page.locator(".journal-entry");
  await entries.filter({ hasText: "requested active" }).first().waitFor();
  await checkPage(page, "journal");
  await page.getByLabel("Machine").fill("r01-u01");
  await page.getByRole("combobox", { name: /^Event/ }).selectOption({ label: "State changes" });
  await page.getByRole("searchbox", { name: "Search the journal" }).fill("active");
  await waitFor("only matching entries are left", async () => {
    const texts = await entries.allInnerTexts();
    return (
      texts.length > 0 && texts.every((text) => text.includes("r01-u01") && text.includes("active"))
    );
  });
  await screenshot(page, "journal");
  const seq = await entries.first().getAttribute("data-seq");
  await entries.first().locator("a").first().click();
  await page.waitForURL(/\/ui\/machines\/r01-u01\?at=/);
  await page.locator(`.entry.selected[data-seq="${seq}"]`).waitFor();
  await page.goBack();
  await page.getByLabel("Machine").fill("no-such-machine");
  await page.getByRole("alert").waitFor();
  await checkPage(page, "error in the journal");
});

test("lists images in use and in the cache", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/images`);
  const row = page.getByRole("row").filter({ hasText: "image.raw" });
  await row.getByRole("cell", { name: "4", exact: true }).first().waitFor();
  const cache = page.getByRole("region", { name: "Server cache" });
  await cache.getByText(/of 21.5 GB/).waitFor();
  await checkPage(page, "images");
  await screenshot(page, "images");
  await row.getByRole("link", { name: /^Deploy/ }).click();
  assert.equal(await page.getByLabel("Image URL").inputValue(), server.image.url);
});

test("shows the size of a cached image that occupies no blocks yet", async () => {
  const page = await fixture.browser.open("about:blank");
  const image = { sha256: "ab".repeat(32), format: "raw", size: 4_200_000, on_disk: 0 };
  await page.route("**/v1/ferrite/images", (route) =>
    route.fulfill({
      json: { in_use: [], count: 0, cache: { used: 4_200_000, limit: 1e9, images: [image] } },
    }),
  );
  await page.goto(`${fixture.server.url}/ui/images`);
  const cells = page.getByRole("row").filter({ hasText: "abababababab" }).getByRole("cell");
  await cells.first().waitFor();
  assert.deepEqual((await cells.allInnerTexts()).slice(2, 4), ["4.2 MB", "4.2 MB"]);
});
