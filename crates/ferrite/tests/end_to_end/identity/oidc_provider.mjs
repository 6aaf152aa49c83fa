// SPDX-License-Identifier: Apache-2.0
// Runs the npm package oidc-provider, with its own pages for sign-in and consent.
//
//     node oidc_provider.mjs FOLDER-WITH-NODE-MODULES
//
// Prints its address, which is the issuer. `POST /test-settings` changes settings while it runs: the redirect
// URIs of the web UI, the signature keys (the first one signs) and the lifetime of tokens in seconds.

import { createServer } from "node:http";
import { generateKeyPairSync } from "node:crypto";
import { pathToFileURL } from "node:url";

const entry = pathToFileURL(`${process.argv[2]}/node_modules/oidc-provider/lib/index.js`);
const { default: Provider } = await import(entry.href);

const settings = {
  redirect_uris: ["https://127.0.0.1:1/ui/oidc/callback"],
  keys: ["first"],
  token_lifetime: 600,
};
const keys = new Map();
// Which roles the users have.
const groups = {
  alice: ["lab-admins"],
  bob: ["storage-team", "unknown-team"],
  ci: ["storage-team"],
};

function key(name) {
  if (!keys.has(name)) {
    const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
    const jwk = privateKey.export({ format: "jwk" });
    keys.set(name, { ...jwk, kid: name, alg: "ES256", use: "sig" });
  }
  return keys.get(name);
}

function claims(user) {
  return { preferred_username: user, groups: groups[user] ?? [] };
}

function provider(issuer) {
  const lifetime = () => settings.token_lifetime;
  const signed = { id_token_signed_response_alg: "ES256", token_endpoint_auth_method: "none" };
  const instance = new Provider(issuer, {
    jwks: { keys: settings.keys.map(key) },
    cookies: { keys: ["only for tests"] },
    clients: [
      {
        client_id: "ferrite-ui",
        redirect_uris: settings.redirect_uris,
        grant_types: ["authorization_code"],
        response_types: ["code"],
        ...signed,
      },
      {
        client_id: "ferrite-cli",
        redirect_uris: [],
        response_types: [],
        grant_types: ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"],
        ...signed,
      },
      {
        client_id: "ci",
        client_secret: "ci-secret",
        id_token_signed_response_alg: "ES256",
        redirect_uris: [],
        response_types: [],
        grant_types: ["client_credentials"],
      },
    ],
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"] },
    // With the default, ID tokens have no claims of scopes.
    conformIdTokenClaims: false,
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, ...claims(id) }) }),
    issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
    extraTokenClaims: (_, token) => claims(token.accountId ?? token.clientId),
    ttl: { IdToken: lifetime, AccessToken: lifetime, ClientCredentials: lifetime },
    pkce: { required: () => true },
    features: {
      deviceFlow: { enabled: true },
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: "",
          audience: resource,
          accessTokenTTL: settings.token_lifetime,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "ES256" } },
        }),
      },
    },
  });
  return instance.callback();
}

async function change(request, response, issuer) {
  let body = "";
  for await (const part of request) body += part;
  Object.assign(settings, JSON.parse(body));
  handle = provider(issuer);
  response.end("{}");
}

let handle;
const server = createServer((request, response) => {
  if (request.url === "/test-settings") {
    change(request, response, issuer());
  } else {
    handle(request, response);
  }
});
const issuer = () => `http://127.0.0.1:${server.address().port}`;
server.listen(0, "127.0.0.1", () => {
  handle = provider(issuer());
  console.log(`listening on ${issuer()}`);
});
