/* What was not seen, and why grades were lowered: said before the pictures, because pictures convince. */

interface NotSeenProps {
  title: string;
  missing: readonly string[];
  downgraded: readonly string[];
}

export function NotSeen({ title, missing, downgraded }: NotSeenProps) {
  if (missing.length + downgraded.length === 0) return null;
  return (
    <section class="doubts" aria-labelledby="not-seen">
      <h2 id="not-seen">{title}</h2>
      <ul>
        {missing.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
        {downgraded.map((sentence) => (
          <li key={sentence}>
            <b>Grade lowered:</b> {sentence}
          </li>
        ))}
      </ul>
    </section>
  );
}
