/*
 * The part of the lanes' time that is drawn: narrower around a moment, moved, never beyond the whole. Pure; times in unix ns.
 */

export interface Span {
  from_ns: number;
  to_ns: number;
}

/** Ticks come every 100 ms: narrower would show nothing more. */
export const SPAN_MIN_NS = 5e8;

/** `span` made so many times as long, with `atNs` staying where it is drawn; null when that is the whole. */
export function zoomed(span: Span, whole: Span, times: number, atNs: number): Span | null {
  const length = Math.max((span.to_ns - span.from_ns) * times, SPAN_MIN_NS);
  if (length >= whole.to_ns - whole.from_ns) return null;
  const share = (atNs - span.from_ns) / (span.to_ns - span.from_ns);
  return within({ from_ns: atNs - share * length, to_ns: atNs + (1 - share) * length }, whole);
}

/** `span` moved by so many times its own length. */
export function moved(span: Span, whole: Span, times: number): Span {
  const by = (span.to_ns - span.from_ns) * times;
  return within({ from_ns: span.from_ns + by, to_ns: span.to_ns + by }, whole);
}

/** `span` pushed into the whole, which may have changed since. */
export function within(span: Span, whole: Span): Span {
  const length = Math.min(span.to_ns - span.from_ns, whole.to_ns - whole.from_ns);
  const from_ns = Math.max(whole.from_ns, Math.min(span.from_ns, whole.to_ns - length));
  return { from_ns, to_ns: from_ns + length };
}
