// SPDX-License-Identifier: Apache-2.0
// Lints the web UI and its tests. Run from the root of the repository; see `npm run check`.

import js from "@eslint/js";
import globals from "globals";

const rules = {
  ...js.configs.recommended.rules,
  eqeqeq: ["error", "always"],
  "no-var": "error",
  "prefer-const": ["error", { destructuring: "all" }],
  "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
  "no-shadow": ["error", { builtinGlobals: false, allow: ["_"] }],
  "no-implicit-globals": "error",
  "no-promise-executor-return": "error",
  "no-self-compare": "error",
  "no-template-curly-in-string": "error",
  "no-useless-concat": "error",
  "no-console": ["error", { allow: ["error"] }],
  "object-shorthand": "error",
  "prefer-arrow-callback": "error",
  "no-else-return": "error",
};

export default [
  {
    files: ["crates/web-ui/page/**/*.js"],
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.browser },
    rules,
  },
  {
    files: ["page-tests/**/*.js"],
    languageOptions: {
      ecmaVersion: 2024,
      sourceType: "module",
      globals: { ...globals.node, ...globals.browser },
    },
    rules: { ...rules, "no-console": "off" },
  },
  { ignores: ["**/vendor/**", "**/node_modules/**"] },
];
