/*
 * All stacks as one tree of calls, from the outermost inwards. Stretches without a branch are one line, and the smaller
 * branch stands first: where the few part from the many is what one looks for.
 */

import { useState } from "preact/hooks";
import { count } from "../state/words";
import { stretchOf } from "./classes";
import type { TreeNode } from "./shapes";

const NAMES_SHOWN = 3;
/** Deeper branches open by a click: two thousand lines are no overview. */
const OPEN_DEPTH = 4;

export function CallTree({ tree }: { tree: TreeNode }) {
  return (
    <section class="panel call-tree" aria-labelledby="call-tree">
      <div class="panel-head">
        <h2 id="call-tree">Where the stacks part</h2>
        <span class="faint">all trainers’ calls as one tree, outermost first; thin branches first</span>
      </div>
      <ul>
        <Branch node={tree} whole={tree.count} depth={0} />
      </ul>
    </section>
  );
}

function Branch({ node, whole, depth }: { node: TreeNode; whole: number; depth: number }) {
  const { names, count: n, children } = stretchOf(node);
  const [isOpen, setOpen] = useState(depth < OPEN_DEPTH);
  const isThin = n * 2 < whole;
  return (
    <li>
      <div class={`branch ${isThin ? "thin" : ""}`}>
        <i aria-hidden="true" style={{ "--share": `${(100 * n) / Math.max(1, whole)}%` }} />
        <span class="branch-count" title={count(n, "rank")}>
          {n.toLocaleString("en-US")}
        </span>
        <Stretch names={names} />
        {children.length > 0 && (
          <button type="button" class="link faint" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "fold" : count(children.length, "branch", "branches")}
          </button>
        )}
      </div>
      {isOpen && children.length > 0 && (
        <ul>
          {children.map((child, place) => (
            <Branch key={`${place} ${child.name}`} node={child} whole={whole} depth={depth + 1} />
          ))}
        </ul>
      )}
    </li>
  );
}

/** The outermost call and the last ones; what lies between on demand. */
function Stretch({ names }: { names: readonly string[] }) {
  const [isWhole, setWhole] = useState(names.length <= NAMES_SHOWN + 1);
  const shown = isWhole ? names : [names[0], ...names.slice(-NAMES_SHOWN + 1)];
  return (
    <span class="stretch">
      {shown.map((name, n) => (
        <span key={n}>
          {n > 0 && <span aria-hidden="true"> › </span>}
          {!isWhole && n === 1 && (
            <button type="button" class="link faint" onClick={() => setWhole(true)}>
              {names.length - NAMES_SHOWN} calls ›
            </button>
          )}{" "}
          <code>{name}</code>
        </span>
      ))}
    </span>
  );
}
