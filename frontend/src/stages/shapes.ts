/* What the REST answers about stages hold, and how the page says it. */

import { timeOfDay, zoneLabel } from "../state/clock";
import { readable } from "../state/words";
import type { PlotlyFigure } from "../types";

export interface StageWindowRow {
  id: number;
  role: string;
  started_at: string | null;
  ended_at: string | null;
  first_step: number;
  last_step: number;
  n_ranks: number;
  verdict: Verdict;
  labels: string[];
  is_strong: boolean;
  stage: string;
  leader: number | null;
  step_s: number;
  usual_s: number | null;
  shares: Record<string, number>;
  next_look: string;
}

export type Verdict = "learning" | "usual" | "faster" | "routed" | "unlocalised";

export interface Led {
  rank: number;
  windows: number;
  of: number;
  node: string;
  mates: number;
}

export interface StageWindows {
  recording: { is_recorded: boolean; gaps: number; failed: string; missed?: number };
  roles: string[];
  role: string;
  windows: StageWindowRow[];
  shares: PlotlyFigure;
  led: Led[];
  newest_moved: number | null;
  /** Of an incident. */
  first_symptom_at?: string | null;
  /** When the job's last op ended, where none has for long. */
  standing_since?: string | null;
  /** Up to when that was seen, where it is over. */
  standing_until?: string | null;
  /** Whether anybody tells if steps go on; left out: yes. */
  is_standing_known?: boolean;
}

export interface ByStage {
  stage: string;
  p50_ms: number;
  p95_ms: number;
  max_ms: number;
  p50_share: number;
  share: number;
}

export interface StageReport {
  shares: Record<string, number>;
  gains: Record<string, number>;
  gain_baseline: string;
  routing: string[];
  co_critical_stages: string[];
  downgrades: string[];
  fits_wait_model: boolean;
  why: string;
  n_steps: number;
  n_ranks: number;
  at: { leader: number | null; lead_s: number; tied: number[]; n_tied: number; lag_s: number; lag_increase_s: number };
}

export interface StageWindow {
  window: StageWindowRow;
  labels: { label: string; meaning: string }[];
  report: StageReport;
  verdict: {
    verdict: Verdict;
    growth: Record<string, number>;
    entered: { rank: number; late_ms: number; n_steps: number; of: number; settled: string } | null;
    next_look: string;
  };
  closed: string;
  steps: PlotlyFigure;
  ranks: PlotlyFigure;
  median: PlotlyFigure;
  by_stage: ByStage[];
  summaries: Record<string, Record<string, number>>;
  profile: { rank: number; node: string; pid: number | null; stage: string; commands: string[] } | null;
}

export const VERDICT: Record<Verdict, { word: string; about: string }> = {
  learning: {
    word: "learning",
    about:
      "There is no normal to compare with yet: windows in which an incident saw the job stand or go slowly are not learned from.",
  },
  usual: { word: "as usual", about: "The step takes what it usually takes, its longest three left out." },
  faster: { word: "faster", about: "The step takes less than it usually does." },
  routed: { word: "routed", about: "The step takes longer, and a stage may be called the cause." },
  unlocalised: { word: "unlocalised", about: "The step takes longer, and no stage may be called the cause." },
};

const SHORT: Record<string, string> = {
  "data.next_wait": "data",
  "model.fwd_loss_cpu_wall": "forward",
  "model.backward_cpu_wall": "backward",
  "callbacks.cpu_wall": "callbacks",
  "optim.step_cpu_wall": "optimizer",
  "step.other_cpu_wall": "other",
};

const LABEL: Record<string, string> = {
  frontier_accounting: "Accounting of the frontier",
  likely_sync_wait: "Likely a wait for one rank",
  sync_wait_dependent: "Depends on who waits",
  direct_exposure: "Exposed directly",
  forward_device_supported: "Slow forward, seen by the device",
  forward_spillover_suspected: "Forward may spill into later stages",
  forward_host_overhead_suspected: "The host may hold up forward",
  forward_event_scope_limited: "Too few device times",
  co_critical: "Several may hold it up",
  gradient_accumulation_ambiguous: "Micro-steps are added up",
  role_aware_needed: "Roles must be told apart",
  telemetry_limited: "Measurement incomplete",
};

/** A label in plain words; its code belongs into a tooltip, for those who read the docs. */
export function labelWords(label: string): string {
  return LABEL[label] ?? readable(label);
}

