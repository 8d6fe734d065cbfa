/* What a new API token may, for whom and for how long. */

import { useState } from "preact/hooks";
import { readable } from "../state/words";
import type { ApiTokensAnswer, NewApiToken, Role } from "./calls";

const ROLES: readonly (readonly [Role, string])[] = [
  ["viewer", "look (viewer)"],
  ["responder", "act (responder)"],
  ["admin", "administer (admin)"],
];
const LIVES: readonly (readonly [number, string])[] = [
  [7, "1 week"],
  [30, "30 days"],
  [90, "90 days"],
  [180, "180 days"],
  [365, "1 year"],
];

interface FormProps {
  answer: ApiTokensAnswer;
  /** Whether it was made. */
  onCreate: (wanted: NewApiToken) => Promise<boolean>;
}

export function ApiTokenForm({ answer, onCreate }: FormProps) {
  const [label, setLabel] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [scopes, setScopes] = useState<string[]>([]);
  const [days, setDays] = useState(90);
  const [chosen, setTeam] = useState("");
  const [busy, setBusy] = useState(false);
  const team = chosen || (answer.teams.length === 1 ? (answer.teams[0] ?? "") : "");
  const offered = answer.scopes[role];
  const isReady = Boolean(label.trim() && team) && !busy;
  const send = async () => {
    setBusy(true);
    const kept = scopes.filter((one) => offered.includes(one));
    const isMade = await onCreate({ label: label.trim(), role, scopes: kept, days, team });
    setBusy(false);
    if (!isMade) return;
    setLabel("");
    setScopes([]);
  };
  return (
    <form
      class="token-form"
      onSubmit={(submit) => {
        submit.preventDefault();
        if (isReady) void send();
      }}
    >
      <label for="api-token-label">Label</label>
      <input
        id="api-token-label"
        value={label}
        maxLength={100}
        placeholder="loss watchdog"
        onInput={(input) => setLabel(input.currentTarget.value)}
      />
      {answer.teams.length > 1 && (
        <Choice
          id="api-token-team"
          word="Team"
          value={chosen}
          options={[["", "Choose a team"], ...answer.teams.map((name) => [name, name] as const)]}
          onChange={setTeam}
        />
      )}
      <Choice
        id="api-token-role"
        word="May"
        value={role}
        options={ROLES}
        onChange={(value) => setRole(value as Role)}
      />
      <Choice
        id="api-token-days"
        word="For"
        value={String(days)}
        options={LIVES.map(([one, word]) => [String(one), word] as const)}
        onChange={(value) => setDays(Number(value))}
      />
      <button type="submit" class="primary" disabled={!isReady}>
        Create token
      </button>
      {offered.length > 0 && <Scopes offered={offered} chosen={scopes} onChange={setScopes} />}
    </form>
  );
}

interface ChoiceProps {
  id: string;
  word: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange: (value: string) => void;
}

function Choice({ id, word, value, options, onChange }: ChoiceProps) {
  return (
    <span class="facet">
      <label for={id}>{word}</label>
      <select id={id} value={value} onChange={(change) => onChange(change.currentTarget.value)}>
        {options.map(([one, said]) => (
          <option key={one} value={one} selected={one === value}>
            {said}
          </option>
        ))}
      </select>
    </span>
  );
}

interface ScopesProps {
  offered: string[];
  chosen: string[];
  onChange: (chosen: string[]) => void;
}

function Scopes({ offered, chosen, onChange }: ScopesProps) {
  const n = chosen.filter((one) => offered.includes(one)).length;
  return (
    <details class="scopes">
      <summary>
        {n === 0 ? "All acts of this role; narrow it to some" : `Narrowed to ${n} of ${offered.length} acts`}
      </summary>
      <fieldset>
        <legend class="visually-hidden">Acts it may do; none marked: all</legend>
        {offered.map((one) => (
          <label key={one}>
            <input
              type="checkbox"
              checked={chosen.includes(one)}
              onChange={(change) =>
                onChange(change.currentTarget.checked ? [...chosen, one] : chosen.filter((other) => other !== one))
              }
            />
            {readable(one)}
          </label>
        ))}
      </fieldset>
    </details>
  );
}
