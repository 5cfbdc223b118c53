import { couplingsSection } from "./couplings";
import { curvesSection } from "./curves";
import { readData } from "./data";
import { dictionariesSection } from "./dictionaries";
import { append, h, plural, select } from "./dom";
import { explorerSection } from "./explorer";
import { runLabel } from "./legend";
import type { Report } from "./schema";
import { SCHEMA_VERSION } from "./schema";
import { Store } from "./state";
import { summarySection } from "./summary";

const SECTIONS = ["Summary", "Curves", "Dictionaries", "Couplings", "Explorer"];

function header(report: Report): HTMLElement {
  const sets = report.datasets.map(
    (dataset) =>
      `${dataset.name}, ${dataset.samples.toLocaleString("en-GB")} ${dataset.split} images`,
  );
  return h(
    "header",
    { class: "top" },
    h("p", { class: "kicker" }, "remcaps report"),
    h("h1", {}, report.title),
    h("p", { class: "lead" }, `${plural(report.runs.length, "run")} · ${sets.join(" · ")}`),
  );
}

/** Section links and the two runs that dictionaries and explorer show. */
function bar(report: Report, store: Store): HTMLElement {
  const links = h("nav", { "aria-label": "Sections" });
  for (const name of SECTIONS) links.append(h("a", { href: `#${name.toLowerCase()}` }, name));
  const runs = h("div", { class: "compare" });
  const bar = h("div", { class: "bar" }, links, runs);
  if (report.runs.length === 1) {
    runs.append(runLabel(report.runs[0], 0));
    return bar;
  }
  store.on(["runA", "runB"], ({ runA, runB }) => {
    const names = report.runs.map((run, place): [string, string] => [String(place), run.name]);
    // Two runs stand side by side image by image: they must be of the same data set.
    const partners = names.filter(
      ([place]) =>
        Number(place) !== runA && report.runs[Number(place)].dataset === report.runs[runA].dataset,
    );
    runs.replaceChildren(
      select("Run", names, String(runA), (value) => {
        const place = Number(value);
        const dataset = report.runs[place].dataset;
        const keepB = runB !== null && runB !== place && report.runs[runB].dataset === dataset;
        store.set({ runA: place, runB: keepB ? runB : null });
        if (dataset !== report.runs[runA].dataset) {
          store.set({ sample: 0, target: "predicted", onlyClass: null });
        }
      }),
      select("beside", [["", "none"], ...partners], String(runB ?? ""), (value) =>
        store.set({ runB: value === "" ? null : Number(value) }),
      ),
    );
  });
  return bar;
}

function start(): void {
  const app = document.getElementById("app")!;
  const report = readData<Report>(SCHEMA_VERSION);
  document.title = `${report.title}: remcaps report`;
  const partner = report.runs.findIndex(
    (run, place) => place > 0 && run.dataset === report.runs[0].dataset,
  );
  const store = new Store({
    runA: 0,
    runB: partner > 0 ? partner : null,
    dictionaryClass: 0,
    sample: 0,
    own: null,
    view: "contributions",
    scope: "image",
    target: "predicted",
    levels: "run",
    threshold: "adaptive",
    opacity: 0.65,
    onlyClass: null,
    outcome: "any",
  });
  append(
    app,
    header(report),
    bar(report, store),
    h(
      "main",
      {},
      summarySection(report),
      curvesSection(report),
      dictionariesSection(report, store),
      couplingsSection(report),
      explorerSection(report, store),
    ),
    h(
      "footer",
      {},
      `Made by ${report.generator}. This file is complete: it asks nothing of the network.`,
    ),
  );
}

try {
  start();
} catch (error) {
  document
    .getElementById("app")!
    .replaceChildren(
      h(
        "p",
        { class: "failure", role: "alert" },
        `This report cannot be shown: ${(error as Error).message}`,
      ),
    );
  throw error;
}
