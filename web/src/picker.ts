// The images to choose from: a filtered grid with arrow keys.

import type { DatasetData, RunData } from "./data";
import { h, plural } from "./dom";
import { imageCanvas, imageName } from "./images";
import type { State, Store } from "./state";

function matching(state: State, dataset: DatasetData, runs: RunData[]): number[] {
  const { labels } = dataset.info;
  return labels.flatMap((label, sample) => {
    if (state.onlyClass !== null && label !== state.onlyClass) return [];
    const predictions = runs.map((run) => run.predicted[sample]);
    const right = predictions.every((predicted) => predicted === label);
    if (state.outcome === "right" && !right) return [];
    if (state.outcome === "wrong" && right) return [];
    if (state.outcome === "differ" && predictions.every((p) => p === predictions[0])) return [];
    return [sample];
  });
}

export class Picker {
  readonly element = h("div", { class: "picker" });
  private readonly count = h("p", { class: "note", role: "status" });
  private readonly list = h("div", {
    class: "thumb-grid",
    role: "listbox",
    "aria-label": "Images",
    onkeydown: (event: KeyboardEvent) => this.walk(event),
  });
  private samples: number[] = [];
  private options = new Map<number, HTMLElement>();

  constructor(private readonly store: Store) {
    this.element.append(this.count, this.list);
  }

  /** Shows the images that pass the filters; chooses the first if the chosen one is not among them. */
  fill(dataset: DatasetData, runs: RunData[]): void {
    const state = this.store.get();
    this.samples = matching(state, dataset, runs);
    this.options = new Map();
    const { classes, labels } = dataset.info;
    for (const sample of this.samples) {
      const wrong = runs.some((run) => run.predicted[sample] !== labels[sample]);
      const name = `${classes[labels[sample]]}, ${imageName(dataset.info, sample)}${wrong ? ", misclassified" : ""}`;
      const option = h(
        "button",
        {
          type: "button",
          role: "option",
          class: wrong ? "thumb wrong" : "thumb",
          title: name,
          "aria-label": name,
          onclick: () => this.store.set({ sample, own: null, scope: "image" }),
        },
        imageCanvas(dataset.images, sample, ""),
      );
      option.querySelector("canvas")!.setAttribute("aria-hidden", "true");
      this.options.set(sample, option);
    }
    this.list.replaceChildren(...this.options.values());
    this.count.textContent =
      this.samples.length === 0
        ? "No image passes these filters."
        : `${plural(this.samples.length, "image")} of ${dataset.info.indices.length} sampled from ${dataset.info.samples.toLocaleString("en-GB")}`;
    if (!this.options.has(state.sample) && this.samples.length > 0) {
      this.store.set({ sample: this.samples[0] });
    }
    this.mark();
  }

  mark(): void {
    const { sample, own } = this.store.get();
    for (const [place, option] of this.options) {
      option.setAttribute("aria-selected", String(place === sample && own === null));
      option.tabIndex = place === sample ? 0 : -1;
    }
    const chosen = this.options.get(sample);
    if (!chosen) return;
    // Scrolls the list only: scrollIntoView would move the page as well.
    const box = this.list.getBoundingClientRect();
    const at = chosen.getBoundingClientRect();
    if (at.top < box.top) this.list.scrollTop -= box.top - at.top + 4;
    else if (at.bottom > box.bottom) this.list.scrollTop += at.bottom - box.bottom + 4;
    if (at.left < box.left) this.list.scrollLeft -= box.left - at.left + 4;
    else if (at.right > box.right) this.list.scrollLeft += at.right - box.right + 4;
  }

  private walk(event: KeyboardEvent): void {
    const at = this.samples.indexOf(this.store.get().sample);
    const first = this.list.firstElementChild as HTMLElement | null;
    if (!first) return;
    const perRow = Math.max(1, Math.round(this.list.scrollWidth / (first.offsetWidth + 4)));
    const last = this.samples.length - 1;
    const moves: Record<string, number> = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      ArrowDown: at + perRow,
      ArrowUp: at - perRow,
      Home: 0,
      End: last,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const sample = this.samples[Math.min(last, Math.max(0, moves[event.key]))];
    this.store.set({ sample, own: null, scope: "image" });
    this.options.get(sample)?.focus({ preventScroll: true });
  }
}
