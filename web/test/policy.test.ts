// What the page's content security policy says, without a browser; browser.test.ts tries to break it.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

test("the policy lets the page's own script run, and no other", () => {
  const page = readFileSync(process.env.REMCAPS_TEMPLATE!, "utf8");
  const policy = /<meta http-equiv="Content-Security-Policy" content="([^"]*)">/.exec(page)![1];
  const scripts = [...page.matchAll(/<script>([^]*?)<\/script>/g)].map(([, text]) => text);
  assert.equal(scripts.length, 1);
  const hash = createHash("sha256").update(scripts[0]).digest("base64");
  assert.ok(policy.includes(`script-src 'sha256-${hash}';`), policy);
  assert.doesNotMatch(policy, /script-src[^;]*unsafe/);
});
