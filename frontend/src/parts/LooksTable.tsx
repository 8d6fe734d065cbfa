/* The newest looks of the trigger and what each saw, so that "nothing" is seen to have been looked for. */

import { SYMPTOM, worded } from "../state/words";
import type { Look } from "../types";
import { Ago } from "./bits";

export function LooksTable({ looks }: { looks: Look[] }) {
  if (looks.length === 0) return <p class="faint">Nobody has looked at this job yet.</p>;
  return (
    <div class="table-box">
      <table>
        <caption>Newest looks of the trigger</caption>
        <thead>
          <tr>
            <th scope="col">When</th>
            <th scope="col">Trigger</th>
            <th scope="col">What it saw</th>
            <th scope="col" class="wide-only">
              Thresholds in force
            </th>
          </tr>
        </thead>
        <tbody>
          {looks.map((look) => (
            <tr key={`${look.at} ${look.kind}`}>
              <td class="nowrap">
                <Ago at={look.at} />
              </td>
              <td>{worded(SYMPTOM, look.kind)}</td>
              <td>{look.saw || <span class="faint">nothing wrong</span>}</td>
              <td class="faint wide-only">
                {Object.entries(look.thresholds ?? {})
                  .map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`)
                  .join(", ")}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