export function short(stage: string): string {
  return SHORT[stage] ?? stage;
}

export function percent(share: number): string {
  return `${(share * 100).toFixed(share > 0 && share < 0.0995 ? 1 : 0)} %`;
}

export function ms(seconds: number): string {
  const value = seconds * 1000;
  return `${value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en")} ms`;
}

/** What a window says in one sentence. before: it is of a time that is over, as "Before the hang (…)". */
export function headline({ window, report, verdict }: StageWindow, before = ""): string {
  const now = before ? PAST : PRESENT;
  const usual = window.usual_s ? `, usually ${ms(window.usual_s)}` : "";
  const step = `${before ? `${before} a` : "A"} step ${now.takes} ${ms(window.step_s)}${usual}`;
  const leading = report.routing[0];
  if (!leading) return `${step}; too little time ${now.is} exposed to divide it.`;
  const share = percent(report.shares[leading] ?? 0);
  if (verdict.entered?.settled && verdict.entered.settled !== leading) {
    return `${step}; rank ${verdict.entered.rank} ${now.is} late in ${short(verdict.entered.settled)}, which the host ${now.sees} in ${short(leading)}.`;
  }
  const who =
    window.leader === null
      ? `no rank ${now.leaves} it clearly last`
      : whoLeads(window.leader, report.at.lead_s, verdict, now);
  return `${step}; ${short(leading)} ${now.has} ${share} of the exposed time, and ${who}.`;
}

const PRESENT = { takes: "takes", is: "is", are: "are", sees: "sees", leaves: "leaves", has: "has", enters: "enters" };
const PAST: typeof PRESENT = {
  takes: "took",
  is: "was",
  are: "were",
  sees: "saw",
  leaves: "left",
  has: "had",
  enters: "entered",
};

function whoLeads(rank: number, lead: number, verdict: StageWindow["verdict"], now: typeof PRESENT): string {
  if (verdict.entered && verdict.entered.rank === rank && lead === 0) {
    return `all ranks ${now.are} alike in it, but rank ${rank} ${now.enters} the ops last by ${Math.round(verdict.entered.late_ms)} ms`;
  }
  return `rank ${rank} ${now.leaves} it last, ${ms(lead)} after everybody else`;
}

/** "Before the hang (09:46:42–09:47:04 UTC)" of a window of a time that is over; "" of one that tells of now. */
export function beforeWords(window: StageWindowRow, { standing_since, first_symptom_at }: StageWindows): string {
  const [from, until] = [window.started_at, window.ended_at].map((at) => (at ? Date.parse(at) : Number.NaN));
  const isBefore = first_symptom_at ? until <= Date.parse(first_symptom_at) : false;
  const isOfHang = standing_since ? from < Date.parse(standing_since) : false;
  if (!isOfHang && !isBefore) return "";
  const when = `(${timeOfDay(from)}–${timeOfDay(until)} ${zoneLabel()})`;
  return isOfHang ? `Before the hang ${when}` : `Before the first symptom ${when}`;
}

type StandingAnswer = Pick<StageWindows, "standing_since" | "standing_until" | "is_standing_known" | "windows">;

/** That no step goes on, went on for a time, or that nobody knows, so that nobody takes what was for what is; "" else. */
export function standingWords({ standing_since, standing_until, is_standing_known, windows }: StandingAnswer): string {
  const newest = windows.at(-1);
  if (is_standing_known === false) return unknownWords(newest?.ended_at);
  if (!standing_since || Date.parse(newest?.started_at ?? "") > Date.parse(standing_since)) return "";
  const since = timeOfDay(Date.parse(standing_since));
  if (standing_until) {
    const until = `${timeOfDay(Date.parse(standing_until))} ${zoneLabel()}`;
    return `No op ended from ${since} to ${until}, so no step did either: what stands here is from before the hang. It tells how long steps took, not why the job stood.`;
  }
  return `No op has ended since ${since} ${zoneLabel()}, so no step has either: what stands here is from before the hang. It tells how long steps took, not why the job stands.`;
}

function unknownWords(ended: string | null | undefined): string {
  const when = ended ? ` The newest window ended at ${timeOfDay(Date.parse(ended))} ${zoneLabel()}.` : "";
  return `Whether steps go on is not known: no node tells when its ops ended.${when}`;
}
