/*
 * Who else could have been blamed, and why they were not; and the same question about any rank. The rank asked about is
 * the selected one, so that a link carries question and answer.
 */

import { useEffect, useState } from "preact/hooks";
import { readWhyNot } from "../api";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { count } from "../state/words";
import type { Alternative, Diagnosis } from "../types";
import { EvidenceTable } from "./EvidenceTable";

interface WhyNotProps {
  number: number;
  diagnosis: Diagnosis | null;
  /** Which diagnosis is shown: another one answers anew. */
  revision: number;
  rank: number | null;
  onSelect: (rank: number | null) => void;
}

export function WhyNot({ number, diagnosis, revision, rank, onSelect }: WhyNotProps) {
  if (!diagnosis) return <p class="faint">There is no diagnosis yet; it can be questioned once there is one.</p>;
  const others = diagnosis.alternatives;
  return (
    <div class="why-not">
      <section aria-labelledby="ask-why">
        <h3 id="ask-why">Why not another rank?</h3>
        <AskRank rank={rank} onSelect={onSelect} />
        {rank !== null && <Answer key={`${rank} ${revision}`} number={number} rank={rank} />}
      </section>
      {others.length > 0 && (
        <section aria-labelledby="alternatives">
          <h3 id="alternatives">Who else could have been blamed</h3>
          <ul class="alternatives">
            {others.map((one) => (
              <li key={`${one.subject.kind} ${one.subject.name}`}>
                <Because alternative={one} />
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

function AskRank({ rank, onSelect }: { rank: number | null; onSelect: (rank: number | null) => void }) {
  const [typed, setTyped] = useState("");
  useEffect(() => setTyped(rank === null ? "" : String(rank)), [rank]);
  return (
    <form
      class="ask-rank"
      onSubmit={(submit) => {
        submit.preventDefault();
        if (/^\d{1,7}$/.test(typed.trim())) onSelect(Number(typed));
      }}
    >
      <label for="why-rank">Rank</label>
      <input
        id="why-rank"
        inputMode="numeric"
        pattern="\d{1,7}"
        required
        value={typed}
        onInput={(input) => setTyped(input.currentTarget.value)}
      />
      <button type="submit">Ask</button>
    </form>
  );
}

function Answer({ number, rank }: { number: number; rank: number }) {
  const [answer, setAnswer] = useState<Alternative | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const load = () =>
    void readWhyNot(number, rank).then((found) => {
      setAnswer(found.alternative);
      setFailure(null);
    }, setFailure);
  useEffect(load, [number, rank]);
  if (failure) return <Failure error={failure} again={load} />;
  if (!answer) return <Loading what={`what is known of rank ${rank}`} />;
  return (
    <div class="answer" aria-live="polite">
      <Because alternative={answer} open />
    </div>
  );
}

function Because({
  alternative: { subject, why_not, evidence },
  open = false,
}: {
  alternative: Alternative;
  open?: boolean;
}) {
  return (
    <>
      <p>
        <b>Why not {subject.name}?</b> {why_not}
      </p>
      {evidence.length > 0 && (
        <details open={open}>
          <summary>{count(evidence.length, "measurement")}</summary>
          <EvidenceTable rows={evidence} caption={`Evidence about ${subject.name}`} />
        </details>
      )}
    </>
  );
}
