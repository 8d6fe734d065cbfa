/*
 * JSON indented without being read: a number keeps every digit the server wrote, which JavaScript's numbers cannot hold
 * beyond 2^53. Text only; what is no JSON comes out as it is, only broken into lines. Pure.
 */

const STEP = "  ";

export function indented(json: string): string {
  const out: string[] = [];
  let depth = 0;
  const line = () => `\n${STEP.repeat(depth)}`;
  for (const [token] of json.matchAll(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s"{}[\],:]+/g)) {
    const before = out.at(-1);
    if (token === "}" || token === "]") {
      depth -= 1;
      out.push(before === "{" || before === "[" ? token : line() + token);
    } else {
      const isFirst = before === "{" || before === "[";
      if (isFirst) out.push(line());
      if (token === "{" || token === "[") depth += 1;
      out.push(token === ":" ? ": " : token === "," ? `,${line()}` : token);
    }
  }
  return out.join("");
}
