// What the content security policies of the pages say, without a browser; browser.test.ts tries to break it.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";

const report = process.env.REMCAPS_TEMPLATE!;

for (const file of [report, join(report, "..", "draw.html")]) {
  test(`${basename(file)}: the policy lets the page's own script run, and no other`, () => {
    const page = readFileSync(file, "utf8");
    const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]*)">/.exec(page)![1];
    const scripts = [...page.matchAll(/<script>([^]*?)<\/script>/g)].map(([, text]) => text);
    assert.equal(scripts.length, 1);
    const hash = createHash("sha256").update(scripts[0]).digest("base64");
    // 'wasm-unsafe-eval' allows WebAssembly to be compiled, and nothing else.
    const begin = `default-src 'none'; script-src 'sha256-${hash}' 'wasm-unsafe-eval';`;
    assert.ok(policy.startsWith(begin), policy);
    assert.doesNotMatch(policy, /unsafe-eval(?<!wasm-unsafe-eval)|script-src[^;]*unsafe-inline/);
  });
}
