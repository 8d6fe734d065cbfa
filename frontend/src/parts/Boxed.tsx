/* A figure with what it shows above it: a few words, and a fainter hint how to read it. */

import type { ComponentChildren } from "preact";

interface BoxedProps {
  class: string;
  title: string;
  hint: string;
  /** Of the heading. */
  level?: 3 | 4;
  children: ComponentChildren;
}

export function Boxed({ class: name, title, hint, level = 4, children }: BoxedProps) {
  const Heading = `h${level}` as const;
  return (
    <section class={name}>
      <Heading>
        {title} <span class="faint">{hint}</span>
      </Heading>
      {children}
    </section>
  );
}
