/*
 * Who else could have been blamed, and why they were not; and the same question about any rank. The rank asked about is
 * the selected one, so that a link carries question and answer.
 */

import { useEffect, useState } from "preact/hooks";
import { readWhyNot } from "../api";
import { Loading } from "../parts/bits";
import { Failure } from "../parts/Failure";
import { count, subjectWords } from "../state/words";
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
  const [refused, setRefused] = useState("");
  useEffect(() => {
    if (rank === null) return;
    setTyped(String(rank));
    setRefused("");
  }, [rank]);
  const ask = () => {
    const isRank = /^\d{1,7}$/.test(typed.trim());
    setRefused(isRank ? "" : refusalOf(typed.trim()));
    // The answer about another rank must not stand under a question that has none.
    onSelect(isRank ? Number(typed) : null);
  };
  return (
    <form
      class="ask-rank"
      noValidate
      onSubmit={(submit) => {
        submit.preventDefault();
        ask();
      }}
    >
      <label for="why-rank">Rank</label>
      <input
        id="why-rank"
        inputMode="numeric"
        aria-invalid={refused !== ""}
        aria-describedby={refused ? "why-rank-refused" : undefined}
        value={typed}
        onInput={(input) => setTyped(input.currentTarget.value)}
      />
      <button type="submit">Ask</button>
      {refused && (
        <span id="why-rank-refused" class="refused" role="alert">
          {refused}
        </span>
      )}
    </form>
  );
}

function refusalOf(typed: string): string {
  if (!typed) return "Which rank? Ranks are numbers, from 0 on.";
  const isNumber = /^[+-]?\d+([.,]\d+)?$/.test(typed);
  return isNumber ? `${typed} is no rank: ranks are whole numbers, from 0 on.` : `“${typed}” is no number.`;
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
        <b>Why not {subjectWords(subject)}?</b> {why_not}
      </p>
      {evidence.length > 0 && (
        <details open={open}>
          <summary>{count(evidence.length, "measurement")}</summary>
          <EvidenceTable rows={evidence} caption={`Evidence about ${subjectWords(subject)}`} />
        </details>
      )}
    </>
  );
}
