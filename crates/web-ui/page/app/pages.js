// SPDX-License-Identifier: Apache-2.0
// The pages there are. A new page is a file with a component and a line here.

/**
 * `path` is the first segment of the address below /ui; `load` gets the component when it is first
 * wanted; pages without an icon are not in the navigation.
 */
export const PAGES = [
  { path: "fleet", label: "Fleet", icon: "fleet", load: () => import("./fleet/page.js").then((page) => page.FleetPage) },
  { path: "machines", load: () => import("./machine/page.js").then((page) => page.MachinePage) },
];
