import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The page of one execution as a single script and a single style, for the files that `Save as file` makes.
export default defineConfig({
  plugins: [react()],
  publicDir: false,
  build: {
    outDir: "dist/saved",
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: false,
    rolldownOptions: {
      input: "src/saved.tsx",
      output: { format: "iife", entryFileNames: "saved.js", assetFileNames: "saved.[ext]", codeSplitting: false },
    },
  },
});
