// SPDX-License-Identifier: Apache-2.0
// Users of the database: sign-in with a project, the access, deployments and audit log pages, and what
// is hidden from callers without a role for it.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";

const PASSWORD = "a good password";
const NEW_PASSWORD = "a better password";

const fixture = useFixture({ auth: "local" }, async ({ server }) => {
  await server.request("POST", "/v1/ferrite/projects", { name: "shop" });
  const users = [
    ["bob", ["member@shop"]],
    ["carol", ["reader@system", "manager@shop"]],
    ["dora", ["member@shop"]],
  ];
  for (const [name, roles] of users)
    await server.request("POST", "/v1/ferrite/users", { name, password: PASSWORD, roles });
});

/** Opens a page as a user. */
async function openAs(user, path, { password = PASSWORD, project = "", ...look } = {}) {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui/${path}`, look);
  await signIn(page, user, password, project);
  await page.getByRole("navigation", { name: "Pages" }).waitFor();
  return page;
}

const openAsAdmin = (path, look) =>
  openAs("admin", path, { password: fixture.server.password, ...look });

async function signIn(page, user, password, project = "") {
  await page.getByLabel("User").fill(user);
  await page.getByLabel("Password").fill(password);
  await page.getByLabel("Project (optional)").fill(project);
  await page.getByRole("button", { name: "Sign in" }).click();
}

const confirm = (page) => page.locator("[data-confirm]").click();
const row = (page, name) => page.getByRole("row").filter({ hasText: name });

test("shows the user and the scope, which is selected at the sign-in", async () => {
  const page = await openAs("carol", "access");
  const account = page.locator("[data-account]");
  await account.getByText("carol").waitFor();
  assert.match(await account.innerText(), /system/);
  await page.getByRole("tab", { name: "Users" }).waitFor();
  await page.getByRole("button", { name: /Sign out/ }).click();
  await signIn(page, "carol", PASSWORD, "shop");
  await account.getByText("project shop").waitFor();
  await page.getByRole("tab", { name: "Account" }).waitFor();
  assert.equal(await page.getByRole("tab", { name: "Users" }).count(), 0);
  await checkPage(page, "account");
  await page.getByRole("button", { name: /Sign out/ }).click();
  await signIn(page, "carol", PASSWORD, "no-such-project");
  await page.getByRole("alert").waitFor();
  await checkPage(page, "sign-in to an unknown project");
});

test("creates, changes and deletes projects, quotas and users", async () => {
  const { server } = fixture;
  const page = await openAsAdmin("access?tab=projects");
  await page.getByRole("button", { name: "New project" }).click();
  await page.getByLabel("Name").fill("storage");
  await checkPage(page, "new project");
  await confirm(page);
  await page.getByRole("button", { name: "Quota of storage" }).click();
  await page.getByLabel("Machines, one limit per line").fill("machines: 2");
  await page.getByRole("alert").getByText("Not a quota").waitFor();
  await page.getByLabel("Machines, one limit per line").fill("machines = 2");
  await confirm(page);
  await row(page, "storage").getByText("machines: 0 of 2").waitFor();
  await checkPage(page, "projects");
  await screenshot(page, "access-projects");

  await page.getByRole("tab", { name: "Users" }).click();
  await page.getByRole("button", { name: "New user" }).click();
  await page.getByLabel("Name").fill("alice");
  await page.getByLabel(/^Initial password/).fill("short");
  await page.getByRole("alert").getByText("at least 8").waitFor();
  await page.getByLabel(/^Initial password/).fill(PASSWORD);
  await page.getByRole("button", { name: "Add role" }).click();
  await page.getByLabel("Role 1", { exact: true }).selectOption("manager");
  await page.getByLabel("Scope of role 1").selectOption("storage");
  await checkPage(page, "new user");
  await screenshot(page, "access-new-user");
  await confirm(page);
  await row(page, "alice").getByText("manager@storage").waitFor();
  const alice = await server.request("GET", "/v1/ferrite/users/alice");
  assert.deepEqual([alice.roles, alice.has_password], [["manager@storage"], true]);

  await page.getByRole("button", { name: "Edit alice" }).click();
  await page.getByLabel("Role 1", { exact: true }).selectOption("reader");
  await page.getByLabel("enabled").uncheck();
  await confirm(page);
  await row(page, "alice").getByText("disabled").waitFor();
  await row(page, "alice").getByText("reader@storage").waitFor();
  await checkPage(page, "users");
  await screenshot(page, "access-users");

  await page.getByRole("button", { name: "Delete admin" }).click();
  await confirm(page);
  await page.getByRole("alert").getByText("last enabled user").waitFor();
  await page.getByRole("dialog").getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("button", { name: "Delete alice" }).click();
  await confirm(page);
  await row(page, "alice").waitFor({ state: "detached" });
  await page.getByRole("tab", { name: "Projects" }).click();
  await page.getByRole("button", { name: "Delete storage" }).click();
  await confirm(page);
  await row(page, "storage").waitFor({ state: "detached" });
});

test("shows a new token once and revokes it", async () => {
  const { server } = fixture;
  const page = await openAs("bob", "access?tab=tokens");
  await page.getByRole("button", { name: "New token" }).click();
  await page.getByLabel("Description").fill("browser test");
  await page.getByLabel("Limit to a role").selectOption("reader");
  await checkPage(page, "new token");
  await confirm(page);
  const secret = await page.locator("[data-secret]").inputValue();
  assert.match(secret, /^frt_[0-9A-Za-z]{50}$/);
  await checkPage(page, "secret of a token");
  const whoami = () =>
    fetch(`${server.url}/v1/ferrite/whoami`, { headers: { "X-Auth-Token": secret } });
  assert.deepEqual((await (await whoami()).json()).roles, ["reader"]);
  await page.getByRole("button", { name: "Done" }).click();
  await row(page, "browser test").waitFor();
  assert.ok(!(await page.content()).includes(secret), "the secret is not shown again");
  await checkPage(page, "tokens");
  await screenshot(page, "access-tokens");
  await page.getByRole("button", { name: /^Revoke frt_/ }).click();
  await confirm(page);
  await page.getByText("No API tokens yet").waitFor();
  assert.equal((await whoami()).status, 401);
});

test("changes the own password", async () => {
  const page = await openAs("dora", "access");
  await page.getByLabel("Current password").fill("wrong password");
  await page.getByLabel("New password", { exact: true }).fill(NEW_PASSWORD);
  await page.getByLabel("Repeat the new password").fill(NEW_PASSWORD);
  await page.getByRole("button", { name: "Change password" }).click();
  await page.getByRole("alert").getByText("Incorrect username or password").waitFor();
  await page.getByLabel("Current password").fill(PASSWORD);
  await page.getByRole("button", { name: "Change password" }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  await signIn(page, "dora", NEW_PASSWORD);
  await page.locator("[data-account]").getByText("dora").waitFor();
});

test("hides pages and disables actions that roles do not allow", async () => {
  const page = await openAs("bob", "fleet");
  const links = page.getByRole("navigation", { name: "Pages" }).getByRole("link");
  await links.filter({ hasText: "Deployments" }).waitFor();
  const names = (await links.allInnerTexts()).join();
  for (const hidden of [
    "Topology",
    "Network",
    "Cluster",
    "Unknown machines",
    "Audit log",
    "Images",
  ])
    assert.ok(!names.includes(hidden), `${hidden} is hidden: ${names}`);
  await page.goto(`${fixture.server.url}/ui/topology`);
  await page.getByRole("alert").getByText("ferrite:topology:get").waitFor();
  await checkPage(page, "denied page");
  await screenshot(page, "page-denied");
  await page.goto(`${fixture.server.url}/ui/access?tab=projects`);
  const create = page.getByRole("button", { name: "New project" });
  await create.waitFor();
  assert.ok(await create.isDisabled());
  assert.match(await create.getAttribute("title"), /ferrite:project:create/);
  assert.equal(await page.getByRole("tab", { name: "Users" }).count(), 0);
  await checkPage(page, "projects of a member");
  // A reader of the system sees users and cannot change them.
  const reader = await openAs("carol", "access?tab=users");
  const edit = reader.getByRole("button", { name: "Edit bob" });
  await edit.waitFor();
  assert.ok(await edit.isDisabled());
  await checkPage(reader, "users for a reader");
});

test("creates, extends and deletes a deployment", async () => {
  const { server } = fixture;
  const page = await openAsAdmin("deployments");
  await page.getByText("No deployments yet").waitFor();
  await page.getByRole("button", { name: "New deployment" }).click();
  await page.getByLabel(/^Name/).fill("web-1");
  await page.getByLabel("Project").selectOption("shop");
  await page.getByLabel("Resource class").fill("no-such-class");
  await page.getByLabel("Image URL").fill(server.image.url);
  await page.getByLabel("SSH keys, one per line").fill("hello");
  await page.getByRole("alert").getByText("Not a public key").waitFor();
  await page.getByLabel("SSH keys, one per line").fill("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 me");
  await page.getByRole("textbox", { name: "Time" }).fill("2");
  await checkPage(page, "new deployment");
  await screenshot(page, "deployment-new");
  await confirm(page);
  // No machine has the class.
  await row(page, "web-1").locator('[data-deployment="failed"]').waitFor();
  await row(page, "web-1")
    .getByText(/^in (2 d|1 d 23 h)/)
    .waitFor();
  await checkPage(page, "deployments");
  await screenshot(page, "deployments");

  await page.getByRole("button", { name: "Extend web-1" }).click();
  await page.getByRole("textbox", { name: "Time" }).fill("1");
  await page.getByLabel("Unit").selectOption({ label: "weeks" });
  await checkPage(page, "lease");
  await confirm(page);
  await row(page, "web-1")
    .getByText(/^in (9 d|8 d 23 h)/)
    .waitFor();

  const member = await openAs("bob", "deployments");
  await row(member, "web-1").waitFor();
  await member.getByRole("button", { name: "Delete web-1" }).click();
  await confirm(member);
  await member.getByText("No deployments yet").waitFor();
});

test("searches and exports the audit log", async () => {
  const { server } = fixture;
  const refused = await fetch(`${server.url}/v1/ferrite/users`, {
    headers: { Authorization: `Basic ${btoa(`bob:${PASSWORD}`)}` },
  });
  assert.equal(refused.status, 403);
  const page = await openAsAdmin("audit-log");
  const entries = page.locator(".audit-line");
  await entries.filter({ hasText: "POST /v1/ferrite/users" }).first().waitFor();
  await checkPage(page, "audit log");
  await screenshot(page, "audit-log");
  await page.getByLabel("Outcome").selectOption({ label: "Refusals" });
  await page.getByRole("searchbox", { name: "User" }).fill("bob");
  const entry = entries.filter({ hasText: "GET /v1/ferrite/users" }).first();
  await entry.getByText("bob (shop)").waitFor();
  const accepted = page.locator('.audit-line[data-outcome="accepted"]');
  await accepted.first().waitFor({ state: "detached" });
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "Export" }).click();
  const lines = (await readFile(await (await download).path(), "utf8")).trim().split("\n");
  const outcomes = new Set(lines.map((line) => JSON.parse(line).outcome));
  assert.deepEqual([...outcomes], ["refused"]);
  const requestId = await entry.getByRole("link", { name: /^req-/ }).innerText();
  await entry.getByRole("link", { name: /^req-/ }).click();
  await page.waitForURL(`**/ui/journal?trace=${requestId}&kind=all`);

  // A manager of a project sees the entries of the project.
  const manager = await openAs("carol", "audit-log", { project: "shop" });
  await manager.locator(".audit-line").filter({ hasText: "bob (shop)" }).first().waitFor();
  assert.equal(
    await manager
      .locator(".audit-line")
      .filter({ hasText: /\badmin\b/ })
      .count(),
    0,
  );
});

for (const look of [{ theme: "light" }, { theme: "dark", width: 390, height: 844 }]) {
  test(`is accessible with ${JSON.stringify(look)}`, async () => {
    for (const path of ["access?tab=users", "access?tab=projects", "access?tab=tokens"]) {
      const page = await openAsAdmin(path, look);
      await page.getByRole("tabpanel").waitFor();
      await checkPage(page, `${path} ${JSON.stringify(look)}`);
      await page.context().close();
    }
  });
}
