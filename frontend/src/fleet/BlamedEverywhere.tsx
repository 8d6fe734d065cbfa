/* Who was blamed in thirty days, on all nodes: below the list of nodes. */

import { useAnswer } from "../parts/useAnswer";
import { Blamed } from "./Blamed";
import { readRecurrence } from "./calls";

export function BlamedEverywhere() {
  const { value, failure } = useAnswer("recurrence", readRecurrence);
  if (failure) return <p class="warning">{failure.message}</p>;
  return value && <Blamed blamed={value.blamed} />;
}
