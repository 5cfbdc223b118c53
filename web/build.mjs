// Bundles the pages into dist/report.html and dist/draw.html: files with a marker for the data.
//   node build.mjs           writes them
//   node build.mjs --check   fails if a file in the tree is not what the sources give
import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
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

const template = await readFile(file("src/page.html"), "utf8");

async function page({ command, main, style: sheet, start, skip }) {
  const [script, style] = await Promise.all([bundle(`src/${main}.ts`), bundle(`src/${sheet}.css`)]);
  if (/<\/script/i.test(script.text)) throw new Error("the bundle contains </script");
  const notices = await licences(script.inputs);
  if (notices.includes("-->")) throw new Error("a licence ends the comment it stands in");
  // The page's policy runs this script and no other; it may compile WebAssembly, the runtime.
  const hash = `'sha256-${createHash("sha256").update(script.text).digest("base64")}'`;
  // Functions, because a replacement string would give $ a meaning.
  return template
    .replaceAll("{command}", command)
    .replace("{start}", start)
    .replace("{skip}", skip)
    .replace("{scripts}", () => `${hash} 'wasm-unsafe-eval'`)
    .replace("licences", () => notices)
    .replace("/*style*/", () => style.text)
    .replace("/*script*/", () => script.text);
}

const pages = {
  "dist/report.html": {
    command: "report",
    main: "main",
    style: "style",
    start: "explorer",
    skip: "explorer",
  },
  "dist/draw.html": {
    command: "page",
    main: "draw",
    style: "draw",
    start: "pad",
    skip: "drawing",
  },
};
for (const [name, parts] of Object.entries(pages)) {
  const html = await page(parts);
  const target = file(name);
  if (!process.argv.includes("--check")) {
    await writeFile(target, html);
    console.log(`${name}: ${(html.length / 1024).toFixed(0)} KiB`);
  } else if ((await readFile(target, "utf8")) !== html) {
    console.error(`${target} is not what the sources give: npm run build`);
    process.exitCode = 1;
  }
}
