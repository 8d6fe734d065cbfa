/// <reference types="vitest/config" />
import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

// Django renders the page and reads the manifest, so the entry is the script; index.html exists for `vite dev` only.
export default defineConfig(({ command }) => ({
  plugins: [preact()],
  base: command === "build" ? "/static/" : "/",
  server: {
    proxy: {
      "/api": process.env.DIOGENES_BACKEND ?? "http://localhost:8000",
      "/ws": { target: process.env.DIOGENES_BACKEND ?? "http://localhost:8000", ws: true },
    },
  },
  build: {
    manifest: true,
    target: "es2022",
    chunkSizeWarningLimit: 1600,
    rolldownOptions: {
      checks: { pluginTimings: false },
      input: ["src/main.tsx", "src/signin.css"],
      output: {
        // Sign-in and error pages are drawn by templates that read no manifest: their style sheet keeps its name.
        assetFileNames: (asset) =>
          asset.names.includes("signin.css") ? "signin.css" : "assets/[name]-[hash][extname]",
      },
    },
  },
  test: { environment: "happy-dom", include: ["tests/**/*.test.{ts,tsx}"] },
}));
