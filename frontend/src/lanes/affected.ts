/* Communicators in which the waiting goes on: of the path, else the one the symptom speaks of. */

import { commName } from "../incident/path";
import type { Diagnosis } from "../types";

export function affectedNames({ path, symptom, communicators }: Diagnosis): string[] {
  const ids = path.length > 0 ? path.map((edge) => edge.comm_id) : [symptom.comm_id];
  return [...new Set([...new Set(ids)].map((id) => commName(communicators, id)))].filter(Boolean);
}
