/* The bundle ships no types; this is all the page uses of it. */
declare module "plotly.js-cartesian-dist-min" {
  export interface Drawn {
    on?(what: "plotly_relayout", heard: (change: Record<string, unknown>) => void): void;
    removeAllListeners?(what: "plotly_relayout"): void;
  }
  const plotly: {
    react(box: HTMLElement, traces: unknown[], layout: object, config: object): Promise<Drawn>;
    purge(box: HTMLElement): void;
  };
  export default plotly;
}
