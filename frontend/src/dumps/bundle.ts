/* A bundle's diagnosis as the verdict shows it: the headline is the best finding's sentence, or that nobody is named. */

import type { VerdictRow } from "../incident/Verdict";
import type { Diagnosis } from "../types";

const NOBODY = "Nobody can be named from these dumps.";

export function verdictRowOf(diagnosis: Diagnosis): VerdictRow {
  const [best] = diagnosis.findings;
  const culprits = best?.culprits ?? [];
  return {
    headline: best?.sentence ?? NOBODY,
    certainty: "diagnosed",
    condition: "clear",
    grade: best?.grade ?? "",
    culprits,
    n_culprits: culprits.length,
    n_victims: diagnosis.victims.length,
    symptom: diagnosis.symptom.kind,
  };
}
