// A real browser for tests of pages.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { chromium } from "playwright-core";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Why tests with a browser are skipped, or false. */
export const skip = existsSync(CHROMIUM) ? false : `no browser at ${CHROMIUM}`;

export const launch = (): Promise<Browser> =>
  chromium.launch({ executablePath: CHROMIUM, headless: true, args: FLAGS });

/** Opens a page and fails the test on any request, console error or exception. */
export async function openFile(
  browser: Browser,
  file: string,
  options: BrowserContextOptions,
  use: (page: Page) => Promise<void>,
): Promise<void> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && request.url() !== pathToFileURL(file).href) {
      faults.push(`request: ${request.url()}`);
    }
  });
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning")
      faults.push(`console: ${message.text()}`);
  });
  page.on("pageerror", (error) => faults.push(`exception: ${error.message}`));
  await page.goto(pathToFileURL(file).href);
  await use(page);
  assert.deepEqual(faults, []);
  await context.close();
}

/** A PNG as base64: an upright bar of ink on white paper, 280 x 280 pixels. */
export const paper = (page: Page): Promise<string> =>
  page.evaluate(() => {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = 280;
    const context = canvas.getContext("2d")!;
    context.fillStyle = "white";
    context.fillRect(0, 0, 280, 280);
    context.fillStyle = "black";
    context.fillRect(120, 30, 40, 220);
    return canvas.toDataURL("image/png").split(",")[1];
  });

/** Drops a file, given as base64, on the page. */
export const drop = (page: Page, base64: string, name = "paper.png"): Promise<void> =>
  page.evaluate(
    ([text, file]) => {
      const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
      const transfer = new DataTransfer();
      transfer.items.add(new File([bytes], file, { type: "image/png" }));
      document.body.dispatchEvent(
        new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }),
      );
    },
    [base64, name],
  );

/** Puts markup into a page that would run code and ask a server, and tells what it achieved. */
export async function breakOut(
  browser: Browser,
  file: string,
): Promise<{ ran: boolean; seen: string[] }> {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    seen.push(request.url!);
    response.end("window.broken = 1");
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as { port: number };
  const context = await browser.newContext();
  try {
    const page = await context.newPage();
    await page.goto(pathToFileURL(file).href);
    const ran = await page.evaluate(async (from) => {
      const place = document.createElement("div");
      place.innerHTML =
        `<img src="${from}/image"><img src="data:," onerror="window.broken = 1">` +
        `<iframe src="${from}/frame"></iframe><object data="${from}/object"></object>` +
        `<video src="${from}/video"></video><link rel="stylesheet" href="${from}/style">` +
        `<form action="${from}/form" target="own"></form>`;
      document.body.append(place);
      for (const set of [{ src: `${from}/script` }, { textContent: "window.broken = 1" }])
        document.body.append(Object.assign(document.createElement("script"), set));
      document.body.style.backgroundImage = `url(${from}/background)`;
      const ask = (what: () => unknown) =>
        Promise.resolve()
          .then(what)
          .catch(() => null);
      await ask(() => fetch(`${from}/fetch`, { mode: "no-cors" }));
      await ask(() => navigator.sendBeacon(`${from}/beacon`, "x"));
      await ask(() => new EventSource(`${from}/events`).close());
      await ask(() => new Worker(`${from}/worker`));
      await ask(() => new WebSocket(`${from.replace("http", "ws")}/socket`));
      await ask(() => import(`${from}/module`));
      await ask(() => new Function("window.broken = 1")());
      await ask(() => place.querySelector("form")!.submit());
      await new Promise((done) => setTimeout(done, 500));
      return "broken" in window;
    }, `http://127.0.0.1:${port}`);
    return { ran, seen };
  } finally {
    await context.close();
    server.closeAllConnections();
    server.close();
  }
}
