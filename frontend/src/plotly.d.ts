/* The bundle ships no types; this is all the page uses of it. */
declare module "plotly.js-cartesian-dist-min" {
  const plotly: {
    react(box: HTMLElement, traces: unknown[], layout: object, config: object): Promise<void>;
    purge(box: HTMLElement): void;
  };
  export default plotly;
}
