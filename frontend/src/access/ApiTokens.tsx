/* API tokens on the settings page: made with role, scopes and an end; rotated, revoked; when each was last used. */

import { useState } from "preact/hooks";
import { Ago, Empty, For, Loading } from "../parts/bits";
import { Dialog } from "../parts/Dialog";
import { Failure } from "../parts/Failure";
import { type Column, Table } from "../parts/Table";
import { useAnswer } from "../parts/useAnswer";
import { Refused, useSaying } from "../parts/useSaying";
import { notify, settle } from "../state/notices";
import { count } from "../state/words";
import { ApiTokenForm } from "./ApiTokenForm";
import {
  type ApiTokenRow,
  makeApiToken,
  type NewApiToken,
  readApiTokens,
  revokeApiToken,
  rotateApiToken,
} from "./calls";
import { FreshToken } from "./FreshToken";
import "./access.css";

const GRACES: readonly (readonly [number, string])[] = [
  [0, "It stops at once"],
  [10, "10 min"],
  [60, "1 hour"],
  [1440, "1 day"],
];
const STATE: Record<ApiTokenRow["state"], string> = {
  live: "good",
  rotated: "rotated, still good",
  expired: "expired",
  revoked: "revoked",
};

export function ApiTokens() {
  const { value, failure, again } = useAnswer("api-tokens", readApiTokens);
  const [fresh, setFresh] = useState("");
  /** The secret of a new token is shown. */
  const run = async (act: () => Promise<{ token?: string } | unknown>) => {
    try {
      const done = (await act()) as { token?: string };
      if (done.token) setFresh(done.token);
    } finally {
      again();
    }
  };
  /** Whether it was done. */
  const create = (wanted: NewApiToken) =>
    run(() => makeApiToken(wanted)).then(
      () => {
        settle("new API token");
        return true;
      },
      (error: Error) => {
        notify(error.message, "bad", "new API token");
        return false;
      },
    );
  return (
    <>
      <p>
        A script asks the <a href="/api/v1/docs">REST API</a> with a token, whose label stands for it in timelines. It
        is shown once; only its hash is kept.
      </p>
      {failure && !value && <Failure error={failure} again={again} />}
      {!value && !failure && <Loading what="API tokens" />}
      {value && <ApiTokenForm answer={value} onCreate={create} />}
      {fresh && <FreshToken token={fresh} tryPath="/api/v1/incidents" onClose={() => setFresh("")} />}
      {value?.tokens.length === 0 && <Empty title="There is no API token yet." />}
      {value && value.tokens.length > 0 && <Tokens tokens={value.tokens} hasTeams={value.teams.length > 1} run={run} />}
      {value && value.left_out > 0 && (
        <p class="faint">{count(value.left_out, "more token")} that ended or were made earlier are not listed.</p>
      )}
    </>
  );
}

interface TokensProps {
  tokens: ApiTokenRow[];
  hasTeams: boolean;
  /** Rejects with why it was refused. */
  run: (act: () => Promise<unknown>) => Promise<void>;
}

function Tokens({ tokens, hasTeams, run }: TokensProps) {
  const [doomed, setDoomed] = useState<ApiTokenRow | null>(null);
  const [turning, setTurning] = useState<ApiTokenRow | null>(null);
  const columns: Column<ApiTokenRow>[] = [
    { word: "Label", cell: (row) => row.label },
    ...(hasTeams ? [{ word: "Team", cell: (row: ApiTokenRow) => row.team }] : []),
    { word: "May", cell: (row) => <May row={row} /> },
    { word: "State", cell: (row) => <State row={row} /> },
    { word: "Last used", cell: (row) => <Ago at={row.last_used_at} /> },
    {
      word: "Made",
      cell: (row) => (
        <>
          <Ago at={row.made_at} />
          {row.made_by && (
            <span class="faint">
              {" "}
              {row.made_with === null ? "by" : "with"} {row.made_by}
            </span>
          )}
        </>
      ),
    },
    {
      word: "",
      cell: (row) => (
        <span class="cell-acts">
          {row.state === "live" && (
            <button type="button" onClick={() => setTurning(row)} aria-label={`Rotate API token ${row.label}`}>
              Rotate
            </button>
          )}
          {(row.state === "live" || row.state === "rotated" || row.n_taken_along > 0) && (
            <button type="button" onClick={() => setDoomed(row)} aria-label={`Revoke API token ${row.label}`}>
              Revoke{row.n_taken_along > 0 && ` with ${row.n_taken_along} more`}
            </button>
          )}
        </span>
      ),
    },
  ];
  return (
    <Table label="API tokens" isCards columns={columns} rows={tokens} rowKey={(row) => row.id}>
      {doomed && (
        <Revoking row={doomed} onClose={() => setDoomed(null)} revoke={() => run(() => revokeApiToken(doomed.id))} />
      )}
      {turning && (
        <Rotating
          row={turning}
          onClose={() => setTurning(null)}
          rotate={(grace) => run(() => rotateApiToken(turning.id, grace))}
        />
      )}
    </Table>
  );
}

function May({ row }: { row: ApiTokenRow }) {
  if (row.scopes.length === 0)
    return <>{row.role === "viewer" ? "look" : `all that ${row.role === "admin" ? "an" : "a"} ${row.role} may`}</>;
  return (
    <>
      look, {row.scopes.join(", ")} <span class="faint">({row.role})</span>
    </>
  );
}

function State({ row }: { row: ApiTokenRow }) {
  const isGood = row.state === "live" || row.state === "rotated";
  return (
    <>
      <span class={isGood ? "" : "faint"}>{STATE[row.state]}</span>
      {isGood && row.expires_at && (
        <>
          {" "}
          <For until={row.expires_at} />
        </>
      )}
      {isGood && !row.expires_at && <span class="old"> without end</span>}
    </>
  );
}

interface AskProps {
  row: ApiTokenRow;
  onClose: () => void;
}

function Revoking({ row, onClose, revoke }: AskProps & { revoke: () => Promise<void> }) {
  const { busy, refused, say } = useSaying(onClose);
  return (
    <Dialog title={`Revoke “${row.label}”?`} onClose={onClose}>
      <p>Scripts that use it will be refused from now on. This cannot be taken back.</p>
      {row.n_taken_along > 0 && (
        <p>
          {row.n_taken_along === 1 ? "One other token ends" : `${row.n_taken_along} other tokens end`} with it: what was
          made with it, and the secrets it had before.
        </p>
      )}
      <Refused words={refused} />
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Keep it
        </button>
        <button type="button" class="primary" disabled={busy} onClick={() => void say(revoke)}>
          Revoke
        </button>
      </div>
    </Dialog>
  );
}

function Rotating({ row, onClose, rotate }: AskProps & { rotate: (graceMinutes: number) => Promise<void> }) {
  const [grace, setGrace] = useState(60);
  const { busy, refused, say } = useSaying(onClose);
  return (
    <Dialog title={`Rotate “${row.label}”`} onClose={onClose}>
      <p>A new token with the same rights takes its place.</p>
      <label for="grace">How long the old one goes on</label>
      <select id="grace" value={String(grace)} onChange={(change) => setGrace(Number(change.currentTarget.value))}>
        {GRACES.map(([minutes, word]) => (
          <option key={minutes} value={minutes} selected={minutes === grace}>
            {word}
          </option>
        ))}
      </select>
      <Refused words={refused} />
      <div class="dialog-actions">
        <button type="button" onClick={onClose}>
          Cancel
        </button>
        <button type="button" class="primary" disabled={busy} onClick={() => void say(() => rotate(grace))}>
          Rotate
        </button>
      </div>
    </Dialog>
  );
}
