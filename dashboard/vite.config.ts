import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [react()],
  build: {
    license: { fileName: "licenses.md" }, // those who pass the packages on pass their licenses on with them
    assetsInlineLimit: 0, // the page's policy allows no data: scripts or styles
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": { target: process.env["WINDLASS_ADDRESS"] ?? "http://127.0.0.1:8642", ws: true } } },
  test: { environment: "jsdom" },
});
