/* The keyboard map, shown by "?" and on the settings page. */

import { signal } from "@preact/signals";
import { Dialog } from "./Dialog";

export const helpOpen = signal(false);

const MAP: [string, [string, string][]][] = [
  [
    "Everywhere",
    [
      ["?", "this help"],
      ["g", "go to Now"],
      ["i", "go to incidents"],
      ["/", "search incidents"],
      ["b", "read a bundle of dumps"],
      ["Ctrl+K", "find or do anything"],
      ["Esc", "close a dialog"],
    ],
  ],
  [
    "Now and lists",
    [
      ["j  k", "next, previous"],
      ["Enter", "open"],
      ["a", "acknowledge the selected or marked incidents"],
      ["x  X", "mark the selected one, mark all"],
      ["r  c", "resolve, comment on the marked ones"],
      ["s", "silence the selected one and its like"],
      ["Esc", "clear the marks"],
    ],
  ],
  [
    "Incident",
    [
      ["a", "acknowledge"],
      ["r", "resolve, or reopen"],
      ["c", "comment"],
      ["s", "silence it and its like"],
      ["m", "assign"],
      ["w", "say what it was"],
      ["j  k", "older, newer incident of the list"],
      ["1 … 9 0", "the first ten tabs"],
    ],
  ],
  [
    "Topology grid",
    [
      ["Arrows", "move from rank to rank"],
      ["Enter", "select the rank, in the lanes too"],
      ["Home End", "first, last rank"],
      ["+ − 0", "larger, smaller, all; also Ctrl and the wheel"],
    ],
  ],
];

export function KeyboardMap() {
  return (
    <div class="keymap">
      {MAP.map(([place, keys]) => (
        <section key={place}>
          <h3>{place}</h3>
          <dl>
            {keys.map(([key, meaning]) => (
              <div key={key}>
                <dt>
                  {key
                    .split(" ")
                    .filter(Boolean)
                    .map((one) => (
                      <kbd key={one}>{one}</kbd>
                    ))}
                </dt>
                <dd>{meaning}</dd>
              </div>
            ))}
          </dl>
        </section>
      ))}
    </div>
  );
}

export function Help() {
  if (!helpOpen.value) return null;
  return (
    <Dialog
      title="Keyboard"
      onClose={() => {
        helpOpen.value = false;
      }}
    >
      <KeyboardMap />
      <div class="dialog-actions">
        <button
          type="button"
          onClick={() => {
            helpOpen.value = false;
          }}
        >
          Close
        </button>
      </div>
    </Dialog>
  );
}
