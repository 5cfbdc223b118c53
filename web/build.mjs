// Bundles the page into dist/report.html: one file with a marker for a report's data.
//   node build.mjs           writes it
//   node build.mjs --check   fails if the file in the tree is not what the sources give
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const file = (name) => fileURLToPath(new URL(name, import.meta.url));

async function bundle(entry) {
  const result = await build({
    absWorkingDir: file("."),
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "iife",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
  });
  return { text: result.outputFiles[0].text.trim(), inputs: Object.keys(result.metafile.inputs) };
}

// The licences of the bundled packages, each text once.
async function licences(inputs) {
  const packages = new Set();
  for (const input of inputs) {
    const match = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (match) packages.add(match[1]);
  }
  const texts = new Map();
  for (const folder of [...packages].sort()) {
    const { name, version } = JSON.parse(
      await readFile(file(join(folder, "package.json")), "utf8"),
    );
    const text = (await readFile(file(join(folder, "LICENSE")), "utf8")).trim();
    texts.set(text, [...(texts.get(text) ?? []), `${name} ${version}`]);
  }
  return [...texts].map(([text, names]) => `${names.join(", ")}:\n${text}`).join("\n\n");
}

const [script, style, page] = await Promise.all([
  bundle("src/main.ts"),
  bundle("src/style.css"),
  readFile(file("src/page.html"), "utf8"),
]);
if (/<\/script/i.test(script.text)) throw new Error("the bundle contains </script");
const notices = await licences(script.inputs);
if (notices.includes("-->")) throw new Error("a licence ends the comment it stands in");

// The page's policy runs this script and no other.
const hash = `sha256-${createHash("sha256").update(script.text).digest("base64")}`;

// Functions, because a replacement string would give $ a meaning.
const html = page
  .replace("licences", () => notices)
  .replace("hash of script", () => hash)
  .replace("/*style*/", () => style.text)
  .replace("/*script*/", () => script.text);

const target = file("dist/report.html");
if (process.argv.includes("--check")) {
  if ((await readFile(target, "utf8")) !== html) {
    console.error(`${dirname(target)}/report.html is not what the sources give: npm run build`);
    process.exit(1);
  }
} else {
  await writeFile(target, html);
  console.log(`dist/report.html: ${(html.length / 1024).toFixed(0)} KiB`);
}
