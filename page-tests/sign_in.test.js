// SPDX-License-Identifier: Apache-2.0
// Sign-in, sessions, and the protection against cross-site requests.

import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPage, screenshot } from "./support/browser.js";
import { useFixture } from "./support/fixture.js";

const fixture = useFixture({ auth: "basic" });

test("rejects a wrong password, accepts the right one, and signs out", async () => {
  const { server, browser } = fixture;
  const page = await browser.open(`${server.url}/ui`);
  await page.getByLabel("User").fill("admin");
  await page.getByLabel("Password").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").getByText("Incorrect username or password").waitFor();
  await checkPage(page, "rejected sign-in");
  await screenshot(page, "sign-in");

  await page.getByLabel("Password").fill(server.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  const emptyFleet = page.getByRole("heading", { name: "No machines yet" });
  await emptyFleet.waitFor();
  await screenshot(page, "fleet-empty");
  const [cookie] = await page.context().cookies();
  assert.deepEqual(
    [cookie.name, cookie.httpOnly, cookie.sameSite],
    ["ferrite_session", true, "Strict"],
  );
  assert.ok(!(await page.content()).includes(server.password), "the password is not in the page");

  await page.reload();
  await emptyFleet.waitFor();
  await page.getByText("Live", { exact: true }).waitFor();

  await page.getByRole("button", { name: /Sign out/ }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  const response = await fetch(`${server.url}/v1/nodes`, {
    headers: { Cookie: `ferrite_session=${cookie.value}` },
  });
  assert.equal(response.status, 401, "the session ends with the sign-out");
});

test("rejects a write with a cookie but without the header", async () => {
  const { server } = fixture;
  const signedIn = await fetch(`${server.url}/ui/session`, {
    method: "POST",
    headers: { "X-Ferrite-Page": "1", "Content-Type": "application/json" },
    body: JSON.stringify({ username: "admin", password: server.password }),
  });
  const cookie = signedIn.headers.get("set-cookie").split(";")[0];
  const create = (headers) =>
    fetch(`${server.url}/v1/nodes`, {
      method: "POST",
      headers: { Cookie: cookie, "Content-Type": "application/json", ...headers },
      body: '{"driver": "fake-hardware"}',
    });
  assert.equal((await create({})).status, 403);
  assert.equal((await create({ "X-Ferrite-Page": "1" })).status, 201);
});
