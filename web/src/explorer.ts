// The explorer: one image, what each run sees in it, and its tree under any K and threshold.

import { onThemeChange } from "./colour";
import type { DatasetData, RunData } from "./data";
import { loadDataset, loadRun } from "./data";
import { h, select } from "./dom";
import { imageName } from "./images";
import { runLabel } from "./legend";
import { answerAsRun, networkOf, pictureAsDataset } from "./own";
import { OwnPicker } from "./ownpicker";
import type { Sampled } from "./panel";
import { panel } from "./panel";
import { Picker } from "./picker";
import type { Report, Run } from "./schema";
import type { Outcome, Scope, State, Store, View } from "./state";

const MOST_LEVELS = 32; // the slider's last step, one further, is "off"

interface Shown {
  dataset: DatasetData;
  runs: { data: RunData; place: number }[];
}

/** An own picture: what each run's network answers, or why it does not. */
type OwnAnswers = { name: string; runs: { answer: Sampled | null; place: number }[] };

function levelsControl(report: Report, store: Store): HTMLElement {
  const slider = h("input", {
    type: "range",
    min: 2,
    max: MOST_LEVELS + 1,
    step: 1,
    id: "levels",
    oninput: () => {
      const value = Number(slider.value);
      store.set({ levels: value > MOST_LEVELS ? "off" : value });
    },
  });
  const output = h("output", { for: "levels" });
  const reset = h(
    "button",
    { type: "button", class: "quiet", onclick: () => store.set({ levels: "run" }) },
    "as measured",
  );
  store.on(["levels", "runA"], ({ levels, runA }) => {
    const layers = report.runs[runA].layers;
    const measured = layers[layers.length - 1].levels;
    const shown = levels === "run" ? measured : levels;
    slider.value = String(shown === "off" ? MOST_LEVELS + 1 : Math.min(MOST_LEVELS, shown));
    output.textContent = shown === "off" ? "off" : `K = ${shown}`;
    slider.setAttribute("aria-valuetext", output.textContent);
    reset.setAttribute("aria-pressed", String(levels === "run"));
  });
  return h(
    "div",
    { class: "field" },
    h("label", { for: "levels" }, "Levels of the quantizer"),
    h("div", { class: "slider" }, slider, output, reset),
  );
}

function thresholdControl(report: Report, store: Store): HTMLElement {
  const slider = h("input", {
    type: "range",
    min: 0,
    max: 1,
    step: 0.01,
    id: "threshold",
    oninput: () => store.set({ threshold: Number(slider.value) }),
  });
  const output = h("output", { for: "threshold" });
  const reset = h(
    "button",
    {
      type: "button",
      class: "quiet",
      title: "1 / number of parent capsules, as in the paper",
      onclick: () => store.set({ threshold: "adaptive" }),
    },
    "adaptive",
  );
  store.on(["threshold", "runA"], ({ threshold, runA }) => {
    const layers = report.runs[runA].layers;
    const shown = threshold === "adaptive" ? 1 / layers[layers.length - 1].parents : threshold;
    slider.value = String(shown);
    output.textContent = `> ${shown.toFixed(2)}`;
    slider.setAttribute("aria-valuetext", `above ${shown.toFixed(2)}`);
    reset.setAttribute("aria-pressed", String(threshold === "adaptive"));
  });
  return h(
    "div",
    { class: "field" },
    h("label", { for: "threshold" }, "Threshold of a connection"),
    h("div", { class: "slider" }, slider, output, reset),
  );
}

function opacityControl(store: Store): HTMLElement {
  const slider = h("input", {
    type: "range",
    min: 0,
    max: 1,
    step: 0.05,
    id: "opacity",
    value: store.get().opacity,
    oninput: () => store.set({ opacity: Number(slider.value) }),
  });
  return h(
    "div",
    { class: "field narrow" },
    h("label", { for: "opacity" }, "Overlay"),
    h("div", { class: "slider" }, slider),
  );
}

/** Selects whose choices depend on the runs. */
function runControls(
  state: State,
  report: Report,
  store: Store,
): { tree: HTMLElement[]; filters: HTMLElement[] } {
  const { classes } = datasetOf(report, state);
  const byName: [string, string][] = classes.map((name, c) => [String(c), name]);
  const outcomes: [string, string][] = [
    ["any", "any"],
    ["right", "right"],
    ["wrong", "wrong"],
  ];
  if (state.runB !== null) outcomes.push(["differ", "runs differ"]);
  const number = (value: string) => (value === "" ? null : Number(value));
  return {
    tree: [
      select(
        "View",
        [
          ["contributions", "contributions"],
          ["couplings", "the paper's: couplings"],
        ],
        state.view,
        (value) => store.set({ view: value as View }),
      ),
      select(
        "Show",
        [
          ["image", "this image"],
          ["class", "mean of its class"],
          ["all", "mean of all"],
        ],
        state.scope,
        (value) => store.set({ scope: value as Scope, own: null }),
      ),
      select(
        "Follow from",
        [["predicted", "the predicted class"], ...byName],
        String(state.target),
        (value) => store.set({ target: value === "predicted" ? value : Number(value) }),
      ),
    ],
    filters: [
      select("True class", [["", "all"], ...byName], String(state.onlyClass ?? ""), (value) =>
        store.set({ onlyClass: number(value) }),
      ),
      select("Prediction", outcomes, state.outcome, (value) =>
        store.set({ outcome: value as Outcome }),
      ),
    ],
  };
}

const datasetOf = ({ datasets, runs }: Report, { runA }: Readonly<State>) =>
  datasets[runs[runA].dataset];

