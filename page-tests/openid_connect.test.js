// SPDX-License-Identifier: Apache-2.0
// Sign-in with an OpenID Connect provider on another site: the npm package oidc-provider.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { after, test } from "node:test";
import { launch } from "./support/browser.js";
import { startServer } from "./support/server.js";

const SCRIPT = new URL(
  "../crates/ferrite/tests/end_to_end/identity/oidc_provider.mjs",
  import.meta.url,
).pathname;
/** The folder with the package; `cargo xtask test` installs it. */
const PACKAGES = process.env.FERRITE_TEST_OIDC_PROVIDER;

/** Starts the provider and returns its address. */
async function startProvider() {
  const provider = spawn("node", [SCRIPT, PACKAGES], { stdio: ["ignore", "pipe", "inherit"] });
  after(() => provider.kill());
  return new Promise((resolve, reject) => {
    let output = "";
    // It is read to the end: the provider ends if it cannot print.
    provider.stdout.on("data", (part) => {
      output += part;
      const found = output.match(/listening on (\S+)\n/);
      if (found) resolve(found[1]);
    });
    provider.on("exit", () => reject(new Error(`the provider ended: ${output}`)));
  });
}

test("signs in with the provider and out", { skip: !PACKAGES }, async () => {
  const issuer = await startProvider();
  const config = `[auth.oidc]\nissuer = "${issuer}"\nclient_id = "ferrite-ui"\nroles_claim = "groups"
role_map = { lab-admins = "admin@system" }\n`;
  const server = await startServer({ auth: "local,oidc", config });
  after(() => server.stop());
  const browser = await launch();
  after(() => browser.close());
  // Another site than that of the provider, which has an address: so cookies are restricted.
  const url = server.url.replace("127.0.0.1", "localhost");
  const changed = await fetch(`${issuer}/test-settings`, {
    method: "POST",
    body: JSON.stringify({ redirect_uris: [`${url}/ui/oidc/callback`] }),
  });
  assert.equal(changed.status, 200);

  const page = await browser.open(`${url}/ui`);
  await page.getByRole("link", { name: "Sign in with OpenID Connect" }).click();
  await page.waitForURL(`${issuer}/interaction/**`);
  await page.locator("input[name=login]").fill("alice");
  await page.locator("input[name=password]").fill("any");
  await page.getByRole("button", { name: "Sign-in" }).click();
  await page.getByRole("button", { name: "Continue" }).click();
  await page.waitForURL(`${url}/ui`);
  await page.getByRole("heading", { name: "No machines yet" }).waitFor();
  const cookies = await page.context().cookies(url);
  const session = cookies.find(({ name }) => name === "ferrite_session");
  assert.deepEqual([session.httpOnly, session.sameSite], [true, "Strict"]);
  assert.ok(!cookies.some(({ name }) => name === "ferrite_oidc_login"));

  await page.reload();
  await page.getByRole("button", { name: /Sign out/ }).click();
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  const response = await fetch(`${server.url}/v1/nodes`, {
    headers: { Cookie: `ferrite_session=${session.value}` },
  });
  assert.equal(response.status, 401, "the session ends with the sign-out");
});
