// Takes a picture of a report's explorer: node picture.mjs REPORT OUT.png (scripts/pictures).
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [report, out] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
try {
  const page = await browser.newPage({
    viewport: { width: 1200, height: 900 },
    deviceScaleFactor: 1.5,
  });
  await page.goto(pathToFileURL(report).href);
  await page.locator("#explorer .panel").first().waitFor();
  // The bar at the top would stand in the picture's middle.
  await page.addStyleTag({
    content: ".bar { position: static } #explorer { padding: 0 1rem 1rem }",
  });
  // A class whose trees REM has made few.
  await page.getByLabel("True class").selectOption({ label: "Pullover" });
  await page.locator("#explorer").screenshot({ path: out });
} finally {
  await browser.close();
}
