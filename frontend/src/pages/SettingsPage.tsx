/* Settings: this device's colours, zone and shortcuts for everyone; agents' tokens and API tokens for admins. */

import { useEffect, useState } from "preact/hooks";
import { ApiTokens } from "../access/ApiTokens";
import { FreshToken } from "../access/FreshToken";
import { createToken, deleteToken, readTokens } from "../api";
import { Ago, Empty } from "../parts/bits";
import { Dialog } from "../parts/Dialog";
import { Failure } from "../parts/Failure";
import { KeyboardMap } from "../parts/Help";
import { type Column, Table } from "../parts/Table";
import { Refused, useSaying } from "../parts/useSaying";
import { pageTitle } from "../state/badge";
import { setZone, zone } from "../state/clock";
import { setShortcuts, shortcuts } from "../state/keys";
import { notify, settle } from "../state/notices";
import { session } from "../state/team";
import { setTheme, type Theme, theme } from "../state/theme";
import type { TokenRow } from "../types";

export function SettingsPage() {
  useEffect(() => {
    pageTitle.value = "Settings";
  }, []);
  return (
    <div class="page settings">
      <h1>Settings</h1>
      <Device />
      <section class="panel" aria-labelledby="tokens">
        <div class="panel-head">
          <h2 id="tokens">Agent tokens</h2>
        </div>
        {session.value?.role === "admin" ? <Tokens /> : <p class="faint">Only admins see and create agent tokens.</p>}
      </section>
      <section class="panel" aria-labelledby="api-tokens">
        <div class="panel-head">
          <h2 id="api-tokens">API tokens</h2>
        </div>
        {session.value?.role === "admin" ? <ApiTokens /> : <p class="faint">Only admins see and create API tokens.</p>}
      </section>
      <section class="panel" aria-labelledby="keyboard">
        <div class="panel-head">
          <h2 id="keyboard">Keyboard</h2>
        </div>
        <KeyboardMap />
      </section>
      <p class="faint">
        Diogenes {session.value?.version} · <a href="/api/v1/docs">REST API</a>
      </p>
    </div>
  );
}

const THEMES: [Theme, string][] = [
  ["system", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

function Device() {
  return (
    <section class="panel" aria-labelledby="device">
      <div class="panel-head">
        <h2 id="device">This device</h2>
      </div>
      <div class="choices">
        <Choice legend="Colours" options={THEMES} value={theme.value} onChange={setTheme} />
        <Choice
          legend="Times"
          options={[
            ["utc", "UTC"],
            ["browser", "This browser's zone"],
          ]}
          value={zone.value}
          onChange={setZone}
        />
        <Choice
          legend="Single-letter shortcuts"
          options={[
            ["on", "On"],
            ["off", "Off"],
          ]}
          value={shortcuts.value ? "on" : "off"}
          onChange={(value) => setShortcuts(value === "on")}
        />
      </div>
    </section>
  );
}

interface ChoiceProps<T extends string> {
  legend: string;
  options: [T, string][];
  value: T;
  onChange: (value: T) => void;
}

function Choice<T extends string>({ legend, options, value, onChange }: ChoiceProps<T>) {
  return (
    <fieldset class="segmented">
      <legend>{legend}</legend>
      {options.map(([code, word]) => (
        <button key={code} type="button" aria-pressed={code === value} onClick={() => onChange(code)}>
          {word}
        </button>
      ))}
    </fieldset>
  );
}

function Tokens() {
  const [tokens, setTokens] = useState<TokenRow[] | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const [fresh, setFresh] = useState("");
  const [teams, setTeams] = useState<string[]>([]);
  const load = () =>
    readTokens().then((answer) => {
      setTokens(answer.tokens);
      setTeams(answer.teams);
    }, setFailure);
  useEffect(() => {
    void load();
  }, []);
  const create = async (label: string, team: string) => {
    try {
      setFresh((await createToken(label, team)).token);
      settle("new token");
      await load();
    } catch (error) {
      notify((error as Error).message, "bad", "new token");
    }
  };
  if (failure) return <Failure error={failure} again={load} />;
  return (
    <>
      <p>An agent sends with a token and may do nothing else. It is shown once; only its hash is kept.</p>
      {tokens && <TokenForm teams={teams} onCreate={create} />}
      {fresh && <FreshToken token={fresh} onClose={() => setFresh("")} />}
      {tokens?.length === 0 && <Empty title="No token yet." />}
      {tokens && tokens.length > 0 && <TokenTable tokens={tokens} hasTeams={teams.length > 1} onGone={load} />}
    </>
  );
}

/** A token sends for one team: whoever administers several says for which. */
function TokenForm({ teams, onCreate }: { teams: string[]; onCreate: (label: string, team: string) => void }) {
  const [label, setLabel] = useState("");
  const [chosen, setTeam] = useState("");
  const team = chosen || (teams.length === 1 ? (teams[0] ?? "") : "");
  return (
    <form
      class="token-form"
      onSubmit={(submit) => {
        submit.preventDefault();
        if (!label.trim() || !team) return;
        onCreate(label.trim(), team);
        setLabel("");
      }}
    >
      <label for="token-label">Label</label>
      <input
        id="token-label"
        value={label}
        maxLength={100}
        placeholder="cluster a, training nodes"
        onInput={(input) => setLabel(input.currentTarget.value)}
      />
      {teams.length > 1 && (
        <>
          <label for="token-team">Team</label>
          <select id="token-team" required value={chosen} onChange={(choice) => setTeam(choice.currentTarget.value)}>
            <option value="">Choose a team</option>
            {teams.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </>
      )}
      <button type="submit" class="primary" disabled={!label.trim() || !team}>
        Create token
      </button>
    </form>
  );
}

interface TableProps {
  tokens: TokenRow[];
  hasTeams: boolean;
  onGone: () => void;
}

function TokenTable({ tokens, hasTeams, onGone }: TableProps) {
  const [doomed, setDoomed] = useState<TokenRow | null>(null);
  const columns: Column<TokenRow>[] = [
    { word: "Label", cell: (token) => token.label },
    ...(hasTeams ? [{ word: "Team", cell: (token: TokenRow) => token.team }] : []),
    { word: "Created", cell: (token) => <Ago at={token.created_at} /> },
    { word: "Last used", cell: (token) => <Ago at={token.last_used_at} /> },
    {
      word: "",
      isNumber: true,
      cell: (token) => (
        <button type="button" onClick={() => setDoomed(token)} aria-label={`Delete token ${token.label}`}>
          Delete
        </button>
      ),
    },
  ];
  return (
    <Table label="Agent tokens" columns={columns} rows={tokens} rowKey={(token) => token.id}>
      {doomed && <DeleteDialog token={doomed} onClose={() => setDoomed(null)} onGone={onGone} />}
    </Table>
  );
}

function DeleteDialog({ token, onClose, onGone }: { token: TokenRow; onClose: () => void; onGone: () => void }) {
  const { busy, refused, say } = useSaying(onClose);
  const remove = async () => {
    await deleteToken(token.id).finally(onGone);
    notify(`Token “${token.label}” no longer works.`);
  };
  return (
    <Dialog title={`Delete “${token.label}”?`} onClose={onClose}>
      <p>Agents that use it will be refused from now on.</p>
      <Refused words={refused} />
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" class="primary" disabled={busy} onClick={() => void say(remove)}>
          Delete
        </button>
      </div>
    </Dialog>
  );
}
