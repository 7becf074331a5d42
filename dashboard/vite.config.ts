import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// For `npm run dev`: the server whose data the pages show (scripts/serve_journals.py tells both).
const address = process.env.WINDLASS_ADDRESS ?? "http://127.0.0.1:8642";
const token = process.env.WINDLASS_TOKEN ?? "";

export default defineConfig({
  plugins: [react()],
  build: {
    license: { fileName: "licenses.md" }, // those who pass the packages on pass their licenses on with them
    assetsInlineLimit: 0, // the page's policy allows no data: scripts or styles
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": { target: address, ws: true, headers: { authorization: `Bearer ${token}`, origin: address } } } },
  test: { isolate: false }, // the tests are of functions alone: they share one environment
});