/** In place of the panel of a run whose network is not in the report. */
const absent = (run: Run, place: number): HTMLElement =>
  h(
    "article",
    { class: "panel", "data-run": run.name },
    h("h3", {}, runLabel(run, place)),
    h("p", { class: "empty" }, `No answer: ${run.no_network}`),
  );

export function explorerSection(report: Report, store: Store): HTMLElement {
  const picker = new Picker(store);
  const treeSelects = h("div", { class: "selects" });
  const filterSelects = h("div", { class: "selects" });
  const ofCouplings = h(
    "div",
    { class: "of-couplings" },
    levelsControl(report, store),
    thresholdControl(report, store),
  );
  store.on(["view"], ({ view }) => (ofCouplings.hidden = view !== "couplings"));
  const panels = h("div", { class: "columns" });
  const chosen = h("p", { class: "chosen", "aria-live": "polite" });
  let shown: Shown | null = null;
  let answers: OwnAnswers | null = null; // of the own picture that is chosen
  let turn = 0;
  const ownTurn = { last: 0 };
  const choose = (sample: number) => store.set({ sample, own: null });
  const own = new OwnPicker(
    store,
    () => datasetOf(report, store.get()).images.shape[1] !== 3,
    () => void answerOwn(),
  );

  const drawPanels = () => {
    if (!shown) return;
    const state = store.get();
    if (answers) {
      drawOwn(shown, answers);
      return;
    }
    const { dataset, runs } = shown;
    const { labels, classes } = dataset.info;
    const name = imageName(dataset.info, state.sample).replace(/^image/, "Image");
    chosen.textContent = `${name} of ${dataset.info.name}'s ${dataset.info.split} set: ${classes[labels[state.sample]]}`;
    panels.replaceChildren(
      ...runs.map(({ data: run, place }) =>
        panel({ run, dataset }, { run, dataset }, place, state, choose),
      ),
    );
  };
  const drawOwn = ({ dataset, runs }: Shown, { name, runs: answered }: OwnAnswers) => {
    chosen.textContent = `${name}, a picture of yours`;
    panels.replaceChildren(
      ...answered.map(({ answer, place }, n) =>
        answer
          ? panel(
              answer,
              { run: runs[n].data, dataset },
              place,
              { ...store.get(), sample: 0 },
              choose,
            )
          : absent(report.runs[place], place),
      ),
    );
  };
  /** Asks the networks for the own picture that is chosen. */
  const answerOwn = async () => {
    const mine = ++ownTurn.last;
    const picture = own.chosen;
    if (!picture || !shown) {
      answers = null;
      drawPanels();
      return;
    }
    const { dataset, runs } = shown;
    chosen.textContent = `${picture.name}: the networks look at it …`;
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    const pixels = OwnPicker.shown(picture);
    const found: OwnAnswers = { name: picture.name, runs: [] };
    for (const { place } of runs) {
      const info = report.runs[place];
      const network = await networkOf(report, info);
      if (mine !== ownTurn.last) return;
      const answer = network && {
        run: answerAsRun(info, network, pixels),
        dataset: pictureAsDataset(dataset, network, pixels, picture.name),
      };
      found.runs.push({ answer, place });
    }
    answers = found;
    drawPanels();
  };
  const fillPicker = () =>
    shown &&
    picker.fill(
      shown.dataset,
      shown.runs.map(({ data }) => data),
    );

  store.on(["runA", "runB"], async (state) => {
    const mine = ++turn;
    const places = [state.runA, state.runB].filter((place) => place !== null);
    const dataset = await loadDataset(datasetOf(report, state));
    const runs = await Promise.all(
      places.map(async (place) => ({ place, data: await loadRun(report.runs[place]) })),
    );
    if (mine !== turn) return;
    shown = { dataset, runs };
    answers = null; // those of the runs before
    fillPicker();
    void answerOwn();
  });
  store.on(["own"], () => void answerOwn());
  store.on(["runA", "runB", "view", "scope", "target", "outcome", "onlyClass"], (state) => {
    const { tree, filters } = runControls(state, report, store);
    keepFocus(treeSelects, tree);
    keepFocus(filterSelects, filters);
  });
  store.on(["onlyClass", "outcome"], fillPicker);
  store.on(["sample", "own"], () => picker.mark());
  store.on(["sample", "view", "scope", "target", "levels", "threshold", "opacity"], drawPanels);
  onThemeChange(drawPanels);

  return h(
    "section",
    { id: "explorer", tabindex: -1 },
    h("h2", {}, "Explorer"),
    h(
      "p",
      { class: "lead" },
      "Pick an image (arrow keys walk through them) and see what each capsule contributes to the answer. The paper's view has couplings instead: fewer levels or a higher threshold leave fewer connections.",
    ),
    h(
      "div",
      { class: "explore" },
      h(
        "aside",
        { "aria-label": "Choice of an image" },
        report.module && own.element,
        filterSelects,
        picker.element,
      ),
      h(
        "div",
        { class: "stage" },
        h("div", { class: "controls" }, treeSelects, opacityControl(store), ofCouplings),
        chosen,
        panels,
      ),
    ),
  );
}

/** Replaces a box's fields; the one that has the focus keeps it. */
function keepFocus(box: HTMLElement, fields: HTMLElement[]): void {
  const at = [...box.children].findIndex((field) => field.contains(document.activeElement));
  box.replaceChildren(...fields);
  if (at >= 0) fields[at]?.querySelector("select")?.focus();
}
