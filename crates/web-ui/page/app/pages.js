// SPDX-License-Identifier: Apache-2.0
// The pages of the application. A new page is a file with a component and a line here.

/**
 * `path` is the first segment of the address below /ui; `load` imports the component on first use;
 * pages without an icon are not in the navigation. A page with `rules` is for callers who match one of
 * these policy rules.
 * @typedef {object} PageDefinition
 * @property {string} path
 * @property {string} [label]
 * @property {string} [icon]
 * @property {string[]} [rules]
 * @property {() => Promise<Function>} load
 *
 * @type {PageDefinition[]}
 */
export const PAGES = [
  {
    path: "fleet",
    label: "Fleet",
    icon: "fleet",
    load: () => import("./fleet/page.js").then((page) => page.FleetPage),
  },
  {
    path: "topology",
    label: "Topology",
    icon: "network",
    rules: ["ferrite:topology:get"],
    load: () => import("./topology/page.js").then((page) => page.TopologyPage),
  },
  {
    path: "deploy",
    label: "Deploy",
    icon: "play",
    rules: ["baremetal:node:set_provision_state"],
    load: () => import("./deploy/page.js").then((page) => page.DeployPage),
  },
  {
    path: "deployments",
    label: "Deployments",
    icon: "lease",
    rules: ["ferrite:deployment:list_all", "ferrite:deployment:list"],
    load: () => import("./deployments/page.js").then((page) => page.DeploymentsPage),
  },
  {
    path: "images",
    label: "Images",
    icon: "disk",
    rules: ["ferrite:image:get"],
    load: () => import("./images/page.js").then((page) => page.ImagesPage),
  },
  {
    path: "network",
    label: "Network",
    icon: "link",
    rules: ["ferrite:dhcp:get"],
    load: () => import("./network/page.js").then((page) => page.NetworkPage),
  },
  {
    path: "cluster",
    label: "Cluster",
    icon: "chip",
    rules: ["ferrite:cluster:get"],
    load: () => import("./cluster/page.js").then((page) => page.ClusterPage),
  },
  {
    path: "sightings",
    label: "Unknown machines",
    icon: "eye",
    rules: ["ferrite:sighting:get"],
    load: () => import("./sightings/page.js").then((page) => page.SightingsPage),
  },
  {
    path: "automation",
    label: "Automation",
    icon: "wrench",
    rules: ["ferrite:flavour:get"],
    load: () => import("./automation/page.js").then((page) => page.AutomationPage),
  },
  {
    path: "journal",
    label: "Journal",
    icon: "clock",
    rules: ["ferrite:journal:list_all", "ferrite:journal:list"],
    load: () => import("./journal/page.js").then((page) => page.JournalPage),
  },
  {
    path: "audit-log",
    label: "Audit log",
    icon: "list",
    rules: ["ferrite:audit:list_all", "ferrite:audit:list"],
    load: () => import("./audit_log/page.js").then((page) => page.AuditLogPage),
  },
  {
    path: "access",
    label: "Access",
    icon: "lock",
    load: () => import("./access/page.js").then((page) => page.AccessPage),
  },
  { path: "machines", load: () => import("./machine/page.js").then((page) => page.MachinePage) },
];
