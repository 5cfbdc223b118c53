// The reader's choices, and the listeners to their changes.

import type { Levels } from "./quantize";
import type { Threshold } from "./tree";

export type Scope = "image" | "class" | "all";
/** What the explorer shows of an answer: contributions, or couplings times activations as the paper. */
export type View = "contributions" | "couplings";
export type Outcome = "any" | "right" | "wrong" | "differ";

export interface State {
  runA: number;
  runB: number | null;
  /** Dictionaries: the class that is shown. */
  dictionaryClass: number;
  /** Explorer. */
  sample: number;
  own: number | null; // an own picture is shown instead, by its place among them
  view: View;
  scope: Scope;
  target: number | "predicted";
  levels: Levels;
  threshold: Threshold;
  opacity: number;
  onlyClass: number | null;
  outcome: Outcome;
}

type Listener = (state: Readonly<State>, changed: ReadonlySet<keyof State>) => void;

/** Listeners hear of all changes of a frame at once. */
export class Store {
  private listeners: Listener[] = [];
  private changed = new Set<keyof State>();

  constructor(private state: State) {}

  get(): Readonly<State> {
    return this.state;
  }

  set(change: Partial<State>): void {
    for (const key of Object.keys(change) as (keyof State)[]) {
      if (change[key] === this.state[key]) continue;
      if (this.changed.size === 0) requestAnimationFrame(() => this.tell());
      this.changed.add(key);
    }
    this.state = { ...this.state, ...change };
  }

  /** Calls back now and whenever one of `keys` changes. */
  on(keys: (keyof State)[], listener: Listener): void {
    const wanted = new Set(keys);
    this.listeners.push((state, changed) => {
      if ([...changed].some((key) => wanted.has(key))) listener(state, changed);
    });
    listener(this.state, wanted);
  }

  private tell(): void {
    const changed = this.changed;
    this.changed = new Set();
    for (const listener of this.listeners) listener(this.state, changed);
  }
}
