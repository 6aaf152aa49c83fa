// SPDX-License-Identifier: Apache-2.0
// The pages of the application. A new page is a file with a component and a line here.

/**
 * `path` is the first segment of the address below /ui; `load` imports the component on first use;
 * pages without an icon are not in the navigation.
 * @type {{ path: string, label?: string, icon?: string, load: () => Promise<Function> }[]}
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
    load: () => import("./topology/page.js").then((page) => page.TopologyPage),
  },
  {
    path: "deploy",
    label: "Deploy",
    icon: "play",
    load: () => import("./deploy/page.js").then((page) => page.DeployPage),
  },
  {
    path: "images",
    label: "Images",
    icon: "disk",
    load: () => import("./images/page.js").then((page) => page.ImagesPage),
  },
  {
    path: "network",
    label: "Network",
    icon: "link",
    load: () => import("./network/page.js").then((page) => page.NetworkPage),
  },
  {
    path: "sightings",
    label: "Unknown machines",
    icon: "eye",
    load: () => import("./sightings/page.js").then((page) => page.SightingsPage),
  },
  {
    path: "automation",
    label: "Automation",
    icon: "wrench",
    load: () => import("./automation/page.js").then((page) => page.AutomationPage),
  },
  {
    path: "audit",
    label: "Audit",
    icon: "clock",
    load: () => import("./audit/page.js").then((page) => page.AuditPage),
  },
  { path: "machines", load: () => import("./machine/page.js").then((page) => page.MachinePage) },
];
