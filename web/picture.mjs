// Takes a picture of a report's explorer, or of a page in which one draws with a digit on it:
// node picture.mjs PAGE OUT.png (scripts/pictures).
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [file, out] = process.argv.slice(2);

async function explorer(page) {
  await page.locator("#explorer .panel").first().waitFor();
  // The bar at the top would stand in the picture's middle.
  await page.addStyleTag({
    content: ".bar { position: static } #explorer { padding: 0 1rem 1rem }",
  });
  // A class whose trees REM has made few.
  await page.getByLabel("True class").selectOption({ label: "Pullover" });
  await page.locator("#explorer").screenshot({ path: out });
}

const SEVEN = [
  [0.25, 0.25],
  [0.5, 0.24],
  [0.75, 0.25],
  [0.65, 0.45],
  [0.55, 0.62],
  [0.48, 0.82],
];

async function drawing(page) {
  await page.locator(".answers").waitFor();
  const box = await page.locator("#pad").boundingBox();
  const at = ([x, y]) => [box.x + x * box.width, box.y + y * box.height];
  await page.mouse.move(...at(SEVEN[0]));
  await page.mouse.down();
  for (const point of SEVEN.slice(1)) await page.mouse.move(...at(point), { steps: 6 });
  await page.mouse.up();
  await page.waitForTimeout(500); // the bars move
  await page.screenshot({ path: out, fullPage: true });
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  const page = await browser.newPage({
    viewport: { width: 1200, height: 900 },
    deviceScaleFactor: 1.5,
  });
  await page.goto(pathToFileURL(file).href);
  const draws = (await page.title()).endsWith(": remcaps");
  await (draws ? drawing : explorer)(page);
} finally {
  await browser.close();
}
