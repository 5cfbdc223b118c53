// The reader's own pictures in the explorer: opened, dropped or pasted; none of them leaves the page.

import { h } from "./dom";
import { pictureCanvas } from "./images";
import type { Picture } from "./network";
import { isBright, negative, onPictures, readPicture } from "./picture";
import type { Store } from "./state";

export interface OwnPicture {
  name: string;
  picture: Picture;
  negative: boolean; // how it is shown
}

export class OwnPicker {
  readonly element: HTMLElement;
  private readonly pictures: OwnPicture[] = [];
  private readonly list = h("div", { class: "thumbs own-pictures" });
  private readonly trouble = h("p", { class: "trouble", role: "alert" });
  private readonly negated = h("input", { type: "checkbox", onchange: () => this.negate() });
  private readonly negatedField = h("label", { class: "negative" }, this.negated, "Negative");

  /** `grey`: whether the networks are for grey images, which know bright objects on a dark ground. */
  constructor(
    private readonly store: Store,
    private readonly grey: () => boolean,
    private readonly onChange: () => void,
  ) {
    const chooser = h("input", {
      type: "file",
      accept: "image/*",
      multiple: true,
      class: "unseen",
      "aria-label": "Open pictures",
      onchange: () => {
        void this.add([...(chooser.files ?? [])]);
        chooser.value = "";
      },
    });
    onPictures((files) => void this.add(files));
    this.element = h(
      "div",
      { class: "own-box" },
      h("p", { class: "own-head" }, "Pictures of your own"),
      h(
        "div",
        { class: "tools" },
        h("label", { class: "button" }, "Open", chooser),
        h("span", { class: "note" }, "drop or paste them anywhere"),
      ),
      this.trouble,
      this.list,
      this.negatedField,
    );
    store.on(["own", "runA"], () => this.mark());
  }

  get chosen(): OwnPicture | null {
    const { own } = this.store.get();
    return own === null ? null : this.pictures[own];
  }

  /** The picture as it is shown. */
  static shown({ picture, negative: inverted }: OwnPicture): Picture {
    return inverted ? negative(picture) : picture;
  }

  private async add(files: File[]): Promise<void> {
    const unread: string[] = [];
    for (const file of files) {
      try {
        const picture = await readPicture(file);
        this.pictures.push({
          name: file.name,
          picture,
          negative: this.grey() && isBright(picture),
        });
        this.store.set({ own: this.pictures.length - 1, scope: "image" });
      } catch {
        unread.push(file.name);
      }
    }
    this.trouble.textContent =
      unread.length === 0 ? "" : `No picture that this browser can read: ${unread.join(", ")}`;
    this.mark();
  }

  private negate(): void {
    if (this.chosen) this.chosen.negative = this.negated.checked;
    this.mark();
    this.onChange();
  }

  private mark(): void {
    const { own } = this.store.get();
    const focused = this.list.contains(document.activeElement);
    this.list.replaceChildren(
      ...this.pictures.map((each, place) =>
        h(
          "button",
          {
            type: "button",
            class: "thumb",
            title: each.name,
            "aria-label": each.name,
            "aria-pressed": String(place === own),
            onclick: () => this.store.set({ own: place, scope: "image" }),
          },
          pictureCanvas(OwnPicker.shown(each)),
        ),
      ),
    );
    if (focused && own !== null) (this.list.children[own] as HTMLElement).focus();
    this.negatedField.hidden = own === null || !this.grey();
    this.negated.checked = this.chosen?.negative ?? false;
  }
}
