// Bundles the tests (Node does not read TypeScript) and runs them; arguments choose files by name.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const wanted = process.argv.slice(2);
const tests = readdirSync(here).filter(
  (name) =>
    name.endsWith(".test.ts") &&
    (wanted.length === 0 || wanted.some((word) => name.includes(word))),
);
// Inside this folder, so that what is not bundled is still found in node_modules.
const out = mkdtempSync(join(here, "..", "node_modules", ".remcaps-tests-"));
try {
  await build({
    entryPoints: tests.map((name) => join(here, name)),
    outdir: out,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node20",
    outExtension: { ".js": ".mjs" },
    external: ["playwright-core"],
    logLevel: "warning",
  });
  const files = readdirSync(out).map((name) => join(out, name));
  const { status } = spawnSync(process.execPath, ["--test", "--test-reporter=spec", ...files], {
    stdio: "inherit",
    env: {
      REMCAPS_TEMPLATE: join(here, "..", "dist", "report.html"),
      TMPDIR: tmpdir(),
      ...process.env,
    },
  });
  process.exitCode = status ?? 1;
} finally {
  rmSync(out, { recursive: true, force: true });
}
